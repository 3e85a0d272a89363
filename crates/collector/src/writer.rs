//! The thread that compresses and writes, so that the collecting thread never waits for a disk.
//!
//! Receives: raw blocks in order. Returns: the trace file. Must hold: `put` never blocks; after a write error (disk
//! full) the file is truncated to its last whole block, so that it opens, and everything later is dropped and counted.
use crate::bound::{Bound, Bounded};
use crate::error::SetupError;
use format::RawBlock;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The most raw bytes that may wait here. Beyond that, the merge pauses and words wait in their queues.
const BOUND: usize = 12 << 20;
const LEVEL: i32 = 1;

/// A block, and the number of events up to its end.
struct Job {
    block: RawBlock,
    events: u64,
}

#[derive(Debug, Default)]
struct Progress {
    waiting_bytes: AtomicUsize,
    file_bytes: AtomicU64,
    /// The number of events up to the end of the last block in the file.
    written_events: AtomicU64,
}

pub struct Writer {
    jobs: Sender<Job>,
    progress: Arc<Progress>,
    /// `None` if there is no file.
    thread: Option<JoinHandle<io::Result<Option<u64>>>>,
}

/// The result of the writing.
#[derive(Debug)]
pub struct Written {
    pub file_bytes: u64,
    pub events: u64,
    /// Events before this time are in the file only as sums.
    pub folded_until_ns: Option<u64>,
    /// The reason why the file ends early.
    pub error: Option<io::Error>,
}

impl Writer {
    pub fn start(file: File, bound: Option<Bound>) -> Result<Self, SetupError> {
        let (jobs, inbox) = channel();
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let out = Bounded::new(file, LEVEL, bound).map_err(SetupError::Output)?;
        progress.file_bytes.store(out.len(), Ordering::Relaxed);
        let work = move || write_all(out, &inbox, &shared);
        let thread =
            std::thread::Builder::new().name("heaptrack-write".into()).spawn(work).map_err(SetupError::Thread)?;
        Ok(Writer { jobs, progress, thread: Some(thread) })
    }

    /// Makes a writer that drops everything.
    pub fn nowhere() -> Self {
        Writer { jobs: channel().0, progress: Arc::default(), thread: None }
    }

    pub fn put(&self, block: RawBlock, events: u64) {
        if self.thread.is_none() {
            return;
        }
        self.progress.waiting_bytes.fetch_add(block.payload.len(), Ordering::Relaxed);
        // The thread has ended only if it could not continue; `finish` returns the reason.
        let _ = self.jobs.send(Job { block, events });
    }

    /// Returns false if the disk is too slow and no more blocks should be put.
    pub fn has_room(&self) -> bool {
        self.progress.waiting_bytes.load(Ordering::Relaxed) < BOUND
    }

    pub fn file_bytes(&self) -> u64 {
        self.progress.file_bytes.load(Ordering::Relaxed)
    }

    /// Writes the index and the trailer, and waits until everything is in the file.
    pub fn finish(self) -> Written {
        drop(self.jobs);
        let failed = |_| Err(io::Error::other("the writing thread failed"));
        let ended = self.thread.map_or(Ok(None), |thread| thread.join().unwrap_or_else(failed));
        let (folded_until_ns, error) = match ended {
            Ok(folded) => (folded, None),
            Err(error) => (None, Some(error)),
        };
        Written {
            file_bytes: self.progress.file_bytes.load(Ordering::Relaxed),
            events: self.progress.written_events.load(Ordering::Relaxed),
            folded_until_ns,
            error,
        }
    }
}

/// Writes all blocks until the sender is dropped. Returns the time up to which events were folded, if they were.
fn write_all(mut out: Bounded, inbox: &Receiver<Job>, progress: &Progress) -> io::Result<Option<u64>> {
    let mut outcome = Ok(());
    for job in inbox {
        if outcome.is_ok() {
            outcome = out.write(&job.block);
            progress.file_bytes.store(out.len(), Ordering::Relaxed);
            if outcome.is_ok() {
                progress.written_events.store(job.events, Ordering::Relaxed);
            }
        }
        progress.waiting_bytes.fetch_sub(job.block.payload.len(), Ordering::Relaxed);
    }
    if let Err(error) = outcome {
        out.abandon();
        return Err(error);
    }
    let (file_bytes, folded) = out.finish()?;
    progress.file_bytes.store(file_bytes, Ordering::Relaxed);
    Ok(folded)
}
