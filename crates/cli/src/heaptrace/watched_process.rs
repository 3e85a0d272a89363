//! One process of the tree while it is watched.
//!
//! ```text
//! Joined --it records--> Announced --it is gone--> Ended
//!    |                       |
//!    +-----------------------+--it executed another program--> Replaced (says nothing)
//! ```
use collector::{Ask, End, Outcome, Recording, Snapshot};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// The number of a session. A pid is not enough, because the kernel reuses it.
pub type Id = u64;

pub struct Process {
    pub id: Id,
    pub pid: u32,
    pub is_announced: bool,
    recording: Recording,
    /// Readable once the process has ended. If it is `None`, /proc is checked instead.
    handle: Option<OwnedFd>,
}

impl Process {
    pub fn new(id: Id, pid: u32, recording: Recording) -> Self {
        let handle = Pid::from_raw(pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Process { id, pid, is_announced: false, recording, handle }
    }

    pub fn has_started(&self) -> bool {
        self.recording.has_started()
    }

    /// Returns the first word of the kernel's name for the process.
    pub fn name(&self) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?;
        text.split_whitespace().next().map(str::to_owned)
    }

    pub fn is_gone(&self) -> bool {
        match &self.handle {
            Some(handle) => {
                let mut wanted = [PollFd::new(handle, PollFlags::IN)];
                let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut wanted, Some(&now)).is_ok_and(|ready| ready > 0)
            }
            None => {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
            }
        }
    }

    pub fn ask(&self, what: Ask) {
        self.recording.ask(what);
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        self.recording.snapshot()
    }

    pub fn finish(self, end: End) -> Option<Outcome> {
        self.recording.finish_inspected(end, crate::unseen::inspect(crate::starting_thread::NotPatched::default()))
    }
}
