//! The view `summary`: the recorded program, its totals, and the code to blame for most of the costs.
use super::Trace;
use super::allocators::AllocatorRow;
use super::keys::Row;
use super::processes::{combined_peak, process_rows};
use super::sum::Sum;
use super::wrapper_rows::wrapper_rows;
use crate::definitions::{Definitions, SiteId};
use crate::engine::Engine;
use crate::process_tree::ProcessTree;
use crate::profile::Profile;
use crate::query::{Cost, Query};
use crate::stack_table::{NodeId, StackTable};
use format::{Exit, Unseen};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// All stacks with the same blamed level.
#[derive(Clone, Copy, Debug)]
pub struct Blamed {
    /// The node of that level; 0 if nothing is known.
    pub node: NodeId,
    pub value: i64,
    /// The stack with the highest value.
    pub stack: SiteId,
    most: i64,
    pub sum: Sum,
}

/// The level of a stack that owns its memory.
pub fn blamed_node(table: &StackTable, site: SiteId) -> NodeId {
    table.stack(site).owner
}

/// A profile by blamed level, the highest first. Levels without any of the cost are left out.
pub fn by_blamed(profile: &Profile, table: &StackTable, query: &Query, cost: Cost) -> Vec<Blamed> {
    let mut places: HashMap<_, usize> = HashMap::new();
    let mut found: Vec<Blamed> = Vec::new();
    for (site, costs) in &profile.stacks {
        let node = blamed_node(table, *site);
        let suppressed = query.suppressions && table.stack(*site).suppressed.is_some();
        let value = cost.of(costs, suppressed);
        let same = table.level(node).map(|level| {
            (level.function, level.file, level.line, level.module, level.offset.filter(|_| level.function.is_none()))
        });
        let place = *places.entry(same).or_insert(found.len());
        if place == found.len() {
            found.push(Blamed { node, value: 0, stack: *site, most: 0, sum: Sum::default() });
        }
        let Some(row) = found.get_mut(place) else { continue };
        row.value = row.value.saturating_add(value);
        row.sum.add(costs, suppressed);
        if value.abs() > row.most {
            (row.most, row.stack) = (value.abs(), *site);
        }
    }
    found.retain(|row| row.value != 0);
    found.sort_by_key(|row| Reverse(row.value.unsigned_abs()));
    found
}

pub(crate) struct Summary<'a> {
    engine: &'a Engine,
    table: &'a StackTable,
    complete: bool,
    profile: &'a Profile,
    query: &'a Query,
    tree: ProcessTree,
    allocators: Vec<AllocatorRow>,
}

/// The most rows of each list if the query has no `limit`.
const ROWS: usize = 20;

impl<'a> Summary<'a> {
    pub(crate) fn new<'t: 'a>(
        trace: &Trace<'t>,
        profile: &'a Profile,
        query: &'a Query,
        (tree, allocators): (ProcessTree, Vec<AllocatorRow>),
    ) -> Self {
        let Trace { engine, table, complete, .. } = *trace;
        Summary { engine, table, complete, profile, query, tree, allocators }
    }
}

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Summary { engine, table, complete, .. } = self;
        let definitions = engine.definitions();
        let whole = engine.totals();
        // A heap profile of another tool knows nothing about time and the recorder.
        let is_trace = definitions.profile.is_none();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("command", &definitions.session.command)?;
        map.serialize_entry("pid", &definitions.session.pid)?;
        map.serialize_entry("attached", &definitions.session.attached)?;
        map.serialize_entry("complete", complete)?;
        map.serialize_entry("exit", &definitions.summary.map(|summary| exit(summary.exit)))?;
        map.serialize_entry("hostname", &definitions.session.hostname)?;
        map.serialize_entry("started_unix_ns", &definitions.session.started_unix_ns)?;
        map.serialize_entry("system_memory", &definitions.session.system_memory)?;
        for (name, number) in [
            ("runtime_ns", whole.runtime_ns),
            ("peak_rss_bytes", whole.peak_rss_bytes),
            ("overhead_bytes", whole.overhead_bytes),
            ("unknown_frees", whole.unknown_frees),
            ("implied_frees", whole.implied_frees),
            ("lost_events", whole.lost_events),
            ("waited_for_recorder_ns", definitions.waits.waited_ns),
        ] {
            map.serialize_entry(name, &is_trace.then_some(number))?;
        }
        let causes: Vec<(&str, u64)> =
            definitions.losses.by_cause.iter().map(|(cause, count)| (cause.as_str(), *count)).collect();
        map.serialize_entry("folded_until_ns", &definitions.folded_until_ns())?;
        map.serialize_entry("unseen", &unseen(definitions))?;
        map.serialize_entry("losses", &Losses { causes: &causes, note: definitions.losses.note.as_deref() })?;
        let seconds = (self.profile.range.to_ns - self.profile.range.from_ns) as f64 / 1e9;
        let rate =
            |count: u64| is_trace.then(|| if seconds > 0.0 { (count as f64 / seconds).round() as u64 } else { 0 });
        map.serialize_entry("allocations_per_second", &rate(self.profile.totals.allocations))?;
        map.serialize_entry("temporary_per_second", &rate(self.profile.totals.temporary))?;
        map.serialize_entry("allocated_bytes_per_second", &rate(self.profile.totals.allocated_bytes))?;
        map.serialize_entry("processes", &process_rows(&self.tree))?;
        map.serialize_entry("combined_peak", &combined_peak(&self.tree))?;
        map.serialize_entry("allocators", &self.allocators)?;
        map.serialize_entry("lists", &Lists(self))?;
        map.serialize_entry("suppressions", &suppression_rows(self.profile, table))?;
        map.serialize_entry("wrappers", &wrapper_rows(table))?;
        map.end()
    }
}

/// The list `unseen` of all JSON outputs: what could not be recorded.
pub fn unseen(definitions: &Definitions) -> impl Serialize {
    let row = |Unseen { kind, subject, sentence }: &Unseen| {
        let fields = [("kind", kind), ("subject", subject), ("sentence", sentence)];
        fields.map(|(name, text)| (name, text.clone())).into_iter().collect::<BTreeMap<_, _>>()
    };
    definitions.unseen.iter().map(row).collect::<Vec<_>>()
}

pub(super) fn exit(exit: Exit) -> String {
    match exit {
        Exit::Unknown => "unknown".into(),
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
        Exit::Detached => "detached".into(),
    }
}

struct Losses<'a> {
    causes: &'a [(&'a str, u64)],
    note: Option<&'a str>,
}

impl Serialize for Losses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Causes<'a>(&'a [(&'a str, u64)]);
        impl Serialize for Causes<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("by_cause", &Causes(self.causes))?;
        map.serialize_entry("note", &self.note)?;
        map.end()
    }
}

struct Lists<'a>(&'a Summary<'a>);

impl Serialize for Lists<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Summary { table, profile, query, .. } = self.0;
        let mut map = serializer.serialize_map(None)?;
        for cost in [Cost::Peak, Cost::Leaked, Cost::Allocations, Cost::Temporary] {
            if profile.known.is_some_and(|known| !known.knows(cost)) {
                map.serialize_entry(cost.name(), &None::<()>)?;
                continue;
            }
            let rows = by_blamed(profile, table, query, cost);
            let total = rows.iter().map(|row| row.value).fold(0, i64::saturating_add);
            let limit = if query.limit > 0 { query.limit } else { ROWS };
            map.serialize_entry(cost.name(), &List { rows: &rows[..rows.len().min(limit)], table, total })?;
        }
        map.end()
    }
}

struct List<'a> {
    rows: &'a [Blamed],
    table: &'a StackTable,
    total: i64,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.iter().map(|row| BlamedRow { row, table: self.table, total: self.total }))
    }
}

struct BlamedRow<'a> {
    row: &'a Blamed,
    table: &'a StackTable,
    total: i64,
}

impl Serialize for BlamedRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let BlamedRow { row, table, total } = self;
        let mut map = serializer.serialize_map(None)?;
        Row::of(table, table.level(row.node)).entries(&mut map)?;
        map.serialize_entry("value", &row.value)?;
        map.serialize_entry("share", &if *total == 0 { 0.0 } else { row.value as f64 / *total as f64 })?;
        map.serialize_entry("stack", &row.stack)?;
        map.end()
    }
}

/// The leaks that one suppression hides.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SuppressionRow {
    pub pattern: String,
    pub source: &'static str,
    /// The number of matching stacks that have live blocks.
    pub matches: u64,
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
}

#[derive(serde::Serialize)]
pub(crate) struct SuppressionTable {
    pub(crate) suppressions: Vec<SuppressionRow>,
}

/// The suppressions that match a stack with live blocks, in their order.
pub fn suppression_rows(profile: &Profile, table: &StackTable) -> Vec<SuppressionRow> {
    let mut rows: Vec<SuppressionRow> = table
        .suppressions
        .list()
        .iter()
        .map(|known| SuppressionRow {
            pattern: known.pattern.clone(),
            source: known.source.name(),
            matches: 0,
            leaked_bytes: 0,
            leaked_allocations: 0,
        })
        .collect();
    for (site, costs) in profile.stacks.iter().filter(|(_, costs)| costs.live_allocations > 0) {
        let Some(row) = table.stack(*site).suppressed.and_then(|at| rows.get_mut(at as usize)) else { continue };
        row.matches += 1;
        row.leaked_bytes = row.leaked_bytes.saturating_add(costs.live_bytes);
        row.leaked_allocations += costs.live_allocations;
    }
    rows.retain(|row| row.matches > 0);
    rows
}
