//! How long the program waited for its recorder.
use crate::wire::{Cursor, put};
use crate::{BlockKind, Malformed, RawBlock};

/// Written at the end of a session if a thread of the program ever waited. A merged trace has the sum of its sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How long threads waited for room in their buffers, summed over all threads.
    pub waited_ns: u64,
}

impl Waits {
    /// True if the waits add up to more than 1 % of the run time, so that people should know about them.
    pub const fn are_notable(self, runtime_ns: u64) -> bool {
        self.waited_ns > runtime_ns / 100
    }

    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.waited_ns);
        RawBlock { kind: BlockKind::Waits, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let waits = Waits { waited_ns: cursor.u64()? };
        cursor.end()?;
        Ok(waits)
    }
}
