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
//! check  | to caller (16) | return address (48)          |  what a comparison reads, four nodes a cache line
//!        | link (32)      | 0 | NEXT | NEEDS | SLOT (11) |
//! place  | depth (16)     | CFA (48)                     |  what only the first node of a comparison needs
//! rbp    | rbp in this frame, if NEEDS                   |
//!
//! CFA: of the callee, i.e. rsp in this frame after the call; the return address is at CFA - 8.
//! to caller: words from this CFA to the caller's.   depth: frames from here to the root.
//! link: number of the caller's node, 0 = none.      NEXT: it is the one beside.
//! SLOT: the caller's rbp was read at caller.CFA - 8 * SLOT, and the walk depends on it; 0 = no.
//! NEEDS: a later step uses this frame's rbp.
//! ```
//!
//! Node numbers grow for ever (wrapping); number `n` is at place `n mod NODES`, and is alive while it is not older
//! than the arena is long. Forgetting everything is one store.
use channel::StackId;

pub const NODES: usize = 1 << 15;
/// The longest walk that is remembered; new nodes may overwrite that many of the oldest.
pub const SEGMENT: usize = 2048;
const SETS: usize = 1 << 12;
const WAYS: usize = 4;
const LOW48: u64 = (1 << 48) - 1;
const SLOT: u64 = 0x7ff;
const NEEDS: u64 = 1 << 11;
const NEXT: u64 = 1 << 12;
/// A frame of half a megabyte: such walks are not remembered.
const FAR: u64 = 1 << 16;

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Check {
    pc: u64,
    how: u64,
}

/// A frame to look for or to remember.
#[derive(Clone, Copy)]
pub struct Place {
    pub pc: u64,
    pub cfa: u64,
    pub rbp: u64,
}

/// What is remembered of one frame besides its place.
#[derive(Clone, Copy)]
pub struct Fact {
    pub depth: u16,
    pub needs_rbp: bool,
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
}

#[repr(C)]
pub struct Memo {
    /// `tag << 32 | number`; way 0 is the youngest.
    sets: [[u64; WAYS]; SETS],
    checks: [Check; NODES],
    places: [u64; NODES],
    rbps: [u64; NODES],
    /// Number of the next node; never 0.
    head: u32,
    /// Nodes older than this are forgotten.
    oldest: u32,
}

#[cold]
#[inline(never)]
fn unlikely() {}

impl Memo {
    /// The numbers that the next `count` frames get, leaf first. They are spent even if the frames are not remembered.
    pub fn number(&mut self, count: usize) -> u32 {
        if self.head > u32::MAX - 2 * NODES as u32 {
            // Number 0 means "no link": start again, once in four thousand million frames.
            self.head = 1;
            self.oldest = 1;
        }
        let first = self.head;
        self.head += count as u32;
        first
    }

    /// Forgets everything. Also what makes fresh, zeroed memory a memo.
    pub fn forget(&mut self) {
        self.head = self.head.max(1);
        self.oldest = self.head;
    }

    #[inline(always)]
    fn is_alive(&self, number: u32) -> bool {
        let age = self.head.wrapping_sub(number);
        age <= self.head.wrapping_sub(self.oldest) && age < (NODES - SEGMENT) as u32 && age != 0
    }

    #[inline(always)]
    fn check(&self, number: u32) -> *const Check {
        // SAFETY: the mask keeps the index below the array's length.
        unsafe { self.checks.as_ptr().add(number as usize & (NODES - 1)) }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> u64 {
        // SAFETY: as above.
        unsafe { *self.places.get_unchecked(number as usize & (NODES - 1)) }
    }

    #[inline(always)]
    fn rbp(&self, number: u32) -> u64 {
        // SAFETY: as above.
        unsafe { *self.rbps.get_unchecked(number as usize & (NODES - 1)) }
    }

    #[inline(always)]
    fn hash(pc: u64, cfa: u64) -> u64 {
        let mixed = (pc ^ cfa.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    #[inline(always)]
    fn set(&mut self, hash: u64) -> &mut [u64; WAYS] {
        // SAFETY: the mask keeps the index below the array's length.
        unsafe { self.sets.get_unchecked_mut(hash as usize & (SETS - 1)) }
    }

    /// A remembered walk from `place` to the root that still holds. Otherwise the CFA of the highest frame at which a
    /// remembered one turned out different (0: there was none). `deepest`: the most frames it may have.
    ///
    /// # Safety
    /// The words of the stack at and above `place.cfa - 8` belong to a thread that is here, in a call: the caller's.
    #[inline(always)]
    pub unsafe fn find(&mut self, place: Place, deepest: usize) -> Result<Tail, u64> {
        let hash = Self::hash(place.pc, place.cfa);
        let set: *mut [u64; WAYS] = self.set(hash);
        let mut differs = 0;
        for way in 0..WAYS {
            // SAFETY: `way` is below the array's length; nobody else touches this thread's memo.
            let entry = unsafe { *(*set).get_unchecked(way) };
            if entry >> 32 != hash >> 32 {
                continue;
            }
            let number = entry as u32;
            if !self.is_alive(number) {
                continue;
            }
            let check = self.check(number);
            // SAFETY: in the arena.
            let Check { pc, how } = unsafe { *check };
            let known = self.place(number);
            if known & LOW48 != place.cfa || pc & LOW48 != place.pc || known >> 48 > deepest as u64 {
                continue;
            }
            if how & NEEDS != 0 && self.rbp(number) != place.rbp {
                continue;
            }
            // SAFETY: the caller's promise; the frame itself was just compared.
            match unsafe { self.verify(check, place.cfa) } {
                Ok(()) => {
                    if way != 0 {
                        // SAFETY: both below the array's length.
                        unsafe { core::ptr::swap(set.cast::<u64>(), set.cast::<u64>().add(way)) };
                    }
                    return Ok(Tail { number, depth: (known >> 48) as u16, needs_rbp: how & NEEDS != 0 });
                }
                Err(at) => differs = if at > differs { at } else { differs },
            }
        }
        Err(differs)
    }

    /// Compares the words of every frame above the one at `check`, whose CFA is `cfa`.
    ///
    /// # Safety
    /// As `find`; the frame itself holds.
    #[inline(always)]
    unsafe fn verify(&self, mut check: *const Check, mut cfa: u64) -> Result<(), u64> {
        // SAFETY: in the arena.
        let mut node = unsafe { *check };
        loop {
            check = if node.how & NEXT != 0 {
                // SAFETY: a neighbour is younger than a node that is alive; never set on the arena's last place.
                unsafe { check.add(1) }
            } else {
                // A branch, not a conditional move: the neighbour must not wait for the link to be loaded.
                unlikely();
                let link = (node.how >> 32) as u32;
                if link == 0 {
                    return Ok(());
                }
                if !self.is_alive(link) {
                    return Err(cfa);
                }
                self.check(link)
            };
            // SAFETY: in the arena.
            let caller = unsafe { *check };
            cfa += node.pc >> 48 << 3;
            // SAFETY: all frames below are as they were, so the walk would read this very word.
            if unsafe { ((cfa - 8) as *const u64).read() } != caller.pc & LOW48 {
                return Err(cfa);
            }
            let slot = node.how & SLOT;
            if slot != 0 {
                // SAFETY: both in the arena.
                let number = unsafe { check.offset_from(self.checks.as_ptr()) } as u32;
                // SAFETY: as the word above.
                if unsafe { ((cfa - 8 * slot) as *const u64).read() } != self.rbp(number) {
                    return Err(cfa);
                }
            }
            node = caller;
        }
    }

    /// Remembers new frames of a walk, leaf first, numbered from `first` on, that went on at `tail` (or ended).
    /// `frame(i)` tells frame `i`.
    pub fn remember(&mut self, first: u32, count: usize, tail: Option<u32>, frame: impl Fn(usize) -> (Place, Fact)) {
        if count == 0 || count > SEGMENT {
            return;
        }
        // From the root down, because a node knows how far its caller is.
        let mut caller_cfa = tail.map(|number| self.place(number) & LOW48);
        for i in (0..count).rev() {
            let number = first.wrapping_add(i as u32);
            let (place, fact) = frame(i);
            let distance = caller_cfa.map_or(0, |cfa| cfa.wrapping_sub(place.cfa) >> 3);
            if distance >= FAR {
                return;
            }
            caller_cfa = Some(place.cfa);
            let is_last = i + 1 == count;
            let link = if is_last { tail.unwrap_or(0) } else { number.wrapping_add(1) };
            let at_edge = number as usize & (NODES - 1) == NODES - 1;
            let mut how = (link as u64) << 32 | fact.caller_slot as u64 & SLOT;
            if fact.needs_rbp {
                how |= NEEDS;
            }
            if !is_last && !at_edge {
                how |= NEXT;
            }
            let at = number as usize & (NODES - 1);
            // SAFETY: the mask keeps the index below the arrays' length.
            unsafe {
                *self.checks.get_unchecked_mut(at) = Check { pc: place.pc & LOW48 | distance << 48, how };
                *self.places.get_unchecked_mut(at) = place.cfa & LOW48 | (fact.depth as u64) << 48;
                *self.rbps.get_unchecked_mut(at) = place.rbp;
            }
        }
        for i in (0..count).rev() {
            self.enter(frame(i).0, first.wrapping_add(i as u32));
        }
    }

    /// Makes a node findable.
    fn enter(&mut self, place: Place, number: u32) {
        let hash = Self::hash(place.pc, place.cfa);
        let set = self.set(hash);
        set[3] = set[2];
        set[2] = set[1];
        set[1] = set[0];
        set[0] = hash >> 32 << 32 | number as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memo() -> Box<Memo> {
        let words = vec![0u64; size_of::<Memo>().div_ceil(8) + 4].into_boxed_slice();
        // SAFETY: zeroed memory is a valid memo; leaked, so it stays.
        let memo = unsafe {
            let at = Box::leak(words).as_mut_ptr() as usize;
            Box::from_raw(((at + 31) & !31) as *mut Memo)
        };
        let mut memo = std::mem::ManuallyDrop::new(memo);
        memo.forget();
        // SAFETY: the box is never dropped by the tests (see `leak`).
        unsafe { std::mem::ManuallyDrop::take(&mut memo) }
    }

    /// A fake stack: word `i` is the return address slot of frame `i`.
    fn stack(pcs: &[u64]) -> Vec<u64> {
        pcs.to_vec()
    }

    fn place(stack: &[u64], i: usize) -> Place {
        Place { pc: stack[i], cfa: stack.as_ptr() as u64 + 8 * (i as u64 + 1), rbp: 7 }
    }

    fn fact(depth: u16) -> Fact {
        Fact { depth, needs_rbp: false, caller_slot: 0 }
    }

    fn remember(memo: &mut Memo, count: usize, tail: Option<u32>, frame: impl Fn(usize) -> (Place, Fact)) -> u32 {
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
        // SAFETY: as above.
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
        // SAFETY: as above.
        assert!(unsafe { memo.find(place(&words, 0), 99) }.is_ok_and(|t| t.number == first && t.depth == 4));
        memo.forget();
        // SAFETY: as above.
        assert_eq!(unsafe { memo.find(place(&words, 0), 99) }.err(), Some(0));
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
        // SAFETY: as above.
        assert!(unsafe { memo.find(place(&words, 0), 99) }.is_err());
        std::mem::forget(memo);
    }
}
