//! One trace out of those of several processes.
//!
//! Given: traces of ours, each with the time of day at which it began. Gives back: a trace that began with the first of them, in which
//! the events of all stand in the order of that time. What must hold: a free frees the block that it freed; modules, stacks,
//! infos and threads have new numbers, so no two of different processes are taken for one; costs of a stack that several
//! processes share (the same file, the same offsets) still add up, because equal modules are found by path and build-id. Memory is
//! bounded by live blocks.
use crate::merge::stream::Stream;
use crate::tally::Tally;
use crate::{
    Error, EventEncoder, FileWriter, Freed, InfoEncoder, Losses, Module, RawBlock, RssSample, Session, Source,
    StackEncoder, Summary, Suppressions, Thread, Unseen, VERSION,
};
use std::io::{Read, Write};

mod stream;

/// Raw bytes of events that make a block.
const FULL: usize = 512 << 10;
const SAMPLES: usize = 1 << 16;

#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error("{1}")]
    Source(usize, #[source] Error),
    #[error("it does not begin with a session")]
    NoSession(usize),
    #[error("it is a file of KDE's heaptrack, which does not say when it began")]
    Kde(usize),
    #[error("all traces together have more modules than a trace can have")]
    Modules,
    #[error("writing failed: {0}")]
    Write(#[from] std::io::Error),
}

impl MergeError {
    /// Which of the traces it is about.
    pub const fn source_number(&self) -> Option<usize> {
        match self {
            MergeError::Source(number, _) | MergeError::NoSession(number) | MergeError::Kde(number) => Some(*number),
            MergeError::Modules | MergeError::Write(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Merged {
    pub summary: Summary,
    /// Blocks that `exec` took in one process while others went on: they are freed there, as if nobody had seen it.
    pub ended_by_exec: u64,
}

/// Writes the merged trace. `out` is to be finished by the caller.
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
    let mut merger = Merger::new(out);
    merger.write(&session(&streams, started, tool).to_block())?;
    loop {
        // Equal times: in the order in which they were given.
        let next = streams.iter_mut().filter(|stream| !stream.is_over).min_by_key(|stream| stream.now_ns);
        let Some(stream) = next else { break };
        stream.advance(&mut merger)?;
    }
    merger.end(&streams)
}

fn session<R: Read>(streams: &[Stream<R>], started: u64, tool: &str) -> Session {
    let mut merged = streams.first().map(|stream| stream.session.clone()).unwrap_or_default();
    for stream in streams.iter().skip(1) {
        merged.command.push("+".into());
        merged.command.extend(stream.session.command.iter().cloned());
    }
    Session { version: VERSION, started_unix_ns: started, tool: tool.to_owned(), ..merged }
}

/// What is written, and the numbers that were given out.
pub(crate) struct Merger<'w, W: Write> {
    out: &'w mut FileWriter<W>,
    events: EventEncoder,
    stacks: StackEncoder,
    infos: InfoEncoder,
    modules: u16,
    threads: u32,
    tally: Tally,
    suppressions: String,
    /// `(time, stream, resident, overhead)`.
    samples: Vec<(u64, usize, u64, u64)>,
    ended_by_exec: u64,
}

impl<'w, W: Write> Merger<'w, W> {
    fn new(out: &'w mut FileWriter<W>) -> Self {
        Merger {
            out,
            events: EventEncoder::new(),
            stacks: StackEncoder::new(),
            infos: InfoEncoder::new(),
            modules: 0,
            threads: 0,
            tally: Tally::default(),
            suppressions: String::new(),
            samples: Vec::new(),
            ended_by_exec: 0,
        }
    }

    fn write(&mut self, block: &RawBlock) -> Result<(), MergeError> {
        self.out.write(block)?;
        Ok(())
    }

    /// The new number of a module that was not seen before.
    fn instance(&mut self) -> Result<u16, MergeError> {
        self.modules =
            self.modules.checked_add(1).filter(|number| *number < u16::MAX - 1).ok_or(MergeError::Modules)?;
        Ok(self.modules)
    }

    fn thread(&mut self) -> u32 {
        self.threads += 1;
        self.threads - 1
    }

    fn add_modules(&mut self, modules: &[Module]) -> Result<(), MergeError> {
        if modules.is_empty() { Ok(()) } else { self.write(&Module::to_block(modules)) }
    }

    fn add_threads(&mut self, threads: &[Thread]) -> Result<(), MergeError> {
        self.write(&Thread::to_block(threads))
    }

    fn add_suppressions(&mut self, text: &str) -> Result<(), MergeError> {
        self.suppressions.push_str(text.trim_end());
        self.suppressions.push('\n');
        let all = Suppressions(self.suppressions.clone());
        self.write(&all.to_block())
    }

    fn alloc(&mut self, thread: u32, info: u32, size: u64, now_ns: u64) -> u64 {
        self.events.thread(thread);
        self.events.time(now_ns);
        let sequence = self.events.alloc(info);
        self.tally.alloc(thread, sequence, size, now_ns);
        sequence
    }

    fn free(&mut self, thread: u32, sequence: u64, size: u64, how: Freed, now_ns: u64) {
        self.events.thread(thread);
        self.events.time(now_ns);
        match how {
            Freed::Call => self.events.free(sequence),
            Freed::Realloc => self.events.free_by_realloc(sequence),
            Freed::Implied => self.events.free_implied(sequence),
        }
        self.tally.free(thread, sequence, size, how, false);
    }

    fn unknown_free(&mut self, thread: u32, now_ns: u64) {
        self.events.thread(thread);
        self.events.time(now_ns);
        self.events.unknown_free();
        self.tally.totals.unknown_frees += 1;
    }

    fn latest_gone(&mut self, thread: u32) {
        self.events.thread(thread);
        self.events.latest_gone();
        self.tally.latest_gone(thread);
    }

    fn flush(&mut self, is_end: bool) -> Result<(), MergeError> {
        if self.events.len() >= FULL || is_end && !self.events.is_empty() {
            let block = self.events.take();
            self.write(&block)?;
        }
        Ok(())
    }

    fn end<R: Read>(mut self, streams: &[Stream<R>]) -> Result<Merged, MergeError> {
        self.flush(true)?;
        self.write_samples(streams)?;
        let losses = losses(streams, self.ended_by_exec);
        if losses != Losses::default() {
            self.write(&losses.to_block())?;
        }
        let unseen = unseen(streams);
        if !unseen.is_empty() {
            self.write(&Unseen::to_block(&unseen))?;
        }
        let mut totals = self.tally.totals;
        totals.runtime_ns = streams.iter().map(|stream| stream.end_ns).max().unwrap_or(0);
        totals.lost_events = losses.lost_events;
        let complete = streams.iter().all(Stream::is_complete);
        let exit = streams.first().and_then(|stream| stream.summary).map(|summary| summary.exit).unwrap_or_default();
        let summary = Summary { complete, exit, totals };
        self.write(&summary.to_block())?;
        Ok(Merged { summary, ended_by_exec: self.ended_by_exec })
    }

    /// All processes together: the sum of what each had last. Pages that they share are counted for each.
    fn write_samples<R: Read>(&mut self, streams: &[Stream<R>]) -> Result<(), MergeError> {
        let mut samples = std::mem::take(&mut self.samples);
        samples.extend(streams.iter().map(|stream| (stream.end_ns, stream.number, 0, 0)));
        samples.sort_by_key(|sample| (sample.0, sample.1));
        let mut latest = vec![(0, 0); streams.len()];
        let mut summed = Vec::with_capacity(samples.len());
        for (time_ns, number, rss, overhead) in samples {
            if let Some(latest) = latest.get_mut(number) {
                *latest = (rss, overhead);
            }
            let sum = latest.iter().fold((0u64, 0u64), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            summed.push(RssSample { time_ns, rss_bytes: sum.0, overhead_bytes: sum.1 });
        }
        for piece in summed.chunks(SAMPLES) {
            self.write(&RssSample::to_block(piece))?;
        }
        let totals = &mut self.tally.totals;
        totals.peak_rss_bytes = summed.iter().map(|sample| sample.rss_bytes).max().unwrap_or(0);
        totals.overhead_bytes = summed.iter().map(|sample| sample.overhead_bytes).max().unwrap_or(0);
        Ok(())
    }
}

/// What could not be recorded in any of them, each reason once.
fn unseen<R: Read>(streams: &[Stream<R>]) -> Vec<Unseen> {
    let mut all: Vec<Unseen> = Vec::new();
    for one in streams.iter().flat_map(|stream| &stream.unseen) {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

fn losses<R: Read>(streams: &[Stream<R>], ended_by_exec: u64) -> Losses {
    let mut all = Losses { implied_frees: ended_by_exec, ..Losses::default() };
    for losses in streams.iter().filter_map(|stream| stream.losses.as_ref()) {
        for (cause, count) in &losses.by_cause {
            match all.by_cause.iter_mut().find(|known| known.0 == *cause) {
                Some(known) => known.1 += count,
                None => all.by_cause.push((cause.clone(), *count)),
            }
        }
        all.implied_frees += losses.implied_frees;
        all.lost_events += losses.lost_events;
        let notes = [all.note.take(), losses.note.clone()];
        all.note = notes.into_iter().flatten().reduce(|all, note| format!("{all} {note}"));
    }
    all
}
