//! Starts the target as if nobody stood between it and whoever started us.
//!
//! Given: a command. Gives back: its process. What must hold: the program has the signal mask, ignored signals and
//! limits that we were started with; between fork and exec only calls that are safe there are made.
//!
//! With `mapping.rs` the only file of this crate with unsafe code.
use crate::mapping::Mapping;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rust's runtime ignores SIGPIPE before `main`, so it must be asked for earlier.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: `.init_array` holds functions of this type, which libc calls once before `main`.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the place is large enough.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: zeroed, and filled by the call.
    known && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

const SIGNALS: i32 = 64;

/// What a program inherits, as it was when we were started. Make it before signal handlers are set.
#[derive(Clone, Copy)]
pub struct Inherited {
    /// Bit n: signal n was ignored.
    ignored: u128,
    mask: libc::sigset_t,
    address_space: libc::rlimit,
    file_size: libc::rlimit,
}

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut value = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes into `value`.
    unsafe { libc::getrlimit(resource, &mut value) };
    value
}

/// Takes a limit off ourselves, as far as we may.
fn lift(resource: libc::__rlimit_resource_t, now: libc::rlimit) {
    if now.rlim_cur == libc::RLIM_INFINITY {
        return;
    }
    let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let highest = libc::rlimit { rlim_cur: now.rlim_max, rlim_max: now.rlim_max };
    // SAFETY: read by the kernel only.
    unsafe {
        if libc::setrlimit(resource, &none) != 0 {
            libc::setrlimit(resource, &highest);
        }
    }
}

impl Inherited {
    /// Remembers, then frees us of what would stop a recorder: limits, and death by a file that is too large.
    pub fn take() -> Self {
        let mut ignored = 0u128;
        for signal in 1..=SIGNALS {
            let was =
                if signal == libc::SIGPIPE { PIPE_WAS_IGNORED.load(Ordering::Relaxed) } else { is_ignored(signal) };
            ignored |= (was as u128) << signal;
        }
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: asks only; the place is large enough.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
        // SAFETY: zeroed, and filled by the call.
        let mask = unsafe { mask.assume_init() };
        let (address_space, file_size) = (limit(libc::RLIMIT_AS), limit(libc::RLIMIT_FSIZE));
        lift(libc::RLIMIT_AS, address_space);
        lift(libc::RLIMIT_FSIZE, file_size);
        // SAFETY: no handler is involved.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Inherited { ignored, mask, address_space, file_size }
    }

    /// The target's address space has a limit: our memory in it must be small.
    pub const fn limits_address_space(&self) -> bool {
        self.address_space.rlim_cur != libc::RLIM_INFINITY
    }

    pub const fn limits_file_size(&self) -> bool {
        self.file_size.rlim_cur != libc::RLIM_INFINITY
    }

    /// In the forked child: only calls that are safe after a fork.
    fn restore(&self) {
        for signal in 1..=SIGNALS {
            if self.ignored >> signal & 1 != 0 {
                // SAFETY: no handler is involved.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            } else if signal == libc::SIGXFSZ {
                // SAFETY: as above.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
        }
        // SAFETY: read by the kernel only.
        unsafe {
            libc::setrlimit(libc::RLIMIT_AS, &self.address_space);
            libc::setrlimit(libc::RLIMIT_FSIZE, &self.file_size);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut());
        }
    }
}

/// Starts `command`. With a mapping the child may record: it inherits the memfd under the same number, and its pid is
/// in the header before the program starts.
pub fn spawn(command: &mut Command, mapping: Option<&Mapping>, inherited: &Inherited) -> io::Result<Child> {
    let inherited = *inherited;
    let channel = mapping.map(|mapping| (mapping.fd().as_raw_fd(), &mapping.region().header().target_pid));
    let prepare = move || {
        if let Some((fd, target_pid)) = channel {
            // SAFETY: changes a flag of our own descriptor.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: has no preconditions.
            target_pid.store(unsafe { libc::getpid() } as u32, Ordering::Release);
        }
        inherited.restore();
        Ok(())
    };
    // SAFETY: the closure makes system calls and an atomic store, nothing that needs a lock or memory.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// The most resident memory that any child we waited for ever had. The kernel counts from the fork, so a program that
/// stayed smaller than we were then is told as large as us.
pub fn children_peak_rss() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is large enough.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: zeroed, and filled by the call.
    unsafe { usage.assume_init() }.ru_maxrss as u64 * 1024
}
