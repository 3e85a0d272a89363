//! The names of levels.
use analysis::view::label;
use analysis::{SiteId, StackTable, StackTableLevel};

/// The name of stacks that have no level to show.
const NOTHING: &str = "[outside your code]";

/// The short name of a level, or the full one.
pub(crate) fn name_of(table: &StackTable, level: Option<&StackTableLevel>, is_full: bool) -> String {
    let Some(level) = level else { return NOTHING.into() };
    match table.text(level.function).filter(|_| is_full) {
        Some(function) => function.to_owned(),
        None => label(table, Some(level)),
    }
}

/// `file:line` without the folder, or the module if the file is not known.
pub(crate) fn place_of(table: &StackTable, level: Option<&StackTableLevel>) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let Some(level) = level else { return String::new() };
    match (table.text(level.file), level.line) {
        (Some(file), Some(line)) => format!("{}:{line}", base(file)),
        (Some(file), None) => base(file),
        (None, _) => table.text(level.module).map(base).unwrap_or_default(),
    }
}

/// The filter for the function of a level, or for its module if it has no name.
pub(crate) fn function_pattern(table: &StackTable, level: Option<&StackTableLevel>) -> Option<String> {
    let level = level?;
    match table.text(level.function) {
        Some(function) => Some(format!("function:{function}")),
        None => table.text(level.module).map(|module| format!("module:{module}")),
    }
}

/// The levels of a stack, innermost first.
pub(crate) fn stack_lines(table: &StackTable, site: SiteId) -> Vec<String> {
    let stack = table.stack(site);
    let line = |node| {
        let level = table.level(node);
        let mark = if stack.owner == node { "> " } else { "  " };
        format!("{mark}{}  {}", name_of(table, level, false), place_of(table, level))
    };
    table.path(stack.node).map(line).collect()
}

/// The full name, the place and the module of a level.
pub(super) fn about(table: &StackTable, level: Option<&StackTableLevel>) -> Vec<String> {
    let mut lines = vec![name_of(table, level, true)];
    let Some(level) = level else { return lines };
    if let Some(file) = table.text(level.file) {
        lines.push(level.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}")));
    }
    lines.extend(table.text(level.module).map(|module| format!("in {module}")));
    lines
}
