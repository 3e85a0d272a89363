//! The view Flame graph: boxes from the root at the top to the functions that allocate. A box is as wide as its share.
use super::names::name_of;
use super::tree::of_node;
use crate::answer::Answer;
use crate::screen::Screen;
use crate::units::{amount, percent};
use analysis::Cost;
use analysis::view::{LazyNodeId, LazyTree};

/// The selected box and the one that fills the width, as the identities of the boxes from the root to them.
#[derive(Default)]
pub(crate) struct Flame {
    pub(crate) selected: Vec<u64>,
    /// How many boxes of `selected` are above and including the one that fills the width.
    pub(crate) zoom: usize,
    /// The first line of boxes that is seen.
    pub(crate) top: usize,
}

/// A box on the screen.
#[derive(Clone, Debug)]
pub(crate) struct FlameBox {
    pub(crate) node: LazyNodeId,
    pub(crate) x: usize,
    pub(crate) width: usize,
    pub(crate) depth: usize,
    /// The identities of the boxes from the root to this one.
    pub(crate) path: Vec<u64>,
}

fn value(tree: &LazyTree, node: LazyNodeId, cost: Cost) -> u64 {
    tree.total(node).cost(cost).max(0) as u64
}

fn child(tree: &mut LazyTree, node: LazyNodeId, identity: u64) -> Option<LazyNodeId> {
    let children = tree.children(node).to_vec();
    children.into_iter().find(|child| tree.identity(*child) == identity)
}

impl Flame {
    /// Forgets boxes that are no longer in the tree.
    pub(crate) fn refresh(&mut self, tree: &mut LazyTree) {
        let mut node = LazyTree::TOP;
        for at in 0..self.selected.len() {
            match child(tree, node, self.selected[at]) {
                Some(found) => node = found,
                None => {
                    self.selected.truncate(at);
                    break;
                }
            }
        }
        self.zoom = self.zoom.min(self.selected.len());
    }

    /// The selected box. Boxes on the way to it have been opened by `refresh` or `boxes`.
    pub(crate) fn selected_node(&self, tree: &LazyTree) -> Option<LazyNodeId> {
        let mut node = LazyTree::TOP;
        for identity in &self.selected {
            node = *tree.known_children(node).iter().find(|child| tree.identity(**child) == *identity)?;
        }
        Some(node)
    }

    /// All boxes that are at least one cell wide, and how many are not. `lines`: the most lines that are needed.
    pub(crate) fn boxes(&self, tree: &mut LazyTree, cost: Cost, width: usize, lines: usize) -> (Vec<FlameBox>, usize) {
        let mut boxes = Vec::new();
        let mut hidden = 0;
        let mut node = LazyTree::TOP;
        let mut path = Vec::new();
        for depth in 0..=self.zoom {
            boxes.push(FlameBox { node, x: 0, width, depth, path: path.clone() });
            let Some(identity) = self.selected.get(depth).filter(|_| depth < self.zoom) else { break };
            let Some(next) = child(tree, node, *identity) else { break };
            node = next;
            path.push(*identity);
        }
        let mut pending: Vec<FlameBox> = boxes.last().cloned().into_iter().collect();
        while let Some(parent) = pending.pop() {
            let whole = value(tree, parent.node, cost);
            if parent.depth + 1 >= lines || whole == 0 {
                continue;
            }
            let mut before = 0u64;
            for node in tree.children(parent.node).to_vec() {
                let own = value(tree, node, cost);
                let cell = |value: u64| (value as u128 * parent.width as u128 / whole as u128) as usize;
                let (start, end) = (cell(before), cell(before.saturating_add(own)));
                before = before.saturating_add(own);
                if end <= start {
                    hidden += usize::from(own > 0);
                    continue;
                }
                let mut path = parent.path.clone();
                path.push(tree.identity(node));
                let made = FlameBox { node, x: parent.x + start, width: end - start, depth: parent.depth + 1, path };
                boxes.push(made.clone());
                pending.push(made);
            }
        }
        (boxes, hidden)
    }

    /// Moves the selection to a neighbour.
    pub(crate) fn step(&mut self, boxes: &[FlameBox], direction: Step) {
        let now = boxes.iter().find(|flame| flame.path == self.selected);
        let Some(now) = now else {
            self.selected.clear();
            return;
        };
        let next = match direction {
            Step::Up => {
                self.selected.pop();
                self.zoom = self.zoom.min(self.selected.len());
                return;
            }
            Step::Down => {
                let below =
                    boxes.iter().filter(|flame| flame.depth == now.depth + 1 && flame.path.starts_with(&now.path));
                below.max_by_key(|flame| flame.width)
            }
            Step::Left => {
                let left = boxes.iter().filter(|flame| flame.depth == now.depth && flame.x < now.x);
                left.max_by_key(|flame| flame.x)
            }
            Step::Right => {
                let right = boxes.iter().filter(|flame| flame.depth == now.depth && flame.x > now.x);
                right.min_by_key(|flame| flame.x)
            }
        };
        if let Some(next) = next {
            self.selected.clone_from(&next.path);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Up,
    Down,
    Left,
    Right,
}

/// The text in a box: its name and, if there is room, its value.
pub(crate) fn box_label(
    screen: &Screen,
    answer: &Answer,
    tree: &LazyTree,
    node: LazyNodeId,
    cost: Cost,
    cells: usize,
) -> String {
    let all = tree.total(LazyTree::TOP).cost(cost);
    let value = tree.total(node).cost(cost);
    let name = match node {
        LazyTree::TOP => "all".to_owned(),
        _ => name_of(&answer.table, tree.level(node), screen.has_full_names),
    };
    crate::text::with_place(&name, &format!("{} {}", amount(value, cost), percent(value, all)), cells)
}

pub(super) fn details(screen: &Screen, answer: &Answer, tree: &LazyTree) -> Vec<String> {
    let Some(node) = screen.flame.selected_node(tree) else { return Vec::new() };
    let mut lines = of_node(answer, tree, node);
    if node == LazyTree::TOP {
        lines[0] = "all stacks".into();
    }
    lines
}
