//! Shows a trace in the terminal: `heaptrack tui`.
//!
//! Receives: the path of a trace, finished or still growing. Must hold:
//!
//! - Every number on the screen is computed by `analysis`, and none a second time here.
//! - The screen never waits for an answer. A newer question replaces an older one.
//! - The terminal is given back on every exit.
//!
//! ```text
//! keys, mouse, signals --> happenings --> app --> screen --> draw --> terminal
//!                             ^            |
//!                             |            v
//!                          replies <---- worker: the trace, its answers
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod app;
mod draw;
mod happenings;
mod keys;
mod mouse;
mod opening;
mod prompt;
mod question;
mod screen;
mod sheet;
mod terminal;
mod text;
mod theme;
mod units;
mod view;
mod views;
mod worker;

pub use keys::{KEYS, Key};
pub use opening::Settings;
pub use terminal::refusal;
pub use views::{VIEWS, ViewName};

/// What is shown, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub settings: Settings,
    /// Another trace, or `@` and a time, to compare with.
    pub compare: Option<String>,
    pub has_mouse: bool,
}

/// Why the screen was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Quit,
    Signal(i32),
}

/// What happens after the user has answered the question of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quit {
    Now,
    Stay,
}

/// A recording that is made while its trace is shown.
pub trait Recording {
    /// The last lines that the program printed.
    fn output(&mut self) -> Vec<String>;

    /// What the user is asked before the screen is closed. `None` if it can be closed at once.
    fn question(&mut self) -> Option<String>;

    /// The user has answered the question with this key.
    fn answer(&mut self, key: char) -> Quit;
}

/// Shows the trace until the user quits. The error is a sentence.
pub fn run(options: Options, recording: Option<&mut dyn Recording>) -> Result<Ending, String> {
    app::run(options, recording)
}
