//! When a thread may stamp an event without looking at the clock.
//!
//! Reading the clock is a third of an event's cost. Stamps order the events of different threads; the events of one
//! thread are already in order. So while one thread records alone (`Header::pace`) and its events follow each other
//! quickly, only every sixteenth event reads the clock. Each of the others gets the stamp before it plus one.
//!
//! Such a stamp is too early by at most the time that sixteen events take. That is about 0.1 ms at most, because events
//! that follow each other more slowly than `QUICK` always read the clock. The exception is a pause between quick
//! events: the events right after it are too early by the length of the pause. The error never exceeds the time between
//! two rounds of the collector (normally 10 ms), because after each round the thread must read the clock.
//!
//! The order stays exact:
//! - `pace` becomes 0 before the first event of a second thread. Whatever this thread can learn of the other thread's
//!   events, it learns after that.
//! - While the thread skips the clock, its intent stays at the last stamp. So the collector's watermark does not pass
//!   events that are still to come.
//! - A signal handler that interrupts a hook writes to the thread's other ring. It therefore begins a new round
//!   (`Header::next_round`), and the next event of each ring reads the clock.
use crate::header::Header;
use crate::record::Stamp;
use crate::sync::{AtomicU32, Ordering};

const STEPS: u32 = 15;
/// The largest distance of two clock reads after which events count as quick: about 8 us at 2 GHz, 4 us at 4 GHz.
const QUICK: u64 = 1 << 14;

/// Decides for each event of one ring whether the clock is read.
#[repr(C)]
pub struct ClockSkipping {
    /// How many of the next events need no clock.
    steps: u32,
    /// `Header::pace` before the last clock read.
    round: u32,
    looked_at: Stamp,
}

impl ClockSkipping {
    pub(crate) const NEW: ClockSkipping = ClockSkipping { steps: 0, round: 0, looked_at: 0 };

    /// Returns true if this event needs no clock read. Otherwise the caller must read the clock and then call `look`.
    ///
    /// The round is noted before the clock is read. A signal handler that runs in between begins another round, so the
    /// next event reads the clock again and is not stamped before the handler's events.
    #[inline(always)]
    pub(crate) fn step(&mut self, header: &Header) -> bool {
        let round = header.pace.load(Ordering::Relaxed);
        if self.steps != 0 && round == self.round {
            self.steps -= 1;
            return true;
        }
        (self.steps, self.round) = (0, round);
        false
    }

    /// Must be called after the clock was read. Decides whether the next events may skip it.
    #[inline(always)]
    pub(crate) fn look(&mut self, now: Stamp) {
        let quick = now.wrapping_sub(self.looked_at) < QUICK;
        self.steps = if self.round != 0 && quick { STEPS } else { 0 };
        self.looked_at = now;
    }

    /// Returns true if the next event reads the clock in any case.
    #[inline(always)]
    pub(crate) const fn is_due(&self) -> bool {
        self.steps == 0
    }
}

impl Header {
    /// Target: a thread begins to record. `threads_begun` counts the threads that have begun. `may_count` says that
    /// stamps are plain reads of the time stamp counter. Returns true if this thread records alone.
    ///
    /// The first thread is alone until a second one begins. Before the second thread writes its first event, the first
    /// thread must no longer skip the clock.
    pub fn begin_thread(&self, threads_begun: &AtomicU32, may_count: bool) -> bool {
        let first = threads_begun.fetch_add(1, Ordering::SeqCst) == 0;
        let alone = first && may_count && self.reads_every_clock == 0;
        if alone {
            self.pace.store(1, Ordering::SeqCst);
        }
        // A second thread may have begun between the two stores, and have cleared `pace` before it was set here.
        if !alone || threads_begun.load(Ordering::SeqCst) > 1 {
            // A swap and not a store, so that it is ordered after every round that the collector has begun.
            self.pace.swap(0, Ordering::SeqCst);
            return false;
        }
        true
    }
}
