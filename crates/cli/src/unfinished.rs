//! A file that is being written, under a temporary name until it is complete.
//!
//! Must hold: an error, SIGINT, SIGTERM or SIGHUP leaves no temporary file. A file that another signal leaves, such as
//! SIGKILL, is removed by the next command that writes into the same folder.
use collector::part;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The files that a signal must remove: their temporary names, and the names that they will have.
static CURRENT: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());
static WATCHED: Once = Once::new();

pub struct Unfinished {
    part: PathBuf,
    path: PathBuf,
    /// The lock is held until the file has its name or is removed, so that no other command takes it for abandoned.
    _lock: File,
}

impl Unfinished {
    /// Creates the temporary file for a file that will be called `path`.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        // Without this thread, a signal leaves the file, as a loss of power would.
        WATCHED.call_once(|| drop(watch()));
        // The target of a link is replaced, not the link.
        let path = behind_links(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        part::remove_abandoned(folder);
        // The list is locked first, because a signal that arrives when the file exists must find it in the list.
        let mut current = current();
        let (name, file) = part::create(folder)?;
        let lock = file.try_clone().inspect_err(|_| drop(fs::remove_file(&name)))?;
        current.push((name.clone(), path.clone()));
        keep_owner(&path, &file);
        Ok((Unfinished { part: name, path, _lock: lock }, file))
    }

    /// Gives the complete file its name.
    pub fn finish(self) -> io::Result<()> {
        let mut current = current();
        fs::rename(&self.part, &self.path)?;
        current.retain(|(name, _)| *name != self.part);
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut current = current();
        if let Some(at) = current.iter().position(|(name, _)| *name == self.part) {
            current.remove(at);
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Makes `path` a link to `target`, and replaces whatever is there. A signal cannot interrupt that.
pub fn replace_by_link(path: &Path, target: &Path) -> io::Result<()> {
    WATCHED.call_once(|| drop(watch()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _no_signal = current();
    let link = part::create_link(folder, target)?;
    fs::rename(&link, path).inspect_err(|_| drop(fs::remove_file(&link)))
}

/// Returns the path of the file that `path` leads to, also if a link leads to a file that does not exist yet. A path
/// that is no link stays as the user typed it.
pub fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // The kernel follows this many links.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    path
}

/// Gives the new file the owner and permissions of the file that it replaces, as far as we are allowed to set them.
fn keep_owner(old: &Path, new: &File) {
    if let Ok(old) = fs::metadata(old) {
        let _ = fchown(new, Some(old.uid()), Some(old.gid()));
        let _ = new.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777));
    }
}

fn current() -> MutexGuard<'static, Vec<(PathBuf, PathBuf)>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, SIGINT, SIGTERM and SIGHUP remove unfinished files and end the process with exit code 128 + signal.
fn watch() -> io::Result<()> {
    // Signals that were ignored when we were started (`nohup`) stay ignored.
    let ignored = crate::signals::ignored();
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0))?;
    std::thread::Builder::new().name("heaptrack-tidy".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(&current(), signal);
        }
    })?;
    Ok(())
}

/// Called for a signal that all threads block (`signals.rs`). Ends the process if a file is unfinished.
pub fn interrupt(signal: i32) {
    let current = current();
    if !current.is_empty() {
        end(&current, signal);
    }
}

/// Removes the unfinished files and ends the process. The caller holds the lock of `current` to the end, so that no
/// other thread finishes a file meanwhile.
fn end(current: &[(PathBuf, PathBuf)], signal: i32) -> ! {
    for (name, path) in current {
        let _ = fs::remove_file(name);
        crate::say(format_args!("heaptrack: interrupted; {} was not written", path.display()));
    }
    crate::recorder_limits::leave();
    std::process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn there_is_no_file_that_a_signal_would_not_find() {
        let folder = std::env::temp_dir().join(format!("heaptrack-unfinished.{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let files = || fs::read_dir(&folder).unwrap().count();
        let signalled = current();
        std::thread::scope(|scope| {
            let made = scope.spawn(|| Unfinished::create(&folder.join("out")).unwrap());
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(files(), 0, "no file is created while a signal is handled");
            drop(signalled);
            let (unfinished, _) = made.join().unwrap();
            // Other tests write files at the same time.
            let known = || current().iter().filter(|(name, _)| name.starts_with(&folder)).count();
            assert_eq!((files(), known()), (1, 1));
            drop(unfinished);
            assert_eq!((files(), known()), (0, 0));
        });
        fs::remove_dir(&folder).unwrap();
    }
}
