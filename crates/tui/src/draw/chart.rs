//! The timeline: the live heap over the whole session. The part that the view is about is marked.
use super::line;
use crate::question::Time;
use crate::screen::Screen;
use crate::text;
use crate::units::{bytes, time};
use analysis::When;
use analysis::to_signed;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

/// The cells for the labels on the left.
const LABELS: u16 = 9;

pub(super) fn draw(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    let chart_area = Rect {
        x: area.x + LABELS,
        width: area.width.saturating_sub(LABELS),
        height: area.height.saturating_sub(1),
        ..area
    };
    screen.areas.chart = if screen.chart.is_some() { chart_area } else { Rect::default() };
    let Some(chart) = screen.chart.as_ref().filter(|_| area.height >= 2) else { return };
    let values = columns(&chart.columns.live_bytes, chart_area.width as usize);
    let most = values.iter().copied().max().unwrap_or(0);
    let end_ns = chart.columns.time_ns.last().copied().unwrap_or(0);
    let column = |ns: u64| {
        (ns as u128 * chart_area.width as u128 / end_ns.max(1) as u128).min(chart_area.width as u128 - 1) as u16
    };
    let shown = shown_part(screen, end_ns).map(|(from, to)| (column(from), column(to)));
    let cursor = screen.cursor_ns.map(column);
    let rows = chart_area.height as u64;
    for (x, value) in (0u16..).zip(&values) {
        let eighths = (*value as u128 * (rows * 8) as u128).div_ceil(most.max(1) as u128) as u64;
        let is_shown = shown.is_none_or(|(from, to)| from <= x && x <= to);
        let mut style = if is_shown { screen.theme.chart() } else { screen.theme.faint() };
        if cursor == Some(x) {
            style = style.add_modifier(Modifier::REVERSED);
        }
        for row in 0..rows {
            let filled = eighths.saturating_sub((rows - 1 - row) * 8).min(8) as usize;
            let symbol = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"][filled];
            buffer.set_stringn(chart_area.x + x, chart_area.y + row as u16, symbol, 1, style);
        }
    }
    line(buffer, area, 0, &text::right(&bytes(to_signed(most)), LABELS as usize - 1), screen.theme.faint());
    line(buffer, area, chart_area.height - 1, &text::right("0 B", LABELS as usize - 1), screen.theme.faint());
    axis(screen, chart_area, end_ns, column, shown, cursor, buffer);
}

/// The highest of the slices in each column of the screen.
fn columns(slices: &[u64], width: usize) -> Vec<u64> {
    let slice = |column: usize| column * slices.len() / width.max(1);
    (0..width)
        .map(|column| {
            let (from, to) = (slice(column), slice(column + 1).max(slice(column) + 1));
            slices.get(from..to.min(slices.len())).unwrap_or_default().iter().copied().max().unwrap_or(0)
        })
        .collect()
}

/// The times of the range or moment that is shown; `None` for the whole session.
fn shown_part(screen: &Screen, end_ns: u64) -> Option<(u64, u64)> {
    let peak = screen.info.as_ref().map_or(0, |info| info.totals.peak_time_ns);
    let ns = |time: &str| match When::parse(time) {
        Some(When::Ns(ns)) => ns,
        Some(When::Percent(share)) => (end_ns as f64 * share / 100.0) as u64,
        Some(When::Peak) => peak,
        Some(When::End) => end_ns,
        Some(When::Event { time_ns, .. }) => time_ns,
        Some(When::Start) | None => 0,
    };
    match &screen.question.time {
        Time::Whole => None,
        Time::At(at) => Some((ns(at), ns(at))),
        Time::Range { from, to } => Some((from.as_deref().map_or(0, ns), to.as_deref().map_or(end_ns, ns))),
    }
}

/// The line below the chart: its beginning and end, the peak, what is shown, and the cursor.
fn axis(
    screen: &Screen,
    area: Rect,
    end_ns: u64,
    column: impl Fn(u64) -> u16,
    shown: Option<(u16, u16)>,
    cursor: Option<u16>,
    buffer: &mut Buffer,
) {
    let y = area.bottom();
    let faint = screen.theme.faint();
    buffer.set_stringn(area.x, y, "0 s", area.width as usize, faint);
    let end = time(end_ns);
    let end_x = area.right().saturating_sub(text::width(&end) as u16);
    buffer.set_stringn(end_x, y, &end, area.width as usize, faint);
    if let Some(info) = &screen.info {
        let peak_ns = info.totals.peak_time_ns;
        let mark = format!("▲ peak {}", time(peak_ns));
        let x = area.x + column(peak_ns);
        let width = text::width(&mark) as u16;
        // The text goes to the left of the mark if there is no room on the right.
        if x >= area.x + 4 && x + width + 1 < end_x {
            buffer.set_stringn(x, y, &mark, width as usize, screen.theme.warning());
        } else if x < area.x + 4 && area.x + 4 + width + 1 < end_x {
            buffer.set_stringn(area.x + 4, y, &mark, width as usize, screen.theme.warning());
        } else if end_x > area.x + width + 5 {
            let mark = format!("peak {} ▲", time(peak_ns));
            buffer.set_stringn(end_x - width - 1, y, &mark, width as usize, screen.theme.warning());
        }
    }
    if let Some((from, to)) = shown {
        for x in from..=to {
            if let Some(cell) = buffer.cell_mut((area.x + x, y)) {
                cell.set_style(Style::new().add_modifier(Modifier::UNDERLINED));
            }
        }
    }
    if let Some((x, ns)) = cursor.zip(screen.cursor_ns) {
        let label = time(ns);
        let x = (area.x + x).min(area.right().saturating_sub(text::width(&label) as u16));
        buffer.set_stringn(x, y, &label, area.width as usize, screen.theme.selected());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_shows_the_highest_of_its_slices() {
        assert_eq!(columns(&[1, 9, 2, 3], 2), [9, 3]);
        assert_eq!(columns(&[1, 9], 4), [1, 1, 9, 9]);
        assert_eq!(columns(&[], 3), [0, 0, 0]);
        assert_eq!(columns(&[5, 6, 7], 2), [5, 7]);
        assert!(columns(&[1], 0).is_empty());
    }
}
