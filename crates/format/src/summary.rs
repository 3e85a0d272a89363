//! How the session ended, and its totals, so that a reader of a finished trace needs no replay to show them.
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    #[default]
    Unknown,
    /// The program's exit code.
    Code(i32),
    /// The signal that killed it.
    Signal(i32),
    /// We detached, and the program continues.
    Detached,
}

/// The totals, under the same names as in `print --json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub allocations: u64,
    pub deallocations: u64,
    pub allocated_bytes: u64,
    pub temporary: u64,
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub peak_time_ns: u64,
    pub peak_rss_bytes: u64,
    pub overhead_bytes: u64,
    pub runtime_ns: u64,
    pub unknown_frees: u64,
    pub implied_frees: u64,
    pub lost_events: u64,
}

impl Totals {
    fn fields(&mut self) -> [&mut u64; 15] {
        [
            &mut self.allocations,
            &mut self.deallocations,
            &mut self.allocated_bytes,
            &mut self.temporary,
            &mut self.leaked_bytes,
            &mut self.leaked_allocations,
            &mut self.peak_bytes,
            &mut self.peak_allocations,
            &mut self.peak_time_ns,
            &mut self.peak_rss_bytes,
            &mut self.overhead_bytes,
            &mut self.runtime_ns,
            &mut self.unknown_frees,
            &mut self.implied_frees,
            &mut self.lost_events,
        ]
    }

    pub(crate) fn put(mut self, out: &mut Vec<u8>) {
        for field in self.fields() {
            put(out, *field);
        }
    }

    pub(crate) fn get(cursor: &mut Cursor) -> Result<Self, Malformed> {
        let mut totals = Totals::default();
        for field in totals.fields() {
            *field = cursor.u64()?;
        }
        Ok(totals)
    }
}

/// The last block before the index. A trace without one was not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// True if every event up to the session's end is in the file or in its losses.
    pub complete: bool,
    pub exit: Exit,
    pub totals: Totals,
}

impl Summary {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        out.push(self.complete as u8);
        let (tag, value) = match self.exit {
            Exit::Unknown => (0, 0),
            Exit::Code(code) => (1, code),
            Exit::Signal(signal) => (2, signal),
            Exit::Detached => (3, 0),
        };
        out.push(tag);
        put(&mut out, zigzag(value as i64));
        self.totals.put(&mut out);
        RawBlock { kind: BlockKind::Summary, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Summary, Malformed> {
        let mut cursor = Cursor::new(payload);
        let complete = cursor.bool()?;
        let tag = cursor.byte()?;
        let value = i32::try_from(unzigzag(cursor.u64()?)).map_err(|_| Malformed::Overflow)?;
        let exit = match tag {
            0 => Exit::Unknown,
            1 => Exit::Code(value),
            2 => Exit::Signal(value),
            3 => Exit::Detached,
            _ => return Err(Malformed::Tag),
        };
        let totals = Totals::get(&mut cursor)?;
        cursor.end()?;
        Ok(Summary { complete, exit, totals })
    }
}
