//! The view Compare: what changed since another trace, or since another moment of this one.
use crate::answer::Comparison;
use crate::screen::Screen;
use crate::sheet::{Cell, Column, Sheet};
use crate::units::{amount, full, signed};
use analysis::view::{FunctionDiff, State};

fn change(row: &FunctionDiff) -> String {
    match (row.state, row.percent) {
        (State::New, _) => "new".into(),
        (State::Gone, _) => "gone".into(),
        (State::Same, _) => "same".into(),
        (State::Changed, Some(percent)) => format!("{percent:+.0} %"),
        (State::Changed, None) => String::new(),
    }
}

pub(super) fn sheet<'a>(screen: &'a Screen, comparison: &'a Comparison, width: usize) -> Sheet<'a> {
    let cost = comparison.cost;
    let (before, after) = (amount(comparison.before, cost), amount(comparison.after, cost));
    let title = format!("What changed: {before} → {after}");
    let mut columns = vec![Column::name(&title), Column::number("Change"), Column::wide("", 9)];
    let has_both = width >= 74;
    if has_both {
        columns.extend([Column::number("Before"), Column::number("After")]);
    }
    let theme = screen.theme;
    let row = move |row: usize| -> Vec<Cell> {
        let Some(function) = comparison.rows.get(row) else { return Vec::new() };
        let style = if function.delta > 0 { theme.more() } else { theme.less() };
        let place = function.file.as_deref().or(function.module.as_deref()).unwrap_or_default();
        let name = match &function.function {
            Some(full) if screen.has_full_names => full,
            _ => &function.short,
        };
        let mut cells = vec![
            Cell::placed(name.clone(), place.rsplit('/').next().unwrap_or(place).to_owned()),
            Cell::styled(signed(function.delta, cost), style),
            change(function).into(),
        ];
        if has_both {
            cells.extend([amount(function.before, cost).into(), amount(function.after, cost).into()]);
        }
        cells
    };
    Sheet { columns, len: comparison.rows.len(), row: Box::new(row) }
}

pub(super) fn details(comparison: &Comparison, row: usize) -> Vec<String> {
    let Some(function) = comparison.rows.get(row) else { return Vec::new() };
    let cost = comparison.cost;
    let mut lines = vec![function.function.clone().unwrap_or_else(|| function.short.clone())];
    lines.extend(function.file.clone());
    lines.extend(function.module.as_ref().map(|module| format!("in {module}")));
    lines.push(format!("Change: {} ({})", signed(function.delta, cost), change(function)));
    lines.push(format!("Before: {}", full(function.before, cost)));
    lines.push(format!("After: {}", full(function.after, cost)));
    lines
}
