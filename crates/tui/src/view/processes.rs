//! The view Processes.
use super::{CostColumns, values};
use crate::answer::Answer;
use crate::sheet::{Cell, Column, Sheet};
use crate::units::{bytes, full, time};
use analysis::view::{ProcessCosts, exit_words};
use analysis::{Cost, to_signed};

pub(super) fn sheet<'a>(answer: &'a Answer, rows: &'a [ProcessCosts], width: usize) -> Sheet<'a> {
    let question = &answer.question;
    let held = 12;
    let costs = CostColumns::new(question.cost(), question.mode(), width.saturating_sub(held));
    let mut columns = costs.columns("Process");
    columns.push(Column::wide("Held at peak", held));
    let row = move |row: usize| -> Vec<Cell> {
        let Some(process) = rows.get(row) else { return Vec::new() };
        let about = &process.row.process;
        let mut cells = vec![Cell::from(format!("{}  {}", about.name(), about.pid))];
        cells.extend(costs.cells(&process.sum, &answer.totals).into_iter().map(Cell::from));
        cells.push(process.held.map_or("–".to_owned(), |held| bytes(to_signed(held.bytes))).into());
        cells
    };
    Sheet { columns, len: rows.len(), row: Box::new(row) }
}

pub(super) fn details(answer: &Answer, rows: &[ProcessCosts], row: usize) -> Vec<String> {
    let Some(process) = rows.get(row) else { return Vec::new() };
    let about = &process.row.process;
    let mut lines = vec![about.command.join(" "), format!("{}, pid {}", about.exe, about.pid)];
    let ended = match (about.end, exit_words(about)) {
        (Some(end), Some(exit)) => format!("ended at {} ({exit})", time(end.at_ns)),
        _ => "runs".to_owned(),
    };
    lines.push(format!("Started at {}, {ended}", time(about.start_ns)));
    lines.extend(values(&process.sum, &answer.totals, answer.question.mode()));
    lines.extend(
        process.held.map(|held| format!("Held at the session's peak: {}", full(to_signed(held.bytes), Cost::Peak))),
    );
    lines.push(format!("Inherited: {}", full(to_signed(about.inherited_bytes), Cost::Live)));
    lines.extend(Some(about.note.clone()).filter(|note| !note.is_empty()));
    lines
}
