//! Folders in the temporary folder for files that only this process reads.
//!
//! Must hold: no other user can read such a folder, or has made it. An error, SIGINT, SIGTERM or SIGHUP leaves none.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The folders that a signal must remove.
static CURRENT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static WATCHED: Once = Once::new();

/// A folder that is removed with all its files when the value is dropped.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder below `parent`. Its name begins with `name`.
    pub fn create(parent: &Path, name: &str) -> io::Result<Self> {
        // Without this thread, a signal leaves the folder, as a loss of power would.
        WATCHED.call_once(|| drop(watch()));
        let mut current = current();
        let own = std::process::id();
        for number in 1..1000 {
            let path = parent.join(format!("{name}.{own}.{number}"));
            // Another user may have put a folder or a link there, so an existing one is never used.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    current.push(path.clone());
                    return Ok(TemporaryFolder(path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let mut current = current();
        current.retain(|path| *path != self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn current() -> MutexGuard<'static, Vec<PathBuf>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, SIGINT, SIGTERM and SIGHUP remove the folders and then end the process as they would without us.
fn watch() -> io::Result<()> {
    // Signals that were ignored when we were started (`nohup`) stay ignored.
    let ignored = crate::signals::ignored();
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0))?;
    std::thread::Builder::new().name("heaptrack-tidy".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Locked to the end, so that no other thread makes a folder meanwhile.
            let current = current();
            current.iter().for_each(|path| drop(fs::remove_dir_all(path)));
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_is_new_and_private_and_goes_with_its_files() {
        let outer = TemporaryFolder::create(&std::env::temp_dir(), "heaptrack-temporary-folder").unwrap();
        let (parent, own) = (outer.path().to_owned(), std::process::id());
        fs::create_dir(parent.join(format!("x.{own}.1"))).unwrap();
        symlink("elsewhere", parent.join(format!("x.{own}.2"))).unwrap();
        let inner = TemporaryFolder::create(&parent, "x").unwrap();
        assert_eq!(inner.path(), parent.join(format!("x.{own}.3")));
        assert_eq!(fs::metadata(inner.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(inner.path().join("file"), "text").unwrap();
        drop(inner);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 2);
        drop(outer);
        assert!(!parent.exists());
    }
}
