//! A map of the address space: which pages are resident, whose they are, how full and how old.
//!
//! Receives: the maps of the trace. Returns: one of them, with names, and its regions for lists. Must hold: the cells are in the order of their
//! addresses, and the numbers of a region are the sums of its cells.
use super::Trace;
use super::flame::label;
use super::memory::caller_name;
use super::summary::blamed_node;
use crate::definitions::Definitions;
use crate::engine::Engine;
use crate::profile::Range;
use crate::query::Query;
use crate::stack_table::StackTable;
use format::{MapCell, MemoryMap, part_kind};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

#[derive(Serialize)]
pub(crate) struct Map {
    /// When it was measured. `None` if there is no map.
    time_ns: Option<u64>,
    rss_bytes: u64,
    /// The times of all maps in the range, in their order.
    times_ns: Vec<u64>,
    owners: Vec<MapOwner>,
    cells: Vec<Cell>,
}

/// What pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapOwner {
    /// As of parts of the memory.
    pub kind: String,
    pub name: String,
    /// The function to blame for the blocks. `None` if several stacks have blocks in these pages, or none has.
    pub function: Option<String>,
}

#[derive(Serialize)]
struct Cell {
    start: u64,
    bytes: u64,
    resident_bytes: u64,
    live_bytes: u64,
    /// An index of `owners`.
    owner: usize,
    age_ns: Option<u64>,
}

/// Cells side by side that are the same part of the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapRegion {
    pub start: u64,
    pub end: u64,
    pub resident_bytes: u64,
    pub live_bytes: u64,
    /// Without `function`.
    pub owner: MapOwner,
}

/// The maps within the query's time, in the order of time.
fn maps<'a>(engine: &'a Engine, query: &Query) -> Vec<&'a MemoryMap> {
    let range = engine.range(query);
    let from_ns = if query.is_of_an_instant() { 0 } else { range.from_ns };
    let maps = engine.definitions().memory_maps.iter();
    let mut within: Vec<&MemoryMap> = maps.filter(|map| (from_ns..=range.to_ns).contains(&map.time_ns)).collect();
    within.sort_by_key(|map| map.time_ns);
    within
}

/// With `at=T`: the last map up to T. Otherwise that with the highest RSS.
fn memory_map<'a>(engine: &'a Engine, query: &Query) -> Option<&'a MemoryMap> {
    let within = maps(engine, query);
    if query.is_of_an_instant() { within.last().copied() } else { highest(within.into_iter()) }
}

/// The map with the highest RSS within a range of time.
pub fn highest_map(definitions: &Definitions, range: Range) -> Option<&MemoryMap> {
    let within = range.from_ns..=range.to_ns;
    highest(definitions.memory_maps.iter().filter(|map| within.contains(&map.time_ns)))
}

/// The first of several equal ones.
fn highest<'a>(maps: impl Iterator<Item = &'a MemoryMap>) -> Option<&'a MemoryMap> {
    maps.max_by_key(|map| (map.rss_bytes, Reverse(map.time_ns)))
}

fn owner_of(map: &MemoryMap, cell: &MapCell, definitions: &Definitions) -> MapOwner {
    let (kind, name) = (map.kind_of(cell), map.name_of(cell));
    let is_called = kind == part_kind::MAPPED && cell.stack > 0;
    let name = if is_called { caller_name(cell.stack, definitions) } else { name.to_owned() };
    MapOwner { kind: kind.to_owned(), name, function: None }
}

/// The regions of a map, in the order of addresses.
pub fn map_regions(map: &MemoryMap, definitions: &Definitions) -> Vec<MapRegion> {
    let mut regions: Vec<MapRegion> = Vec::new();
    for cell in &map.cells {
        let is_allocators = |kind: &str| [part_kind::BLOCKS, part_kind::FREE].contains(&kind);
        let mut owner = owner_of(map, cell, definitions);
        // Most pages of a cell may be free, but where a block lives, the region is called after the blocks.
        if cell.live_bytes > 0 && is_allocators(&owner.kind) {
            part_kind::BLOCKS.clone_into(&mut owner.kind);
        }
        // Free pages between blocks do not end a region.
        let is_of = |region: &MapRegion| {
            region.owner.name == owner.name
                && (region.owner.kind == owner.kind
                    || (is_allocators(&region.owner.kind) && is_allocators(&owner.kind)))
        };
        match regions.last_mut().filter(|last| is_of(last)) {
            Some(last) => {
                last.end = cell.end();
                last.resident_bytes += cell.resident_bytes();
                last.live_bytes = last.live_bytes.saturating_add(cell.live_bytes);
                if cell.live_bytes > 0 {
                    last.owner.kind = owner.kind;
                }
            }
            None => regions.push(MapRegion {
                start: cell.start,
                end: cell.end(),
                resident_bytes: cell.resident_bytes(),
                live_bytes: cell.live_bytes,
                owner,
            }),
        }
    }
    regions
}

impl Map {
    /// With `limit=N`: the N cells with the most resident bytes, in the order of addresses.
    pub(crate) fn new(trace: &Trace<'_>, query: &Query) -> Self {
        let times_ns = maps(trace.engine, query).iter().map(|map| map.time_ns).collect();
        let none = MemoryMap::default();
        let found = memory_map(trace.engine, query);
        let map = found.unwrap_or(&none);
        let mut wanted: Vec<&MapCell> = map.cells.iter().collect();
        if query.limit > 0 && wanted.len() > query.limit {
            wanted.sort_by_key(|cell| (Reverse(cell.resident_pages), cell.start));
            wanted.truncate(query.limit);
            wanted.sort_by_key(|cell| cell.start);
        }
        let mut owners: Vec<MapOwner> = Vec::new();
        let mut known: HashMap<(u32, u32, u32), usize> = HashMap::new();
        let cell = |cell: &MapCell| {
            let key = (cell.kind, cell.name, cell.stack);
            let owner = *known.entry(key).or_insert_with(|| {
                owners.push(named(map, cell, trace.engine.definitions(), trace.table));
                owners.len() - 1
            });
            Cell {
                start: cell.start,
                bytes: cell.bytes(),
                resident_bytes: cell.resident_bytes(),
                live_bytes: cell.live_bytes,
                owner,
                age_ns: cell.born_ns.map(|born| map.time_ns.saturating_sub(born)),
            }
        };
        let cells = wanted.into_iter().map(cell).collect();
        Map { time_ns: found.map(|map| map.time_ns), rss_bytes: map.rss_bytes, times_ns, owners, cells }
    }

    pub(crate) fn why_empty(&self, trace: &Trace<'_>) -> Option<String> {
        if self.time_ns.is_some() {
            let follows = trace.engine.definitions().processes.len() > 1;
            return follows.then(|| "the map is that of the first process only".to_owned());
        }
        Some(match trace.engine.definitions().memory_maps.is_empty() {
            true => super::why_no_memory(trace.engine),
            false => "no map was measured in this time".to_owned(),
        })
    }
}

/// With the function to blame for the blocks.
fn named(map: &MemoryMap, cell: &MapCell, definitions: &Definitions, table: &StackTable) -> MapOwner {
    let owner = owner_of(map, cell, definitions);
    let site = definitions.site_of(cell.stack).filter(|_| cell.live_bytes > 0 && owner.kind == part_kind::BLOCKS);
    let function = site.map(|site| label(table, table.level(blamed_node(table, site))));
    MapOwner { function, ..owner }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_with_live_blocks_is_called_after_them() {
        let cell = |start: u64, live_bytes, kind| MapCell {
            start: start << 16,
            pages: 16,
            resident_pages: 16,
            live_bytes,
            kind,
            ..MapCell::default()
        };
        let names = vec![part_kind::BLOCKS.to_owned(), part_kind::FREE.to_owned()];
        // The kind of a cell is that of most of its pages.
        for cells in [vec![cell(1, 60_000, 0), cell(2, 64, 1), cell(3, 0, 1)], vec![cell(1, 0, 1), cell(2, 64, 1)]] {
            let map = MemoryMap { names: names.clone(), cells, ..MemoryMap::default() };
            let regions = map_regions(&map, &Definitions::default());
            assert_eq!(regions.len(), 1, "{regions:?}");
            assert_eq!(regions[0].owner.kind, part_kind::BLOCKS);
        }
        let map = MemoryMap { names, cells: vec![cell(1, 0, 1)], ..MemoryMap::default() };
        assert_eq!(map_regions(&map, &Definitions::default())[0].owner.kind, part_kind::FREE);
    }
}
