//! Allocations of a merged trace that ended with their process: it exited before the last process did, or it called
//! exec.
//!
//! In the events such an allocation is freed at that moment, so that the live bytes and the peak are right at every
//! time. But the program did not free it. A Gone block lists these allocations, because their frees do not count as
//! frees, and says whether they count as leaked.
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

/// A file may have several Gone blocks. Each comes before the events that free its allocations, and after the events
/// that made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    pub at_ns: u64,
    /// True if the process ended and so leaked the allocations. An exec neither frees nor leaks them.
    pub is_leak: bool,
    /// Sorted by sequence number.
    pub blocks: Vec<GoneBlock>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoneBlock {
    pub sequence: u64,
    pub alloc_class: u32,
    /// The thread that made the allocation, and (below) when.
    pub thread: u32,
    pub born_ns: u64,
}

impl Gone {
    /// The most allocations in one Gone block, so that it stays below `MAX_RAW`.
    pub const MOST: usize = 1 << 20;

    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.at_ns);
        out.push(self.is_leak as u8);
        put(&mut out, self.blocks.len() as u64);
        let mut last = 0u64;
        for block in &self.blocks {
            put(&mut out, zigzag(block.sequence.wrapping_sub(last) as i64));
            put(&mut out, block.alloc_class as u64);
            put(&mut out, block.thread as u64);
            put(&mut out, block.born_ns);
            last = block.sequence;
        }
        RawBlock { kind: BlockKind::Gone, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let (at_ns, is_leak) = (cursor.u64()?, cursor.bool()?);
        let mut sequence = 0u64;
        let blocks = cursor.list(|cursor| {
            sequence = sequence.wrapping_add(unzigzag(cursor.u64()?) as u64);
            Ok(GoneBlock { sequence, alloc_class: cursor.u32()?, thread: cursor.u32()?, born_ns: cursor.u64()? })
        })?;
        cursor.end()?;
        Ok(Gone { at_ns, is_leak, blocks })
    }
}
