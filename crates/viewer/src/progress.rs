//! Bytes that remember how far they were read.
use heaptrack_trace::ReadAt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Progress {
    bytes: Arc<dyn ReadAt>,
    highest: AtomicU64,
}

impl Progress {
    pub(crate) fn new(bytes: Arc<dyn ReadAt>) -> Self {
        Progress { bytes, highest: AtomicU64::new(0) }
    }

    pub(crate) fn restart(&self) {
        self.highest.store(0, Ordering::Relaxed);
    }

    /// The share of the bytes before the highest position that was read, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let length = self.bytes.length().unwrap_or(0).max(1);
        (self.highest.load(Ordering::Relaxed) as f64 / length as f64).min(1.0)
    }
}

impl ReadAt for Progress {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let count = self.bytes.read_at(out, at)?;
        self.highest.fetch_max(at.saturating_add(count as u64), Ordering::Relaxed);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        self.bytes.length()
    }
}
