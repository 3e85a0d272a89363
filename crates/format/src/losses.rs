//! Events that are known to be missing.
use crate::wire::{Cursor, put, put_str};
use crate::{BlockKind, Malformed, RawBlock};

/// Running totals since the session's start. The last block of this kind is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Cause and count, in the writer's order. The count is of events, or, for a cause in `OTHERS`, of what is said
    /// there.
    pub by_cause: Vec<(String, u64)>,
    /// Frees that must have happened but were not seen: their address was allocated again.
    pub implied_frees: u64,
    pub lost_events: u64,
    /// A text for people: one sentence, or several in a merged trace.
    pub note: Option<String>,
}

/// Causes of lost events, with the text for people: "N events were dropped because ...".
const EVENTS: [(&str, &str); 10] = [
    ("ring_full", "the buffer was full"),
    ("no_slot", "a thread got no buffer (too many threads at once, a sandbox, or no memory)"),
    ("nested", "signal handlers interrupted each other inside the allocator"),
    ("abandoned", "a signal handler jumped out of an allocator call"),
    ("no_thread_pointer", "the program had not set up its thread pointer yet"),
    ("samples_full", "too many sampled blocks were live"),
    ("no_collector", "the recorder was gone"),
    ("not_written", "the trace could not be written"),
    ("unreadable_ring", "the program overwrote the buffer"),
    ("missing", "they never arrived at the recorder"),
];
/// Causes that lose no event: what is missing (singular, plural), and why.
const OTHERS: [(&str, &str, &str, &str); 3] = [
    ("module_full", "loaded library has no names", "loaded libraries have no names", "too many were loaded"),
    ("unreadable_stack", "stack is incomplete", "stacks are incomplete", "the program overwrote the buffer"),
    ("memo_broken", "cache of stacks was cleared", "caches of stacks were cleared", "what they held made no sense"),
];

/// One sentence without its full stop: "1 event was dropped because the buffer was full".
fn sentence(cause: &str, count: u64) -> String {
    let number = grouped(count);
    if let Some((_, one, several, why)) = OTHERS.iter().find(|other| other.0 == cause) {
        return format!("{number} {} because {why}", if count == 1 { one } else { several });
    }
    let events = if count == 1 { "event was dropped" } else { "events were dropped" };
    match EVENTS.iter().find(|event| event.0 == cause) {
        Some((_, why)) => format!("{number} {events} because {why}"),
        // A cause of a newer version.
        None => format!("{number} {events} ({cause})"),
    }
}

/// Returns the number with separators: 2714 becomes "2,714".
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl Losses {
    /// One sentence for people about each cause whose count is not 0.
    pub fn sentences(&self) -> Vec<String> {
        let counted = self.by_cause.iter().filter(|(_, count)| *count > 0);
        counted.map(|(cause, count)| sentence(cause, *count)).collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_words() {
        let by_cause = [("no_slot", 2714), ("ring_full", 1), ("module_full", 1_000_000), ("nested", 0), ("new", 12)];
        let by_cause = by_cause.map(|(cause, count)| (cause.to_owned(), count)).to_vec();
        assert_eq!(
            Losses { by_cause, ..Losses::default() }.sentences(),
            [
                "2,714 events were dropped because a thread got no buffer (too many threads at once, a sandbox, or no memory)",
                "1 event was dropped because the buffer was full",
                "1,000,000 loaded libraries have no names because too many were loaded",
                "12 events were dropped (new)",
            ]
        );
    }
}
