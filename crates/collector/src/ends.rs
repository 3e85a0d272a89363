//! When and how the processes of a followed tree end.
//!
//! Receives: pids. Returns: the exit status of each process that has ended, and a stamp that is not before its end. Must hold: the
//! processes and their parents do not notice it, so no process is waited for. A status that the kernel does not tell is
//! unknown.
//!
//! A thread waits for pidfds and wakes the collecting thread. The status of a process that its parent has not waited for
//! yet is in /proc. Afterwards Linux 6.15 and newer tell it by the pidfd.
use crate::mapping::{exit_of, tsc};
use channel::{Hub, Stamp};
use format::Exit;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::futex;
use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

enum State {
    Runs(OwnedFd),
    Ended(Ended),
}

/// How a process ended, and when this was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub exit: Exit,
    pub noticed_at: Stamp,
}

impl Ended {
    /// When the process ended. `exits_at`: when it began to end itself, if it did.
    pub fn at(&self, exits_at: Option<Stamp>) -> Stamp {
        exits_at.map_or(self.noticed_at, |stamp| stamp.min(self.noticed_at))
    }
}

struct Shared {
    epoll: OwnedFd,
    processes: Mutex<HashMap<u32, State>>,
    stop: AtomicBool,
    has_news: AtomicBool,
    hub: &'static Hub,
}

/// The processes that are watched, until this is dropped.
pub struct Ends {
    shared: Arc<Shared>,
    /// Ends the thread when it is written to.
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// The mark of the descriptor that ends the thread. It is no pid.
const WAKE: u64 = 0;

impl Ends {
    /// Returns `None` if the kernel has no pidfds, or if there is no descriptor or thread left.
    pub fn start(hub: &'static Hub) -> Option<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).ok()?;
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).ok()?;
        rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok()?;
        let shared = Arc::new(Shared {
            epoll,
            processes: Mutex::default(),
            stop: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            hub,
        });
        let work = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("heaptrack-ends".into());
        let thread = builder.spawn(move || work.run()).ok()?;
        Some(Ends { shared, wake, thread: Some(thread) })
    }

    /// Watches a process from now on.
    pub fn watch(&self, pid: u32) {
        let mut processes = self.shared.lock();
        if matches!(processes.get(&pid), Some(State::Runs(_))) {
            return;
        }
        let Some(number) = Pid::from_raw(pid as i32) else { return };
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) => {
                let data = EventData::new_u64(pid.into());
                if epoll::add(&self.shared.epoll, &process, data, EventFlags::IN).is_ok() {
                    processes.insert(pid, State::Runs(process));
                }
            }
            Err(rustix::io::Errno::SRCH) => {
                processes.insert(pid, State::Ended(Ended { exit: Exit::Unknown, noticed_at: tsc() }));
            }
            Err(_) => (),
        }
    }

    /// Returns how a process has ended, `Some(None)` if it runs, and `None` if it is not watched.
    pub fn of(&self, pid: u32) -> Option<Option<Ended>> {
        match self.shared.lock().get(&pid)? {
            State::Runs(_) => Some(None),
            State::Ended(ended) => Some(Some(*ended)),
        }
    }

    /// Finds out now whether a process has ended.
    pub fn look(&self, pid: u32) {
        let has_ended = match self.shared.lock().get(&pid) {
            Some(State::Runs(process)) => {
                let mut list = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut list, Some(&rustix::time::Timespec::default())).is_ok_and(|count| count > 0)
            }
            _ => false,
        };
        if has_ended {
            self.shared.end(pid, tsc());
        }
    }

    /// Returns true if processes have ended since the last call.
    pub fn take_news(&self) -> bool {
        self.shared.has_news.swap(false, Ordering::AcqRel)
    }

    /// The end of a process was noted. Its pid may belong to another process later.
    pub fn forget(&self, pid: u32) {
        self.shared.lock().remove(&pid);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, State>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(WAKE) }; 64];
        while !self.stop.load(Ordering::Acquire) {
            let Ok(count) = epoll::wait(&self.epoll, &mut events[..], None) else { continue };
            let noticed_at = tsc();
            for event in events.iter().take(count) {
                self.end(event.data.u64() as u32, noticed_at);
            }
            self.has_news.store(true, Ordering::Release);
            self.hub.doorbell.fetch_add(1, Ordering::AcqRel);
            let _ = futex::wake(&self.hub.doorbell, futex::Flags::empty(), 1);
        }
    }

    fn end(&self, pid: u32, noticed_at: Stamp) {
        let mut processes = self.lock();
        let Some(State::Runs(process)) = processes.get(&pid) else { return };
        let exit = exit_of_zombie(pid).or_else(|| exit_of(process)).map_or(Exit::Unknown, exit);
        // Closing the descriptor removes it from the epoll.
        processes.insert(pid, State::Ended(Ended { exit, noticed_at }));
    }
}

/// Decodes a status as wait(2) returns it.
const fn exit(status: i32) -> Exit {
    match status & 0x7f {
        0 => Exit::Code(status >> 8 & 0xff),
        signal => Exit::Signal(signal),
    }
}

/// Returns the status of a process that has ended and was not waited for.
fn exit_of_zombie(pid: u32) -> Option<i32> {
    // The kernel shows 0 in place of the status of a process that we may not trace.
    let user = rustix::process::geteuid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let is_ours = users.split_whitespace().all(|one| one.parse() == Ok(user.as_raw()));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok().filter(|_| user.is_root() || is_ours)?;
    // The name of the program may contain anything, so the fields after it are counted.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (*fields.first()? == "Z").then(|| fields.get(49)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn hub() -> &'static Hub {
        // Lives as long as the tests.
        Box::leak(Box::new(crate::mapping::HubPage::create(true, "").unwrap())).hub()
    }

    fn wait(ends: &Ends, pid: u32) -> Exit {
        let start = Instant::now();
        loop {
            if let Some(Some(ended)) = ends.of(pid) {
                return ended.exit;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "no end of {pid}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn processes_that_end_tell_how() {
        let ends = Ends::start(hub()).unwrap();
        for (script, expected) in [
            ("read x; exit 0", Exit::Code(0)),
            ("read x; exit 7", Exit::Code(7)),
            ("read x; kill -9 $$", Exit::Signal(9)),
        ] {
            let mut child =
                Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
            ends.watch(child.id());
            assert_eq!(ends.of(child.id()), Some(None));
            drop(child.stdin.take());
            assert_eq!(wait(&ends, child.id()), expected, "{script}");
            let _ = child.wait();
            ends.forget(child.id());
            assert_eq!(ends.of(child.id()), None);
        }
    }
}
