//! A processed profile of the Firefox Profiler, version 55, which every later version of the profiler still opens.
//!
//! Receives: the selected stacks, their events, and verdicts about what was not freed. Must hold: native allocations add
//! up to `allocated_bytes`, and those that are retained to `live_bytes`; the highest point of the memory track is the
//! peak.
//!
//! ```text
//! thread   samples             a row for each stack and slice of time: bytes allocated
//!          nativeAllocations   groups of blocks (`groups.rs`): +bytes when allocated, -bytes when freed
//!          markers             a marker for each place that was not freed, with a verdict
//!          stackTable -> frameTable -> funcTable -> stringArray
//! counters                     live bytes over time (`course.rs`)
//! ```
mod course;
mod groups;
mod tables;

use crate::json;
use crate::selected::{Selected, name};
use analysis::BlockEvent;
use analysis::view::Leak;
use course::{Course, Point};
use groups::{Group, Groups, OUTSIDE};
use std::io::{self, Write};
use tables::Tables;

/// The events of a profile.
pub struct Events {
    groups: Groups,
    course: Course,
    /// The number of the first block that was allocated within the range. Those before it are older.
    first: Option<u64>,
}

impl Events {
    /// `base_bytes`: what was live when the range began.
    pub fn new(range: analysis::Range, sites: usize, base_bytes: u64) -> Self {
        Events { groups: Groups::new(range, sites), course: Course::new(range, base_bytes), first: None }
    }

    pub fn add(&mut self, event: &BlockEvent) {
        if event.kind == analysis::BlockEventKind::Alloc {
            self.first.get_or_insert(event.sequence);
        }
        let is_older = self.first.is_none_or(|first| event.sequence < first);
        self.groups.add(event, is_older);
        self.course.add(event);
    }
}

/// `leaks`: the places that hold blocks at the end of the range and are no known leaks.
pub fn write(selected: &Selected<'_>, events: Events, leaks: &[Leak], out: &mut dyn Write) -> io::Result<()> {
    let mut tables = Tables::new(selected);
    let groups = events.groups.list();
    meta(selected, out)?;
    tables.libs(out)?;
    out.write_all(b",\"threads\":[{")?;
    tables.frames(out)?;
    samples(selected, &groups, &events.groups, &tables, out)?;
    native_allocations(&groups, &events.groups, &tables, out)?;
    markers(selected, leaks, &mut tables, out)?;
    tables.strings(out)?;
    thread(selected, out)?;
    out.write_all(b"}],\"pages\":[],\"profilerOverhead\":[],\"counters\":[")?;
    counter(selected, &events.course.finish(), out)?;
    out.write_all(b"]}\n")
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

const LEAK: &str = "NotFreed";

fn meta(selected: &Selected<'_>, out: &mut dyn Write) -> io::Result<()> {
    let session = &selected.definitions.session;
    let start_ms = ms(session.started_unix_ns.saturating_add(selected.range.from_ns));
    let categories: Vec<_> = tables::CATEGORIES
        .iter()
        .map(|(name, color)| serde_json::json!({ "name": name, "color": color, "subcategories": ["Other"] }))
        .collect();
    let schema = serde_json::json!({
        "name": LEAK,
        "display": ["marker-chart", "marker-table", "timeline-overview"],
        "chartLabel": "{marker.data.place}",
        "tooltipLabel": "Not freed: {marker.data.place}",
        "tableLabel": "{marker.data.place}: {marker.data.bytes}, {marker.data.verdict}",
        "fields": [
            { "key": "place", "label": "Place", "format": "string", "searchable": true },
            { "key": "bytes", "label": "Bytes", "format": "bytes" },
            { "key": "blocks", "label": "Blocks", "format": "integer" },
            { "key": "verdict", "label": "Verdict", "format": "string", "searchable": true },
            { "key": "reason", "label": "Why", "format": "string" },
        ],
    });
    let meta = serde_json::json!({
        "categories": categories,
        "debug": false,
        "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        "interval": 1,
        "preprocessedProfileVersion": 55,
        "version": 24,
        "processType": 0,
        "product": selected.command(),
        "importedFrom": format!("heaptrack {}", env!("CARGO_PKG_VERSION")),
        "stackwalk": 1,
        "startTime": start_ms,
        "symbolicated": true,
        "pausedRanges": [],
        "usesOnlyOneStackType": true,
        "doesNotUseFrameImplementation": true,
        "sourceCodeIsNotOnSearchfox": true,
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs" },
        "markerSchema": [schema],
    });
    write!(out, "{{\"meta\":{meta}")
}

fn thread(selected: &Selected<'_>, out: &mut dyn Write) -> io::Result<()> {
    let session = &selected.definitions.session;
    let path = session.command.first().map_or(session.exe.as_str(), String::as_str);
    let program = json::text(path.rsplit('/').next().unwrap_or(path));
    write!(out, ",\"name\":{program},\"processName\":{program},\"isMainThread\":true,\"processType\":\"default\"")?;
    write!(out, ",\"pid\":\"{0}\",\"tid\":{0},\"pausedRanges\":[],\"showMarkersInTimeline\":true", session.pid)?;
    let end = ms(selected.range.to_ns - selected.range.from_ns);
    write!(out, ",\"processStartupTime\":0,\"processShutdownTime\":{end},\"registerTime\":0,\"unregisterTime\":{end}")
}

/// The bytes that each stack allocated in each slice, so that the profiler's call tree and timeline have something to show
/// before the user chooses a view of allocations. The first and the last row are empty: the profiler shows only the time
/// between its first and its last sample.
fn samples(
    selected: &Selected<'_>,
    groups: &[Group],
    slices: &Groups,
    tables: &Tables<'_, '_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows: Vec<(u16, u32, u64)> = Vec::new();
    for group in groups.iter().filter(|group| group.born != OUTSIDE) {
        rows.push((group.born, group.site, group.bytes));
    }
    rows.sort_unstable();
    rows.dedup_by(|next, kept| {
        let is_same = (next.0, next.1) == (kept.0, kept.1);
        if is_same {
            kept.2 = kept.2.saturating_add(next.2);
        }
        is_same
    });
    let end = ms(selected.range.to_ns - selected.range.from_ns);
    write!(out, ",\"samples\":{{\"length\":{},\"weightType\":\"bytes\",\"stack\":[null,", rows.len() + 2)?;
    each(out, &rows, |out, row| tables.put_stack(row.1, out))?;
    out.write_all(b"null],\"time\":[0,")?;
    each(out, &rows, |out, row| write!(out, "{}", ms(slices.middle_ns(row.0))))?;
    write!(out, "{end}],\"weight\":[0,")?;
    each(out, &rows, |out, row| write!(out, "{}", row.2))?;
    out.write_all(b"0]}")
}

/// Writes the items, each with a comma after it.
fn each<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    items.into_iter().try_for_each(|item| write(out, item).and_then(|()| out.write_all(b",")))
}

/// A group of blocks that is allocated or freed.
struct Allocation {
    slice: u16,
    is_free: bool,
    /// Stands for the address of all blocks of the group.
    address: usize,
    site: u32,
    bytes: u64,
}

fn native_allocations(
    groups: &[Group],
    slices: &Groups,
    tables: &Tables<'_, '_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let row =
            |slice, is_free| Allocation { slice, is_free, address: number + 1, site: group.site, bytes: group.bytes };
        rows.extend((group.born != OUTSIDE).then(|| row(group.born, false)));
        rows.extend((group.died != OUTSIDE).then(|| row(group.died, true)));
    }
    rows.sort_by_key(|row| (row.slice, row.is_free, row.address));
    write!(out, ",\"nativeAllocations\":{{\"length\":{},\"weightType\":\"bytes\",\"time\":[", rows.len())?;
    json::list(out, &rows, |out, row| write!(out, "{}", ms(slices.middle_ns(row.slice))))?;
    out.write_all(b"],\"weight\":[")?;
    json::list(out, &rows, |out, row| write!(out, "{}{}", if row.is_free { "-" } else { "" }, row.bytes))?;
    out.write_all(b"],\"stack\":[")?;
    json::list(out, &rows, |out, row| tables.put_stack(row.site, out))?;
    out.write_all(b"],\"memoryAddress\":[")?;
    json::list(out, &rows, |out, row| write!(out, "{}", row.address * 16))?;
    out.write_all(b"],\"threadId\":[")?;
    json::list(out, &rows, |out, _| write!(out, "0"))?;
    out.write_all(b"]}")
}

/// A marker from a place's first allocation to the end of the range.
fn markers(
    selected: &Selected<'_>,
    leaks: &[Leak],
    tables: &mut Tables<'_, '_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = tables.string("Not freed");
    let from_ns = selected.range.from_ns;
    let end = ms(selected.range.to_ns - from_ns);
    write!(out, ",\"markers\":{{\"length\":{},\"category\":[", leaks.len())?;
    json::list(out, leaks, |out, _| write!(out, "0"))?;
    out.write_all(b"],\"data\":[")?;
    json::list(out, leaks, |out, leak| {
        let level = selected.table.level(leak.node);
        let place = level.map_or_else(|| crate::selected::NOTHING.into(), |level| name(selected.table, level));
        let mut data = serde_json::json!({
            "type": LEAK,
            "place": place,
            "bytes": leak.live_bytes,
            "blocks": leak.live_allocations,
            "verdict": leak.verdict.name(),
            "reason": leak.reason,
        });
        if let (Some(stack), Some(data)) = (tables.stack(leak.stack), data.as_object_mut()) {
            data.insert("cause".into(), serde_json::json!({ "stack": stack }));
        }
        write!(out, "{data}")
    })?;
    out.write_all(b"],\"startTime\":[")?;
    json::list(out, leaks, |out, leak| {
        write!(out, "{}", ms(leak.first_ns.unwrap_or(from_ns).saturating_sub(from_ns)))
    })?;
    out.write_all(b"],\"endTime\":[")?;
    json::list(out, leaks, |out, _| write!(out, "{end}"))?;
    out.write_all(b"],\"name\":[")?;
    json::list(out, leaks, |out, _| write!(out, "{title}"))?;
    out.write_all(b"],\"phase\":[")?;
    json::list(out, leaks, |out, _| write!(out, "1"))?;
    out.write_all(b"]}")
}

fn counter(selected: &Selected<'_>, points: &[Point], out: &mut dyn Write) -> io::Result<()> {
    let pid = selected.definitions.session.pid;
    write!(out, "{{\"name\":\"malloc\",\"category\":\"Memory\",\"description\":\"Live bytes\",\"pid\":\"{pid}\"")?;
    write!(out, ",\"mainThreadIndex\":0,\"samples\":{{\"length\":{},\"time\":[", points.len())?;
    json::list(out, points, |out, point| write!(out, "{}", ms(point.time_ns)))?;
    out.write_all(b"],\"count\":[")?;
    let mut before = 0;
    json::list(out, points, |out, point| {
        let change = point.bytes as i128 - before as i128;
        before = point.bytes;
        write!(out, "{change}")
    })?;
    out.write_all(b"],\"number\":[")?;
    json::list(out, points, |out, point| write!(out, "{}", point.events))?;
    out.write_all(b"]}}")
}
