//! Merges the traces of several processes into one.
//!
//! Receives: traces of ours, each with the time of day at which it began. Returns: a trace that begins when the first
//! of them began and has malloc's events of all, in the order of time. Must hold: a free still frees the same block;
//! modules, stacks, allocation classes and threads get new numbers, so those of different processes are never confused;
//! costs of a stack that several processes share (the same file, the same offsets) still add up, because `analysis`
//! recognises equal modules by path and build-id; a process that has ended holds no memory any more, but its leaks
//! count as leaked; each trace is a process of the merged one; memory is bounded by live blocks, definitions and memory samples, not by events.
use crate::merge::stream::Stream;
use crate::tally::Tally;
use crate::{
    AllocClassEncoder, Counting, Error, EventEncoder, FileWriter, Freed, HeapAtAttach, Losses, Module, Processes,
    RawBlock, RssSample, Session, Source, StackEncoder, Summary, Suppressions, Thread, Unseen, VERSION, Waits,
};
use std::io::{Read, Write};

mod stream;

/// A block of events is written at this many raw bytes.
const FULL: usize = 512 << 10;
const SAMPLES: usize = 1 << 16;

#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error("{1}")]
    Source(usize, #[source] Error),
    #[error("its first block is missing or damaged")]
    NoSession(usize),
    #[error("it is a file of KDE's heaptrack, which does not say when it began")]
    Kde(usize),
    #[error("its blocks were sampled, and a merged trace has one rate for all of them")]
    Sampled(usize),
    #[error("cannot merge these traces: together they have more modules than a trace can hold")]
    Modules,
    #[error("writing failed: {0}")]
    Write(#[from] std::io::Error),
}

impl MergeError {
    /// The index of the trace that caused the error, in the order of the arguments. `None` if it is not about one
    /// trace.
    pub const fn source_number(&self) -> Option<usize> {
        match self {
            MergeError::Source(number, _)
            | MergeError::NoSession(number)
            | MergeError::Kde(number)
            | MergeError::Sampled(number) => Some(*number),
            MergeError::Modules | MergeError::Write(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Merged {
    pub summary: Summary,
    /// One of the traces has only sums before this time (`--max-size`) while other processes were running. The common
    /// peak before it may have been higher than reported.
    pub folded_until_ns: Option<u64>,
    /// A trace has parts of the resident memory, or mappings of the program. Both are about the addresses of one process, so they are not
    /// in the merged trace.
    pub has_memory: bool,
}

/// Writes the merged trace. The caller must finish `out`.
pub fn merge<R: Read, W: Write>(
    sources: Vec<Source<R>>,
    tool: &str,
    out: &mut FileWriter<W>,
) -> Result<Merged, MergeError> {
    let mut streams = Vec::with_capacity(sources.len());
    for (number, source) in sources.into_iter().enumerate() {
        streams.push(Stream::new(number, source)?);
    }
    let started = streams.iter().map(|stream| stream.session.started_unix_ns).min().unwrap_or(0);
    for stream in &mut streams {
        stream.begin(started);
    }
    let mut merger = Merger::new(out, streams.len() == 1);
    merger.write(&session(&streams, started, tool).to_block())?;
    loop {
        // At equal times, the order of the arguments decides.
        let next = streams.iter_mut().filter(|stream| !stream.is_over).min_by_key(|stream| stream.now_ns);
        let Some(stream) = next else { break };
        if !stream.is_ending {
            stream.advance(&mut merger)?;
            continue;
        }
        // All events of the other traces come later. The blocks of the last process are not freed: they are the merged
        // trace's leaks.
        let number = stream.number;
        let is_last = streams.iter().all(|stream| stream.is_over || stream.number == number);
        if let Some(stream) = streams.get_mut(number) {
            stream.end(is_last, &mut merger)?;
        }
    }
    merger.end(&streams)
}

fn session<R: Read>(streams: &[Stream<R>], started: u64, tool: &str) -> Session {
    let mut merged = streams.first().map(|stream| stream.session.clone()).unwrap_or_default();
    for stream in streams.iter().skip(1) {
        merged.command.push("+".into());
        merged.command.extend(stream.session.command.iter().cloned());
    }
    // Traces that were made from KDE's files are refused, so all traces are counted by our rule.
    Session { version: VERSION, started_unix_ns: started, tool: tool.to_owned(), counting: Counting::Thread, ..merged }
}

/// A live block in the merged trace.
#[derive(Clone, Copy)]
pub(crate) struct MergedBlock {
    sequence: u64,
    alloc_class: u32,
    size: u64,
}

/// The output, and the numbers that were assigned.
pub(crate) struct Merger<'w, W: Write> {
    out: &'w mut FileWriter<W>,
    is_alone: bool,
    events: EventEncoder,
    stacks: StackEncoder,
    alloc_classes: AllocClassEncoder,
    modules: u16,
    threads: u32,
    processes: u32,
    /// Events in blocks that were written, and (below) events that are known only as sums.
    written: u64,
    folded: u64,
    /// Processes and threads that must be written before the next events.
    news: Processes,
    tally: Tally,
    suppressions: String,
    /// `(time, stream, resident, overhead)`.
    samples: Vec<(u64, usize, u64, u64)>,
    heap_at_attach: Option<HeapAtAttach>,
    waits: Waits,
}

impl<'w, W: Write> Merger<'w, W> {
    fn new(out: &'w mut FileWriter<W>, is_alone: bool) -> Self {
        Merger {
            out,
            is_alone,
            events: EventEncoder::new(),
            stacks: StackEncoder::new(),
            alloc_classes: AllocClassEncoder::new(),
            modules: 0,
            threads: 0,
            processes: 0,
            written: 0,
            folded: 0,
            news: Processes::default(),
            tally: Tally::default(),
            suppressions: String::new(),
            samples: Vec::new(),
            heap_at_attach: None,
            waits: Waits::default(),
        }
    }

    fn write(&mut self, block: &RawBlock) -> Result<(), MergeError> {
        self.out.write(block)?;
        Ok(())
    }

    /// Returns the number of a new module instance.
    fn instance(&mut self) -> Result<u16, MergeError> {
        self.modules =
            self.modules.checked_add(1).filter(|number| *number < u16::MAX - 1).ok_or(MergeError::Modules)?;
        Ok(self.modules)
    }

    fn thread(&mut self) -> u32 {
        self.threads += 1;
        self.threads - 1
    }

    /// Allocations and frees of all kinds so far, with those that are known only as sums.
    const fn event_count(&self) -> u64 {
        self.folded + self.written + self.events.events()
    }

    fn process(&mut self) -> u32 {
        self.processes += 1;
        self.processes - 1
    }

    fn add_modules(&mut self, modules: &[Module]) -> Result<(), MergeError> {
        if modules.is_empty() { Ok(()) } else { self.write(&Module::to_block(modules)) }
    }

    fn add_threads(&mut self, threads: &[Thread]) -> Result<(), MergeError> {
        self.write(&Thread::to_block(threads))
    }

    /// Adds up the heaps that programs had when they were attached to.
    fn add_heap(&mut self, heap: HeapAtAttach) {
        let all = self.heap_at_attach.get_or_insert_default();
        all.size_bytes = all.size_bytes.saturating_add(heap.size_bytes);
        all.rss_bytes = all.rss_bytes.saturating_add(heap.rss_bytes);
    }

    fn add_waits(&mut self, waits: Waits) {
        self.waits.waited_ns = self.waits.waited_ns.saturating_add(waits.waited_ns);
    }

    fn add_suppressions(&mut self, text: &str) -> Result<(), MergeError> {
        self.suppressions.push_str(text.trim_end());
        self.suppressions.push('\n');
        let all = Suppressions(self.suppressions.clone());
        self.write(&all.to_block())
    }

    fn alloc(&mut self, thread: u32, alloc_class: u32, size: u64, now_ns: u64) -> u64 {
        self.events.thread(thread);
        self.events.time(now_ns);
        let sequence = self.events.alloc(alloc_class);
        self.tally.alloc(thread, sequence, size, now_ns);
        sequence
    }

    fn free(&mut self, thread: u32, block: MergedBlock, how: Freed, now_ns: u64) {
        self.events.thread(thread);
        self.events.time(now_ns);
        self.events.freed_by(block.sequence, how);
        self.tally.free(thread, block.sequence, block.alloc_class, block.size, how);
    }

    fn release(&mut self, thread: u32, sequence: u64, now_ns: u64) {
        self.events.thread(thread);
        self.events.time(now_ns);
        self.events.release(sequence);
    }

    fn unknown_free(&mut self, thread: u32, now_ns: u64) {
        self.events.thread(thread);
        self.events.time(now_ns);
        self.events.unknown_free();
        self.tally.unknown_free(thread);
    }

    fn latest_gone(&mut self, thread: u32) {
        self.events.thread(thread);
        self.events.latest_gone();
        self.tally.latest_gone(thread);
    }

    fn flush(&mut self, is_end: bool) -> Result<(), MergeError> {
        if self.events.len() >= FULL || is_end && !self.events.is_empty() {
            self.written += self.events.events();
            let block = self.events.take();
            self.write_news()?;
            self.write(&block)?;
        }
        Ok(())
    }

    fn write_news(&mut self) -> Result<(), MergeError> {
        let news = std::mem::take(&mut self.news);
        if news.is_empty() { Ok(()) } else { self.write(&news.to_block()) }
    }

    fn end<R: Read>(mut self, streams: &[Stream<R>]) -> Result<Merged, MergeError> {
        self.flush(true)?;
        self.write_news()?;
        self.write_samples(streams)?;
        if let Some(heap) = self.heap_at_attach {
            self.write(&heap.to_block())?;
        }
        if self.waits != Waits::default() {
            self.write(&self.waits.to_block())?;
        }
        let folded_until_ns = folded_until(streams);
        let losses = losses(streams, folded_until_ns);
        if losses != Losses::default() {
            self.write(&losses.to_block())?;
        }
        let unseen = unseen(streams);
        if !unseen.is_empty() {
            self.write(&Unseen::to_block(&unseen))?;
        }
        let mut totals = self.tally.totals();
        totals.runtime_ns = streams.iter().map(|stream| stream.end_ns).max().unwrap_or(0);
        totals.lost_events = losses.lost_events;
        let complete = streams.iter().all(Stream::is_complete);
        let exit = streams.first().and_then(|stream| stream.summary).map(|summary| summary.exit).unwrap_or_default();
        let summary = Summary { complete, exit, totals };
        self.write(&summary.to_block())?;
        let has_memory = streams.iter().any(Stream::has_memory);
        Ok(Merged { summary, folded_until_ns, has_memory })
    }

    /// Writes the memory samples: at the time of each sample, the sum of the latest samples of all processes. Pages
    /// that processes share are counted for each of them.
    fn write_samples<R: Read>(&mut self, streams: &[Stream<R>]) -> Result<(), MergeError> {
        let mut samples = std::mem::take(&mut self.samples);
        let ended = streams.iter().filter(|stream| stream.is_gone);
        samples.extend(ended.map(|stream| (stream.end_ns, stream.number, 0, 0)));
        samples.sort_by_key(|sample| (sample.0, sample.1));
        let mut latest = vec![(0, 0); streams.len()];
        let mut summed = Vec::with_capacity(samples.len());
        for (time_ns, number, rss, overhead) in samples {
            if let Some(latest) = latest.get_mut(number) {
                *latest = (rss, overhead);
            }
            let sum =
                latest.iter().fold((0u64, 0u64), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
            summed.push(RssSample { time_ns, rss_bytes: sum.0, overhead_bytes: sum.1 });
        }
        for piece in summed.chunks(SAMPLES) {
            self.write(&RssSample::to_block(piece))?;
        }
        let totals = &mut self.tally.totals;
        // The kernel reports the highest RSS of each process, which may lie between two samples.
        let told = || streams.iter().filter_map(|stream| stream.summary).map(|summary| summary.totals);
        let highest = |sampled: fn(&RssSample) -> u64| summed.iter().map(sampled).max().unwrap_or(0);
        totals.peak_rss_bytes =
            told().map(|totals| totals.peak_rss_bytes).fold(highest(|sample| sample.rss_bytes), u64::max);
        totals.overhead_bytes =
            told().map(|totals| totals.overhead_bytes).fold(highest(|sample| sample.overhead_bytes), u64::max);
        Ok(())
    }
}

/// Returns the reasons of all processes why allocations may be missing, each reason once.
fn unseen<R: Read>(streams: &[Stream<R>]) -> Vec<Unseen> {
    let mut all: Vec<Unseen> = Vec::new();
    for one in streams.iter().flat_map(|stream| &stream.unseen) {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

/// Returns the latest time up to which a trace has only sums while another process was running.
fn folded_until<R: Read>(streams: &[Stream<R>]) -> Option<u64> {
    let is_alone = |folded: &Stream<R>, until_ns: u64| {
        let others = streams.iter().filter(|other| other.number != folded.number);
        others.into_iter().all(|other| other.begin_ns() >= until_ns || other.end_ns <= folded.begin_ns())
    };
    let folded = streams.iter().filter_map(|stream| Some((stream, stream.folded_until_ns?)));
    folded.filter(|(stream, until_ns)| !is_alone(stream, *until_ns)).map(|(_, until_ns)| until_ns).max()
}

/// Returns the note for people that before this time only the peak of each process alone is known.
fn unsure(until_ns: u64) -> String {
    let seconds = until_ns as f64 / 1e9;
    format!(
        "Of the first {seconds:.1} s some traces have only sums (--max-size, --keep-last): all processes together may have had a higher peak there."
    )
}

fn losses<R: Read>(streams: &[Stream<R>], folded_until_ns: Option<u64>) -> Losses {
    let mut all = Losses { note: folded_until_ns.map(unsure), ..Losses::default() };
    for losses in streams.iter().filter_map(|stream| stream.losses.as_ref()) {
        for (cause, count) in &losses.by_cause {
            match all.by_cause.iter_mut().find(|known| known.0 == *cause) {
                Some(known) => known.1 = known.1.saturating_add(*count),
                None => all.by_cause.push((cause.clone(), *count)),
            }
        }
        all.implied_frees = all.implied_frees.saturating_add(losses.implied_frees);
        all.lost_events = all.lost_events.saturating_add(losses.lost_events);
        let notes = [all.note.take(), losses.note.clone()];
        all.note = notes.into_iter().flatten().reduce(|all, note| format!("{all} {note}"));
    }
    all
}
