//! Costs over time, in slices of equal length, with bands that add up to the total.
use super::Trace;
use super::bands::{Bands, counter};
use super::keys::Row;
use crate::costs::Costs;
use crate::counter::{ByThread, Counter, Selected};
use crate::definitions::Definitions;
use crate::pass::Gone;
use crate::query::{By, Cost, Query};
use crate::stack_table::{NodeId, StackTable};
use crate::walker::Walker;
use format::{IntMap, Process};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::HashMap;

/// The course of a range, with an entry for each slice in every column.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct TimelineColumns {
    /// The end of each slice.
    pub time_ns: Vec<u64>,
    /// At the highest moment of the slice.
    pub live_bytes: Vec<u64>,
    pub live_allocations: Vec<u64>,
    pub live_bytes_end: Vec<u64>,
    pub allocations: Vec<u64>,
    pub allocated_bytes: Vec<u64>,
    pub deallocations: Vec<u64>,
    pub temporary: Vec<u64>,
    pub rss_bytes: Vec<Option<u64>>,
    pub overhead_bytes: Vec<Option<u64>>,
}

/// The course of the query's range in as many slices as it has `points`.
pub fn timeline_columns(trace: &mut Trace<'_>, query: &Query) -> Result<TimelineColumns, Gone> {
    Ok(Timeline::new(trace, query)?.columns)
}

#[derive(Clone, Default)]
struct Band {
    live_bytes: Vec<u64>,
    allocations: Vec<u64>,
    temporary: Vec<u64>,
}

pub(crate) struct Timeline<'a> {
    table: &'a StackTable,
    columns: TimelineColumns,
    bands: Vec<(BandName<'a>, Band)>,
    other: Band,
    peak_index: usize,
    peak_time_ns: u64,
    own_peak: OwnPeak,
}

/// What the blocks of a band have in common.
enum BandName<'a> {
    Level(NodeId),
    Process(&'a Process),
    Command(&'a str),
    /// Threads whose process is not known, because the trace is that of one process or a part of the file is lost.
    NoProcess,
}

/// The highest moment of the blocks that the query asks for. It may differ from that of the program.
#[derive(Clone, Copy, serde::Serialize)]
struct OwnPeak {
    bytes: u64,
    time_ns: u64,
}

/// What a band did in one slice. Bands that did and held nothing have no cell.
struct Cell {
    band: u32,
    live_bytes: u64,
    allocations: u64,
    temporary: u64,
}

impl<'a> Timeline<'a> {
    pub(crate) fn new(trace: &mut Trace<'a>, query: &Query) -> Result<Self, Gone> {
        let (engine, table) = (trace.engine, trace.table);
        let range = engine.range(query);
        let bands = Bands::new(engine, table, query);
        let (counter, names) = match query.by {
            By::Blamed | By::Function => {
                let counter = counter(trace, query, &range, bands.len(), |site, _| bands.of(site))?;
                (counter, bands.nodes.iter().map(|node| BandName::Level(*node)).collect())
            }
            By::Process | By::Command => {
                let (by_thread, names) = by_process(engine.definitions(), query.by);
                let counter = counter(trace, query, &range, 1, |site, _| bands.of(site).map(|_| 0))?;
                (counter.by_thread(by_thread), names)
            }
        };
        let moments = engine.moments(&range, query.points);
        let ends = (1..=query.points).map(|at| range.slice_end(at, query.points)).collect();
        let mut columns = TimelineColumns { time_ns: ends, ..TimelineColumns::default() };
        let mut cells: Vec<Vec<Cell>> = Vec::new();
        let mut peak = (0, 0, range.from_ns);
        let point = engine.start_for(moments[0]);
        let mut walker = point.walker(counter);
        engine.stretch(trace.blocks, point).walk(&mut walker, &moments, |at, walker| {
            let time_ns = if at == 0 { range.from_ns } else { columns.time_ns[at - 1] };
            if at == 0 {
                walker.sink.begin_selection(time_ns);
            } else {
                if walker.sink.heap.peak_bytes > peak.0 {
                    peak = (walker.sink.heap.peak_bytes, at - 1, walker.sink.heap.peak_time_ns);
                }
                cells.push(columns.add(walker));
            }
            walker.sink.begin(&walker.now, time_ns);
        })?;
        if let Some(part) = engine.folded_peak_in(&range, peak.0) {
            let slice =
                columns.time_ns.partition_point(|end| *end < part.peak_time_ns).min(cells.len().saturating_sub(1));
            peak = (part.peak_bytes, slice, part.peak_time_ns);
            let held = engine.at_folded_peak(part, &walker.sink).0;
            walker.sink.selected.held(held.iter().map(|costs| costs.live_bytes).fold(0, u64::saturating_add), peak.2);
            columns.set_peak(slice, &held, &mut cells);
        }
        let Selected { peak_bytes, peak_time_ns, .. } = walker.sink.selected;
        let own_peak = OwnPeak { bytes: peak_bytes, time_ns: peak_time_ns };
        columns.add_samples(trace);
        let (chosen, other) = split(&cells, names.len(), query);
        let mut names: Vec<Option<BandName<'a>>> = names.into_iter().map(Some).collect();
        let named = |(band, values): (usize, Band)| (names[band].take().unwrap_or(BandName::NoProcess), values);
        let bands = chosen.into_iter().map(named).collect();
        Ok(Timeline { table, columns, bands, other, peak_index: peak.1, peak_time_ns: peak.2, own_peak })
    }
}

/// The bands of processes or commands, and to which of them the threads belong. The last one has all other threads.
fn by_process(definitions: &Definitions, by: By) -> (ByThread, Vec<BandName<'_>>) {
    let mut names = Vec::new();
    let mut known: HashMap<&str, u32> = HashMap::new();
    let mut part_of_process: IntMap<u32, u32> = IntMap::default();
    for process in definitions.processes.values() {
        let next = names.len() as u32;
        let part = if by == By::Command { *known.entry(process.name()).or_insert(next) } else { next };
        if part == next {
            let is_command = by == By::Command;
            names.push(if is_command { BandName::Command(process.name()) } else { BandName::Process(process) });
        }
        part_of_process.insert(process.index, part);
    }
    names.push(BandName::NoProcess);
    let part = |(thread, process): (&u32, &u32)| Some((*thread, *part_of_process.get(process)?));
    let part_of = definitions.process_of_thread.iter().filter_map(part).collect();
    (ByThread { part_of, parts: names.len(), per_part: 1 }, names)
}

impl TimelineColumns {
    /// Adds the slice that has just ended.
    fn add(&mut self, walker: &Walker<Counter<'_>>) -> Vec<Cell> {
        let counter = &walker.sink;
        let scale = counter.scale();
        let mut cells = Vec::new();
        let (mut live_bytes, mut live_allocations, mut live_bytes_end) = (0u64, 0, 0u64);
        let (mut allocations, mut allocated_bytes, mut deallocations, mut temporary) = (0, 0u64, 0, 0);
        for (group, band) in counter.groups.iter().zip(0u32..) {
            let costs = &counter.costs(group).rescaled(scale);
            let (bytes, blocks) = (costs.peak_bytes, costs.peak_allocations);
            live_bytes = live_bytes.saturating_add(bytes);
            live_allocations += blocks;
            live_bytes_end = live_bytes_end.saturating_add(costs.live_bytes);
            allocations += costs.allocations;
            allocated_bytes = allocated_bytes.saturating_add(costs.allocated_bytes);
            deallocations += costs.deallocations;
            temporary += costs.temporary;
            if bytes != 0 || costs.allocations != 0 || costs.temporary != 0 {
                let (allocations, temporary) = (costs.allocations, costs.temporary);
                cells.push(Cell { band, live_bytes: bytes, allocations, temporary });
            }
        }
        self.live_bytes.push(live_bytes);
        self.live_allocations.push(live_allocations);
        self.live_bytes_end.push(live_bytes_end);
        self.allocations.push(allocations);
        self.allocated_bytes.push(allocated_bytes);
        self.deallocations.push(deallocations);
        self.temporary.push(temporary);
        cells
    }

    /// Sets the highest moment of a slice whose events are folded. Nothing else is known about its course.
    fn set_peak(&mut self, slice: usize, bands: &[Costs], cells: &mut [Vec<Cell>]) {
        let Some(cells) = cells.get_mut(slice) else { return };
        for (costs, band) in bands.iter().zip(0u32..) {
            match cells.iter_mut().find(|cell| cell.band == band) {
                Some(cell) => cell.live_bytes = costs.live_bytes,
                None if costs.live_bytes > 0 => {
                    cells.push(Cell { band, live_bytes: costs.live_bytes, allocations: 0, temporary: 0 });
                }
                None => {}
            }
        }
        let sum = |cost: fn(&Costs) -> u64| bands.iter().map(cost).fold(0, u64::saturating_add);
        if let (Some(bytes), Some(blocks)) = (self.live_bytes.get_mut(slice), self.live_allocations.get_mut(slice)) {
            (*bytes, *blocks) = (sum(|costs| costs.live_bytes), sum(|costs| costs.live_allocations));
        }
    }

    /// Adds for each slice the last sample up to its end.
    fn add_samples(&mut self, trace: &Trace<'_>) {
        let samples = &trace.engine.definitions().samples;
        for end in &self.time_ns {
            let after = samples.partition_point(|sample| sample.time_ns <= *end);
            let sample = after.checked_sub(1).and_then(|at| samples.get(at));
            self.rss_bytes.push(sample.map(|sample| sample.rss_bytes));
            self.overhead_bytes.push(sample.map(|sample| sample.overhead_bytes));
        }
    }
}

/// The bands with the highest values, and the sum of all others.
fn split(cells: &[Vec<Cell>], bands: usize, query: &Query) -> (Vec<(usize, Band)>, Band) {
    let mut rank = vec![0u64; bands];
    for cell in cells.iter().flatten() {
        let Some(rank) = rank.get_mut(cell.band as usize) else { continue };
        match query.cost() {
            Cost::Allocations | Cost::Allocated | Cost::Deallocations => *rank += cell.allocations,
            Cost::Temporary => *rank += cell.temporary,
            _ => *rank = (*rank).max(cell.live_bytes),
        }
    }
    let mut order: Vec<usize> = (0..bands).filter(|band| rank[*band] > 0).collect();
    order.sort_by_key(|band| std::cmp::Reverse(rank[*band]));
    order.truncate(query.top);
    let empty = || Band {
        live_bytes: vec![0; cells.len()],
        allocations: vec![0; cells.len()],
        temporary: vec![0; cells.len()],
    };
    let mut chosen: Vec<(usize, Band)> = order.iter().map(|band| (*band, empty())).collect();
    let mut other = empty();
    let mut place = vec![None; bands];
    order.iter().enumerate().for_each(|(at, band)| place[*band] = Some(at));
    for (slice, cells) in cells.iter().enumerate() {
        for cell in cells {
            let band = match place.get(cell.band as usize).copied().flatten().and_then(|at| chosen.get_mut(at)) {
                Some((_, band)) => band,
                None => &mut other,
            };
            band.live_bytes[slice] = band.live_bytes[slice].saturating_add(cell.live_bytes);
            band.allocations[slice] += cell.allocations;
            band.temporary[slice] += cell.temporary;
        }
    }
    (chosen, other)
}

impl Band {
    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("live_bytes", &self.live_bytes)?;
        map.serialize_entry("allocations", &self.allocations)?;
        map.serialize_entry("temporary", &self.temporary)
    }
}

struct NamedBand<'a> {
    name: Option<&'a BandName<'a>>,
    table: &'a StackTable,
    band: &'a Band,
}

impl Serialize for NamedBand<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.name {
            Some(BandName::Level(node)) => Row::of(self.table, self.table.level(*node)).entries(&mut map)?,
            Some(BandName::Process(process)) => {
                map.serialize_entry("process", &process.index)?;
                map.serialize_entry("pid", &process.pid)?;
                map.serialize_entry("name", process.name())?;
            }
            Some(BandName::Command(name)) => map.serialize_entry("name", name)?,
            Some(BandName::NoProcess) => map.serialize_entry("name", &None::<&str>)?,
            None => (),
        }
        self.band.entries(&mut map)?;
        map.end()
    }
}

impl Serialize for Timeline<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Peak {
            index: usize,
            time_ns: u64,
        }
        #[derive(serde::Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            columns: &'a TimelineColumns,
            bands: Vec<NamedBand<'a>>,
            other: NamedBand<'a>,
            peak: Peak,
            own_peak: OwnPeak,
        }
        let table = self.table;
        let bands = self.bands.iter().map(|(name, band)| NamedBand { name: Some(name), table, band });
        let whole = Whole {
            columns: &self.columns,
            bands: bands.collect(),
            other: NamedBand { name: None, table, band: &self.other },
            peak: Peak { index: self.peak_index, time_ns: self.peak_time_ns },
            own_peak: self.own_peak,
        };
        whole.serialize(serializer)
    }
}
