//! The tree of calls below a function.
use super::lists::{cost_of, percent, profile};
use super::{Context, Tool, about};
use crate::arguments::Arguments;
use crate::rows::place;
use analysis::{Pattern, StackTable, StackTableLevel};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The deepest tree.
pub const DEEPEST: u64 = 60;
const DEPTH: u64 = 6;

/// What makes two levels the same: the function and the module, or the offset of code without a name.
type Key = (Option<u32>, Option<u32>, Option<u64>);

#[derive(Default)]
struct Node {
    /// A level that shows its name.
    level: u32,
    value: i64,
    /// The value of stacks that end here.
    own: i64,
    /// One of its stacks.
    site: u32,
    children: Vec<usize>,
}

struct Tree {
    /// The first one is the parent of the roots.
    nodes: Vec<Node>,
    known: HashMap<(usize, Key), usize>,
}

pub fn tree(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let name = arguments.required("function")?;
    let pattern = match name.starts_with("function:") {
        true => Pattern::parse(name),
        false => Pattern::parse(&format!("function:{name}")),
    };
    let pattern = pattern.map_err(|reason| format!("`function`: {reason}"))?;
    let depth = arguments.number("depth", 1, DEEPEST)?.unwrap_or(DEPTH) as usize;
    let asked = context.asked(arguments)?;
    let page = tool.page(arguments, &asked)?;
    let (query, profile) = profile(&asked.trace, &arguments.selection()?)?;
    let cost = cost_of(&asked.trace, &query);
    let table = asked.trace.parts().1;
    let numbered = table.levels.iter().zip(0u32..);
    let wanted: HashSet<u32> =
        numbered.filter(|(level, _)| pattern.matches_level(table, level)).map(|(_, number)| number).collect();
    let mut tree = Tree { nodes: vec![Node::default()], known: HashMap::new() };
    for (site, costs) in &profile.stacks {
        let value = cost.of(costs, query.suppressions && table.stack(*site).suppressed.is_some());
        tree.add(table, *site, value, &wanted, depth);
    }
    let rows = tree.rows();
    if rows.is_empty() {
        return Err(format!("no stack has a function like `{}`", crate::rows::shortened(name)));
    }
    let total = tree.nodes[0].value;
    let mut answer = about(&asked);
    answer["cost"] = cost.name().into();
    page.put(&mut answer, &rows, |(depth, number)| {
        let node = &tree.nodes[*number];
        let mut row = place(table, table.levels.get(node.level as usize));
        for (name, value) in [
            ("depth", (*depth).into()),
            ("site", node.site.into()),
            ("value", node.value.into()),
            ("own_value", node.own.into()),
            ("percent", percent(node.value, total)),
        ] {
            row.insert(name.into(), value);
        }
        row.into()
    });
    Ok(answer)
}

impl Tree {
    /// Adds the part of a stack from the outermost wanted level inwards.
    fn add(&mut self, table: &StackTable, site: u32, value: i64, wanted: &HashSet<u32>, depth: usize) {
        let levels: Vec<u32> =
            table.path(table.stack(site).node).filter_map(|node| table.nodes[node as usize].level).collect();
        let Some(outermost) = levels.iter().rposition(|level| wanted.contains(level)) else { return };
        if value == 0 {
            return;
        }
        self.nodes[0].value = self.nodes[0].value.saturating_add(value);
        let mut at = 0;
        for number in (0..=outermost).rev().take(depth) {
            let level = levels[number];
            let key = table.levels.get(level as usize).map_or((None, None, None), key);
            let next = self.nodes.len();
            let child = *self.known.entry((at, key)).or_insert(next);
            if child == next {
                self.nodes.push(Node { level, site, ..Node::default() });
                self.nodes[at].children.push(child);
            }
            let node = &mut self.nodes[child];
            node.value = node.value.saturating_add(value);
            if number == 0 {
                node.own = node.own.saturating_add(value);
            }
            at = child;
        }
    }

    /// Depths and nodes, each before its callees.
    fn rows(&self) -> Vec<(usize, usize)> {
        let mut rows = Vec::new();
        let mut open: Vec<(usize, usize)> = self.sorted(0).into_iter().map(|child| (0, child)).collect();
        while let Some((depth, number)) = open.pop() {
            rows.push((depth, number));
            open.extend(self.sorted(number).into_iter().map(|child| (depth + 1, child)));
        }
        rows
    }

    /// The callees, the highest value last.
    fn sorted(&self, number: usize) -> Vec<usize> {
        let mut children = self.nodes[number].children.clone();
        children.sort_by_key(|child| Reverse(self.nodes[*child].value.unsigned_abs()));
        children.reverse();
        children
    }
}

fn key(level: &StackTableLevel) -> Key {
    (level.function, level.module, level.offset.filter(|_| level.function.is_none()))
}
