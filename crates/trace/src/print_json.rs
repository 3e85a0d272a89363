//! The JSON of `print --json`, which is a contract with scripts. Keys and their meanings stay; new keys may be added.
//!
//! Lists are written while they are walked, because a trace may have a hundred thousand stacks.
mod totals;

use crate::lens::{Lens, Shown};
use crate::open::OpenTrace;
use analysis::view::{self, AllocatorRow, Sum};
use analysis::view::{combined_peak, process_rows};
use analysis::{
    Allocation, CodeClasses, Cost, Costs, Definitions, Intervals, Level, ProcessTree, Profile, SiteId, StackTable,
    Variances,
};
use format::{SymbolState, Totals};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cmp::Reverse;
use std::io::{self, Write};
use totals::totals;

const SCHEMA: u32 = 1;

/// The data of the report.
pub struct Report<'a> {
    pub trace: &'a OpenTrace,
    pub classes: &'a CodeClasses,
    pub profile: &'a Profile,
    /// How certain the profile is. `None` if every block was recorded.
    pub intervals: Option<&'a Intervals>,
    pub table: &'a StackTable,
    pub lens: &'a Lens<'a>,
    pub suppress: bool,
    /// The largest number of entries in a list.
    pub limit: Option<usize>,
    /// If set, the report has only the list by this cost.
    pub cost: Option<Cost>,
    /// Why there are no stacks.
    pub note: Option<&'a str>,
    /// The processes. `None` in the report about the blocks that the program reported itself.
    pub tree: Option<&'a ProcessTree>,
    /// The blocks by their allocator. Empty in the report about the blocks that the program reported itself.
    pub allocators: Vec<AllocatorRow>,
    /// The report about the blocks that the program reported itself, if it reported any.
    pub custom: Option<&'a Report<'a>>,
}

pub fn report(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")
}

pub fn allocation(out: &mut impl Write, allocation: &Allocation) -> io::Result<()> {
    #[derive(Serialize)]
    struct One<'a> {
        schema: u32,
        tid: Option<u32>,
        size: u64,
        frames: Levels<'a>,
    }
    let Allocation { size, stack, tid, definitions } = allocation;
    let classes = CodeClasses::new(&definitions.session.exe);
    // Includes `operator new`, which a report leaves out.
    let frames = Levels { levels: definitions.all_levels(*stack).collect(), classes: &classes };
    let one = One { schema: SCHEMA, tid: *tid, size: *size, frames };
    serde_json::to_writer(&mut *out, &one)?;
    out.write_all(b"\n")
}

impl Report<'_> {
    /// Returns the totals of the session, with the numbers of the selected part. Suppressed blocks do not count as
    /// leaked.
    fn totals(&self) -> Totals {
        let Profile { totals: costs, peak_time_ns, .. } = self.profile;
        let suppressed = self.suppressed();
        Totals {
            allocations: costs.allocations,
            deallocations: costs.deallocations,
            allocated_bytes: costs.allocated_bytes,
            temporary: costs.temporary,
            leaked_bytes: costs.live_bytes.saturating_sub(suppressed.0),
            leaked_allocations: costs.live_allocations.saturating_sub(suppressed.1),
            peak_bytes: costs.peak_bytes,
            peak_allocations: costs.peak_allocations,
            peak_time_ns: *peak_time_ns,
            ..self.trace.engine().totals()
        }
    }

    fn lists<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if let Some(cost) = self.cost {
            return map.serialize_entry(cost.name(), &List::by(self, cost));
        }
        // A list by a cost that is not known is null.
        let knows = |cost: Cost| self.trace.engine().definitions().knows(cost);
        let peak = || List::new(self, |_, costs| (costs.peak_bytes, costs.peak_allocations));
        let leaked = || List::new(self, |site, costs| self.leaked(site, costs));
        let allocations = || List::new(self, |_, costs| (costs.allocations, costs.allocated_bytes));
        let temporary = || List::new(self, |_, costs| (costs.temporary, 0));
        map.serialize_entry("peak", &knows(Cost::Peak).then(peak))?;
        map.serialize_entry("leaked", &knows(Cost::Leaked).then(leaked))?;
        map.serialize_entry("allocations", &knows(Cost::Allocations).then(allocations))?;
        map.serialize_entry("temporary", &knows(Cost::Temporary).then(temporary))
    }

    fn is_suppressed(&self, site: SiteId) -> bool {
        self.suppress && self.table.stack(site).suppressed.is_some()
    }

    /// Returns the bytes and blocks that a stack leaked.
    fn leaked(&self, site: SiteId, costs: &Costs) -> (u64, u64) {
        if self.is_suppressed(site) { (0, 0) } else { (costs.live_bytes, costs.live_allocations) }
    }

    /// Returns the bytes and blocks that are live and suppressed.
    fn suppressed(&self) -> (u64, u64) {
        let known = self.profile.stacks.iter().filter(|(site, _)| self.is_suppressed(*site));
        known.fold((0, 0), |sum, (_, costs)| {
            (sum.0.saturating_add(costs.live_bytes), sum.1.saturating_add(costs.live_allocations))
        })
    }
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let trace = self.trace;
        let definitions = trace.engine().definitions();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &SCHEMA)?;
        map.serialize_entry("command", &definitions.session.command)?;
        map.serialize_entry("pid", &definitions.session.pid)?;
        map.serialize_entry("attached", &definitions.session.attached)?;
        map.serialize_entry("complete", &trace.is_complete())?;
        map.serialize_entry(
            "range",
            &[("from_ns", self.profile.range.from_ns), ("to_ns", self.profile.range.to_ns)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        )?;
        let errors = self.intervals.map(|intervals| intervals.totals);
        map.serialize_entry("totals", &totals(&self.totals(), self.suppressed(), definitions.profile, errors))?;
        if let Some(sampling) = &definitions.session.sampling {
            map.serialize_entry("sampling", &view::Sampled::from(*sampling))?;
        }
        map.serialize_entry("note", &self.note)?;
        map.serialize_entry("processes", &self.tree.map(process_rows))?;
        map.serialize_entry("combined_peak", &self.tree.map(combined_peak))?;
        let allocators: Vec<_> = self.allocators.iter().map(allocator).collect();
        map.serialize_entry("allocators", &allocators)?;
        map.serialize_entry("losses", &losses(definitions))?;
        map.serialize_entry("unseen", &analysis::unseen(definitions))?;
        map.serialize_entry("folded_until_ns", &definitions.folded_until_ns())?;
        map.serialize_entry("damage", &damage(trace))?;
        map.serialize_entry("threads", &definitions.threads.len())?;
        map.serialize_entry("modules", &definitions.modules.len())?;
        map.serialize_entry("suppressions", &definitions.suppressions)?;
        map.serialize_entry("heap_at_attach", &heap_at_attach(definitions))?;
        map.serialize_entry("waited_for_recorder_ns", &definitions.waits.waited_ns)?;
        map.serialize_entry("symbols", &symbols(definitions))?;
        self.lists(&mut map)?;
        map.serialize_entry("custom", &self.custom.map(Custom))?;
        map.end()
    }
}

/// Half the widths of the 95 % intervals of a stack's costs. Empty if every block was recorded.
struct Errors(Option<Variances>);

impl Serialize for Errors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().flat_map(Variances::errors))
    }
}

/// The costs of an allocator's blocks.
fn allocator(row: &AllocatorRow) -> impl Serialize {
    #[derive(Serialize)]
    struct Allocator {
        name: String,
        allocations: u64,
        allocated_bytes: u64,
        temporary: u64,
        leaked_bytes: u64,
        leaked_allocations: u64,
        suppressed_bytes: u64,
        suppressed_allocations: u64,
        peak_bytes: u64,
        peak_allocations: u64,
    }
    let Sum { costs, leaked_bytes, leaked_allocations } = row.sum;
    Allocator {
        name: row.name.clone(),
        allocations: costs.allocations,
        allocated_bytes: costs.allocated_bytes,
        temporary: costs.temporary,
        leaked_bytes,
        leaked_allocations,
        suppressed_bytes: costs.live_bytes.saturating_sub(leaked_bytes),
        suppressed_allocations: costs.live_allocations.saturating_sub(leaked_allocations),
        peak_bytes: costs.peak_bytes,
        peak_allocations: costs.peak_allocations,
    }
}

/// Totals and lists, in the same form as in the whole report.
struct Custom<'a>(&'a Report<'a>);

impl Serialize for Custom<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("totals", &totals(&self.0.totals(), self.0.suppressed(), None, None))?;
        self.0.lists(&mut map)?;
        map.end()
    }
}

/// The size of the heap when we attached. The blocks that were in it then are not in the trace.
fn heap_at_attach(definitions: &Definitions) -> impl Serialize {
    #[derive(Serialize)]
    struct Heap {
        size_bytes: u64,
        rss_bytes: u64,
    }
    definitions.heap_at_attach.map(|heap| Heap { size_bytes: heap.size_bytes, rss_bytes: heap.rss_bytes })
}

/// Events that were not recorded, by cause, and the recorder's note.
fn losses(definitions: &Definitions) -> impl Serialize {
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
    Losses { by_cause: Causes(&definitions.losses.by_cause), note: definitions.losses.note.as_deref() }
}

/// The parts of the file that could not be read. Empty for an intact file, finished or not.
fn damage(trace: &OpenTrace) -> impl Serialize {
    #[derive(Serialize)]
    struct DamagedPart {
        offset: Option<u64>,
        length: Option<u64>,
        reason: String,
    }
    let faults = trace.engine().faults();
    let mut list: Vec<DamagedPart> = trace
        .damage()
        .iter()
        .map(|place| DamagedPart {
            offset: Some(place.offset),
            length: Some(place.length),
            reason: place.reason.into(),
        })
        .collect();
    let mut say = |reason: String| list.push(DamagedPart { offset: None, length: None, reason });
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

/// How the names of each module were found, or why they were not.
fn symbols(definitions: &Definitions) -> impl Serialize {
    #[derive(Serialize)]
    struct Module<'a> {
        module: Option<&'a str>,
        state: &'static str,
        note: Option<&'a str>,
    }
    let modules = definitions.names.modules().iter().map(|(instance, names)| Module {
        module: definitions.modules.get(instance).map(|module| module.path.as_str()),
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

/// Stacks, up to the limit of the report, sorted by one cost, largest first. A negative cost is sorted by its absolute
/// value. Equal ones are in the order of the file, so that two runs print the same.
struct List<'a> {
    report: &'a Report<'a>,
    stacks: Vec<&'a (SiteId, Costs)>,
    /// The cost that the query asks for. Each stack has its value.
    cost: Option<Cost>,
}

impl<'a> List<'a> {
    fn new(report: &'a Report<'a>, cost: impl Fn(SiteId, &Costs) -> (u64, u64)) -> Self {
        let mut stacks: Vec<&(SiteId, Costs)> = report.profile.stacks.iter().collect();
        stacks.sort_by_key(|(site, costs)| Reverse(cost(*site, costs)));
        stacks.truncate(report.limit.unwrap_or(usize::MAX));
        List { report, stacks, cost: None }
    }

    /// Makes the list by the cost that the query asks for. Stacks without any of the cost are left out.
    fn by(report: &'a Report<'a>, cost: Cost) -> Self {
        let value = |stack: &(SiteId, Costs)| report.value(stack, cost);
        let mut stacks: Vec<&(SiteId, Costs)> =
            report.profile.stacks.iter().filter(|stack| value(stack) != 0).collect();
        stacks.sort_by_key(|stack| Reverse(value(stack).unsigned_abs()));
        stacks.truncate(report.limit.unwrap_or(usize::MAX));
        List { report, stacks, cost: Some(cost) }
    }
}

impl Report<'_> {
    fn value(&self, (site, costs): &(SiteId, Costs), cost: Cost) -> i64 {
        cost.of(costs, self.is_suppressed(*site))
    }
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report { trace, classes, table, lens, .. } = self.report;
        let definitions = trace.engine().definitions();
        let entries = self.stacks.iter().map(|both| {
            let (site, costs) = both;
            let stack = table.stack(*site);
            let leaked = self.report.leaked(*site, costs);
            let all = definitions.all_levels(definitions.stack_of(*site)).skip_while(Level::is_allocator);
            let Shown { levels, left_out } = lens.shown(all);
            let blamed = stack.blamed.and_then(|blamed| table.path(stack.node).position(|node| node == blamed));
            let known = |name: &str, value: u64| definitions.has_cost(name).then_some(value);
            Entry {
                value: self.cost.map(|cost| self.report.value(both, cost)),
                allocations: known("allocations", costs.allocations),
                allocated_bytes: known("allocated_bytes", costs.allocated_bytes),
                temporary: known("temporary", costs.temporary),
                leaked_bytes: known("leaked_bytes", leaked.0),
                leaked_allocations: known("leaked_allocations", leaked.1),
                suppressed_bytes: known("suppressed_bytes", costs.live_bytes - leaked.0),
                suppressed_allocations: known("suppressed_allocations", costs.live_allocations - leaked.1),
                peak_bytes: known("peak_bytes", costs.peak_bytes),
                peak_allocations: known("peak_allocations", costs.peak_allocations),
                errors: Errors(self.report.intervals.map(|intervals| intervals.of(*site))),
                blamed: blamed.and_then(|blamed| levels.iter().position(|(place, _)| *place == blamed)),
                levels_left_out: (lens.depth > 0).then_some(left_out),
                frames: Levels { levels: levels.into_iter().map(|(_, level)| level).collect(), classes },
            }
        });
        serializer.collect_seq(entries)
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
    /// These are `None` if a heap profile of another tool does not know them.
    allocations: Option<u64>,
    allocated_bytes: Option<u64>,
    temporary: Option<u64>,
    leaked_bytes: Option<u64>,
    leaked_allocations: Option<u64>,
    suppressed_bytes: Option<u64>,
    suppressed_allocations: Option<u64>,
    peak_bytes: Option<u64>,
    peak_allocations: Option<u64>,
    #[serde(flatten)]
    errors: Errors,
    /// The index in `frames` of the innermost level in the user's own code.
    blamed: Option<usize>,
    /// With `--depth`: the number of outer levels that are not in `frames`.
    #[serde(skip_serializing_if = "Option::is_none")]
    levels_left_out: Option<usize>,
    frames: Levels<'a>,
}

/// Innermost first. An inlined function has the module and offset of the frame that contains it.
struct Levels<'a> {
    levels: Vec<Level<'a>>,
    classes: &'a CodeClasses,
}

impl Serialize for Levels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a> {
            function: Option<&'a str>,
            /// The name without its arguments.
            short: Option<&'a str>,
            file: Option<&'a str>,
            line: Option<u32>,
            module: Option<&'a str>,
            offset: Option<u64>,
            inlined: bool,
            class: Option<&'static str>,
        }
        serializer.collect_seq(self.levels.iter().map(|level| {
            let marker = level.marker();
            Named {
                function: marker.or(level.function),
                short: marker.or(level.short),
                file: level.file,
                line: level.line,
                module: level.module,
                offset: marker.is_none().then(|| level.frame.offset()),
                inlined: level.inlined,
                class: marker.is_none().then(|| self.classes.of(level).name()),
            }
        }))
    }
}
