//! A tree of rows like those of `tree.rs`, whose rows are summed up when they are asked for.
//!
//! Receives: a profile and the table of its stacks. Must hold: a row has the same numbers as in the views bottom-up and
//! top-down. Memory grows with the rows that were asked for, not with the size of the tree.
use super::flame::label;
use super::keys::{Key, Keys};
use super::sum::Sum;
use super::tree::{DEEPEST, Direction};
use crate::profile::Profile;
use crate::query::{Cost, Query};
use crate::stack_table::{StackTable, StackTableLevel};
use foldhash::fast::FixedState;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// A row of a tree.
pub type LazyNodeId = u32;

struct LazyNode {
    key: Key,
    depth: usize,
    total: Sum,
    own: Sum,
    /// The stacks of the row, as places in the profile. They are taken out when the children are made.
    stacks: Vec<u32>,
    /// `None` until they are asked for.
    children: Option<Vec<LazyNodeId>>,
    /// How many stacks go on after this row.
    longer: usize,
    identity: u64,
}

pub struct LazyTree {
    profile: Arc<Profile>,
    table: Arc<StackTable>,
    keys: Keys,
    direction: Direction,
    cost: Cost,
    suppressions: bool,
    /// Node 0 is the parent of the roots.
    nodes: Vec<LazyNode>,
}

impl LazyTree {
    /// The row that is the parent of the roots. It has the totals.
    pub const TOP: LazyNodeId = 0;

    pub fn new(profile: Arc<Profile>, table: Arc<StackTable>, query: &Query, direction: Direction) -> Self {
        let keys = Keys::new(&table, query);
        let mut top = LazyNode::new(0, 0, 0);
        for (place, (site, costs)) in (0..).zip(&profile.stacks) {
            top.total.add(costs, query.suppressions && table.stack(*site).suppressed.is_some());
            top.stacks.push(place);
        }
        top.longer = top.stacks.len();
        let (cost, suppressions) = (query.cost(), query.suppressions);
        LazyTree { profile, table, keys, direction, cost, suppressions, nodes: vec![top] }
    }

    /// The rows below a row, the highest cost first.
    pub fn children(&mut self, node: LazyNodeId) -> &[LazyNodeId] {
        if self.nodes.get(node as usize).is_some_and(|node| node.children.is_none()) {
            let children = self.make_children(node);
            self.nodes[node as usize].children = Some(children);
        }
        self.known_children(node)
    }

    /// The rows below a row, if they were asked for before.
    pub fn known_children(&self, node: LazyNodeId) -> &[LazyNodeId] {
        self.nodes.get(node as usize).and_then(|node| node.children.as_deref()).unwrap_or_default()
    }

    pub fn has_children(&self, node: LazyNodeId) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.longer > 0 && node.depth < DEEPEST)
    }

    /// The costs of all stacks that pass through the row.
    pub fn total(&self, node: LazyNodeId) -> Sum {
        self.nodes.get(node as usize).map_or(Sum::default(), |node| node.total)
    }

    /// The costs of the stacks that end at the row.
    pub fn own(&self, node: LazyNodeId) -> Sum {
        self.nodes.get(node as usize).map_or(Sum::default(), |node| node.own)
    }

    /// A short name.
    pub fn label(&self, node: LazyNodeId) -> String {
        self.nodes
            .get(node as usize)
            .map_or_else(|| label(&self.table, None), |node| self.keys.label(&self.table, node.key))
    }

    /// The first level that the row stands for. `None` if no level of its stacks is shown.
    pub fn level(&self, node: LazyNodeId) -> Option<&StackTableLevel> {
        self.keys.level(&self.table, self.nodes.get(node as usize)?.key)
    }

    /// A number that the row with the same names and the same parents has in every tree, also after the trace has grown.
    pub fn identity(&self, node: LazyNodeId) -> u64 {
        self.nodes.get(node as usize).map_or(0, |node| node.identity)
    }

    pub const fn table(&self) -> &Arc<StackTable> {
        &self.table
    }

    fn make_children(&mut self, parent: LazyNodeId) -> Vec<LazyNodeId> {
        if !self.has_children(parent) {
            return Vec::new();
        }
        let stacks = std::mem::take(&mut self.nodes[parent as usize].stacks);
        let (depth, above) = (self.nodes[parent as usize].depth, self.nodes[parent as usize].identity);
        let mut known: HashMap<Key, LazyNodeId> = HashMap::new();
        let mut children = Vec::new();
        let mut path = Vec::new();
        for place in stacks {
            let Some((site, costs)) = self.profile.stacks.get(place as usize) else { continue };
            let stack = self.table.stack(*site);
            self.keys.path(&self.table, stack.node, &mut path);
            let at = match self.direction {
                Direction::BottomUp => depth,
                Direction::TopDown => path.len().wrapping_sub(depth + 1),
            };
            let Some((key, _)) = path.get(at) else { continue };
            let child = *known.entry(*key).or_insert_with(|| {
                let identity = FixedState::default().hash_one((above, self.keys.names(&self.table, *key)));
                self.nodes.push(LazyNode::new(*key, depth + 1, identity));
                let child = self.nodes.len() as LazyNodeId - 1;
                children.push(child);
                child
            });
            let suppressed = self.suppressions && stack.suppressed.is_some();
            let node = &mut self.nodes[child as usize];
            node.total.add(costs, suppressed);
            if depth + 1 == path.len() {
                node.own.add(costs, suppressed);
            } else {
                node.longer += 1;
                node.stacks.push(place);
            }
        }
        children.sort_by_key(|child| Reverse(self.nodes[*child as usize].total.cost(self.cost).unsigned_abs()));
        children
    }
}

impl LazyNode {
    fn new(key: Key, depth: usize, identity: u64) -> Self {
        let (total, own) = (Sum::default(), Sum::default());
        LazyNode { key, depth, total, own, stacks: Vec::new(), children: None, longer: 0, identity }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use crate::costs::Costs;
    use crate::moment::When;
    use crate::profile::Range;
    use crate::query::Merge;
    use crate::stack_table::{Node, StackTableStack};
    use format::Frame;

    /// A few functions that call each other in many ways, also themselves.
    fn random_table(random: &mut fastrand::Rng) -> StackTable {
        let mut nodes = vec![Node { parent: 0, level: None }];
        let (mut strings, mut levels, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
        for function in 0..6 {
            strings.push(format!("function {function}"));
            for line in 0..2 {
                levels.push(StackTableLevel::of_test(Frame::new(0, 1, false), function, line));
            }
        }
        for number in 1..60u32 {
            let parent = random.u32(..number);
            nodes.push(Node { parent, level: Some(random.u32(..levels.len() as u32)) });
        }
        for _ in 0..80 {
            let suppressed = random.bool().then_some(0);
            let node = random.u32(..60);
            stacks.push(StackTableStack { node, owner: node, blamed: None, suppressed });
        }
        StackTable {
            strings: strings.into(),
            levels: levels.into(),
            nodes: nodes.into(),
            stacks,
            ..StackTable::default()
        }
    }

    /// Every row has the same numbers, children and order in both trees.
    fn compare(lazy: &mut LazyTree, node: LazyNodeId, tree: &Tree<'_>, number: u32) -> usize {
        let expected = &tree.nodes[number as usize];
        if number != 0 {
            assert_eq!((lazy.total(node), lazy.own(node)), (expected.total, expected.own));
            assert_eq!(lazy.nodes[node as usize].key, expected.key);
            assert_eq!(lazy.has_children(node), !expected.children.is_empty());
        }
        let children = lazy.children(node).to_vec();
        assert_eq!(children.len(), expected.children.len());
        let below = children.iter().zip(&expected.children);
        1 + below.map(|(node, number)| compare(lazy, *node, tree, *number)).sum::<usize>()
    }

    #[test]
    fn rows_on_demand_are_those_of_the_whole_tree() {
        let mut random = fastrand::Rng::with_seed(87);
        for round in 0..40 {
            let table = Arc::new(random_table(&mut random));
            let costs =
                |value: u64| Costs { peak_bytes: value, live_bytes: value / 2, allocations: 1, ..Costs::default() };
            let stacks = (0..80).map(|site| (site, costs(random.u64(..1000)))).collect();
            let range = Range { from: When::Start, to: When::End, from_ns: 0, to_ns: 1, instant: false };
            let profile = Arc::new(Profile::new(range, stacks, 0));
            let merge = if round % 2 == 0 { Merge::Function } else { Merge::Line };
            let mut query = Query::default();
            (query.merge, query.collapse) = (merge, round % 3 == 0);
            let keys = Keys::new(&table, &query);
            for direction in [Direction::BottomUp, Direction::TopDown] {
                let tree = Tree::new(&profile, &table, &keys, &query, direction);
                let mut lazy = LazyTree::new(Arc::clone(&profile), Arc::clone(&table), &query, direction);
                let rows = compare(&mut lazy, LazyTree::TOP, &tree, 0);
                assert!(rows > 10, "{rows} rows");
                let mut again = LazyTree::new(Arc::clone(&profile), Arc::clone(&table), &query, direction);
                let first = again.children(LazyTree::TOP)[0];
                let same = lazy.children(LazyTree::TOP)[0];
                assert_eq!(again.identity(first), lazy.identity(same));
            }
        }
    }
}
