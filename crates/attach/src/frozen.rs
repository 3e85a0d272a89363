//! Whether a process is frozen by its cgroup, as by `docker pause`.
//!
//! A frozen process cannot make system calls for the profiler, and in a cgroup of version 1 it cannot even be stopped.
//! A file of the cgroup tells whether the process is frozen, if the cgroup file system is mounted where the profiler
//! can see it. Otherwise the kernel function in which the process waits tells.
use crate::process::Process;
use std::fs;
use std::path::{Path, PathBuf};

/// Kernel functions in which only frozen threads wait.
const WAITS: [&str; 3] = ["do_freezer_trap", "__refrigerator", "refrigerator"];

/// Returns the path of the process's cgroup if that cgroup or a parent of it is frozen, and `None` if the process is
/// not frozen. Returns "unknown" if only the kernel function in which the process waits tells that it is frozen.
pub fn cgroup_of(process: &Process) -> Option<String> {
    let cgroups = fs::read_to_string(process.folder.join("cgroup")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for cgroup in cgroups.lines().filter_map(Cgroup::parse) {
        if cgroup.is_frozen(&mounts) {
            return Some(cgroup.path.to_owned());
        }
    }
    // The cgroup file system may not be mounted here.
    let waits = fs::read_to_string(process.folder.join("wchan")).unwrap_or_default();
    WAITS.contains(&waits.trim()).then(|| "unknown".to_owned())
}

/// A cgroup in /proc/PID/cgroup that can freeze processes.
#[derive(Debug, PartialEq, Eq)]
struct Cgroup<'a> {
    is_unified: bool,
    path: &'a str,
}

impl<'a> Cgroup<'a> {
    fn parse(line: &'a str) -> Option<Cgroup<'a>> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_unified = number == "0" && controllers.is_empty();
        let freezes = is_unified || controllers.split(',').any(|name| name == "freezer");
        freezes.then_some(Cgroup { is_unified, path })
    }

    /// Returns true if this cgroup or a parent of it is frozen. Both files that are read here tell about the parents,
    /// too.
    fn is_frozen(&self, mounts: &str) -> bool {
        let Some(folder) = mounts.lines().find_map(|line| self.folder(line)) else { return false };
        if self.is_unified {
            let events = fs::read_to_string(folder.join("cgroup.events")).unwrap_or_default();
            return events.lines().any(|line| line == "frozen 1");
        }
        let state = fs::read_to_string(folder.join("freezer.state")).unwrap_or_default();
        matches!(state.trim(), "FROZEN" | "FREEZING")
    }

    /// Returns the folder of the cgroup, if this line of /proc/self/mountinfo is its file system.
    fn folder(&self, mount: &str) -> Option<PathBuf> {
        let (before, after) = mount.split_once(" - ")?;
        let mut words = before.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        let (kind, options) = (after.split(' ').next()?, after.rsplit(' ').next()?);
        let is_it = match self.is_unified {
            true => kind == "cgroup2",
            false => kind == "cgroup" && options.split(',').any(|name| name == "freezer"),
        };
        let below = self.path.strip_prefix(root.trim_end_matches('/'))?;
        is_it.then(|| Path::new(point).join(below.trim_start_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_freeze_are_known() {
        assert_eq!(Cgroup::parse("0::/a/b"), Some(Cgroup { is_unified: true, path: "/a/b" }));
        assert_eq!(Cgroup::parse("6:freezer,devices:/c:d"), Some(Cgroup { is_unified: false, path: "/c:d" }));
        assert_eq!(Cgroup::parse("4:memory:/"), None);
        assert_eq!(Cgroup::parse("nonsense"), None);
    }

    #[test]
    fn the_folder_of_a_cgroup_is_below_its_mount() {
        let unified = "31 23 0:26 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        let freezer = "36 23 0:31 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer";
        let inner = "36 23 0:31 /docker/7 /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw";
        let old = Cgroup { is_unified: false, path: "/docker/7" };
        let new = Cgroup { is_unified: true, path: "/docker/7" };
        assert_eq!(old.folder(freezer), Some(PathBuf::from("/sys/fs/cgroup/freezer/docker/7")));
        assert_eq!((old.folder(unified), new.folder(freezer)), (None, None));
        assert_eq!(new.folder(unified), Some(PathBuf::from("/sys/fs/cgroup/unified/docker/7")));
        assert_eq!(new.folder(inner), Some(PathBuf::from("/sys/fs/cgroup/")));
    }

    #[test]
    fn we_are_not_frozen() {
        assert_eq!(cgroup_of(&Process::new(std::process::id()).unwrap()), None);
    }
}
