//! The part of a trace that is exported: stacks with their costs, for formats that have no events.
use crate::redaction::Redaction;
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
    /// The blocks are not malloc's: the program reported them itself, or they are its mappings.
    pub is_custom: bool,
    /// What must not be in the export. The table's texts are redacted already.
    pub redaction: Option<&'a Redaction>,
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

    /// The bytes in which one block was taken on average. 1 if every block was recorded.
    pub(crate) fn period(&self) -> u64 {
        self.definitions.session.sampling.map_or(1, |sampling| sampling.rate)
    }

    pub(crate) fn command(&self) -> String {
        match self.redaction {
            None => self.definitions.session.command.join(" "),
            Some(redaction) => redaction.path(&self.definitions.session.exe).to_owned(),
        }
    }

    pub(crate) fn path<'b>(&self, path: &'b str) -> &'b str {
        self.redaction.map_or(path, |redaction| redaction.path(path))
    }

    /// The sentences about what was not recorded.
    pub(crate) fn not_recorded(&self) -> Vec<String> {
        let sampling = self.definitions.session.sampling;
        let sampled = sampling.map(|sampling| {
            format!("sampled, on average once in {} bytes: the numbers are estimates for all blocks", sampling.rate)
        });
        let unseen = self.definitions.unseen.iter().map(|unseen| format!("not recorded: {}", unseen.sentence));
        let sentences = sampled.into_iter().chain(self.definitions.losses.sentences()).chain(unseen);
        sentences.map(|text| self.redaction.map_or_else(|| text.clone(), |redaction| redaction.text(&text))).collect()
    }

    /// Divides levels, innermost first, into frames: inlined functions are in the frame of their caller.
    pub(crate) fn frames<'b>(&self, levels: &'b [u32]) -> Vec<&'b [u32]> {
        let frame = |level: u32| self.level(level).map(|level| level.frame.0);
        levels.chunk_by(|inner, outer| outer > inner && frame(*inner) == frame(*outer)).collect()
    }

    /// The address of a frame in the program. A return address is after the call, so one less is within it.
    pub(crate) fn address(&self, level: &StackTableLevel) -> u64 {
        if level.frame.is_marker() {
            return 0;
        }
        let bias = self.definitions.module(level.frame).map_or(0, |module| module.bias);
        bias.wrapping_add(level.frame.offset()).wrapping_sub(!level.frame.is_exact() as u64)
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
