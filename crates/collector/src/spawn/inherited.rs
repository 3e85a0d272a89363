//! What a program inherits from us, as it was when we were started.
//!
//! Rust's runtime changes some of it before `main`: it ignores SIGPIPE and opens /dev/null for closed standard streams.
//! So a constructor looks at signals and descriptors before that. For signals the kernel is asked directly, because
//! libc's functions hide signals 32 and 33 from their callers.
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bit n - 1: signal n was ignored at our start.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Bit n: descriptor n (0 to 2) was closed at our start.
static CLOSED: AtomicU32 = AtomicU32::new(0);

#[used]
// SAFETY: `.init_array` holds pointers to C functions. libc calls each once before `main`, with arguments that a
// function without parameters may ignore on x86-64. `before_main` makes system calls and stores atomics; it needs
// nothing of Rust's runtime.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    let ignored = (1..=SIGNALS).filter(|signal| handler_of(*signal) == libc::SIG_IGN).map(bit).sum();
    IGNORED.store(ignored, Ordering::Relaxed);
    // SAFETY: `F_GETFD` takes numbers only, and changes nothing, whether the descriptor is open or not.
    let is_closed = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == -1;
    let closed = (0..3).filter(is_closed).map(|fd| 1 << fd).sum();
    CLOSED.store(closed, Ordering::Relaxed);
}

const SIGNALS: i32 = 64;
/// Bytes of the kernel's signal set.
const SET: usize = 8;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

fn handler_of(signal: i32) -> usize {
    let mut action = Action::default();
    // SAFETY: the new action is null, so nothing is set. The kernel writes one `struct sigaction`, which `Action` has
    // the layout of, into the local `action`; `SET` is the size of the mask in it.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, ptr::null::<Action>(), &raw mut action, SET) };
    action.handler
}

/// `handler` is `SIG_DFL` or `SIG_IGN`.
fn set_handler(signal: i32, handler: usize) {
    let action = Action { handler, ..Action::default() };
    // SAFETY: the kernel reads one `struct sigaction`, which `Action` has the layout of, from the local `action`. Both
    // callers pass `SIG_DFL` or `SIG_IGN`, so no address becomes a handler that runs without a restorer.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, ptr::null_mut::<Action>(), SET) };
}

/// Sets this thread's signal mask and returns the old one.
pub(super) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the kernel reads `SET` = 8 bytes from `mask` and writes as many into `before`; both are local words.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, SET) };
    before
}

/// Blocks all signals for this thread and returns the old mask.
pub(super) fn block_all() -> u64 {
    set_mask(u64::MAX)
}

fn mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: the new mask is null, so nothing is set. The kernel writes `SET` = 8 bytes into the local `mask`.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, ptr::null::<u64>(), &raw mut mask, SET) };
    mask
}

/// The settings that a program inherits from us. Take them before signals are blocked, because the signal mask is one
/// of them.
#[derive(Clone, Copy)]
pub struct Inherited {
    ignored: u64,
    closed: u32,
    mask: u64,
    address_space: libc::rlimit,
    file_size: libc::rlimit,
    cpu_time: libc::rlimit,
}

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut value = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `getrlimit` writes one `rlimit`, into the local `value`.
    unsafe { libc::getrlimit(resource, &mut value) };
    value
}

/// Removes a limit from ourselves, as far as we may.
fn lift(resource: libc::__rlimit_resource_t, now: libc::rlimit) {
    if now.rlim_cur == libc::RLIM_INFINITY {
        return;
    }
    let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let highest = libc::rlimit { rlim_cur: now.rlim_max, rlim_max: now.rlim_max };
    // SAFETY: `setrlimit` reads one `rlimit`, from the local `none` or `highest`.
    unsafe {
        if libc::setrlimit(resource, &none) != 0 {
            libc::setrlimit(resource, &highest);
        }
    }
}

/// Removes the limit of CPU time from ourselves. If we may not do that, SIGXCPU announces the limit a second before the
/// kernel kills us.
fn lift_cpu_time(now: libc::rlimit) {
    lift(libc::RLIMIT_CPU, now);
    let most = limit(libc::RLIMIT_CPU).rlim_max;
    if most != libc::RLIM_INFINITY {
        let announced = libc::rlimit { rlim_cur: most.saturating_sub(1).max(1), rlim_max: most };
        // SAFETY: `setrlimit` reads one `rlimit`, from the local `announced`.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &announced) };
    }
}

impl Inherited {
    /// Remembers the settings, then removes those that would stop a recorder: limits, death by a file that is too
    /// large, and an ignored SIGCHLD, for which the kernel discards the exit codes of children.
    pub fn take() -> Self {
        let (address_space, file_size) = (limit(libc::RLIMIT_AS), limit(libc::RLIMIT_FSIZE));
        let cpu_time = limit(libc::RLIMIT_CPU);
        lift_cpu_time(cpu_time);
        lift(libc::RLIMIT_AS, address_space);
        lift(libc::RLIMIT_FSIZE, file_size);
        set_handler(libc::SIGXFSZ, libc::SIG_IGN);
        set_handler(libc::SIGCHLD, libc::SIG_DFL);
        let (ignored, closed) = (IGNORED.load(Ordering::Relaxed), CLOSED.load(Ordering::Relaxed));
        Inherited { ignored, closed, mask: mask(), address_space, file_size, cpu_time }
    }

    /// True if the target's address space is limited, so our memory in it must be small.
    pub const fn limits_address_space(&self) -> bool {
        self.address_space.rlim_cur != libc::RLIM_INFINITY
    }

    pub const fn limits_file_size(&self) -> bool {
        self.file_size.rlim_cur != libc::RLIM_INFINITY
    }

    /// Runs in the forked child: only async-signal-safe calls. Signals come last, because a pending one that the
    /// program does not ignore ends the process here, as it would have ended the program.
    pub(super) fn restore(&self) {
        // SAFETY: `setrlimit` reads the three limits from `self`. The descriptors that are closed were closed when we
        // were started (`before_main`), so they are the /dev/null that Rust's runtime put there; nothing in this forked
        // child owns them.
        unsafe {
            libc::setrlimit(libc::RLIMIT_AS, &self.address_space);
            libc::setrlimit(libc::RLIMIT_FSIZE, &self.file_size);
            libc::setrlimit(libc::RLIMIT_CPU, &self.cpu_time);
            (0..3).filter(|fd| self.closed >> fd & 1 != 0).for_each(|fd| {
                libc::close(fd);
            });
        }
        for signal in 1..=SIGNALS {
            let is_ignored = self.ignored & bit(signal) != 0;
            set_handler(signal, if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        set_mask(self.mask);
    }
}
