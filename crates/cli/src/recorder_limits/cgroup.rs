//! The cgroup that limits the recorder's CPU time.
//!
//! With version 1 it is made inside the cgroup that heaptrack runs in. Version 2 forbids that, unless that is the root:
//! only cgroups without processes may divide their CPU time. There it is made in the nearest parent that can divide it.
use super::values::{Quota, Share};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The name is this and our pid.
const PREFIX: &str = "heaptrack-recorder.";
/// Writing this to `cgroup.procs` moves the process that writes it.
const OURSELVES: &str = "0";
const PROCESSES: &str = "cgroup.procs";

/// The cgroup of this process, until it is removed.
static CURRENT: Mutex<Option<Arc<Cgroup>>> = Mutex::new(None);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A cgroup that this process made.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    folder: PathBuf,
    /// The cgroup that this process was started in.
    home: PathBuf,
    quota: Quota,
}

/// Leaves the cgroup of this process and removes it, if there is one.
pub fn leave() {
    let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(cgroup) = current {
        cgroup.remove();
    }
}

impl Cgroup {
    /// Makes a cgroup with this share, and tries to enter and leave it.
    pub fn create(share: Share) -> Result<Arc<Self>, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"));
        let (own, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        let found = find(&own, &mounts);
        let (version, top, home) = found.ok_or("no cgroup with the cpu controller is mounted")?;
        let cgroup = match version {
            Version::One => Self::create_in(&home, version, &home, share.quota()),
            Version::Two => Self::create_above(&top, &home, share.quota()),
        };
        let cgroup = Arc::new(cgroup?);
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&cgroup));
        Ok(cgroup)
    }

    /// Version 2: tries the cgroup `home` and its parents up to `top`.
    fn create_above(top: &Path, home: &Path, quota: Quota) -> Result<Self, String> {
        let mut first_reason = None;
        for parent in home.ancestors().take_while(|parent| parent.starts_with(top)) {
            let made = divide(parent).and_then(|()| Self::create_in(parent, Version::Two, home, quota));
            match made {
                Ok(cgroup) => return Ok(cgroup),
                Err(reason) => first_reason = first_reason.or(Some(reason)),
            }
        }
        Err(first_reason.unwrap_or_else(|| "there is no cgroup".to_owned()))
    }

    fn create_in(parent: &Path, version: Version, home: &Path, quota: Quota) -> Result<Self, String> {
        remove_abandoned(parent);
        let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = fs::create_dir(&folder).or_else(|error| match error.kind() {
            // It is left from a killed recorder that had our pid.
            io::ErrorKind::AlreadyExists => fs::remove_dir(&folder).and_then(|()| fs::create_dir(&folder)),
            _ => Err(error),
        });
        made.map_err(|error| format!("the cgroup {} cannot be made: {error}", folder.display()))?;
        let cgroup = Cgroup { version, folder, home: home.to_owned(), quota };
        let tried = cgroup.limit().and_then(|()| cgroup.join()).and_then(|()| cgroup.return_home());
        match tried {
            Ok(()) => Ok(cgroup),
            Err(reason) => {
                cgroup.remove();
                Err(reason)
            }
        }
    }

    /// Moves this process into the cgroup, with all its threads.
    pub fn join(&self) -> Result<(), String> {
        write(&self.folder, PROCESSES, OURSELVES)
    }

    fn return_home(&self) -> Result<(), String> {
        write(&self.home, PROCESSES, OURSELVES)
    }

    /// Sets the limit.
    pub fn limit(&self) -> Result<(), String> {
        let Quota { quota_us, period_us } = self.quota;
        match self.version {
            Version::One => {
                write(&self.folder, "cpu.cfs_period_us", &period_us.to_string())?;
                write(&self.folder, "cpu.cfs_quota_us", &quota_us.to_string())
            }
            Version::Two => write(&self.folder, "cpu.max", &format!("{quota_us} {period_us}")),
        }
    }

    /// Removes the limit. The cgroup stays.
    pub fn lift(&self) -> Result<(), String> {
        match self.version {
            Version::One => write(&self.folder, "cpu.cfs_quota_us", "-1"),
            Version::Two => write(&self.folder, "cpu.max", "max"),
        }
    }

    /// Moves this process back to where it was started, and removes the cgroup. If that fails, the next recorder with a
    /// share removes it.
    fn remove(&self) {
        let _ = self.return_home();
        // A thread that is just ending can still be in the cgroup.
        for _ in 0..100 {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}

/// Opens without creating, because a file system that is not a cgroup would create the file.
fn write(folder: &Path, file: &str, text: &str) -> Result<(), String> {
    let path = folder.join(file);
    let opened = fs::OpenOptions::new().write(true).create(cfg!(test)).truncate(cfg!(test)).open(&path);
    let written = opened.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| format!("{} does not take \"{text}\": {error}", path.display()))
}

/// Version 2: makes sure that children of this cgroup can have a limit on CPU time.
fn divide(parent: &Path) -> Result<(), String> {
    let has_cpu = |file: &str| {
        let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
        text.split_whitespace().any(|controller| controller == "cpu")
    };
    if !has_cpu("cgroup.controllers") {
        return Err(format!("the cgroup {} has no cpu controller", parent.display()));
    }
    if has_cpu("cgroup.subtree_control") { Ok(()) } else { write(parent, "cgroup.subtree_control", "+cpu") }
}

/// Removes the empty cgroups of recorders that were killed.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Fails if a process is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the version, the highest cgroup that we can see and our own one, of the hierarchy that limits CPU time. The
/// texts are those of /proc/self/cgroup and /proc/self/mountinfo.
fn find(own: &str, mounts: &str) -> Option<(Version, PathBuf, PathBuf)> {
    let mut lines = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let has_cpu = |options: &str| options.split(',').any(|option| option == "cpu");
    let one = lines.clone().find(|(controllers, _)| has_cpu(controllers));
    let (version, path) = match one {
        Some((_, path)) => (Version::One, path),
        None => (Version::Two, lines.find(|(controllers, _)| controllers.is_empty())?.1),
    };
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (kind, options) = (right.split(' ').next()?, right.rsplit(' ').next()?);
        let is_wanted = match version {
            Version::One => kind == "cgroup" && has_cpu(options),
            Version::Two => kind == "cgroup2",
        };
        let mut fields = left.split(' ').skip(3).map(unescaped);
        let (root, point) = (fields.next()?, fields.next()?);
        let inside = Path::new(path).strip_prefix(&root).ok().filter(|_| is_wanted)?;
        let is_below = !inside.components().any(|part| part == std::path::Component::ParentDir);
        is_below.then(|| (version, point.clone(), point.join(inside)))
    })
}

/// Replaces the kernel's `\040` and the like by the bytes that they stand for.
fn unescaped(field: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { quota_us: 10_000, period_us: 20_000 };

    fn found(own: &str, mounts: &str) -> Option<(Version, String, String)> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        find(own, mounts).map(|(version, top, home)| (version, text(top), text(home)))
    }

    #[test]
    fn the_hierarchy_that_limits_cpu_time_is_found() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
            32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "3:cpuset:/a\n2:cpu,cpuacct:/user/x:y\n0::/b\n";
        let one = |top: &str, home: &str| Some((Version::One, top.to_owned(), home.to_owned()));
        assert_eq!(
            found(own, mounts),
            one("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/user/x:y"),
            "version 1 has the controller"
        );
        let two = |top: &str, home: &str| Some((Version::Two, top.to_owned(), home.to_owned()));
        let unified = "/sys/fs/cgroup/unified";
        assert_eq!(found("0::/b/c\n", mounts), two(unified, "/sys/fs/cgroup/unified/b/c"));
        // In a container, the mount shows only a part of the hierarchy.
        let part = "33 30 0:29 /docker/1\\0402 /my\\040groups ro - cgroup2 cgroup2 rw\n";
        assert_eq!(found("0::/docker/1 2/job\n", part), two("/my groups", "/my groups/job"));
        assert_eq!(found("0::/other\n", part), None);
        assert_eq!(found("0::/../other\n", mounts), None, "outside of our namespace");
        assert_eq!(found("2:cpu:/\n", "33 30 0:29 / /x rw - cgroup2 cgroup2 rw\n"), None);
        assert_eq!(found("", mounts), None);
    }

    /// A folder that stands for cgroups of version 2: names, and the controllers of `cgroup.controllers` and
    /// `cgroup.subtree_control`.
    fn tree(name: &str, groups: &[(&str, &str, &str)]) -> PathBuf {
        let top = std::env::temp_dir().join(format!("heaptrack-cgroups.{name}.{}", std::process::id()));
        for (group, controllers, divided) in groups {
            let folder = top.join(group);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
            fs::write(folder.join("cgroup.subtree_control"), divided).unwrap();
        }
        top
    }

    #[test]
    fn version_2_uses_the_nearest_cgroup_that_divides_its_cpu_time() {
        let groups = [
            ("", "cpuset cpu memory", "cpu memory"),
            ("user", "cpu memory", "cpu memory"),
            ("user/session", "cpu memory", ""),
            ("user/session/shell", "memory", ""),
        ];
        let top = tree("nearest", &groups);
        let session = top.join("user/session");
        // The kernel refuses this file for a cgroup that has processes.
        fs::remove_file(session.join("cgroup.subtree_control")).unwrap();
        fs::create_dir(session.join("cgroup.subtree_control")).unwrap();
        let home = session.join("shell");
        let abandoned = top.join(format!("user/{PREFIX}{}", u32::MAX));
        let living = top.join(format!("user/{PREFIX}1"));
        for folder in [&abandoned, &living] {
            fs::create_dir(folder).unwrap();
        }
        let cgroup = Cgroup::create_above(&top, &home, QUOTA).unwrap();
        assert_eq!(cgroup.folder, top.join(format!("user/{PREFIX}{}", std::process::id())));
        assert_eq!((abandoned.exists(), living.exists()), (false, true));
        let text = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(text(&cgroup.folder, "cpu.max"), "10000 20000");
        assert_eq!((text(&cgroup.folder, PROCESSES), text(&home, PROCESSES)), ("0".to_owned(), "0".to_owned()));
        cgroup.lift().unwrap();
        assert_eq!(text(&cgroup.folder, "cpu.max"), "max");
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn version_2_asks_a_cgroup_to_divide_its_cpu_time() {
        let top = tree("asks", &[("", "cpu", "memory")]);
        let cgroup = Cgroup::create_above(&top, &top, QUOTA).unwrap();
        assert_eq!(cgroup.folder.parent(), Some(top.as_path()));
        assert_eq!(fs::read_to_string(top.join("cgroup.subtree_control")).unwrap(), "+cpu");
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_nearest_cgroup_is_the_one_that_is_blamed() {
        let top = tree("blamed", &[("", "memory", "memory"), ("a", "memory", "")]);
        let reason = Cgroup::create_above(&top, &top.join("a"), QUOTA).unwrap_err();
        assert_eq!(reason, format!("the cgroup {} has no cpu controller", top.join("a").display()));
        fs::remove_dir_all(top).unwrap();
    }
}
