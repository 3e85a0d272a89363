//! Everything that happens, in one queue: keys, the mouse, signals, and replies of the worker.
use crate::worker::Reply;
use crossterm::event::{Event, read};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

pub(crate) enum Happening {
    Input(Event),
    /// The terminal cannot be read any more.
    NoInput,
    Signal(i32),
    Reply(Reply),
}

pub(crate) struct Happenings {
    pub(crate) receiver: Receiver<Happening>,
    sender: Sender<Happening>,
}

impl Happenings {
    /// Starts to wait for signals.
    pub(crate) fn start() -> io::Result<Happenings> {
        let (sender, receiver) = channel();
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGCONT])?;
        let send = sender.clone();
        std::thread::Builder::new().name("heaptrack-signal".into()).spawn(move || {
            for signal in signals.forever() {
                if send.send(Happening::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Happenings { receiver, sender })
    }

    /// Starts to read keys. The terminal must be open.
    pub(crate) fn read_input(&self) -> io::Result<()> {
        let send = self.sender.clone();
        std::thread::Builder::new().name("heaptrack-keys".into()).spawn(move || {
            while let Ok(event) = read() {
                if send.send(Happening::Input(event)).is_err() {
                    return;
                }
            }
            let _ = send.send(Happening::NoInput);
        })?;
        Ok(())
    }

    /// A function that puts replies into the queue.
    pub(crate) fn replies(&self) -> impl Fn(Reply) -> bool + Send + 'static {
        let send = self.sender.clone();
        move |reply| send.send(Happening::Reply(reply)).is_ok()
    }
}
