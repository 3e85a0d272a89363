//! Threads of the target.
use crate::wire::{Cursor, list_block, put, put_str};
use crate::{BlockKind, Malformed, RawBlock};

/// A thread written again with the same `index` replaces the earlier one (for instance when its name became known).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Numbered from 0 without gaps, in a recording in the order of the first event.
    pub index: u32,
    pub tid: u32,
    pub image: u32,
    /// Empty if it is not known.
    pub name: String,
}

impl Thread {
    pub fn to_block(threads: &[Thread]) -> RawBlock {
        list_block(BlockKind::Threads, threads, |out, thread| {
            put(out, thread.index as u64);
            put(out, thread.tid as u64);
            put(out, thread.image as u64);
            put_str(out, &thread.name);
        })
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Thread>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let threads = cursor.list(|cursor| {
            Ok(Thread { index: cursor.u32()?, tid: cursor.u32()?, image: cursor.u32()?, name: cursor.str()? })
        })?;
        cursor.end()?;
        Ok(threads)
    }
}
