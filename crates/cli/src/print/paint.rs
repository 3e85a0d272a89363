//! Colours and bars, on a terminal that shows them.
use std::io::{self, IsTerminal};

#[derive(Clone, Copy, Debug)]
pub struct Paint {
    pub is_on: bool,
}

impl Paint {
    /// Decides for stdout: colours on a terminal that is not dumb, and elsewhere only if `CLICOLOR_FORCE` is set.
    /// `NO_COLOR` turns them off in both cases.
    pub fn for_stdout() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let wanted = io::stdout().is_terminal() && !is_dumb || is_set("CLICOLOR_FORCE");
        Paint { is_on: wanted && !is_set("NO_COLOR") }
    }

    pub fn heading(self, text: &str) -> String {
        self.code("1;36", text)
    }

    pub fn number(self, text: &str) -> String {
        self.code("1", text)
    }

    /// A name in the user's own code.
    pub fn own(self, text: &str) -> String {
        self.code("1;33", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.code("2", text)
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns `part` of `whole` as a bar of ten characters and a percentage. Returns nothing without colours.
    pub fn bar(self, part: i64, whole: i64) -> String {
        let bar = self.bar_only(part, whole);
        let share = (part as f64 / whole as f64).abs().clamp(0.0, 1.0);
        if bar.is_empty() { bar } else { format!("{bar}{:5.1} %  ", share * 100.0) }
    }

    /// Returns `part` of `whole` as a bar of ten characters and a space. Returns nothing without colours.
    pub fn bar_only(self, part: i64, whole: i64) -> String {
        if !self.is_on || whole == 0 {
            return String::new();
        }
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let share = (part as f64 / whole as f64).abs().clamp(0.0, 1.0);
        let eighths = (share * 80.0).round() as usize;
        let bar = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
        let width = eighths.div_ceil(8);
        format!("\x1b[32m{bar}{}\x1b[0m ", " ".repeat(10 - width.min(10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        let on = Paint { is_on: true };
        assert_eq!(on.bar(1, 2), "\x1b[32m█████     \x1b[0m  50.0 %  ");
        assert_eq!(on.bar(-3, 3), "\x1b[32m██████████\x1b[0m 100.0 %  ");
        assert_eq!(on.bar(0, 3), "\x1b[32m          \x1b[0m   0.0 %  ");
        assert_eq!((on.bar(1, 0), Paint { is_on: false }.bar(1, 2)), (String::new(), String::new()));
        assert_eq!(Paint { is_on: false }.heading("x"), "x");
    }
}
