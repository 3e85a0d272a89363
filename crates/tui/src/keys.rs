//! The keys: one table, from which the help (`?`), the line at the bottom and docs/tui.md are made.
use crate::views::{VIEWS, ViewKind};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Help,
    Suspend,
    Show(ViewKind),
    NextView,
    PreviousView,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Left,
    Right,
    Open,
    Path,
    NextCost,
    PreviousCost,
    MyCode,
    Include,
    Exclude,
    ShowOnly,
    ExcludeThis,
    Wrapper,
    Undo,
    Clear,
    Moment,
    AtPeak,
    CursorLeft,
    CursorRight,
    MarkFrom,
    MarkTo,
    Compare,
    Pause,
    SinceNow,
    Details,
    FullNames,
    Output,
    Cancel,
}

/// A line of the help.
pub struct Key {
    /// As it is written in the help.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    /// The word in the line at the bottom. Empty if the key is not shown there.
    pub short: &'static str,
    codes: &'static [KeyCode],
    pub(crate) action: Action,
}

const fn key(
    name: &'static str,
    help: &'static str,
    short: &'static str,
    codes: &'static [KeyCode],
    action: Action,
) -> Key {
    Key { name, help, short, codes, action }
}

use KeyCode::Char;

/// All keys but those of the views, which are in `VIEWS`.
pub const KEYS: &[Key] = &[
    key("?", "show the keys", "keys", &[Char('?'), KeyCode::F(1)], Action::Help),
    key("q", "quit", "quit", &[Char('q')], Action::Quit),
    key("Tab", "next view", "", &[KeyCode::Tab], Action::NextView),
    key("Shift-Tab", "previous view", "", &[KeyCode::BackTab], Action::PreviousView),
    key("↑ k", "up; in the flame graph, to the caller", "", &[KeyCode::Up, Char('k')], Action::Up),
    key("↓ j", "down; in the flame graph, to the callee", "", &[KeyCode::Down, Char('j')], Action::Down),
    key("PgUp", "a page up", "", &[KeyCode::PageUp], Action::PageUp),
    key("PgDn", "a page down", "", &[KeyCode::PageDown], Action::PageDown),
    key("Home g", "first row", "", &[KeyCode::Home, Char('g')], Action::First),
    key("End G", "last row", "", &[KeyCode::End, Char('G')], Action::Last),
    key("← h", "close the row, or go to its parent", "", &[KeyCode::Left, Char('h')], Action::Left),
    key("→ l", "open the row", "", &[KeyCode::Right, Char('l')], Action::Right),
    key("Enter", "open the row; in the flame graph, zoom to it", "open", &[KeyCode::Enter], Action::Open),
    key("e", "expand the most expensive path", "", &[Char('e')], Action::Path),
    key("c", "next measure: peak, leaked, allocations and so on", "measure", &[Char('c')], Action::NextCost),
    key("C", "previous measure", "", &[Char('C')], Action::PreviousCost),
    key("m", "my code: hide the frames of libraries and of the language", "my code", &[Char('m')], Action::MyCode),
    key("/", "show only stacks with a text in a function, file or module", "filter", &[Char('/')], Action::Include),
    key("x", "exclude stacks with a text in a function, file or module", "", &[Char('x')], Action::Exclude),
    key("i", "show only the function, thread, process or size of the row", "only this", &[Char('i')], Action::ShowOnly),
    key("X", "exclude the function of the row", "", &[Char('X')], Action::ExcludeThis),
    key(
        "w",
        "treat the function of the row as the allocator, so its caller owns the memory",
        "",
        &[Char('w')],
        Action::Wrapper,
    ),
    key("u", "undo the last filter or time", "undo", &[Char('u'), KeyCode::Backspace], Action::Undo),
    key("U", "clear all filters and times", "", &[Char('U')], Action::Clear),
    key("@", "what was live at a time, or what happened in a range", "time", &[Char('@')], Action::Moment),
    key("p", "what was live at the peak", "", &[Char('p')], Action::AtPeak),
    key("<", "move the cursor of the timeline to the left", "", &[Char('<'), Char(',')], Action::CursorLeft),
    key(">", "move the cursor of the timeline to the right", "", &[Char('>'), Char('.')], Action::CursorRight),
    key("[", "the range begins at the cursor", "", &[Char('[')], Action::MarkFrom),
    key("]", "the range ends at the cursor", "", &[Char(']')], Action::MarkTo),
    key("b", "compare with another trace, or with another time", "compare", &[Char('b')], Action::Compare),
    key("Space", "while the program runs: pause, or go on", "", &[Char(' ')], Action::Pause),
    key("n", "while the program runs: only what happens from now on", "", &[Char('n')], Action::SinceNow),
    key("d", "details of the row, on or off", "details", &[Char('d')], Action::Details),
    key("f", "names with template arguments and parameters, or without", "", &[Char('f')], Action::FullNames),
    key("o", "what the recorded program printed", "", &[Char('o')], Action::Output),
    key("Esc", "close, zoom out, or cancel what is being counted", "", &[KeyCode::Esc], Action::Cancel),
    key("Ctrl-Z", "suspend", "", &[], Action::Suspend),
];

/// What a key means. `None` if it means nothing.
pub(crate) fn find(event: &KeyEvent) -> Option<Action> {
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            Char('c') => Some(Action::Quit),
            Char('z') => Some(Action::Suspend),
            _ => None,
        };
    }
    if let Some(view) = VIEWS.iter().find(|view| event.code == Char(view.key)) {
        return Some(Action::Show(view.kind));
    }
    KEYS.iter().find(|key| key.codes.contains(&event.code)).map(|key| key.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_document_lists_all_keys_and_views() {
        let document = include_str!("../../../docs/tui.md");
        for key in KEYS {
            let line = format!("| `{}` | {} |", key.name, key.help);
            assert!(document.contains(&line), "docs/tui.md does not have the line {line}");
        }
        for view in VIEWS {
            let line = format!("| `{}` | {} | {} |", view.key, view.name, view.help);
            assert!(document.contains(&line), "docs/tui.md does not have the line {line}");
        }
    }

    #[test]
    fn every_key_has_one_meaning() {
        let mut seen = HashSet::new();
        let views = VIEWS.iter().map(|view| Char(view.key));
        for code in KEYS.iter().flat_map(|key| key.codes.iter().copied()).chain(views) {
            assert!(seen.insert(code), "{code:?} has two meanings");
        }
    }
}
