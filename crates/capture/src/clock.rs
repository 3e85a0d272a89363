//! Where stamps come from.
//!
//! Usually a stamp is the processor's time stamp counter. A program can forbid that: after `prctl(PR_SET_TSC,
//! PR_TSC_SIGSEGV)` and in seccomp's strict mode, `rdtsc` is a segmentation fault. The flag belongs to a thread and is
//! inherited by the threads and processes that it creates.
//!
//! The fallback is `Header::ticks`, one word that all threads share. The collector raises it to the time stamp counter
//! in every round, and every event that takes its stamp from it adds one. Stamps of both kinds therefore have one unit.
//! If one thread loses the counter, all threads of the process use the word from then on, so their order stays exact:
//! see decision 49.
use crate::sys;
use channel::{Header, Stamp};
use core::sync::atomic::{AtomicU32, Ordering};

#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `rdtsc` without a fence, because the collector uses membarrier.
    Counter = 0,
    /// `rdtsc` after a fence.
    FencedCounter = 1,
    /// `Header::ticks`.
    SharedWord = 2,
}

impl Source {
    /// `has_counter`: the kernel trusts the time stamp counter. Whether a thread may read it is checked later, by
    /// `check_thread`.
    pub const fn choose(has_counter: bool, has_membarrier: bool) -> Source {
        match (has_counter, has_membarrier) {
            (false, _) => Source::SharedWord,
            (true, true) => Source::Counter,
            (true, false) => Source::FencedCounter,
        }
    }
}

/// The source that the process uses. It can change to `SharedWord` while other threads run, and never changes back.
#[repr(C)]
pub struct StampClock {
    source: AtomicU32,
}

impl StampClock {
    pub const fn new(source: Source) -> Self {
        StampClock { source: AtomicU32::new(source as u32) }
    }

    pub fn set(&self, source: Source) {
        self.source.store(source as u32, Ordering::SeqCst);
    }

    /// Returns true if `plain` may be used. A thread that still sees the old value just after a change may use it too,
    /// because only the thread that made the change has lost the counter.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.source.load(Ordering::Relaxed) == Source::Counter as u32
    }

    /// Returns the stamp of an event. May be called only if `is_plain` is true.
    #[inline(always)]
    pub fn plain(&self) -> Stamp {
        rdtsc()
    }

    /// Returns a stamp that is not earlier than `last`, the last stamp of the calling thread.
    #[inline(always)]
    pub fn after(&self, header: &Header, last: Stamp) -> Stamp {
        if self.is_plain() { rdtsc() } else { self.carefully_after(header, last) }
    }

    #[cold]
    fn carefully_after(&self, header: &Header, last: Stamp) -> Stamp {
        if self.source.load(Ordering::Relaxed) == Source::SharedWord as u32 {
            // The thread's last stamp can be ahead of the word if it came from the counter.
            if header.ticks.load(Ordering::Relaxed) <= last {
                header.ticks.fetch_max(last + 1, Ordering::SeqCst);
            }
            return header.ticks.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: both fences need SSE2, which every x86-64 processor has. They make the intent visible to all before
        // the stamp is taken.
        unsafe {
            core::arch::x86_64::_mm_mfence();
            core::arch::x86_64::_mm_lfence();
        }
        rdtsc()
    }

    /// Asks the kernel whether the calling thread may read the counter, and changes to the shared word if it may not.
    /// Makes a system call.
    pub fn check_thread(&self, header: &Header) {
        if self.source.load(Ordering::Relaxed) != Source::SharedWord as u32 && !sys::may_read_counter() {
            self.change(header);
        }
    }

    /// Called by a thread that is about to lose the counter, while it can still read it.
    pub fn leave_counter(&self, header: &Header) {
        if self.source.load(Ordering::Relaxed) != Source::SharedWord as u32 {
            // Otherwise the next events would be stamped earlier than the events of other threads since the last round.
            header.ticks.fetch_max(rdtsc(), Ordering::SeqCst);
            self.change(header);
        }
    }

    fn change(&self, header: &Header) {
        header.counter_lost.store(1, Ordering::Relaxed);
        self.set(Source::SharedWord);
        // A thread that records alone reads the clock again for its next event.
        header.pace.store(0, Ordering::SeqCst);
    }
}

#[inline(always)]
fn rdtsc() -> Stamp {
    // SAFETY: reads a counter. The calling thread may do so: `check_thread` asked before its first event, and
    // `sandbox.rs` notices when it gives the counter up.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Box<Header> {
        // SAFETY: `Header` consists of integers and atomics, for which zero is a value.
        unsafe { Box::new(core::mem::zeroed()) }
    }

    #[test]
    fn the_source_is_chosen_by_what_there_is() {
        assert_eq!(Source::choose(true, true), Source::Counter);
        assert_eq!(Source::choose(true, false), Source::FencedCounter);
        assert_eq!(
            (Source::choose(false, true), Source::choose(false, false)),
            (Source::SharedWord, Source::SharedWord)
        );
    }

    #[test]
    fn stamps_of_a_thread_rise_across_the_change() {
        let (header, clock) = (header(), StampClock::new(Source::Counter));
        header.pace.store(7, Ordering::Relaxed);
        let before = clock.after(&header, 0);
        clock.leave_counter(&header);
        assert!(!clock.is_plain());
        assert_eq!((header.counter_lost.load(Ordering::Relaxed), header.pace.load(Ordering::Relaxed)), (1, 0));
        let after = clock.after(&header, before);
        assert!(after > before, "{after} {before}");
        assert_eq!(clock.after(&header, after), after + 1);
        // Another thread took its last stamp from the counter.
        let ahead = after + 1_000_000;
        assert_eq!(clock.after(&header, ahead), ahead + 1);
        assert_eq!(clock.after(&header, after), ahead + 2, "one order for all threads");
    }

    #[test]
    fn a_thread_that_may_read_the_counter_does() {
        let (header, clock) = (header(), StampClock::new(Source::FencedCounter));
        clock.check_thread(&header);
        assert_eq!(header.counter_lost.load(Ordering::Relaxed), 0);
        let (first, second) = (clock.after(&header, 0), clock.after(&header, 0));
        assert!(second > first && header.ticks.load(Ordering::Relaxed) == 0);
    }
}
