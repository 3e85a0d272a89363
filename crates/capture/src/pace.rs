//! When a thread may stamp an event without looking at the clock.
//!
//! Reading the clock is a third of an event's cost. Stamps order the events of different threads; the events of one
//! thread are in order by themselves. So while one thread records alone (`Header::pace`), and its events come in quick
//! succession, only every sixteenth is stamped by the clock and those between count on by one.
//!
//! What a stamp is then worth: it is too early by at most the time that sixteen events take, which is some tens of
//! microseconds or else nobody counts on. The exception is a pause in the middle of a quick succession: what follows it
//! is too early by the pause, but never by more than the time between two rounds of the collector (10 ms), since a new
//! round asks for the clock.
//!
//! Order stays exact. Another thread's first event comes after `pace` has become 0, and whatever this thread can know
//! of the other's events it knows after that too. The intent rests at the last stamp meanwhile, so the collector's
//! watermark does not pass by what may still come.
use crate::core::Core;
use channel::{Header, Stamp};
use core::sync::atomic::Ordering;

const STEPS: u32 = 15;
/// Between two looks: about 8 us where the counter has 2 to 4 GHz.
const QUICK: u64 = 1 << 14;

#[repr(C)]
pub struct Pace {
    /// Events that may still go without the clock.
    steps: u32,
    /// `Header::pace` at the last look.
    round: u32,
    looked_at: Stamp,
}

impl Pace {
    pub const NEW: Pace = Pace { steps: 0, round: 0, looked_at: 0 };

    /// True: this event needs no look at the clock.
    #[inline(always)]
    pub fn step(&mut self, header: &Header) -> bool {
        if self.steps == 0 || header.pace.load(Ordering::Relaxed) != self.round {
            return false;
        }
        self.steps -= 1;
        true
    }

    /// The clock was read.
    #[inline(always)]
    pub fn look(&mut self, core: &Core, now: Stamp) {
        self.round = core.header().pace.load(Ordering::Relaxed);
        let quick = now.wrapping_sub(self.looked_at) < QUICK;
        self.steps = if self.round != 0 && quick { STEPS } else { 0 };
        self.looked_at = now;
    }

    /// The next event looks.
    #[inline(always)]
    pub fn hurry(&mut self) {
        self.steps = 0;
    }

    /// True: the next event looks, whatever happens.
    #[inline(always)]
    pub const fn is_due(&self) -> bool {
        self.steps == 0
    }
}
