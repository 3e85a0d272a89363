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

use crate::epilogue;
use crate::proof::{Range, SameSoFar};
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
/// Comparisons between two turns of a loop.
const IN_A_ROW: usize = 4;
/// A walk of at most `SEGMENT` frames cannot be in more pieces than this.
const MAX_JUMPS: u32 = SEGMENT as u32;
/// Instead of a CFA: a comparison took more jumps than a walk can have, so what is remembered makes no sense.
pub const BROKEN: u64 = u64::MAX - 2;
/// Instead of a CFA: only `find` can tell whether it differs.
pub const UNSURE: u64 = u64::MAX - 1;
/// SLOT of code with frame pointers: the word before the return address.
const FRAME_POINTER_SLOT: u32 = 2;

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
/// - **Masks are in bounds**: `node_mask < NODES` and `set_mask < SETS`. This is true of zeroed memory, and only `begin`
///   changes the masks. So `place` is an index of every array of nodes.
/// - **Node pointers are in the arena**: a `*const Check` comes from `check`, or is the place after a node whose caller is
///   beside it. `remember` never gives the last place the marks that say so (plain, `BESIDE`).
/// - **Alive nodes are whole**: while a number that a set or a link names `is_alive`, its place holds what `remember` wrote
///   for it. `number` raises `oldest` before a place is used again.
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
    /// Some remembered walks followed a frame pointer without CFI. Their words may be compared only while the stack pointer is
    /// in these pages, which were shown to be readable: from `guesses_low` on, `guesses_len` bytes. All addresses if there are
    /// no such walks.
    guesses_low: u64,
    guesses_len: u64,
}

/// Where the way from one node leads.
enum Way {
    Caller(*const Check),
    /// The caller's node is forgotten, or a word differs.
    Broken,
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

    /// True when a remembered walk may need a proof that does not hold for a stack pointer of `cfa`.
    #[inline(always)]
    pub fn has_left_guesses(&self, cfa: u64) -> bool {
        cfa.wrapping_sub(self.guesses_low) >= self.guesses_len
    }

    /// Walks with guessed frames are remembered from now on, or the stack pointer has left the pages of those that are.
    /// `stack`: what is known to be readable around the stack pointer. If it is another stack, all walks are forgotten.
    pub fn move_guesses(&mut self, stack: Range) {
        let now = Range { low: self.guesses_low, high: self.guesses_low.saturating_add(self.guesses_len) };
        let has_none = self.guesses_len == u64::MAX;
        if !has_none && !stack.contains(now) {
            self.forget();
            return;
        }
        (self.guesses_low, self.guesses_len) = (stack.low, stack.high - stack.low);
    }

    /// The highest CFA of a remembered walk.
    pub fn top(&self, number: StackId) -> u64 {
        let mut top = 0;
        let mut at = number;
        for _ in 0..SEGMENT {
            if !self.is_alive(at) {
                break;
            }
            let node = self.node_at(at);
            top = node.slot + 8;
            let Some(caller) = node.caller else { break };
            at = caller;
        }
        top
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

    #[inline(always)]
    fn hash(pc: u64, cfa: u64) -> u64 {
        let mixed = (pc ^ cfa.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    #[inline(always)]
    fn set(&mut self, hash: u64) -> &mut [u64; WAYS] {
        let index = (hash as u32 & self.set_mask) as usize;
        // SAFETY: masks are in bounds (see `Memo`), so `index` is below the array's length.
        unsafe { self.sets.get_unchecked_mut(index) }
    }

    /// Asks the processor for what `find_youngest` will compare.
    ///
    /// # Safety
    /// `memo` is one that `begin` has made, and stays mapped. Another thread may own it and write to it meanwhile. So there
    /// is no reference to it here, and what is read is used for nothing but an address to fetch.
    #[inline(always)]
    pub unsafe fn fetch(memo: *const Memo, pc: u64, cfa: u64) {
        let hash = Self::hash(pc, cfa);
        // SAFETY: the caller keeps `memo` mapped. Masks are in bounds (see `Memo`), so the word is the first of a set inside
        // the array. Volatile, because the owner may write meanwhile; any value is good enough for a prefetch.
        let check = unsafe {
            let set = hash as u32 & (&raw const (*memo).set_mask).read_volatile();
            let entry = (&raw const (*memo).sets).cast::<[u64; WAYS]>().add(set as usize).cast::<u64>().read_volatile();
            let place = entry as u32 & (&raw const (*memo).node_mask).read_volatile();
            (&raw const (*memo).checks).cast::<Check>().add(place as usize)
        };
        // SAFETY: a prefetch reads nothing into the program and does not fault at any address.
        unsafe {
            core::arch::asm!("prefetcht0 [{0}]", "prefetcht0 [{0} + 64]", in(reg) check, options(nostack, preserves_flags, readonly))
        };
    }

    /// The walk that was last found or remembered in its set, if it is the one from `place` and holds: its number, and
    /// the jumps that it took. Otherwise the CFA of the frame at which it turned out different (0: it is another one).
    ///
    /// # Safety
    /// What `find` asks for, about `place`.
    #[inline(always)]
    pub unsafe fn find_youngest(&mut self, place: FrameState) -> Result<(StackId, u32), u64> {
        let hash = Self::hash(place.pc, place.cfa);
        let entry = self.set(hash)[0];
        let number = entry as u32;
        if entry >> 33 != hash >> 33 || !self.is_alive(number) {
            return Err(0);
        }
        let check = self.check(number);
        // SAFETY: node pointers are in the arena (see `Memo`); this one is from `check`.
        let Check { at, pc } = unsafe { *check };
        let is_here = at == place.cfa.wrapping_sub(8) && pc & LOW48 == place.pc;
        if !is_here || entry & ENTRY_NEEDS != 0 && self.rbp(number) != place.rbp {
            return Err(0);
        }
        // SAFETY: the caller promises what `find` asks for about `place`. The node at `check` was just compared with
        // `place`: return address, CFA, and rbp if the walk depends on it.
        unsafe { self.verify::<true>(check) }.map(|jumps| (number, jumps))
    }

    /// A remembered walk from `place` to the root that still holds. Otherwise the CFA of the highest frame at which a
    /// remembered one turned out different (0: there was none). `deepest`: the most frames it may have.
    ///
    /// # Safety
    /// - `place` is a frame of the calling thread, in a call that has not returned. So the stack at and above
    ///   `place.cfa.wrapping_sub(8)` is as an unwinder would read it from there.
    /// - The stack pointer is in the pages of the guesses (`has_left_guesses`), or `move_guesses` was told that it is not.
    /// - The unwind rules are those by which the walks were remembered: `forget` was called if a module went since.
    #[inline(always)]
    pub unsafe fn find(&mut self, place: FrameState, deepest: usize) -> Result<Tail, u64> {
        // SAFETY: `find_from` asks for what `find` asks for, which the caller promises.
        unsafe { self.find_from(0, place, deepest, 0) }
    }

    /// As `find`, after `find_youngest` has failed with `differs`.
    ///
    /// # Safety
    /// What `find` asks for, about `place`.
    #[inline(always)]
    pub unsafe fn find_older(&mut self, place: FrameState, differs: u64) -> Result<Tail, u64> {
        // SAFETY: `find_from` asks for what `find` asks for, which the caller promises.
        unsafe { self.find_from(1, place, usize::MAX, differs) }
    }

    /// As `find`, among all of its set but the youngest `skip`.
    ///
    /// # Safety
    /// What `find` asks for, about `place`.
    #[inline(always)]
    unsafe fn find_from(
        &mut self,
        skip: usize,
        place: FrameState,
        deepest: usize,
        mut differs: u64,
    ) -> Result<Tail, u64> {
        let hash = Self::hash(place.pc, place.cfa);
        let set: *mut [u64; WAYS] = self.set(hash);
        for way in skip..WAYS {
            // SAFETY: `way < WAYS`, the array's length. `set` stays valid: there is one user (see `Memo`), and nothing in
            // this loop makes another `&mut` of the sets.
            let entry = unsafe { *(*set).get_unchecked(way) };
            if entry >> 33 != hash >> 33 {
                continue;
            }
            let number = entry as u32;
            if !self.is_alive(number) {
                continue;
            }
            let check = self.check(number);
            // SAFETY: node pointers are in the arena (see `Memo`); this one is from `check`.
            let Check { at, pc } = unsafe { *check };
            if at != place.cfa.wrapping_sub(8) || pc & LOW48 != place.pc {
                continue;
            }
            if deepest < SEGMENT && self.depth(number) as usize > deepest {
                continue;
            }
            let needs_rbp = entry & ENTRY_NEEDS != 0;
            if needs_rbp && self.rbp(number) != place.rbp {
                continue;
            }
            // SAFETY: the caller promises what `find` asks for about `place`. The node at `check` was just compared with
            // `place`: return address, CFA, and rbp if the walk depends on it.
            match unsafe { self.verify::<false>(check) } {
                Ok(jumps) => {
                    if way != 0 {
                        // SAFETY: words 0 and `way` of the set at `set`; `way < WAYS`. One user (see `Memo`) writes it.
                        unsafe { core::ptr::swap(set.cast::<u64>(), set.cast::<u64>().add(way)) };
                    }
                    return Ok(Tail { number, depth: self.depth(number), needs_rbp, jumps });
                }
                Err(BROKEN) => return Err(BROKEN),
                Err(higher) => differs = if higher > differs { higher } else { differs },
            }
        }
        Err(differs)
    }

    /// Compares the words of every frame above the one at `check`. How many jumps it took, or the CFA of the frame that
    /// differs. `IS_QUICK`: calls nobody, and says `UNSURE` where it would have to.
    ///
    /// # Safety
    /// What `find` asks for, about the frame at `check`. `check` points to an alive node of the arena whose return address,
    /// CFA and (if the walk depends on it) rbp are those of that frame.
    #[inline(always)]
    unsafe fn verify<const IS_QUICK: bool>(&self, mut check: *const Check) -> Result<u32, u64> {
        // SAFETY: the caller promises that the frame at `check` is one of the calling thread's and equal to the node.
        let same = unsafe { SameSoFar::from_leaf() };
        let mut jumps = 0;
        // SAFETY: the caller promises that `check` points to a node of the arena.
        let mut node = unsafe { *check };
        loop {
            if node.pc & SPECIAL == 0 {
                // SAFETY: node pointers are in the arena (see `Memo`): `remember` never makes the last place plain.
                check = unsafe { check.add(1) };
            } else {
                let way = match node.pc >> NEAR_SHIFT & END {
                    END => return Ok(jumps),
                    // SAFETY: node pointers are in the arena (see `Memo`): `remember` never gives the last place `BESIDE`.
                    BESIDE => Way::Caller(unsafe { check.add(1) }),
                    0 if IS_QUICK => return Err(UNSURE),
                    near => {
                        jumps += 1;
                        if jumps > MAX_JUMPS {
                            return Err(BROKEN);
                        }
                        if near == 0 {
                            // SAFETY: `check` is in the arena (see `Memo`). Every word up to its node was compared here.
                            unsafe { self.follow(check, same) }
                        } else {
                            self.follow_near(check, near as u32)
                        }
                    }
                };
                let Way::Caller(caller) = way else { return Err(node.at + 8) };
                if node.pc & FRAME_POINTER != 0 {
                    // SAFETY: `caller` is in the arena (see `Memo`). `FRAME_POINTER` says that the walk read the caller's
                    // rbp here, before it read the caller's return address (`Walk::step`); all words before are equal.
                    let rbp = unsafe { same.read((*caller).at.wrapping_sub(8)) };
                    if rbp != self.rbp_at(caller) {
                        return Err(node.at + 8);
                    }
                }
                check = caller;
            }
            // Plain nodes of one walk first, some in a row: it is the longest part of a hook.
            // SAFETY: the nodes are in the arena, up to the first that is not plain. Each word is read only after all words
            // before it were equal.
            unsafe {
                'plain: loop {
                    for step in 0..IN_A_ROW {
                        node = *check.add(step);
                        if same.read(node.at) != node.pc {
                            check = check.add(step);
                            break 'plain;
                        }
                    }
                    check = check.add(IN_A_ROW);
                }
                if node.pc & SPECIAL == 0 || same.read(node.at) != node.pc & LOW48 {
                    return Err(node.at + 8);
                }
            }
        }
    }

    /// From the last node of a walk to the older walk that took over, `near` numbers before it.
    #[inline(always)]
    fn follow_near(&self, check: *const Check, near: u32) -> Way {
        // SAFETY: node pointers are in the arena (see `Memo`), so both pointers are into `checks`, whole nodes apart.
        let place = unsafe { check.offset_from(self.checks.as_ptr()) } as u32;
        // How many numbers ago; the node itself is alive.
        let age = self.head.wrapping_sub(place) & self.node_mask;
        if age + near > self.head.wrapping_sub(self.oldest) {
            return Way::Broken;
        }
        Way::Caller(self.check(place.wrapping_sub(near)))
    }

    /// From a special node to its caller.
    ///
    /// # Safety
    /// `check` points to an alive node of the arena. Every word that the walk read up to that node was compared and is
    /// equal.
    #[inline(never)]
    unsafe fn follow(&self, check: *const Check, same: SameSoFar) -> Way {
        // SAFETY: the caller promises that `check` is a node of `checks`, so both pointers are into it, whole nodes apart.
        let number = unsafe { check.offset_from(self.checks.as_ptr()) } as u32;
        let way = self.way(number);
        let link = (way >> 32) as u32;
        if !self.is_alive(link) {
            return Way::Broken;
        }
        let caller = self.check(link);
        if way & BY_CODE != 0 {
            // SAFETY: both nodes are in the arena (see `Memo`). The node's word was compared, so this thread returns to that
            // address: code is mapped there. `Walk::epilogue` found it readable before the node was remembered.
            let leads = unsafe { epilogue::still_leads((*check).pc & LOW48, (*caller).at.wrapping_sub((*check).at)) };
            if !leads {
                return Way::Broken;
            }
        }
        let slot = way & SLOT;
        // SAFETY: `caller` is from `check`. SLOT says that the walk read the caller's rbp here, before it read the caller's
        // return address (`Walk::step`); the caller of `follow` promises that all words before are equal.
        if slot != 0 && unsafe { same.read(((*caller).at + 8).wrapping_sub(8 * slot)) } != self.rbp(link) {
            return Way::Broken;
        }
        Way::Caller(caller)
    }

    /// Remembers new frames of a walk, leaf first, numbered from `first` on, that went on at `tail` (or ended).
    /// `frame(i)` tells frame `i`. Returns false if there are none, or too many.
    pub fn remember(
        &mut self,
        first: u32,
        count: usize,
        tail: Option<u32>,
        frame: impl Fn(usize) -> (FrameState, Fact),
    ) -> bool {
        if count == 0 || count > self.longest() {
            return false;
        }
        for i in (0..count).rev() {
            let number = first.wrapping_add(i as u32);
            let (place, fact) = frame(i);
            let is_last = i + 1 == count;
            let link = if is_last { tail.unwrap_or(0) } else { number.wrapping_add(1) };
            let at = self.place(number);
            let rbp = if fact.caller_slot == FRAME_POINTER_SLOT { FRAME_POINTER } else { 0 };
            let is_near = !fact.by_code && (fact.caller_slot == 0 || rbp != 0);
            let near = match number.wrapping_sub(link) as u64 {
                _ if is_last && link == 0 => END,
                _ if is_near && !is_last && at != self.node_mask as usize => BESIDE,
                distance @ 1..BESIDE if is_near => distance,
                _ => 0,
            };
            let mark = match near {
                BESIDE if rbp == 0 => 0,
                0 | END => SPECIAL | near << NEAR_SHIFT,
                _ => SPECIAL | rbp | near << NEAR_SHIFT,
            };
            // SAFETY: masks are in bounds (see `Memo`), so `at`, which is from `place`, is below all four arrays' length.
            unsafe {
                *self.checks.get_unchecked_mut(at) =
                    Check { at: place.cfa.wrapping_sub(8), pc: place.pc & LOW48 | mark };
                *self.ways.get_unchecked_mut(at) =
                    (link as u64) << 32 | if fact.by_code { BY_CODE } else { 0 } | fact.caller_slot as u64 & SLOT;
                *self.rbps.get_unchecked_mut(at) = place.rbp;
                *self.depths.get_unchecked_mut(at) = fact.depth;
            }
            self.enter(place, number, fact.needs_rbp);
        }
        true
    }

    /// Makes a node findable.
    fn enter(&mut self, place: FrameState, number: u32, needs_rbp: bool) {
        let hash = Self::hash(place.pc, place.cfa);
        let set = self.set(hash);
        for way in (1..WAYS).rev() {
            set[way] = set[way - 1];
        }
        set[0] = hash >> 33 << 33 | if needs_rbp { ENTRY_NEEDS } else { 0 } | number as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memo() -> Box<Memo> {
        let words = vec![0u64; size_of::<Memo>().div_ceil(8) + 8].into_boxed_slice();
        // SAFETY: zeroed words are a valid `Memo`; eight words more leave room to align it. Leaked, so they stay.
        let memo = unsafe {
            let at = Box::leak(words).as_mut_ptr() as usize;
            Box::from_raw(((at + 63) & !63) as *mut Memo)
        };
        let mut memo = std::mem::ManuallyDrop::new(memo);
        memo.begin(true);
        // SAFETY: taken once. Every test ends with `forget`, so the box is dropped only where an assertion has failed.
        unsafe { std::mem::ManuallyDrop::take(&mut memo) }
    }

    /// A fake stack: word `i` is the return address slot of frame `i`.
    fn stack(pcs: &[u64]) -> Vec<u64> {
        pcs.to_vec()
    }

    fn place(stack: &[u64], i: usize) -> FrameState {
        FrameState { pc: stack[i], cfa: stack.as_ptr() as u64 + 8 * (i as u64 + 1), rbp: 7 }
    }

    fn fact(depth: u16) -> Fact {
        Fact { depth, needs_rbp: false, by_code: false, caller_slot: 0 }
    }

    fn remember(memo: &mut Memo, count: usize, tail: Option<u32>, frame: impl Fn(usize) -> (FrameState, Fact)) -> u32 {
        let first = memo.number(count);
        memo.remember(first, count, tail, frame);
        first
    }

    #[test]
    fn a_walk_is_found_again_until_a_word_changes() {
        let mut memo = memo();
        let mut words = stack(&[0x1001, 0x1002, 0x1003]);
        let first = remember(&mut memo, 3, None, |i| (place(&words, i), fact(3 - i as u16)));
        // SAFETY: the places are in `words`.
        let tail = unsafe { memo.find(place(&words, 0), 99) };
        assert!(tail.is_ok_and(|t| t.number == first && t.depth == 3));
        words[2] = 0x9999;
        // SAFETY: the places are in `words`.
        let miss = unsafe { memo.find(place(&words, 0), 99) };
        assert_eq!(miss.err(), Some(place(&words, 2).cfa));
        std::mem::forget(memo);
    }

    #[test]
    fn a_tail_is_shared_and_a_forgotten_memo_finds_nothing() {
        let mut memo = memo();
        let words = stack(&[0x1001, 0x1002, 0x1003, 0x1004]);
        remember(&mut memo, 2, None, |i| (place(&words, i + 2), fact(2 - i as u16)));
        // SAFETY: the places are in `words`.
        let tail = unsafe { memo.find(place(&words, 2), 99) }.map(|t| t.number).ok();
        assert!(tail.is_some());
        let first = remember(&mut memo, 2, tail, |i| (place(&words, i), fact(4 - i as u16)));
        // SAFETY: the places are in `words`.
        assert!(unsafe { memo.find(place(&words, 0), 99) }.is_ok_and(|t| t.number == first && t.depth == 4));
        memo.forget();
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(0));
        std::mem::forget(memo);
    }

    /// The same leaf below many callers, as an allocator's own helper is.
    #[test]
    fn as_many_stacks_of_one_place_are_known_as_a_set_has_ways() {
        let mut memo = memo();
        let mut words = stack(&[0x1001, 0, 0x1003]);
        let callers: Vec<u64> = (0..WAYS as u64).map(|caller| 0x2000 + caller).collect();
        let mut numbers = Vec::new();
        for caller in &callers {
            words[1] = *caller;
            numbers.push(remember(&mut memo, 3, None, |i| (place(&words, i), fact(3 - i as u16))));
        }
        for _ in 0..3 {
            for (caller, number) in callers.iter().zip(&numbers) {
                words[1] = *caller;
                // SAFETY: the places are in `words`.
                let youngest = unsafe { memo.find_youngest(place(&words, 0)) };
                // SAFETY: the places are in `words`.
                let found = youngest
                    .map(|(number, _)| number)
                    .or_else(|differs| unsafe { memo.find_older(place(&words, 0), differs) }.map(|tail| tail.number));
                assert_eq!(found.ok(), Some(*number), "{caller:x}");
            }
        }
        words[1] = 0x9999;
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find_youngest(place(&words, 0)) }.err(), Some(place(&words, 1).cfa));
        std::mem::forget(memo);
    }

    /// A link to an older walk is a distance while it is short; when it is not, only `find` knows it.
    #[test]
    fn an_older_walk_takes_over_at_any_distance_until_it_is_forgotten() {
        let other = stack(&[0x3001]);
        let words = stack(&[0x1001, 0x1002]);
        let kept = (NODES - SEGMENT) as u32 - 1;
        for (between, alive) in [(0, true), (1, true), (kept - 2, true), (kept - 1, false), (kept, false)] {
            let mut memo = memo();
            let tail = remember(&mut memo, 1, None, |_| (place(&words, 1), fact(1)));
            for _ in 0..between {
                remember(&mut memo, 1, None, |_| (place(&other, 0), fact(1)));
            }
            let first = remember(&mut memo, 1, Some(tail), |_| (place(&words, 0), fact(2)));
            // SAFETY: the places are in `words`.
            let quickly = unsafe { memo.find_youngest(place(&words, 0)) };
            let is_far = between as u64 + 1 >= BESIDE;
            assert_eq!(quickly.err() == Some(UNSURE), is_far, "{between}");
            assert!(is_far || quickly.ok() == Some((first, 1)), "{between}");
            // SAFETY: the places are in `words`.
            let found = unsafe { memo.find(place(&words, 0), usize::MAX) };
            assert_eq!(found.ok().map(|tail| (tail.number, tail.jumps)), alive.then_some((first, 1)), "{between}");
            std::mem::forget(memo);
        }
    }

    /// Return addresses at odd places, before each the rbp that its frame's caller had.
    #[test]
    fn a_frame_pointer_that_changed_is_noticed() {
        let mut words = stack(&[0x71, 0x1001, 0x72, 0x1002, 0x73, 0x1003]);
        let frame = |words: &[u64], i: usize| {
            let fact =
                Fact { depth: 3 - i as u16, needs_rbp: i < 2, by_code: false, caller_slot: if i < 2 { 2 } else { 0 } };
            (FrameState { rbp: words[2 * i], ..place(words, 2 * i + 1) }, fact)
        };
        let mut memo = memo();
        let root = remember(&mut memo, 1, None, |_| frame(&words, 2));
        let two = remember(&mut memo, 2, Some(root), |i| frame(&words, i));
        let one =
            remember(&mut memo, 3, None, |i| (FrameState { pc: 0x1009, ..frame(&words, i).0 }, frame(&words, i).1));
        let leaf = |words: &[u64], pc| FrameState { pc, ..frame(words, 0).0 };
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find_youngest(leaf(&words, 0x1001)) }.ok(), Some((two, 1)));
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find_youngest(leaf(&words, 0x1009)) }.err(), Some(frame(&words, 1).0.cfa));
        words[3] = 0x1009;
        words[5] = 0x1009;
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find_youngest(leaf(&words, 0x1009)) }.ok(), Some((one, 0)));
        for (at, below) in [(2, 0), (4, 1)] {
            let right = std::mem::replace(&mut words[at], 0x99);
            // SAFETY: the places are in `words`.
            let found = unsafe { memo.find_youngest(leaf(&words, 0x1009)) };
            assert_eq!(found.err(), Some(frame(&words, below).0.cfa));
            words[at] = right;
        }
        // The leaf's own rbp is compared with what the place says.
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find_youngest(FrameState { rbp: 0x99, ..leaf(&words, 0x1009) }) }.err(), Some(0));
        std::mem::forget(memo);
    }

    /// Nothing makes such links; if anything ever did, the thread must not follow them for ever.
    #[test]
    fn a_circle_of_links_is_noticed() {
        let mut memo = memo();
        let words = stack(&[0x1001, 0x1002]);
        let first = memo.number(2);
        memo.remember(first, 1, Some(first + 1), |_| (place(&words, 0), fact(2)));
        memo.remember(first + 1, 1, Some(first), |_| (place(&words, 1), fact(1)));
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(BROKEN));
        assert_eq!(memo.top(first), place(&words, 1).cfa, "ends, too");
        std::mem::forget(memo);
    }

    #[test]
    fn walks_with_guessed_frames_hold_only_on_their_own_stack() {
        let mut memo = memo();
        let words = stack(&[0x1001, 0x1002, 0x1003]);
        let FrameState { cfa, .. } = place(&words, 0);
        assert!(!memo.has_left_guesses(0) && !memo.has_left_guesses(u64::MAX - 1), "nothing was guessed yet");
        remember(&mut memo, 3, None, |i| (place(&words, i), fact(3 - i as u16)));
        let page = Range { low: cfa & !4095, high: (cfa & !4095) + 4096 };
        memo.move_guesses(page);
        assert!(!memo.has_left_guesses(cfa) && memo.has_left_guesses(page.low - 8) && memo.has_left_guesses(page.high));
        // A deeper call on the same stack.
        memo.move_guesses(Range { low: page.low - 4096, high: page.high });
        // SAFETY: the places are in `words`.
        assert!(unsafe { memo.find(place(&words, 0), 99) }.is_ok());
        // Another stack.
        memo.move_guesses(Range { low: page.high + 4096, high: page.high + 8192 });
        // SAFETY: the places are in `words`.
        assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(0));
        assert!(!memo.has_left_guesses(0));
        std::mem::forget(memo);
    }

    #[test]
    fn an_overwritten_tail_is_noticed() {
        let mut memo = memo();
        let words = stack(&[0x1001, 0x1002]);
        remember(&mut memo, 1, None, |_| (place(&words, 1), fact(1)));
        // SAFETY: the places are in `words`.
        let tail = unsafe { memo.find(place(&words, 1), 99) }.map(|t| t.number).ok();
        let other = stack(&[0x2001]);
        for _ in 0..NODES {
            remember(&mut memo, 1, None, |_| (place(&other, 0), fact(1)));
        }
        remember(&mut memo, 1, tail, |_| (place(&words, 0), fact(2)));
        // SAFETY: the places are in `words`.
        assert!(unsafe { memo.find(place(&words, 0), 99) }.is_err());
        std::mem::forget(memo);
    }
}
