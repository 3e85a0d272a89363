//! A file that is being written, under a name of its own until it is whole.
//!
//! What must hold: whatever ends the writing, an error or a signal, leaves nothing of it behind.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// What a signal has to remove: the names for now, and what they are for.
static CURRENT: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());
static WATCHED: Once = Once::new();

pub struct Unfinished {
    /// `None`: what has the name is no file (`/dev/null`, a pipe), is written to as it is, and nothing may take its place.
    part: Option<PathBuf>,
    path: PathBuf,
}

impl Unfinished {
    /// For a file that will be called `path`.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let file = File::options().write(true).open(path)?;
            return Ok((Unfinished { part: None, path: path.to_owned() }, file));
        }
        // Without that thread a signal leaves the file behind, as a loss of power would.
        WATCHED.call_once(|| drop(watch()));
        // What a link leads to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let name = PathBuf::from(name);
        // Locked first: a signal may come when the file is there, and must find it in the list.
        let mut current = current();
        let file = File::create(&name)?;
        current.push((name.clone(), path.clone()));
        Ok((Unfinished { part: Some(name), path }, file))
    }

    /// It is whole.
    pub fn finish(self) -> io::Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        let mut current = current();
        fs::rename(part, &self.path)?;
        current.retain(|(name, _)| name != part);
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(part) = &self.part else { return };
        let mut current = current();
        if let Some(at) = current.iter().position(|(name, _)| name == part) {
            current.remove(at);
            let _ = fs::remove_file(part);
        }
    }
}

fn current() -> MutexGuard<'static, Vec<(PathBuf, PathBuf)>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a signal ends the process as it would anyway, but tidily.
fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
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
            assert_eq!((files(), current().len()), (1, 1));
            drop(unfinished);
            assert_eq!((files(), current().len()), (0, 0));
        });
        fs::remove_dir(&folder).unwrap();
    }
}
