//! The verified stack memo of one thread: whole walks, remembered with the words that prove them.
//!
//! A walk is a pure function of where it starts (return address, CFA, rbp) and of the words it reads. So a remembered
//! walk whose words still stand in memory is this walk. Words are compared leaf first and the comparison stops at the
//! first difference, so every word read is one that the walk itself would read.
//!
//! Frames are nodes in a circular arena; a walk's new frames lie side by side, leaf first, and the last one links to
//! the frame where an older walk took over: tails are shared, never copied.
//!
//! ```text
//! check  | address of the word              |  what a comparison reads, four nodes a cache line
//!        | S | F | NEAR (14) | ret. address |  the word: this frame's return address, at CFA - 8
//! way    | link (32) | 0 | C | SLOT (11)    |  how to get to the caller, where that is special and NEAR is 0
//! rbp    | rbp in this frame, if NEEDS      |
//! depth  | frames from here to the root (16)|
//!
//! S: the way from here to the caller is special. It makes the comparison fail, so the plain case tests nothing else.
//! NEAR: where the caller's node is, if no more is to be known than that and F. So goes nearly every special way, and no
//!   other line of the cache is needed for it. All ones: nowhere, the stack ends here. One less: beside this one. Else its
//!   number is smaller by so much: an older walk took over. 0 = see `way`.
//! F: the caller's rbp was read beside the return address, as code with frame pointers has it; it must still stand there.
//! link: number of the caller's node.
//! SLOT: the caller's rbp was read at caller.CFA - 8 * SLOT, and the walk depends on it; 0 = no.
//! C: the code at the return address said how its frame ends; it must still say so.
//! NEEDS (in the table that finds nodes): a later step uses this frame's rbp.
//! ```
//!
//! Node numbers grow for ever (wrapping); number `n` is at place `n & node_mask`, and is alive while it is not older
//! than the arena is long. Forgetting everything is one store.
mod checked;
mod find;
mod guesses;
mod miss;
mod remember;
#[cfg(test)]
mod tests;
mod verify;

pub use miss::Miss;

use channel::StackId;

pub const NODES: usize = 1 << 15;
/// The longest walk that is remembered; new nodes may overwrite that many of the oldest.
pub const SEGMENT: usize = 2048;
const SETS: usize = 1 << 11;
/// The same where a program has many threads: only this much of the memory is used.
const SMALL_NODES: usize = 1 << 12;
const SMALL_SETS: usize = 1 << 6;
/// A set is a cache line. As many stacks may lead to one place, and in turns, without being walked again.
const WAYS: usize = 8;
const LOW48: u64 = (1 << 48) - 1;
const SLOT: u64 = 0x7ff;
const BY_CODE: u64 = 1 << 11;
const ENTRY_NEEDS: u64 = 1 << 32;
/// No return address has this bit.
const SPECIAL: u64 = 1 << 63;
const FRAME_POINTER: u64 = 1 << 62;
/// Where NEAR begins, above every return address; and its values that are no distance.
const NEAR_SHIFT: u32 = 48;
const END: u64 = 0x3fff;
const BESIDE: u64 = END - 1;

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Check {
    at: u64,
    pc: u64,
}

/// A frame to look for or to remember.
#[derive(Clone, Copy)]
pub struct FrameState {
    pub pc: u64,
    pub cfa: u64,
    pub rbp: u64,
}

/// What is remembered of one frame besides its place.
#[derive(Clone, Copy)]
pub struct Fact {
    pub depth: u16,
    pub needs_rbp: bool,
    /// See C above.
    pub by_code: bool,
    /// See SLOT above.
    pub caller_slot: u32,
}

/// A remembered frame whose way to the root was just verified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Also the id of its stack.
    pub number: StackId,
    pub depth: u16,
    pub needs_rbp: bool,
    /// How often the comparison had to jump from one remembered walk to another.
    pub jumps: u32,
}

/// The remembered walks of one thread. The unsafe code of this file rests on these invariants:
///
/// - **Masks are in bounds**: `node_mask < NODES` and `set_mask < SETS`. This is true of zeroed memory, and only
///   `begin` changes the masks. So `place` is an index of every array of nodes.
/// - **Node pointers are in the arena**: a `*const Check` comes from `check`, or is the place after a node whose caller
///   is beside it. `remember` never gives the last place the marks that say so (plain, `BESIDE`).
/// - **Alive nodes are whole**: while a number that a set or a link names `is_alive`, its place holds what `remember`
///   wrote for it. `number` raises `oldest` before a place is used again.
/// - **One user**: only hooks of the main level of the thread that owns the memo write it, one at a time
///   (`Level::guard`). Other threads may read it, in `fetch`.
#[repr(C, align(64))]
pub struct Memo {
    /// `tag (31) | NEEDS (1) | number (32)`; way 0 is the youngest.
    sets: [[u64; WAYS]; SETS],
    checks: [Check; NODES],
    ways: [u64; NODES],
    rbps: [u64; NODES],
    depths: [u16; NODES],
    /// How much of the arrays is used: one less than a power of two, below `NODES` and `SETS`.
    node_mask: u32,
    set_mask: u32,
    /// Number of the next node; never 0.
    head: u32,
    /// Nodes older than this are forgotten, or may be overwritten soon.
    oldest: u32,
    /// Number of the next node when all were forgotten last. Only checks read it.
    forgotten: u32,
    /// Some remembered walks followed a frame pointer without CFI. Their words may be compared only while the stack
    /// pointer is in these pages, which were shown to be readable: from `guesses_low` on, `guesses_len` bytes. All
    /// addresses if there are no such walks.
    guesses_low: u64,
    guesses_len: u64,
}

impl Memo {
    /// The numbers that the next `count` frames get, leaf first. They are spent even if the frames are not remembered.
    pub fn number(&mut self, count: usize) -> u32 {
        if self.head > u32::MAX - 2 * NODES as u32 {
            // Number 0 means "no link": start again, once in four thousand million frames.
            self.head = 1;
            self.oldest = 1;
            self.forgotten = 1;
        }
        let first = self.head;
        self.head += count as u32;
        let kept = self.node_mask - self.longest() as u32;
        if self.head.wrapping_sub(self.oldest) > kept {
            self.oldest = self.head.wrapping_sub(kept);
        }
        first
    }

    /// Makes a memo of zeroed memory, or of another thread's.
    pub fn begin(&mut self, is_large: bool) {
        let (nodes, sets) = if is_large { (NODES, SETS) } else { (SMALL_NODES, SMALL_SETS) };
        (self.node_mask, self.set_mask) = (nodes as u32 - 1, sets as u32 - 1);
        self.forget();
    }

    /// The longest walk that is remembered.
    const fn longest(&self) -> usize {
        if self.node_mask as usize == NODES - 1 { SEGMENT } else { SMALL_NODES / 4 }
    }

    /// Where the node of this number is in the arrays.
    #[inline(always)]
    const fn place(&self, number: u32) -> usize {
        (number & self.node_mask) as usize
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.head = self.head.max(1);
        self.oldest = self.head;
        self.forgotten = self.head;
        (self.guesses_low, self.guesses_len) = (0, u64::MAX);
    }

    #[inline(always)]
    fn is_alive(&self, number: u32) -> bool {
        number.wrapping_sub(self.oldest) < self.head.wrapping_sub(self.oldest)
    }

    #[inline(always)]
    fn check(&self, number: u32) -> *const Check {
        // SAFETY: masks are in bounds (see `Memo`), so `place` is below the array's length.
        unsafe { self.checks.as_ptr().add(self.place(number)) }
    }

    #[inline(always)]
    fn way(&self, number: u32) -> u64 {
        // SAFETY: masks are in bounds (see `Memo`), so `place` is below the array's length.
        unsafe { *self.ways.get_unchecked(self.place(number)) }
    }

    #[inline(always)]
    fn rbp(&self, number: u32) -> u64 {
        // SAFETY: masks are in bounds (see `Memo`), so `place` is below the array's length.
        unsafe { *self.rbps.get_unchecked(self.place(number)) }
    }

    #[inline(always)]
    fn rbp_at(&self, check: *const Check) -> u64 {
        // SAFETY: node pointers are in the arena (see `Memo`), so both pointers are into `checks`, whole nodes apart.
        self.rbp(unsafe { check.offset_from(self.checks.as_ptr()) } as u32)
    }

    #[inline(always)]
    fn depth(&self, number: u32) -> u16 {
        // SAFETY: masks are in bounds (see `Memo`), so `place` is below the array's length.
        unsafe { *self.depths.get_unchecked(self.place(number)) }
    }
}
