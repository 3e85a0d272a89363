//! The stacks of the random program, as neighbours in one piece of address space. They are unmapped, mapped again and
//! reused.
use super::functions::{random_enter_end, random_enter_guess, random_enter_zero};
use super::program::{Call, Handler, Program};
use super::random::Random;
use std::ptr;

const PAGE: usize = 4096;
const STACK: usize = 256 << 10;
/// Unused words above the first frame.
const SPARE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its memory is not mapped.
    Unmapped,
    /// Nothing runs on it. Its memory may still hold the words of an earlier coroutine.
    Idle,
    Running,
    Suspended,
}

/// A stack, and what runs on it.
pub struct Coroutine {
    pub state: State,
    /// The stack pointer while it is suspended.
    pub stack_pointer: u64,
    /// The calls that have not returned, outermost first.
    pub calls: Vec<Call>,
    /// The points to which a jump or an exception may go, outermost first.
    pub handlers: Vec<Handler>,
}

/// Coroutine 0 has the thread's own stack. Each of the others has one in the arena.
pub struct Stacks {
    arena: *mut u8,
    pub coroutines: Vec<Coroutine>,
    has_guard_pages: bool,
}

impl Stacks {
    pub fn new(count: usize, has_guard_pages: bool) -> Stacks {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
        let arena = unsafe { libc::mmap(ptr::null_mut(), count * STACK, libc::PROT_NONE, flags, -1, 0) };
        assert!(arena != libc::MAP_FAILED);
        let coroutine = |state| Coroutine { state, stack_pointer: 0, calls: Vec::new(), handlers: Vec::new() };
        let mut coroutines = vec![coroutine(State::Running)];
        coroutines.extend((1..count).map(|_| coroutine(State::Unmapped)));
        Stacks { arena: arena.cast(), coroutines, has_guard_pages }
    }

    /// The part of the arena that coroutine `index` uses.
    fn memory(&self, index: usize) -> (*mut u8, usize) {
        let guard = if self.has_guard_pages { PAGE } else { 0 };
        (self.arena.wrapping_add(index * STACK + guard), STACK - guard)
    }

    pub fn map(&mut self, index: usize) {
        let (at, length) = self.memory(index);
        // SAFETY: a part of the arena that no coroutine runs on: its state is `Unmapped`. No reference into it exists.
        let failed = unsafe { libc::mprotect(at.cast(), length, libc::PROT_READ | libc::PROT_WRITE) } != 0;
        assert!(!failed);
        self.coroutines[index].state = State::Idle;
    }

    /// Unmaps a stack, with the frames of the coroutine that was suspended on it.
    pub fn unmap(&mut self, index: usize) {
        let (at, length) = self.memory(index);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: a part of the arena; nothing runs on it, and what was suspended on it is never resumed.
        let again = unsafe { libc::mmap(at.cast(), length, libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(again.cast(), at);
        self.end(index, State::Unmapped);
    }

    /// Ends the coroutine on a stack. It is never resumed.
    pub fn end(&mut self, index: usize, state: State) {
        let coroutine = &mut self.coroutines[index];
        coroutine.state = state;
        coroutine.calls.clear();
        coroutine.handlers.clear();
    }

    /// Prepares an idle stack, so that a switch to it begins a coroutine.
    pub fn prepare(&mut self, index: usize, program: *mut Program, random: &mut Random) {
        let (at, length) = self.memory(index);
        let mut top = (at as u64 + length as u64) - 8 * SPARE as u64;
        // The top of a stack may hold other data of the program.
        top -= 4096 * random.below(3);
        let spare = top as *mut u64;
        let outer = [0, 0, random.below(2) * 0x1234_5678, 0, 0, 0, 0, 0];
        // The rbp of the first frame: null, up this stack, to an unmapped page, down, or into the stack above, which
        // may be unmapped later.
        let above = at as u64 + length as u64 + 4096 * random.below(4) + 512;
        let rbp = [0, top, top + 16, 0x1000, at as u64, above][random.below(6) as usize];
        let (entry, room) = match random.below(3) {
            // `random_enter_zero` jumps to `begin`. So `begin` finds a zero as its return address, in the extra word,
            // where an instruction `call` would have pushed one.
            0 => (random_enter_zero as unsafe extern "C" fn() as usize as u64, 1),
            1 => (random_enter_end as unsafe extern "C" fn() as usize as u64, 0),
            _ => (random_enter_guess as unsafe extern "C" fn() as usize as u64, 0),
        };
        // What `random_switch` pops: r15, r14, r13, r12, rbx, rbp and the return address.
        let frame = [0, 0, rbp, program as u64, 0, 0, entry];
        // SAFETY: the words are below the end of a stack that is mapped (`Idle`) and used by nothing else. `top` is
        // page-aligned less 64 bytes.
        unsafe {
            ptr::copy_nonoverlapping(outer.as_ptr(), spare, SPARE);
            let zero = spare.sub(room);
            zero.write(0);
            let first = zero.sub(frame.len());
            ptr::copy_nonoverlapping(frame.as_ptr(), first, frame.len());
            self.coroutines[index].stack_pointer = first as u64;
        }
        self.coroutines[index].state = State::Suspended;
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and the program that ran on it is over.
        unsafe { libc::munmap(self.arena.cast(), self.coroutines.len() * STACK) };
    }
}
