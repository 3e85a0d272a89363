//! Reading the stacks of stopped threads.
//!
//! Receives: all threads, stopped. Returns: their registers, and the words of their stacks. Must hold: if a thread runs
//! on the stack of the first thread, or on the one that libc made for it, that stack is read from the stack pointer to
//! its end; if the limit for all stacks prevents that, `is_cut` says so. If a thread runs on a stack that the program
//! made itself (for a coroutine, or for signals), only the part next to the stack pointer is read, and the ends of the
//! other two stacks. Other stacks are not read at all.
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use crate::ptrace::{self, Tid};
use libc::user_regs_struct;

/// The most bytes that are read of all stacks together, because all threads are stopped meanwhile.
const ALL_STACKS: u64 = 64 << 20;
/// The most bytes of a stack that the program made itself, whose end is not known.
const FOREIGN: u64 = 1 << 20;
/// The most bytes, from its end, of a stack that a thread has left for another one. It is not known how much of it is
/// in use.
const WHOLE: u64 = 8 << 20;

/// A stopped thread's registers, and the words of its stacks.
#[derive(Debug)]
pub struct Thread {
    pub tid: Tid,
    pub registers: user_regs_struct,
    /// The limit for all stacks was reached, so a part of its stacks was not read.
    pub is_cut: bool,
    stacks: Vec<Vec<u64>>,
}

/// Reads the registers and stacks of these threads. Threads that have ended meanwhile are left out.
pub fn threads(tids: &[Tid], maps: &Maps, memory: &Memory) -> Vec<Thread> {
    let mut room = ALL_STACKS;
    tids.iter().filter_map(|tid| Thread::of(*tid, maps, memory, &mut room)).collect()
}

/// Returns true for the stack of the first thread, and for the one that libc made for the thread with this thread
/// pointer.
pub fn is_home(mapping: &Mapping, maps: &Maps, thread_pointer: u64) -> bool {
    mapping.name == "[stack]" || maps.at(thread_pointer).is_some_and(|home| home.start == mapping.start)
}

impl Thread {
    fn of(tid: Tid, maps: &Maps, memory: &Memory, room: &mut u64) -> Option<Thread> {
        let registers = ptrace::registers(tid).ok()?;
        let mut thread = Thread { tid, registers, is_cut: false, stacks: Vec::new() };
        let here = maps.at(registers.rsp);
        let is_at_home = here.is_some_and(|mapping| is_home(mapping, maps, registers.fs_base));
        if let Some(mapping) = here {
            let most = if is_at_home { u64::MAX } else { FOREIGN };
            let end = mapping.end.min(registers.rsp.saturating_add(most));
            thread.read(memory, registers.rsp & !7, end, room);
        }
        // A signal handler may run on a stack of its own. Then the code that it interrupted is on the thread's own
        // stack.
        if !is_at_home {
            let home = maps.at(registers.fs_base);
            let own = home.filter(|home| home.is_anonymous() && home.len() <= WHOLE + (64 << 10));
            let first = maps.0.iter().find(|mapping| mapping.name == "[stack]");
            for mapping in own.into_iter().chain(first) {
                thread.read(memory, mapping.start.max(mapping.end.saturating_sub(WHOLE)), mapping.end, room);
            }
        }
        Some(thread)
    }

    fn read(&mut self, memory: &Memory, from: u64, to: u64, room: &mut u64) {
        let wanted = to.saturating_sub(from);
        let length = wanted.min(*room);
        self.is_cut |= length < wanted;
        *room -= length;
        self.stacks.push(words(memory, from, from + length));
    }

    /// Returns true if the thread is at an address that `is_there` selects, or if a word on its stacks is such an
    /// address. That word may be an old return address, in a part of a frame that was never written.
    pub fn may_return_to(&self, is_there: impl Fn(u64) -> bool) -> bool {
        is_there(self.registers.rip) || self.stacks.iter().flatten().any(|word| is_there(*word))
    }

    /// Returns true if a signal handler of the thread will return to an address that `is_there` selects. A signal frame
    /// is recognised by the saved segments, two words after the saved instruction pointer. The handler's return address
    /// does not help, because each libc has its own restorer function.
    pub fn is_interrupted_in(&self, is_there: impl Fn(u64) -> bool) -> bool {
        let frames = self.stacks.iter().flat_map(|words| words.windows(3));
        let mut saved = frames.filter(|frame| frame.get(2) == Some(&SEGMENTS));
        saved.any(|frame| frame.first().is_some_and(|rip| is_there(*rip)))
    }
}

/// The code and stack segments of 64-bit programs, as a signal frame has them.
const SEGMENTS: u64 = 0x2b << 48 | 0x33;

fn words(memory: &Memory, from: u64, to: u64) -> Vec<u64> {
    let mut bytes = vec![0; to.saturating_sub(from) as usize & !7];
    let length = memory.read_some(from, &mut bytes) & !7;
    bytes.truncate(length);
    bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{RIP, State};

    #[test]
    fn a_signal_frame_is_found_by_its_saved_segments() {
        // SAFETY: `user_regs_struct` consists of integers only, so all zero bytes are one.
        let registers: user_regs_struct = unsafe { std::mem::zeroed() };
        let registers = user_regs_struct { rip: 0x1234, cs: 0x33, ss: 0x2b, orig_rax: u64::MAX, ..registers };
        let frame = State { registers, mask: 0, extended: Vec::new() }.frame(0x1000, 0xabcd);
        let words: Vec<u64> = frame.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[RIP as usize / 8], 0x1234);
        let thread = |stacks| Thread { tid: 1, registers, is_cut: false, stacks };
        assert!(thread(vec![words]).is_interrupted_in(|at| at == 0x1234));
        // The address alone may be an old word, or a return address.
        assert!(!thread(vec![vec![0, 0x1234, 0, 0]]).is_interrupted_in(|at| at == 0x1234));
        assert!(thread(vec![vec![0, 0x1234, 0, 0]]).may_return_to(|at| at == 0x1234));
    }
}
