//! The part of a trace that is exported: stacks with their costs, for formats that have no events.
use analysis::view::Paths;
use analysis::{Definitions, Detail, NodeId, Range, SiteId, StackTable, StackTableLevel};

pub struct Selected<'a> {
    pub definitions: &'a Definitions,
    pub table: &'a StackTable,
    /// The levels of each stack that are shown.
    pub paths: Paths<'a>,
    pub range: Range,
    pub rows: &'a [Detail],
    /// When the program's total was highest within the range.
    pub peak_time_ns: u64,
    /// Known leaks do not count as leaked.
    pub suppress: bool,
    /// The program reported the blocks itself.
    pub is_custom: bool,
}

impl Selected<'_> {
    pub(crate) fn is_suppressed(&self, site: SiteId) -> bool {
        self.suppress && self.table.stack(site).suppressed.is_some()
    }

    /// The bytes and blocks that a row leaked.
    pub(crate) fn leaked(&self, row: &Detail) -> (u64, u64) {
        if self.is_suppressed(row.site) { (0, 0) } else { (row.costs.live_bytes, row.costs.live_allocations) }
    }

    /// The levels of a stack, innermost first, as indexes of the table's levels. Empty if none is shown or known.
    pub(crate) fn levels(&self, site: SiteId, path: &mut Vec<NodeId>) {
        self.paths.find(site, path);
        let level = |node: &NodeId| self.table.nodes.get(*node as usize)?.level;
        let levels: Vec<u32> = path.iter().filter_map(level).collect();
        *path = levels;
    }

    pub(crate) fn level(&self, level: u32) -> Option<&StackTableLevel> {
        self.table.levels.get(level as usize)
    }

    pub(crate) fn command(&self) -> String {
        self.definitions.session.command.join(" ")
    }
}

/// The name of a level that has no function: `module+offset`, or the address if there is no module.
pub(crate) fn unnamed(table: &StackTable, level: &StackTableLevel) -> String {
    let offset = level.offset.unwrap_or(0);
    match table.text(level.module) {
        Some(module) => format!("{}+{offset:#x}", module.rsplit('/').next().unwrap_or(module)),
        None => format!("{offset:#x}"),
    }
}

/// The full name of a level.
pub(crate) fn name(table: &StackTable, level: &StackTableLevel) -> String {
    table.text(level.function).map_or_else(|| unnamed(table, level), str::to_owned)
}

/// The name of a stack of which no level is known or shown.
pub(crate) const NOTHING: &str = "??";
