//! Draws the screen.
//!
//! ```text
//! heaptrack  command  pid 42 · 2.096 s · 0 lost
//! 1 Summary  2 Flame graph ...
//! Peak · whole session · my code
//! timeline
//! the view
//! details of the selected row
//! a sentence, or the full name of the selected row
//! keys
//! ```
mod chart;
mod flame;
mod overlay;

use crate::answer::Data;
use crate::keys::KEYS;
use crate::question::cost_name;
use crate::screen::Screen;
use crate::text;
use crate::units::{several, time};
use crate::view;
use crate::views::VIEWS;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};

/// The smallest screen on which a view fits.
const LEAST_WIDTH: u16 = 40;
const LEAST_HEIGHT: u16 = 10;

/// A screen of this height has room for details.
const DETAILS_FROM: u16 = 34;

pub(crate) fn draw(frame: &mut Frame<'_>, screen: &mut Screen) {
    let area = frame.area();
    let cursor = draw_all(screen, area, frame.buffer_mut());
    let theme = screen.theme;
    theme.finish(frame.buffer_mut());
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

/// Returns where the cursor stands, if the user types.
fn draw_all(screen: &mut Screen, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    if area.width < LEAST_WIDTH || area.height < LEAST_HEIGHT {
        line(buffer, area, 0, "The terminal is too small: 40 x 10 are needed.", screen.theme.warning());
        return None;
    }
    header(screen, area, buffer);
    tabs(screen, area, buffer);
    chips(screen, area, buffer);
    let bottom = area.bottom() - 2;
    let mut y = area.y + 3;
    let chart_height = match area.height {
        0..16 => 0,
        16..30 => 5,
        30..45 => 8,
        _ => 10,
    };
    chart::draw(screen, Rect { y, height: chart_height, ..area }, buffer);
    y += chart_height;
    let has_details = screen.has_details.unwrap_or(area.height >= DETAILS_FROM) && screen.overlay.is_none();
    let left = bottom.saturating_sub(y);
    let details = if has_details { (left / 2).min(16) } else { 0 };
    let body = Rect { y, height: left - details, ..area };
    match screen.overlay {
        Some(overlay) => overlay::draw(screen, overlay, body, buffer),
        None => view(screen, body, buffer),
    }
    if details > 0 {
        draw_details(screen, Rect { y: body.bottom(), height: details, ..area }, buffer);
    }
    let cursor = status(screen, area, bottom, buffer);
    footer(screen, area, buffer);
    cursor
}

/// Writes a text into a line of the area, and cuts it at the end of the line.
fn line(buffer: &mut Buffer, area: Rect, y: u16, text: &str, style: Style) {
    buffer.set_stringn(area.x, area.y + y, text, area.width as usize, style);
}

fn header(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    line(buffer, area, 0, "heaptrack", bold);
    let Some(info) = &screen.info else {
        let share = screen.reading.unwrap_or(0.0) * 100.0;
        let text = format!("           reading the trace, {share:.0} %");
        line(buffer, area, 0, &text, Style::new());
        line(buffer, area, 0, "heaptrack", bold);
        return;
    };
    let mut facts = Vec::new();
    if info.is_live {
        facts.push(if screen.is_paused { "paused".to_owned() } else { "live".to_owned() });
    }
    if info.is_attached {
        facts.push("attached".into());
    }
    if info.errors.is_some() {
        facts.push("sampled: estimates".into());
    }
    facts.push(format!("pid {}", info.pid));
    facts.push(time(info.totals.runtime_ns));
    facts.push(format!("{} lost", crate::units::exact(analysis::to_signed(info.totals.lost_events))));
    if !info.is_complete && !info.is_live {
        facts.push("not finished".into());
    }
    let facts = facts.join(" · ");
    let room = (area.width as usize).saturating_sub(text::width(&facts) + 13);
    let command = text::shorten(&info.command, room);
    buffer.set_stringn(area.x + 11, area.y, &command, room, Style::new());
    let x = area.right().saturating_sub(text::width(&facts) as u16);
    let is_worrying = info.totals.lost_events > 0 || !info.is_complete && !info.is_live;
    let style = if is_worrying { screen.theme.warning() } else { screen.theme.faint() };
    buffer.set_stringn(x, area.y, &facts, area.width as usize, style);
}

fn tabs(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    let y = area.y + 1;
    let long: usize = VIEWS.iter().map(|view| view.name.len() + 4).sum();
    let is_long = long <= area.width as usize;
    let mut x = area.x;
    screen.areas.tabs.clear();
    screen.areas.tabs_y = y;
    for view in VIEWS {
        let name = if is_long { view.name } else { view.short };
        let tab = format!("{} {name}", view.key);
        let width = tab.len() as u16;
        if x + width > area.right() {
            break;
        }
        let style = if view.kind == screen.view { screen.theme.selected() } else { Style::new() };
        buffer.set_stringn(x, y, &tab, width as usize, style);
        if view.kind != screen.view {
            buffer.set_stringn(x, y, view.key.to_string(), 1, screen.theme.title());
        }
        screen.areas.tabs.push((x, x + width, view.kind));
        x += width + if is_long { 2 } else { 1 };
    }
}

/// What is shown: the measure, the time and the filters.
fn chips(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let question = &screen.question;
    let mut words = vec![cost_name(question.cost(), question.mode()).to_owned()];
    words.extend(question.words());
    if screen.answer.as_ref().is_some_and(|answer| answer.is_mine) {
        words.push("my code".into());
    }
    let text = text::shorten(&words.join(" · "), area.width as usize);
    line(buffer, area, 2, &text, screen.theme.title());
}

fn view(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    screen.areas.rows = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    screen.areas.boxes.clear();
    if !screen.is_answered() {
        return;
    }
    if let Some(sentence) = empty_note(screen) {
        for (y, text) in (0..area.height).zip(text::wrap(&sentence, area.width as usize)) {
            line(buffer, area, y, &text, Style::new());
        }
        return;
    }
    let mut place = screen.place();
    match screen.answer.as_ref().map(|answer| &answer.data) {
        Some(Data::Summary(lists)) => {
            if let Some(answer) = &screen.answer {
                view::draw_summary(screen, answer, lists, area, buffer);
            }
        }
        Some(Data::Flame(_)) => flame::draw(screen, area, buffer),
        _ => {
            if let Some(sheet) = view::sheet(screen, area.width as usize) {
                sheet.draw(area, buffer, &mut place, screen.theme);
            }
            *screen.place_mut() = place;
        }
    }
}

/// The sentence that stands in place of an empty view.
fn empty_note(screen: &Screen) -> Option<String> {
    let answer = screen.answer.as_ref()?;
    let note = |sentence: &str| Some(answer.note.clone().unwrap_or_else(|| sentence.to_owned()));
    match &answer.data {
        Data::Compare(_) if answer.question.compare.is_none() => {
            Some("Nothing to compare with yet: press b and give another trace, or another time of this one.".into())
        }
        Data::Compare(comparison) if comparison.rows.is_empty() => note("Nothing changed in this measure."),
        Data::Processes(rows) if rows.is_empty() => Some(
            "This trace is of one process. A recording with --follow lists the processes that the program starts."
                .into(),
        ),
        Data::Leaks(rows) if rows.is_empty() => note("Nothing is live at the end of the session."),
        Data::Source(files) if files.is_empty() => {
            note("No level of these stacks has a file and a line: the trace has no debug information.")
        }
        Data::Summary(_) | Data::Compare(_) => answer.note.clone(),
        Data::Flame(_) => answer.note.clone(),
        _ if view::len(screen) == 0 => note("Nothing to show for this measure."),
        _ => None,
    }
}

fn draw_details(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let rule = "─".repeat(area.width as usize);
    line(buffer, area, 0, &rule, screen.theme.faint());
    if !screen.is_answered() {
        return;
    }
    let lines = view::details(screen, screen.place().selected);
    let mut y = 1;
    for (number, text) in lines.iter().enumerate() {
        let wrapped = if number == 0 {
            text::wrap(text, area.width as usize)
        } else {
            vec![text::shorten(text, area.width as usize)]
        };
        for text in wrapped.iter().take(3) {
            if y < area.height {
                line(buffer, area, y, text, Style::new());
                y += 1;
            }
        }
    }
}

/// The line above the keys. Returns where the cursor stands, if the user types.
fn status(screen: &Screen, area: Rect, y: u16, buffer: &mut Buffer) -> Option<Position> {
    let y = y - area.y;
    if let Some(prompt) = &screen.prompt {
        if let Some(error) = &prompt.error {
            line(buffer, area, y.saturating_sub(1), &text::left(error, area.width as usize), screen.theme.warning());
        }
        let question = prompt.question();
        let room = (area.width as usize).saturating_sub(text::width(question) + 1);
        let typed = text::shorten(&prompt.text, room);
        line(buffer, area, y, &format!("{question}{typed}"), Style::new().add_modifier(Modifier::BOLD));
        let x = area.x + (text::width(question) + text::width(&typed)) as u16;
        return Some(Position { x: x.min(area.right() - 1), y: area.y + y });
    }
    if let Some(message) = &screen.message {
        line(buffer, area, y, message, screen.theme.warning());
    } else if let Some(busy) = screen.busy.filter(|busy| busy.since.elapsed().as_millis() >= 200) {
        let text = format!(
            "counting, {:.0} % after {:.1} s · Esc cancels",
            busy.share * 100.0,
            busy.since.elapsed().as_secs_f64()
        );
        line(buffer, area, y, &text, screen.theme.warning());
    } else if screen.is_answered() {
        let rows = match view::len(screen) as u64 {
            0 => String::new(),
            rows => format!("{} · ", several(rows, "row")),
        };
        let selected = view::details(screen, screen.place().selected);
        let name = selected.first().map_or("", String::as_str);
        let text = text::shorten(&format!("{rows}{name}"), area.width as usize);
        line(buffer, area, y, &text, screen.theme.faint());
    }
    None
}

fn footer(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let y = area.bottom() - 1;
    let is_live = screen.info.as_ref().is_some_and(|info| info.is_live);
    let live = [("Space", if screen.is_paused { "go on" } else { "pause" }), ("n", "since now")];
    let keys = KEYS.iter().filter(|key| !key.short.is_empty()).map(|key| (key.name, key.short));
    let mut x = area.x;
    for (name, word) in live.into_iter().filter(|_| is_live).chain(keys) {
        let width = (text::width(name) + 1 + word.len()) as u16;
        if x + width > area.right() {
            break;
        }
        buffer.set_stringn(x, y, name, width as usize, screen.theme.title());
        buffer.set_stringn(x + text::width(name) as u16 + 1, y, word, width as usize, Style::new());
        x += width + 2;
    }
}
