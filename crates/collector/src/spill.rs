//! Words that do not fit into memory: an unlinked temporary file beside the trace.
//!
//! Receives: runs of words. Returns: their place, and later the words. Must hold: the file has no name (on some file
//! systems it has one until it is removed at once); when all runs have been read, it is empty again.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A run of words in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    offset: u64,
    words: usize,
}

#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    file: Option<File>,
    end: u64,
    unread: usize,
    bytes: Vec<u8>,
}

impl Spill {
    pub const fn new(folder: PathBuf) -> Self {
        Spill { folder, file: None, end: 0, unread: 0, bytes: Vec::new() }
    }

    pub fn write(&mut self, words: &[u64]) -> io::Result<Run> {
        self.bytes.clear();
        self.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        if self.file.is_none() {
            self.file = Some(unlinked(&self.folder)?);
        }
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(&self.bytes, self.end)?;
        let run = Run { offset: self.end, words: words.len() };
        self.end += self.bytes.len() as u64;
        self.unread += 1;
        Ok(run)
    }

    /// Reads a run back. Each run can be read once.
    pub fn read(&mut self, run: Run) -> io::Result<Vec<u64>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; run.words * 8];
        let read = file.read_exact_at(&mut bytes, run.offset);
        self.unread = self.unread.saturating_sub(1);
        if self.unread == 0 {
            self.end = 0;
            file.set_len(0)?;
        }
        read?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

/// Opens a file without a name. The kernel removes it when we end, however we end.
fn unlinked(folder: &std::path::Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let folder = if folder.as_os_str().is_empty() { std::path::Path::new(".") } else { folder };
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(fd) => Ok(File::from(fd)),
        // Some file systems (NFS, and overlayfs in older kernels) do not support unnamed files.
        Err(_) => {
            let path = folder.join(format!(".heaptrack.{}.spill", std::process::id()));
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&path, flags, mode)?;
            std::fs::remove_file(&path)?;
            Ok(File::from(fd))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_and_the_file_empties() {
        let mut spill = Spill::new(std::env::temp_dir());
        let one = spill.write(&[1, 2, 3]).unwrap();
        let two = spill.write(&[u64::MAX]).unwrap();
        assert_eq!(spill.read(one).unwrap(), [1, 2, 3]);
        assert_eq!(spill.read(two).unwrap(), [u64::MAX]);
        assert_eq!(spill.file.as_ref().unwrap().metadata().unwrap().len(), 0);
        let three = spill.write(&[9]).unwrap();
        assert_eq!(three, Run { offset: 0, words: 1 });
        assert_eq!(spill.read(three).unwrap(), [9]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(Spill::new("/nonexistent/folder".into()).write(&[1]).is_err());
    }
}
