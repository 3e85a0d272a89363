//! What changed between two traces, or two points of one: by function, whatever became of files, addresses and lines.
use super::flame::label;
use super::summary::blamed_node;
use super::{AnswerError, Trace};
use crate::profile::Profile;
use crate::query::{BadQuery, By, Compare, Cost, Query};
use crate::table::{NodeId, Table};
use serde::Serialize;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Changed,
    New,
    Gone,
    Same,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionDiff {
    /// `None`: code without a name, all of a module together.
    pub function: Option<String>,
    pub short: String,
    pub module: Option<String>,
    pub file: Option<String>,
    pub before: i64,
    pub after: i64,
    pub delta: i64,
    /// Of `before`; `None` where there was nothing.
    pub percent: Option<f64>,
    pub state: State,
}

#[derive(Serialize)]
pub(crate) struct Diff {
    cost: &'static str,
    base_total: i64,
    functions: Vec<FunctionDiff>,
}

/// The name that a function has in both traces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Function(String),
    Module(String),
}

fn name(table: &Table, node: NodeId) -> Name {
    let level = table.level(node);
    if let Some(function) = level.and_then(|level| table.text(level.function)) {
        return Name::Function(function.to_owned());
    }
    let module = level.and_then(|level| table.text(level.module)).unwrap_or("?");
    Name::Module(module.rsplit('/').next().unwrap_or(module).to_owned())
}

/// The cost of each function that is to blame, or that is innermost; they add up to the total.
fn costs(profile: &Profile, table: &Table, query: &Query, cost: Cost) -> Vec<(Name, NodeId, i64)> {
    let mut places: HashMap<Name, usize> = HashMap::new();
    let mut found: Vec<(Name, NodeId, i64)> = Vec::new();
    for (site, costs) in &profile.stacks {
        let node = match query.by {
            By::Blamed => blamed_node(table, *site),
            By::Function => table.stack(*site).node,
        };
        let value = cost.of(costs, query.suppressions && table.stack(*site).suppressed.is_some());
        let name = name(table, node);
        let place = *places.entry(name.clone()).or_insert(found.len());
        match found.get_mut(place) {
            Some((_, _, sum)) => *sum = sum.saturating_add(value),
            None => found.push((name, node, value)),
        }
    }
    found
}

/// Every function of both, the largest change first.
pub fn functions(
    after: (&Profile, &Table),
    before: (&Profile, &Table),
    query: &Query,
    cost: Cost,
) -> Vec<FunctionDiff> {
    let row = |table: &Table, name: &Name, node: NodeId, before: i64, after: i64| {
        let level = table.level(node);
        let text = |string: Option<u32>| table.text(string).map(str::to_owned);
        FunctionDiff {
            function: match name {
                Name::Function(function) => Some(function.clone()),
                Name::Module(_) => None,
            },
            short: match name {
                Name::Function(_) => label(table, level),
                Name::Module(module) => module.clone(),
            },
            module: level.and_then(|level| text(level.module)),
            file: level.and_then(|level| text(level.file)),
            before,
            after,
            delta: after.saturating_sub(before),
            percent: (before != 0).then(|| after.saturating_sub(before) as f64 * 100.0 / before as f64),
            state: match (before, after) {
                (0, 0) => State::Same,
                (0, _) => State::New,
                (_, 0) => State::Gone,
                _ if before == after => State::Same,
                _ => State::Changed,
            },
        }
    };
    let mut old: HashMap<Name, (NodeId, i64)> = HashMap::new();
    let mut order = Vec::new();
    for (name, node, value) in costs(before.0, before.1, query, cost) {
        order.push(name.clone());
        old.insert(name, (node, value));
    }
    let mut rows = Vec::new();
    for (name, node, value) in costs(after.0, after.1, query, cost) {
        let before = old.remove(&name).map_or(0, |(_, value)| value);
        rows.push(row(after.1, &name, node, before, value));
    }
    for name in order {
        if let Some((node, value)) = old.remove(&name) {
            rows.push(row(before.1, &name, node, value, 0));
        }
    }
    rows.retain(|row| row.before != 0 || row.after != 0);
    rows.sort_by_key(|row| std::cmp::Reverse(row.delta.unsigned_abs()));
    rows
}

impl Diff {
    pub(crate) fn new(
        trace: &mut Trace<'_>,
        base: Option<&mut Trace<'_>>,
        profile: &Profile,
        query: &Query,
    ) -> Result<Self, AnswerError> {
        let cost = query.cost();
        let mut functions = match (&query.compare, base) {
            (Some(Compare::File(_)), Some(base)) => {
                let before = base.engine.profile(base.blocks, query)?;
                functions((profile, trace.table), (&before, base.table), query, cost)
            }
            (Some(Compare::At(_) | Compare::Range(..)), _) => {
                let before = super::base_profile(trace, query)?;
                let before = before.ok_or_else(|| BadQuery("nothing to compare with".into()))?;
                functions((profile, trace.table), (&before, trace.table), query, cost)
            }
            _ => return Err(BadQuery("a diff needs `compare`: another trace, @T or @T..T".into()).into()),
        };
        let base_total = functions.iter().map(|row| row.before).fold(0, i64::saturating_add);
        super::cut(&mut functions, query.limit);
        Ok(Diff { cost: cost.name(), base_total, functions })
    }
}
