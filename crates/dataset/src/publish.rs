//! Puts a complete file under its name, at once and never over another one.
//!
//! Must hold: a name ends in `.parquet` or `.json` only when its content is complete and on disk. Nothing is renamed to
//! another folder, and no file is appended to. A file system without hard links (a mounted object store) creates the
//! object under its final name; such a mount shows an object only when it is closed.
use anyhow::Context;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the name of an unfinished file ends.
pub const UNFINISHED: &str = ".part";

/// A file that is being written, beside the name that it will have. It is removed if it is not published.
pub struct Unfinished {
    part: PathBuf,
    name: PathBuf,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    New,
    /// Another writer was first. Its file stays.
    Existed,
}

impl Unfinished {
    /// Creates the folder if it is missing.
    pub fn create(name: &Path) -> anyhow::Result<(Self, File)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let folder = name.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let unique = format!("{host}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file_name = name.file_name().unwrap_or_default().to_string_lossy();
        let part = folder.join(format!(".{file_name}.{unique}{UNFINISHED}"));
        // One that a killed process of the same number left behind is replaced.
        let mut options = OpenOptions::new();
        let file = options.write(true).read(true).create(true).truncate(true).open(&part);
        let file = file.with_context(|| format!("{} cannot be written", part.display()))?;
        Ok((Unfinished { part, name: name.to_owned() }, file))
    }

    /// Publishes what was written.
    pub fn publish(self, file: &File) -> anyhow::Result<Published> {
        let publish = || -> io::Result<Published> {
            file.sync_all()?;
            match fs::hard_link(&self.part, &self.name) {
                Ok(()) => Ok(Published::New),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Published::Existed),
                Err(_) => self.copy(),
            }
        };
        publish().with_context(|| format!("{} cannot be written", self.name.display()))
    }

    /// For file systems without hard links.
    fn copy(&self) -> io::Result<Published> {
        let mut out = match OpenOptions::new().write(true).create_new(true).open(&self.name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Published::Existed),
            out => out?,
        };
        io::copy(&mut File::open(&self.part)?, &mut out)?;
        out.sync_all()?;
        Ok(Published::New)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If this fails, `heaptrack dataset compact` removes the file later.
        let _ = fs::remove_file(&self.part);
    }
}

/// Publishes bytes.
pub fn publish(name: &Path, bytes: &[u8]) -> anyhow::Result<Published> {
    let (unfinished, mut file) = Unfinished::create(name)?;
    io::Write::write_all(&mut file, bytes).with_context(|| format!("{} cannot be written", name.display()))?;
    unfinished.publish(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once_and_leaves_nothing_beside_it() {
        let folder = std::env::temp_dir().join(format!("heaptrack-publish.{}", std::process::id()));
        let name = folder.join("deep/x.json");
        assert_eq!(publish(&name, b"first").unwrap(), Published::New);
        assert_eq!(publish(&name, b"second").unwrap(), Published::Existed);
        assert_eq!(fs::read(&name).unwrap(), b"first");
        let (unfinished, file) = Unfinished::create(&name).unwrap();
        assert_eq!(unfinished.copy().unwrap(), Published::Existed);
        drop((unfinished, file));
        assert_eq!(fs::read_dir(folder.join("deep")).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
