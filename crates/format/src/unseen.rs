//! Places where the program allocated, or may have allocated, without being recorded.
//!
//! Losses are events that were counted and dropped. These allocations never became events, so there is no number, only
//! the place and the reason.
use crate::wire::{Cursor, list_block, put_str};
use crate::{BlockKind, Malformed, RawBlock};

/// One reason. The last block of this kind has all reasons of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// A word for scripts, such as `foreign_allocator`; docs/views.md lists them.
    pub kind: String,
    /// What the reason is about: the path of a module, or of a program that an exec started, or empty.
    pub subject: String,
    /// One sentence for people, with the reason.
    pub sentence: String,
}

impl Unseen {
    pub fn to_block(all: &[Unseen]) -> RawBlock {
        list_block(BlockKind::Unseen, all, |out, one| {
            put_str(out, &one.kind);
            put_str(out, &one.subject);
            put_str(out, &one.sentence);
        })
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Unseen>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let all = cursor
            .list(|cursor| Ok(Unseen { kind: cursor.str()?, subject: cursor.str()?, sentence: cursor.str()? }))?;
        cursor.end()?;
        Ok(all)
    }
}
