//! Where stamps come from.
//!
//! Usually a stamp is the processor's time stamp counter. A program can forbid that: after
//! `prctl(PR_SET_TSC, PR_TSC_SIGSEGV)` and in seccomp's strict mode, `rdtsc` is a segmentation fault. The flag belongs to
//! a thread and is inherited by the threads and processes that it creates.
//!
//! The fallback is `Header::ticks`, one word that all threads share. The collector raises it to its own counter in every
//! round, and every event adds one. Stamps of both kinds therefore have one unit. If one thread loses the counter, all
//! threads of the process use the word from then on, so their order stays exact: see decision 49.
use crate::sys;
use channel::{Header, Stamp};
use core::sync::atomic::{AtomicU32, Ordering};

#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `rdtsc` without a fence: the collector has membarrier.
    Counter = 0,
    /// `rdtsc` after a fence of our own.
    FencedCounter = 1,
    /// `Header::ticks`.
    SharedWord = 2,
}

impl Source {
    /// `has_counter`: every thread may read the time stamp counter, and the kernel trusts it.
    pub const fn choose(has_counter: bool, has_membarrier: bool) -> Source {
        match (has_counter, has_membarrier) {
            (false, _) => Source::SharedWord,
            (true, true) => Source::Counter,
            (true, false) => Source::FencedCounter,
        }
    }
}

/// The process's choice. It only ever changes to `SharedWord`, while other threads run.
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

    /// True if `plain` is a good stamp. A thread that sees the old value just after the change may still use it: only the
    /// thread that made the change has lost the counter.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.source.load(Ordering::Relaxed) == Source::Counter as u32
    }

    /// The stamp of an event, where `is_plain`.
    #[inline(always)]
    pub fn plain(&self) -> Stamp {
        rdtsc()
    }

    /// A stamp that is later than `last`, the calling thread's last one.
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
        // SAFETY: fences only. The intent must be visible to all before the stamp is taken.
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

    /// The calling thread is about to lose the counter, which it can still read.
    pub fn leave_counter(&self, header: &Header) {
        if self.source.load(Ordering::Relaxed) != Source::SharedWord as u32 {
            // Otherwise what comes now would be stamped earlier than what other threads did since the last round.
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
    // SAFETY: reads a counter. The calling thread may do so: `check_thread` asked before its first event, and `sandbox.rs`
    // notices when it gives the counter up.
    unsafe { core::arch::x86_64::_rdtsc() }
}
