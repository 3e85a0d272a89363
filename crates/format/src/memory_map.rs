//! A map of the program's address space at one instant.
//!
//! Receives: what the recorder measured. Returns: a block, and the map of a block. Must hold: the cells are in the order of their addresses and do not
//! overlap; a reader shows kinds that it does not know under their names.
use crate::wire::{Cursor, put, put_str};
use crate::{BlockKind, Malformed, RawBlock};

const PAGE: u64 = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryMap {
    /// The time since the session's start.
    pub time_ns: u64,
    pub rss_bytes: u64,
    /// The kinds and names of the cells.
    pub names: Vec<String>,
    pub cells: Vec<MapCell>,
}

/// Some pages side by side, of which at least one is resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCell {
    /// The first address.
    pub start: u64,
    pub pages: u64,
    pub resident_pages: u64,
    /// What live blocks take of the resident pages, with what the allocator adds.
    pub live_bytes: u64,
    /// What most of the resident pages are: one of `part_kind`, and which of its kind. Both are indexes of `names`.
    pub kind: u32,
    pub name: u32,
    /// The stack that allocated the blocks, or made the mapping, of most of the resident pages. 0 if it is not known.
    pub stack: u32,
    /// When the oldest block of a page was allocated, on average over the pages with blocks.
    pub born_ns: Option<u64>,
}

impl MapCell {
    pub const fn bytes(&self) -> u64 {
        self.pages.saturating_mul(PAGE)
    }

    pub const fn resident_bytes(&self) -> u64 {
        self.resident_pages.saturating_mul(PAGE)
    }

    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes())
    }
}

impl MemoryMap {
    pub fn kind_of(&self, cell: &MapCell) -> &str {
        self.names.get(cell.kind as usize).map_or("", String::as_str)
    }

    pub fn name_of(&self, cell: &MapCell) -> &str {
        self.names.get(cell.name as usize).map_or("", String::as_str)
    }

    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.time_ns);
        put(&mut out, self.rss_bytes);
        put(&mut out, self.names.len() as u64);
        self.names.iter().for_each(|name| put_str(&mut out, name));
        put(&mut out, self.cells.len() as u64);
        let mut end = 0;
        for cell in &self.cells {
            // A time in milliseconds. 0 is not known.
            let born = cell.born_ns.map_or(0, |born| born / 1_000_000 + 1);
            for number in [
                cell.start.saturating_sub(end) / PAGE,
                cell.pages,
                cell.resident_pages,
                cell.live_bytes,
                cell.kind.into(),
                cell.name.into(),
                cell.stack.into(),
                born,
            ] {
                put(&mut out, number);
            }
            end = cell.end();
        }
        RawBlock { kind: BlockKind::MemoryMap, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let [time_ns, rss_bytes] = cursor.numbers()?;
        let names = cursor.list(|cursor| cursor.str())?;
        let mut end = 0u64;
        let cells = cursor.list(|cursor| {
            let [after, pages, resident_pages, live_bytes] = cursor.numbers()?;
            let (kind, name, stack) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
            let born = cursor.u64()?;
            let index = |index: u32| if (index as usize) < names.len() { Ok(index) } else { Err(Malformed::Count) };
            let start = after.checked_mul(PAGE).and_then(|after| end.checked_add(after)).ok_or(Malformed::Overflow)?;
            let bytes = pages.checked_mul(PAGE).ok_or(Malformed::Overflow)?;
            end = start.checked_add(bytes).ok_or(Malformed::Overflow)?;
            if resident_pages > pages {
                return Err(Malformed::Count);
            }
            Ok(MapCell {
                start,
                pages,
                resident_pages,
                live_bytes,
                kind: index(kind)?,
                name: index(name)?,
                stack,
                born_ns: born.checked_sub(1).map(|born| born.saturating_mul(1_000_000)),
            })
        })?;
        cursor.end()?;
        Ok(MemoryMap { time_ns, rss_bytes, names, cells })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> MemoryMap {
        let cell = |start, pages, born_ns| MapCell {
            start,
            pages,
            resident_pages: 1,
            live_bytes: 77,
            kind: 0,
            name: 1,
            stack: 9,
            born_ns,
        };
        MemoryMap {
            time_ns: 5,
            rss_bytes: 6,
            names: vec!["blocks".into(), "main heap".into()],
            cells: vec![cell(0x1000, 2, None), cell(0x3000, 1, Some(0)), cell(0x7fff_0000_0000, 16, Some(3_000_000))],
        }
    }

    #[test]
    fn a_block_reads_back_as_it_was() {
        let block = map().to_block();
        let read = MemoryMap::decode(&block.payload).unwrap_or_default();
        assert_eq!(read, map());
        assert_eq!((read.kind_of(&read.cells[0]), read.name_of(&read.cells[0])), ("blocks", "main heap"));
        for length in 0..block.payload.len() {
            assert!(MemoryMap::decode(&block.payload[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn cells_that_cannot_be_are_malformed() {
        let changed = |change: fn(&mut MapCell)| {
            let mut map = map();
            change(&mut map.cells[0]);
            MemoryMap::decode(&map.to_block().payload)
        };
        assert!(changed(|_| ()).is_ok());
        assert!(changed(|cell| cell.kind = 2).is_err());
        assert!(changed(|cell| cell.name = 2).is_err());
        assert!(changed(|cell| cell.resident_pages = 3).is_err());
        assert!(changed(|cell| cell.pages = u64::MAX).is_err());
    }
}
