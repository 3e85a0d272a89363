//! speedscope's own file format: one sampled profile for each cost.
//!
//! Receives: the selected stacks, and the cost to show first. Must hold: frames are outermost first; the weights of a
//! profile add up to its `endValue`.
use crate::json;
use crate::selected::{NOTHING, Selected, name};
use analysis::{Cost, Detail};
use std::collections::HashMap;
use std::io::{self, Write};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Costs that can be negative cannot be weights.
pub const fn can_show(cost: Cost) -> bool {
    !matches!(cost, Cost::Growth)
}

/// The profiles of a file: the usual ones, and the one that was asked for.
fn costs(selected: &Selected<'_>, asked: Cost) -> Vec<Cost> {
    let usual: &[Cost] = if selected.range.instant {
        &[Cost::Live, Cost::Leaked]
    } else {
        &[Cost::Peak, Cost::Leaked, Cost::Allocations, Cost::Temporary, Cost::Allocated]
    };
    let extra = (!usual.contains(&asked)).then_some(asked);
    usual.iter().copied().chain(extra).filter(|cost| selected.definitions.knows(*cost)).collect()
}

const fn title(cost: Cost) -> &'static str {
    match cost {
        Cost::Peak => "Bytes at the peak",
        Cost::Leaked => "Bytes not freed",
        Cost::Live => "Bytes that are live",
        Cost::Allocations => "Allocations",
        Cost::Temporary => "Temporary allocations",
        Cost::Allocated => "Bytes allocated",
        Cost::Deallocations => "Deallocations",
        Cost::Kept => "Bytes allocated in the range and still live",
        Cost::Growth => "Growth in bytes",
    }
}

/// `asked`: the cost whose profile is shown first.
pub fn write(selected: &Selected<'_>, asked: Cost, out: &mut dyn Write) -> io::Result<()> {
    let frames = Frames::new(selected);
    let costs = costs(selected, asked);
    let active = costs.iter().position(|cost| *cost == asked).unwrap_or(0);
    write!(out, "{{\"$schema\":{},\"shared\":{{\"frames\":[", json::text(SCHEMA))?;
    json::list(out, &frames.written, |out, frame| out.write_all(frame.as_bytes()))?;
    out.write_all(b"]},\"profiles\":[")?;
    json::list(out, &costs, |out, cost| profile(selected, &frames, *cost, out))?;
    let exporter = format!("heaptrack@{}", env!("CARGO_PKG_VERSION"));
    let (name, exporter) = (json::text(&selected.command()), json::text(&exporter));
    writeln!(out, "],\"name\":{name},\"activeProfileIndex\":{active},\"exporter\":{exporter}}}")
}

fn profile(selected: &Selected<'_>, frames: &Frames, cost: Cost, out: &mut dyn Write) -> io::Result<()> {
    let value = |row: &Detail| cost.of(&row.costs, selected.is_suppressed(row.site)).max(0);
    let rows: Vec<&Detail> = selected.rows.iter().filter(|row| value(row) != 0).collect();
    let total = rows.iter().map(|row| value(row)).fold(0, i64::saturating_add);
    let unit = if cost.is_bytes() { "bytes" } else { "none" };
    let title = json::text(title(cost));
    write!(out, "{{\"type\":\"sampled\",\"name\":{title},\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{total},")?;
    out.write_all(b"\"samples\":[")?;
    let mut path = Vec::new();
    json::list(out, &rows, |out, row| {
        selected.levels(row.site, &mut path);
        path.reverse();
        let stack: Vec<u32> = path.iter().map(|level| frames.of(*level)).collect();
        let stack = if stack.is_empty() { vec![frames.nothing] } else { stack };
        out.write_all(b"[")?;
        json::list(out, &stack, |out, frame| write!(out, "{frame}"))?;
        out.write_all(b"]")
    })?;
    out.write_all(b"],\"weights\":[")?;
    json::list(out, &rows, |out, row| write!(out, "{}", value(row)))?;
    out.write_all(b"]}")
}

/// The frames of the file. Levels that look the same are one frame.
struct Frames {
    written: Vec<String>,
    /// By level.
    numbers: Vec<u32>,
    nothing: u32,
}

impl Frames {
    fn new(selected: &Selected<'_>) -> Self {
        let table = selected.table;
        let mut frames = Frames { written: Vec::new(), numbers: Vec::new(), nothing: 0 };
        let mut known: HashMap<String, u32> = HashMap::new();
        for level in table.levels.iter() {
            let mut frame = format!("{{\"name\":{}", json::text(&name(table, level)));
            if let Some(file) = table.text(level.file).or_else(|| table.text(level.module)) {
                frame.push_str(&format!(",\"file\":{}", json::text(file)));
            }
            if let Some(line) = level.line {
                frame.push_str(&format!(",\"line\":{line}"));
            }
            frame.push('}');
            let next = frames.written.len() as u32;
            let number = *known.entry(frame.clone()).or_insert(next);
            if number == next {
                frames.written.push(frame);
            }
            frames.numbers.push(number);
        }
        frames.nothing = frames.written.len() as u32;
        frames.written.push(format!("{{\"name\":{}}}", json::text(NOTHING)));
        frames
    }

    fn of(&self, level: u32) -> u32 {
        self.numbers.get(level as usize).copied().unwrap_or(self.nothing)
    }
}
