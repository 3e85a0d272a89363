//! Which words of the stack may be read, and how that is known.
//!
//! A walk or a comparison that reads an unmapped word kills the program. It is normal that a stack was unmapped, mapped
//! again or given to another coroutine since the last event. So every read of the stack goes through one of two types:
//!
//! - [`SameSoFar`], by induction. The comparison of a remembered walk starts at the leaf and stops at the first
//!   difference. As long as all words are unchanged, the next word is the one that a correct unwinder would read now.
//!   This costs nothing.
//! - [`Proof`], by proof. The kernel was asked whether the page can be read. Each walk asks again. If the kernel may
//!   not be asked (in a sandbox), earlier answers are valid until the stack pointer leaves that stack.
//!
//! A frame that was found by following a frame pointer without CFI is not a frame that a correct unwinder must find.
//! Such frames need a proof as long as they are remembered: see `memo/guesses.rs`.
use crate::sys;

const PAGE: u64 = 4096;
/// The most pages (4 MB) that the kernel is asked about to show that two addresses are on the same stack.
const MOST_PAGES: u64 = 1024;

/// How many pages below the stack pointer the kernel is asked about before a thread enters a sandbox, because its later
/// calls may be deeper.
const DEEPER: u64 = 64;

/// Bytes `[low, high)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub low: u64,
    pub high: u64,
}

impl Range {
    const fn page_of(address: u64) -> Range {
        let low = address & !(PAGE - 1);
        Range { low, high: low.wrapping_add(PAGE) }
    }

    /// Returns true if all eight bytes at `address` are in the range.
    #[inline(always)]
    pub const fn holds_word(self, address: u64) -> bool {
        address >= self.low && address < self.high.saturating_sub(7)
    }

    pub const fn contains(self, other: Range) -> bool {
        self.low <= other.low && other.high <= self.high
    }
}

/// Stands for a comparison in which all words from the leaf up to here were unchanged.
#[derive(Clone, Copy)]
pub struct SameSoFar(());

impl SameSoFar {
    /// # Safety
    /// The calling thread is inside the call whose return address, CFA and (if the walk used it) rbp were just compared
    /// with the leaf of a remembered walk, and are equal.
    #[inline(always)]
    pub unsafe fn from_leaf() -> Self {
        SameSoFar(())
    }

    /// # Safety
    /// `at` is where the remembered walk read its next word, and every word that it read before was compared and is
    /// equal.
    #[inline(always)]
    pub unsafe fn read(self, at: u64) -> u64 {
        // SAFETY: the caller promises that all words before are equal, so an unwinder would read this word now: the
        // return address or saved rbp of a call that has not returned. Of a guessed frame, it is in pages that were
        // shown to be readable (`Memo::move_guesses`). Aligned, because `Walk::step` refuses a CFA that is no multiple
        // of 8.
        unsafe { (at as *const u64).read() }
    }
}

/// Pages that the kernel has shown to be readable.
#[repr(C)]
#[derive(Default)]
pub struct Proof {
    /// What this walk has asked about: a run of pages that holds the last word that was read.
    walk: Range,
    /// A run of pages that holds the stack pointer. They were shown to be readable since the stack pointer came to this
    /// stack.
    stack: Range,
    /// The upper end of `stack` when it last turned out not to be the thread's own stack; 0 = never. To ask again would
    /// cost one system call for each page.
    foreign_high: u64,
    /// False in a sandbox, where a system call may kill the program.
    may_ask: bool,
}

impl Proof {
    /// Begins a walk. `in_use` is an address on the stack that the calling thread is using now.
    #[inline]
    pub fn start(&mut self, in_use: u64, may_ask: bool) {
        self.may_ask = may_ask;
        if !self.stack.holds_word(in_use) {
            self.stack = self.stack_with(in_use);
        }
        self.walk = if may_ask { Range::page_of(in_use) } else { self.stack };
    }

    /// Called before the thread enters a sandbox. Asks about all pages that its later walks may need: those from
    /// `in_use` up to `top`, which is the upper end of the stack that libc gave to the thread, and some pages below for
    /// deeper calls. If there is an unreadable page between `in_use` and `top`, the thread runs on a stack that the
    /// program made itself. Then nothing below is added, because it may be other memory of the program.
    pub fn prepare(&mut self, in_use: u64, top: u64) {
        self.start(in_use, true);
        if top <= in_use || self.stack_up_to(top).is_none() {
            return;
        }
        for _ in 0..DEEPER {
            let below = self.stack.low.wrapping_sub(PAGE);
            if !self.is_readable_page(below) {
                break;
            }
            self.stack.low = below;
        }
    }

    /// Returns what is known of the stack that holds `in_use`. If all pages between `in_use` and `self.stack` are
    /// readable, both are the same stack.
    #[cold]
    fn stack_with(&self, in_use: u64) -> Range {
        let page = Range::page_of(in_use);
        let is_near = |from: u64, to: u64| to > from && to - from <= MOST_PAGES * PAGE;
        if is_near(page.low, self.stack.low) && self.is_readable_run(page.high, self.stack.low) {
            return Range { low: page.low, high: self.stack.high };
        }
        if is_near(self.stack.high, page.high) && self.is_readable_run(self.stack.high, page.low) {
            return Range { low: self.stack.low, high: page.high };
        }
        page
    }

    /// Returns true if every page in `[from, to)` can be read. Asks about at most `MOST_PAGES`.
    fn is_readable_run(&self, from: u64, to: u64) -> bool {
        let count = to.saturating_sub(from) / PAGE;
        count <= MOST_PAGES && (0..count).all(|i| self.is_readable_page(from + i * PAGE))
    }

    fn is_readable_page(&self, page: u64) -> bool {
        self.may_ask && page >> 47 == 0 && sys::is_readable(page as usize)
    }

    /// Returns the word at `at`, if it can be read.
    #[inline(always)]
    pub fn read(&mut self, at: u64) -> Option<u64> {
        if !self.walk.holds_word(at) && !self.ask(at) {
            return None;
        }
        // SAFETY: in a page that was shown to be readable during this walk, or (in a sandbox) since the stack pointer
        // came to this stack. Only this thread uses the stack that it runs on. CFI may say any address, also an odd
        // one.
        Some(unsafe { (at as *const u64).read_unaligned() })
    }

    #[cold]
    fn ask(&mut self, at: u64) -> bool {
        let page = Range::page_of(at);
        if at & 7 != 0 || !self.is_readable_page(page.low) {
            return false;
        }
        if page.low == self.walk.high {
            self.walk.high = page.high;
        } else if page.high == self.walk.low {
            self.walk.low = page.low;
        } else {
            self.walk = page;
        }
        if page.low == self.stack.high {
            self.stack.high = page.high;
        }
        true
    }

    /// Returns true if `at` is not below the pages that this walk has asked about, and everything from them up to `at`
    /// is readable. Then `at` is on the same stack as the word that was read last.
    pub fn reaches(&mut self, at: u64) -> bool {
        if at < self.walk.low || at & 7 != 0 {
            return false;
        }
        let page = Range::page_of(at);
        if page.high > self.walk.high {
            if !self.is_readable_run(self.walk.high, page.high) {
                return false;
            }
            self.walk.high = page.high;
        }
        true
    }

    /// Asks whether the stack can be read from the stack pointer up to `top`. Returns what is known of it, or `None` if
    /// it cannot be read.
    pub fn stack_up_to(&mut self, top: u64) -> Option<Range> {
        let high = Range::page_of(top.wrapping_sub(1)).high;
        if high > self.stack.high {
            if !self.is_readable_run(self.stack.high, high) {
                return None;
            }
            self.stack.high = high;
        }
        Some(self.stack)
    }

    /// Asks whether the thread runs on its own stack, which stays mapped while the thread runs, and whether `top` is on
    /// that stack. `end` is the upper end of the thread's own stack, or 0 if it is not known. Returns what is known of
    /// the stack, or `None` if one of the two cannot be shown.
    pub fn own_stack(&mut self, top: u64, end: u64) -> Option<Range> {
        if self.stack.high == self.foreign_high {
            return None;
        }
        if end <= self.stack.low || self.stack_up_to(end).is_none() {
            self.foreign_high = self.stack.high;
            return None;
        }
        (top <= end).then_some(self.stack)
    }

    /// Returns what is known of the stack that the last walk began on.
    pub const fn stack(&self) -> Range {
        self.stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Pages that the test has mapped: those that are `true` can be read.
    struct Pages(*mut u8, usize);

    impl Pages {
        fn new(readable: &[bool]) -> Self {
            let len = readable.len() * PAGE as usize;
            // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
            let base = unsafe {
                libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert!(base != libc::MAP_FAILED);
            let pages = Pages(base.cast(), len);
            readable.iter().enumerate().for_each(|(page, &is_readable)| pages.protect(page, is_readable));
            pages
        }

        fn protect(&self, page: usize, is_readable: bool) {
            let protection = if is_readable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
            let at = self.0.wrapping_add(page * PAGE as usize).cast();
            // SAFETY: a page of the mapping that `new` made for this test alone; no reference into it exists.
            assert_eq!(unsafe { libc::mprotect(at, PAGE as usize, protection) }, 0);
        }

        fn word(&self, page: u64, word: u64) -> u64 {
            self.0 as u64 + page * PAGE + word * 8
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the whole mapping that `new` made; `self` was its last user.
            unsafe { libc::munmap(self.0.cast(), self.1) };
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_read() {
        let pages = Pages::new(&[true, true, false, true]);
        let mut proof = Proof::default();
        proof.start(pages.word(0, 100), true);
        assert_eq!(proof.read(pages.word(0, 511)), Some(0));
        assert_eq!(proof.read(pages.word(1, 511)), Some(0));
        assert_eq!(proof.read(pages.word(2, 0)), None);
        assert_eq!(proof.read(pages.word(1, 511) + 4), None, "half in a page that cannot be read");
        assert_eq!(proof.read(pages.word(3, 0)), Some(0), "beyond a gap");
        assert_eq!(proof.read(1 << 47), None);
    }

    #[test]
    fn a_proof_ends_with_its_walk() {
        let pages = Pages::new(&[true, true, true]);
        let mut proof = Proof::default();
        proof.start(pages.word(0, 100), true);
        assert_eq!(proof.read(pages.word(2, 0)), Some(0));
        pages.protect(2, false);
        proof.start(pages.word(0, 100), true);
        assert_eq!(proof.read(pages.word(1, 0)), Some(0));
        assert_eq!(proof.read(pages.word(2, 0)), None);
    }

    #[test]
    fn in_a_sandbox_the_last_proof_holds_until_the_stack_is_left() {
        let pages = Pages::new(&[true, true, true, true]);
        let mut proof = Proof::default();
        proof.start(pages.word(0, 100), true);
        assert_eq!(proof.stack_up_to(pages.word(2, 0)), Some(Range { low: pages.word(0, 0), high: pages.word(2, 0) }));
        proof.start(pages.word(0, 90), false);
        assert_eq!(proof.read(pages.word(1, 7)), Some(0));
        assert_eq!(proof.read(pages.word(2, 0)), None, "never asked for");
        proof.start(pages.word(3, 0), false);
        assert_eq!(proof.read(pages.word(3, 8)), Some(0));
        proof.start(pages.word(0, 90), false);
        assert_eq!(proof.read(pages.word(0, 91)), Some(0), "the page in use");
        assert_eq!(proof.read(pages.word(1, 7)), None, "the stack was left");
    }

    #[test]
    fn a_thread_that_enters_a_sandbox_has_a_proof_of_its_whole_stack() {
        let pages = Pages::new(&[false, true, true, true, true, false, true]);
        let mut proof = Proof::default();
        proof.prepare(pages.word(3, 5), pages.word(4, 100));
        proof.start(pages.word(3, 5), false);
        assert_eq!(proof.read(pages.word(4, 511)), Some(0), "the page of the upper end");
        proof.start(pages.word(1, 5), false);
        assert_eq!(proof.read(pages.word(4, 7)), Some(0), "from a deeper call");
        assert_eq!(proof.stack(), Range { low: pages.word(1, 0), high: pages.word(5, 0) });
        // If the program made the stack itself, `top` is not the upper end of this stack.
        for top in [pages.word(6, 5), pages.word(1, 0), 0] {
            let mut proof = Proof::default();
            proof.prepare(pages.word(3, 5), top);
            assert_eq!(proof.stack(), Range { low: pages.word(3, 0), high: pages.word(4, 0) });
        }
    }

    #[test]
    fn a_stack_is_the_threads_own_when_nothing_is_missing_up_to_its_end() {
        let pages = Pages::new(&[true, true, false, true, true, true]);
        let (other, own) = (pages.word(0, 5), pages.word(3, 5));
        let end = pages.word(5, 100);
        let mut proof = Proof::default();
        proof.start(own, true);
        let whole = Range { low: pages.word(3, 0), high: pages.word(6, 0) };
        assert_eq!(proof.own_stack(pages.word(4, 0), end), Some(whole));
        assert_eq!(proof.own_stack(pages.word(5, 101), end), None, "a frame above its end");
        let mut proof = Proof::default();
        proof.start(other, true);
        assert_eq!(proof.own_stack(pages.word(1, 0), end), None, "a gap is between");
        pages.protect(2, true);
        assert_eq!(proof.own_stack(pages.word(1, 0), end), None, "not asked again");
        proof.start(own, true);
        assert_eq!(proof.own_stack(pages.word(4, 0), end), Some(Range { low: pages.word(0, 0), ..whole }));
    }

    #[test]
    fn two_addresses_are_on_one_stack_when_no_gap_is_between() {
        let pages = Pages::new(&[true, true, true, false, true]);
        let mut proof = Proof::default();
        proof.start(pages.word(0, 1), true);
        assert!(proof.reaches(pages.word(2, 5)));
        assert!(!proof.reaches(pages.word(4, 5)));
        assert_eq!(proof.stack_up_to(pages.word(4, 5)), None);
        // A deeper call of the same stack, and a call on another one.
        proof.start(pages.word(2, 5), true);
        proof.start(pages.word(0, 5), true);
        assert_eq!(proof.stack(), Range { low: pages.word(0, 0), high: pages.word(3, 0) });
        proof.start(pages.word(4, 5), true);
        assert_eq!(proof.stack(), Range { low: pages.word(4, 0), high: pages.word(5, 0) });
    }
}
