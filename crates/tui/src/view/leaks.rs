//! The view Leaks: what was not freed, with a verdict.
use super::names::{about, name_of, place_of, stack_lines};
use crate::answer::Answer;
use crate::screen::Screen;
use crate::sheet::{Cell, Column, Sheet};
use crate::units::{bytes, exact, full, percent, time};
use analysis::view::Leak;
use analysis::{Cost, to_signed};

/// How many blocks are left. In a trace with a size limit only the later allocations are counted, and more blocks than
/// that may be live.
fn kept(leak: &Leak) -> String {
    let live = exact(to_signed(leak.live_allocations));
    match leak.live_allocations <= leak.allocations {
        true => format!("{live} of {}", exact(to_signed(leak.allocations))),
        false => live,
    }
}

pub(super) fn sheet<'a>(screen: &'a Screen, answer: &'a Answer, rows: &'a [Leak], width: usize) -> Sheet<'a> {
    let mut columns = vec![
        Column::name("Not freed: leak or not?"),
        Column::wide("Verdict", 13),
        Column::number("Leaked"),
        Column::wide("", super::SHARE),
    ];
    let has_kept = width >= 84;
    if has_kept {
        columns.push(Column::wide("Kept", 21));
    }
    let total = to_signed(answer.totals.leaked_bytes);
    let row = move |row: usize| -> Vec<Cell> {
        let Some(leak) = rows.get(row) else { return Vec::new() };
        let level = answer.table.level(leak.node);
        let name = name_of(&answer.table, level, screen.has_full_names);
        let name = Cell::placed(name, place_of(&answer.table, level));
        let label = if leak.suppressed.is_some() { "suppressed" } else { leak.verdict.words().0 };
        let share = if leak.suppressed.is_some() { String::new() } else { percent(to_signed(leak.live_bytes), total) };
        let mut cells = vec![
            name,
            Cell::styled(label.into(), screen.theme.verdict(leak.verdict)),
            bytes(to_signed(leak.live_bytes)).into(),
            share.into(),
        ];
        if has_kept {
            cells.push(kept(leak).into());
        }
        cells
    };
    Sheet { columns, len: rows.len(), row: Box::new(row) }
}

pub(super) fn details(answer: &Answer, rows: &[Leak], row: usize) -> Vec<String> {
    let Some(leak) = rows.get(row) else { return Vec::new() };
    let (label, meaning) = leak.verdict.words();
    let mut lines = about(&answer.table, answer.table.level(leak.node));
    lines.push(format!("{label}: {}", leak.reason));
    lines.push(meaning.into());
    lines.push(format!("Leaked: {}, {} kept", full(to_signed(leak.live_bytes), Cost::Leaked), kept(leak)));
    if leak.growth_bytes_per_second > 0 {
        lines.push(format!("Grows by {}/s", bytes(leak.growth_bytes_per_second)));
    }
    if let Some((first, last)) = leak.first_ns.zip(leak.last_ns) {
        lines.push(format!("Allocated from {} to {}", time(first), time(last)));
    }
    lines.extend(leak.age_ns.map(|age| format!("Oldest live block: {}", time(age))));
    lines.extend(leak.suppressed.as_ref().map(|pattern| format!("Known leak, suppressed by leak:{pattern}")));
    lines.push("Its stack, innermost first:".into());
    lines.extend(stack_lines(&answer.table, leak.stack));
    lines
}
