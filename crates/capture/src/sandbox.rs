//! Noticing what a program forbids itself, before it is in force: system calls (seccomp) and the time stamp counter.
//!
//! Afterwards a system call or an `rdtsc` of ours may be the program's death, and asking whether it is so is itself a
//! system call. So the two libc functions by which programs do this are passed through shims that look at the
//! arguments. A program that uses a `syscall` instruction of its own is not noticed in time: see decision 10.
use crate::core::{CORE, Core};
use crate::elf::LinkMap;
use crate::local::{Level, thread_pointer};
use crate::real;
use crate::sys;
use channel::SlotState;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Options of prctl.
pub const PR_SET_SECCOMP: u32 = 22;
pub const PR_SET_TSC: u32 = 26;
/// Numbers of system calls.
pub const SYS_PRCTL: u32 = 157;
pub const SYS_SECCOMP: u32 = 317;
/// Arguments of them.
const SECCOMP_MODE_STRICT: u64 = 1;
const SECCOMP_MODE_FILTER: u64 = 2;
const SECCOMP_SET_MODE_STRICT: u64 = 0;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const SECCOMP_FILTER_FLAG_TSYNC: u64 = 1;
const SECCOMP_FILTER_FLAG_NEW_LISTENER: u64 = 8;
const PR_TSC_SIGSEGV: u64 = 2;

/// libc's `prctl` and `syscall`; null until the start.
pub static PRCTL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
pub static SYSCALL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// # Safety
/// As for `real::resolve`: `first` is the loader's list, which does not change meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    for (name, place) in [(&b"prctl"[..], &PRCTL), (&b"syscall"[..], &SYSCALL)] {
        // SAFETY: `find_behind` asks for the loader's list, unchanged meanwhile, which the caller promises of `first`.
        if let Some(address) = unsafe { real::find_behind(first, ourselves, name) } {
            place.store(address as *mut (), Ordering::Release);
        }
    }
}

/// What a call forbids the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forbidden {
    Calls,
    /// Those of all threads. If that fails because of one thread, its tid is the result, unless a listener's descriptor
    /// was asked for.
    AllCalls {
        returns_listener: bool,
    },
    /// Strict mode switches the time stamp counter off, too.
    CallsAndCounter,
    Counter,
}

fn by_prctl(option: u32, argument: u64) -> Option<Forbidden> {
    match (option, argument) {
        (PR_SET_SECCOMP, SECCOMP_MODE_STRICT) => Some(Forbidden::CallsAndCounter),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER) => Some(Forbidden::Calls),
        (PR_SET_TSC, PR_TSC_SIGSEGV) => Some(Forbidden::Counter),
        _ => None,
    }
}

fn by_syscall(number: u32, first: u64, second: u64) -> Option<Forbidden> {
    match (number, first) {
        (SYS_PRCTL, option) => by_prctl(option as u32, second),
        // With any flag it fails: libseccomp finds out like that whether there is such a call.
        (SYS_SECCOMP, SECCOMP_SET_MODE_STRICT) if second == 0 => Some(Forbidden::CallsAndCounter),
        (SYS_SECCOMP, SECCOMP_SET_MODE_FILTER) if second & SECCOMP_FILTER_FLAG_TSYNC != 0 => {
            Some(Forbidden::AllCalls { returns_listener: second & SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 })
        }
        (SYS_SECCOMP, SECCOMP_SET_MODE_FILTER) => Some(Forbidden::Calls),
        _ => None,
    }
}

/// What the shims pass on to `returned`, so they are numbers.
const IGNORE_RESULT: u32 = 0;
const FAILS_WITH_MINUS_ONE: u32 = 1;
const SUCCEEDS_WITH_ZERO: u32 = 2;

/// Unless the result is `IGNORE_RESULT`, `returned` is to be called with it and with what the real function has
/// returned.
fn announce(forbidden: Option<Forbidden>) -> u32 {
    // The first function of the program that we see may be this one.
    CORE.start();
    let is_counter = matches!(forbidden, Some(Forbidden::Counter | Forbidden::CallsAndCounter));
    if is_counter {
        CORE.leave_counter();
    }
    if matches!(forbidden, None | Some(Forbidden::Counter)) {
        return IGNORE_RESULT;
    }
    let is_first = CORE.forbid_calls();
    if is_first == Some(true) && matches!(forbidden, Some(Forbidden::AllCalls { .. })) {
        let_hooks_finish(&CORE);
    }
    match (is_first, forbidden) {
        (None, _) => IGNORE_RESULT,
        (_, Some(Forbidden::AllCalls { returns_listener: false })) => SUCCEEDS_WITH_ZERO,
        _ => FAILS_WITH_MINUS_ONE,
    }
}

/// Threads that are about to make system calls outside of a hook whose guard is up.
static CALLING: AtomicU32 = AtomicU32::new(0);

/// Held by such a thread. It asks `may_call` afterwards.
pub struct Calling(());

impl Calling {
    pub fn begin() -> Self {
        CALLING.fetch_add(1, Ordering::SeqCst);
        Calling(())
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until every hook of another thread that may have asked `may_call` too early is left. The longest that a hook
/// sleeps is 100 ms, and it is woken; a hook that was left by a jump is waited for in vain.
fn let_hooks_finish(core: &Core) {
    const MOST_MS: u64 = 250;
    let deadline = sys::now_ms() + MOST_MS;
    // From here on a thread that puts its guard up sees the announcement.
    sys::membarrier();
    let slots = || {
        (0..core.header().slot_count.load(Ordering::Acquire))
            .filter_map(|index| Some((index, core.region().slot(index)?)))
    };
    for (_, slot) in slots().filter(|(_, slot)| slot.waiting.load(Ordering::Acquire) != 0) {
        sys::futex_wake(&slot.waiting);
    }
    let mut is_late = false;
    let mut wait_while = |is_busy: &dyn Fn() -> bool| {
        while !is_late && is_busy() {
            sys::yield_processor();
            is_late = sys::now_ms() > deadline;
        }
    };
    let own = core.threads().find(thread_pointer());
    for (index, _) in slots().filter(|(_, slot)| slot.owner().state() == SlotState::Live) {
        let Some(area) = core.area(index) else { continue };
        let local = core.local(index, area);
        if Some(local) == own {
            continue;
        }
        // SAFETY: locals stay mapped (see `Local`), and `core.area` has mapped this one. Its thread may write these
        // words meanwhile, so they are only read, without a reference and volatile: each is an aligned word, old or
        // new.
        let level = |level: *const Level| unsafe {
            ((&raw const (*level).guard).read_volatile(), (&raw const (*level).ring.head).read_volatile())
        };
        // SAFETY: only computes addresses, of fields of the `Local` that lies in the area which `core.area` has mapped.
        for place in unsafe { [&raw const (*local).main, &raw const (*local).nested] } {
            let (_, head) = level(place);
            wait_while(&|| matches!(level(place), (guard, now) if guard != 0 && now == head));
        }
    }
    wait_while(&|| CALLING.load(Ordering::SeqCst) != 0);
}

/// The shim of `prctl` calls this for the options above, or when the real function is not known yet.
pub extern "C" fn before_prctl(option: u32, argument: u64) -> u32 {
    announce(by_prctl(option, argument))
}

/// The shim of `syscall` calls this for the numbers above, or when the real function is not known yet.
pub extern "C" fn before_syscall(number: u32, first: u64, second: u64) -> u32 {
    announce(by_syscall(number, first, second))
}

/// The announced call has returned. If it failed, nothing is forbidden.
pub extern "C" fn returned(expected: u32, result: i32) {
    let has_failed = if expected == SUCCEEDS_WITH_ZERO { result != 0 } else { result == -1 };
    if has_failed {
        CORE.allow_calls();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_forbids_something_is_noticed() {
        assert_eq!(by_prctl(PR_SET_SECCOMP, 1), Some(Forbidden::CallsAndCounter));
        assert_eq!(by_prctl(PR_SET_SECCOMP, 2), Some(Forbidden::Calls));
        assert_eq!(by_prctl(PR_SET_SECCOMP, 3), None);
        assert_eq!((by_prctl(PR_SET_TSC, 2), by_prctl(PR_SET_TSC, 1)), (Some(Forbidden::Counter), None));
        assert_eq!(by_syscall(SYS_PRCTL, PR_SET_TSC as u64, 2), Some(Forbidden::Counter));
        assert_eq!(by_syscall(SYS_SECCOMP, 0, 0), Some(Forbidden::CallsAndCounter));
        assert_eq!(by_syscall(SYS_SECCOMP, 1, 0), Some(Forbidden::Calls));
        assert_eq!(by_syscall(SYS_SECCOMP, 1, 1), Some(Forbidden::AllCalls { returns_listener: false }));
        assert_eq!(by_syscall(SYS_SECCOMP, 1, 1 | 8), Some(Forbidden::AllCalls { returns_listener: true }));
        assert_eq!(by_syscall(SYS_SECCOMP, 0, 1), None);
        // SECCOMP_GET_ACTION_AVAIL; pipe, which has the number of PR_SET_SECCOMP.
        assert_eq!((by_syscall(SYS_SECCOMP, 2, 0), by_syscall(PR_SET_SECCOMP, 1, 0)), (None, None));
    }
}
