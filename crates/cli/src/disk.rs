//! The disk that the trace is written to: a warning while there is still time to make room.
//!
//! Given: the folder of the trace. Gives back: one sentence, once. What must hold: nothing else; when the disk is full, it is the collector
//! that ends the file and counts what is missing.
use crate::status::Bytes;
use std::fs::File;

/// A minute or more of what a busy program writes.
const LOW: u64 = 200_000_000;

#[derive(Debug)]
pub struct Disk {
    /// `None`: there is nothing more to say.
    folder: Option<File>,
}

impl Disk {
    pub const fn of(folder: Option<File>) -> Self {
        Disk { folder }
    }

    pub fn warning(&mut self) -> Option<String> {
        let disk = rustix::fs::fstatvfs(self.folder.as_ref()?).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free >= LOW {
            return None;
        }
        self.folder = None;
        let free = Bytes(free);
        Some(format!(
            "only {free} are left on the trace's disk; when it is full the trace ends there, the program goes on"
        ))
    }
}
