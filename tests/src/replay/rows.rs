//! The names of rows of trees and lists, and the stacks that they contain.
use super::count::{Costs, NO_SUMS};
use super::query::{Merge, Query};
use super::trace::{Level, Trace};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Identifies a row. It is made of values that the row's JSON also has.
pub type Key = String;

/// The key of a row as JSON has it.
pub fn key_of_row(row: &Value, merge: Merge) -> Key {
    match merge {
        Merge::Function => json!([row["function"], row["module"], row["offset"]]),
        Merge::Line => json!([row["function"], row["module"], row["offset"], row["file"], row["line"]]),
        Merge::Module => json!([row["module"]]),
        Merge::Namespace => json!([row["function"], row["module"]]),
    }
    .to_string()
}

/// The key of a level. `None` stands for a stack whose levels are all hidden.
pub fn key(level: Option<&Level>, merge: Merge) -> Key {
    let nothing = Level::default();
    let level = level.unwrap_or(&nothing);
    let offset = level.offset.filter(|_| level.function.is_none());
    match (merge, namespace(level)) {
        (Merge::Function, _) => json!([level.function, level.module, offset]),
        (Merge::Line, _) => json!([level.function, level.module, offset, level.file, level.line]),
        (Merge::Module, _) => json!([level.module]),
        (Merge::Namespace, Some(name)) => json!([name, null]),
        (Merge::Namespace, None) => json!([null, level.module]),
    }
    .to_string()
}

/// The text before the last `::` that is outside of all brackets.
fn namespace(level: &Level) -> Option<&str> {
    let short = level.short.as_deref()?;
    let depth =
        |text: &str| text.chars().fold(0i32, |depth, c| depth + "<([{".contains(c) as i32 - ">)]}".contains(c) as i32);
    let outside = short.match_indices("::").map(|(at, _)| at).filter(|at| *at > 0 && depth(&short[..*at]) == 0);
    outside.last().map(|at| &short[..at])
}

/// The short label of a level.
pub fn label(level: Option<&Level>, merge: Merge) -> String {
    let Some(level) = level else { return "?".into() };
    let base = |path: &Option<String>| path.as_ref().map(|path| path.rsplit('/').next().unwrap().to_owned());
    match (merge, namespace(level)) {
        (Merge::Namespace, Some(name)) => return name.to_owned(),
        (Merge::Module | Merge::Namespace, _) => return base(&level.module).unwrap_or("?".into()),
        _ => {}
    }
    let offset = level.offset.unwrap_or(0);
    let name = level.short.clone().or(level.function.clone());
    let name = name.unwrap_or_else(|| match base(&level.module) {
        Some(module) => format!("{module}+{offset:#x}"),
        None => format!("{offset:#x}"),
    });
    match (merge, base(&level.file), level.line) {
        (Merge::Line, Some(file), Some(line)) => format!("{name} {file}:{line}"),
        _ => name,
    }
}

/// Costs that add up, under the names that JSON uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub costs: Costs,
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
}

impl Sum {
    pub fn add(&mut self, costs: &Costs, is_suppressed: bool) {
        self.costs.add(costs);
        if !is_suppressed {
            self.leaked_bytes += costs.live_bytes;
            self.leaked_allocations += costs.live_allocations;
        }
    }

    pub fn named(&self) -> BTreeMap<String, u64> {
        let sums = self.costs.named().into_iter().filter(|(name, _)| !NO_SUMS.contains(name));
        let leaked = [("leaked_bytes", self.leaked_bytes), ("leaked_allocations", self.leaked_allocations)];
        sums.chain(leaked).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Trace {
    /// The levels of a stack that the query shows, leaf first. Returns one `None` if all levels are hidden.
    pub fn shown(&self, stack: usize, query: &Query) -> Vec<Option<&Level>> {
        let is_shown = |level: &&Level| !level.class.is_some_and(|class| query.hide.contains(&class));
        let mut levels: Vec<Option<&Level>> = self.stacks[stack].iter().filter(is_shown).map(Some).collect();
        if query.collapse {
            levels.dedup_by_key(|level| key(*level, query.merge));
        }
        if levels.is_empty() { vec![None] } else { levels }
    }

    /// The index of the known leak that a stack matches, if any. The innermost level that matches a pattern decides. In
    /// it, the module is compared first, then the function, the raw name and the file, each with all patterns in order.
    pub fn suppressed(&self, stack: usize, patterns: &[String]) -> Option<usize> {
        self.stacks[stack].iter().find_map(|level| {
            let texts = [&level.module, &level.function, &level.raw, &level.file];
            let of = |text: &Option<String>| patterns.iter().position(|p| text.as_ref().is_some_and(|t| t.contains(p)));
            texts.into_iter().find_map(of)
        })
    }
}
