//! Signals that wait until they are taken.
//!
//! Receives: the signals that may be sent to us. Returns: each of them, with its origin. Must hold: the signals are
//! blocked in every thread, so a signal that was not taken yet stays pending in the kernel and is never lost. A handler
//! could not guarantee that: between fork and exec it would run in the child, too.
use std::mem::MaybeUninit;
use std::ptr;

/// A signal that was sent to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub signal: i32,
    /// The kernel sent it, not a process. A signal from the terminal goes to its whole process group.
    pub is_from_kernel: bool,
    /// The value that its sender gave with it, if it was sent by `sigqueue`.
    pub value: Option<usize>,
}

impl Received {
    /// Sends the same signal to another process. Errors are ignored, because the process may have ended.
    pub fn pass_on(self, pid: i32) {
        // A pid that is not positive would mean a group, or all processes.
        if pid <= 0 {
            return;
        }
        match self.value {
            Some(value) => {
                let value = libc::sigval { sival_ptr: ptr::without_provenance_mut(value) };
                // SAFETY: `sigqueue` takes numbers only. The pointer is one for the receiver; neither we nor the kernel
                // follow it.
                unsafe { libc::sigqueue(pid, self.signal, value) };
            }
            // SAFETY: `kill` takes numbers only, and touches no memory of ours.
            None => drop(unsafe { libc::kill(pid, self.signal) }),
        }
    }
}

/// A set of blocked signals. Make it before any thread is started, because threads inherit the blocked signals.
#[derive(Clone, Copy)]
pub struct Inbox {
    wanted: libc::sigset_t,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

impl Inbox {
    /// Blocks these signals for this thread and those that it will start.
    pub fn open(signals: &[i32]) -> Self {
        let mut wanted = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `sigemptyset` and `sigaddset` write into the local `wanted`, a set of libc's size. `zeroed` has
        // initialised all of its integers. A signal that does not exist is refused without effect.
        let wanted = unsafe {
            libc::sigemptyset(wanted.as_mut_ptr());
            signals.iter().for_each(|signal| {
                libc::sigaddset(wanted.as_mut_ptr(), *signal);
            });
            wanted.assume_init()
        };
        // SAFETY: `wanted` is initialised (by `zeroed` and `sigemptyset`) and only read; a null old set is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &wanted, ptr::null_mut()) };
        Inbox { wanted }
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> Received {
        loop {
            if let Some(received) = self.take(ptr::null()) {
                return received;
            }
        }
    }

    /// Returns the pending signal with the lowest number, or `None` if no signal is pending.
    pub fn pending(&self) -> Option<Received> {
        self.take(&libc::timespec { tv_sec: 0, tv_nsec: 0 })
    }

    /// `timeout` is null (no timeout) or valid.
    fn take(&self, timeout: *const libc::timespec) -> Option<Received> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `open` has initialised `wanted`. The kernel writes one `siginfo_t`, into the local `info`. `timeout`
        // is null (`wait`) or points to a `timespec` that lives through this call (`pending`); there are no other
        // callers.
        let signal = unsafe { libc::sigtimedwait(&self.wanted, info.as_mut_ptr(), timeout) };
        // SAFETY: `siginfo_t` consists of integers, and `zeroed` initialised all of them, whatever the call did.
        let info = unsafe { info.assume_init() };
        let is_queued = info.si_code == libc::SI_QUEUE;
        // SAFETY: `zeroed` initialised all bytes of `info`, and the kernel fills in the value of a queued signal.
        let value = is_queued.then(|| unsafe { info.si_value() }.sival_ptr.addr());
        (signal > 0).then_some(Received { signal, is_from_kernel: info.si_code > 0, value })
    }
}
