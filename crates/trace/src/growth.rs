//! Follows a file that a recording still writes to.
//!
//! Receives: an open trace. Returns: what has happened to its file since the last look. Must hold: a recording is only
//! believed to be over if its file is not locked, and has an end or has not grown for [`QUIET`].
use crate::shared_bytes::SharedBytes;
use format::Reader;
use std::fs::{File, Metadata};
use std::path::Path;
use std::time::{Duration, Instant};

/// A file without a trailer that has not grown for this long counts as no longer being written.
const QUIET: Duration = Duration::from_secs(10);

/// What a look at a growing file found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// There is nothing new.
    Same,
    /// New blocks were counted, so all answers may have changed.
    Grew,
    /// A recording with a limited size has put a shorter file in the place of this one. Open the path again.
    Replaced,
}

/// The end of a growing file.
pub(crate) struct Tail {
    pub(crate) reader: Reader<SharedBytes>,
    pub(crate) quiet_since: Instant,
}

impl Tail {
    /// Returns `None` if nothing more is expected to be written to the file.
    pub(crate) fn new(reader: Reader<SharedBytes>, file: &File, opened: &Metadata) -> Option<Self> {
        let is_live = is_locked(file) || !reader.finished() && is_recent(opened);
        is_live.then(|| Tail { reader, quiet_since: Instant::now() })
    }

    /// `was_locked` must have been found out before the last read, because names may still be written after the end of
    /// the trace.
    pub(crate) fn is_over(&self, was_locked: bool) -> bool {
        !was_locked && (self.reader.finished() || self.quiet_since.elapsed() > QUIET)
    }
}

/// True while a recorder holds its lock on the file, or if the lock cannot be tested.
pub(crate) fn is_locked(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(_) => true,
    }
}

/// True if the path now leads to another file.
#[cfg(unix)]
pub(crate) fn is_replaced(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let there = std::fs::metadata(path).map(identity);
    there.is_ok_and(|there| file.metadata().is_ok_and(|here| identity(here) != there))
}

/// Only Unix can tell, and only there a file is followed.
#[cfg(not(unix))]
pub(crate) fn is_replaced(_path: &Path, _file: &File) -> bool {
    false
}

fn is_recent(metadata: &Metadata) -> bool {
    metadata.modified().ok().and_then(|time| time.elapsed().ok()).is_none_or(|age| age < QUIET)
}
