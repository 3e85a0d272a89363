//! A request of the user to give up, and waits that end at such a request.
use crate::error::Refusal;
use crate::frozen;
use crate::process::Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A flag that heaptrack's signal handler sets. A wait with [`Patience`] ends when it is set.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub const fn new(flag: Arc<AtomicBool>) -> Interrupt {
        Interrupt(flag)
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How often a wait checks whether the target is frozen. That reads several files.
const FROZEN_EVERY: Duration = Duration::from_millis(50);

/// A wait for something that the target does. It ends when its time is over, when the user gives up, or when the target
/// is frozen.
pub struct Patience<'a> {
    process: &'a Process,
    end: Instant,
    next_look: Instant,
}

impl<'a> Patience<'a> {
    pub fn new(process: &'a Process, time: Duration) -> Patience<'a> {
        let now = Instant::now();
        Patience { process, end: now + time, next_look: now + FROZEN_EVERY }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Fails if it makes no sense to wait longer, even if the time is not over.
    pub fn check(&mut self) -> Result<(), Refusal> {
        if self.process.interrupt.is_set() {
            return Err(Refusal::Interrupted);
        }
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + FROZEN_EVERY;
            if let Some(cgroup) = frozen::cgroup_of(self.process) {
                return Err(Refusal::Frozen { pid: self.process.pid, cgroup });
            }
        }
        Ok(())
    }

    /// Sleeps for this time, and then checks.
    pub fn rest(&mut self, time: Duration) -> Result<(), Refusal> {
        sleep(time);
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under ThreadSanitizer (`make soak-thread`) this also shows that a wait reads the flag atomically.
    #[test]
    fn a_wait_ends_when_another_thread_gives_up() {
        let flag = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt::new(Arc::clone(&flag));
        let process = Process { interrupt, ..Process::new(std::process::id()).unwrap() };
        let mut patience = Patience::new(&process, Duration::from_secs(60));
        let user = std::thread::spawn(move || flag.store(true, Ordering::Release));
        let refusal = loop {
            if let Err(refusal) = patience.rest(Duration::from_millis(1)) {
                break refusal;
            }
            assert!(!patience.is_over());
        };
        assert!(matches!(refusal, Refusal::Interrupted), "{refusal:?}");
        user.join().unwrap();
    }
}
