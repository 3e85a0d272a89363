//! A process that is held: a child of ours that has just executed a program, and that one thread of the profiler traces
//! and keeps stopped before the program's first instruction.
//!
//! Must hold: while a process is held, only the thread that traces it uses it. A held process has one thread. To stop
//! it means nothing, and to release it is left to `start.rs`.
use crate::error::Refusal;
use crate::process::Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a process is held. Shared by all copies of a [`Process`].
#[derive(Clone, Debug, Default)]
pub struct Hold {
    is_on: Arc<AtomicBool>,
    /// Its exec function is hooked too.
    hooks_exec: bool,
}

impl Hold {
    /// The process is held until `end`.
    pub fn begin(hooks_exec: bool) -> Hold {
        Hold { is_on: Arc::new(AtomicBool::new(true)), hooks_exec }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub fn hooks_exec(&self) -> bool {
        self.is_on() && self.hooks_exec
    }

    pub fn end(&self) {
        self.is_on.store(false, Ordering::Release);
    }
}

/// Runs `work`, which traces the process, on a thread of its own. If the process is held, the calling thread is the one
/// that traces it, and no other thread can.
pub fn on_tracing_thread<T: Send>(
    process: &Process,
    work: impl FnOnce() -> Result<T, Refusal> + Send,
) -> Result<T, Refusal> {
    if process.hold.is_on() { work() } else { crate::on_own_thread(work) }
}
