//! The view Source: files with their costs, or the lines of one file with its text, if the file is here.
use super::{CostColumns, values};
use crate::answer::Answer;
use crate::screen::Screen;
use crate::sheet::{Cell, Column, Sheet};
use crate::units::amount;
use analysis::view::{SourceFile, SourceLine};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// A file whose lines are shown.
pub(crate) struct SourceText {
    pub(crate) file: String,
    /// The text of the file. Empty if it cannot be read here.
    lines: Vec<String>,
}

/// The most bytes of a file that are read.
const MOST: u64 = 8 << 20;

impl SourceText {
    pub(crate) fn read(file: &str) -> SourceText {
        let is_file = std::fs::metadata(file).is_ok_and(|data| data.is_file());
        let lines = File::open(file).ok().filter(|_| is_file).map(|file| {
            let lines = BufReader::new(file.take(MOST)).split(b'\n').map_while(Result::ok);
            lines.map(|line| String::from_utf8_lossy(&line).replace('\t', "    ")).collect()
        });
        SourceText { file: file.to_owned(), lines: lines.unwrap_or_default() }
    }

    /// The line with the highest cost of those in `lines`, as a row.
    pub(crate) fn first_row(&self, answer: &Answer, files: &[SourceFile]) -> usize {
        let cost = answer.question.cost();
        let Some(file) = files.iter().find(|file| file.file == self.file) else { return 0 };
        let most = file.lines.iter().max_by_key(|line| line.inclusive.cost(cost).unsigned_abs());
        match (self.lines.is_empty(), most) {
            (_, None) => 0,
            (true, Some(most)) => file.lines.iter().position(|line| line.line == most.line).unwrap_or(0),
            (false, Some(most)) => most.line.saturating_sub(1) as usize,
        }
    }

    fn len(&self, file: &SourceFile) -> usize {
        if self.lines.is_empty() { file.lines.len() } else { self.lines.len() }
    }

    /// The number of the line in a row, and its costs.
    fn line<'a>(&self, file: &'a SourceFile, row: usize) -> (u32, Option<&'a SourceLine>) {
        if self.lines.is_empty() {
            let line = file.lines.get(row);
            return (line.map_or(0, |line| line.line), line);
        }
        let number = row as u32 + 1;
        let found = file.lines.binary_search_by_key(&number, |line| line.line).ok();
        (number, found.and_then(|at| file.lines.get(at)))
    }
}

pub(super) fn sheet<'a>(screen: &'a Screen, answer: &'a Answer, files: &'a [SourceFile], width: usize) -> Sheet<'a> {
    let question = &answer.question;
    let opened = screen.source.as_ref();
    if let Some((text, file)) = opened.and_then(|text| Some((text, files.iter().find(|file| file.file == text.file)?)))
    {
        let cost = question.cost();
        let name = crate::question::cost_name(cost, question.mode());
        let columns = vec![Column::name(&text.file), Column::number(name), Column::number("Self")];
        let row = move |row: usize| -> Vec<Cell> {
            let (number, costs) = text.line(file, row);
            let code = text.lines.get(row).map_or("", String::as_str);
            let value = |sum: &analysis::view::Sum| Some(sum.cost(cost)).filter(|value| *value != 0);
            let shown = |value: Option<i64>| value.map(|value| amount(value, cost)).unwrap_or_default();
            let style = if costs.is_some() { Default::default() } else { screen.theme.faint() };
            let line = Cell::styled(format!("{number:>5} {code}"), style);
            let inclusive = shown(costs.and_then(|line| value(&line.inclusive)));
            vec![line, inclusive.into(), shown(costs.and_then(|line| value(&line.own))).into()]
        };
        return Sheet { columns, len: text.len(file), row: Box::new(row) };
    }
    let costs = CostColumns::new(question.cost(), question.mode(), width);
    let mut columns = costs.columns("File, and its line with the highest cost");
    columns.truncate(2);
    let cost = question.cost();
    let row = move |row: usize| -> Vec<Cell> {
        let Some(file) = files.get(screen.source_order.get(row).copied().unwrap_or(row)) else { return Vec::new() };
        let most = most_expensive(file, cost);
        let name = most.map_or_else(|| file.file.clone(), |line| format!("{}:{}", file.file, line.line));
        vec![name.into(), amount(most.map_or(0, |line| line.inclusive.cost(cost)), cost).into()]
    };
    Sheet { columns, len: files.len(), row: Box::new(row) }
}

fn most_expensive(file: &SourceFile, cost: analysis::Cost) -> Option<&SourceLine> {
    file.lines.iter().max_by_key(|line| line.inclusive.cost(cost).unsigned_abs())
}

/// The files in the order in which they are listed: those with the most expensive own lines first.
pub(crate) fn order(files: &[SourceFile], cost: analysis::Cost) -> Vec<usize> {
    let own = |file: &SourceFile| {
        file.lines.iter().map(|line| line.own.cost(cost).unsigned_abs()).fold(0u64, u64::saturating_add)
    };
    let inclusive =
        |file: &SourceFile| most_expensive(file, cost).map_or(0, |line| line.inclusive.cost(cost).unsigned_abs());
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse((inclusive(&files[*at]), own(&files[*at]))));
    order
}

pub(super) fn details(screen: &Screen, answer: &Answer, files: &[SourceFile], row: usize) -> Vec<String> {
    if let Some(text) = &screen.source {
        let Some(file) = files.iter().find(|file| file.file == text.file) else { return Vec::new() };
        let (number, costs) = text.line(file, row);
        let mut lines = vec![format!("{}:{number}", file.file)];
        lines
            .extend(costs.into_iter().flat_map(|line| values(&line.inclusive, &answer.totals, answer.question.mode())));
        if text.lines.is_empty() {
            lines.push("The file is not on this machine, so only its lines with costs are listed.".into());
        }
        return lines;
    }
    let Some(file) = files.get(screen.source_order.get(row).copied().unwrap_or(row)) else { return Vec::new() };
    vec![file.file.clone(), format!("{} with costs", crate::units::several(file.lines.len() as u64, "line"))]
}

pub(super) fn only(screen: &Screen, files: &[SourceFile], row: usize) -> Option<(&'static str, String)> {
    let file = match &screen.source {
        Some(text) => &text.file,
        None => &files.get(screen.source_order.get(row).copied().unwrap_or(row))?.file,
    };
    Some(("include", format!("file:{file}")))
}
