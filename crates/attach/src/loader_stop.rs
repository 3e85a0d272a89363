//! Letting a program that was just executed run until its loader has mapped and relocated all libraries, and stopping it
//! there, before any constructor runs.
//!
//! The loader then calls an empty function, at which debuggers set a breakpoint. A breakpoint instruction would kill
//! the program if the profiler died. So the function is changed to make a harmless system call and to return, and the
//! program runs from one system call to the next. When it arrives at that call, the function gets its own bytes back.
use crate::error::Refusal;
use crate::files::Object;
use crate::loader::Loader;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::Process;
use crate::ptrace::{self, Event};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};

const AT_BASE: u64 = 7;
const FUNCTION: &[u8] = b"_dl_debug_state";
/// `mov eax, SYS_gettid; syscall; ret`
const STUB: [u8; 8] = [0xb8, 0xba, 0, 0, 0, 0x0f, 0x05, 0xc3];
/// The offset of the instruction after the system call.
const AFTER_CALL: u64 = 7;
/// The offset of `r_state` in `r_debug`, and its value when all libraries are there.
const STATE: u64 = 24;
const CONSISTENT: u32 = 0;

/// The function that the loader calls.
struct Place {
    at: u64,
    original: [u8; STUB.len()],
}

/// Returns true if the program has a loader.
pub fn has_loader(process: &Process) -> bool {
    process.auxiliary(AT_BASE).is_some_and(|base| base != 0)
}

/// Runs the stopped program until its loader is done, and stops it there. Returns false if it has ended.
pub fn run(process: &Process) -> Result<bool, Refusal> {
    let memory = Memory::open(&process.folder).map_err(|_| Refusal::Gone)?;
    let Some(place) = Place::find(process, &memory) else { return Err(Refusal::Loader) };
    memory.write(place.at, &STUB).map_err(Refusal::memory(process.pid))?;
    if !run_to(process, &memory, &place)? {
        return Ok(false);
    }
    memory.write(place.at, &place.original).map_err(Refusal::memory(process.pid))?;
    let registers = ptrace::registers(process.pid).map_err(|_| Refusal::Gone)?;
    let registers = libc::user_regs_struct { rip: place.at, ..registers };
    ptrace::set_registers(process.pid, &registers).map_err(|_| Refusal::Gone)?;
    Ok(leave_call(process.pid))
}

impl Place {
    fn find(process: &Process, memory: &Memory) -> Option<Place> {
        let base = process.auxiliary(AT_BASE)?;
        let maps = Maps::of(&process.folder).ok()?;
        let objects = Object::all(process, &maps, memory);
        let loader = objects.iter().find(|object| object.start == base)?;
        let symbols = loader.functions(process, |name| name == FUNCTION);
        let at = symbols.functions.first()?.at;
        let mut code = [0; 32];
        memory.read(at, &mut code).ok()?;
        let skip = room(&code)?;
        let original = code.get(skip..skip + STUB.len())?.try_into().ok()?;
        Some(Place { at: at + skip as u64, original })
    }
}

/// Returns the offset of the return in an empty function, if padding follows it that makes room for the stub.
fn room(code: &[u8]) -> Option<usize> {
    let mut start = None;
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
        let at = instruction.ip() as usize;
        match (start, instruction.flow_control()) {
            (Some(start), _) if at >= start + STUB.len() => return Some(start),
            (None, FlowControl::Return) => start = Some(at),
            (None, _) if instruction.code() == Code::Endbr64 => (),
            (Some(_), _) if instruction.mnemonic() == iced_x86::Mnemonic::Nop => (),
            _ => return None,
        }
    }
    None
}

/// Runs the program until it is in the stub's system call and its loader is done. Returns false if it has ended.
fn run_to(process: &Process, memory: &Memory, place: &Place) -> Result<bool, Refusal> {
    let pid = process.pid;
    let mut signal = 0;
    let mut is_stopped = true;
    loop {
        // A request fails only if the child has just been killed, and then the next event says so.
        if is_stopped {
            let _ = ptrace::resume_to_call_with(pid, signal);
        }
        (is_stopped, signal) = (true, 0);
        match ptrace::poll_child(pid, true) {
            None => is_stopped = false,
            Some(Event::Gone) => return Ok(false),
            Some(Event::Signal(sent)) => signal = sent,
            Some(Event::Stopped) => {
                let _ = ptrace::listen(pid);
                is_stopped = false;
            }
            Some(Event::Exec) => (),
            Some(Event::SystemCall) => {
                let registers = ptrace::registers(pid).map_err(|_| Refusal::Gone)?;
                if registers.rip == place.at + AFTER_CALL && is_consistent(process, memory) {
                    return Ok(true);
                }
            }
        }
    }
}

fn is_consistent(process: &Process, memory: &Memory) -> bool {
    let debug = Loader::find(process, memory).map_or(0, |loader| loader.debug);
    debug != 0 && memory.word(debug + STATE).is_ok_and(|state| state as u32 == CONSISTENT)
}

/// Lets a thread leave the system call that it is in, and stops it before its next instruction. Returns false if the
/// process has ended. A signal that arrives meanwhile is delivered.
pub fn leave_call(pid: u32) -> bool {
    let _ = ptrace::interrupt(pid).and_then(|()| ptrace::resume(pid, 0));
    loop {
        match ptrace::poll_child(pid, true) {
            Some(Event::Gone) => return false,
            Some(Event::Stopped) => return true,
            Some(Event::Signal(signal)) => drop(ptrace::resume(pid, signal)),
            Some(Event::SystemCall | Event::Exec) => drop(ptrace::resume(pid, 0)),
            None => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_function_with_padding_has_room() {
        let padding = *b"\x66\x66\x2e\x0f\x1f\x84\0\0\0\0\0\x0f\x1f\x40\0";
        let code = |start: &[u8]| [start, &padding, &padding].concat();
        assert_eq!(room(&code(b"\xc3")), Some(0));
        assert_eq!(room(&code(b"\xf3\x0f\x1e\xfa\xc3")), Some(4));
        assert_eq!(room(&code(b"\x90\xc3")), None, "it does something");
        assert_eq!(room(&code(b"\xc3\x53\xc3")), None, "another function follows");
        assert_eq!(room(b"\xc3\x0f\x1f\x40\x00"), None, "the end is not known");
    }
}
