//! Cuts a shorter trace out of a long one.
//!
//! Receives: a trace and two points in time, A and B. Returns: a trace with all events after A, up to and including B,
//! and with one allocation for every block that was live at A: its own, with its thread, its stack and its time.
//! If a process freed such a block while others held it, that release is in it too (`process_past.rs`).
//! No other event from before A is in it. So every question about A..B has the same answer in both traces.
//!
//! ```text
//! old    +a +b -a +c    A    +d -b +e -d    B    -e ...
//! new       +b    +c    A    +d -b +e -d    B
//! ```
//! Must hold: times, threads, stacks and allocation classes keep their numbers, sequence numbers are counted anew.
//! Memory is bounded by live blocks, allocation classes and threads. Each domain is cut by a pass of its own, because it has
//! sequence numbers and allocation classes of its own.
use crate::process_past::{ProcessPast, in_order};
use crate::tally::Tally;
use crate::{
    Block, BlockKind, Domain, Error, Event, EventEncoder, Events, FileWriter, Folded, Freed, Gone, IntMap, KdeRule,
    Kept, LiveBlocks, MapCalls, MemoryParts, Process, Processes, RawBlock, RssSample, Source, Summary,
};
use std::io::{Read, Write};

/// A block of events is written at this many raw bytes.
const FULL: usize = 512 << 10;
const LOST: u64 = u64::MAX;

/// Where an event is, relative to A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Within,
    After,
}

/// An allocation before A whose block is still live.
#[derive(Clone, Copy)]
struct Born {
    alloc_class: u32,
    thread: u32,
    time_ns: u64,
}

impl Kept for Born {
    const DEAD: Born = Born { alloc_class: u32::MAX, thread: 0, time_ns: 0 };
    fn is_dead(&self) -> bool {
        self.alloc_class == u32::MAX
    }
    fn alloc_class(&self) -> u32 {
        self.alloc_class
    }
}

/// A block that is live in the new trace.
#[derive(Clone, Copy)]
struct Renumbered {
    /// Its sequence number in the new trace.
    sequence: u64,
    alloc_class: u32,
}

impl Kept for Renumbered {
    const DEAD: Renumbered = Renumbered { sequence: 0, alloc_class: u32::MAX };
    fn is_dead(&self) -> bool {
        self.alloc_class == u32::MAX
    }
    fn alloc_class(&self) -> u32 {
        self.alloc_class
    }
}

struct Trimmer<'w, W: Write> {
    /// Only the pass for malloc writes what all domains share.
    domain: Domain,
    /// Blocks of stacks that were read so far, and (below) how many of them an earlier pass has written.
    stacks_read: u64,
    stacks_written: u64,
    /// The counts of calls, which are those of the whole session.
    map_calls: Vec<MapCalls>,
    /// `None` starts with the first event.
    from_ns: Option<u64>,
    to_ns: u64,
    phase: Phase,
    out: &'w mut FileWriter<W>,
    encoder: EventEncoder,
    tally: Tally,
    /// Sizes of allocation classes.
    sizes: Vec<u64>,
    /// The live blocks before A, and (below) in the new trace, by their old sequence number.
    born: LiveBlocks<Born>,
    live: LiveBlocks<Renumbered>,
    /// Thread -> its latest allocation before A.
    latest: IntMap<u32, u64>,
    /// Thread -> the block that is its latest in the new trace but was not in the old one.
    not_latest: IntMap<u32, u64>,
    thread: u32,
    image: u32,
    now_ns: u64,
    summary: Option<Summary>,
    folded_until_ns: Option<u64>,
    processes: ProcessPast,
    /// Processes of the new trace that started before A.
    earlier: Vec<u32>,
    /// Processes of the new trace, with the number of its events before them.
    started: IntMap<u32, u64>,
    /// Processes and threads that must be written before the next events.
    news: Processes,
    /// The events of the old trace so far, and the number of its next allocation.
    events_seen: u64,
    next_sequence: u64,
    /// The events of the new trace in blocks that were written.
    written: u64,
    /// Blocks that end with their process, of a trace that was merged in the old way, and whether they are leaked.
    gone: IntMap<u64, bool>,
}

/// What a process that started before A and runs at B has in its note.
const EARLIER: &str = "It started before this part of the recording, so its peak may count blocks that it had inherited and freed before.";

/// The result of `trim`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trimmed {
    pub summary: Summary,
    /// The trace has only sums up to this time (`--max-size`), and A or B is before it. So the sums are not in the new
    /// trace.
    pub folded_until_ns: Option<u64>,
}

/// Writes the trace of `from..to`, in nanoseconds since the session's start. `from` = `None` starts with the first
/// event. The caller must finish `out`.
pub fn trim<R: Read, W: Write>(
    source: &mut Source<R>,
    from: Option<u64>,
    to: u64,
    out: &mut FileWriter<W>,
) -> Result<Trimmed, Error> {
    trim_domains(source, || Ok(None), from, to, out)
}

/// Like `trim`, and also cuts the domains besides malloc's. `again` opens the same trace once more, for each such domain.
pub fn trim_domains<R: Read, W: Write>(
    source: &mut Source<R>,
    mut again: impl FnMut() -> Result<Option<Source<R>>, Error>,
    from: Option<u64>,
    to: u64,
    out: &mut FileWriter<W>,
) -> Result<Trimmed, Error> {
    let mut malloc = trimmer(Domain::Malloc, 0, from, to, out);
    while let Some(block) = source.next_block()? {
        malloc.block(block)?;
    }
    let (trimmed, mut stacks_written) = malloc.end(source.damage_count() == 0)?;
    for domain in Domain::ALL.into_iter().filter(|domain| *domain != Domain::Malloc && source.has(*domain)) {
        let Some(mut source) = again()? else { continue };
        source.set_domain(domain);
        let mut trimmer = trimmer(domain, stacks_written, from, to, out);
        while let Some(block) = source.next_block()? {
            trimmer.block(block)?;
        }
        let (_, stacks) = trimmer.end(source.damage_count() == 0)?;
        stacks_written = stacks_written.max(stacks);
    }
    // The summary of malloc's blocks is the last one, as in a recording.
    out.write(&trimmed.summary.to_block())?;
    Ok(trimmed)
}

fn trimmer<W: Write>(
    domain: Domain,
    stacks_written: u64,
    from: Option<u64>,
    to: u64,
    out: &mut FileWriter<W>,
) -> Trimmer<'_, W> {
    Trimmer {
        domain,
        stacks_read: 0,
        stacks_written,
        map_calls: Vec::new(),
        from_ns: from,
        to_ns: to,
        phase: if from.is_some() { Phase::Before } else { Phase::Within },
        out,
        encoder: EventEncoder::new(),
        tally: Tally::default(),
        sizes: Vec::new(),
        born: LiveBlocks::default(),
        live: LiveBlocks::default(),
        latest: IntMap::default(),
        not_latest: IntMap::default(),
        thread: 0,
        image: 0,
        now_ns: 0,
        summary: None,
        folded_until_ns: None,
        processes: ProcessPast::default(),
        earlier: Vec::new(),
        started: IntMap::default(),
        news: Processes::default(),
        events_seen: 0,
        next_sequence: 0,
        written: 0,
        gone: IntMap::default(),
    }
}

impl<W: Write> Trimmer<'_, W> {
    /// Writes a block, as one of this pass's domain. What all domains share is written by malloc's pass, except for stacks that only another
    /// domain needs.
    fn write(&mut self, block: &RawBlock) -> Result<(), Error> {
        if self.domain == Domain::Malloc {
            self.out.write(block)?;
        } else if block.kind.domain().is_some() {
            self.out.write(&block.clone().of(self.domain))?;
        } else if block.kind == BlockKind::Stacks && self.stacks_read > self.stacks_written {
            self.out.write(block)?;
        }
        Ok(())
    }

    fn block(&mut self, block: &RawBlock) -> Result<(), Error> {
        // A malformed block is treated like a lost one.
        let Ok(decoded) = block.decode() else { return Ok(()) };
        match decoded {
            Block::Events(mut events) => return self.events(&mut events),
            Block::Folded(folded) => return self.folded(&folded),
            Block::Gone(gone) => self.gone(&gone),
            // The processes count malloc's events.
            Block::Processes(_) if self.domain != Domain::Malloc => (),
            Block::Processes(processes) => self.add_processes(processes),
            Block::Samples(samples) => return self.samples(&samples),
            Block::MemoryParts(parts) => return self.memory_parts(parts),
            Block::MemoryMap(map) => {
                if (self.from_ns.unwrap_or(0)..=self.to_ns).contains(&map.time_ns) {
                    self.write(block)?;
                }
            }
            Block::Summary(summary) => self.summary = Some(summary),
            Block::MapCalls(calls) => self.map_calls = calls,
            Block::Checkpoint(_) | Block::Index(_) | Block::OtherDomain(_) => (),
            Block::AllocClasses(_) | Block::Allocators(_) | Block::Stacks(_) if self.phase == Phase::After => (),
            decoded => {
                match decoded {
                    Block::Session(session) => {
                        self.tally.counting = session.counting;
                        // Encoded again, because the Session block of an old trace does not name its rule of counting.
                        self.write(&session.to_block())?;
                        return Ok(());
                    }
                    Block::AllocClasses(alloc_classes) => {
                        self.sizes.resize(alloc_classes.first as usize, LOST);
                        self.sizes.extend(alloc_classes.alloc_classes.iter().map(|alloc_class| alloc_class.size));
                    }
                    Block::Stacks(_) => self.stacks_read += 1,
                    _ => (),
                }
                self.write(block)?;
            }
        }
        Ok(())
    }

    /// Sums cannot be cut: the new trace has all of them, or none. If some of them belong to A..B, it notes the time up
    /// to which they are missing.
    fn folded(&mut self, folded: &Folded) -> Result<(), Error> {
        let until_ns = folded.until_ns;
        self.events_seen = self.events_seen.saturating_add(folded.events);
        if self.from_ns.is_some() || until_ns > self.to_ns {
            if self.from_ns.is_none_or(|from| from < until_ns) {
                self.folded_until_ns = self.folded_until_ns.max(Some(until_ns));
                self.write(&Folded { until_ns, ..Folded::default() }.to_block())?;
            }
            return Ok(());
        }
        for row in &folded.rows {
            let size = self.size(row.alloc_class).unwrap_or(0);
            self.tally.folded(row, size);
        }
        let totals = &mut self.tally.totals;
        totals.unknown_frees += folded.unknown_frees;
        totals.implied_frees += folded.implied_frees;
        self.tally.folded_peak(folded);
        self.write(&folded.to_block())?;
        Ok(())
    }

    /// Remembers blocks of a merged trace that end with their process. Their frees come next.
    fn gone(&mut self, gone: &Gone) {
        self.time(gone.at_ns);
        self.gone.extend(gone.blocks.iter().map(|block| (block.sequence, gone.is_leak)));
    }

    fn add_processes(&mut self, added: Processes) {
        if self.phase == Phase::Within {
            self.news.threads.extend(added.threads.iter().copied());
        }
        self.processes.add(added);
    }

    /// Starts the processes that start before the next event.
    fn start_processes(&mut self) {
        while let Some(index) = self.processes.start_before(self.events_seen, self.next_sequence) {
            if self.phase != Phase::Within {
                continue;
            }
            let events_before = self.written + self.encoder.events();
            self.started.insert(index, events_before);
            if let Some(process) = self.processes.entry(index) {
                self.news.processes.push(Process { events_before, end: None, ..process.clone() });
            }
        }
    }

    fn write_events(&mut self) -> Result<(), Error> {
        let news = std::mem::take(&mut self.news);
        if !news.is_empty() {
            self.write(&news.to_block())?;
        }
        if !self.encoder.is_empty() {
            self.written += self.encoder.events();
            let events = self.encoder.take();
            self.write(&events)?;
        }
        Ok(())
    }

    fn memory_parts(&mut self, mut parts: MemoryParts) -> Result<(), Error> {
        let from = self.from_ns.unwrap_or(0);
        parts.instants.retain(|instant| (from..=self.to_ns).contains(&instant.time_ns));
        if !parts.instants.is_empty() || !parts.reason.is_empty() {
            self.write(&parts.to_block())?;
        }
        Ok(())
    }

    fn samples(&mut self, samples: &[RssSample]) -> Result<(), Error> {
        let from = self.from_ns.unwrap_or(0);
        let within: Vec<RssSample> =
            samples.iter().filter(|sample| (from..=self.to_ns).contains(&sample.time_ns)).copied().collect();
        let totals = &mut self.tally.totals;
        for sample in &within {
            totals.peak_rss_bytes = totals.peak_rss_bytes.max(sample.rss_bytes);
            totals.overhead_bytes = totals.overhead_bytes.max(sample.overhead_bytes);
        }
        if !within.is_empty() {
            self.write(&RssSample::to_block(&within))?;
        }
        Ok(())
    }

    fn events(&mut self, events: &mut Events) -> Result<(), Error> {
        self.time(events.time_ns());
        if self.phase == Phase::After {
            return Ok(());
        }
        self.thread = events.thread();
        self.set_image(events.image());
        while self.phase != Phase::After {
            match events.read() {
                Ok(Some(event)) => self.event(event),
                // The rest of a malformed block is lost, as for every other reader.
                Ok(None) | Err(_) => break,
            }
            if self.encoder.len() >= FULL {
                self.write_events()?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event) {
        if !matches!(event, Event::Time(_) | Event::Thread(_) | Event::Image(_) | Event::LatestGone) {
            if let Event::Alloc { sequence, .. } = event {
                self.next_sequence = sequence;
            }
            self.start_processes();
            self.events_seen += 1;
        }
        match (event, self.phase) {
            (Event::Time(ns), _) => self.time(ns),
            (Event::Thread(thread), _) => self.thread = thread,
            (Event::Image(image), _) => self.set_image(image),
            (Event::LatestGone, Phase::Before) => drop(self.latest.remove(&self.thread)),
            (Event::LatestGone, _) => self.latest_gone(),
            (Event::Alloc { sequence, alloc_class }, Phase::Before) => {
                self.next_sequence = sequence + 1;
                self.latest.insert(self.thread, sequence);
                let born = Born { alloc_class, thread: self.thread, time_ns: self.now_ns };
                if self.size(alloc_class).is_some() {
                    self.born.insert(sequence, born);
                }
            }
            (Event::Free { sequence, .. }, Phase::Before) => {
                self.born.remove(sequence);
                self.gone.remove(&sequence);
                self.processes.end(sequence);
                if self.tally.counting.kde().is_some() {
                    self.latest.clear();
                }
            }
            (Event::Alloc { sequence, alloc_class }, _) => {
                self.next_sequence = sequence + 1;
                self.not_latest.remove(&self.thread);
                self.alloc(sequence, Born { alloc_class, thread: self.thread, time_ns: self.now_ns });
            }
            (Event::Free { sequence, how }, _) => self.free(sequence, how),
            (Event::Release { sequence }, Phase::Before) => {
                if self.born.get(sequence).is_some() {
                    let (thread, now_ns, next) = (self.thread, self.now_ns, self.next_sequence);
                    self.processes.release(sequence, thread, now_ns, next, self.events_seen - 1);
                }
            }
            (Event::Release { sequence }, _) => self.release(sequence),
            (Event::UnknownFree, Phase::Before) => {
                if self.tally.counting.kde().is_some_and(KdeRule::forgets_at_unknown_free) {
                    self.latest.clear();
                }
            }
            (Event::UnknownFree, _) => {
                self.at();
                self.encoder.unknown_free();
                self.tally.unknown_free(self.thread);
            }
        }
    }

    fn size(&self, alloc_class: u32) -> Option<u64> {
        self.sizes.get(alloc_class as usize).copied().filter(|size| *size != LOST)
    }

    fn alloc(&mut self, sequence: u64, born: Born) {
        let Some(size) = self.size(born.alloc_class) else { return };
        self.encoder.thread(born.thread);
        self.encoder.time(born.time_ns);
        let new = self.encoder.alloc(born.alloc_class);
        self.live.insert(sequence, Renumbered { sequence: new, alloc_class: born.alloc_class });
        self.tally.alloc(born.thread, new, size, born.time_ns);
    }

    fn free(&mut self, sequence: u64, how: Freed) {
        // The allocation of this block is in a lost part of the file.
        let Some(Renumbered { sequence: new, alloc_class }) = self.live.remove(sequence) else { return };
        self.at();
        // A later block of that thread was allocated and freed before A, so this one is not temporary.
        let is_not_latest = self.not_latest.get(&self.thread) == Some(&sequence);
        let how = match self.gone.remove(&sequence) {
            Some(true) => Freed::Leaked,
            Some(false) => Freed::Replaced,
            None if is_not_latest && how == Freed::Call => Freed::Realloc,
            None => how,
        };
        self.encoder.freed_by(new, how);
        let size = self.size(alloc_class).unwrap_or(0);
        self.tally.free(self.thread, new, alloc_class, size, how);
    }

    fn release(&mut self, sequence: u64) {
        let Some(Renumbered { sequence: new, .. }) = self.live.get(sequence) else { return };
        self.at();
        self.encoder.release(new);
    }

    fn latest_gone(&mut self) {
        self.at();
        self.encoder.latest_gone();
        self.tally.latest_gone(self.thread);
    }

    /// Writes the thread and time of the event that follows.
    fn at(&mut self) {
        self.encoder.thread(self.thread);
        self.encoder.time(self.now_ns);
    }

    fn time(&mut self, ns: u64) {
        let ns = ns.max(self.now_ns);
        if self.phase == Phase::Before && self.from_ns.is_some_and(|from| ns > from) {
            self.begin();
        }
        if ns > self.to_ns {
            self.phase = Phase::After;
        } else {
            self.now_ns = ns;
        }
    }

    /// Called at A: writes the allocations of all live blocks, in the old order.
    fn begin(&mut self) {
        // Processes that start before the next event start after A.
        self.phase = Phase::Within;
        let born = std::mem::take(&mut self.born);
        let mut births = Vec::new();
        born.each_from(0, |sequence, _| births.push(sequence));
        let (releases, started) = self.processes.take(&births);
        self.earlier = started.iter().map(|process| process.index).collect();
        self.started.extend(started.iter().map(|process| (process.index, process.events_before)));
        self.news.processes.extend(started.into_iter().map(|process| Process { end: None, ..process }));
        self.news.threads.extend(self.processes.threads.iter().map(|(thread, process)| (*thread, *process)));
        in_order(
            self,
            &births,
            &releases,
            |trimmer, sequence| {
                let Some(born) = born.get(sequence) else { return };
                trimmer.alloc(sequence, born);
                trimmer.not_latest.insert(born.thread, sequence);
            },
            |trimmer, release| {
                let Some(Renumbered { sequence, .. }) = trimmer.live.get(release.sequence) else { return };
                trimmer.encoder.thread(release.thread);
                trimmer.encoder.time(release.time_ns);
                trimmer.encoder.release(sequence);
            },
        );
        self.not_latest.retain(|thread, sequence| self.latest.get(thread) != Some(sequence));
    }

    /// Starts a new image, if it differs from the current one. An `exec` removed all blocks.
    fn set_image(&mut self, image: u32) {
        if image == self.image {
            return;
        }
        self.image = image;
        self.processes.end_all();
        // Blocks are live until the exec, however long before it the last event was.
        if self.phase == Phase::Within {
            self.encoder.time(self.now_ns);
        }
        self.encoder.image(image);
        self.born.clear(0);
        self.live.clear(0);
        self.latest.clear();
        self.not_latest.clear();
        self.tally.end_image();
    }

    /// Writes how the processes ended that ended up to B. Their totals are those of their whole lives.
    fn write_ends(&mut self) -> Result<(), Error> {
        let mut processes = Vec::new();
        for (index, events_before) in &self.started {
            let Some(process) = self.processes.entry(*index) else { continue };
            let end = process.end.filter(|end| end.at_ns <= self.to_ns);
            let mut note = process.note.clone();
            if end.is_none() && self.earlier.contains(index) {
                note = if note.is_empty() { EARLIER.to_owned() } else { format!("{note} {EARLIER}") };
            }
            if end.is_some() || note != process.note {
                processes.push(Process { events_before: *events_before, end, note, ..process.clone() });
            }
        }
        processes.sort_by_key(|process| process.index);
        if !processes.is_empty() {
            self.write(&Processes { processes, ..Processes::default() }.to_block())?;
        }
        Ok(())
    }

    /// Returns the result and the number of blocks of stacks that are in the new trace.
    fn end(mut self, is_sound: bool) -> Result<(Trimmed, u64), Error> {
        if self.phase == Phase::Before {
            self.begin();
        }
        self.write_events()?;
        self.write_ends()?;
        let old = self.summary.unwrap_or_default();
        let mut totals = self.tally.totals();
        totals.runtime_ns = old.totals.runtime_ns.max(self.now_ns).min(self.to_ns);
        totals.lost_events = old.totals.lost_events;
        if self.from_ns.is_none() && self.phase == Phase::Within {
            // The whole trace is kept, so the kernel's own figure is valid, which may be higher than all samples.
            totals.peak_rss_bytes = totals.peak_rss_bytes.max(old.totals.peak_rss_bytes);
            totals.overhead_bytes = totals.overhead_bytes.max(old.totals.overhead_bytes);
        }
        let summary = Summary { complete: old.complete && is_sound, exit: old.exit, totals };
        if self.domain != Domain::Malloc {
            self.write(&summary.to_block())?;
        }
        // Of a part of the session, the number of calls is not known.
        if self.from_ns.is_none() && self.to_ns == u64::MAX && !self.map_calls.is_empty() {
            let block = MapCalls::to_block(&self.map_calls);
            self.write(&block)?;
        }
        Ok((Trimmed { summary, folded_until_ns: self.folded_until_ns }, self.stacks_read))
    }
}
