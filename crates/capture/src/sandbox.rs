//! Noticing, before it takes effect, that a program forbids system calls (seccomp) or the time stamp counter to itself.
//!
//! Afterwards a system call or an `rdtsc` of this library may kill the program, and to ask whether that is so would
//! itself be a system call. So the two libc functions that programs use for this have shims that look at the arguments.
//! If a program uses a `syscall` instruction of its own, this is not noticed in time: see decision 10.
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
/// Arguments of these options and system calls.
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

/// What a call forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forbidden {
    Calls,
    /// System calls of all threads. If that fails because of one thread, the call returns its tid, unless the call was
    /// to return the descriptor of a listener.
    AllCalls {
        returns_listener: bool,
    },
    /// Strict mode forbids the time stamp counter too.
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
        // With any flag the call fails. libseccomp uses that to find out whether the call exists.
        (SYS_SECCOMP, SECCOMP_SET_MODE_STRICT) if second == 0 => Some(Forbidden::CallsAndCounter),
        (SYS_SECCOMP, SECCOMP_SET_MODE_FILTER) if second & SECCOMP_FILTER_FLAG_TSYNC != 0 => {
            Some(Forbidden::AllCalls { returns_listener: second & SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 })
        }
        (SYS_SECCOMP, SECCOMP_SET_MODE_FILTER) => Some(Forbidden::Calls),
        _ => None,
    }
}

/// What `before_*` returns to a shim. The shim passes it to `returned` after the call, unless it is `IGNORE_RESULT`.
/// These are numbers, because the shims are assembly.
const IGNORE_RESULT: u32 = 0;
const FAILS_WITH_MINUS_ONE: u32 = 1;
const SUCCEEDS_WITH_ZERO: u32 = 2;

/// Prepares for what the call will forbid. Unless this returns `IGNORE_RESULT`, the shim must call `returned` with it
/// and with the result of the real function.
fn announce(forbidden: Option<Forbidden>) -> u32 {
    // This may be the first hooked function that the program calls.
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

/// How many threads are about to make system calls while their guard is not up.
static CALLING: AtomicU32 = AtomicU32::new(0);

/// A thread holds this while it may make system calls and its guard is not up. It must be taken before the thread asks
/// `may_call`.
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

/// Waits for every hook of another thread that may have asked `may_call` before system calls were forbidden. A hook
/// sleeps for at most 100 ms, and is woken here. If a jump has left a hook, its guard is still up, and this function
/// waits until its deadline.
fn let_hooks_finish(core: &Core) {
    const MOST_MS: u64 = 250;
    let deadline = sys::now_ms() + MOST_MS;
    // After this barrier, a thread that raises its guard sees the announcement.
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

/// The shim of `prctl` calls this for the options `PR_SET_SECCOMP` and `PR_SET_TSC`, and if the real function is not
/// known yet.
pub extern "C" fn before_prctl(option: u32, argument: u64) -> u32 {
    announce(by_prctl(option, argument))
}

/// The shim of `syscall` calls this for the numbers `SYS_SECCOMP` and `SYS_PRCTL`, and if the real function is not
/// known yet.
pub extern "C" fn before_syscall(number: u32, first: u64, second: u64) -> u32 {
    announce(by_syscall(number, first, second))
}

/// Called when the announced call has returned. If it failed, it has forbidden nothing, so the announcement is taken
/// back.
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
