//! Where the trace is: its name, which its owner changes, and its file, which the writer replaces by a shorter one.
//!
//! Given: a name. Gives back: ways into the file that has it now. What must hold: never both at once; under the name there is a whole trace at every moment.
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

    /// A way of its own into the file.
    pub fn open(&self) -> io::Result<File> {
        File::open(&*self.lock())
    }

    /// The file is still the one that has the name.
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

    /// What was written under another name takes the place of the trace. Who has the old file open keeps it.
    pub(crate) fn replace(&self, by: &Path) -> io::Result<()> {
        fs::rename(by, &*self.lock())
    }
}
