//! When a thread may stamp an event without looking at the clock.
//!
//! Reading the clock is a third of an event's cost. Stamps order the events of different threads; the events of one
//! thread are in order by themselves. So while one thread records alone (`Header::pace`), and its events come in quick
//! succession, only every sixteenth is stamped by the clock and those between count on by one.
//!
//! What a stamp is then worth: it is too early by at most the time that sixteen events take, which is some tens of
//! microseconds, because slower events are all stamped by the clock. The exception is a pause in the middle of a quick
//! succession: what follows it is too early by the pause, but never by more than the time between two rounds of the
//! collector (10 ms), since a new round asks for the clock.
//!
//! Order stays exact. Another thread's first event comes after `pace` has become 0, and whatever this thread can know
//! of the other's events it knows after that too. The intent rests at the last stamp meanwhile, so the collector's
//! watermark does not pass by what may still come. A signal handler that interrupts a hook writes to the thread's other
//! ring, so it begins a new round (`Header::next_round`): both rings then look at the clock for their next events.
use crate::header::Header;
use crate::record::Stamp;
use crate::sync::{AtomicU32, Ordering};

const STEPS: u32 = 15;
/// Between two looks: about 8 us where the counter has 2 to 4 GHz.
const QUICK: u64 = 1 << 14;

/// The pace of one ring.
#[repr(C)]
pub struct ClockSkipping {
    /// Events that may still go without the clock.
    steps: u32,
    /// `Header::pace` before the last look.
    round: u32,
    looked_at: Stamp,
}

impl ClockSkipping {
    pub(crate) const NEW: ClockSkipping = ClockSkipping { steps: 0, round: 0, looked_at: 0 };

    /// True: this event needs no look at the clock. Otherwise the clock must be read next, and then `look` must be called.
    ///
    /// The round is noted before the clock is read. A signal handler that comes between the two begins another round, so the
    /// next event looks again and is not stamped before the handler's events.
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

    /// The clock was read.
    #[inline(always)]
    pub(crate) fn look(&mut self, now: Stamp) {
        let quick = now.wrapping_sub(self.looked_at) < QUICK;
        self.steps = if self.round != 0 && quick { STEPS } else { 0 };
        self.looked_at = now;
    }

    /// True: the next event looks, whatever happens.
    #[inline(always)]
    pub(crate) const fn is_due(&self) -> bool {
        self.steps == 0
    }
}

impl Header {
    /// Target: a thread begins to record. `threads_begun` counts them. `may_count`: stamps are plain reads of the counter.
    /// Returns true while the thread is alone.
    ///
    /// The first thread is alone until the second one is here. From before the second one's first event on, no event of the
    /// first may go without the clock.
    pub fn begin_thread(&self, threads_begun: &AtomicU32, may_count: bool) -> bool {
        let first = threads_begun.fetch_add(1, Ordering::SeqCst) == 0;
        let alone = first && may_count;
        if alone {
            self.pace.store(1, Ordering::SeqCst);
        }
        // A second one that began just now may have said so before we said that we are alone.
        if !alone || threads_begun.load(Ordering::SeqCst) > 1 {
            // A swap: it comes after every round that the collector has begun.
            self.pace.swap(0, Ordering::SeqCst);
            return false;
        }
        true
    }
}
