//! What the kernel tells about a process: its state, its threads, its namespaces.
//!
//! Receives: a pid in our own namespace. Must hold: it also works for a process whose first thread has ended. The
//! process's own folder in /proc is empty then, so that of another thread is used.
use crate::hold::Hold;
use crate::interrupt::Interrupt;
use crate::ptrace::{self, Event, Tid};
use std::path::{Path, PathBuf};
use std::{fs, io};

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    /// `/proc/PID/task/TID` of a thread that is alive, or `/proc/PID` if there is none.
    pub folder: PathBuf,
    /// When it started, in clock ticks since the boot. Another process may get its pid later, but has another start
    /// time.
    pub started: u64,
    /// Set if the user no longer wants to wait for the process.
    pub interrupt: Interrupt,
    pub hold: Hold,
    /// The processes that it starts are recorded, too.
    pub is_followed: bool,
}

/// The fields of /proc/PID/status that are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub state: char,
    pub tracer: u32,
    pub uid: u32,
    pub vm_size: bool,
    /// Its pids: in our namespace first, in its own last.
    pub namespace_pids: Vec<u32>,
    pub seccomp: u32,
    pub filters: u32,
    pub pending: u64,
    pub blocked: u64,
    /// Signals that have a handler.
    pub caught: u64,
}

impl Status {
    pub fn parse(text: &str) -> Status {
        let mut status = Status { state: '?', ..Status::default() };
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let number = || value.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let mask = || u64::from_str_radix(value, 16).unwrap_or(0);
            match key {
                "Name" => status.name = value.to_owned(),
                "State" => status.state = value.chars().next().unwrap_or('?'),
                "TracerPid" => status.tracer = number(),
                "Uid" => status.uid = number(),
                "VmSize" => status.vm_size = true,
                "NSpid" => {
                    status.namespace_pids = value.split_whitespace().filter_map(|word| word.parse().ok()).collect()
                }
                "Seccomp" => status.seccomp = number(),
                "Seccomp_filters" => status.filters = number(),
                "SigPnd" | "ShdPnd" => status.pending |= mask(),
                "SigBlk" => status.blocked = mask(),
                "SigCgt" => status.caught = mask(),
                _ => (),
            }
        }
        status
    }

    /// Returns true if a signal is pending that the thread does not block.
    pub const fn has_signal(&self) -> bool {
        self.pending & !self.blocked != 0
    }
}

impl Process {
    pub fn new(pid: u32) -> io::Result<Process> {
        let whole = PathBuf::from(format!("/proc/{pid}"));
        let started = started(pid).ok_or(io::ErrorKind::NotFound)?;
        let mut process = Process {
            pid,
            folder: whole.clone(),
            started,
            interrupt: Interrupt::default(),
            hold: Hold::default(),
            is_followed: false,
        };
        let lives = |folder: &Path| {
            let status = status(folder).unwrap_or_default();
            status.vm_size && !matches!(status.state, 'Z' | 'X' | '?')
        };
        // If only the first thread has ended, its status still says that there is memory, but its folder shows none.
        let first = whole.join(format!("task/{pid}"));
        let mut folders = vec![first];
        for tid in process.threads()? {
            folders.push(whole.join(format!("task/{tid}")));
        }
        if let Some(found) = folders.into_iter().find(|folder| lives(folder)) {
            process.folder = found;
        }
        Ok(process)
    }

    pub fn threads(&self) -> io::Result<Vec<Tid>> {
        let mut tids = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            if let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                tids.push(tid);
            }
        }
        tids.sort_unstable();
        Ok(tids)
    }

    pub fn status(&self) -> io::Result<Status> {
        status(&self.folder)
    }

    pub fn thread_status(&self, tid: Tid) -> io::Result<Status> {
        status(Path::new(&format!("/proc/{}/task/{tid}", self.pid)))
    }

    /// Returns the letter of a thread's state.
    pub fn thread_state(&self, tid: Tid) -> Option<char> {
        let text = fs::read_to_string(format!("/proc/{}/task/{tid}/stat", self.pid)).ok()?;
        text.rsplit_once(") ")?.1.chars().next()
    }

    /// Returns what happened to a traced thread, or `None` if nothing has yet.
    pub fn poll(&self, tid: Tid) -> Option<Event> {
        if self.hold.is_on() { ptrace::poll_child(tid, false) } else { ptrace::poll(tid) }
    }

    pub fn exe(&self) -> io::Result<PathBuf> {
        fs::read_link(self.folder.join("exe"))
    }

    pub fn command(&self) -> Vec<String> {
        let bytes = fs::read(self.folder.join("cmdline")).unwrap_or_default();
        let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        if text.is_empty() {
            return self.status().map(|status| vec![status.name]).unwrap_or_default();
        }
        text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Returns a value of the auxiliary vector.
    pub fn auxiliary(&self, tag: u64) -> Option<u64> {
        let bytes = fs::read(self.folder.join("auxv")).ok()?;
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let pair = bytes.chunks_exact(16).find(|pair| pair.get(..8).and_then(word) == Some(tag))?;
        pair.get(8..).and_then(word)
    }

    /// Returns true if the address space has a limit.
    pub fn limits_address_space(&self) -> bool {
        let text = fs::read_to_string(self.folder.join("limits")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Max address space"));
        line.is_some_and(|line| line.split_whitespace().next() != Some("unlimited"))
    }

    /// Returns true if all threads have ended, or are exiting and have given up their memory. Also if the pid belongs
    /// to another process now.
    pub fn has_exited(&self) -> bool {
        let lives = |tid: &Tid| {
            self.thread_status(*tid).is_ok_and(|status| status.vm_size && !matches!(status.state, 'Z' | 'X'))
        };
        started(self.pid) != Some(self.started) || !self.threads().is_ok_and(|tids| tids.iter().any(lives))
    }

    pub fn is_zombie(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Returns true for a kernel thread. Missing memory does not tell, because a process that is exiting has none
    /// either.
    pub fn is_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x20_0000;
        has_flag(self.pid, PF_KTHREAD)
    }
}

/// Returns true if a process was forked and has executed no program since.
pub fn is_fork(pid: u32) -> bool {
    const PF_FORKNOEXEC: u64 = 0x40;
    has_flag(pid, PF_FORKNOEXEC)
}

fn has_flag(pid: u32, flag: u64) -> bool {
    field(pid, 6).is_some_and(|flags| flags & flag != 0)
}

/// Returns the pid of a process's parent.
pub fn parent(pid: u32) -> Option<u32> {
    field(pid, 1).and_then(|parent| parent.try_into().ok())
}

/// Returns when a process started, in clock ticks since the boot. Together with the pid this identifies a process
/// uniquely.
pub fn started(pid: u32) -> Option<u64> {
    field(pid, 19)
}

/// Returns a number from /proc/PID/stat. Index 0 is the state, the first field after the name.
fn field(pid: u32, index: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(index)?.parse().ok()
}

fn status(folder: &Path) -> io::Result<Status> {
    let text = fs::read(folder.join("status"))?;
    Ok(Status::parse(&String::from_utf8_lossy(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_know_ourselves() {
        let process = Process::new(std::process::id()).unwrap();
        let status = process.status().unwrap();
        assert_eq!((status.tracer, status.namespace_pids.first().copied()), (0, Some(process.pid)));
        assert!(process.auxiliary(3).is_some_and(|headers| headers != 0));
        assert!(process.threads().unwrap().contains(&process.pid));
        assert!(process.started > 0 && !process.has_exited() && !process.is_kernel());
        assert!(Process::new(0x7fff_fffe).is_err());
    }

    #[test]
    fn a_signal_that_waits_is_seen() {
        let status = Status::parse("SigPnd:\t0000000000000200\nShdPnd:\t0000000000004000\nSigBlk:\t0000000000000200\n");
        assert!(status.has_signal());
        assert!(!Status::parse("SigPnd:\t0200\nSigBlk:\t0200\n").has_signal());
    }
}
