//! The sums of events that are not in the file any more (`--max-size`), by allocation class and thread.
//!
//! ```text
//! recorded  +a +b -a +c    cut    +d -b ...
//! the file  Folded: one a, freed; Events: +b +c    cut    +d -b ...
//! ```
//! The blocks that were live at the cut follow as Events, with their own numbers, threads and times. So the counts of a
//! whole session, and everything after the cut, are as if nothing had been folded. `fold.rs` makes this block.
use crate::event::TICK_NS;
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

/// A merged trace may have several Folded blocks, which add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// The time of the cut: no event after it is folded.
    pub until_ns: u64,
    /// The number of allocations and frees of all kinds that are not in the file.
    pub events: u64,
    pub unknown_frees: u64,
    pub implied_frees: u64,
    /// The peak before the cut.
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub peak_time_ns: u64,
    /// Sorted by allocation class.
    pub rows: Vec<FoldedRow>,
}

/// The blocks of one allocation class that one thread allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldedRow {
    pub alloc_class: u32,
    pub thread: u32,
    /// Allocations whose events are gone.
    pub allocations: u64,
    /// How many of these were freed. The others were live when an image or their process ended.
    pub deallocations: u64,
    /// How many of these were live when their process ended.
    pub leaked: u64,
    pub temporary: u64,
    /// The sum of the lifetimes of the freed blocks, in ticks.
    pub lifetime_ticks: u64,
    /// Blocks that were live at the peak before the cut, whether their events are gone or not.
    pub at_peak: u64,
}

impl FoldedRow {
    pub const fn lifetime_ns(&self) -> u64 {
        self.lifetime_ticks.saturating_mul(TICK_NS)
    }
}

impl Folded {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        for value in [
            self.until_ns,
            self.events,
            self.unknown_frees,
            self.implied_frees,
            self.peak_bytes,
            self.peak_allocations,
            self.peak_time_ns,
            self.rows.len() as u64,
        ] {
            put(&mut out, value);
        }
        let mut last = 0;
        for row in &self.rows {
            put(&mut out, zigzag(row.alloc_class as i64 - last));
            last = row.alloc_class as i64;
            for value in [
                row.thread as u64,
                row.allocations,
                row.allocations.saturating_sub(row.deallocations),
                row.temporary,
                row.lifetime_ticks,
                row.at_peak,
            ] {
                put(&mut out, value);
            }
        }
        self.put_leaked(&mut out);
        RawBlock { kind: BlockKind::Folded, payload: out }
    }

    /// Only traces of several processes have this list.
    fn put_leaked(&self, out: &mut Vec<u8>) {
        let leaked = || self.rows.iter().enumerate().filter(|(_, row)| row.leaked > 0);
        if leaked().next().is_none() {
            return;
        }
        put(out, leaked().count() as u64);
        for (index, row) in leaked() {
            put(out, index as u64);
            put(out, row.leaked);
        }
    }

    fn get_leaked(rows: &mut [FoldedRow], cursor: &mut Cursor) -> Result<(), Malformed> {
        for (index, leaked) in cursor.list(|cursor| Ok((cursor.u64()?, cursor.u64()?)))? {
            let row = usize::try_from(index).ok().and_then(|index| rows.get_mut(index)).ok_or(Malformed::Count)?;
            row.leaked = leaked;
        }
        Ok(())
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let [until_ns, events, unknown_frees, implied_frees, peak_bytes, peak_allocations, peak_time_ns] =
            cursor.numbers()?;
        let mut alloc_class = 0i64;
        let mut rows = cursor.list(|cursor| {
            alloc_class = alloc_class.wrapping_add(unzigzag(cursor.u64()?));
            let row = FoldedRow {
                alloc_class: u32::try_from(alloc_class).map_err(|_| Malformed::Overflow)?,
                thread: cursor.u32()?,
                allocations: cursor.u64()?,
                ..FoldedRow::default()
            };
            let deallocations = row.allocations.checked_sub(cursor.u64()?).ok_or(Malformed::Count)?;
            let [temporary, lifetime_ticks, at_peak] = cursor.numbers()?;
            Ok(FoldedRow { deallocations, temporary, lifetime_ticks, at_peak, ..row })
        })?;
        if !cursor.is_empty() {
            Self::get_leaked(&mut rows, &mut cursor)?;
        }
        cursor.end()?;
        Ok(Folded { until_ns, events, unknown_frees, implied_frees, peak_bytes, peak_allocations, peak_time_ns, rows })
    }
}
