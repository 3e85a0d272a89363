//! Asking the profiler to patch a program that this process is about to execute, because this library cannot be
//! preloaded into it. Only if a tree of processes is recorded.
//!
//! The process waits until the profiler traces it, executes the program, and is stopped by the kernel before the first
//! instruction of that program. The profiler patches the program and releases it. Every wait has a limit. If the profiler
//! dies, the kernel releases the process.
use crate::follow::{self, FUTEX_OWNER_DIED};
use crate::sys;
use channel::{Hub, StartRequest, StartStep};
use core::sync::atomic::Ordering;

/// How long the process waits for an answer. Tracing a process takes less than a millisecond.
const PATIENCE_MS: u64 = 3_000;
/// After a failed exec: how long until the profiler has released the process.
const RELEASE_MS: u64 = 1_000;
const LOOK_EVERY_MS: u64 = 100;

/// A process that the profiler traces.
pub struct Held {
    hub: &'static Hub,
    request: &'static StartRequest,
    pid: u32,
}

/// What became of a question.
pub enum Answer {
    /// The profiler traces this process, and will patch the new program.
    Held(Held),
    /// The profiler does not patch it, and knows why.
    Refused,
    /// There was no answer.
    None,
}

/// Called before an exec.
pub fn ask() -> Answer {
    match request() {
        None => Answer::None,
        Some(held) => held.wait_for_answer(),
    }
}

fn request() -> Option<Held> {
    let hub = follow::shared_hub().filter(|hub| hub.answers_starts.load(Ordering::Acquire) != 0)?;
    let pid = sys::getpid();
    // Another thread gets the pid of the first one when it executes a program, which the profiler does not expect.
    if sys::gettid() != pid || !follow::pid_is_true(pid) {
        return None;
    }
    let request = hub.starts.iter().find(|request| request.take(pid))?;
    hub.starts_bell.fetch_add(1, Ordering::Release);
    sys::futex_wake(&hub.starts_bell);
    Some(Held { hub, request, pid })
}

impl Held {
    fn is_alive(&self) -> bool {
        self.hub.collector_alive.load(Ordering::Acquire) & FUTEX_OWNER_DIED == 0
    }

    fn wait_for_answer(self) -> Answer {
        let start = sys::now_ms();
        loop {
            let step = self.request.step.load(Ordering::Acquire);
            if step == StartStep::Held as u32 {
                return Answer::Held(self);
            }
            if step == StartStep::Refused as u32 {
                self.request.free();
                return Answer::Refused;
            }
            let is_over = sys::now_ms().saturating_sub(start) >= PATIENCE_MS || !self.is_alive();
            let gives_up = |from| self.request.advance(from, StartStep::GaveUp);
            if is_over && (gives_up(StartStep::Asked) || gives_up(StartStep::Seen)) {
                return Answer::None;
            }
            sys::futex_wait(&self.request.step, step, LOOK_EVERY_MS);
        }
    }

    /// Called if the exec failed. Waits until the profiler has released this process, so that it can ask again.
    pub fn failed(self) {
        self.request.advance(StartStep::Held, StartStep::GaveUp);
        sys::futex_wake(&self.request.step);
        let start = sys::now_ms();
        while self.request.pid.load(Ordering::Acquire) == self.pid
            && self.is_alive()
            && sys::now_ms().saturating_sub(start) < RELEASE_MS
        {
            sys::futex_wait(&self.request.step, StartStep::GaveUp as u32, LOOK_EVERY_MS);
        }
    }
}
