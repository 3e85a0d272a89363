//! Watches the disk that the trace is written to, and warns while there is still time to make room.
//!
//! Receives: the folder of the trace. Returns: one sentence, once. When the disk is full, the collector ends the file
//! and counts the missing events.
use crate::status::Bytes;
use std::fs::File;

/// A busy program needs a minute or more to write this much.
const LOW: u64 = 200_000_000;

#[derive(Debug)]
pub struct Disk {
    /// `None` after the warning.
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
            "only {free} are left on the trace's disk; when it is full, the trace ends there and the program continues"
        ))
    }
}
