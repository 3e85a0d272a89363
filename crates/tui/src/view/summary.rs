//! The view Summary: the totals, and the largest owners of each measure.
use super::mine::of_row;
use super::names::{name_of, place_of};
use crate::answer::{Answer, SummaryList};
use crate::question::Mode;
use crate::screen::Screen;
use crate::text;
use crate::units::{amount, bytes, exact, percent, time};
use analysis::view::Blamed;
use analysis::{Cost, Variances, to_signed};
use format::Variance;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// How many rows of each list are shown. All lists show as many.
fn rows_of(screen: &Screen, list: &SummaryList) -> usize {
    list.rows.len().min(screen.summary_rows.get())
}

pub(super) fn len(screen: &Screen, lists: &[SummaryList]) -> usize {
    lists.iter().map(|list| rows_of(screen, list)).sum()
}

/// The list and the row that a number of a row means. Rows are numbered through all lists.
pub(crate) fn find<'a>(screen: &Screen, lists: &'a [SummaryList], mut row: usize) -> Option<(Cost, &'a Blamed)> {
    for list in lists {
        let shown = rows_of(screen, list);
        if row < shown {
            return list.rows.get(row).map(|blamed| (list.cost, blamed));
        }
        row -= shown;
    }
    None
}

pub(super) fn details(screen: &Screen, answer: &Answer, lists: &[SummaryList], row: usize) -> Vec<String> {
    find(screen, lists, row).map(|(_, blamed)| of_row(answer, blamed)).unwrap_or_default()
}

/// Draws the totals, and the lists in two columns if there is room for them, else below each other.
pub(crate) fn draw(screen: &Screen, answer: &Answer, lists: &[SummaryList], area: Rect, buffer: &mut Buffer) {
    let mut y = area.y;
    for line in totals(screen, answer) {
        for line in text::wrap(&line, area.width as usize) {
            if y < area.bottom() {
                buffer.set_stringn(area.x, y, line, area.width as usize, ratatui::style::Style::new());
                y += 1;
            }
        }
    }
    let rest = Rect { y, height: area.bottom().saturating_sub(y), ..area };
    let columns = if rest.width >= 76 && lists.len() > 1 { 2 } else { 1 };
    let lines = lists.len().div_ceil(columns).max(1);
    let height = rest.height as usize / lines;
    screen.summary_rows.set(height.saturating_sub(1));
    let selected = screen.place().selected;
    let mut first = 0;
    for (number, list) in lists.iter().enumerate() {
        let width = (rest.width as usize + 1 - columns) / columns;
        let x = rest.x + ((width + 1) * (number % columns)) as u16;
        let y = rest.y + (height * (number / columns)) as u16;
        let area = Rect { x, y, width: width as u16, height: height as u16 };
        draw_list(screen, answer, list, selected.checked_sub(first), area, buffer);
        first += rows_of(screen, list);
    }
}

fn draw_list(
    screen: &Screen,
    answer: &Answer,
    list: &SummaryList,
    selected: Option<usize>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let width = area.width as usize;
    if area.height == 0 {
        return;
    }
    let title = format!("{}  {}", list.title, amount(list.total, list.cost));
    buffer.set_stringn(area.x, area.y, title, width, screen.theme.title());
    let shown = rows_of(screen, list);
    for (number, blamed) in list.rows.iter().take(shown).enumerate() {
        let level = answer.table.level(blamed.node);
        let name = name_of(&answer.table, level, screen.has_full_names);
        let room = width.saturating_sub(20);
        let name = text::with_place(&name, &place_of(&answer.table, level), room);
        let numbers = format!(
            "{} {}",
            text::right(&amount(blamed.value, list.cost), 11),
            text::right(&percent(blamed.value, list.total), 6)
        );
        let line = format!("{numbers}  {}", text::left(&name, room));
        let style = if selected == Some(number) { screen.theme.selected() } else { ratatui::style::Style::new() };
        buffer.set_stringn(area.x, area.y + 1 + number as u16, line, width, style);
    }
    if list.rows.is_empty() && area.height > 1 {
        buffer.set_stringn(area.x, area.y + 1, "nothing", width, screen.theme.faint());
    }
}

/// The totals of what is shown, in a sentence or two.
fn totals(screen: &Screen, answer: &Answer) -> Vec<String> {
    let sum = &answer.totals;
    let costs = &sum.costs;
    // The intervals are those of all blocks in the whole session.
    let is_whole = answer.question.mode() == Mode::Session && answer.question.filters.is_empty();
    let errors = screen.info.as_ref().and_then(|info| info.errors).filter(|_| is_whole);
    let within = |variance: fn(&Variances) -> Variance, show: fn(i64) -> String| {
        errors.map_or_else(String::new, |errors| format!(" ± {}", show(to_signed(variance(&errors).error()))))
    };
    let live = format!("{} in {} blocks", bytes(to_signed(costs.live_bytes)), exact(to_signed(costs.live_allocations)));
    let counts = format!(
        "{}{} allocations of {}{}, {}{} temporary",
        exact(to_signed(costs.allocations)),
        within(|errors| errors.allocations, exact),
        bytes(to_signed(costs.allocated_bytes)),
        within(|errors| errors.allocated_bytes, bytes),
        exact(to_signed(costs.temporary)),
        within(|errors| errors.temporary, exact)
    );
    let peak_error = within(|errors| errors.peak_bytes, bytes);
    let peak = format!("{}{peak_error} at {}", bytes(to_signed(costs.peak_bytes)), time(answer.peak_time_ns));
    let mut lines = vec![match answer.question.mode() {
        Mode::Moment => format!("Live {live}"),
        Mode::Range => {
            let growth = crate::units::signed(sum.cost(Cost::Growth), Cost::Growth);
            format!("Peak in range {peak} · growth {growth} · live at end {live} · {counts}")
        }
        Mode::Session => {
            let leaked = format!(
                "leaked {}{} in {}{} blocks",
                bytes(to_signed(sum.leaked_bytes)),
                within(|errors| errors.live_bytes, bytes),
                exact(to_signed(sum.leaked_allocations)),
                within(|errors| errors.live_allocations, exact)
            );
            let rss = screen.info.as_ref().map_or(0, |info| info.totals.peak_rss_bytes);
            let rss = if rss > 0 { format!(" · peak RSS {}", bytes(to_signed(rss))) } else { String::new() };
            format!("Peak {peak} · {leaked} · {counts}{rss}")
        }
    }];
    let notes = screen.info.as_ref().map(|info| info.notes.as_slice()).unwrap_or_default();
    lines.extend(notes.iter().take(2).cloned());
    lines
}
