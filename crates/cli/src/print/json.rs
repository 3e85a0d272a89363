//! The JSON of `print --json`: a contract with scripts. Names and meanings stay; new keys may come.
//!
//! Lists are written as they are walked: a trace may have a hundred thousand stacks.
use super::Trace;
use analysis::{Allocation, Classes, Costs, Report, SiteCosts};
use format::{Frame, SymbolState, Totals};
use serde::ser::{SerializeMap, Serializer};
use serde::{Serialize, ser::SerializeSeq};
use std::cmp::Reverse;
use std::io::{self, Write};

const SCHEMA: u32 = 1;

pub fn report(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document(trace))?;
    out.write_all(b"\n")
}

pub fn allocation(out: &mut impl Write, allocation: &Allocation) -> io::Result<()> {
    #[derive(Serialize)]
    struct One<'a> {
        schema: u32,
        tid: Option<u32>,
        size: u64,
        frames: Frames<'a>,
    }
    let Allocation { size, stack, tid, report } = allocation;
    let classes = Classes::new(&report.session.exe);
    let frames = Frames { report, classes: &classes, stack: *stack, whole: true };
    let one = One { schema: SCHEMA, tid: *tid, size: *size, frames };
    serde_json::to_writer(&mut *out, &one)?;
    out.write_all(b"\n")
}

struct Document<'a>(&'a Trace);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Document(trace) = self;
        let report = &trace.report;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &SCHEMA)?;
        map.serialize_entry("command", &report.session.command)?;
        map.serialize_entry("pid", &report.session.pid)?;
        map.serialize_entry("attached", &report.session.attached)?;
        map.serialize_entry("complete", &trace.complete())?;
        map.serialize_entry("totals", &totals(&report.totals))?;
        map.serialize_entry("losses", &losses(report))?;
        map.serialize_entry("damage", &damage(trace))?;
        map.serialize_entry("threads", &report.threads.len())?;
        map.serialize_entry("modules", &report.modules.len())?;
        map.serialize_entry("suppressions", &report.suppressions)?;
        map.serialize_entry("heap_at_attach", &heap_at_attach(report))?;
        map.serialize_entry("symbols", &symbols(report))?;
        map.serialize_entry("peak", &List::new(trace, |costs| (costs.peak_bytes, costs.peak_allocations)))?;
        map.serialize_entry("leaked", &List::new(trace, |costs| (costs.leaked_bytes, costs.leaked_allocations)))?;
        map.serialize_entry("allocations", &List::new(trace, |costs| (costs.allocations, costs.allocated_bytes)))?;
        map.serialize_entry("temporary", &List::new(trace, |costs| (costs.temporary, 0)))?;
        map.end()
    }
}

fn totals(totals: &Totals) -> impl Serialize {
    #[derive(Serialize)]
    struct Named {
        allocations: u64,
        deallocations: u64,
        allocated_bytes: u64,
        temporary: u64,
        leaked_bytes: u64,
        leaked_allocations: u64,
        peak_bytes: u64,
        peak_allocations: u64,
        peak_time_ns: u64,
        peak_rss_bytes: u64,
        overhead_bytes: u64,
        runtime_ns: u64,
        unknown_frees: u64,
        implied_frees: u64,
        lost_events: u64,
    }
    let Totals {
        allocations,
        deallocations,
        allocated_bytes,
        temporary,
        leaked_bytes,
        leaked_allocations,
        peak_bytes,
        peak_allocations,
        peak_time_ns,
        peak_rss_bytes,
        overhead_bytes,
        runtime_ns,
        unknown_frees,
        implied_frees,
        lost_events,
    } = *totals;
    Named {
        allocations,
        deallocations,
        allocated_bytes,
        temporary,
        leaked_bytes,
        leaked_allocations,
        peak_bytes,
        peak_allocations,
        peak_time_ns,
        peak_rss_bytes,
        overhead_bytes,
        runtime_ns,
        unknown_frees,
        implied_frees,
        lost_events,
    }
}

/// How large the heap was already when we attached; what was in it then is not in the trace.
fn heap_at_attach(report: &Report) -> impl Serialize {
    #[derive(Serialize)]
    struct Heap {
        size_bytes: u64,
        rss_bytes: u64,
    }
    report.heap_at_attach.map(|heap| Heap { size_bytes: heap.size_bytes, rss_bytes: heap.rss_bytes })
}

/// Events that were not recorded, by cause, and the writer's own sentence about them.
fn losses(report: &Report) -> impl Serialize {
    struct Causes<'a>(&'a [(String, u64)]);
    impl Serialize for Causes<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().map(|(cause, count)| (cause, count)))
        }
    }
    #[derive(Serialize)]
    struct Losses<'a> {
        by_cause: Causes<'a>,
        note: Option<&'a str>,
    }
    Losses { by_cause: Causes(&report.losses.by_cause), note: report.losses.note.as_deref() }
}

/// What of the file could not be read. Empty for a sound file, finished or not.
fn damage(trace: &Trace) -> impl Serialize {
    #[derive(Serialize)]
    struct Place {
        offset: Option<u64>,
        length: Option<u64>,
        reason: String,
    }
    let faults = &trace.report.faults;
    let mut list: Vec<Place> = trace
        .damage
        .iter()
        .map(|place| Place { offset: Some(place.offset), length: Some(place.length), reason: place.reason.into() })
        .collect();
    let mut say = |reason: String| list.push(Place { offset: None, length: None, reason });
    for (kind, error) in &faults.malformed {
        say(format!("a block of kind {kind:?}: {error}"));
    }
    if faults.missing_allocations > 0 {
        say(format!("{} allocations are in parts that are lost", faults.missing_allocations));
    }
    if faults.damaged_events > 0 {
        say(format!("{} events refer to parts that are lost", faults.damaged_events));
    }
    list
}

/// How the names of each module were found, or why not.
fn symbols(report: &Report) -> impl Serialize {
    #[derive(Serialize)]
    struct Module<'a> {
        module: Option<&'a str>,
        state: &'static str,
        note: Option<&'a str>,
    }
    let modules = report.names.modules().iter().map(|(instance, names)| Module {
        module: report.modules.get(instance).map(|module| module.path.as_str()),
        state: state(names.state),
        note: Some(names.note.as_str()).filter(|note| !note.is_empty()),
    });
    modules.collect::<Vec<_>>()
}

pub const fn state(state: SymbolState) -> &'static str {
    match state {
        SymbolState::Debug => "debug",
        SymbolState::Symbols => "symbols",
        SymbolState::Stripped => "stripped",
        SymbolState::Missing => "missing",
        SymbolState::Mismatch => "mismatch",
        SymbolState::Unreadable => "unreadable",
    }
}

/// The stacks that have a cost of one sort, the highest first.
struct List<'a> {
    report: &'a Report,
    classes: &'a Classes,
    sites: Vec<&'a SiteCosts>,
}

impl<'a> List<'a> {
    fn new(trace: &'a Trace, cost: impl Fn(&Costs) -> (u64, u64)) -> Self {
        let Trace { report, classes, .. } = trace;
        List { report, classes, sites: ranked(report, cost) }
    }
}

/// Sites by cost, descending; equal ones in the file's order, so that two runs print the same.
pub fn ranked(report: &Report, cost: impl Fn(&Costs) -> (u64, u64)) -> Vec<&SiteCosts> {
    let mut sites: Vec<&SiteCosts> = report.sites.iter().filter(|site| cost(&site.costs) != (0, 0)).collect();
    sites.sort_by_key(|site| Reverse(cost(&site.costs)));
    sites
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.sites.iter().map(|site| Entry {
            allocations: site.costs.allocations,
            allocated_bytes: site.costs.allocated_bytes,
            temporary: site.costs.temporary,
            leaked_bytes: site.costs.leaked_bytes,
            leaked_allocations: site.costs.leaked_allocations,
            peak_bytes: site.costs.peak_bytes,
            peak_allocations: site.costs.peak_allocations,
            blamed: self.classes.blamed(self.report.levels(site.stack)),
            frames: Frames { report: self.report, classes: self.classes, stack: site.stack, whole: false },
        });
        serializer.collect_seq(entries)
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    allocations: u64,
    allocated_bytes: u64,
    temporary: u64,
    leaked_bytes: u64,
    leaked_allocations: u64,
    peak_bytes: u64,
    peak_allocations: u64,
    /// The place in `frames` of the innermost level in the user's own code.
    blamed: Option<usize>,
    frames: Frames<'a>,
}

/// Leaf first. What was inlined has the module and offset of the frame that it is in.
struct Frames<'a> {
    report: &'a Report,
    classes: &'a Classes,
    stack: u32,
    /// With `operator new`, which is no frame of a report.
    whole: bool,
}

impl Serialize for Frames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Level<'a> {
            function: Option<&'a str>,
            /// Without arguments that nobody reads.
            short: Option<&'a str>,
            file: Option<&'a str>,
            line: Option<u32>,
            module: Option<&'a str>,
            offset: Option<u64>,
            inlined: bool,
            class: Option<&'static str>,
        }
        let mut list = serializer.serialize_seq(None)?;
        for level in self.report.all_levels(self.stack).skip_while(|level| !self.whole && level.is_allocator()) {
            let marker = marker(level.frame);
            list.serialize_element(&Level {
                function: marker.or(level.function),
                short: marker.or(level.short),
                file: level.file,
                line: level.line,
                module: level.module,
                offset: marker.is_none().then(|| level.frame.offset()),
                inlined: level.inlined,
                class: marker.is_none().then(|| self.classes.of(&level).name()),
            })?;
        }
        list.end()
    }
}

/// What stands for frames that are not there.
pub fn marker(frame: Frame) -> Option<&'static str> {
    match frame {
        Frame::CUT => Some("[frames left out]"),
        frame if frame.is_marker() => Some("[damaged]"),
        _ => None,
    }
}
