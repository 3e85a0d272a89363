//! Puts the capture library where the loader can map it.
//!
//! Given: the library inside this binary. Gives back: a path for LD_PRELOAD. What must hold: only we can write what is
//! there (a folder of mode 0700 that is ours); what is already there is compared byte by byte; a folder that is
//! mounted noexec is left alone; where there is no other place, the library lives in our memory.
use rustix::fs::{MemfdFlags, Mode, StatVfsMountFlags};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub const CONTENT: &[u8] = include_bytes!(env!("HEAPTRACK_CAPTURE_SO"));

/// The library on disk or in memory; it must be kept until the program has started, and longer if that may `exec`.
#[derive(Debug)]
pub struct Library {
    pub path: PathBuf,
    /// Holds the library when it has no file.
    _memory: Option<OwnedFd>,
}

/// `output_folder`: where the trace goes, the last place to try.
pub fn place(output_folder: &Path) -> io::Result<Library> {
    let variables = ["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = variables.chain([PathBuf::from("/tmp"), output_folder.to_path_buf()]);
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        if let Ok(path) = place_in(&folder) {
            return Ok(Library { path, _memory: None });
        }
    }
    in_memory()
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

/// `heaptrack-<uid>` in `folder`: ours alone, or an error.
fn own_folder(folder: &Path) -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let own = folder.join(format!("heaptrack-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => (),
    }
    let metadata = fs::symlink_metadata(&own)?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o7777 != 0o700 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(own)
}

fn is_ours(path: &Path) -> bool {
    let is_sound = fs::symlink_metadata(path).is_ok_and(|metadata| {
        metadata.is_file()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o022 == 0
            && metadata.len() == CONTENT.len() as u64
    });
    is_sound && fs::read(path).is_ok_and(|bytes| bytes == CONTENT)
}

/// Whole or not at all: another heaptrack may start at the same moment.
fn write(own: &Path, path: &Path) -> io::Result<()> {
    let unfinished = own.join(format!(".{}", std::process::id()));
    let written = File::create(&unfinished)
        .and_then(|mut file| file.write_all(CONTENT))
        .and_then(|()| fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o500)))
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn in_memory() -> io::Result<Library> {
    // Some kernels refuse executable memfds unless asked for; older ones do not know the flag.
    let create = |flags| rustix::fs::memfd_create("heaptrack-library", flags);
    let memory = create(MemfdFlags::CLOEXEC | MemfdFlags::EXEC).or_else(|_| create(MemfdFlags::CLOEXEC))?;
    let mut file = File::from(memory);
    file.write_all(CONTENT)?;
    let memory = OwnedFd::from(file);
    rustix::fs::fchmod(&memory, Mode::from_raw_mode(0o500))?;
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
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(place_in(&folder).is_err(), "a folder that others can enter is not used");
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
