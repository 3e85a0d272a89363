//! A line in which the user types.
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What the text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Include,
    Exclude,
    Time,
    Compare,
}

pub(crate) struct Prompt {
    pub(crate) purpose: Purpose,
    pub(crate) text: String,
    /// Why the last text was refused.
    pub(crate) error: Option<String>,
}

pub(crate) enum Typed {
    More,
    Given(String),
    Cancelled,
}

impl Prompt {
    pub(crate) fn new(purpose: Purpose) -> Prompt {
        Prompt { purpose, text: String::new(), error: None }
    }

    /// The question that the user answers.
    pub(crate) const fn question(&self) -> &'static str {
        match self.purpose {
            Purpose::Include => "Show only stacks with (text or /regex/): ",
            Purpose::Exclude => "Exclude stacks with (text or /regex/): ",
            Purpose::Time => "Time (1.5s, 50%, peak) or range (1s..2s): ",
            Purpose::Compare => "Compare with a FILE, or with a time (@1.5s): ",
        }
    }

    pub(crate) fn key(&mut self, key: &KeyEvent) -> Typed {
        self.error = None;
        match key.code {
            KeyCode::Enter if self.text.trim().is_empty() => return Typed::Cancelled,
            KeyCode::Enter => return Typed::Given(self.text.trim().to_owned()),
            KeyCode::Esc => return Typed::Cancelled,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Typed::Cancelled,
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => self.text.clear(),
            KeyCode::Char('w') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                let kept = self.text.trim_end().rfind(' ').map_or(0, |at| at + 1);
                self.text.truncate(kept);
            }
            KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => {}
            KeyCode::Char(letter) => self.text.push(letter),
            KeyCode::Backspace if self.text.is_empty() => return Typed::Cancelled,
            KeyCode::Backspace => drop(self.text.pop()),
            _ => {}
        }
        Typed::More
    }
}
