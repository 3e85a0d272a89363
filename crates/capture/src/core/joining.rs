//! How a forked child of a followed process gets shared memory of its own.
use super::{Core, Parts, State};
use crate::follow::{self, Need};
use crate::{loader, sys};
use core::sync::atomic::Ordering;

impl Core {
    /// Called in a forked child of a followed process. Gets shared memory of its own and starts recording. If that
    /// fails for an event, it is not tried again. Returns the gate.
    #[cold]
    #[inline(never)]
    pub(super) fn join(&self, need: Need) -> u32 {
        // A second thread, or a signal handler that interrupts this one, does not wait. Its event is not recorded.
        if !self.advance(State::Ready, State::Joining) {
            return 0;
        }
        let joined = self.join_as_child(need);
        // After a farewell, the exec may fail. Then the process can have events.
        if !joined && need == Need::Event {
            follow::give_up();
        }
        self.settle(State::Ready);
        if joined {
            self.open();
        }
        self.gate()
    }

    fn join_as_child(&self, need: Need) -> bool {
        let Parts { debug, program, pid: parent, .. } = *self.parts();
        // Another thread of the parent may have been in the loader at the fork. Then the list is half changed.
        // SAFETY: `find_debug` found the loader's `r_debug` in the parent; the child has a copy of it at the same
        // address.
        if !self.may_call() || !unsafe { loader::is_quiet(debug) } {
            follow::miss(need);
            return false;
        }
        let pid = sys::getpid();
        if pid == parent {
            return false;
        }
        let Some(region) = follow::claim(pid, need) else { return false };
        follow::store_origin(region.header(), parent, Some(crate::fork::number()));
        region.header().target_pid.store(pid, Ordering::Release);
        self.announced.store(false, Ordering::Relaxed);
        self.threads_begun.store(0, Ordering::Relaxed);
        self.only.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.guessed.store(false, Ordering::Relaxed);
        self.assemble(region, debug, program, pid).is_some()
    }
}
