//! A progress bar on stderr while a large file is read.
//!
//! Receives: positions in the file. Must hold: nothing is written unless stderr is a terminal and reading takes long, and the bar is erased
//! before anything else is written.
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Files that are read faster than this show no bar.
const PATIENCE: Duration = Duration::from_millis(700);
const STEP: Duration = Duration::from_millis(100);

pub struct Progress {
    started: Instant,
    last: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub fn new() -> Self {
        Progress { started: Instant::now(), last: None, is_shown: io::stderr().is_terminal() }
    }

    /// `position` and `size` are in bytes.
    pub fn at(&mut self, position: u64, size: u64) {
        if !self.is_shown || size == 0 || position == 0 {
            return;
        }
        let spent = self.started.elapsed();
        if spent < PATIENCE || self.last.is_some_and(|last| last.elapsed() < STEP) {
            return;
        }
        self.last = Some(Instant::now());
        let line = line(position as f64 / size as f64, spent);
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    pub fn end(&self) {
        if self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(share: f64, spent: Duration) -> String {
    const WIDTH: usize = 30;
    let share = share.clamp(0.0, 1.0);
    let done = (share * WIDTH as f64) as usize;
    let left = spent.as_secs_f64() * (1.0 - share) / share.max(0.001);
    format!("reading [{}{}] {:3.0} %, {left:.0} s left", "#".repeat(done), ".".repeat(WIDTH - done), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_time_that_is_left() {
        let half = line(0.5, Duration::from_secs(10));
        assert_eq!(half, "reading [###############...............]  50 %, 10 s left");
        assert!(line(0.0, Duration::from_secs(1)).contains("  0 %"));
        assert!(line(1.0, Duration::from_secs(1)).contains("100 %, 0 s left"));
    }
}
