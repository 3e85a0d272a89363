//! A progress bar on stderr while a large file is read.
//!
//! Receives: positions in the file. Must hold: nothing is written unless stderr is a terminal and reading takes long, and the bar is erased
//! before anything else is written.
use crate::status::Bytes;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Files that are read faster than this show no bar.
const PATIENCE: Duration = Duration::from_millis(700);
const STEP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
pub struct Progress {
    started: Instant,
    last: Option<Instant>,
    is_shown: bool,
    /// What reading needs at most, if it is much.
    memory: Option<u64>,
}

impl Progress {
    /// `memory`: what reading needs at most, if that is to be mentioned.
    pub fn new(memory: Option<u64>) -> Self {
        Progress { started: Instant::now(), last: None, is_shown: io::stderr().is_terminal(), memory }
    }

    /// Shows nothing, because another trace that is read at the same time has a bar.
    pub const fn hidden(self) -> Self {
        Progress { is_shown: false, ..self }
    }

    /// Called when a file is opened.
    pub fn start(&mut self) {
        self.started = Instant::now();
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
        let line = line(position as f64 / size as f64, spent, self.memory);
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    pub fn end(&self) {
        if self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(share: f64, spent: Duration, memory: Option<u64>) -> String {
    const WIDTH: usize = 30;
    let share = share.clamp(0.0, 1.0);
    let done = (share * WIDTH as f64) as usize;
    let left = spent.as_secs_f64() * (1.0 - share) / share.max(0.001);
    let memory = memory.map_or(String::new(), |most| format!(", up to {} of memory", Bytes(most)));
    let bar = "#".repeat(done) + &".".repeat(WIDTH - done);
    format!("reading [{bar}] {:3.0} %, {left:.0} s left{memory}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_time_that_is_left() {
        let half = line(0.5, Duration::from_secs(10), None);
        assert_eq!(half, "reading [###############...............]  50 %, 10 s left");
        assert!(line(0.0, Duration::from_secs(1), None).contains("  0 %"));
        assert!(line(1.0, Duration::from_secs(1), None).contains("100 %, 0 s left"));
        assert!(line(1.0, Duration::from_secs(1), Some(2_340_000_000)).ends_with("0 s left, up to 2.3 GB of memory"));
    }
}
