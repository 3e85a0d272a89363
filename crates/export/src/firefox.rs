//! A processed profile of the Firefox Profiler, version 60, which every later version of the profiler still opens. It is
//! the first version in which threads share their stacks, so a tree of processes has them once.
//!
//! Receives: the selected stacks, their events, and verdicts about what was not freed. Must hold: native allocations of all
//! tracks add up to `allocated_bytes`, and those that are retained to `live_bytes`; the highest point of the first memory
//! track is the peak.
//!
//! ```text
//! thread   a track for each process (`tracks.rs`)
//!          samples             a row for each stack and slice of time: bytes allocated
//!          nativeAllocations   groups of blocks (`groups.rs`): +bytes when allocated, -bytes when freed
//!          markers             a marker for each place that was not freed, with a verdict
//! counters                     live bytes over time (`course.rs`), of all processes first and then of each
//! shared   stackTable -> frameTable -> funcTable -> sources -> stringArray
//! ```
mod course;
mod groups;
mod tables;
mod tracks;

use crate::json;
use crate::selected::{Selected, name};
use analysis::view::Leak;
use course::Point;
use groups::{Group, Groups, OUTSIDE};
use std::io::{self, Write};
use tables::Tables;
pub use tracks::Events;
use tracks::Label;

/// `leaks`: the places that hold blocks at the end of the range and are no known leaks.
pub fn write(selected: &Selected<'_>, events: Events<'_>, leaks: &[Leak], out: &mut dyn Write) -> io::Result<()> {
    let mut tables = Tables::new(selected);
    let (tracks, together) = events.finish();
    let labels = tracks::labels(selected.definitions, &selected.range, &tracks);
    let groups: Vec<Vec<Group>> = tracks.iter().map(|track| track.groups.list()).collect();
    let track_of = tracks::track_of_leaks(&groups, leaks);
    meta(selected, out)?;
    tables.libs(out)?;
    out.write_all(b",\"threads\":[")?;
    json::list(out, tracks.iter().zip(&groups).zip(&labels).enumerate(), |out, (number, ((track, groups), label))| {
        let leaks = leaks.iter().zip(&track_of).filter(|(_, track)| **track == number).map(|(leak, _)| leak).collect();
        thread(label, out)?;
        samples(selected, groups, &track.groups, &tables, out)?;
        native_allocations(groups, &track.groups, &tables, out)?;
        markers(selected, leaks, &mut tables, out)?;
        out.write_all(b"}")
    })?;
    out.write_all(b"],\"pages\":[],\"profilerOverhead\":[],\"counters\":[")?;
    if let (Some(points), Some(label)) = (together, labels.first()) {
        counter(label, 0, "Memory of all processes", &points, out)?;
        out.write_all(b",")?;
    }
    json::list(out, tracks.into_iter().zip(&labels).enumerate(), |out, (number, (track, label))| {
        counter(label, number, "Memory", &track.course.finish(), out)
    })?;
    out.write_all(b"],\"shared\":{")?;
    tables.shared(out)?;
    out.write_all(b"}}\n")
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
            { "key": "place", "label": "Place", "format": "string" },
            { "key": "bytes", "label": "Bytes", "format": "bytes" },
            { "key": "blocks", "label": "Blocks", "format": "integer" },
            { "key": "verdict", "label": "Verdict", "format": "string" },
            { "key": "reason", "label": "Why", "format": "string" },
        ],
    });
    let meta = serde_json::json!({
        "categories": categories,
        "debug": false,
        "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        "interval": 1,
        "preprocessedProfileVersion": 60,
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

/// The beginning of a track.
fn thread(label: &Label, out: &mut dyn Write) -> io::Result<()> {
    let (name, start, end) = (json::text(&label.name), ms(label.start_ns), ms(label.end_ns));
    write!(out, "{{\"name\":{name},\"processName\":{name},\"isMainThread\":true,\"processType\":\"default\"")?;
    write!(out, ",\"pid\":{},\"tid\":{}", json::text(&label.pid), label.tid)?;
    out.write_all(b",\"pausedRanges\":[],\"showMarkersInTimeline\":true")?;
    write!(out, ",\"processStartupTime\":{start},\"processShutdownTime\":{end}")?;
    write!(out, ",\"registerTime\":{start},\"unregisterTime\":{end}")
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
    leaks: Vec<&Leak>,
    tables: &mut Tables<'_, '_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = tables.string("Not freed");
    let from_ns = selected.range.from_ns;
    let end = ms(selected.range.to_ns - from_ns);
    write!(out, ",\"markers\":{{\"length\":{},\"category\":[", leaks.len())?;
    json::list(out, &leaks, |out, _| write!(out, "0"))?;
    out.write_all(b"],\"data\":[")?;
    json::list(out, &leaks, |out, leak| {
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
    json::list(out, &leaks, |out, leak| {
        write!(out, "{}", ms(leak.first_ns.unwrap_or(from_ns).saturating_sub(from_ns)))
    })?;
    out.write_all(b"],\"endTime\":[")?;
    json::list(out, &leaks, |out, _| write!(out, "{end}"))?;
    out.write_all(b"],\"name\":[")?;
    json::list(out, &leaks, |out, _| write!(out, "{title}"))?;
    out.write_all(b"],\"phase\":[")?;
    json::list(out, &leaks, |out, _| write!(out, "1"))?;
    out.write_all(b"]}")
}

/// `track`: the number of the track that it is shown with.
fn counter(label: &Label, track: usize, title: &str, points: &[Point], out: &mut dyn Write) -> io::Result<()> {
    let display = serde_json::json!({
        "graphType": "line-accumulated",
        "unit": "bytes",
        "color": "orange",
        "markerSchemaLocation": "timeline-memory",
        "sortWeight": 20,
        "label": title,
    });
    let pid = json::text(&label.pid);
    write!(out, "{{\"name\":\"malloc\",\"category\":\"Memory\",\"description\":\"Live bytes\",\"pid\":{pid}")?;
    write!(out, ",\"display\":{display},\"mainThreadIndex\":{track}")?;
    write!(out, ",\"samples\":{{\"length\":{},\"time\":[", points.len())?;
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
