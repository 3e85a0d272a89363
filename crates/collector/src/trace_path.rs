//! The place of the trace: its name, which its owner may change, and its file, which the writer may replace by a
//! shorter one.
//!
//! Receives: a name. Returns: descriptors of the file that has it now. Must hold: the two changes never happen at the
//! same time; the name leads to a complete trace at every moment.
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct TracePath {
    path: Mutex<PathBuf>,
}

impl TracePath {
    pub const fn new(path: PathBuf) -> Self {
        TracePath { path: Mutex::new(path) }
    }

    fn lock(&self) -> MutexGuard<'_, PathBuf> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn path(&self) -> PathBuf {
        self.lock().clone()
    }

    /// Opens the file again, with a descriptor of its own.
    pub fn open(&self) -> io::Result<File> {
        File::open(&*self.lock())
    }

    /// Returns true if `file` is still the one that has the trace's name.
    pub fn is(&self, file: &File) -> io::Result<bool> {
        let (there, here) = (fs::metadata(&*self.lock())?, file.metadata()?);
        Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
    }

    pub fn rename(&self, new: &Path) -> io::Result<()> {
        let mut path = self.lock();
        fs::rename(&*path, new)?;
        new.clone_into(&mut path);
        Ok(())
    }

    /// Replaces the trace by a file that was written under another name. A reader that has the old file open keeps it.
    pub(crate) fn replace(&self, by: &Path) -> io::Result<()> {
        fs::rename(by, &*self.lock())
    }
}
