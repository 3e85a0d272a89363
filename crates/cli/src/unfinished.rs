//! A file that is being written, under a name of its own until it is whole.
//!
//! What must hold: whatever ends the writing, an error or a signal, leaves nothing of it behind. What SIGKILL leaves is removed by the next
//! command that writes into the same folder.
use collector::part;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// What a signal has to remove: the names for now, and what they are for.
static CURRENT: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());
static WATCHED: Once = Once::new();

pub struct Unfinished {
    part: PathBuf,
    path: PathBuf,
    /// Held until the file has its name or is removed: no other command takes it for abandoned.
    _lock: File,
}

impl Unfinished {
    /// For a file that will be called `path`.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        // Without that thread a signal leaves the file behind, as a loss of power would.
        WATCHED.call_once(|| drop(watch()));
        // What a link leads to is replaced, not the link.
        let path = behind_links(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        part::remove_abandoned(folder);
        // Locked first: a signal may come when the file is there, and must find it in the list.
        let mut current = current();
        let (name, file) = part::create(folder)?;
        let lock = file.try_clone().inspect_err(|_| drop(fs::remove_file(&name)))?;
        current.push((name.clone(), path.clone()));
        keep_owner(&path, &file);
        Ok((Unfinished { part: name, path, _lock: lock }, file))
    }

    /// It is whole.
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

/// Makes `path` a link to `target`, in the place of whatever is there. A signal comes before that or after it.
pub fn replace_by_link(path: &Path, target: &Path) -> io::Result<()> {
    WATCHED.call_once(|| drop(watch()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _no_signal = current();
    let link = part::create_link(folder, target)?;
    fs::rename(&link, path).inspect_err(|_| drop(fs::remove_file(&link)))
}

/// The file that a path leads to, also where a link leads to a file that is not there yet. What is no link stays as it was typed.
pub fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many as the kernel follows.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    path
}

/// A file that takes the place of another one is its owner's, and can be read by the same people, as far as we may decide that.
fn keep_owner(old: &Path, new: &File) {
    if let Ok(old) = fs::metadata(old) {
        let _ = fchown(new, Some(old.uid()), Some(old.gid()));
        let _ = new.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777));
    }
}

fn current() -> MutexGuard<'static, Vec<(PathBuf, PathBuf)>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a signal ends the process as it would anyway, but tidily.
fn watch() -> io::Result<()> {
    // What we were started with ignored (`nohup`) stays ignored.
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

/// A signal arrived where all threads block it (`signals.rs`): ends the process if a file is unfinished.
pub fn interrupt(signal: i32) {
    let current = current();
    if !current.is_empty() {
        end(&current, signal);
    }
}

/// `current` stays locked to the end of the process, so that no other thread finishes a file meanwhile.
fn end(current: &[(PathBuf, PathBuf)], signal: i32) -> ! {
    for (name, path) in current {
        let _ = fs::remove_file(name);
        crate::say(format_args!("heaptrack: interrupted; {} was not written", path.display()));
    }
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
            assert_eq!(files(), 0, "whoever has a signal sees no file");
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
