//! Signals that are sent to us. They are passed on to a program that we launched. They end the recording of a program
//! that we attached to.
//!
//! Receives: the target's pid. A thread waits for signals. Must hold: while a launched program runs, we never die of a
//! signal in `PASSED_ON`. A signal that arrives before the program has started reaches it when it starts. A signal that
//! the terminal sends to the whole process group is not sent twice.
use collector::{Inbox, Received};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
    SIGXCPU,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The signals that people send to a service. In a container we are the first process, so they send them to our pid.
/// Signals that stop a process or report a fault of its own, and real-time signals, are not passed on.
const PASSED_ON: [i32; 13] =
    [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGIO, SIGPROF, SIGURG, SIGVTALRM, SIGWINCH];

/// Sends a signal to the target, if there is one.
pub fn pass_on(target: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(target), Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns true for a signal that the terminal sends to every process of the group, and so also to the program.
pub fn is_for_group(received: Received) -> bool {
    received.is_from_kernel && matches!(received.signal, SIGINT | SIGQUIT | SIGHUP | SIGCONT | SIGWINCH)
}

/// Signals that end a process without a handler, except SIGKILL, those about a fault of its own, and SIGPIPE and
/// SIGXFSZ, which we ignore. `stop_flag` also handles the real-time signals.
const TERMINATING: [i32; 13] =
    [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, STKFLT, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, PWR];
const STKFLT: i32 = 16;
const PWR: i32 = 30;
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Returns a flag that every signal sets that would end us. Signals that were ignored when we were started (`nohup`)
/// stay ignored.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for signal in TERMINATING.into_iter().chain(REAL_TIME).filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Returns the signals that this process ignores: bit n - 1 is signal n. These are the ones that were ignored when we
/// were started, without SIGCHLD, and SIGPIPE and SIGXFSZ.
pub fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Blocks signals from now on. They are passed on once the target exists.
#[derive(Debug)]
pub struct Signals {
    inbox: Inbox,
    target: Arc<AtomicI32>,
    start: Sender<()>,
    interrupts: Receiver<i32>,
}

impl Signals {
    pub fn take() -> io::Result<Self> {
        let inbox = Inbox::open(&PASSED_ON);
        let target = Arc::new(AtomicI32::new(0));
        let known = Arc::clone(&target);
        let (start, started) = channel();
        let (interrupted, interrupts) = channel();
        std::thread::Builder::new().name("heaptrack-sig".into()).spawn(move || {
            if started.recv().is_err() {
                return;
            }
            loop {
                let received = inbox.wait();
                match known.load(Ordering::Acquire) {
                    0 if matches!(received.signal, SIGINT | SIGTERM | SIGHUP) => {
                        crate::unfinished::interrupt(received.signal);
                        let _ = interrupted.send(received.signal);
                    }
                    pid if !is_for_group(received) => pass_on(pid, received.signal),
                    _ => (),
                }
            }
        })?;
        Ok(Signals { inbox, target, start, interrupts })
    }

    /// Called when the target exists, has not started yet, and has all signals blocked. It gets every signal that came
    /// so far. A signal that the terminal also sent to the target stays a single one, because it is still pending
    /// there.
    pub fn pass_on_to(&self, pid: u32) {
        while let Some(received) = self.inbox.pending() {
            pass_on(pid as i32, received.signal);
        }
        self.target.store(pid as i32, Ordering::Release);
        let _ = self.start.send(());
    }

    /// Passes no more signals on, because the target has ended and its pid may soon belong to another process.
    pub fn keep(&self) {
        self.target.store(0, Ordering::Release);
    }

    /// Returns when the user interrupts us after the target's end.
    pub fn wait_for_interrupt(&self) {
        let _ = self.interrupts.recv();
    }
}
