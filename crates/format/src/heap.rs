//! How large the heap of a program was when we attached to it. Its content at that time is not in the trace.
use crate::wire::{Cursor, put};
use crate::{BlockKind, Malformed, RawBlock};

/// The sum of the sizes of `[heap]` and of malloc's arenas, and how much of it is resident, as the kernel reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapAtAttach {
    pub size_bytes: u64,
    pub rss_bytes: u64,
}

impl HeapAtAttach {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.size_bytes);
        put(&mut out, self.rss_bytes);
        RawBlock { kind: BlockKind::HeapAtAttach, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let heap = HeapAtAttach { size_bytes: cursor.u64()?, rss_bytes: cursor.u64()? };
        cursor.end()?;
        Ok(heap)
    }
}
