//! Signals sent to us: passed on to a program that we launched, the end of the recording of one that we attached to.
//!
//! Given: the target's pid. Gives back: nothing; a thread waits. What must hold: we never die of a signal that the
//! program could survive; what the terminal sends to the whole group is not sent twice.
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
    SIGXCPU,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Sent};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// All that people send to a service, whose pid they take ours for: as the first process of a container ours is the only
/// one they know. Left out is what stops a process or is about a mistake of its own.
const PASSED_ON: [i32; 13] =
    [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGIO, SIGPROF, SIGURG, SIGVTALRM, SIGWINCH];

/// Signals that end a process which has no handler for them: all but those about a mistake of its own, and
/// SIGPIPE and SIGXFSZ, which we ignore. Real-time signals are added.
const TERMINATING: [i32; 13] =
    [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, STKFLT, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, PWR];
const STKFLT: i32 = 16;
const PWR: i32 = 30;
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// A flag that is set by every signal that would end us. Signals that we were started with ignored (`nohup`) stay ignored.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for signal in TERMINATING.into_iter().chain(REAL_TIME).filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// One bit for each signal, from 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Takes signals from now on; they are passed on once the target is known.
#[derive(Debug)]
pub struct Signals {
    target: Arc<AtomicI32>,
}

impl Signals {
    pub fn take() -> io::Result<Self> {
        let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON)?;
        let target = Arc::new(AtomicI32::new(0));
        let known = Arc::clone(&target);
        std::thread::Builder::new().name("heaptrack-sig".into()).spawn(move || {
            for origin in signals.forever() {
                let from_terminal = !matches!(origin.cause, Cause::Sent(Sent::User | Sent::Queue | Sent::TKill));
                let is_for_group =
                    from_terminal && matches!(origin.signal, SIGINT | SIGQUIT | SIGHUP | SIGCONT | SIGWINCH);
                let pid = Pid::from_raw(known.load(Ordering::Acquire));
                if let (Some(pid), Some(signal), false) = (pid, Signal::from_named_raw(origin.signal), is_for_group) {
                    let _ = kill_process(pid, signal);
                }
            }
        })?;
        Ok(Signals { target })
    }

    pub fn pass_on_to(&self, pid: u32) {
        self.target.store(pid as i32, Ordering::Release);
    }

    /// The target is gone, its pid may be somebody else's soon.
    pub fn keep(&self) {
        self.target.store(0, Ordering::Release);
    }
}
