//! A file that has a temporary name until it is whole: `.heaptrack.PID.N.part`, in the folder where it will be.
//!
//! Receives: a folder. Returns: a new file there, which is locked while its writer has it open. Must hold: no two
//! writers get the same file, even if their pids are equal (containers, other hosts); a file whose writer is alive is
//! never removed. A writer that is killed leaves its file, and the next command that writes into the folder removes it
//! (decision 56).
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// If a name is taken, the next one is tried, up to this many.
const MOST_NAMES: usize = 10_000;
/// A link cannot be locked. It is renamed as soon as it is made, so a link of this age is abandoned.
const LINK_AGE: Duration = Duration::from_secs(60);
/// On a file system that several hosts share, a lock may be visible on one host only (`nolock`, `local_lock`). There
/// only files of this age count as abandoned.
const SHARED_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// NFS, SMB and CIFS, Ceph, AFS, Plan 9, FUSE, GFS2, OCFS2 and Lustre: file systems that several hosts can have
/// mounted.
const SHARED: [u32; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
    0x0116_1970,
    0x7461_636f,
    0x0bd0_0bd0,
];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Creates a file that a later command removes if its writer is killed.
pub fn create(folder: &Path) -> io::Result<(PathBuf, File)> {
    create_with(folder, "part")
}

/// Creates a trace that gets its real name late, or never. No other command may remove it, because it can be read at
/// every moment.
pub fn create_trace(folder: &Path) -> io::Result<(PathBuf, File)> {
    create_with(folder, "htz")
}

fn create_with(folder: &Path, ending: &str) -> io::Result<(PathBuf, File)> {
    let make = |path: &Path| {
        let file = File::options().write(true).create_new(true).open(path)?;
        // A command that removes abandoned files may have removed ours before we locked it.
        if is_locked_as(&file, path) { Ok(file) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    };
    with_free_name(folder, ending, make)
}

/// Creates a symbolic link to `target`, which the caller renames at once.
pub fn create_link(folder: &Path, target: &Path) -> io::Result<PathBuf> {
    with_free_name(folder, "part", |path| symlink(target, path)).map(|(path, ())| path)
}

fn with_free_name<T>(folder: &Path, ending: &str, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    for _ in 0..MOST_NAMES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Short, so that it fits wherever the final name does.
        let path = folder.join(format!(".heaptrack.{}.{number}.{ending}", std::process::id()));
        match make(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            made => return made.map(|made| (path, made)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns true if we hold the lock and the file still has its name. Also true on a file system without locks.
fn is_locked_as(file: &File, path: &Path) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
        && is_named(file, path).unwrap_or(false)
}

fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let (here, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((here.dev(), here.ino()) == (there.dev(), there.ino()))
}

/// Removes the files of writers that are gone. A file that cannot be judged or removed stays, which is not an error.
pub fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| is_part(&entry.file_name())) {
        let path = entry.path();
        // Only regular files and links are looked at: opening anything else could block or have an effect.
        match entry.file_type() {
            Ok(kind) if kind.is_file() => drop(remove_file_if_abandoned(&path)),
            Ok(kind) if kind.is_symlink() => drop(remove_link_if_abandoned(&path)),
            _ => (),
        }
    }
}

fn remove_file_if_abandoned(path: &Path) -> io::Result<()> {
    // NFS grants the lock only to a descriptor that is open for writing.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let is_shared = SHARED.contains(&(rustix::fs::fstatfs(&file)?.f_type as u32));
    // While we hold the lock, the name stays with this file: a writer with the same pid finds the name taken or the
    // file locked, and takes another name.
    if is_named(&file, path)? && is_old_enough(&file.metadata()?, if is_shared { SHARED_AGE } else { Duration::ZERO }) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn remove_link_if_abandoned(path: &Path) -> io::Result<()> {
    if is_old_enough(&fs::symlink_metadata(path)?, LINK_AGE) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn is_old_enough(file: &Metadata, least: Duration) -> bool {
    let age = file.modified().ok().and_then(|time| time.elapsed().ok());
    least.is_zero() || age.is_some_and(|age| age >= least)
}

/// Returns true for a name of the form `.heaptrack.PID.N.part`.
fn is_part(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(".heaptrack.")?.strip_suffix(".part"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|text| text.split_once('.')).is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("heaptrack-part-test.{}.{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_files_whose_writer_is_gone_are_removed() {
        let folder = folder("gone");
        let (living, file) = create(&folder).unwrap();
        let (dead, closed) = create(&folder).unwrap();
        drop(closed);
        let (trace, _) = create_trace(&folder).unwrap();
        let others =
            ["x.part", ".heaptrack.1.part", ".heaptrack.1.2.3.part", ".heaptrack.a.0.part", ".heaptrack.1..part"];
        others.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
        fs::create_dir(folder.join(".heaptrack.1.2.part")).unwrap();
        remove_abandoned(&folder);
        assert!(living.exists() && !dead.exists() && trace.exists() && folder.join(".heaptrack.1.2.part").exists());
        assert!(others.iter().all(|name| folder.join(name).exists()));
        drop(file);
        remove_abandoned(&folder);
        assert!(!living.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_name_that_is_taken_is_not_used() {
        let folder = folder("taken");
        let next = NEXT.load(Ordering::Relaxed);
        // Other tests take numbers from the same counter.
        let taken: Vec<PathBuf> = (next..next + 100)
            .map(|number| folder.join(format!(".heaptrack.{}.{number}.part", std::process::id())))
            .collect();
        taken.iter().for_each(|path| fs::write(path, "another's").unwrap());
        let (path, _file) = create(&folder).unwrap();
        assert!(!taken.contains(&path));
        assert!(taken.iter().all(|path| fs::read(path).unwrap() == b"another's"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn links_and_files_that_other_hosts_may_write_are_removed_when_they_are_old() {
        let folder = folder("old");
        let link = create_link(&folder, Path::new("x")).unwrap();
        remove_abandoned(&folder);
        assert!(link.is_symlink(), "it may be renamed at any moment");
        let (path, file) = create(&folder).unwrap();
        assert!(is_old_enough(&file.metadata().unwrap(), Duration::ZERO));
        assert!(!is_old_enough(&file.metadata().unwrap(), SHARED_AGE));
        file.set_modified(SystemTime::now() - SHARED_AGE).unwrap();
        assert!(is_old_enough(&fs::metadata(path).unwrap(), SHARED_AGE));
        fs::remove_dir_all(folder).unwrap();
    }
}
