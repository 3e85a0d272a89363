//! Puts a complete file under its name, at once and never over another one.
//!
//! Must hold: a name ends in `.parquet` or `.json` only when its content is complete and on disk. Nothing is renamed to
//! another folder, and no file is appended to. On a file system with neither hard links nor an exclusive rename (a mounted
//! object store), the object is created under its final name. A writer that is killed there can leave a cut object, so a
//! writer that finds the name taken replaces an object that is not whole, and readers of the manifest take no cut one
//! (docs/decisions/0120-a-cut-object-does-not-count.md).
use anyhow::Context;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
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
    pub fn create_part(name: &Path) -> anyhow::Result<(Self, File)> {
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

    /// Publishes what was written. `is_whole` says whether an object that has the name already is complete.
    pub fn publish(self, file: &File, is_whole: impl Fn(&Path) -> bool) -> anyhow::Result<Published> {
        self.publish_by(file, &[Self::link, Self::rename, Self::create], is_whole)
    }

    /// Publishes in the first way that the file system knows.
    fn publish_by(&self, file: &File, ways: &[Way], is_whole: impl Fn(&Path) -> bool) -> anyhow::Result<Published> {
        let publish = || -> io::Result<Published> {
            file.sync_all()?;
            if self.first_of(ways)? == Published::New {
                return Ok(Published::New);
            }
            if is_whole(&self.name) {
                return Ok(Published::Existed);
            }
            fs::remove_file(&self.name)?;
            self.first_of(ways)
        };
        publish().with_context(|| format!("{} cannot be written", self.name.display()))
    }

    fn first_of(&self, ways: &[Way]) -> io::Result<Published> {
        let mut result = Err(io::Error::from(ErrorKind::Unsupported));
        for way in ways {
            result = match way(self) {
                Ok(()) => return Ok(Published::New),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Published::Existed),
                Err(error) => Err(error),
            };
        }
        result
    }

    fn link(&self) -> io::Result<()> {
        fs::hard_link(&self.part, &self.name)
    }

    fn rename(&self) -> io::Result<()> {
        Ok(renameat_with(CWD, &self.part, CWD, &self.name, RenameFlags::NOREPLACE)?)
    }

    /// Most objects are smaller than `AT_ONCE`, so they are written by one call, which a signal does not cut on most mounts.
    fn create(&self) -> io::Result<()> {
        const AT_ONCE: usize = 1 << 20;
        let mut part = File::open(&self.part)?;
        let mut out = OpenOptions::new().write(true).create_new(true).open(&self.name)?;
        let mut copy = || -> io::Result<()> {
            let mut buffer = Vec::with_capacity(AT_ONCE);
            while Read::take(&mut part, AT_ONCE as u64).read_to_end(&mut buffer)? > 0 {
                out.write_all(&buffer)?;
                buffer.clear();
            }
            out.sync_all()
        };
        // On a full disk, for example.
        copy().inspect_err(|_| drop(fs::remove_file(&self.name)))
    }
}

/// A way to give a file its name. Fails with `AlreadyExists` if the name is taken.
type Way = fn(&Unfinished) -> io::Result<()>;

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If this fails, `heaptrack dataset compact` removes the file later.
        let _ = fs::remove_file(&self.part);
    }
}

/// Publishes bytes.
pub fn publish(name: &Path, bytes: &[u8], is_whole: impl Fn(&Path) -> bool) -> anyhow::Result<Published> {
    let (unfinished, mut file) = Unfinished::create_part(name)?;
    file.write_all(bytes).with_context(|| format!("{} cannot be written", name.display()))?;
    unfinished.publish(&file, is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Folder(std::env::temp_dir().join(format!("heaptrack-publish-{name}.{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const WAYS: [Way; 3] = [Unfinished::link, Unfinished::rename, Unfinished::create];

    fn by(way: Way, name: &Path, bytes: &[u8]) -> anyhow::Result<Published> {
        let (unfinished, mut file) = Unfinished::create_part(name)?;
        file.write_all(bytes)?;
        let is_whole = |path: &Path| fs::read(path).unwrap().ends_with(b".");
        unfinished.publish_by(&file, &[|_| Err(ErrorKind::PermissionDenied.into()), way], is_whole)
    }

    /// In every way, also for an object that takes several writes.
    #[test]
    fn a_name_is_given_once_and_leaves_nothing_beside_it() {
        let folder = Folder::new("once");
        let long = [vec![7; 3_000_000], vec![b'.']].concat();
        for (at, way) in WAYS.into_iter().enumerate() {
            let name = folder.0.join(format!("deep/{at}.json"));
            assert_eq!(by(way, &name, &long).unwrap(), Published::New);
            assert_eq!(by(way, &name, b"second.").unwrap(), Published::Existed);
            assert!(fs::read(&name).unwrap() == long);
            assert_eq!(fs::read_dir(folder.0.join("deep")).unwrap().count(), at + 1);
        }
    }

    /// What a writer left behind that was killed while it created the object.
    #[test]
    fn a_cut_object_is_replaced() {
        let folder = Folder::new("cut");
        for (at, way) in WAYS.into_iter().enumerate() {
            let name = folder.0.join(format!("{at}.json"));
            assert_eq!(by(way, &name, b"whole.").unwrap(), Published::New);
            fs::write(&name, b"who").unwrap();
            assert_eq!(by(way, &name, b"whole.").unwrap(), Published::New);
            assert_eq!(fs::read(&name).unwrap(), b"whole.");
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 3);
    }

    /// If no way works, the error names the object, and nothing has its name.
    #[test]
    fn a_failure_leaves_nothing() {
        let folder = Folder::new("failure");
        let name = folder.0.join("x.json");
        let (unfinished, file) = Unfinished::create_part(&name).unwrap();
        let error = unfinished.publish_by(&file, &[|_| Err(ErrorKind::StorageFull.into())], |_| true).unwrap_err();
        assert!(format!("{error:#}").contains("x.json cannot be written: "), "{error:#}");
        drop(unfinished);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }
}
