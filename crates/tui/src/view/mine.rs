//! The view Your code: costs by the innermost frame of the user's own code.
use super::names::{about, name_of, place_of, stack_lines};
use super::{CostColumns, values};
use crate::answer::Answer;
use crate::screen::Screen;
use crate::sheet::{Cell, Sheet};
use analysis::view::Blamed;

pub(super) fn sheet<'a>(screen: &'a Screen, answer: &'a Answer, rows: &'a [Blamed], width: usize) -> Sheet<'a> {
    let question = &answer.question;
    let costs = CostColumns::new(question.cost(), question.mode(), width);
    let columns = costs.columns("Your code");
    let row = move |row: usize| -> Vec<Cell> {
        let Some(blamed) = rows.get(row) else { return Vec::new() };
        let level = answer.table.level(blamed.node);
        let name = name_of(&answer.table, level, screen.has_full_names);
        let name = Cell::placed(name, place_of(&answer.table, level));
        let mut cells = vec![name];
        cells.extend(costs.cells(&blamed.sum, &answer.totals).into_iter().map(Cell::from));
        cells
    };
    Sheet { columns, len: rows.len(), row: Box::new(row) }
}

pub(super) fn details(answer: &Answer, rows: &[Blamed], row: usize) -> Vec<String> {
    rows.get(row).map(|blamed| of_row(answer, blamed)).unwrap_or_default()
}

pub(super) fn of_row(answer: &Answer, blamed: &Blamed) -> Vec<String> {
    let mut lines = about(&answer.table, answer.table.level(blamed.node));
    lines.extend(values(&blamed.sum, &answer.totals, answer.question.mode()));
    lines.push("Its largest stack, innermost first:".into());
    lines.extend(stack_lines(&answer.table, blamed.stack));
    lines
}
