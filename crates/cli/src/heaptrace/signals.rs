//! Signals sent to `heaptrace` itself.
//!
//! SIGUSR1, SIGUSR2 and SIGQUIT are for us, all others for the program. What must hold: we never die of a signal that the
//! program could survive; what the terminal sends to the whole group is not sent twice.
use collector::Bell;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Sent};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// What we were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    BySize,
    ByCount,
    Window,
    /// The program is gone, and we are not to wait for its children.
    Stop,
}

pub struct Signals {
    target: Arc<AtomicI32>,
    told: mpsc::Receiver<Told>,
    bell: Arc<Mutex<Option<Bell>>>,
}

impl Signals {
    pub fn take() -> io::Result<Self> {
        let wanted = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
        let target = Arc::new(AtomicI32::new(0));
        let (sender, told) = mpsc::channel();
        let bell = Arc::new(Mutex::new(None::<Bell>));
        let (known, rung) = (Arc::clone(&target), Arc::clone(&bell));
        std::thread::Builder::new().name("heaptrace-sig".into()).spawn(move || {
            for origin in signals.forever() {
                let pid = Pid::from_raw(known.load(Ordering::Acquire));
                let ours = match origin.signal {
                    SIGUSR1 => Some(Told::BySize),
                    SIGUSR2 => Some(Told::ByCount),
                    SIGQUIT => Some(Told::Window),
                    _ => pid.is_none().then_some(Told::Stop),
                };
                if let Some(ours) = ours {
                    let _ = sender.send(ours);
                    if let Some(bell) = *rung.lock().unwrap_or_else(PoisonError::into_inner) {
                        bell.ring();
                    }
                    continue;
                }
                let from_terminal = !matches!(origin.cause, Cause::Sent(Sent::User | Sent::Queue | Sent::TKill));
                let is_for_group = from_terminal && matches!(origin.signal, SIGINT | SIGHUP);
                if let (Some(pid), Some(signal), false) = (pid, Signal::from_named_raw(origin.signal), is_for_group) {
                    let _ = kill_process(pid, signal);
                }
            }
        })?;
        Ok(Signals { target, told, bell })
    }

    pub fn pass_on_to(&self, pid: u32) {
        self.target.store(pid as i32, Ordering::Release);
    }

    /// The target is gone, its pid may be somebody else's soon.
    pub fn keep(&self) {
        self.target.store(0, Ordering::Release);
    }

    /// Whoever waits there is woken by a signal.
    pub fn wake(&self, bell: Bell) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = Some(bell);
    }

    pub fn told(&self) -> impl Iterator<Item = Told> + '_ {
        self.told.try_iter()
    }
}
