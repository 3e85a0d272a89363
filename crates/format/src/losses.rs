//! What we know that we did not record.
use crate::wire::{Cursor, put, put_str};
use crate::{BlockKind, Malformed, RawBlock};

/// Running totals since the session's start: the last block of this kind holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Cause and number of events, in the writer's order.
    pub by_cause: Vec<(String, u64)>,
    /// Frees that must have happened but were not seen: their address was given out again.
    pub implied_frees: u64,
    pub lost_events: u64,
    /// One sentence for people.
    pub note: Option<String>,
}

impl Losses {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.by_cause.len() as u64);
        for (cause, count) in &self.by_cause {
            put_str(&mut out, cause);
            put(&mut out, *count);
        }
        put(&mut out, self.implied_frees);
        put(&mut out, self.lost_events);
        out.push(self.note.is_some() as u8);
        if let Some(note) = &self.note {
            put_str(&mut out, note);
        }
        RawBlock { kind: BlockKind::Losses, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Losses, Malformed> {
        let mut cursor = Cursor::new(payload);
        let losses = Losses {
            by_cause: cursor.list(|cursor| Ok((cursor.str()?, cursor.u64()?)))?,
            implied_frees: cursor.u64()?,
            lost_events: cursor.u64()?,
            note: if cursor.bool()? { Some(cursor.str()?) } else { None },
        };
        cursor.end()?;
        Ok(losses)
    }
}
