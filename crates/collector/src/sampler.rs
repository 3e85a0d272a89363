//! Resident memory of the target over time.
//!
//! Receives: a call in every round that merges. Returns: at most one sample in every 10 ms, in blocks. Must hold:
//! without /proc there are no samples, and nothing else changes.
use crate::mapping::Mapping;
use crate::recorder::Recorder;
use format::{RawBlock, RssSample};

const EVERY_NS: u64 = 10_000_000;

#[derive(Debug, Default)]
pub struct Sampler {
    next_ns: u64,
    samples: Vec<RssSample>,
    peak_rss: u64,
}

impl Sampler {
    /// `others`: the resident memory of other processes of a tree.
    pub fn look(&mut self, mapping: &Mapping, recorder: &Recorder, others: impl FnOnce() -> u64) {
        let time_ns = recorder.timeline.now_ns();
        if time_ns < self.next_ns {
            return;
        }
        // The times are on a grid, so that a late look does not delay all later ones.
        self.next_ns = (time_ns / EVERY_NS + 1) * EVERY_NS;
        // A process that is ending has no memory any more, which is not a sample.
        let first = recorder.process.rss_bytes().unwrap_or(0);
        let rss_bytes = first.saturating_add(others());
        if rss_bytes > 0 {
            self.peak_rss = self.peak_rss.max(rss_bytes);
            self.samples.push(RssSample { time_ns, rss_bytes, overhead_bytes: mapping.bytes_used() });
        }
    }

    pub const fn peak_rss(&self) -> u64 {
        self.peak_rss
    }

    pub fn take(&mut self) -> Option<RawBlock> {
        if self.samples.is_empty() {
            return None;
        }
        let block = RssSample::to_block(&self.samples);
        self.samples.clear();
        Some(block)
    }
}
