//! A flame graph as text, for places where pictures cannot be shown, as in the summary of a pull request.
//!
//! Receives: a profile. Returns: the boxes of a flame graph, each caller before its callees. Must hold: a box that is
//! below one per cent is left out, with all boxes inside of it; the widest boxes come first.
use super::outcome::{Flame, FlameRow};
use analysis::view::folded;
use analysis::{CodeClassSet, Cost, Profile, Query, StackTable};
use std::collections::HashMap;

/// The most rows.
const ROWS: usize = 40;
/// Boxes with less than this share are left out, in per cent.
const SMALLEST: u64 = 1;
/// The width of the widest bar, in letters.
const BAR: u64 = 24;

#[derive(Default)]
struct Node {
    value: u64,
    children: HashMap<String, usize>,
}

pub fn rows(profile: &Profile, table: &StackTable, query: &Query, cost: Cost) -> Flame {
    let mut query = query.clone();
    query.cost = Some(cost);
    query.hide = hidden();
    let mut nodes = vec![Node::default()];
    for row in folded(profile, table, &query) {
        add(&mut nodes, &row.stack, row.value.unsigned_abs());
    }
    let total = nodes[0].value;
    let mut rows = Vec::new();
    let mut open: Vec<(usize, usize, String)> = Vec::new();
    push_children(&nodes, 0, 0, total, &mut open);
    while let Some((at, depth, mut name)) = open.pop() {
        // A chain of callers that all have the same value is one row.
        let (mut at, value) = (at, nodes[at].value);
        while let Some((only, child)) = nodes[at].children.iter().next().filter(|_| nodes[at].children.len() == 1) {
            if nodes[*child].value != value || name.len() + only.len() > 60 {
                break;
            }
            name = format!("{name} > {only}");
            at = *child;
        }
        rows.push(FlameRow { depth, name, value });
        if rows.len() == ROWS {
            break;
        }
        push_children(&nodes, at, depth + 1, total, &mut open);
    }
    Flame { cost, total, rows }
}

/// Levels of libc and of language runtimes are left out, because they would be most of the rows.
fn hidden() -> CodeClassSet {
    Query::new([("hide", "runtime,libc")]).unwrap_or_default().hide
}

fn add(nodes: &mut Vec<Node>, stack: &[String], value: u64) {
    let mut at = 0;
    nodes[at].value = nodes[at].value.saturating_add(value);
    for name in stack {
        let next = nodes.len();
        let child = *nodes[at].children.entry(name.clone()).or_insert(next);
        if child == next {
            nodes.push(Node::default());
        }
        at = child;
        nodes[at].value = nodes[at].value.saturating_add(value);
    }
}

fn push_children(nodes: &[Node], at: usize, depth: usize, total: u64, open: &mut Vec<(usize, usize, String)>) {
    let is_shown = |value: u64| u128::from(value) * 100 >= u128::from(total) * u128::from(SMALLEST) && value > 0;
    let mut children: Vec<(u64, &String, usize)> = nodes[at]
        .children
        .iter()
        .map(|(name, child)| (nodes[*child].value, name, *child))
        .filter(|(value, ..)| is_shown(*value))
        .collect();
    // The last one is taken first.
    children.sort_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
    open.extend(children.into_iter().map(|(_, name, child)| (child, depth, name.clone())));
}

/// The bar of a row: as wide as its share.
pub fn bar(value: u64, total: u64) -> String {
    let letters = (u128::from(value) * u128::from(BAR)).div_ceil(u128::from(total.max(1))) as usize;
    format!("{:<width$}", "█".repeat(letters), width = BAR as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_wide_as_their_share() {
        assert_eq!(bar(100, 100).trim_end().chars().count(), 24);
        assert_eq!(bar(50, 100).trim_end().chars().count(), 12);
        assert_eq!(bar(1, 100).trim_end().chars().count(), 1);
        assert_eq!(bar(0, 0), " ".repeat(24));
    }
}
