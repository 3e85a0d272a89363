//! What the kernel tells about the target: resident memory, names, filters.
//!
//! Receives: a pid. Returns: what /proc says now, or `None` if there is no /proc or no target. Must hold: reading the
//! resident memory is one system call.
use crate::mapping::thread_exists;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[derive(Debug)]
pub struct Process {
    pid: u32,
    statm: Option<File>,
    page_size: u64,
    our_filters: Option<Seccomp>,
    /// The target is in a pid namespace of its own, so its thread ids are not those that we see.
    has_own_pids: bool,
}

/// The system call filters of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seccomp {
    mode: u32,
    filters: u32,
}

impl Process {
    pub fn new(pid: u32) -> Self {
        Process {
            pid,
            statm: File::open(format!("/proc/{pid}/statm")).ok(),
            page_size: rustix::param::page_size() as u64,
            our_filters: fs::read_to_string("/proc/self/status").ok().map(|text| seccomp(&text)),
            has_own_pids: own_number(&format!("/proc/{pid}")).is_some_and(|own| own != pid),
        }
    }

    /// Returns the words of the command line.
    pub fn command(&self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
        words.filter(|_| !bytes.is_empty()).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    pub fn rss_bytes(&self) -> Option<u64> {
        Some(self.statm(1)? * self.page_size)
    }

    /// Returns a field of /proc/PID/statm: 0 is the size of the address space in pages, 1 how many of them are resident.
    fn statm(&self, field: usize) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..length)?).ok()?.split(' ').nth(field)?.parse().ok()
    }

    /// Returns true if the process has ended, even if its parent has not waited for it yet.
    pub fn has_ended(&self) -> bool {
        match &self.statm {
            // Not the resident size, which the kernel may show as 0 for a small process that has just been forked.
            Some(_) => self.statm(0).is_none_or(|pages| pages == 0),
            None => !thread_exists(self.pid, self.pid),
        }
    }

    /// Accepts the filters that are in force now, because they were checked and allow what the recording needs.
    pub fn accept_filters(&mut self) {
        self.our_filters = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok().map(|text| seccomp(&text));
    }

    /// Returns true if the target has installed a filter that does not apply to us and was not accepted. A container's
    /// default filter applies to both and allows what we need.
    pub fn has_own_filter(&self) -> bool {
        let theirs = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok().map(|text| seccomp(&text));
        matches!((theirs, self.our_filters), (Some(theirs), Some(ours)) if theirs > ours)
    }

    /// Returns the path of the program's file, as the kernel names it now.
    pub fn exe(&self) -> Option<String> {
        let path = fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        Some(path.to_string_lossy().into_owned())
    }

    /// Returns the absolute path of the file that is mapped at an address. The loader may know only a relative path.
    pub fn mapped_file(&self, address: u64) -> Option<String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let line = maps.lines().find(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&address))
        })?;
        let path = line.get(line.find('/')?..)?;
        Some(path.strip_suffix(" (deleted)").unwrap_or(path).to_owned())
    }

    /// Returns the name of a thread. `tid` is the thread id in the target's own pid namespace.
    pub fn thread_name(&self, tid: u32) -> Option<String> {
        let tid = if self.has_own_pids { self.our_number(tid)? } else { tid };
        let name = fs::read(format!("/proc/{}/task/{tid}/comm", self.pid)).ok()?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
    }
}

/// The threads of a process at one moment.
pub enum Threads {
    /// The process with this pid is in our pid namespace, so the kernel is asked for each thread.
    Same(u32),
    /// The process is in another pid namespace. These are its threads' ids there.
    Own(HashSet<u32>),
}

impl Threads {
    pub fn exists(&self, tid: u32) -> bool {
        match self {
            Threads::Same(pid) => thread_exists(*pid, tid),
            Threads::Own(known) => known.contains(&tid),
        }
    }
}

impl Process {
    pub fn threads(&self) -> Threads {
        if !self.has_own_pids {
            return Threads::Same(self.pid);
        }
        Threads::Own(self.thread_folders().filter_map(|folder| own_number(&folder)).collect())
    }

    fn thread_folders(&self) -> impl Iterator<Item = String> {
        let tasks = format!("/proc/{}/task", self.pid);
        let entries = fs::read_dir(&tasks).into_iter().flatten().filter_map(Result::ok);
        entries.map(move |entry| format!("{tasks}/{}", entry.file_name().to_string_lossy()))
    }

    fn our_number(&self, tid: u32) -> Option<u32> {
        let folder = self.thread_folders().find(|folder| own_number(folder) == Some(tid))?;
        folder.rsplit('/').next()?.parse().ok()
    }
}

/// Returns the pid or thread id that a process or thread has in its own pid namespace.
fn own_number(folder: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("{folder}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

fn seccomp(status: &str) -> Seccomp {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Seccomp { mode: number("Seccomp:"), filters: number("Seccomp_filters:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_known() {
        let process = Process::new(std::process::id());
        assert!(process.rss_bytes().unwrap() > 100_000);
        assert!(!process.has_own_filter());
        assert_eq!(process.exe().unwrap(), std::env::current_exe().unwrap().to_string_lossy());
        assert!(process.thread_name(std::process::id()).is_some());
        let here = our_own_process_is_known as fn() as usize as u64;
        assert_eq!(process.mapped_file(here), process.exe());
        assert_eq!(process.mapped_file(1), None);
    }

    #[test]
    fn a_process_that_is_not_there_says_nothing() {
        let process = Process::new(0x7fff_ffff);
        assert_eq!(process.rss_bytes(), None);
        assert_eq!(process.exe(), None);
        assert_eq!(process.thread_name(1), None);
        assert!(!process.has_own_filter());
    }

    #[test]
    fn a_further_filter_is_seen() {
        let container = seccomp("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        assert_eq!(container, Seccomp { mode: 2, filters: 1 });
        assert!(seccomp("Seccomp:\t2\nSeccomp_filters:\t2\n") > container);
        assert!(seccomp("Seccomp:\t0\n") < container);
    }
}
