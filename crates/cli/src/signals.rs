//! Signals sent to us, passed on to the program.
//!
//! Given: the target's pid. Gives back: nothing; a thread waits. What must hold: we never die of a signal that the
//! program could survive; what the terminal sends to the whole group is not sent twice.
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Sent};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// All that people send to a service, whose pid they take ours for: as the first process of a container ours is the only
/// one they know. Left out is what stops a process or is about a mistake of its own.
const PASSED_ON: [i32; 13] =
    [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGIO, SIGPROF, SIGURG, SIGVTALRM, SIGWINCH];

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
