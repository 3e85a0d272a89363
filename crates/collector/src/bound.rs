//! A bound on the file's size or on the age of its events: when it is nearly reached, the oldest events are folded into sums.
//!
//! ```text
//! the file grows ---- fold at ----> a thread writes a shorter one beside it, this one grows on
//!                                   done: what was written meanwhile is copied, the new one takes the old one's name
//! ```
//! Receives: the file and its bound. Must hold: no block waits for a fold unless the bound would be
//! exceeded otherwise; a complete file has the trace's name at every moment; if a fold cannot make the file small
//! enough, the trace ends as it does on a full disk.
use crate::trace_path::TracePath;
use format::{BlockKind, Error, FileWriter, HEADER_LEN, IndexEntry, RawBlock, Reader, fold};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One part in this many of the bound is reserved for the end of the file: the last blocks, the index, names.
const RESERVED: u64 = 8;

/// The path of a trace, and what it may hold.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The largest allowed size.
    bytes: u64,
    /// Older events than this are folded, some time later.
    keep: Option<Duration>,
    place: Arc<TracePath>,
}

impl Bound {
    /// A smaller bound leaves no room for what a fold produces.
    pub const LEAST: u64 = 1_000_000;

    /// Events can be this much older, as a part of `keep`, before they are folded, because a fold writes the whole file.
    const LATE: u32 = 4;

    /// `None` if everything is kept.
    pub fn new(most_bytes: Option<u64>, keep: Option<Duration>, place: Arc<TracePath>) -> Option<Self> {
        (most_bytes.is_some() || keep.is_some()).then(|| Bound { bytes: most_bytes.unwrap_or(u64::MAX), keep, place })
    }

    const fn limit(&self) -> u64 {
        self.bytes - self.bytes / RESERVED
    }
}

/// The writer's file, kept below its bound.
pub(crate) struct Bounded {
    out: FileWriter<File>,
    level: i32,
    bound: Option<Bound>,
    /// The length at which the file is folded.
    fold_at: u64,
    folding: Option<Folding>,
    /// The last fold failed. Another one is tried only when a block does not fit otherwise.
    has_failed: bool,
    /// The time of the latest cut.
    folded_until_ns: Option<u64>,
    /// No event is folded because of its age before this time.
    next_by_age_ns: u64,
}

impl Bounded {
    pub(crate) fn new(file: File, level: i32, bound: Option<Bound>) -> io::Result<Self> {
        let out = FileWriter::new(file, level)?;
        let fold_at = bound.as_ref().map_or(u64::MAX, |bound| bound.limit() / 4 * 3);
        let (folding, folded_until_ns) = (None, None);
        Ok(Bounded { out, level, bound, fold_at, folding, has_failed: false, folded_until_ns, next_by_age_ns: 0 })
    }

    pub(crate) const fn len(&self) -> u64 {
        self.out.len()
    }

    /// After an error the file ends with its last whole block.
    pub(crate) fn write(&mut self, block: &RawBlock) -> io::Result<()> {
        self.make_room(block)?;
        let whole = self.out.len();
        if let Err(error) = self.out.write(block) {
            let _ = self.out.get_ref().set_len(whole);
            return Err(error);
        }
        if self.folding.is_some() {
            return Ok(());
        }
        if self.out.len() > self.fold_at && !self.has_failed {
            self.has_failed = self.start_fold(self.cut()).is_err();
        } else if let Some(cut) = self.cut_by_age() {
            // If the fold fails, it is tried again after the same time.
            let _ = self.start_fold(cut);
        }
        Ok(())
    }

    /// Returns the offset of the cut, if there are events that are too old.
    fn cut_by_age(&mut self) -> Option<u64> {
        let keep = self.bound.as_ref()?.keep?;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let is_event = |entry: &&IndexEntry| BlockKind::from_number(entry.kind) == Some(BlockKind::Events);
        let mut latest_first = self.out.entries().iter().rev().filter(is_event);
        let now = latest_first.next()?.time_ns;
        let border = now.checked_sub(ns(keep))?;
        if now < self.next_by_age_ns.max(ns(keep + keep / Bound::LATE)) {
            return None;
        }
        self.next_by_age_ns = now.saturating_add(ns(keep / Bound::LATE));
        // The block with the event at the border is kept.
        latest_first.find(|entry| entry.time_ns <= border).map(|entry| entry.offset)
    }

    fn make_room(&mut self, block: &RawBlock) -> io::Result<()> {
        if self.folding.as_ref().is_some_and(|folding| folding.thread.is_finished()) {
            self.has_failed = self.end_fold().is_err();
        }
        if self.has_room(block)? {
            return Ok(());
        }
        if self.folding.is_none() {
            self.start_fold(self.cut())?;
        }
        self.end_fold()?;
        if self.has_room(block)? {
            return Ok(());
        }
        self.start_fold(self.out.len())?;
        self.end_fold()?;
        if self.has_room(block)? { Ok(()) } else { Err(too_small(self.bound.as_ref())) }
    }

    fn has_room(&mut self, block: &RawBlock) -> io::Result<bool> {
        let Some(limit) = self.bound.as_ref().map(Bound::limit) else { return Ok(true) };
        // The last blocks are short, and their room is reserved.
        let is_last = matches!(
            block.kind,
            BlockKind::Losses
                | BlockKind::Unseen
                | BlockKind::MapCalls
                | BlockKind::Summary
                | BlockKind::CustomSummary
                | BlockKind::MappedSummary
        );
        let raw_len = block.payload.len() as u64 + HEADER_LEN as u64;
        Ok(is_last || self.out.len() + raw_len <= limit || self.out.len() + self.out.packed_len(block)? <= limit)
    }

    fn start_fold(&mut self, cut: u64) -> io::Result<()> {
        if let Some(bound) = &self.bound {
            self.folding = Some(Folding::start(bound, cut, self.out.len(), self.level)?);
        }
        Ok(())
    }

    /// Returns the offset of the cut. At most half of the bytes of events are after it.
    fn cut(&self) -> u64 {
        let stored = |entry: &IndexEntry| entry.stored_len as u64 + HEADER_LEN as u64;
        let is_event = |entry: &&IndexEntry| {
            let kind = BlockKind::from_number(entry.kind);
            matches!(kind, Some(BlockKind::Events | BlockKind::CustomEvents))
        };
        let entries = self.out.entries();
        let half = entries.iter().filter(is_event).map(stored).sum::<u64>() / 2;
        let mut kept = 0;
        let later = entries.iter().rev().filter(is_event).take_while(|entry| {
            kept += stored(entry);
            kept <= half
        });
        later.last().map_or(self.out.len(), |entry| entry.offset)
    }

    /// Replaces the file by the result of the fold. Waits for the fold if it is still running.
    fn end_fold(&mut self) -> io::Result<()> {
        let (Some(folding), Some(bound)) = (self.folding.take(), &self.bound) else { return Ok(()) };
        let (out, until_ns) = folding.finish(bound, self.out.len())?;
        let limit = bound.limit();
        // At least half of the room that is left now must be used before the next fold.
        self.fold_at = (limit / 4 * 3).max(out.len() + limit.saturating_sub(out.len()) / 2);
        self.folded_until_ns = until_ns.or(self.folded_until_ns);
        self.out = out;
        Ok(())
    }

    /// Stops the fold, if one is running. The file keeps what was written so far.
    pub(crate) fn abandon(&mut self) {
        if let Some(folding) = self.folding.take() {
            folding.give_up();
        }
    }

    /// Returns the file's length and the time of the latest cut.
    pub(crate) fn finish(mut self) -> io::Result<(u64, Option<u64>)> {
        self.abandon();
        let whole = self.out.len();
        let file = self.out.get_ref().try_clone()?;
        match self.out.finish() {
            Ok(file) => Ok((file.metadata()?.len(), self.folded_until_ns)),
            Err(error) => {
                let _ = file.set_len(whole);
                Err(error)
            }
        }
    }
}

fn too_small(bound: Option<&Bound>) -> io::Error {
    let bytes = bound.map_or(0, |bound| bound.bytes);
    io::Error::other(format!(
        "the live blocks, their stacks and the names of these do not fit into the {bytes} bytes of --max-size"
    ))
}

/// A fold that is running: its thread writes a shorter file beside the trace.
struct Folding {
    thread: JoinHandle<Result<Shorter, Error>>,
    /// The offset in the trace up to which the fold reads. `finish` copies the blocks after it.
    end: u64,
    stop: Arc<AtomicBool>,
}

/// The old file. Reading it fails once `stop` is set.
struct Old {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Old {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Acquire) {
            return Err(io::Error::other("the recording is over"));
        }
        self.file.read(out)
    }
}

struct Shorter {
    out: FileWriter<File>,
    until_ns: Option<u64>,
    /// The file's own name, until it takes the name of the trace.
    part: Part,
}

/// The path of the shorter file. Dropping a `Part` removes the file. When the file has become the trace, `finish`
/// therefore forgets the `Part` instead.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Folding {
    fn start(bound: &Bound, cut: u64, end: u64, level: i32) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let source = Old { file: bound.place.open()?, stop: Arc::clone(&stop) };
        let trace = bound.place.path();
        let folder = trace.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The file is locked from here on, as every trace is while it is written.
        let (path, file) = crate::part::create(folder)?;
        let part = Part(path);
        let work = move || shorten(source, cut, end, file, part, level);
        let thread = std::thread::Builder::new().name("heaptrack-fold".into()).spawn(work)?;
        Ok(Folding { thread, end, stop })
    }

    /// Stops a fold whose result is not needed any more.
    fn give_up(self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.join());
    }

    /// Makes the shorter file the trace and returns it. `length` is the length of the old file.
    fn finish(self, bound: &Bound, length: u64) -> io::Result<(FileWriter<File>, Option<u64>)> {
        let joined = self.thread.join().map_err(|_| io::Error::other("the folding thread failed"))?;
        let Shorter { mut out, until_ns, part } = joined.map_err(io_error)?;
        let mut source = Reader::new(bound.place.open()?).map_err(io_error)?;
        source.set_all_domains();
        source.seek(self.end).map_err(io_error)?;
        while source.offset() < length {
            let Some(block) = source.next_block().map_err(io_error)? else { break };
            out.write(block)?;
        }
        bound.place.replace(&part.0)?;
        std::mem::forget(part);
        Ok((out, until_ns))
    }
}

fn shorten(source: Old, cut: u64, end: u64, file: File, part: Part, level: i32) -> Result<Shorter, Error> {
    let mut out = FileWriter::new(file, level)?;
    let until_ns = fold(&mut Reader::new(source)?, cut, end, &mut out)?;
    Ok(Shorter { out, until_ns, part })
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
