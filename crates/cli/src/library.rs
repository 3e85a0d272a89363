//! Puts the capture library where the loader can map it.
//!
//! Receives: the library inside this binary. Returns: a path for LD_PRELOAD. Must hold: only we can write there (a
//! folder of mode 0711 that we own). Others can read the library, because a program that gives up its privileges may
//! start others that preload it. An existing file is compared byte by byte. A folder that is mounted noexec is not
//! used. If there is no other place, the library is in our memory.
use collector::part;
use rustix::fs::{MemfdFlags, Mode, OFlags, StatVfsMountFlags};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub const CONTENT: &[u8] = include_bytes!(env!("HEAPTRACK_CAPTURE_SO"));

/// Others may pass through our folder, but neither list nor change it. They may read and execute the library.
const OWN_FOLDER: u32 = 0o711;
const LIBRARY: u32 = 0o555;

/// The library on disk or in memory. It must be kept until the program has started, and longer if the program may call
/// `exec`.
#[derive(Debug)]
pub struct Library {
    pub path: PathBuf,
    /// Holds the library when it has no file.
    _memory: Option<OwnedFd>,
}

/// Writes the library to a folder, or to memory if no folder can be used. `output_folder` is the folder of the trace.
/// Others are tried before it, unless only this one can be reached by every user.
pub fn place(output_folder: &Path) -> io::Result<Library> {
    match on_disk(output_folder) {
        Some(path) => Ok(Library { path, _memory: None }),
        None => in_memory(),
    }
}

/// Returns a file that stays after we have ended. Folders that every user can reach are tried first.
pub fn on_disk(last: &Path) -> Option<PathBuf> {
    let variables = ["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = variables.chain([PathBuf::from("/tmp"), last.to_path_buf()]);
    let mut folders: Vec<PathBuf> = folders.filter(|folder| !folder.as_os_str().is_empty()).collect();
    folders.sort_by_key(|folder| !is_open_to_all(folder));
    folders.iter().find_map(|folder| place_in(folder).ok())
}

/// Returns true if every user may pass through the folder and all its parents.
fn is_open_to_all(folder: &Path) -> bool {
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & 0o001 != 0);
    folder.canonicalize().is_ok_and(|folder| folder.ancestors().all(is_open))
}

fn place_in(folder: &Path) -> io::Result<PathBuf> {
    let folder = folder.canonicalize()?;
    // Spaces and colons separate entries of LD_PRELOAD.
    if folder.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if rustix::fs::statvfs(&folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let own = own_folder(&folder)?;
    let path = own.join(format!("{:016x}.so", xxhash_rust::xxh3::xxh3_64(CONTENT)));
    if !is_ours(&path) {
        write(&own, &path)?;
    }
    Ok(path)
}

/// Returns `heaptrack-<uid>` in `folder`, or an error if it is not ours alone.
fn own_folder(folder: &Path) -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let own = folder.join(format!("heaptrack-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => (),
    }
    // A descriptor ensures that the folder that is checked is the folder that is changed.
    let folder = rustix::fs::open(&own, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let status = rustix::fs::fstat(&folder)?;
    let mode = status.st_mode & 0o7777;
    if status.st_uid != user || mode & 0o066 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if mode != OWN_FOLDER {
        // The umask may have removed bits, or an older version may have created the folder.
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(OWN_FOLDER))?;
    }
    Ok(own)
}

fn is_ours(path: &Path) -> bool {
    let is_sound = fs::symlink_metadata(path).is_ok_and(|metadata| {
        metadata.is_file()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o777 == LIBRARY
            && metadata.len() == CONTENT.len() as u64
    });
    is_sound && fs::read(path).is_ok_and(|bytes| bytes == CONTENT)
}

/// Writes the library. The file appears as a whole, because another heaptrack may start at the same moment.
fn write(own: &Path, path: &Path) -> io::Result<()> {
    part::remove_abandoned(own);
    let (unfinished, mut file) = part::create(own)?;
    let written = file
        .write_all(CONTENT)
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(LIBRARY)))
        .and_then(|()| fs::rename(&unfinished, path));
    written.inspect_err(|_| drop(fs::remove_file(&unfinished)))
}

fn in_memory() -> io::Result<Library> {
    // Some kernels refuse executable memfds without this flag. Older kernels do not know the flag.
    let create = |flags| rustix::fs::memfd_create("heaptrack-library", flags);
    let memory = create(MemfdFlags::CLOEXEC | MemfdFlags::EXEC).or_else(|_| create(MemfdFlags::CLOEXEC))?;
    let mut file = File::from(memory);
    file.write_all(CONTENT)?;
    let memory = OwnedFd::from(file);
    rustix::fs::fchmod(&memory, Mode::from_raw_mode(LIBRARY))?;
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()));
    if !path.exists() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no folder is both writable and executable (tried $XDG_RUNTIME_DIR, $TMPDIR, /tmp and the output folder)",
        ));
    }
    Ok(Library { path, _memory: Some(memory) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("heaptrack-library-test.{}.{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn the_file_is_written_once_and_checked() {
        let folder = folder("once");
        let path = place_in(&folder).unwrap();
        assert_eq!(fs::read(&path).unwrap(), CONTENT);
        let first = fs::metadata(&path).unwrap().ino();
        assert_eq!(place_in(&folder).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, vec![0; CONTENT.len()]).unwrap();
        place_in(&folder).unwrap();
        assert_eq!(fs::read(&path).unwrap(), CONTENT, "a changed file is replaced");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let own = path.parent().unwrap();
        assert_eq!((mode(own), mode(&path)), (OWN_FOLDER, LIBRARY));
        fs::set_permissions(own, fs::Permissions::from_mode(0o700)).unwrap();
        place_in(&folder).unwrap();
        assert_eq!(mode(own), OWN_FOLDER, "a folder of an older version is opened for others");
        for open in [0o733, 0o777, 0o755] {
            fs::set_permissions(own, fs::Permissions::from_mode(open)).unwrap();
            assert!(place_in(&folder).is_err(), "a folder that others could change is not used");
        }
        fs::remove_dir_all(own).unwrap();
        std::os::unix::fs::symlink("/tmp", own).unwrap();
        assert!(place_in(&folder).is_err(), "a link is not followed");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_with_a_space_cannot_be_named() {
        let folder = folder("with space");
        assert!(place_in(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_library_can_live_in_memory() {
        let library = in_memory().unwrap();
        assert_eq!(fs::read(&library.path).unwrap(), CONTENT);
    }
}
