//! Flame graphs: sums of equal stacks, outermost level first.
use super::cut;
use super::keys::Keys;
use crate::profile::Profile;
use crate::query::Query;
use crate::stack_table::{StackTable, StackTableLevel};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A folded stack and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Folded {
    /// Outermost first.
    pub stack: Vec<String>,
    pub value: i64,
}

#[derive(Serialize)]
pub(crate) struct Flame {
    pub(crate) folded: Vec<Folded>,
}

/// A short label for a level: its short name, or its module and offset.
pub fn label(table: &StackTable, level: Option<&StackTableLevel>) -> String {
    let Some(level) = level else { return "?".into() };
    if let Some(name) = table.text(level.short).or_else(|| table.text(level.function)) {
        return name.to_owned();
    }
    let offset = level.offset.unwrap_or(0);
    match table.text(level.module) {
        Some(module) => format!("{}+{offset:#x}", module.rsplit('/').next().unwrap_or(module)),
        None => format!("{offset:#x}"),
    }
}

/// The stacks of a profile that have the query's cost, the highest first.
pub fn folded(profile: &Profile, table: &StackTable, query: &Query) -> Vec<Folded> {
    let keys = Keys::new(table, query);
    let cost = query.cost();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut found: Vec<(Vec<u32>, i64)> = Vec::new();
    let mut path = Vec::new();
    for (site, costs) in &profile.stacks {
        let stack = table.stack(*site);
        let value = cost.of(costs, query.suppressions && stack.suppressed.is_some());
        if value == 0 {
            continue;
        }
        keys.path(table, stack.node, &mut path);
        let depth = if query.depth == 0 { path.len() } else { query.depth };
        let path: Vec<u32> = path.iter().rev().map(|(key, _)| *key).take(depth).collect();
        let place = *places.entry(path.clone()).or_insert(found.len());
        match found.get_mut(place) {
            Some((_, sum)) => *sum = sum.saturating_add(value),
            None => found.push((path, value)),
        }
    }
    found.sort_by_key(|(_, value)| Reverse(value.unsigned_abs()));
    cut(&mut found, query.limit);
    let name = |key: u32| keys.label(table, key);
    found.into_iter().map(|(path, value)| Folded { stack: path.into_iter().map(name).collect(), value }).collect()
}
