//! A table of stacks: a row for each stack that allocates, with all its costs.
//!
//! Receives: the selected stacks, with lifetimes and own peaks. Must hold: the columns are a contract with scripts. Their
//! names and meanings stay; new ones may be added at the end.
use crate::json;
use crate::selected::{NOTHING, Selected, name};
use crate::table::{Cell, TableFormat, TableWriter};
use analysis::{Costs, Detail, StackTableLevel};
use std::io::{self, Write};

/// The columns besides the costs.
const LEAKS: [&str; 5] =
    ["own_peak_allocations", "leaked_bytes", "leaked_allocations", "suppressed_bytes", "suppressed_allocations"];
const PLACES: [&str; 9] =
    ["function", "file", "line", "module", "offset", "blamed_function", "blamed_file", "blamed_line", "stack"];

pub fn write(selected: &Selected<'_>, format: TableFormat, out: &mut dyn Write) -> io::Result<()> {
    let columns = ["site"].iter().chain(Costs::NAMES).chain(&LEAKS).chain(&PLACES).chain(&["allocator"]);
    let columns: Vec<&str> = columns.copied().collect();
    let allocators = allocators(selected);
    let mut table = TableWriter::new(format, &columns, out)?;
    let mut path = Vec::new();
    for row in selected.rows {
        selected.levels(row.site, &mut path);
        let levels: Vec<&StackTableLevel> = path.iter().filter_map(|level| selected.level(*level)).collect();
        let stack = match format {
            TableFormat::Csv => folded(selected, &levels),
            TableFormat::JsonLines => frames(selected, &levels),
        };
        let mut cells = vec![Cell::Number(row.site as u64)];
        cells.extend(costs(selected, row));
        cells.extend(leaks(selected, row));
        cells.extend(places(selected, row, &levels));
        cells.push(Cell::Json(&stack));
        let allocator = allocators.get(row.site as usize).filter(|names| !names.is_empty());
        cells.push(Cell::text(allocator.map(String::as_str)));
        table.row(&cells)?;
    }
    Ok(())
}

/// The allocator of each stack. A stack that called several of them has their names with `;` between. Nothing is known for
/// heap profiles of other tools and for blocks that the program reported itself.
fn allocators(selected: &Selected<'_>) -> Vec<String> {
    if selected.definitions.profile.is_some() || selected.is_custom {
        return Vec::new();
    }
    let names: Vec<&str> = selected.definitions.allocators().collect();
    let joined = |list: &Vec<usize>| list.iter().filter_map(|at| names.get(*at).copied()).collect::<Vec<_>>().join(";");
    selected.definitions.allocators_by_site().iter().map(joined).collect()
}

/// At one instant, only live blocks are known. A heap profile of another tool has only some costs.
fn is_known(selected: &Selected<'_>, name: &str) -> bool {
    let is_live = ["live_", "leaked_", "suppressed_"].iter().any(|prefix| name.starts_with(prefix));
    (is_live || !selected.range.instant) && selected.definitions.has_cost(name)
}

fn costs<'a>(selected: &'a Selected<'_>, row: &Detail) -> impl Iterator<Item = Cell<'a>> {
    let cell =
        move |(name, value): (&&str, u64)| if is_known(selected, name) { Cell::Number(value) } else { Cell::Unknown };
    Costs::NAMES.iter().zip(row.costs.values()).map(cell)
}

fn leaks<'a>(selected: &Selected<'_>, row: &Detail) -> [Cell<'a>; 5] {
    let (bytes, blocks) = selected.leaked(row);
    let suppressed = (row.costs.live_bytes - bytes, row.costs.live_allocations - blocks);
    let values = [row.own_peak_allocations, bytes, blocks, suppressed.0, suppressed.1];
    let mut cells = [Cell::Unknown; 5];
    for ((cell, value), name) in cells.iter_mut().zip(values).zip(LEAKS) {
        if is_known(selected, name) {
            *cell = Cell::Number(value);
        }
    }
    cells
}

/// The innermost level, and the innermost one in the user's own code.
fn places<'a>(selected: &Selected<'a>, row: &Detail, levels: &[&StackTableLevel]) -> [Cell<'a>; 8] {
    let table = selected.table;
    let innermost = levels.first();
    let blamed = table.stack(row.site).blamed.and_then(|node| table.level(node));
    let line = |level: Option<&StackTableLevel>| Cell::number(level.and_then(|level| level.line).map(u64::from));
    let text = |level: Option<&StackTableLevel>, of: fn(&StackTableLevel) -> Option<u32>| {
        Cell::text(level.and_then(|level| table.text(of(level))))
    };
    let innermost = innermost.copied();
    [
        text(innermost, |level| level.function),
        text(innermost, |level| level.file),
        line(innermost),
        text(innermost, |level| level.module),
        Cell::number(innermost.and_then(|level| level.offset)),
        text(blamed, |level| level.function),
        text(blamed, |level| level.file),
        line(blamed),
    ]
}

/// `outermost;...;innermost`.
fn folded(selected: &Selected<'_>, levels: &[&StackTableLevel]) -> String {
    let names: Vec<String> = levels
        .iter()
        .rev()
        .map(|level| name(selected.table, level).replace(';', ":").replace(['\n', '\r'], " "))
        .collect();
    if names.is_empty() { NOTHING.to_owned() } else { names.join(";") }
}

/// A list of levels, innermost first, as in `print --json`.
fn frames(selected: &Selected<'_>, levels: &[&StackTableLevel]) -> String {
    #[derive(serde::Serialize)]
    struct Frame<'a> {
        function: Option<&'a str>,
        file: Option<&'a str>,
        line: Option<u32>,
        module: Option<&'a str>,
        offset: Option<u64>,
        inlined: bool,
    }
    let table = selected.table;
    let frame = |level: &&StackTableLevel| Frame {
        function: table.text(level.function),
        file: table.text(level.file),
        line: level.line,
        module: table.text(level.module),
        offset: level.offset,
        inlined: level.inlined,
    };
    json::value(&levels.iter().map(frame).collect::<Vec<_>>())
}
