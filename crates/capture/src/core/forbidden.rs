//! What the program has forbidden itself, or is about to: system calls and the time stamp counter. See `sandbox.rs`.
use super::{ACTIVE, Core};
use crate::{events, follow, sys};
use channel::NO_CALLS_SAID;
use core::sync::atomic::Ordering;

impl Core {
    /// The calling thread is about to forbid system calls. Returns `None` if that does not matter. Otherwise
    /// `allow_calls` must follow should it fail, and the value is true if calls were allowed before.
    pub fn forbid_calls(&self) -> Option<bool> {
        if self.gate() & ACTIVE == 0 {
            if follow::may_join() {
                // A forked child that has not joined yet: afterwards it must not.
                follow::miss();
                follow::give_up();
            }
            return None;
        }
        // A child of vfork shares our memory, and its filter is not ours.
        if self.may_call() {
            if sys::getpid() != self.parts().pid {
                return None;
            }
            events::begin_early(self);
        }
        Some(self.header().no_syscalls.fetch_add(NO_CALLS_SAID, Ordering::SeqCst) == 0)
    }

    /// What `forbid_calls` announced did not happen.
    pub fn allow_calls(&self) {
        if self.gate() & ACTIVE != 0 {
            let taken_back = |said: u32| said.checked_sub(NO_CALLS_SAID);
            // Fails if another recording has begun since: nothing was announced to that one.
            let _ = self.header().no_syscalls.fetch_update(Ordering::SeqCst, Ordering::Relaxed, taken_back);
        }
    }

    /// The calling thread is about to forbid itself the time stamp counter.
    pub fn leave_counter(&self) {
        if self.gate() & ACTIVE != 0 {
            self.clock.leave_counter(self.header());
        }
    }

    /// Before the first stamp of a thread. Makes a system call.
    pub fn check_clock(&self) {
        self.clock.check_thread(self.header());
    }

    /// As `may_call`, where the gate may be shut.
    pub fn may_call_if_ready(&self) -> bool {
        self.parts_if_any().is_none_or(|parts| parts.region.header().no_syscalls.load(Ordering::Relaxed) == 0)
    }

    /// False while a seccomp filter may punish any call of ours.
    pub fn may_call(&self) -> bool {
        self.header().may_call()
    }
}
