//! The file of Valgrind's DHAT, version 2, as its viewer `dh_view.html` and the Firefox Profiler read it.
//!
//! Receives: the selected stacks, with lifetimes and own peaks. Must hold: no two stacks of the file are equal, because
//! the viewer refuses such a file. So the allocator's own frames stay, as in DHAT's own files; stacks that are equal
//! all the same (in a damaged trace) become one.
//!
//! ```text
//! tb tbk   bytes and blocks in total      mb mbk   at the stack's own peak      tl   sum of lifetimes
//! gb gbk   at the program's peak          eb ebk   at the end                   fs   frames, innermost first
//! ```
use crate::json;
use crate::selected::Selected;
use analysis::{Detail, Level};
use format::{Frame, IntMap};
use std::collections::HashMap;
use std::io::{self, Write};

/// Times are in microseconds.
const UNIT_NS: u64 = 1000;
/// Blocks that live shorter than this many microseconds are called short-lived.
const SHORT_LIVED: u64 = 500;

pub fn write(selected: &Selected<'_>, out: &mut dyn Write) -> io::Result<()> {
    let range = selected.range;
    let mut frames =
        Frames { selected, labels: vec!["[root]".into()], known: HashMap::new(), of_frame: IntMap::default() };
    let mut points: Vec<(Vec<u32>, Detail)> = Vec::new();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    for row in selected.rows {
        let stack = frames.stack(selected.definitions.stack_of(row.site));
        match places.get(&stack).and_then(|place| points.get_mut(*place)) {
            Some((_, sum)) => {
                sum.own_peak_allocations = sum.own_peak_allocations.max(row.own_peak_allocations);
                sum.live_ns = sum.live_ns.saturating_add(row.live_ns);
                sum.costs.add(&row.costs);
            }
            None => {
                places.insert(stack.clone(), points.len());
                points.push((stack, *row));
            }
        }
    }
    let micros = |ns: u64| ns / UNIT_NS;
    write!(out, "{{\"dhatFileVersion\":2,\"mode\":\"heap\",\"verb\":\"Allocated\",\"bklt\":true,\"bkacc\":false")?;
    write!(out, ",\"tu\":\"µs\",\"Mtu\":\"s\",\"tuth\":{SHORT_LIVED}")?;
    write!(out, ",\"cmd\":{},\"pid\":{}", json::text(&selected.command()), selected.definitions.session.pid)?;
    let peak_ns = selected.peak_time_ns.saturating_sub(range.from_ns);
    write!(out, ",\"te\":{},\"tg\":{}", micros(range.to_ns - range.from_ns), micros(peak_ns))?;
    out.write_all(b",\"pps\":[")?;
    json::list(out, &points, |out, (stack, row)| {
        let costs = &row.costs;
        let lifetimes = micros(costs.lifetime_ns.saturating_add(row.live_ns));
        write!(out, "\n{{\"tb\":{},\"tbk\":{},\"tl\":{lifetimes}", costs.allocated_bytes, costs.allocations)?;
        write!(out, ",\"mb\":{},\"mbk\":{}", costs.own_peak_bytes, row.own_peak_allocations)?;
        write!(out, ",\"gb\":{},\"gbk\":{}", costs.peak_bytes, costs.peak_allocations)?;
        write!(out, ",\"eb\":{},\"ebk\":{},\"fs\":[", costs.live_bytes, costs.live_allocations)?;
        json::list(out, stack, |out, frame| write!(out, "{frame}"))?;
        out.write_all(b"]}")
    })?;
    out.write_all(b"],\"ftbl\":[")?;
    json::list(out, &frames.labels, |out, label| write!(out, "\n{}", json::text(label)))?;
    out.write_all(b"]}\n")
}

/// The file's table of frames. An inlined function has an entry of its own.
struct Frames<'a, 'b> {
    selected: &'a Selected<'b>,
    labels: Vec<String>,
    known: HashMap<String, u32>,
    /// Frame -> its entries, innermost first.
    of_frame: IntMap<u64, Vec<u32>>,
}

impl Frames<'_, '_> {
    fn stack(&mut self, stack: u32) -> Vec<u32> {
        let definitions = self.selected.definitions;
        let mut entries = Vec::new();
        for frame in definitions.frames(stack) {
            if !self.of_frame.contains_key(&frame.0) {
                let new = definitions.levels_of(frame).map(|level| self.entry(&level)).collect();
                self.of_frame.insert(frame.0, new);
            }
            entries.extend(self.of_frame.get(&frame.0).into_iter().flatten());
        }
        if entries.is_empty() {
            entries.push(self.number("???: ??? (in ???)".into()));
        }
        entries
    }

    fn entry(&mut self, level: &Level<'_>) -> u32 {
        let label = label(self.selected, level);
        self.number(label)
    }

    fn number(&mut self, label: String) -> u32 {
        let next = self.labels.len() as u32;
        let number = *self.known.entry(label.clone()).or_insert(next);
        if number == next {
            self.labels.push(label);
        }
        number
    }
}

/// Returns `0xADDRESS: function (file:line)`, or `(in module)` without a file.
fn label(selected: &Selected<'_>, level: &Level<'_>) -> String {
    if let Some(marker) = level.marker() {
        return marker.to_owned();
    }
    let function = level.function.unwrap_or("???");
    let place = match (level.file, level.line, level.module) {
        (Some(file), Some(line), _) => format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)),
        (Some(file), None, _) => file.rsplit('/').next().unwrap_or(file).to_owned(),
        (None, _, Some(module)) => format!("in {module}"),
        (None, _, None) => "in ???".to_owned(),
    };
    format!("{:#X}: {function} ({place})", address(selected, level.frame)).replacen("0X", "0x", 1)
}

fn address(selected: &Selected<'_>, frame: Frame) -> u64 {
    let bias = selected.definitions.module(frame).map_or(0, |module| module.bias);
    bias.wrapping_add(frame.offset())
}
