//! Noticing that the program enters a seccomp sandbox, before it is in it.
//!
//! Inside one, a system call of ours may be the program's death, and asking whether we are inside is such a call. So the
//! two libc functions by which programs enter are passed through shims that look at their first argument and jump on.
use crate::core::CORE;
use crate::elf::LinkMap;
use crate::real;
use core::sync::atomic::{AtomicPtr, Ordering};

/// prctl's option and the system call's number.
pub const PR_SET_SECCOMP: u32 = 22;
pub const SYS_SECCOMP: u32 = 317;

/// libc's `prctl` and `syscall`; null until the start.
pub static PRCTL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
pub static SYSCALL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// # Safety
/// As `real::resolve`.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    for (name, place) in [(&b"prctl"[..], &PRCTL), (&b"syscall"[..], &SYSCALL)] {
        // SAFETY: the caller's promise.
        if let Some(address) = unsafe { real::find_behind(first, ourselves, name) } {
            place.store(address as *mut (), Ordering::Release);
        }
    }
}

/// What the shims call when the argument is one of the two above, or when the real function is not known yet.
pub extern "C" fn notice(argument: u32) {
    CORE.start();
    if argument == PR_SET_SECCOMP || argument == SYS_SECCOMP {
        CORE.entering_sandbox();
    }
}
