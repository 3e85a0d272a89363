//! What changed between two traces, or between two points or ranges of one, by function. Lines do not matter, and
//! between two traces addresses do not matter, and folders only where a name alone is ambiguous.
use super::flame::label;
use super::keys::{Keys, NOTHING};
use super::summary::blamed_node;
use super::{AnswerError, Trace};
use crate::definitions::SiteId;
use crate::pairing::{Called, Pairing, Side};
use crate::profile::Profile;
use crate::query::{BadQuery, By, Compare, Cost, Query};
use crate::stack_table::{NodeId, StackTable};
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
    /// `None` for code without a name. Between two traces, all such code of a module is one row.
    pub function: Option<String>,
    pub short: String,
    pub module: Option<String>,
    pub file: Option<String>,
    pub before: i64,
    pub after: i64,
    pub delta: i64,
    /// The change in per cent of `before`. `None` if `before` is 0.
    pub percent: Option<f64>,
    pub state: State,
}

#[derive(Serialize)]
pub(crate) struct Diff {
    cost: &'static str,
    base_total: i64,
    functions: Vec<FunctionDiff>,
}

/// What makes two functions the same.
enum Same<'a> {
    /// Two points or ranges of one trace. Functions are the same if they are the same in the trace's other views.
    OfOne(Keys),
    OfTwo(&'a Pairing<'a>),
}

impl Same<'_> {
    fn number(&self, side: Side, table: &StackTable, node: NodeId) -> u32 {
        match self {
            Same::OfOne(keys) => keys.of(table, node).unwrap_or(NOTHING),
            Same::OfTwo(pairing) => pairing.number(side, called(table, node)),
        }
    }

    fn label(&self, table: &StackTable, node: NodeId) -> String {
        let called = called(table, node);
        match self {
            Same::OfTwo(_) if called.function.is_none() => called.module_name().to_owned(),
            _ => label(table, table.level(node)),
        }
    }
}

fn called(table: &StackTable, node: NodeId) -> Called<'_> {
    table.level(node).map_or(Called::default(), |level| Called::of(table, level))
}

/// One side of a diff.
#[derive(Clone, Copy)]
struct Seen<'a> {
    side: Side,
    profile: &'a Profile,
    table: &'a StackTable,
}

struct Function {
    number: u32,
    /// The first of its nodes.
    node: NodeId,
    value: i64,
}

impl Seen<'_> {
    /// The level that a stack is counted for: the level to blame, or the innermost level that is shown.
    fn node(&self, site: SiteId, query: &Query) -> NodeId {
        let hidden = |node: NodeId| {
            let class = self.table.level(node).and_then(|level| level.class);
            class.is_some_and(|class| query.hide.contains(class))
        };
        match query.by {
            By::Blamed => blamed_node(self.table, site),
            By::Function | By::Process | By::Command => {
                self.table.path(self.table.stack(site).node).find(|node| !hidden(*node)).unwrap_or(0)
            }
        }
    }

    /// The cost of each function. The costs add up to the total.
    fn functions(&self, same: &Same<'_>, query: &Query, cost: Cost) -> Vec<Function> {
        let mut places: HashMap<u32, usize> = HashMap::new();
        let mut found: Vec<Function> = Vec::new();
        for (site, costs) in &self.profile.stacks {
            let node = self.node(*site, query);
            let value = cost.of(costs, query.suppressions && self.table.stack(*site).suppressed.is_some());
            let number = same.number(self.side, self.table, node);
            let place = *places.entry(number).or_insert(found.len());
            match found.get_mut(place) {
                Some(function) => function.value = function.value.saturating_add(value),
                None => found.push(Function { number, node, value }),
            }
        }
        found
    }

    fn row(&self, same: &Same<'_>, node: NodeId, before: i64, after: i64) -> FunctionDiff {
        let Called { function, file, module } = called(self.table, node);
        FunctionDiff {
            function: function.map(str::to_owned),
            short: same.label(self.table, node),
            module: module.map(str::to_owned),
            file: file.map(str::to_owned),
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
    }
}

/// Every function of both sides, the largest change first.
fn rows(after: Seen<'_>, before: Seen<'_>, same: &Same<'_>, query: &Query, cost: Cost) -> Vec<FunctionDiff> {
    let old = before.functions(same, query, cost);
    let mut values: HashMap<u32, i64> = old.iter().map(|function| (function.number, function.value)).collect();
    let mut rows = Vec::new();
    for Function { number, node, value } in after.functions(same, query, cost) {
        rows.push(after.row(same, node, values.remove(&number).unwrap_or(0), value));
    }
    for Function { number, node, .. } in old {
        if let Some(value) = values.remove(&number) {
            rows.push(before.row(same, node, value, 0));
        }
    }
    rows.retain(|row| row.before != 0 || row.after != 0);
    rows.sort_by_key(|row| std::cmp::Reverse(row.delta.unsigned_abs()));
    rows
}

/// The functions of two traces.
pub fn functions(
    after: (&Profile, &StackTable),
    before: (&Profile, &StackTable),
    pairing: &Pairing<'_>,
    query: &Query,
    cost: Cost,
) -> Vec<FunctionDiff> {
    let (table, base_table) = after.1.heeding_both(before.1, query);
    let after = Seen { side: Side::After, profile: after.0, table: &table };
    let before = Seen { side: Side::Before, profile: before.0, table: &base_table };
    rows(after, before, &Same::OfTwo(pairing), query, cost)
}

/// The functions of two points or ranges of one trace. Functions are the same if they are the same in the trace's other
/// views.
pub fn functions_of_one(
    after: &Profile,
    before: &Profile,
    table: &StackTable,
    query: &Query,
    cost: Cost,
) -> Vec<FunctionDiff> {
    let same = Same::OfOne(Keys::new(table, &Query::default()));
    let seen = |side, profile| Seen { side, profile, table };
    rows(seen(Side::After, after), seen(Side::Before, before), &same, query, cost)
}

impl Diff {
    /// `asked`: the query before it was cut to the length of `trace`. The base may have another length.
    pub(crate) fn new(
        trace: &mut Trace<'_>,
        base: Option<&mut Trace<'_>>,
        profile: &Profile,
        asked: &Query,
        query: &Query,
    ) -> Result<Self, AnswerError> {
        let cost = query.cost_of_diff();
        let mut functions = match (&query.compare, base) {
            (Some(Compare::File(_)), Some(base)) => {
                let before = base.engine.profile(base.blocks, &asked.within(base.engine))?;
                let pairing = Pairing::new(trace.table, base.table);
                functions((profile, trace.table), (&before, base.table), &pairing, query, cost)
            }
            (Some(Compare::At(_) | Compare::Range(..)), _) => {
                let before = super::base_profile(trace, query)?;
                let before = before.ok_or_else(|| BadQuery::Whole("nothing to compare with".into()))?;
                functions_of_one(profile, &before, trace.table, query, cost)
            }
            _ => return Err(BadQuery::Whole("a diff needs `compare`: another trace, @T or @T..T".into()).into()),
        };
        let base_total = functions.iter().map(|row| row.before).fold(0, i64::saturating_add);
        super::cut(&mut functions, query.limit);
        Ok(Diff { cost: cost.name(), base_total, functions })
    }

    pub(crate) fn why_empty(&self) -> Option<String> {
        self.functions.is_empty().then(|| format!("neither side has any of the cost `{}`", self.cost))
    }
}
