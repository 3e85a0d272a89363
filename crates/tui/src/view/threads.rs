//! The view Threads.
use super::{CostColumns, values};
use crate::answer::Answer;
use crate::sheet::{Cell, Sheet};
use analysis::view::ThreadRow;

fn name(thread: &ThreadRow) -> String {
    let name = thread.name.as_deref().unwrap_or("thread");
    match thread.tid {
        Some(tid) => format!("{name}  {tid}"),
        None => format!("{name} {}", thread.index),
    }
}

pub(super) fn sheet<'a>(answer: &'a Answer, rows: &'a [ThreadRow], width: usize) -> Sheet<'a> {
    let question = &answer.question;
    let costs = CostColumns::new(question.cost(), question.mode(), width);
    let columns = costs.columns("Thread");
    let row = move |row: usize| -> Vec<Cell> {
        let Some(thread) = rows.get(row) else { return Vec::new() };
        let mut cells = vec![Cell::from(name(thread))];
        cells.extend(costs.cells(&thread.sum, &answer.totals).into_iter().map(Cell::from));
        cells
    };
    Sheet { columns, len: rows.len(), row: Box::new(row) }
}

pub(super) fn details(answer: &Answer, rows: &[ThreadRow], row: usize) -> Vec<String> {
    let Some(thread) = rows.get(row) else { return Vec::new() };
    let mut lines = vec![format!("{}, thread {} of the trace", name(thread), thread.index)];
    lines.extend(values(&thread.sum, &answer.totals, answer.question.mode()));
    lines
}
