//! The keys, and what the recorded program printed.
use super::line;
use crate::keys::KEYS;
use crate::screen::{Overlay, Screen};
use crate::text;
use crate::views::VIEWS;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

pub(super) fn draw(screen: &mut Screen, overlay: Overlay, area: Rect, buffer: &mut Buffer) {
    let (title, lines) = match overlay {
        Overlay::Help => ("Keys (Esc closes)", help()),
        Overlay::Output => ("What the program printed (Esc closes)", screen.output.clone()),
    };
    line(buffer, area, 0, title, screen.theme.title());
    let wrapped: Vec<String> = lines.iter().flat_map(|line| text::wrap(line, area.width as usize)).collect();
    let height = area.height.saturating_sub(1) as usize;
    screen.overlay_top = screen.overlay_top.min(wrapped.len().saturating_sub(height));
    for (y, text) in (1..).zip(wrapped.iter().skip(screen.overlay_top).take(height)) {
        line(buffer, area, y, text, Style::new());
    }
    if wrapped.is_empty() {
        line(buffer, area, 1, "Nothing.", screen.theme.faint());
    }
}

fn help() -> Vec<String> {
    let views = VIEWS.iter().map(|view| (view.key.to_string(), format!("{}: {}", view.name, view.help)));
    let keys = KEYS.iter().map(|key| (key.name.to_owned(), key.help.to_owned()));
    let mouse = [
        ("click", "select a row or a box, choose a tab; on the timeline, what was live then"),
        ("drag", "over the timeline: only this range"),
        ("wheel", "scroll"),
    ];
    let mouse = mouse.map(|(name, help)| (name.to_owned(), help.to_owned()));
    let all = keys.chain(views).chain(mouse);
    all.map(|(name, help)| format!("{}  {help}", text::left(&name, 9))).collect()
}
