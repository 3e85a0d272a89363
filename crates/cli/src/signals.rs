//! Signals that are sent to us. They are passed on to a program that we launched. They end the recording of a program
//! that we attached to.
//!
//! Receives: the target's pid. A thread waits for signals. Must hold: while a launched program runs, we die of SIGKILL
//! and of signals about a fault of our own, and of no other signal. A signal that arrives before the program has started
//! reaches it when it starts. A signal that the terminal sends to the whole process group is not sent twice. SIGXCPU of
//! the kernel is about our own CPU time: it ends the recording, and the program continues.
use crate::record::wait_for;
use collector::{End, Inbox, Received};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
    SIGXCPU,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Signals that end a process without a handler, except SIGKILL, those about a fault of its own, and SIGPIPE and
/// SIGXFSZ, which we ignore.
pub fn terminating() -> impl Iterator<Item = i32> {
    const NAMED: [i32; 13] =
        [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, STKFLT, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO, PWR];
    const STKFLT: i32 = 16;
    const PWR: i32 = 30;
    const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
    NAMED.into_iter().chain(REAL_TIME)
}

/// Returns the signals that people send to a service. In a container we are the first process, so they send them to our
/// pid. Signals that stop a process or report a fault of its own are not passed on.
pub fn passed_on() -> Vec<i32> {
    terminating().chain([SIGCONT, SIGURG, SIGWINCH]).collect()
}

/// Returns true for a signal that the terminal sends to every process of the group, and so also to the program.
pub fn is_for_group(received: Received) -> bool {
    received.is_from_kernel && matches!(received.signal, SIGINT | SIGQUIT | SIGHUP | SIGCONT | SIGWINCH)
}

/// Sets the flag if the signal asks for a snapshot. Returns true if it does.
fn is_asked(received: Received, snapshot: Option<&Arc<AtomicBool>>) -> bool {
    let flag = snapshot.filter(|_| received.signal == SIGUSR1);
    flag.is_some_and(|flag| {
        flag.store(true, Ordering::Release);
        true
    })
}

/// Returns true for the signal by which the kernel announces that our own CPU time is used up (`ulimit -t`).
pub fn is_cpu_limit(received: Received) -> bool {
    received.is_from_kernel && received.signal == SIGXCPU
}

/// Returns a flag that every signal sets that would end us. Signals that were ignored when we were started (`nohup`)
/// stay ignored. `snapshot`: a flag that SIGUSR1 sets instead.
pub fn stop_flag(snapshot: Option<&Arc<AtomicBool>>) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for signal in terminating().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        let set = snapshot.filter(|_| signal == SIGUSR1).unwrap_or(&flag);
        signal_hook::flag::register(signal, Arc::clone(set))?;
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
    /// SIGUSR1 sets this flag, if there is one, and is not passed on.
    snapshot: Option<Arc<AtomicBool>>,
    start: Sender<()>,
    interrupts: Receiver<i32>,
    send: Sender<Waited>,
    waited: Receiver<Waited>,
}

/// What `Signals::wait` has waited for.
#[derive(Clone, Copy, Debug)]
pub enum Waited {
    /// The end of our child.
    Ended(End),
    /// The CPU time that we may use is nearly over.
    CpuLimit,
}

impl Signals {
    /// `snapshot`: a flag that SIGUSR1 sets. Without it, SIGUSR1 is passed on like the others.
    pub fn take(snapshot: Option<Arc<AtomicBool>>) -> io::Result<Self> {
        let inbox = Inbox::open(&passed_on());
        let target = Arc::new(AtomicI32::new(0));
        let known = Arc::clone(&target);
        let asked = snapshot.clone();
        let (start, started) = channel();
        let (interrupted, interrupts) = channel();
        let (send, waited) = channel();
        let limited = send.clone();
        std::thread::Builder::new().name("heaptrack-sig".into()).spawn(move || {
            if started.recv().is_err() {
                return;
            }
            loop {
                let received = inbox.wait();
                if is_cpu_limit(received) {
                    let _ = limited.send(Waited::CpuLimit);
                    continue;
                }
                if is_asked(received, asked.as_ref()) {
                    continue;
                }
                match known.load(Ordering::Acquire) {
                    0 if matches!(received.signal, SIGINT | SIGTERM | SIGHUP) => {
                        crate::unfinished::interrupt(received.signal);
                        let _ = interrupted.send(received.signal);
                    }
                    pid if !is_for_group(received) => received.pass_on(pid),
                    _ => (),
                }
            }
        })?;
        Ok(Signals { inbox, target, snapshot, start, interrupts, send, waited })
    }

    /// Returns true if a signal asked us to end, since the program that we launched has ended.
    pub fn is_interrupted(&self) -> bool {
        self.interrupts.try_recv().is_ok()
    }

    /// Called when the target exists, has not started yet, and has all signals blocked. It gets every signal that came
    /// so far. A signal that the terminal also sent to the target stays a single one, because it is still pending
    /// there.
    pub fn pass_on_to(&self, pid: u32) {
        while let Some(received) = self.inbox.pending() {
            if !is_asked(received, self.snapshot.as_ref()) {
                received.pass_on(pid as i32);
            }
        }
        self.target.store(pid as i32, Ordering::Release);
        let _ = self.start.send(());
    }

    /// Starts to wait for the end of our child, on a thread of its own.
    pub fn wait_for(&self, child: u32) {
        let send = self.send.clone();
        let wait = move || {
            let _ = send.send(Waited::Ended(wait_for(child)));
        };
        // If no thread can be started, this thread waits, and a limit of CPU time is not noticed.
        if std::thread::Builder::new().name("heaptrack-wait".into()).spawn(wait).is_err() {
            let _ = self.send.send(Waited::Ended(wait_for(child)));
        }
    }

    /// Returns when our child has ended or the CPU time that we may use is nearly over. Call `wait_for` first.
    pub fn next(&self) -> Waited {
        self.waited.recv().unwrap_or(Waited::Ended(End::default()))
    }

    /// Returns when our child has ended.
    pub fn end(&self) -> End {
        loop {
            if let Waited::Ended(end) = self.next() {
                return end;
            }
        }
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
