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

impl Exit {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        let (tag, value) = match self {
            Exit::Unknown => (0, 0),
            Exit::Code(code) => (1, code),
            Exit::Signal(signal) => (2, signal),
            Exit::Detached => (3, 0),
        };
        out.push(tag);
        put(out, zigzag(value as i64));
    }

    pub(crate) fn get(cursor: &mut Cursor) -> Result<Self, Malformed> {
        let tag = cursor.byte()?;
        let value = i32::try_from(unzigzag(cursor.u64()?)).map_err(|_| Malformed::Overflow)?;
        Ok(match tag {
            0 => Exit::Unknown,
            1 => Exit::Code(value),
            2 => Exit::Signal(value),
            3 => Exit::Detached,
            _ => return Err(Malformed::Tag),
        })
    }
}

macro_rules! totals {
    ($($name:ident,)*) => {
        /// The totals, under the same names as in `print --json`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $(pub $name: u64,)*
        }

        impl Totals {
            /// The names and values, in the order of the file.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            fn fields(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name,)*].into_iter()
            }
        }
    };
}

totals! {
    allocations,
    deallocations,
    allocated_bytes,
    temporary,
    leaked_bytes,
    leaked_allocations,
    peak_bytes,
    peak_allocations,
    peak_time_ns,
    peak_rss_bytes,
    overhead_bytes,
    runtime_ns,
    unknown_frees,
    implied_frees,
    lost_events,
}

impl Totals {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        self.named().for_each(|(_, value)| put(out, value));
    }

    pub(crate) fn get(cursor: &mut Cursor) -> Result<Self, Malformed> {
        let mut totals = Totals::default();
        for field in totals.fields() {
            *field = cursor.u64()?;
        }
        Ok(totals)
    }
}

/// Written at the end of a session, after all other blocks but the index. A trace without one was not finished.
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
        self.exit.put(&mut out);
        self.totals.put(&mut out);
        RawBlock { kind: BlockKind::Summary, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Summary, Malformed> {
        let mut cursor = Cursor::new(payload);
        let complete = cursor.bool()?;
        let exit = Exit::get(&mut cursor)?;
        let totals = Totals::get(&mut cursor)?;
        cursor.end()?;
        Ok(Summary { complete, exit, totals })
    }
}
