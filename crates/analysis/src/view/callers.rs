//! Every function with its inclusive and its own costs, and the callers and callees of one function.
use super::cut;
use super::keys::{Key, Keys, Row};
use super::sum::{Known, Sum};
use crate::costs::Costs;
use crate::known_costs::KnownCosts;
use crate::profile::Profile;
use crate::query::Query;
use crate::stack_table::{NodeId, StackTable};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Clone, Copy, Default)]
struct Both {
    inclusive: Sum,
    own: Sum,
}

pub(crate) struct Callers<'a> {
    table: &'a StackTable,
    keys: &'a Keys,
    functions: Vec<(Key, Both)>,
    selected: Option<Selected>,
    known: Option<KnownCosts>,
}

#[derive(Default)]
struct Selected {
    callers: Vec<(Key, Both)>,
    callees: Vec<(Key, Both)>,
    /// By level, which has the file and the line.
    lines: Vec<(u32, Both)>,
}

/// Sums that count a stack once for a place, however often it contains the place.
#[derive(Default)]
struct Once {
    sums: BTreeMap<u32, Both>,
    seen: HashSet<u32>,
}

impl Once {
    fn add(&mut self, place: u32, costs: &Costs, suppressed: bool, is_leaf: bool) {
        let sum = self.sums.entry(place).or_default();
        if self.seen.insert(place) {
            sum.inclusive.add(costs, suppressed);
        }
        if is_leaf {
            sum.own.add(costs, suppressed);
        }
    }

    fn next_stack(&mut self) {
        self.seen.clear();
    }

    fn finish(self, query: &Query) -> Vec<(u32, Both)> {
        let cost = query.cost();
        let mut list: Vec<(u32, Both)> = self.sums.into_iter().collect();
        list.sort_by_key(|(_, sum)| Reverse(sum.inclusive.cost(cost).unsigned_abs()));
        cut(&mut list, query.limit);
        list
    }
}

impl<'a> Callers<'a> {
    pub(crate) fn new(profile: &Profile, table: &'a StackTable, keys: &'a Keys, query: &Query) -> Self {
        let wanted = wanted(table, query);
        let (mut functions, mut callers, mut callees, mut lines) =
            (Once::default(), Once::default(), Once::default(), Once::default());
        // The first level of a line stands for all levels of that line.
        let mut first_at = HashMap::new();
        let mut path: Vec<(Key, NodeId)> = Vec::new();
        for (site, costs) in &profile.stacks {
            let stack = table.stack(*site);
            let suppressed = query.suppressions && stack.suppressed.is_some();
            keys.path(table, stack.node, &mut path);
            for (at, (key, node)) in path.iter().enumerate() {
                functions.add(*key, costs, suppressed, at == 0);
                let level = table.nodes[*node as usize].level.filter(|level| wanted.contains(level));
                let Some(level) = level else { continue };
                if let Some((caller, _)) = path.get(at + 1) {
                    callers.add(*caller, costs, suppressed, false);
                }
                if let Some((callee, _)) = at.checked_sub(1).and_then(|inner| path.get(inner)) {
                    callees.add(*callee, costs, suppressed, at == 1);
                }
                let place = table.levels.get(level as usize).map(|level| (level.file, level.line));
                let first = *first_at.entry(place).or_insert(level);
                lines.add(first, costs, suppressed, at == 0);
            }
            [&mut functions, &mut callers, &mut callees, &mut lines].into_iter().for_each(Once::next_stack);
        }
        let selected = query.function.is_some().then(|| Selected {
            callers: callers.finish(query),
            callees: callees.finish(query),
            lines: lines.finish(query),
        });
        Callers { table, keys, functions: functions.finish(query), selected, known: profile.known }
    }

    /// The note for a query of a function that no stack contains.
    pub(crate) fn why_none_selected(&self, query: &Query) -> Option<String> {
        let pattern = query.function.as_ref()?;
        let is_there = self.selected.as_ref().is_some_and(|selected| !selected.lines.is_empty());
        (!is_there).then(|| format!("no function in these stacks matches `{pattern}`"))
    }
}

/// The levels that the query's function matches.
fn wanted(table: &StackTable, query: &Query) -> HashSet<u32> {
    let Some(pattern) = &query.function else { return HashSet::new() };
    let numbered = table.levels.iter().zip(0u32..);
    numbered.filter(|(level, _)| pattern.matches_level(table, level)).map(|(_, number)| number).collect()
}

impl Serialize for Callers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("functions", &Rows { of: self, list: &self.functions, by_level: false })?;
        if let Some(selected) = &self.selected {
            map.serialize_entry("selected", &SelectedRows { of: self, selected })?;
        }
        map.end()
    }
}

struct SelectedRows<'a> {
    of: &'a Callers<'a>,
    selected: &'a Selected,
}

impl Serialize for SelectedRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Selected { callers, callees, lines } = self.selected;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("callers", &Rows { of: self.of, list: callers, by_level: false })?;
        map.serialize_entry("callees", &Rows { of: self.of, list: callees, by_level: false })?;
        map.serialize_entry("lines", &Rows { of: self.of, list: lines, by_level: true })?;
        map.end()
    }
}

struct Rows<'a> {
    of: &'a Callers<'a>,
    list: &'a [(u32, Both)],
    by_level: bool,
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Callers { table, keys, known, .. } = self.of;
        serializer.collect_seq(self.list.iter().map(|(place, sums)| {
            let row =
                if self.by_level { Row::of(table, table.levels.get(*place as usize)) } else { keys.row(table, *place) };
            Entry { row, sums, known: *known }
        }))
    }
}

struct Entry<'a> {
    row: Row<'a>,
    sums: &'a Both,
    known: Option<KnownCosts>,
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.row.entries(&mut map)?;
        let known = self.known;
        map.serialize_entry("inclusive", &Known { sum: &self.sums.inclusive, known })?;
        map.serialize_entry("self", &Known { sum: &self.sums.own, known })?;
        map.end()
    }
}
