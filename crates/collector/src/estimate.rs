//! What a recording with `--sample` holds, for a front end: an estimate from the live blocks that were taken.
//!
//! Receives: the live blocks of each allocation class, now and then. Returns: the bytes that are live, and the most so far.
//! Must hold: a reader of the trace computes the same number for the same moment. It is not kept up to date with each
//! event, so that an exact recording pays nothing for it; the highest value is that of the looks.
use crate::recorder::Recorder;
use channel::SamplingSetup;
use format::Sampling;
use std::time::{Duration, Instant};

/// The time between two looks. A look takes some nanoseconds for each allocation class.
const EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Estimate {
    sampling: Sampling,
    next: Instant,
    pub(crate) live_bytes: u64,
    pub(crate) peak_bytes: u64,
}

impl Estimate {
    /// `None` if every block is recorded.
    pub fn new(setup: SamplingSetup, now: Instant) -> Option<Self> {
        let sampling = Sampling { rate: setup.rate, exact_above: setup.exact_above };
        (setup.rate > 0).then_some(Estimate { sampling, next: now, live_bytes: 0, peak_bytes: 0 })
    }

    pub fn look(&mut self, recorder: &Recorder) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        self.live_bytes = recorder.live_estimate(&self.sampling);
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }
}
