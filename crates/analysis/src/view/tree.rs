//! The views bottom-up and top-down: the stacks of a profile as a tree of rows.
use super::cut;
use super::keys::{Key, Keys};
use super::sum::{Known, Sum};
use crate::known_costs::KnownCosts;
use crate::profile::Profile;
use crate::query::{Cost, Query};
use crate::stack_table::StackTable;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Where a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the innermost level to the callers.
    BottomUp,
    /// From the outermost level to the callees.
    TopDown,
}

/// The deepest tree. Readers of nested JSON are recursive.
pub(super) const DEEPEST: usize = 1000;

pub(super) struct TreeNode {
    pub(super) key: Key,
    pub(super) total: Sum,
    /// The sum of stacks that end here.
    pub(super) own: Sum,
    pub(super) children: Vec<u32>,
}

pub(crate) struct Tree<'a> {
    table: &'a StackTable,
    keys: &'a Keys,
    /// Node 0 is the parent of the roots.
    pub(super) nodes: Vec<TreeNode>,
    known: Option<KnownCosts>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(
        profile: &Profile,
        table: &'a StackTable,
        keys: &'a Keys,
        query: &Query,
        direction: Direction,
    ) -> Self {
        let top = TreeNode { key: 0, total: Sum::default(), own: Sum::default(), children: Vec::new() };
        let mut tree = Tree { table, keys, nodes: vec![top], known: profile.known };
        let mut known: HashMap<(u32, Key), u32> = HashMap::new();
        let deepest = if query.depth == 0 { DEEPEST } else { query.depth.min(DEEPEST) };
        let mut path = Vec::new();
        for (site, costs) in &profile.stacks {
            let stack = table.stack(*site);
            let suppressed = query.suppressions && stack.suppressed.is_some();
            keys.path(table, stack.node, &mut path);
            if direction == Direction::TopDown {
                path.reverse();
            }
            let mut at = 0;
            for (depth, (key, _)) in path.iter().enumerate().take(deepest) {
                at = *known.entry((at, *key)).or_insert_with(|| tree.child(at, *key));
                let node = &mut tree.nodes[at as usize];
                node.total.add(costs, suppressed);
                if depth + 1 == path.len() {
                    node.own.add(costs, suppressed);
                }
            }
        }
        tree.sort(query.cost(), query.limit);
        tree
    }

    fn child(&mut self, parent: u32, key: Key) -> u32 {
        let number = self.nodes.len() as u32;
        self.nodes.push(TreeNode { key, total: Sum::default(), own: Sum::default(), children: Vec::new() });
        self.nodes[parent as usize].children.push(number);
        number
    }

    fn sort(&mut self, cost: Cost, limit: usize) {
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by_key(|child| Reverse(self.nodes[*child as usize].total.cost(cost).unsigned_abs()));
            cut(&mut children, limit);
            self.nodes[at].children = children;
        }
    }
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("roots", &Children { tree: self, of: 0 })?;
        map.end()
    }
}

struct Children<'a> {
    tree: &'a Tree<'a>,
    of: u32,
}

impl Serialize for Children<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let children = &self.tree.nodes[self.of as usize].children;
        serializer.collect_seq(children.iter().map(|child| Branch { tree: self.tree, number: *child }))
    }
}

struct Branch<'a> {
    tree: &'a Tree<'a>,
    number: u32,
}

impl Serialize for Branch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = &self.tree.nodes[self.number as usize];
        let mut map = serializer.serialize_map(None)?;
        self.tree.keys.row(self.tree.table, node.key).entries(&mut map)?;
        let known = self.tree.known;
        map.serialize_entry("total", &Known { sum: &node.total, known })?;
        map.serialize_entry("self", &Known { sum: &node.own, known })?;
        map.serialize_entry("children", &Children { tree: self.tree, of: self.number })?;
        map.end()
    }
}
