//! System calls that a thread of the target makes for the profiler.
//!
//! Receives: one stopped thread, and the addresses of a `syscall; ret` and a `sigreturn` in the program. Must hold:
//! apart from these instructions, no code of the program or of ours runs. The thread has a signal frame on its stack
//! meanwhile, so if the profiler dies at any point, the thread continues where it was. Afterwards every register has
//! its old value, and a system call that was interrupted is restarted.
use crate::error::Refusal;
use crate::frame::{self, State};
use crate::interrupt::Patience;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::Process;
use crate::ptrace::{self, Event, Tid};
use std::io;
use std::time::{Duration, Instant};

/// `syscall; ret`
const CALL: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov rax, 15; syscall`
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `pop rax; ret`
const POP: [u8; 2] = [0x58, 0xc3];
/// The most bytes of one mapping of code that are searched.
const SEARCHED: usize = 16 << 20;
/// All signals except those that a thread causes itself.
const BLOCKED: u64 = !(1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGTRAP - 1)
    | 1 << (libc::SIGSYS - 1));

/// The longest time that a thread may take to enter a system call for the profiler, and then again to leave it. A call
/// that maps memory may wait for a kernel lock that a page fault of another thread holds.
const LONGEST_CALL: Duration = Duration::from_secs(10);
/// How long to wait for a running thread to stop. Only a thread that is frozen, or in a call that cannot be
/// interrupted, takes longer.
const LONGEST_STOP: Duration = Duration::from_secs(1);
const SPINS: u32 = 200;
const POLL_EVERY: Duration = Duration::from_micros(20);

/// Addresses of instructions in the program that a thread uses to make system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gadgets {
    pub call: u64,
    pub back: Back,
}

/// How a thread gets to `sigreturn` if the profiler has died during its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// The program has a function for it.
    Restorer(u64),
    /// The program has none, because it sets no signal handler. The thread pops the number of `sigreturn` and makes the
    /// call.
    Pop(u64),
}

impl Gadgets {
    pub fn find(maps: &Maps, memory: &Memory) -> Result<Gadgets, Refusal> {
        let (mut call, mut restorer, mut pop) = (None, None, None);
        let is_libc = |name: &str| name.contains("/libc") || name.contains("/ld-musl");
        let mut code: Vec<_> =
            maps.0.iter().filter(|m| m.execute && m.read && (m.inode != 0 || m.name == "[vdso]")).collect();
        code.sort_by_key(|mapping| !is_libc(&mapping.name));
        for mapping in code {
            let mut bytes = vec![0; (mapping.len() as usize).min(SEARCHED)];
            let length = memory.read_some(mapping.start, &mut bytes);
            bytes.truncate(length);
            let find = |what: &[u8]| {
                bytes.windows(what.len()).position(|window| window == what).map(|at| mapping.start + at as u64)
            };
            call = call.or_else(|| find(&CALL));
            restorer = restorer.or_else(|| find(&RESTORER));
            pop = pop.or_else(|| find(&POP));
            if let (Some(call), Some(restorer)) = (call, restorer) {
                return Ok(Gadgets { call, back: Back::Restorer(restorer) });
            }
        }
        match (call, pop) {
            (Some(call), Some(pop)) => Ok(Gadgets { call, back: Back::Pop(pop) }),
            _ => Err(Refusal::NoGadgets),
        }
    }
}

impl Gadgets {
    /// Makes the stack contents for a call: the words that lead to `sigreturn`, then the signal frame. `at` is a
    /// multiple of 64.
    fn frame(&self, at: u64, state: &State) -> Vec<u8> {
        match self.back {
            Back::Restorer(restorer) => state.frame(at, restorer),
            Back::Pop(pop) => {
                let mut bytes = [pop, libc::SYS_rt_sigreturn as u64].map(u64::to_le_bytes).concat();
                bytes.extend(state.frame(at + bytes.len() as u64, self.call));
                bytes
            }
        }
    }
}

/// A stopped thread that makes system calls for the profiler.
pub struct Remote<'a> {
    process: &'a Process,
    memory: &'a Memory,
    gadgets: Gadgets,
    tid: Tid,
    before: State,
    /// The address of its signal frame.
    frame: u64,
    /// Signals that are not in `BLOCKED` and arrived meanwhile. They are sent again at the end.
    put_off: Vec<i32>,
}

impl<'a> Remote<'a> {
    /// `room` is where a frame can be written. The program uses none of these bytes, and there are twice as many as
    /// `frame::room` requires.
    pub fn new(
        process: &'a Process,
        memory: &'a Memory,
        gadgets: Gadgets,
        tid: Tid,
        room: u64,
    ) -> io::Result<Remote<'a>> {
        let before = State {
            registers: ptrace::registers(tid)?,
            mask: ptrace::signal_mask(tid)?,
            extended: ptrace::extended(tid),
        };
        let frame = room.next_multiple_of(64);
        memory.write(frame, &gadgets.frame(frame, &before))?;
        Ok(Remote { process, memory, gadgets, tid, before, frame, put_off: Vec::new() })
    }

    /// The most bytes that the frame takes.
    pub fn room(&self) -> u64 {
        frame::room(self.before.extended.len())
    }

    /// Moves the frame to another address.
    pub fn move_to(&mut self, room: u64) -> io::Result<()> {
        let frame = room.next_multiple_of(64);
        self.memory.write(frame, &self.gadgets.frame(frame, &self.before))?;
        self.frame = frame;
        Ok(())
    }

    /// Lets the thread make a system call. Returns what the kernel returned.
    pub fn call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = libc::user_regs_struct {
            rip: self.gadgets.call,
            rsp: self.frame,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.before.registers
        };
        ptrace::set_registers(self.tid, &registers)?;
        ptrace::set_signal_mask(self.tid, BLOCKED)?;
        let called = self.run_to_call().and_then(|()| self.run_to_call());
        if called.is_err() {
            // The thread is running, or is frozen. If it cannot be stopped, it will make the call later and continue
            // through its signal frame.
            self.stop()?;
        }
        let result = ptrace::registers(self.tid)?.rax as i64;
        ptrace::set_signal_mask(self.tid, self.before.mask)?;
        ptrace::set_registers(self.tid, &self.before.registers)?;
        called?;
        if (-4095..0).contains(&result) { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result as u64) }
    }

    fn run_to_call(&mut self) -> io::Result<()> {
        let mut patience = Patience::new(self.process, LONGEST_CALL);
        loop {
            ptrace::resume_to_call(self.tid)?;
            match self.wait(&mut patience)? {
                Event::SystemCall => return Ok(()),
                Event::Stopped | Event::Exec => (),
                Event::Signal(signal) => self.put_off.push(signal),
                Event::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        }
    }

    /// Waits for what the thread does next.
    fn wait(&self, patience: &mut Patience<'_>) -> io::Result<Event> {
        let mut spins = 0;
        loop {
            match self.process.poll(self.tid) {
                Some(event) => return Ok(event),
                None if spins < SPINS => {
                    spins += 1;
                    std::thread::yield_now();
                }
                None if patience.is_over() => return Err(io::ErrorKind::TimedOut.into()),
                // The cause is found later, by `Refusal::checked`.
                None => patience.rest(POLL_EVERY).map_err(|_| io::ErrorKind::Interrupted)?,
            }
        }
    }

    /// Stops the thread. The user cannot interrupt this wait, because the thread must not run on with our registers.
    fn stop(&mut self) -> io::Result<()> {
        ptrace::interrupt(self.tid)?;
        let end = Instant::now() + LONGEST_STOP;
        loop {
            match self.process.poll(self.tid) {
                Some(Event::Stopped) => return Ok(()),
                Some(Event::Gone) => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                // A stop before or after the call is as good as any other.
                Some(Event::SystemCall | Event::Exec) => return Ok(()),
                Some(Event::Signal(signal)) => {
                    self.put_off.push(signal);
                    return Ok(());
                }
                None if Instant::now() >= end => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::sleep(POLL_EVERY),
            }
        }
    }

    pub fn map(&mut self, at: u64, length: u64, protection: i32, flags: i32, fd: i32) -> io::Result<u64> {
        self.call(libc::SYS_mmap, [at, length, protection as u64, flags as u64, fd as i64 as u64, 0])
    }

    pub fn unmap(&mut self, at: u64, length: u64) -> io::Result<()> {
        self.call(libc::SYS_munmap, [at, length, 0, 0, 0, 0]).map(drop)
    }

    pub fn advise(&mut self, at: u64, length: u64, advice: i32) -> io::Result<()> {
        self.call(libc::SYS_madvise, [at, length, advice as u64, 0, 0, 0]).map(drop)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // After a stop at a system call, the kernel would return to the program without restarting the call that was
        // interrupted before. After any other stop it does restart it.
        let _ = ptrace::interrupt(self.tid).and_then(|()| ptrace::resume(self.tid, 0));
        let end = Instant::now() + LONGEST_STOP;
        loop {
            match self.process.poll(self.tid) {
                Some(Event::Stopped | Event::Gone) => break,
                // The thread has its own registers again, so the signal can be delivered.
                Some(Event::Signal(signal)) => drop(ptrace::resume(self.tid, signal)),
                Some(Event::SystemCall | Event::Exec) => drop(ptrace::resume(self.tid, 0)),
                None if Instant::now() >= end => break,
                None => std::thread::yield_now(),
            }
        }
        for signal in self.put_off.drain(..) {
            ptrace::send(self.process.pid, self.tid, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;
    use std::io::{BufRead, BufReader, Write};
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// A thread that waits in any of these system calls can make calls for the profiler, and then continues to wait.
    #[test]
    fn threads_in_forty_kinds_of_calls_can_be_borrowed() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/attach_blocked.c");
        let program = std::env::temp_dir().join(format!("heaptrack-remote-test.{}", std::process::id()));
        let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status().unwrap();
        assert!(built.success());
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut input = child.stdin.take().unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "));
        let process = Process::new(child.id()).unwrap();
        let is_waiting = |tid: &Tid| {
            let call = std::fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", process.pid));
            call.is_ok_and(|call| !call.starts_with("running"))
        };
        while !process.threads().unwrap().iter().all(is_waiting) {
            std::thread::yield_now();
        }
        let memory = Memory::open(&process.folder).unwrap();
        let maps = Maps::of(&process.folder).unwrap();
        let gadgets = Gadgets::find(&maps, &memory).unwrap();
        for tid in process.threads().unwrap() {
            crate::on_own_thread(|| {
                let world = World::stop_one(&process, tid, crate::world::PATIENCE)?;
                let room = ptrace::registers(tid).unwrap().rsp - 16384;
                let mut remote = Remote::new(&process, &memory, gadgets, tid, room).unwrap();
                assert_eq!(remote.call(libc::SYS_gettid, [0; 6]).unwrap(), u64::from(tid));
                assert_eq!(remote.call(libc::SYS_close, [u64::MAX; 6]).unwrap_err().raw_os_error(), Some(libc::EBADF));
                drop(remote);
                drop(world);
                Ok(())
            })
            .unwrap();
        }
        input.write_all(b"\n").unwrap();
        line.clear();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "none", "these calls have returned, with errno");
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_file(program).unwrap();
    }
}
