//! `--snapshot-when`: snapshots that the recorder takes by itself, when memory does what the user wants to know about, or
//! when a signal asks for one.
//!
//! Receives: conditions, and the trace that is being written. Returns: traces beside it, `NAME.snapshot-1.htz` and so on. Must
//! hold: the recording never waits for a snapshot; all snapshots together stay below their budget, and the oldest are
//! removed first; a snapshot appears whole or not at all, and replaces none. A container that was killed starts again with
//! the same name of the trace, so snapshots of earlier recordings with that name count too.
//!
//! ```text
//! armed ---- the condition holds, and the last snapshot is a minute old ----> a snapshot, fired
//!   ^------------------------- the condition does not hold ----------------------------'
//! ```
//!
//! A signal takes a snapshot each time, also within that minute.
mod cgroup;
mod condition;

pub use condition::Condition;

use crate::recording_options::RecordingOptions;
use crate::{say, snapshot};
use cgroup::Cgroup;
use collector::{Stats, TracePath};
use condition::Measured;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// The time between two measurements.
const EVERY: Duration = Duration::from_millis(100);
/// The time after which an event is in the file.
const WRITTEN: Duration = Duration::from_millis(300);
/// The least time between two snapshots.
const APART: Duration = Duration::from_secs(60);

/// The thread that watches.
pub struct Triggers {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Triggers {
    /// `asked`: a flag that SIGUSR1 sets.
    pub fn start(
        options: &RecordingOptions,
        place: Arc<TracePath>,
        stats: Arc<Stats>,
        pid: u32,
        asked: Arc<AtomicBool>,
    ) -> Option<Self> {
        let cgroup = Cgroup::of(pid);
        for reason in options.snapshot_when.iter().filter_map(|condition| condition.lacks(cgroup.as_ref())) {
            say(format_args!("heaptrack: --snapshot-when {reason}"));
        }
        let mut watcher = Watcher {
            conditions: options.snapshot_when.iter().map(|condition| (*condition, false)).collect(),
            cgroup,
            taken: Taken { place, budget: options.snapshots_size, quiet: options.quiet },
            last: None,
            // Nothing is known of the time before the recording.
            past: VecDeque::from([(Instant::now(), 0)]),
            asked,
            stats,
            pid,
        };
        let (stop, stopped) = channel();
        let watch = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                watcher.look();
            }
        };
        let thread = std::thread::Builder::new().name("heaptrack-watch".into()).spawn(watch);
        let thread = thread
            .map_err(|error| {
                say(format_args!("heaptrack: recording without --snapshot-when: no thread could be started: {error}"))
            })
            .ok()?;
        Some(Triggers { stop, thread })
    }

    /// Waits for a snapshot that is being written.
    pub fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

struct Watcher {
    /// Each with true if it held when it was last looked at.
    conditions: Vec<(Condition, bool)>,
    cgroup: Option<Cgroup>,
    taken: Taken,
    /// When the last snapshot was taken.
    last: Option<Instant>,
    /// The live bytes of the last minute, once a second.
    past: VecDeque<(Instant, u64)>,
    /// SIGUSR1 sets it.
    asked: Arc<AtomicBool>,
    stats: Arc<Stats>,
    pid: u32,
}

impl Watcher {
    fn look(&mut self) {
        if self.asked.swap(false, Ordering::AcqRel) {
            self.take(Condition::Signal);
        }
        if self.conditions.iter().any(|(condition, _)| *condition != Condition::Signal) {
            self.compare();
        }
    }

    fn take(&mut self, reason: Condition) {
        // The snapshot shall have the events that fulfilled the condition.
        std::thread::sleep(WRITTEN);
        self.taken.take(reason);
    }

    fn compare(&mut self) {
        let now = Instant::now();
        let measured = self.measure(now);
        let may_fire = self.last.is_none_or(|last| now.duration_since(last) >= APART);
        let mut reason = None;
        for (condition, held) in &mut self.conditions {
            let holds = condition.holds(&measured);
            if holds && !*held && may_fire && reason.is_none() {
                reason = Some(*condition);
                *held = true;
            } else if !holds {
                *held = false;
            }
        }
        if let Some(condition) = reason {
            self.last = Some(now);
            self.take(condition);
        }
    }

    fn measure(&mut self, now: Instant) -> Measured {
        let heap = Stats::get(&self.stats.live_bytes);
        if self.past.back().is_none_or(|(time, _)| now.duration_since(*time) >= Duration::from_secs(1)) {
            self.past.push_back((now, heap));
        }
        while self.past.front().is_some_and(|(time, _)| now.duration_since(*time) > Duration::from_secs(60)) {
            self.past.pop_front();
        }
        let least = self.past.iter().map(|(_, bytes)| *bytes).min().unwrap_or(heap);
        let (used, limit) = self.cgroup.as_ref().and_then(Cgroup::memory).unwrap_or((0, u64::MAX));
        Measured {
            heap_bytes: heap,
            rss_bytes: rss(self.pid).unwrap_or(0),
            // Against the lowest value of the last minute: a program that grows by a jump has grown as much.
            growth_bytes: heap.saturating_sub(least),
            cgroup_percent: (used as f64 / limit as f64) * 100.0,
            pressure_percent: self.cgroup.as_ref().and_then(Cgroup::pressure).unwrap_or(0.0),
            is_asked: false,
        }
    }
}

/// The resident size of a process.
fn rss(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// The snapshots that were taken.
struct Taken {
    place: Arc<TracePath>,
    /// The most bytes of all snapshots.
    budget: u64,
    quiet: bool,
}

impl Taken {
    fn take(&self, condition: Condition) {
        let trace = self.place.path();
        let last = there(&trace).last().map_or(0, |(number, _)| *number);
        let path = numbered(&trace, last.saturating_add(1));
        match self.write(&path) {
            Ok(()) => {
                if !self.quiet {
                    say(format_args!("heaptrack: {condition}: {}", path.display()));
                }
                remove_old(&trace, self.budget);
            }
            Err(error) => say(format_args!("heaptrack: {condition}: no snapshot: {error}")),
        }
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (part, file) = collector::part::create(folder)?;
        let copied = snapshot::copy(self.place.open()?, &mut std::io::BufWriter::new(&file));
        let done = copied.map_err(std::io::Error::other).and_then(|()| std::fs::rename(&part, path));
        if let Err(error) = done {
            let _ = std::fs::remove_file(&part);
            return Err(error);
        }
        Ok(())
    }
}

/// Removes the oldest snapshots until the budget is kept. The newest one stays.
fn remove_old(trace: &Path, budget: u64) {
    let mut kept = 0;
    for (at, (number, bytes)) in there(trace).iter().rev().enumerate() {
        kept += bytes;
        if at > 0 && kept > budget {
            let _ = std::fs::remove_file(numbered(trace, *number));
        }
    }
}

/// The snapshots beside a trace, also those of earlier recordings with its name: their numbers and sizes, the oldest first.
fn there(trace: &Path) -> Vec<(u32, u64)> {
    let folder = trace.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let start = crate::destination::named_after(trace, ".snapshot-");
    let number = |name: &OsStr| {
        let digits = name.as_bytes().strip_prefix(start.as_bytes())?.strip_suffix(b".htz")?;
        let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        // `03` is no name of ours.
        (numbered(trace, number).file_name() == Some(name)).then_some(number)
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((number(&entry.file_name())?, entry.metadata().ok()?.len())));
    let mut found: Vec<(u32, u64)> = files.collect();
    found.sort_unstable();
    found
}

/// `a/x.htz` becomes `a/x.snapshot-3.htz`.
fn numbered(trace: &Path, number: u32) -> PathBuf {
    trace.with_file_name(crate::destination::named_after(trace, &format!(".snapshot-{number}.htz")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary_folder::TemporaryFolder;

    #[test]
    fn snapshots_are_numbered_beside_the_trace() {
        assert_eq!(numbered(Path::new("a/heaptrack.x.1.htz"), 3), Path::new("a/heaptrack.x.1.snapshot-3.htz"));
        assert_eq!(numbered(Path::new("x.htz"), 12), Path::new("x.snapshot-12.htz"));
    }

    #[test]
    fn snapshots_of_earlier_recordings_count_and_the_oldest_go_first() {
        let folder = TemporaryFolder::create(&std::env::temp_dir(), "heaptrack-triggers").unwrap();
        let trace = folder.path().join("shop.htz");
        assert_eq!(there(&trace), []);
        let sizes = [("shop.snapshot-2.htz", 40), ("shop.snapshot-10.htz", 20), ("shop.snapshot-9.htz", 30)];
        let others =
            ["shop.snapshot-03.htz", "shop.snapshot.htz", "shop.htz", "shop2.snapshot-7.htz", "shop.snapshot-x.htz"];
        for (name, size) in sizes.into_iter().chain(others.map(|name| (name, 1000))) {
            std::fs::write(folder.path().join(name), vec![0; size]).unwrap();
        }
        assert_eq!(there(&trace), [(2, 40), (9, 30), (10, 20)]);
        remove_old(&trace, 90);
        assert_eq!(there(&trace).len(), 3);
        remove_old(&trace, 89);
        assert_eq!(there(&trace), [(9, 30), (10, 20)]);
        remove_old(&trace, 0);
        assert_eq!(there(&trace), [(10, 20)]);
        assert!(others.iter().all(|name| folder.path().join(name).exists()));
    }

    #[test]
    fn our_own_resident_size_is_known() {
        assert!(rss(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(rss(0), None);
    }
}
