//! Resident memory over time.
use crate::wire::{Cursor, list_block, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RssSample {
    /// The time since the session's start.
    pub time_ns: u64,
    /// All resident pages of the target, including those of the recording.
    pub rss_bytes: u64,
    /// The pages that exist only because of the recording.
    pub overhead_bytes: u64,
}

impl RssSample {
    /// Each value is written as its difference from the sample before, because RSS rarely changes.
    pub fn to_block(samples: &[RssSample]) -> RawBlock {
        let mut last = RssSample::default();
        list_block(BlockKind::Samples, samples, |out, sample| {
            put(out, zigzag(sample.time_ns.wrapping_sub(last.time_ns) as i64));
            put(out, zigzag(sample.rss_bytes.wrapping_sub(last.rss_bytes) as i64));
            put(out, zigzag(sample.overhead_bytes.wrapping_sub(last.overhead_bytes) as i64));
            last = *sample;
        })
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Vec<RssSample>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let mut last = RssSample::default();
        let samples = cursor.list(|cursor| {
            last = RssSample {
                time_ns: last.time_ns.wrapping_add(unzigzag(cursor.u64()?) as u64),
                rss_bytes: last.rss_bytes.wrapping_add(unzigzag(cursor.u64()?) as u64),
                overhead_bytes: last.overhead_bytes.wrapping_add(unzigzag(cursor.u64()?) as u64),
            };
            Ok(last)
        })?;
        cursor.end()?;
        Ok(samples)
    }
}
