//! Bytes of one trace with many readers, each of which has its own position.
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

/// Bytes that can be read at any position: an open file, or a file that a browser hands over (crates/viewer).
pub trait ReadAt: Send + Sync {
    /// Reads at most as many bytes as `out` has, and returns how many were read: 0 at the end.
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize>;
    /// The number of bytes that there are now.
    fn length(&self) -> io::Result<u64>;
}

#[cfg(unix)]
impl ReadAt for std::fs::File {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, out, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

pub(crate) struct SharedBytes {
    bytes: Arc<dyn ReadAt>,
    at: u64,
}

impl SharedBytes {
    /// A reader at the beginning.
    pub(crate) const fn new(bytes: Arc<dyn ReadAt>) -> Self {
        SharedBytes { bytes, at: 0 }
    }
}

impl Read for SharedBytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for SharedBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.bytes.length()?.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
