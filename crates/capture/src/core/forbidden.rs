//! System calls and the time stamp counter in a program that forbids them to itself. See `sandbox.rs`.
use super::{ACTIVE, Core};
use crate::{events, follow, sys};
use channel::NO_CALLS_SAID;
use core::sync::atomic::Ordering;

impl Core {
    /// Called by a thread that is about to forbid system calls. Returns `None` if that does not matter. Otherwise
    /// returns whether calls were allowed before, and the caller must call `allow_calls` if the attempt fails.
    pub fn forbid_calls(&self) -> Option<bool> {
        if self.gate_after_start() & ACTIVE == 0 {
            if follow::may_join() {
                // A forked child that has not joined yet cannot join in a sandbox.
                follow::miss(follow::Need::Event);
                follow::give_up();
            }
            return None;
        }
        // A child of vfork shares this memory, but its filter does not apply to the parent.
        if self.may_call() {
            if sys::getpid() != self.parts().pid {
                return None;
            }
            events::begin_early(self);
        }
        Some(self.header().no_syscalls.fetch_add(NO_CALLS_SAID, Ordering::SeqCst) == 0)
    }

    /// Takes back what `forbid_calls` announced, because the attempt failed.
    pub fn allow_calls(&self) {
        if self.gate() & ACTIVE != 0 {
            let taken_back = |said: u32| said.checked_sub(NO_CALLS_SAID);
            // The subtraction fails if another recording has begun since, because nothing was announced to that one.
            let _ = self.header().no_syscalls.fetch_update(Ordering::SeqCst, Ordering::Relaxed, taken_back);
        }
    }

    /// Called by a thread that is about to forbid the time stamp counter to itself.
    pub fn leave_counter(&self) {
        if self.gate_after_start() & ACTIVE != 0 {
            self.clock.leave_counter(self.header());
        }
    }

    /// Called before the first stamp of a thread. Makes a system call.
    pub fn check_clock(&self) {
        self.clock.check_thread(self.header());
    }

    /// As `may_call`, but the gate may be shut. Returns true if recording has not started.
    pub fn may_call_if_ready(&self) -> bool {
        self.parts_if_any().is_none_or(|parts| parts.region.header().no_syscalls.load(Ordering::Relaxed) == 0)
    }

    /// Returns false while a seccomp filter may kill the program for a system call of this library.
    pub fn may_call(&self) -> bool {
        self.header().may_call()
    }
}
