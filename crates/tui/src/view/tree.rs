//! The views Bottom-up and Top-down.
use super::names::{about, name_of, place_of};
use super::{CostColumns, values};
use crate::answer::Answer;
use crate::screen::Screen;
use crate::sheet::{Cell, Sheet};
use analysis::view::{LazyNodeId, LazyTree};
use std::collections::HashSet;

/// The rows of a tree that are shown.
#[derive(Default)]
pub(crate) struct TreeRows {
    /// The rows whose children are shown, by identity.
    pub(crate) open: HashSet<u64>,
    pub(crate) rows: Vec<TreeRow>,
}

#[derive(Clone, Copy)]
pub(crate) struct TreeRow {
    pub(crate) node: LazyNodeId,
    pub(crate) depth: usize,
}

/// The most rows below an opened row that the most expensive path opens.
const LONGEST_PATH: usize = 200;

impl TreeRows {
    /// Makes the list of rows again, after rows were opened or closed or the tree is a new one.
    pub(crate) fn refresh(&mut self, tree: &mut LazyTree) {
        self.rows.clear();
        let mut pending: Vec<TreeRow> = Vec::new();
        let push = |tree: &mut LazyTree, pending: &mut Vec<TreeRow>, node, depth| {
            pending.extend(tree.children(node).iter().rev().map(|node| TreeRow { node: *node, depth }));
        };
        push(tree, &mut pending, LazyTree::TOP, 0);
        while let Some(row) = pending.pop() {
            self.rows.push(row);
            if self.open.contains(&tree.identity(row.node)) {
                push(tree, &mut pending, row.node, row.depth + 1);
            }
        }
    }

    /// The row with this identity.
    pub(crate) fn find(&self, tree: &LazyTree, identity: u64) -> Option<usize> {
        self.rows.iter().position(|row| tree.identity(row.node) == identity)
    }

    /// The row that contains a row.
    pub(crate) fn parent(&self, row: usize) -> Option<usize> {
        let depth = self.rows.get(row)?.depth;
        self.rows.get(..row)?.iter().rposition(|above| above.depth < depth)
    }

    /// Opens a row, then its most expensive child, and so on.
    pub(crate) fn open_path(&mut self, tree: &mut LazyTree, row: usize) {
        let Some(mut node) = self.rows.get(row).map(|row| row.node) else { return };
        for _ in 0..LONGEST_PATH {
            self.open.insert(tree.identity(node));
            match tree.children(node).first() {
                Some(child) => node = *child,
                None => break,
            }
        }
        self.refresh(tree);
    }
}

pub(super) fn sheet<'a>(screen: &'a Screen, answer: &'a Answer, tree: &'a LazyTree, width: usize) -> Sheet<'a> {
    let question = &answer.question;
    let costs = CostColumns::new(question.cost(), question.mode(), width);
    let columns = costs.columns("Function");
    let theme = screen.theme;
    let row = move |row: usize| -> Vec<Cell> {
        let Some(TreeRow { node, depth }) = screen.tree.rows.get(row).copied() else { return Vec::new() };
        let mark = match tree.has_children(node) {
            false => " ",
            true if screen.tree.open.contains(&tree.identity(node)) => "▾",
            true => "▸",
        };
        let level = tree.level(node);
        // Deep rows keep room for their names.
        let indent = " ".repeat(depth.min(width / 4));
        let text = format!("{indent}{mark} {}", name_of(&answer.table, level, screen.has_full_names));
        let is_mine = level.is_some_and(|level| level.class == Some(analysis::CodeClass::Program));
        let style = if is_mine { ratatui::style::Style::new() } else { theme.faint() };
        let mut cells = vec![Cell { text, style, more: place_of(&answer.table, level) }];
        cells.extend(costs.cells(&tree.total(node), &answer.totals).into_iter().map(Cell::from));
        cells
    };
    Sheet { columns, len: screen.tree.rows.len(), row: Box::new(row) }
}

pub(super) fn details(screen: &Screen, answer: &Answer, tree: &LazyTree, row: usize) -> Vec<String> {
    let Some(row) = screen.tree.rows.get(row) else { return Vec::new() };
    of_node(answer, tree, row.node)
}

pub(super) fn of_node(answer: &Answer, tree: &LazyTree, node: LazyNodeId) -> Vec<String> {
    let mut lines = about(&answer.table, tree.level(node));
    lines.extend(values(&tree.total(node), &answer.totals, answer.question.mode()));
    let own = tree.own(node).cost(answer.question.cost());
    lines.push(format!("Self: {}", crate::units::full(own, answer.question.cost())));
    lines
}
