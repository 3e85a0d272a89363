//! The folders whose files may be read.
//!
//! Receives: paths that an agent wrote. Returns: open files. Must hold: a file outside of the folders is never opened, even
//! if a symbolic link is put into the way between the check and the opening. A path outside gets the same answer whether
//! the file exists or not.
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

#[derive(Debug)]
pub struct Folders(Vec<Folder>);

#[derive(Debug)]
struct Folder {
    /// Without symbolic links.
    path: PathBuf,
    open: OwnedFd,
}

/// An open file below one of the folders.
#[derive(Debug)]
pub struct Found {
    pub file: File,
    /// Without symbolic links.
    pub path: PathBuf,
}

const OUTSIDE: &str = "is not below the folders that this server may read";

impl Folders {
    pub fn new(folders: &[PathBuf]) -> io::Result<Self> {
        let folder = |folder: &PathBuf| {
            let path = folder.canonicalize()?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(Folder { open: rustix::fs::open(&path, flags, Mode::empty())?, path })
        };
        Ok(Folders(folders.iter().map(folder).collect::<io::Result<_>>()?))
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|folder| folder.path.as_path())
    }

    /// Opens a regular file. A relative path is looked for in each folder. The error is a sentence.
    pub fn open(&self, asked: &str) -> Result<Found, String> {
        let wrong = |reason: &str| format!("`{}` {reason}", crate::rows::shortened(asked));
        let written = Path::new(asked);
        if asked.is_empty() || written.components().any(|part| part == Component::ParentDir) {
            return Err(wrong(OUTSIDE));
        }
        let mut reason = if written.is_absolute() { OUTSIDE } else { "is no file in these folders" };
        for folder in &self.0 {
            let whole = folder.path.join(written);
            if !whole.starts_with(&folder.path) {
                continue;
            }
            let Ok(path) = whole.canonicalize() else {
                reason = "is no file in these folders";
                continue;
            };
            // The path may lead into another one of the folders.
            let Some(home) = self.0.iter().find(|home| path.starts_with(&home.path)) else {
                reason = OUTSIDE;
                continue;
            };
            return match home.open_below(&path) {
                Ok(file) => Ok(Found { file, path }),
                Err(error) => Err(wrong(&plain(&error))),
            };
        }
        Err(wrong(reason))
    }

    /// A path for a new file, which must not exist yet. Its folder must exist. The error is a sentence.
    pub fn new_file(&self, asked: &str) -> Result<PathBuf, String> {
        let wrong = |reason: &str| format!("`{}` {reason}", crate::rows::shortened(asked));
        let written = Path::new(asked);
        let (Some(first), Some(name)) = (self.0.first(), written.file_name()) else { return Err(wrong(OUTSIDE)) };
        if written.components().any(|part| part == Component::ParentDir) {
            return Err(wrong(OUTSIDE));
        }
        let whole = first.path.join(written);
        let parent = whole.parent().and_then(|parent| parent.canonicalize().ok());
        let parent = parent.filter(|parent| self.paths().any(|folder| parent.starts_with(folder)));
        let path = parent.ok_or_else(|| wrong(OUTSIDE))?.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(wrong("exists already"));
        }
        Ok(path)
    }
}

impl Folder {
    /// Walks from the open folder to the file, one name after the other, and follows no link.
    fn open_below(&self, path: &Path) -> io::Result<File> {
        let below = path.strip_prefix(&self.path).map_err(|_| io::ErrorKind::NotFound)?;
        let mut names: Vec<&std::ffi::OsStr> = below.iter().collect();
        let Some(last) = names.pop() else { return Err(io::ErrorKind::IsADirectory.into()) };
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::io::fcntl_dupfd_cloexec(&self.open, 0)?;
        for name in names {
            at = rustix::fs::openat(&at, name, step, Mode::empty())?;
        }
        // Without NONBLOCK, opening a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&at, last, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
    }
}

fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    format!("cannot be opened: {}", text.split(" (os error").next().unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_below_the_folders_are_opened() {
        let top = std::env::temp_dir().join(format!("heaptrack-mcp-folders.{}", std::process::id()));
        let (inside, outside) = (top.join("in"), top.join("out"));
        std::fs::create_dir_all(inside.join("deep")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(inside.join("deep/a"), "a").unwrap();
        std::fs::write(outside.join("secret"), "s").unwrap();
        symlink(outside.join("secret"), inside.join("link")).unwrap();
        symlink(&outside, inside.join("linked")).unwrap();
        symlink("deep/a", inside.join("good")).unwrap();
        symlink(inside.join("deep"), inside.join("whole")).unwrap();
        let folders = Folders::new(std::slice::from_ref(&inside)).unwrap();
        let text = |path: &str| folders.open(path).map(|found| found.path);
        let a = inside.canonicalize().unwrap().join("deep/a");
        for good in ["deep/a", "./deep/a", "good", "whole/a", a.to_str().unwrap()] {
            assert_eq!(text(good).as_ref(), Ok(&a), "{good}");
        }
        let secret = outside.join("secret");
        let nothing = outside.join("nothing");
        let outside_paths =
            [secret.to_str().unwrap(), nothing.to_str().unwrap(), "../out/secret", "link", "linked/secret", ""];
        for bad in outside_paths {
            let error = text(bad).unwrap_err();
            assert!(error.ends_with(OUTSIDE), "{bad}: {error}");
        }
        for bad in ["deep", ".", "deep/b", "a\0b"] {
            assert!(text(bad).is_err(), "{bad:?}");
        }
        assert!(folders.new_file("deep/new").is_ok());
        for bad in ["deep/a", "../new", "linked/new", "link", "none/new", "/tmp/new", ""] {
            assert!(folders.new_file(bad).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(top).unwrap();
    }
}
