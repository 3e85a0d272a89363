//! The files of a running target, opened while it runs.
//!
//! Receives: a pid. Returns: files as the target sees them, through its own root (that of a container) and through its
//! mappings (files that were deleted or replaced since). Must hold: an opened file stays usable after the target's end.
//! A symbolic link inside the target's root never leads out of it.
use crate::finder::{is_regular, open};
use crate::kept::Kept;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The most modules that are held open, because file descriptors are limited.
const MOST_HELD: usize = 400;
const VDSO_MAX: usize = 1 << 20;

/// The opened file of each module, by instance.
pub type PinnedFiles = HashMap<u16, (PathBuf, File)>;

pub struct Target {
    pid: u32,
    /// The pid in the target's own namespace, which is how it names its perf map.
    inner_pid: u32,
    root: Option<OwnedFd>,
    /// Its working folder when this `Target` was made. Some programs write files there.
    folder: Option<OwnedFd>,
    held: Mutex<PinnedFiles>,
    /// Files that were opened before the trace said which modules they are.
    early: Mutex<Vec<Early>>,
    pub(crate) kept: Arc<Kept>,
}

/// A mapped file, and its address range.
struct Early {
    range: Range<u64>,
    file: File,
}

impl Target {
    pub fn new(pid: u32) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |name: &str| rustix::fs::open(format!("/proc/{pid}/{name}"), flags, Mode::empty()).ok();
        let (root, folder) = (open("root"), open("cwd"));
        let inner_pid = inner_pid(pid).unwrap_or(pid);
        Target { pid, inner_pid, root, folder, held: Mutex::default(), early: Mutex::default(), kept: Arc::default() }
    }

    /// Limits the cache of unpacked sections to this many bytes. 0 empties it.
    pub fn keep_unpacked(&self, most: u64) {
        self.kept.allow(most);
    }

    pub const fn pid(&self) -> u32 {
        self.pid
    }

    pub const fn inner_pid(&self) -> u32 {
        self.inner_pid
    }

    /// Opens a file by its path in the target.
    pub fn open(&self, path: &Path) -> Option<File> {
        let root = self.root.as_ref()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let file = match found {
            Ok(file) => File::from(file),
            // The kernel has no openat2, or a seccomp filter refuses it.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => open_in_root(root, path)?,
            Err(_) => return None,
        };
        is_regular(&file).then_some(file)
    }

    /// Opens a file by its name in the working folder that the target had when this `Target` was made.
    pub(crate) fn open_beside(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(self.folder.as_ref()?, name, flags, Mode::empty()).ok()?;
        Some(File::from(file)).filter(is_regular)
    }

    /// Opens the file of a mapping now, so that it can be read after the target has ended or the file was replaced.
    pub fn hold(&self, instance: u16, start: u64, path: &Path) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MOST_HELD || held.contains_key(&instance) {
            return;
        }
        let file = self.opened_early(start).or_else(|| self.mapped(start)).or_else(|| self.open(path));
        if let Some(file) = file {
            held.insert(instance, (path.to_owned(), file));
        }
    }

    /// Opens all mapped files, at most `MOST_HELD`. An attached program may have been deleted, and may end before the
    /// trace says which modules it has.
    pub fn hold_mapped(&self) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let mut whole: Option<(Range<u64>, &str)> = None;
        let mut keep = |found: Option<(Range<u64>, &str)>| {
            let Some((range, _)) = found.filter(|_| early.len() < MOST_HELD) else { return };
            if let Some(file) = self.mapped(range.start) {
                early.push(Early { range, file });
            }
        };
        // The mappings of one file are adjacent lines.
        for (range, name) in maps.lines().filter_map(mapping) {
            match &mut whole {
                Some((known, of)) if *of == name => known.end = range.end,
                _ => keep(whole.replace((range, name))),
            }
        }
        keep(whole);
    }

    fn opened_early(&self, address: u64) -> Option<File> {
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.iter().find(|early| early.range.contains(&address))?.file.try_clone().ok()
    }

    /// Opens a held file again, with a file position of its own.
    pub fn held(&self, instance: u16) -> Option<File> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, file) = held.get(&instance)?;
        // `try_clone` would share the file position with other threads.
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        open(Path::new(&own)).or_else(|| file.try_clone().ok())
    }

    /// Opens the file that is mapped at an address, even if it was deleted. For files other than the program's own,
    /// this needs rights that a parent process may not have.
    fn mapped(&self, address: u64) -> Option<File> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let mut found = maps.lines().filter_map(mapping);
        let (range, name) = found.find(|(range, _)| range.contains(&address))?;
        let at = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, range.start, range.end);
        open(Path::new(&at)).or_else(|| {
            let program = PathBuf::from(format!("/proc/{}/exe", self.pid));
            let is_program = std::fs::read_link(&program).is_ok_and(|path| path.as_os_str() == name);
            if is_program { open(&program) } else { None }
        })
    }

    /// The paths of all files that the target has mapped, as the target names them.
    pub(crate) fn mapped_names(&self) -> Vec<PathBuf> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let mut names: Vec<PathBuf> = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| PathBuf::from(line[at..].trim_end_matches(" (deleted)"))))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Does what openat2 does with `IN_ROOT`: follows links and `..` by hand, so that none of them leads out of `root`. Each
/// component is opened without following it, so a link that appears meanwhile is not followed by the kernel either.
fn open_in_root(root: &OwnedFd, path: &Path) -> Option<File> {
    // The kernel follows this many links.
    const MOST_LINKS: usize = 40;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folders: Vec<OwnedFd> = Vec::new();
    let mut left = components(path);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let folder = folders.last().unwrap_or(root);
        if name == ".." {
            folders.pop();
            continue;
        }
        let found = rustix::fs::openat(folder, &name, flags | OFlags::PATH, Mode::empty()).ok()?;
        match FileType::from_raw_mode(rustix::fs::fstat(&found).ok()?.st_mode) {
            FileType::Symlink => {
                links += 1;
                let target = rustix::fs::readlinkat(&found, "", Vec::new()).ok().filter(|_| links <= MOST_LINKS)?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    folders.clear();
                }
                left.extend(components(&target));
            }
            FileType::Directory => folders.push(found),
            _ if left.is_empty() => {
                let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK;
                return rustix::fs::openat(folder, &name, flags, Mode::empty()).ok().map(File::from);
            }
            _ => return None,
        }
    }
    None
}

/// Returns the names in a path, the last one first.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// The address range and the path of a line of /proc/PID/maps. Returns `None` if the line is not about a file.
fn mapping(line: &str) -> Option<(Range<u64>, &str)> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, &line[line.find('/')?..]))
}

/// The vdso of our own process. It is the same as the target's if the build-ids are equal.
pub(crate) fn own_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok().filter(|size| *size <= VDSO_MAX)?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

fn inner_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn our_own_files_are_seen_through_our_root() {
        let target = Target::new(std::process::id());
        let exe = std::env::current_exe().unwrap();
        assert_eq!(target.open(&exe).unwrap().metadata().unwrap().len(), exe.metadata().unwrap().len());
        assert!(target.open(Path::new("/dev/null")).is_none());
        assert!(target.open(Path::new("/no/such")).is_none());
        assert_eq!(target.inner_pid(), std::process::id());
    }

    /// The same paths are opened as by openat2, which is not there on older kernels and under some seccomp filters.
    #[test]
    fn a_link_does_not_lead_out_of_the_root() {
        let folder = std::env::temp_dir().join(format!("heaptrack-root.{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("etc/deep")).unwrap();
        std::fs::create_dir(folder.join("lib")).unwrap();
        std::fs::write(folder.join("etc/inside"), "inside").unwrap();
        let links = [
            ("lib/absolute", "/etc/inside"),
            ("lib/upwards", "../../../../../etc/inside"),
            ("lib/folder", "/etc/deep/.."),
            ("lib/out", "/etc/passwd"),
            ("lib/process", "/proc/self/exe"),
            ("lib/round", "round"),
        ];
        for (name, target) in links {
            std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&folder, flags, Mode::empty()).unwrap();
        let mut target = Target::new(std::process::id());
        let by_hand = |path: &str| {
            let mut text = String::new();
            open_in_root(&root, Path::new(path))?.read_to_string(&mut text).ok().map(|_| text)
        };
        for path in ["/etc/inside", "/lib/absolute", "/lib/upwards", "/lib/folder/inside", "/../lib/./absolute"] {
            assert_eq!(by_hand(path).as_deref(), Some("inside"), "{path}");
        }
        let outside = ["/lib/out", "/lib/process", "/lib/round", "/lib/absolute/x", "/etc", "/etc/passwd", "/lib/none"];
        assert!(outside.iter().all(|path| by_hand(path).is_none()));
        target.root = Some(root);
        for path in ["/lib/absolute", "/lib/upwards", "/lib/folder/inside"] {
            assert!(target.open(Path::new(path)).is_some(), "{path}");
        }
        assert!(outside.iter().all(|path| target.open(Path::new(path)).is_none()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_held_file_outlives_its_name() {
        let path = std::env::temp_dir().join(format!("heaptrack-held.{}", std::process::id()));
        std::fs::write(&path, "held").unwrap();
        let target = Target::new(std::process::id());
        target.hold(1, 0, &path);
        std::fs::remove_file(&path).unwrap();
        let mut text = String::new();
        target.held(1).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "held");
        assert!(target.held(2).is_none());
    }

    #[test]
    fn our_vdso_is_an_elf_file() {
        assert_eq!(own_vdso().unwrap()[..4], *b"\x7fELF");
    }
}
