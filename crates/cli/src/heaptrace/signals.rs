//! Signals sent to `heaptrace` itself.
//!
//! SIGUSR1, SIGUSR2 and SIGQUIT are for us. All others that do not stop a process or report a fault of its own are passed
//! on to the program, as `heaptrack` does. SIGXCPU of the kernel is about our own CPU time. Must hold: we never die of one
//! of these signals. A signal that arrives before the program has started is not lost. A signal that the terminal sends
//! to the whole process group is not sent twice.
use crate::signals::{is_cpu_limit, is_for_group, passed_on, terminating};
use collector::{Bell, Inbox, Received};
use signal_hook::consts::{SIGQUIT, SIGUSR1, SIGUSR2};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// The most pending signals that are handled at a time.
const AT_ONCE: usize = 64;

/// A signal's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    BySize,
    ByCount,
    Window,
    /// The user wants us to stop: the program has ended and its children still run, or we are attached to a program.
    Stop,
    /// The CPU time that we may use is nearly over.
    CpuLimit,
}

fn for_us(signal: i32) -> Option<Told> {
    match signal {
        SIGUSR1 => Some(Told::BySize),
        SIGUSR2 => Some(Told::ByCount),
        SIGQUIT => Some(Told::Window),
        _ => None,
    }
}

pub struct Signals {
    inbox: Inbox,
    target: Arc<AtomicI32>,
    start: mpsc::Sender<()>,
    send: mpsc::Sender<Told>,
    told: mpsc::Receiver<Told>,
    bell: Arc<Mutex<Option<Bell>>>,
}

/// The state of the thread that waits for signals.
struct Waiter {
    inbox: Inbox,
    target: Arc<AtomicI32>,
    send: mpsc::Sender<Told>,
    bell: Arc<Mutex<Option<Bell>>>,
}

impl Waiter {
    /// Waits for a signal, and handles all that are pending. They are sorted, so that a report comes before a new
    /// window if both arrive at once: in the new window nothing would be left to report. The kernel returns SIGQUIT
    /// first, because it has the lowest number.
    fn serve(&self) {
        let first = self.inbox.wait();
        let all: Vec<Received> =
            [first].into_iter().chain(std::iter::from_fn(|| self.inbox.pending()).take(AT_ONCE)).collect();
        let pid = self.target.load(Ordering::Acquire);
        let mut told: Vec<Told> = Vec::new();
        for received in all {
            match for_us(received.signal) {
                Some(ours) => told.push(ours),
                None if is_cpu_limit(received) => told.push(Told::CpuLimit),
                None if pid == 0 => told.extend(terminating().any(|it| it == received.signal).then_some(Told::Stop)),
                None if is_for_group(received) => (),
                None => received.pass_on(pid),
            }
        }
        told.sort_unstable();
        for ours in told {
            let _ = self.send.send(ours);
        }
        if let Some(bell) = *self.bell.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.ring();
        }
    }
}

impl Signals {
    pub fn take() -> io::Result<Self> {
        let inbox = Inbox::open(&passed_on());
        let target = Arc::new(AtomicI32::new(0));
        let (send, told) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let bell = Arc::new(Mutex::new(None::<Bell>));
        let waiter = Waiter { inbox, target: Arc::clone(&target), send: send.clone(), bell: Arc::clone(&bell) };
        std::thread::Builder::new().name("heaptrace-sig".into()).spawn(move || {
            if started.recv().is_err() {
                return;
            }
            loop {
                waiter.serve();
            }
        })?;
        Ok(Signals { inbox, target, start, send, told, bell })
    }

    /// Called when the target exists, has not started yet, and has all signals blocked. It receives all signals for it
    /// that arrived so far.
    pub fn pass_on_to(&self, pid: u32) {
        while let Some(received) = self.inbox.pending() {
            match for_us(received.signal) {
                Some(ours) => drop(self.send.send(ours)),
                None => received.pass_on(pid as i32),
            }
        }
        self.target.store(pid as i32, Ordering::Release);
        self.listen();
    }

    /// Starts to handle signals.
    pub fn listen(&self) {
        let _ = self.start.send(());
    }

    /// Passes no more signals on, because the target has ended and its pid may soon belong to another process.
    pub fn keep(&self) {
        self.target.store(0, Ordering::Release);
    }

    /// Sets the bell that a signal rings to wake the loop of the tree.
    pub fn wake(&self, bell: Bell) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = Some(bell);
    }

    pub fn told(&self) -> impl Iterator<Item = Told> + '_ {
        self.told.try_iter()
    }
}
