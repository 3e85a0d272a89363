//! The levels of stacks that a query shows: all of them, without those that `hide` and `collapse` take out.
use super::keys::Keys;
use crate::definitions::SiteId;
use crate::query::Query;
use crate::stack_table::{NodeId, StackTable};

pub struct Paths<'a> {
    table: &'a StackTable,
    keys: Keys,
}

impl<'a> Paths<'a> {
    pub fn new(table: &'a StackTable, query: &Query) -> Self {
        Paths { table, keys: Keys::new(table, query) }
    }

    /// Puts the nodes of a stack into `path`, innermost first. It is empty if no level is shown.
    pub fn find(&self, site: SiteId, path: &mut Vec<NodeId>) {
        let mut shown = Vec::new();
        self.keys.path(self.table, self.table.stack(site).node, &mut shown);
        path.clear();
        path.extend(shown.into_iter().map(|(_, node)| node).filter(|node| *node != 0));
    }
}
