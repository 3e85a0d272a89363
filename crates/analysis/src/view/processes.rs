//! The processes of a tree, what each of them did and cost, and the same by the name of the program.
use super::Trace;
use super::bands::{Bands, counter};
use super::sum::Sum;
use super::summary::exit;
use crate::counter::ByThread;
use crate::definitions::SiteId;
use crate::pass::Gone;
use crate::process_tree::{CombinedPeak, ProcessRow, ProcessTree, Share};
use crate::query::Query;
use format::{IntMap, Process, ProcessStart};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Processes {
    tree: ProcessTree,
    /// The costs of each process in the range, and whether it is among those that are shown.
    sums: BTreeMap<u32, (Sum, bool)>,
    commands: Vec<Command>,
}

/// All processes whose program has the same name.
#[derive(Clone, Default)]
struct Command {
    name: String,
    processes: u64,
    sum: Sum,
    peak: Share,
}

/// A process, the costs of the blocks that it allocated in the range, and what it held at the session's combined peak.
#[derive(Clone, Debug)]
pub struct ProcessCosts {
    pub row: ProcessRow,
    pub sum: Sum,
    /// `None` if it was not alive then.
    pub held: Option<Share>,
}

/// The processes of a tree, in the order in which they started. Empty if the trace is of one process.
pub fn processes(trace: &mut Trace<'_>, query: &Query) -> Result<Vec<ProcessCosts>, Gone> {
    let Processes { tree, sums, .. } = Processes::new(trace, query)?;
    let held = |index: u32| tree.peak.as_ref().and_then(|peak| peak.shares.get(&index).copied());
    let shown = tree.processes.iter().filter_map(|row| {
        let index = row.process.index;
        let (sum, _) = sums.get(&index).filter(|(_, is_shown)| *is_shown)?;
        Some(ProcessCosts { row: row.clone(), sum: *sum, held: held(index) })
    });
    Ok(shown.collect())
}

impl Processes {
    pub(crate) fn new(trace: &mut Trace<'_>, query: &Query) -> Result<Self, Gone> {
        let tree = trace.engine.process_tree(trace.blocks)?;
        let mut sums = sums(trace, query)?;
        let cost = query.cost();
        if query.limit > 0 {
            let mut order: Vec<(u64, u32)> =
                sums.iter().map(|(index, (sum, _))| (sum.cost(cost).unsigned_abs(), *index)).collect();
            order.sort_by_key(|(value, index)| (Reverse(*value), *index));
            let shown: BTreeSet<u32> = order.iter().take(query.limit).map(|(_, index)| *index).collect();
            sums.iter_mut().for_each(|(index, (_, is_shown))| *is_shown = shown.contains(index));
        }
        let mut commands = commands(&tree, &sums);
        commands.sort_by_key(|command| Reverse(command.sum.cost(cost).unsigned_abs()));
        super::cut(&mut commands, query.limit);
        Ok(Processes { tree, sums, commands })
    }

    pub(crate) fn why_empty(&self) -> Option<String> {
        let is_empty = self.tree.processes.is_empty();
        is_empty.then(|| "the trace is of one process: its parts are not listed".to_owned())
    }
}

/// The costs of each process in the range.
fn sums(trace: &mut Trace<'_>, query: &Query) -> Result<BTreeMap<u32, (Sum, bool)>, Gone> {
    let (engine, table) = (trace.engine, trace.table);
    let definitions = engine.definitions();
    let range = engine.range(query);
    let bands = Bands::new(engine, table, query);
    let part_of_process: IntMap<u32, u32> = definitions.processes.keys().copied().zip(0..).collect();
    let part = |(thread, process): (&u32, &u32)| Some((*thread, *part_of_process.get(process)?));
    let part_of = definitions.process_of_thread.iter().filter_map(part).collect();
    let is_suppressed = |site: SiteId| query.suppressions && table.stack(site).suppressed.is_some();
    let group = |site: SiteId| bands.of(site).map(|_| is_suppressed(site) as u32);
    // Each process has two groups, because suppressed leaks are counted separately. The last part is that of threads whose
    // process is not known.
    let by_thread = ByThread { part_of, parts: definitions.processes.len() + 1, per_part: 2 };
    let counter = counter(trace, query, &range, 0, |site, _| group(site))?.by_thread(by_thread);
    let (costs, _) = engine.costs_by_walk(trace.blocks, &range, counter)?;
    let (pairs, _) = costs.as_chunks::<2>();
    let sums = definitions.processes.keys().zip(pairs).map(|(index, [own, suppressed])| {
        let mut sum = Sum::default();
        sum.add(own, false);
        sum.add(suppressed, true);
        (*index, (sum, true))
    });
    Ok(sums.collect())
}

fn commands(tree: &ProcessTree, sums: &BTreeMap<u32, (Sum, bool)>) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for ProcessRow { process, .. } in &tree.processes {
        let place = *known.entry(process.name()).or_insert(commands.len());
        if place == commands.len() {
            commands.push(Command { name: process.name().to_owned(), ..Command::default() });
        }
        let command = &mut commands[place];
        command.processes += 1;
        if let Some((sum, _)) = sums.get(&process.index) {
            command.sum.costs.add(&sum.costs);
            command.sum.leaked_bytes = command.sum.leaked_bytes.saturating_add(sum.leaked_bytes);
            command.sum.leaked_allocations = command.sum.leaked_allocations.saturating_add(sum.leaked_allocations);
        }
        if let Some(share) = tree.peak.as_ref().and_then(|peak| peak.shares.get(&process.index)) {
            command.peak.bytes = command.peak.bytes.saturating_add(share.bytes);
            command.peak.allocations = command.peak.allocations.saturating_add(share.allocations);
        }
    }
    commands
}

impl Serialize for Processes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.tree.processes.iter().filter_map(|row| {
            let (sum, is_shown) = self.sums.get(&row.process.index)?;
            is_shown.then_some(Row { row, peak: self.tree.peak.as_ref(), costs: Some(sum) })
        });
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("processes", &rows.collect::<Vec<_>>())?;
        map.serialize_entry("commands", &self.commands)?;
        map.serialize_entry("combined_peak", &combined_peak(&self.tree))?;
        map.end()
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("processes", &self.processes)?;
        map.serialize_entry("peak", &self.peak)?;
        map.serialize_entry("costs", &self.sum)?;
        map.end()
    }
}

/// The list `processes` of all JSON outputs. Empty unless the trace is that of a tree.
pub fn process_rows(tree: &ProcessTree) -> impl Serialize {
    tree.processes.iter().map(|row| Row { row, peak: tree.peak.as_ref(), costs: None }).collect::<Vec<_>>()
}

/// The instant at which all processes together held most, and what each of them held. Null unless the trace is that of a
/// tree.
pub fn combined_peak(tree: &ProcessTree) -> impl Serialize {
    #[derive(Serialize)]
    struct Held<'a> {
        index: u32,
        pid: u32,
        name: &'a str,
        bytes: u64,
        allocations: u64,
        inherited_bytes: u64,
        inherited_allocations: u64,
    }
    #[derive(Serialize)]
    struct Combined<'a> {
        time_ns: u64,
        bytes: u64,
        allocations: u64,
        processes: Vec<Held<'a>>,
        unknown: Share,
    }
    let held = |peak: &CombinedPeak, process: &'_ Process| {
        peak.shares.get(&process.index).copied().map(|share| (share, process.index))
    };
    tree.peak.as_ref().map(|peak| {
        let alive = tree.processes.iter().filter_map(|row| {
            let (share, index) = held(peak, &row.process)?;
            Some(Held {
                index,
                pid: row.process.pid,
                name: row.process.name(),
                bytes: share.bytes,
                allocations: share.allocations,
                inherited_bytes: row.process.inherited_bytes,
                inherited_allocations: row.process.inherited_allocations,
            })
        });
        let mut processes: Vec<Held<'_>> = alive.collect();
        processes.sort_by_key(|held| Reverse(held.bytes));
        let CombinedPeak { time_ns, bytes, allocations, unknown, .. } = *peak;
        Combined { time_ns, bytes, allocations, processes, unknown }
    })
}

/// How a process ended, in words; `None` while it runs.
pub fn exit_words(process: &Process) -> Option<String> {
    process.end.map(|end| if end.by_exec { "exec".to_owned() } else { exit(end.exit) })
}

const fn start(start: ProcessStart) -> &'static str {
    match start {
        ProcessStart::Launched => "launched",
        ProcessStart::Attached => "attached",
        ProcessStart::Forked => "forked",
        ProcessStart::Spawned => "spawned",
        ProcessStart::Executed => "exec",
    }
}

struct Row<'a> {
    row: &'a ProcessRow,
    peak: Option<&'a CombinedPeak>,
    costs: Option<&'a Sum>,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Totals<'a>(&'a format::Totals);
        impl Serialize for Totals<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.named())
            }
        }
        let ProcessRow { process, totals } = self.row;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index", &process.index)?;
        map.serialize_entry("pid", &process.pid)?;
        map.serialize_entry("parent", &process.parent)?;
        map.serialize_entry("name", process.name())?;
        map.serialize_entry("command", &process.command)?;
        map.serialize_entry("exe", &process.exe)?;
        map.serialize_entry("start", start(process.start))?;
        map.serialize_entry("start_ns", &process.start_ns)?;
        map.serialize_entry("end_ns", &process.end.map(|end| end.at_ns))?;
        map.serialize_entry("exit", &exit_words(process))?;
        map.serialize_entry("inherited_allocations", &process.inherited_allocations)?;
        map.serialize_entry("inherited_bytes", &process.inherited_bytes)?;
        map.serialize_entry("note", &Some(&process.note).filter(|note| !note.is_empty()))?;
        map.serialize_entry("totals", &Totals(totals))?;
        map.serialize_entry("peak", &self.peak.and_then(|peak| peak.shares.get(&process.index)))?;
        if let Some(costs) = self.costs {
            map.serialize_entry("costs", costs)?;
        }
        map.end()
    }
}
