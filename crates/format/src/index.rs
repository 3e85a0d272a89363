//! The index at the end of a file: where each block is, for readers that can seek.
use crate::wire::{Cursor, put};
use crate::{BlockKind, Malformed, RawBlock};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// A number of `BlockKind`, or of a kind of a later version.
    pub kind: u8,
    /// The offset of the block's header in the file.
    pub offset: u64,
    pub raw_len: u32,
    pub stored_len: u32,
    /// For Events blocks: the next sequence number and (below) the time at the start of the block. 0 for all others.
    pub sequence: u64,
    pub time_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// In file order.
    pub entries: Vec<IndexEntry>,
}

/// The last bytes of a finished file: magic (8), offset of the index block (8), xxh3-64 of those sixteen (8).
pub const TRAILER_LEN: usize = 24;
pub(crate) const TRAILER_MAGIC: [u8; 8] = *b"\xb5HTZEND\n";

impl Index {
    pub(crate) fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.entries.len() as u64);
        let mut last = IndexEntry::default();
        for entry in &self.entries {
            out.push(entry.kind);
            put(&mut out, entry.offset.wrapping_sub(last.offset));
            put(&mut out, entry.raw_len as u64);
            put(&mut out, entry.stored_len as u64);
            put(&mut out, entry.sequence);
            put(&mut out, entry.time_ns);
            last = *entry;
        }
        RawBlock { kind: BlockKind::Index, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let mut offset = 0u64;
        let entries = cursor.list(|cursor| {
            let kind = cursor.byte()?;
            offset = offset.checked_add(cursor.u64()?).ok_or(Malformed::Overflow)?;
            Ok(IndexEntry {
                kind,
                offset,
                raw_len: cursor.u32()?,
                stored_len: cursor.u32()?,
                sequence: cursor.u64()?,
                time_ns: cursor.u64()?,
            })
        })?;
        cursor.end()?;
        Ok(Index { entries })
    }
}

pub(crate) fn trailer(index_offset: u64) -> [u8; TRAILER_LEN] {
    let mut bytes = [0; TRAILER_LEN];
    bytes[..8].copy_from_slice(&TRAILER_MAGIC);
    bytes[8..16].copy_from_slice(&index_offset.to_le_bytes());
    let sum = xxh3_64(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the offset of the index block, if these bytes are a trailer.
pub(crate) fn parse_trailer(bytes: &[u8; TRAILER_LEN]) -> Option<u64> {
    let mut cursor = Cursor::new(bytes);
    cursor.array::<8>().ok()?;
    let offset = u64::from_le_bytes(cursor.array().ok()?);
    (trailer(offset) == *bytes).then_some(offset)
}
