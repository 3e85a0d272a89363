//! The state of the heap between two events, so that a reader can start there instead of at the beginning.
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock, Totals};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Events (allocations and frees of all kinds) before this point.
    pub events: u64,
    /// The sequence number that the next allocation gets.
    pub next_sequence: u64,
    pub time_ns: u64,
    pub image: u32,
    /// Totals up to here; `leaked_*` is what is live.
    pub totals: Totals,
    /// `(allocation class, live blocks)`, sorted by allocation class, without zero counts.
    pub live: Vec<(u32, u64)>,
    /// `(sequence number, allocation class)` of each live block, sorted by sequence number. The recorder writes `None`,
    /// because the list is large.
    pub blocks: Option<Vec<(u64, u32)>>,
}

impl Checkpoint {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.events);
        put(&mut out, self.next_sequence);
        put(&mut out, self.time_ns);
        put(&mut out, self.image as u64);
        self.totals.put(&mut out);
        put(&mut out, self.live.len() as u64);
        let mut last = 0;
        for &(alloc_class, count) in &self.live {
            put(&mut out, zigzag(alloc_class as i64 - last));
            put(&mut out, count);
            last = alloc_class as i64;
        }
        out.push(self.blocks.is_some() as u8);
        if let Some(blocks) = &self.blocks {
            put(&mut out, blocks.len() as u64);
            let mut last = 0u64;
            for &(sequence, alloc_class) in blocks {
                put(&mut out, zigzag(sequence.wrapping_sub(last) as i64));
                put(&mut out, alloc_class as u64);
                last = sequence;
            }
        }
        RawBlock { kind: BlockKind::Checkpoint, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let checkpoint = Checkpoint {
            events: cursor.u64()?,
            next_sequence: cursor.u64()?,
            time_ns: cursor.u64()?,
            image: cursor.u32()?,
            totals: Totals::get(&mut cursor)?,
            live: Self::live(&mut cursor)?,
            blocks: if cursor.bool()? { Some(Self::blocks(&mut cursor)?) } else { None },
        };
        cursor.end()?;
        Ok(checkpoint)
    }

    fn live(cursor: &mut Cursor) -> Result<Vec<(u32, u64)>, Malformed> {
        let mut alloc_class = 0i64;
        cursor.list(|cursor| {
            alloc_class = alloc_class.wrapping_add(unzigzag(cursor.u64()?));
            Ok((u32::try_from(alloc_class).map_err(|_| Malformed::Overflow)?, cursor.u64()?))
        })
    }

    fn blocks(cursor: &mut Cursor) -> Result<Vec<(u64, u32)>, Malformed> {
        let mut sequence = 0u64;
        cursor.list(|cursor| {
            sequence = sequence.wrapping_add(unzigzag(cursor.u64()?) as u64);
            Ok((sequence, cursor.u32()?))
        })
    }
}
