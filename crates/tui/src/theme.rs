//! Colours and characters: what the terminal can show.
//!
//! Must hold: without colours (`NO_COLOR`) and without UTF-8 everything can still be told apart.
use analysis::CodeClass;
use analysis::view::Verdict;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// The environment variables that decide what the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    has_colours: bool,
    has_utf8: bool,
}

impl Theme {
    pub(crate) fn of_environment() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = given("LC_ALL").or_else(|| given("LC_CTYPE")).or_else(|| given("LANG")).unwrap_or_default();
        let locale = locale.to_lowercase();
        Theme {
            has_colours: given("NO_COLOR").is_none(),
            has_utf8: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    pub(crate) const fn has_colours(self) -> bool {
        self.has_colours
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Titles of columns, names of keys.
    pub(crate) fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Less important text.
    pub(crate) fn faint(self) -> Style {
        if self.has_colours { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn warning(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// The part of the timeline that is selected.
    pub(crate) fn chart(self) -> Style {
        self.coloured(Color::Blue)
    }

    /// More than before, in a comparison.
    pub(crate) fn more(self) -> Style {
        self.coloured(Color::Red)
    }

    /// Less than before, in a comparison.
    pub(crate) fn less(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(crate) fn verdict(self, verdict: Verdict) -> Style {
        match verdict {
            Verdict::Grows => self.coloured(Color::Red).add_modifier(Modifier::BOLD),
            Verdict::Bounded => self.coloured(Color::Yellow),
            Verdict::Once | Verdict::Exit | Verdict::Tail | Verdict::Unclear => Style::new(),
        }
    }

    /// A box of the flame graph. `number` tells neighbours apart.
    pub(crate) fn flame(self, class: Option<CodeClass>, number: usize) -> Style {
        if !self.has_colours {
            let style = Style::new();
            return if number.is_multiple_of(2) { style.add_modifier(Modifier::UNDERLINED) } else { style };
        }
        let pair = match class {
            Some(CodeClass::Program) => [Color::Indexed(172), Color::Indexed(179)],
            Some(CodeClass::Dependency) => [Color::Indexed(67), Color::Indexed(74)],
            Some(CodeClass::Runtime) => [Color::Indexed(108), Color::Indexed(114)],
            Some(CodeClass::Libc) => [Color::Indexed(139), Color::Indexed(146)],
            Some(CodeClass::Kernel) | None => [Color::Indexed(246), Color::Indexed(250)],
        };
        Style::new().bg(pair[number % 2]).fg(Color::Black)
    }

    /// Replaces characters that a terminal without UTF-8 cannot show.
    pub(crate) fn finish(self, buffer: &mut Buffer) {
        if self.has_utf8 {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                let replacement = ascii(cell.symbol());
                cell.set_char(replacement);
            }
        }
    }
}

fn ascii(symbol: &str) -> char {
    match symbol {
        "█" | "▇" | "▆" | "▅" => '#',
        "▄" | "▃" | "▌" | "▊" | "▋" | "▉" => '=',
        "▂" | "▁" | "▍" | "▎" | "▏" => '_',
        "…" => '~',
        "·" | "–" | "─" => '-',
        "│" => '|',
        "µ" => 'u',
        "▸" => '>',
        "▾" => 'v',
        "▲" | "↑" => '^',
        "↓" => 'v',
        "←" => '<',
        "→" => '>',
        "×" => 'x',
        _ => '?',
    }
}
