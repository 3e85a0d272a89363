//! What each view shows: its rows, and the details of a row.
mod compare;
mod flame;
mod histograms;
mod leaks;
mod memory;
mod mine;
mod names;
mod processes;
mod source;
mod summary;
mod threads;
mod tree;

pub(crate) use flame::{Flame, FlameBox, Step, box_label};
pub(crate) use memory::{MemoryRow, row as memory_row};
use names::function_pattern;
pub(crate) use source::{SourceText, order as source_order};
pub(crate) use tree::TreeRows;

use crate::answer::Data;
use crate::question::{Mode, cost_name, measures};
use crate::screen::Screen;
use crate::sheet::{Column, Sheet};
use crate::units::{amount, exact, full, percent};
use analysis::view::Sum;
use analysis::{Cost, to_signed};

/// The least width of the column of names.
const NAME: usize = 30;

/// The rows of the view that is shown. `None` if it is not a table.
pub(crate) fn sheet(screen: &Screen, width: usize) -> Option<Sheet<'_>> {
    let answer = screen.answer.as_ref()?;
    Some(match &answer.data {
        Data::Summary(_) | Data::Flame(_) => return None,
        Data::Tree(tree) => tree::sheet(screen, answer, tree, width),
        Data::Mine(rows) => mine::sheet(screen, answer, rows, width),
        Data::Leaks(rows) => leaks::sheet(screen, answer, rows, width),
        Data::Sizes(rows) => histograms::sizes(answer, rows, width),
        Data::Lifetimes(rows) => histograms::lifetimes(rows, width),
        Data::Threads(rows) => threads::sheet(answer, rows, width),
        Data::Processes(rows) => processes::sheet(answer, rows, width),
        Data::Memory { instants, .. } => memory::sheet(answer, instants, width),
        Data::Source(files) => source::sheet(screen, answer, files, width),
        Data::Compare(comparison) => compare::sheet(screen, comparison, width),
    })
}

/// The number of rows that can be selected.
pub(crate) fn len(screen: &Screen) -> usize {
    match screen.answer.as_ref().map(|answer| &answer.data) {
        Some(Data::Summary(lists)) => summary::len(screen, lists),
        _ => sheet(screen, 80).map_or(0, |sheet| sheet.len),
    }
}

/// Everything that is known about the selected row, as lines. The first one is its full name.
pub(crate) fn details(screen: &Screen, row: usize) -> Vec<String> {
    let Some(answer) = screen.answer.as_ref() else { return Vec::new() };
    match &answer.data {
        Data::Summary(lists) => summary::details(screen, answer, lists, row),
        Data::Flame(tree) => flame::details(screen, answer, tree),
        Data::Tree(tree) => tree::details(screen, answer, tree, row),
        Data::Mine(rows) => mine::details(answer, rows, row),
        Data::Leaks(rows) => leaks::details(answer, rows, row),
        Data::Sizes(rows) => histograms::size_details(screen, answer, rows, row),
        Data::Lifetimes(rows) => histograms::lifetime_details(rows, row),
        Data::Threads(rows) => threads::details(answer, rows, row),
        Data::Processes(rows) => processes::details(answer, rows, row),
        Data::Memory { instants, hints } => memory::details(answer, instants, hints, row),
        Data::Source(files) => source::details(screen, answer, files, row),
        Data::Compare(comparison) => compare::details(comparison, row),
    }
}

/// The filter that shows only the selected row.
pub(crate) fn only(screen: &Screen, row: usize) -> Option<(&'static str, String)> {
    let answer = screen.answer.as_ref()?;
    let table = &answer.table;
    let function = |level| Some(("include", function_pattern(table, level)?));
    match &answer.data {
        Data::Summary(lists) => {
            let (_, blamed) = summary::find(screen, lists, row)?;
            function(table.level(blamed.node))
        }
        Data::Flame(tree) => function(tree.level(screen.flame.selected_node(tree)?)),
        Data::Tree(tree) => function(tree.level(screen.tree.rows.get(row)?.node)),
        Data::Mine(rows) => function(table.level(rows.get(row)?.node)),
        Data::Leaks(rows) => function(table.level(rows.get(row)?.node)),
        Data::Sizes(rows) => rows.get(row).map(|bucket| ("size", format!("{}..{}", bucket.from, bucket.to))),
        Data::Lifetimes(rows) => {
            rows.get(row).map(|bucket| ("lifetime", format!("{}ns..{}ns", bucket.from_ns, bucket.to_ns)))
        }
        Data::Threads(rows) => rows.get(row).map(|thread| ("thread", thread.index.to_string())),
        Data::Processes(rows) => rows.get(row).map(|process| ("process", format!("#{}", process.row.process.index))),
        Data::Memory { .. } => None,
        Data::Source(files) => source::only(screen, files, row),
        Data::Compare(comparison) => {
            let function = comparison.rows.get(row)?.function.as_ref()?;
            Some(("include", format!("function:{function}")))
        }
    }
}

pub(crate) use summary::{draw as draw_summary, find as find_in_summary};

/// The measures for which there is room, the chosen one first.
fn shown_costs(cost: Cost, mode: Mode, width: usize) -> Vec<Cost> {
    let others = measures(mode).iter().copied().filter(|other| *other != cost);
    let mut left = width.saturating_sub(NAME + SHARE + 1);
    let fits = |cost: &Cost| {
        let needed = Column::number(cost_name(*cost, mode)).width + 1;
        let has_room = needed <= left;
        left = left.saturating_sub(needed);
        has_room
    };
    std::iter::once(cost).chain(others).take_while(fits).collect()
}

/// The width of a column with shares.
const SHARE: usize = 6;

/// A name, the chosen measure with its share, and other measures.
struct CostColumns {
    mode: Mode,
    costs: Vec<Cost>,
    has_blocks: bool,
}

impl CostColumns {
    fn new(cost: Cost, mode: Mode, width: usize) -> Self {
        let costs = shown_costs(cost, mode, width);
        CostColumns { mode, costs, has_blocks: mode == Mode::Moment }
    }

    fn columns(&self, name: &str) -> Vec<Column> {
        let mut columns = vec![Column::name(name)];
        for (at, cost) in self.costs.iter().enumerate() {
            columns.push(Column::number(cost_name(*cost, self.mode)));
            if at == 0 {
                columns.push(Column::wide("", SHARE));
            }
        }
        if self.has_blocks {
            columns.push(Column::number("Live blocks"));
        }
        columns
    }

    fn cells(&self, sum: &Sum, totals: &Sum) -> Vec<String> {
        let mut cells = Vec::new();
        for (at, cost) in self.costs.iter().enumerate() {
            cells.push(amount(sum.cost(*cost), *cost));
            if at == 0 {
                // One function may grow by more than all functions together, so growth has no share.
                let share =
                    if *cost == Cost::Growth { String::new() } else { percent(sum.cost(*cost), totals.cost(*cost)) };
                cells.push(share);
            }
        }
        if self.has_blocks {
            cells.push(exact(to_signed(sum.costs.live_allocations)));
        }
        cells
    }
}

/// The exact values of a sum.
fn values(sum: &Sum, totals: &Sum, mode: Mode) -> Vec<String> {
    let line = |cost: &Cost| {
        let (value, total) = (sum.cost(*cost), totals.cost(*cost));
        let share =
            if *cost == Cost::Growth || total == 0 { String::new() } else { format!(", {}", percent(value, total)) };
        format!("{}: {}{share}", cost_name(*cost, mode), full(value, *cost))
    };
    let mut lines: Vec<String> = measures(mode).iter().map(line).collect();
    let costs = &sum.costs;
    if mode != Mode::Moment && costs.deallocations > 0 {
        lines.push(format!("Mean life: {}", lifetime(costs.lifetime_ns / costs.deallocations)));
    }
    if mode == Mode::Moment {
        lines.push(format!("Live blocks: {}", exact(to_signed(costs.live_allocations))));
    }
    lines
}

/// The times of events are known to 0.1 ms, so a shorter life has no exact number.
fn lifetime(ns: u64) -> String {
    if ns < 100_000 { "< 0.1 ms".into() } else { crate::units::time(ns) }
}
