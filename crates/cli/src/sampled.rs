//! Recordings that sample: the values of their options, what is said at their end, and which outputs refuse them.
use crate::say;
use analysis::numbers::{bytes, exact};
use analysis::to_signed;
use channel::{MAX_RATE, SamplingSetup};
use format::{Block, RawBlock, Sampling, Variance};
use heaptrack_trace::OpenOptions;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

/// For tests: the seed of the sample points, so that two recordings of one program take the same blocks.
const SEED: &str = "HEAPTRACK_TEST_SAMPLE_SEED";

/// Parses the mean distance of two sample points.
pub fn rate(text: &str) -> Result<u64, String> {
    match crate::values::size(text)? {
        0 => Err("must be at least 1".to_owned()),
        rate if rate > MAX_RATE => Err(format!("must be at most {}", bytes(to_signed(MAX_RATE)))),
        rate => Ok(rate),
    }
}

/// What the target is asked for. `rate` is `None` in a recording of every block.
pub fn setup(rate: Option<u64>, exact_above: Option<u64>) -> SamplingSetup {
    let Some(rate) = rate else { return SamplingSetup::default() };
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let random = || std::hash::RandomState::new().build_hasher().finish();
    SamplingSetup { rate, exact_above: exact_above.unwrap_or(0), seed: given.unwrap_or_else(random) }
}

/// How the blocks of a trace were sampled. `None` if every block was recorded, or if the file is no trace of ours.
pub fn of(path: &Path) -> Option<Sampling> {
    let mut source = heaptrack_trace::open_source(path).ok()?;
    match source.next_block().ok()?.map(RawBlock::decode) {
        Some(Ok(Block::Session(session))) => session.sampling,
        _ => None,
    }
}

/// Refuses a trace whose blocks were sampled. `what` needs every block.
pub fn refuse(path: &Path, what: &str) -> anyhow::Result<()> {
    if of(path).is_some() {
        anyhow::bail!("{what} needs every block, and those of {} were sampled (--sample)", path.display());
    }
    Ok(())
}

/// Prints the estimates of a trace that was just recorded. `left` has the words for blocks that were not freed. Returns
/// false if the file cannot be read.
pub fn report(path: &Path, left: &str) -> bool {
    let Ok(trace) = OpenOptions::new().open(path, |_, _| ()) else { return false };
    let Some(sampling) = trace.engine().definitions().session.sampling else { return false };
    let Some(intervals) = trace.engine().whole_intervals() else { return false };
    let (totals, errors) = (trace.engine().totals(), intervals.totals);
    let size =
        |value: u64, error: Variance| format!("{} ± {}", bytes(to_signed(value)), bytes(to_signed(error.error())));
    let count =
        |value: u64, error: Variance| format!("{} ± {}", exact(to_signed(value)), exact(to_signed(error.error())));
    say(format_args!(
        "  sampled, on average once in {}; estimates with their 95 % intervals:",
        bytes(to_signed(sampling.rate))
    ));
    say(format_args!(
        "  {} allocations, {} in total; peak {}",
        count(totals.allocations, errors.allocations),
        size(totals.allocated_bytes, errors.allocated_bytes),
        size(totals.peak_bytes, errors.peak_bytes),
    ));
    say(format_args!(
        "  {} in {} blocks {left}",
        size(totals.leaked_bytes, errors.live_bytes),
        count(totals.leaked_allocations, errors.live_allocations),
    ));
    true
}
