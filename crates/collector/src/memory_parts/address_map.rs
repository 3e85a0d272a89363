//! A map of the address space: which pages are resident, what they are, how full they are, and how old their blocks are.
//!
//! Receives: resident pages and mappings, in the order of their addresses. Returns: at most `MOST_CELLS` cells. Must hold: the cells do not overlap, and
//! together they have all pages that were added.
//!
//! A cell has pages of one mapping that lie within the same aligned 64 kB. If there are too many cells, they are joined within aligned ranges of
//! twice the size, again and again.
use super::block_cover::PAGE;
use format::{MapCell, MemoryMap};
use std::collections::HashMap;

const MOST_CELLS: usize = 2048;
/// The pages of a cell at first, as a power of two.
const FIRST_SHIFT: u32 = 4;
/// Owners of a cell that are told apart.
const CANDIDATES: usize = 4;
/// A mapping of which only the resident size is known gets at most this many cells.
const PIECES: u64 = 32;

/// What a page is. The two numbers are indexes of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub kind: u32,
    pub name: u32,
    pub stack: u32,
}

/// Resident pages side by side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    pub start: u64,
    pub end: u64,
    pub resident: u64,
    pub live_bytes: u64,
    /// `LiveBlock::born` of the oldest block.
    pub born: Option<u32>,
}

impl Pages {
    /// A resident page without blocks.
    pub const fn one(address: u64) -> Self {
        Pages { start: address, end: address + PAGE, resident: 1, live_bytes: 0, born: None }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Numbers of pages.
    start: u64,
    end: u64,
    /// The mapping that it is a part of.
    mapping: u32,
    resident: u64,
    live_bytes: u64,
    /// The sum of the times of pages, and (below) their number.
    born: u64,
    with_born: u64,
    owners: [(Owner, u64); CANDIDATES],
}

impl Cell {
    /// Counts pages of an owner. If there are more owners than candidates, the smallest candidate is replaced and its count goes on, so an
    /// owner of most pages is always found.
    fn count(&mut self, owner: Owner, pages: u64) {
        let known = self.owners.iter_mut().find(|(known, count)| *known == owner || *count == 0);
        if let Some(candidate) = known {
            *candidate = (owner, candidate.1 + pages);
        } else if let Some(smallest) = self.owners.iter_mut().min_by_key(|(_, count)| *count) {
            *smallest = (owner, smallest.1 + pages);
        }
    }

    fn join(&mut self, other: &Cell) {
        self.end = other.end;
        self.resident += other.resident;
        self.live_bytes += other.live_bytes;
        self.born += other.born;
        self.with_born += other.with_born;
        other.owners.iter().filter(|(_, count)| *count > 0).for_each(|(owner, count)| self.count(*owner, *count));
    }
}

#[derive(Debug)]
pub struct AddressMap {
    names: Vec<String>,
    indexes: HashMap<String, u32>,
    cells: Vec<Cell>,
    shift: u32,
    mapping: u32,
    /// Cells of several mappings may be joined, because there are more mappings than cells.
    joins_mappings: bool,
}

impl AddressMap {
    /// `mappings`: the number of those with resident pages.
    pub fn new(mappings: usize) -> Self {
        AddressMap {
            names: Vec::new(),
            indexes: HashMap::new(),
            cells: Vec::new(),
            shift: FIRST_SHIFT,
            mapping: 0,
            joins_mappings: mappings > MOST_CELLS / 2,
        }
    }

    /// Returns the index of a name.
    pub fn name(&mut self, name: &str) -> u32 {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.indexes.insert(name.to_owned(), index);
        index
    }

    /// What is added from now on is of the next mapping.
    pub const fn next_mapping(&mut self) {
        self.mapping += 1;
    }

    /// Adds pages.
    pub fn add(&mut self, pages: &Pages, owner: Owner) {
        let (start, end) = (pages.start / PAGE, pages.end / PAGE);
        if pages.resident == 0 || end <= start {
            return;
        }
        let mut cell = Cell {
            start,
            end,
            mapping: self.mapping,
            resident: pages.resident.min(end - start),
            live_bytes: pages.live_bytes,
            born: pages.born.map_or(0, u64::from),
            with_born: pages.born.is_some().into(),
            owners: [(Owner::default(), 0); CANDIDATES],
        };
        cell.count(owner, cell.resident);
        let (shift, joins) = (self.shift, self.joins_mappings);
        match self.cells.last_mut() {
            Some(last) if are_near(last, &cell, shift, joins) => last.join(&cell),
            _ => self.cells.push(cell),
        }
        if self.cells.len() > 2 * MOST_CELLS {
            self.shrink();
        }
    }

    /// Adds a mapping of which only the resident size is known, as if its resident pages were spread evenly.
    pub fn add_evenly(&mut self, start: u64, end: u64, rss_bytes: u64, owner: Owner) {
        let (pages, resident) = ((end - start) / PAGE, rss_bytes / PAGE);
        let piece = (pages.div_ceil(PIECES)).next_power_of_two().max(1 << self.shift) * PAGE;
        let mut at = start;
        let until =
            |address: u64| u128::from((address - start) / PAGE) * u128::from(resident) / u128::from(pages.max(1));
        while at < end {
            let next = ((at / piece + 1) * piece).min(end);
            let resident = (until(next) - until(at)) as u64;
            self.add(&Pages { start: at, end: next, resident, ..Pages::default() }, owner);
            at = next;
        }
    }

    fn shrink(&mut self) {
        while self.cells.len() > MOST_CELLS {
            self.shift += 1;
            // If only gaps between mappings are left to join, they are joined.
            self.joins_mappings |= self.shift > 30;
            let (shift, joins) = (self.shift, self.joins_mappings);
            self.cells.dedup_by(|next, cell| {
                let is_near = are_near(cell, next, shift, joins);
                if is_near {
                    cell.join(next);
                }
                is_near
            });
        }
    }

    /// `time_of` returns when a block was allocated, from `LiveBlock::born`.
    pub fn finish(mut self, time_ns: u64, rss_bytes: u64, time_of: impl Fn(u32) -> u64) -> MemoryMap {
        self.shrink();
        let mut map = MemoryMap { time_ns, rss_bytes, ..MemoryMap::default() };
        let mut used: HashMap<u32, u32> = HashMap::new();
        for cell in &self.cells {
            let owner =
                cell.owners.iter().max_by_key(|(_, count)| *count).map_or(Owner::default(), |(owner, _)| *owner);
            let mut name = |index: u32| {
                *used.entry(index).or_insert_with(|| {
                    map.names.push(self.names.get(index as usize).cloned().unwrap_or_default());
                    map.names.len() as u32 - 1
                })
            };
            let (kind, name) = (name(owner.kind), name(owner.name));
            map.cells.push(MapCell {
                start: cell.start * PAGE,
                pages: cell.end - cell.start,
                resident_pages: cell.resident,
                live_bytes: cell.live_bytes,
                kind,
                name,
                stack: owner.stack,
                born_ns: cell.born.checked_div(cell.with_born).map(|born| time_of(born as u32)),
            });
        }
        map
    }
}

fn are_near(cell: &Cell, next: &Cell, shift: u32, joins_mappings: bool) -> bool {
    (joins_mappings || cell.mapping == next.mapping) && cell.start >> shift == (next.end - 1) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u64, live_bytes: u64, born: Option<u32>) -> Pages {
        Pages { start: number * PAGE, end: (number + 1) * PAGE, resident: 1, live_bytes, born }
    }

    #[test]
    fn pages_of_64_kb_of_one_mapping_are_a_cell() {
        let mut map = AddressMap::new(2);
        let owner =
            |map: &mut AddressMap, stack| Owner { kind: map.name("blocks"), name: map.name("main heap"), stack };
        let (seven, eight) = (owner(&mut map, 7), owner(&mut map, 8));
        map.add(&page(14, 100, Some(3)), eight);
        map.add(&page(16, 200, Some(4)), seven);
        map.add(&page(17, 300, None), eight);
        map.add(&page(20, 400, Some(8)), eight);
        map.next_mapping();
        map.add(&page(21, 0, None), seven);
        let map = map.finish(5, 6, |born| u64::from(born) * 1000);
        let cells: Vec<_> = map.cells.iter().map(|cell| (cell.start / PAGE, cell.pages, cell.resident_pages)).collect();
        assert_eq!(cells, [(14, 1, 1), (16, 5, 3), (21, 1, 1)]);
        assert_eq!((map.cells[1].live_bytes, map.cells[1].stack, map.cells[1].born_ns), (900, 8, Some(6000)));
        assert_eq!((map.kind_of(&map.cells[1]), map.name_of(&map.cells[1])), ("blocks", "main heap"));
    }

    #[test]
    fn there_are_at_most_so_many_cells_and_no_page_is_lost() {
        // Dense, sparse, and in as many mappings as there are pages.
        for (step, per_mapping) in [(1, 1000), (1000, 100_000), (1 << 20, 1), (40, 3)] {
            let count = 20_000;
            let mut map = AddressMap::new(count as usize / per_mapping);
            let owner = Owner { kind: map.name("file"), name: map.name("/lib/x"), stack: 0 };
            for number in 0..count {
                if number % per_mapping as u64 == 0 {
                    map.next_mapping();
                }
                map.add(&page(16 + number * step, 10, Some(number as u32)), owner);
            }
            let map = map.finish(0, 0, u64::from);
            assert!(map.cells.len() <= MOST_CELLS && map.cells.len() > 1, "{} of step {step}", map.cells.len());
            assert_eq!(map.cells.iter().map(|cell| cell.resident_pages).sum::<u64>(), count);
            assert_eq!(map.cells.iter().map(|cell| cell.live_bytes).sum::<u64>(), 10 * count);
            assert!(map.cells.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        }
    }

    #[test]
    fn a_mapping_with_unknown_pages_is_spread_evenly() {
        let mut map = AddressMap::new(1);
        let owner = Owner { kind: map.name("file"), name: map.name("/lib/x"), stack: 0 };
        let start = 0x7f00_0000_3000;
        map.add_evenly(start, start + (1 << 40), 1 << 30, owner);
        let map = map.finish(0, 0, u64::from);
        assert!((20..=40).contains(&map.cells.len()), "{}", map.cells.len());
        assert_eq!(map.cells.iter().map(MapCell::resident_bytes).sum::<u64>(), 1 << 30);
        assert_eq!((map.cells[0].start, map.cells.last().map(MapCell::end)), (start, Some(start + (1 << 40))));
    }
}
