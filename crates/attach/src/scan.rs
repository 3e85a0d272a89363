//! Reading the stacks of stopped threads.
//!
//! Receives: all threads, stopped. Returns: their registers, and the words of their stacks. Must hold: if a thread runs
//! on the stack of the first thread, or on the one that libc made for it, that stack is read from the stack pointer to
//! its end. If a thread runs on a stack that the program made itself (for a coroutine, or for signals), the part next
//! to the stack pointer is read, and the ends of the other two stacks. If a limit or an unreadable page cuts one of
//! these, `is_cut` says so. Other stacks are not read at all.
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use crate::ptrace::{self, Tid};
use libc::user_regs_struct;

/// The most bytes that are read of all stacks together, because all threads are stopped meanwhile.
const ALL_STACKS: u64 = 64 << 20;
/// The most bytes of a stack that the program made itself, whose end is not known. Go's stacks are in pieces of memory
/// of this size.
const FOREIGN: u64 = 4 << 20;
/// The most bytes, from its end, of a stack that a thread has left for another one. It is not known how much of it is
/// in use.
const WHOLE: u64 = 8 << 20;

/// A stopped thread's registers, and the words of its stacks.
#[derive(Debug)]
pub struct Thread {
    pub tid: Tid,
    pub registers: user_regs_struct,
    /// A part of the stacks that are read for this thread was not read, because of a limit or because it cannot be.
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
        let (parts, is_cut) = parts(registers.rsp, registers.fs_base, maps);
        let mut thread = Thread { tid, registers, is_cut, stacks: Vec::new() };
        for (from, to) in parts {
            thread.read(memory, from, to, room);
        }
        Some(thread)
    }

    fn read(&mut self, memory: &Memory, from: u64, to: u64, room: &mut u64) {
        let wanted = to.saturating_sub(from);
        let length = wanted.min(*room);
        *room -= length;
        let words = words(memory, from, from + length);
        self.is_cut |= (words.len() as u64) < wanted / 8;
        self.stacks.push(words);
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

/// Returns the parts of a thread's stacks that are read, as addresses, and whether a limit has cut one of them.
fn parts(stack_pointer: u64, thread_pointer: u64, maps: &Maps) -> (Vec<(u64, u64)>, bool) {
    let from = stack_pointer & !7;
    let here = maps.at(stack_pointer);
    if let Some(mapping) = here.filter(|mapping| is_home(mapping, maps, thread_pointer)) {
        return (vec![(from, mapping.end)], false);
    }
    let mut parts = Vec::new();
    // A stack pointer outside of all mappings says nothing about the stack.
    let mut is_cut = here.is_none();
    if let Some(mapping) = here {
        let end = mapping.end.min(from.saturating_add(FOREIGN));
        is_cut |= end < mapping.end;
        parts.push((from, end));
    }
    // A signal handler may run on a stack of its own. Then the code that it interrupted is on the thread's own stack.
    // libc puts the memory that the thread pointer leads to above that stack.
    let own = maps.at(thread_pointer).filter(|home| home.is_anonymous()).map(|home| (home, thread_pointer & !7));
    let first = maps.0.iter().find(|mapping| mapping.name == "[stack]").map(|first| (first, first.end));
    for (mapping, end) in own.into_iter().chain(first) {
        let start = mapping.start.max(end.saturating_sub(WHOLE));
        is_cut |= start > mapping.start;
        parts.push((start, end));
    }
    (parts, is_cut)
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

    fn mapping(start: u64, end: u64, name: &str) -> Mapping {
        let (device, name) = (String::new(), name.to_owned());
        Mapping { start, end, read: true, write: true, execute: false, offset: 0, device, inode: 0, name }
    }

    #[test]
    fn a_stack_that_a_limit_cuts_is_known_to_be_cut() {
        const MB: u64 = 1 << 20;
        let maps = |foreign: u64, own: u64, first: u64| {
            let own = mapping(0x2000_0000 - own, 0x2000_0000, "");
            let first = mapping(0x7000_0000 - first, 0x7000_0000, "[stack]");
            Maps(vec![mapping(0x1000_0000, 0x1000_0000 + foreign, "[heap]"), own, first])
        };
        let thread_pointer = 0x2000_0000 - 0x1000;
        let is_cut = |maps: Maps| parts(0x1000_0008, thread_pointer, &maps).1;
        assert!(!is_cut(maps(MB, 8 * MB, MB)));
        assert!(is_cut(maps(5 * MB, 8 * MB, MB)), "a coroutine in a large heap");
        assert!(is_cut(maps(MB, 9 * MB, MB)), "a large stack of its own");
        assert!(is_cut(maps(MB, 8 * MB, 9 * MB)), "a large stack of the first thread");
        assert!(parts(0x100, thread_pointer, &maps(MB, MB, MB)).1, "no stack at all");
        // On its own stack, a thread is read to the end of it.
        let at = 0x2000_0000 - 8 * MB;
        assert_eq!(parts(at, thread_pointer, &maps(MB, 9 * MB, MB)), (vec![(at, 0x2000_0000)], false));
    }

    #[test]
    fn a_stack_that_cannot_be_read_to_its_end_is_known_to_be_cut() {
        // SAFETY: `user_regs_struct` consists of integers only, so all zero bytes are one.
        let registers: user_regs_struct = unsafe { std::mem::zeroed() };
        let memory = Memory::open(std::path::Path::new("/proc/self")).unwrap();
        let maps = Maps::of(std::path::Path::new("/proc/self")).unwrap();
        let stack = maps.0.iter().find(|mapping| mapping.name == "[stack]").unwrap();
        let is_cut = |to: u64, mut room: u64| {
            let mut thread = Thread { tid: 1, registers, is_cut: false, stacks: Vec::new() };
            thread.read(&memory, stack.end - 64, to, &mut room);
            thread.is_cut
        };
        assert!(!is_cut(stack.end, 4096));
        assert!(is_cut(stack.end + 4096, 8192), "not mapped");
        assert!(is_cut(stack.end, 32), "no room left for it");
    }
}
