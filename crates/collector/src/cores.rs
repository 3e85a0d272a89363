//! How many threads may work on events.
//!
//! Receives: what the user asked for, and how busy the machine is. Returns: a number of threads, at least 1. Must hold: without a request, the
//! recorder takes processors that are idle, and at most a quarter of them: the recorded program comes first.
use crate::merge::MOST_THREADS;
use std::num::NonZero;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecorderThreads {
    /// As many as are idle.
    #[default]
    Idle,
    Exactly(NonZero<usize>),
}

#[derive(Debug)]
pub struct Cores {
    asked: RecorderThreads,
    processors: usize,
    now: usize,
}

impl Cores {
    pub fn new(asked: RecorderThreads) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut cores = Cores { asked, processors, now: 1 };
        cores.look();
        cores
    }

    /// The number of threads that may work now.
    pub const fn threads(&self) -> usize {
        self.now
    }

    /// Looks at how busy the machine is. To be called now and then.
    pub fn look(&mut self) {
        let wanted = match self.asked {
            RecorderThreads::Exactly(threads) => threads.get(),
            RecorderThreads::Idle if self.processors < 8 => 1,
            RecorderThreads::Idle => allowed(self.processors, running().unwrap_or(self.processors)),
        };
        self.now = wanted.min(MOST_THREADS);
    }
}

/// Returns how many threads may work if so many threads of all programs run now. One of these is the caller.
fn allowed(processors: usize, running: usize) -> usize {
    let idle = processors.saturating_sub(running);
    (1 + idle).min(processors / 4).max(1)
}

/// The number of threads that run or wait for a processor, on the whole machine.
fn running() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idle_processors_and_a_quarter_of_all() {
        assert_eq!([(2, 1), (7, 1)].map(|(processors, running)| allowed(processors, running)), [1, 1]);
        assert_eq!([1, 7, 8, 9, 40].map(|running| allowed(8, running)), [2, 2, 1, 1, 1]);
        assert_eq!([1, 60, 63, 64].map(|running| allowed(64, running)), [16, 5, 2, 1]);
        assert!(running().is_some_and(|running| running >= 1));
    }

    #[test]
    fn a_number_is_taken_as_it_is_up_to_what_has_work() {
        let exactly = |threads| Cores::new(RecorderThreads::Exactly(NonZero::new(threads).unwrap())).threads();
        assert_eq!([1, 2, 3, 4, 100].map(exactly), [1, 2, 3, 3, 3]);
    }
}
