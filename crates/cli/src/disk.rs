//! Warns when the disk that the trace is written to gets full, while there is still time to make room.
//!
//! Given: the trace's file. Gives back: at most one sentence on stderr. What must hold: nothing else; when the disk is full, it is the
//! collector that ends the file and counts what is missing.
use crate::say;
use crate::status::Bytes;
use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);
/// A minute or more of what a busy program writes.
const LOW: u64 = 200_000_000;

#[derive(Debug)]
pub struct DiskWatch {
    stop: Option<(Sender<()>, JoinHandle<()>)>,
}

impl DiskWatch {
    pub fn start(file: &File, quiet: bool) -> Self {
        let Some(file) = file.try_clone().ok().filter(|_| !quiet) else { return DiskWatch { stop: None } };
        let (sender, inbox) = channel();
        let watch = move || {
            while !warned(&file) && inbox.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {}
        };
        let thread = std::thread::Builder::new().name("heaptrack-disk".into()).spawn(watch);
        DiskWatch { stop: thread.ok().map(|thread| (sender, thread)) }
    }

    pub fn end(self) {
        if let Some((sender, thread)) = self.stop {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// True when there is nothing more to watch for.
fn warned(file: &File) -> bool {
    let Ok(disk) = rustix::fs::fstatvfs(file) else { return true };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= LOW {
        return false;
    }
    say(format_args!(
        "heaptrack: only {} are left on the trace's disk; when it is full the trace ends there, the program goes on",
        Bytes(free)
    ));
    true
}
