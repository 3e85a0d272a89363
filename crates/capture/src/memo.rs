//! The stack memo of one thread: earlier stack walks, with the stack words that prove that they still hold.
//!
//! The result of a walk depends only on where it starts (return address, CFA, rbp) and on the stack words that it
//! reads. So if all words that an earlier walk read are unchanged, a new walk from the same start would return the same
//! frames, and need not be made. The memo compares the words from the leaf to the root and stops at the first
//! difference. So it reads only words that the walk itself would read.
//!
//! Each frame is a node in a circular arena. The new frames of a walk are neighbours, leaf first. The last of them
//! links to the node at which an older walk has the rest of the stack. So tails are shared and never copied.
//!
//! ```text
//! check  | address of the word              |  what a comparison reads, four nodes a cache line
//!        | S | F | NEAR (14) | ret. address |  the word: this frame's return address, at CFA - 8
//! way    | link (32) | 0 | C | SLOT (11)    |  how to get to the caller's node, if S is set and NEAR is 0
//! rbp    | rbp in this frame, if NEEDS      |
//! depth  | frames from here to the root (16)|
//!
//! S: the step to the caller is special. The bit makes the comparison with the stack word fail, so the plain case needs
//!    no test of its own. In the plain case the caller's node is the next one, and its rbp does not matter.
//! NEAR: where the caller's node is. Nearly every special case needs only this and F, and so does not read `way`.
//!    All ones: there is no caller, the stack ends here. One less: it is the next node. 0: see `way`. Any other value:
//!    it is the node of an older walk, whose number is smaller by this value.
//! F: the walk read the caller's rbp from the word below the caller's return address (at caller.CFA - 16), as in code
//!    with frame pointers. That word must be unchanged.
//! link: the number of the caller's node.
//! SLOT: the walk read the caller's rbp at caller.CFA - 8 * SLOT and depends on it. 0: it does not depend on it.
//! C: the walk learnt the frame's size from the code at the return address. That code must be unchanged.
//! NEEDS (in the table of sets): a step nearer to the root uses this frame's rbp.
//! ```
//!
//! Node numbers only grow, until they start again at 1 near the end of 32 bits. The index of a number's node is the
//! number `& node_mask`. A node is alive until its place may be used again, or until everything is forgotten. To forget
//! everything, a few stores are enough.
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
/// The longest walk that a memo of full size remembers, in frames. The nodes of the next walk may overwrite this many
/// of the oldest nodes.
pub const SEGMENT: usize = 2048;
const SETS: usize = 1 << 11;
/// The sizes for threads whose slot has a number from `Geometry::large_slots` on: they use only this much of the
/// arrays.
const SMALL_NODES: usize = 1 << 12;
const SMALL_SETS: usize = 1 << 6;
/// The number of alternating stacks of one allocation site that are recognised without a new walk. A set is a cache
/// line.
const WAYS: usize = 8;
const LOW48: u64 = (1 << 48) - 1;
const SLOT: u64 = 0x7ff;
const BY_CODE: u64 = 1 << 11;
const ENTRY_NEEDS: u64 = 1 << 32;
/// No return address has this bit.
const SPECIAL: u64 = 1 << 63;
const FRAME_POINTER: u64 = 1 << 62;
/// The position of NEAR, above all bits of a return address. `END` and `BESIDE` are its values that are no distance.
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

/// What is remembered of one frame besides its `FrameState`.
#[derive(Clone, Copy)]
pub struct Fact {
    pub depth: u16,
    pub needs_rbp: bool,
    /// C in the picture at the top of this file.
    pub by_code: bool,
    /// SLOT in the picture at the top of this file.
    pub caller_slot: u32,
}

/// A remembered frame. The memo has just verified that the stack from it to the root is unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The number of its node, which is also the id of the stack that begins at this frame.
    pub number: StackId,
    pub depth: u16,
    pub needs_rbp: bool,
    /// How often the comparison went from the nodes of one walk to those of another.
    pub jumps: u32,
}

/// The remembered walks of one thread. The unsafe code of this file and of the folder `memo` relies on these
/// invariants:
///
/// - **Masks are in bounds**: `node_mask < NODES` and `set_mask < SETS`. This is true of zeroed memory, and only
///   `begin` changes the masks. So `place` is an index of every array of nodes.
/// - **Node pointers are in the arena**: a `*const Check` comes from `check`, or is the element after a node whose
///   caller is the next node. `remember` never marks the last element of the arena like that (plain, or `BESIDE`).
/// - **Alive nodes are whole**: while the number in a set or a link `is_alive`, its node holds what `remember` wrote
///   for it. `number` raises `oldest` before a node is overwritten.
/// - **One user**: only hooks of the main level of the thread that owns the memo write it, one at a time
///   (`Level::guard`). Other threads may read it, in `fetch`.
#[repr(C, align(64))]
pub struct Memo {
    /// `tag (31) | NEEDS (1) | number (32)`. Element 0 of a set is the one that was found or remembered last.
    sets: [[u64; WAYS]; SETS],
    checks: [Check; NODES],
    ways: [u64; NODES],
    rbps: [u64; NODES],
    depths: [u16; NODES],
    /// How much of the arrays is used. Each mask is one less than a power of two, and below `NODES` or `SETS`.
    node_mask: u32,
    set_mask: u32,
    /// Number of the next node; never 0.
    head: u32,
    /// Nodes with lower numbers are forgotten, or may be overwritten soon.
    oldest: u32,
    /// The value of `head` when `forget` was last called. Only `checked.rs` reads it.
    forgotten: u32,
    /// Some remembered walks followed a frame pointer without CFI. Their words may be compared only while the stack
    /// pointer is in these pages, which were shown to be readable: `guesses_len` bytes from `guesses_low` on. If there
    /// are no such walks, these are all addresses.
    guesses_low: u64,
    guesses_len: u64,
}

impl Memo {
    /// Returns the first of `count` new numbers, for frames in leaf-first order. The numbers are used up even if the
    /// frames are not remembered.
    pub fn number(&mut self, count: usize) -> u32 {
        if self.head > u32::MAX - 2 * NODES as u32 {
            // The numbers are used up, after four thousand million frames. Start again at 1, because 0 means "no link".
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

    /// Makes an empty memo in zeroed memory, or in the memo of a thread that has ended.
    pub fn begin(&mut self, is_large: bool) {
        let (nodes, sets) = if is_large { (NODES, SETS) } else { (SMALL_NODES, SMALL_SETS) };
        (self.node_mask, self.set_mask) = (nodes as u32 - 1, sets as u32 - 1);
        self.forget();
    }

    /// The longest walk that this memo remembers, in frames.
    const fn longest(&self) -> usize {
        if self.node_mask as usize == NODES - 1 { SEGMENT } else { SMALL_NODES / 4 }
    }

    /// The index of this number's node in the arrays.
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
