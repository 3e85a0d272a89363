//! `--recorder-nice` and `--recorder-cpu`: how much of the machine the recorder may take.
//!
//! Receives: the options. Must hold: only the recorder is limited. The program and the browser of `--live` keep the nice
//! value, the CPUs and the cgroup that heaptrack itself was started with. Children inherit all three, so the limits are
//! tried out and taken back before the program starts (`prepare`), and come into force after it and the browser have
//! started (`apply`). A limit that is not possible is reported before the program starts.
mod cgroup;
mod values;

pub use cgroup::leave;
pub use values::{CpuLimit, Share};

use crate::say;
use cgroup::Cgroup;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct RecorderOptions {
    /// The nice value of the recorder, 0 to 19. The program keeps its own.
    #[arg(long, value_name = "N", value_parser = values::nice)]
    pub recorder_nice: Option<i32>,
    /// The CPUs that the recorder may use (0, 0-3 or 0,2), or how much of one CPU (50%). Give it twice to set both.
    #[arg(long, value_name = "CPUS", value_parser = values::cpu_limit)]
    pub recorder_cpu: Vec<CpuLimit>,
}

impl RecorderOptions {
    /// Returns the options as the user can type them, separated by spaces. Empty if there is no limit.
    pub fn words(&self) -> String {
        let nice = self.recorder_nice.map(|nice| format!("--recorder-nice {nice}"));
        let cpus = self.recorder_cpu.iter().map(|limit| format!("--recorder-cpu {limit}"));
        nice.into_iter().chain(cpus).collect::<Vec<_>>().join(" ")
    }
}

/// A limit that this machine or this user cannot have, in one sentence.
#[derive(Debug)]
pub struct NotPossible(pub String);

impl fmt::Display for NotPossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotPossible {}

/// Limits that are possible. When they are dropped, the recorder leaves its cgroup and removes it.
#[derive(Debug)]
pub struct RecorderLimits {
    nice: Option<i32>,
    cpus: Option<CpuSet>,
    cgroup: Option<Arc<Cgroup>>,
}

impl RecorderLimits {
    /// Tries every limit, and takes it back. Call this before the program starts, and when signals no longer end the
    /// process, because otherwise Ctrl-C could leave a cgroup behind.
    pub fn prepare(options: &RecorderOptions) -> Result<Self, NotPossible> {
        let (mut cpus, mut share) = (None, None);
        for limit in &options.recorder_cpu {
            let twice = match limit {
                CpuLimit::Cpus(set) => cpus.replace(*set).is_some(),
                CpuLimit::Share(new) => share.replace(*new).is_some(),
            };
            if twice {
                let sentence = "--recorder-cpu was given twice with the same meaning: give one list of CPUs, one share of a CPU, or one of each";
                return Err(NotPossible(sentence.to_owned()));
            }
        }
        let nice = options.recorder_nice;
        if nice.is_some() || cpus.is_some() {
            // Not on this thread, because it could not lower its nice value again without privileges.
            let tried = on_a_short_thread(|| limit_thread(None, nice, cpus));
            tried.unwrap_or_else(|| Err("no thread could be started".to_owned())).map_err(NotPossible)?;
        }
        let cgroup = share.map(|share| Cgroup::create(share).map_err(|reason| no_share(share, &reason))).transpose()?;
        Ok(RecorderLimits { nice, cpus, cgroup })
    }

    /// Limits all threads of this process, and those that they start later.
    pub fn apply(&self, tool: &str) {
        let joined = self.cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.join());
        if let Err(reason) = joined.and_then(|()| self.limit_threads()) {
            say(format_args!("{tool}: the recorder continues without its limit: {reason}"));
        }
    }

    fn limit_threads(&self) -> Result<(), String> {
        if self.nice.is_none() && self.cpus.is_none() {
            return Ok(());
        }
        let mut limited = BTreeSet::new();
        // A thread that was started before its creator was limited is in the next list.
        loop {
            let new: Vec<Pid> = threads().filter(|thread| limited.insert(thread.as_raw_nonzero())).collect();
            if new.is_empty() {
                return Ok(());
            }
            new.into_iter().try_for_each(|thread| limit_thread(Some(thread), self.nice, self.cpus))?;
        }
    }

    /// Does work that the program waits for, without the limit on CPU time: a throttled recorder would keep the program
    /// paused until its next period.
    pub fn without_share<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(cgroup) = &self.cgroup else { return work() };
        let _ = cgroup.lift();
        let result = work();
        let _ = cgroup.limit();
        result
    }
}

impl Drop for RecorderLimits {
    fn drop(&mut self) {
        leave();
    }
}

fn no_share(share: Share, reason: &str) -> NotPossible {
    NotPossible(format!(
        "--recorder-cpu {share} is not possible: {reason}; --recorder-nice and a list of CPUs need no cgroup"
    ))
}

/// Returns the threads of this process.
fn threads() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// Limits one thread, the calling one if none is given. A thread that has ended is no error.
fn limit_thread(thread: Option<Pid>, nice: Option<i32>, cpus: Option<CpuSet>) -> Result<(), String> {
    const ENDED: rustix::io::Errno = rustix::io::Errno::SRCH;
    if let Some(nice) = nice {
        match setpriority_process(thread, nice) {
            Ok(()) | Err(ENDED) => (),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                let now = getpriority_process(None).unwrap_or_default();
                return Err(format!(
                    "--recorder-nice {nice} is not possible: heaptrack runs at nice {now}, and only root may lower that"
                ));
            }
            Err(error) => return Err(format!("--recorder-nice {nice} is not possible: {error}")),
        }
    }
    if let Some(cpus) = cpus {
        match sched_setaffinity(thread, &cpus).and_then(|()| sched_getaffinity(thread)) {
            // The kernel leaves out CPUs that do not exist or that a cpuset forbids, without an error.
            Ok(now) if now == cpus => (),
            Err(ENDED) => (),
            Ok(_) | Err(rustix::io::Errno::INVAL) => {
                let (cpus, all) = (values::list(&cpus), values::list(&allowed()));
                return Err(format!("--recorder-cpu {cpus} is not possible: heaptrack may run on CPUs {all}"));
            }
            Err(error) => return Err(format!("--recorder-cpu {} is not possible: {error}", values::list(&cpus))),
        }
    }
    Ok(())
}

/// Returns all CPUs that this process may choose. They can be more than it was started with.
fn allowed() -> CpuSet {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let tried = on_a_short_thread(|| sched_setaffinity(None, &all).and_then(|()| sched_getaffinity(None)));
    tried.and_then(Result::ok).unwrap_or_default()
}

/// Runs `work` on a thread that ends then, and its limits with it. Returns `None` if no thread could be started.
fn on_a_short_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("heaptrack-try".into()).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}
