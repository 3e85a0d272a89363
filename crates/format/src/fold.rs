//! Writes a shorter file of the same session while it is recorded: the oldest events are replaced by their sums.
//!
//! Receives: a growing trace, and an offset in it, the cut. Returns: a trace in which all blocks after the cut are
//! unchanged. Of the events before the cut it has only the sums, and the allocations of the blocks that were live at
//! the cut (`folded.rs`), with the releases of these blocks (`process_past.rs`). Of the memory samples before the cut it has one per second. Must hold: sums over the whole
//! session, what is live at any time after the cut, all sequence numbers, stack ids and indexes of allocation classes
//! are the same in both; memory is bounded by live blocks, by pairs of allocation class and thread, and by the kept
//! samples.
use crate::event::{EventEncoder, Events, Freed, TICK_NS};
use crate::memory_parts::thin_out;
use crate::process_past::{ProcessPast, in_order};
use crate::{
    AllocClasses, BlockKind, Domain, Error, FileWriter, Folded, FoldedRow, IntMap, Malformed, MemoryMap, MemoryParts,
    PeakTracker, Process, Processes, RawBlock, Reader, RssSample, Sampling, Session, Start, Visitor,
};
use std::io::{self, Read, Write};

/// A block of events is written at this many raw bytes.
const FULL: usize = 512 << 10;
/// The most instants before the cut whose parts of the memory are kept.
const INSTANTS: usize = 64;
/// The most memory samples in a block.
const SAMPLES: usize = 1 << 16;
/// Before the cut, only the highest memory sample of each interval of this length is kept.
const SAMPLE_NS: u64 = 1_000_000_000;
const NO_SEQUENCE: u64 = u64::MAX;

/// Writes the blocks of `source` up to the offset `end` to `out`, and folds the events before the offset `cut`.
/// `source` must be at its beginning. Returns the time of the cut, if there were events before it.
pub fn fold<R: Read, W: Write>(
    source: &mut Reader<R>,
    cut: u64,
    end: u64,
    out: &mut FileWriter<W>,
) -> Result<Option<u64>, Error> {
    source.set_all_domains();
    let mut until_ns = None;
    let mut folder = Some(Folder::default());
    while source.offset() < end {
        let is_kept = source.offset() >= cut;
        let Some(block) = source.next_block()? else { break };
        if is_kept && let Some(folder) = folder.take() {
            until_ns = folder.finish(out)?;
        }
        let is_folded = match &mut folder {
            Some(folder) => folder.takes(block).map_err(broken)?,
            None => false,
        };
        if !is_folded {
            out.write(block)?;
        }
    }
    match folder {
        Some(folder) => folder.finish(out),
        None => Ok(until_ns),
    }
}

/// The error for a malformed block. We wrote this file ourselves, so the disk or another program changed it.
fn broken(malformed: Malformed) -> Error {
    Error::Io(io::Error::other(malformed.to_string()))
}

#[derive(Default)]
struct Folder {
    /// In the order of `Domain`.
    pasts: [Past; Domain::ALL.len()],
    samples: Vec<RssSample>,
    memory: MemoryParts,
    /// The map with the highest RSS before the cut.
    map: Option<MemoryMap>,
    /// The last Losses block before the cut. Its totals include those of all earlier ones.
    losses: Option<RawBlock>,
}

impl Folder {
    /// Folds the block into the sums, or drops it. Returns false if the block must be written unchanged.
    fn takes(&mut self, block: &RawBlock) -> Result<bool, Malformed> {
        let domain = block.kind.domain().unwrap_or_default();
        let past = &mut self.pasts[domain as usize];
        let payload = &block.payload;
        match block.kind.in_domain(domain).unwrap_or(block.kind) {
            BlockKind::Events => past.walk(&mut Events::decode(payload)?)?,
            BlockKind::Folded => past.add_folded(&Folded::decode(payload)?),
            // Only malloc's blocks are sampled.
            BlockKind::Session if domain == Domain::Malloc => {
                past.sampling = Session::decode(payload)?.sampling;
                return Ok(false);
            }
            BlockKind::AllocClasses => {
                past.add_alloc_classes(&AllocClasses::decode(payload)?)?;
                return Ok(false);
            }
            BlockKind::Processes => past.processes.add(Processes::decode(payload)?),
            BlockKind::Samples => RssSample::decode(payload)?.into_iter().for_each(|sample| self.sample(sample)),
            BlockKind::MemoryParts => self.memory_parts(MemoryParts::decode(payload)?),
            BlockKind::MemoryMap => {
                let map = MemoryMap::decode(payload)?;
                self.map =
                    std::mem::take(&mut self.map).filter(|highest| highest.rss_bytes > map.rss_bytes).or(Some(map));
            }
            BlockKind::Losses => self.losses = Some(block.clone()),
            BlockKind::Checkpoint => (),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn memory_parts(&mut self, parts: MemoryParts) {
        self.memory.reason = parts.reason;
        self.memory.instants.extend(parts.instants);
        thin_out(&mut self.memory.instants, INSTANTS);
    }

    fn sample(&mut self, sample: RssSample) {
        match self.samples.last_mut() {
            Some(last) if last.time_ns / SAMPLE_NS == sample.time_ns / SAMPLE_NS => {
                if sample.rss_bytes > last.rss_bytes {
                    *last = sample;
                }
            }
            _ => self.samples.push(sample),
        }
    }

    /// Returns the time of the cut, if anything was folded.
    fn finish<W: Write>(self, out: &mut FileWriter<W>) -> Result<Option<u64>, Error> {
        for samples in self.samples.chunks(SAMPLES) {
            out.write(&RssSample::to_block(samples))?;
        }
        if self.memory != MemoryParts::default() {
            out.write(&self.memory.to_block())?;
        }
        if let Some(map) = &self.map {
            out.write(&map.to_block())?;
        }
        if let Some(losses) = self.losses {
            out.write(&losses)?;
        }
        let mut until_ns = None;
        for (past, domain) in self.pasts.into_iter().zip(Domain::ALL) {
            until_ns = until_ns.max(past.finish(domain, out)?);
        }
        Ok(until_ns)
    }
}

#[derive(Clone, Copy)]
struct Born {
    alloc_class: u32,
    thread: u32,
    tick: u64,
}

/// The counts of one allocation class in one thread. `row.at_peak` is valid if `epoch` is the current one. Otherwise
/// the entry has not changed since the latest peak, so `live` is its count at the peak.
#[derive(Clone, Copy, Default)]
struct Use {
    row: FoldedRow,
    live: u64,
    epoch: u64,
}

/// The state and the sums of one domain before the cut.
#[derive(Default)]
struct Past {
    /// If blocks were sampled, what each of them stands for. The peak is that of the estimate.
    sampling: Option<Sampling>,
    /// By allocation class: the bytes that a block counts for.
    sizes: Vec<u64>,
    live: IntMap<u64, Born>,
    /// Thread -> its latest allocation.
    latest: IntMap<u32, u64>,
    /// By allocation class and thread.
    uses: IntMap<u64, Use>,
    next_sequence: u64,
    thread: u32,
    image: u32,
    tick: u64,
    heap: PeakTracker,
    epoch: u64,
    /// The processes, and which of them released blocks that are still live.
    processes: ProcessPast,
    /// The sums that `finish` writes. It takes the rows from `uses` and the peak from `heap`; until then, those fields
    /// have no meaning here.
    folded: Folded,
}

const fn key(alloc_class: u32, thread: u32) -> u64 {
    (alloc_class as u64) << 32 | thread as u64
}

impl Past {
    fn add_alloc_classes(&mut self, alloc_classes: &AllocClasses) -> Result<(), Malformed> {
        if alloc_classes.first as usize != self.sizes.len() {
            return Err(Malformed::Reference);
        }
        let sampling = self.sampling;
        let bytes = |size: u64| sampling.map_or(size, |sampling| sampling.bytes_of_one(size));
        self.sizes.extend(alloc_classes.alloc_classes.iter().map(|alloc_class| bytes(alloc_class.size)));
        Ok(())
    }

    /// Takes over the sums of an earlier cut. Their Folded block comes before all events.
    fn add_folded(&mut self, folded: &Folded) {
        for row in &folded.rows {
            self.uses.insert(key(row.alloc_class, row.thread), Use { row: *row, live: 0, epoch: self.epoch });
        }
        self.heap.raise(folded.peak_bytes, folded.peak_allocations, folded.peak_time_ns);
        self.folded = Folded { rows: Vec::new(), ..folded.clone() };
    }

    fn walk(&mut self, events: &mut Events) -> Result<(), Malformed> {
        let Start { sequence, thread, time_ns, image } = events.start();
        self.next_sequence = sequence;
        self.thread = thread;
        self.time(time_ns);
        if image != self.image {
            self.image(image);
        }
        events.walk(self, u64::MAX).map(drop)
    }

    fn size(&self, alloc_class: u32) -> u64 {
        self.sizes.get(alloc_class as usize).copied().unwrap_or(0)
    }

    /// Returns the entry that is about to change, after setting its count at the latest peak.
    fn using(&mut self, alloc_class: u32, thread: u32) -> &mut Use {
        let epoch = self.epoch;
        let used = self.uses.entry(key(alloc_class, thread)).or_default();
        (used.row.alloc_class, used.row.thread) = (alloc_class, thread);
        if used.epoch != epoch {
            (used.epoch, used.row.at_peak) = (epoch, used.live);
        }
        used
    }

    fn finish<W: Write>(mut self, domain: Domain, out: &mut FileWriter<W>) -> Result<Option<u64>, Error> {
        if self.next_sequence == 0 && self.folded.events == 0 {
            self.write_processes(Vec::new(), out)?;
            return Ok(None);
        }
        let mut births: Vec<u64> = self.live.keys().copied().collect();
        births.sort_unstable();
        let rows = self.rows();
        self.start_processes();
        let (releases, mut started) = self.processes.take(&births);
        let kept = (births.len() + releases.len()) as u64;
        self.folded.events = self.folded.events.saturating_sub(kept);
        // The events before a process are counted with those that are folded.
        started.iter_mut().for_each(|one| one.events_before = one.events_before.saturating_add(self.folded.events));
        self.folded.until_ns = self.folded.until_ns.max(self.tick.saturating_mul(TICK_NS));
        let until_ns = self.folded.until_ns;
        let folded = Folded {
            rows,
            peak_bytes: self.heap.peak_bytes,
            peak_allocations: self.heap.peak_allocations,
            peak_time_ns: self.heap.peak_time_ns,
            ..std::mem::take(&mut self.folded)
        };
        out.write(&folded.to_block().of(domain))?;
        self.write_processes(started, out)?;
        let mut events = EventEncoder::new();
        events.image(self.image);
        let mut full = Vec::new();
        let mut context = (&mut events, &mut full);
        in_order(
            &mut context,
            &births,
            &releases,
            |(events, full), sequence| {
                let Some(born) = self.live.get(&sequence) else { return };
                events.thread(born.thread);
                events.time(born.tick.saturating_mul(TICK_NS));
                events.skip_to(sequence);
                events.alloc(born.alloc_class);
                if events.len() >= FULL {
                    full.push(events.take());
                }
            },
            |(events, _), release| {
                events.thread(release.thread);
                events.time(release.time_ns);
                events.release(release.sequence);
            },
        );
        for block in full {
            out.write(&block.of(domain))?;
        }
        let mut threads: Vec<u32> = self.live.values().map(|born| born.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        for thread in threads {
            if !self.latest.get(&thread).is_some_and(|latest| self.live.contains_key(latest)) {
                events.thread(thread);
                events.latest_gone();
            }
        }
        events.time(self.tick.saturating_mul(TICK_NS));
        events.skip_to(self.next_sequence);
        out.write(&events.take().of(domain))?;
        Ok(Some(until_ns))
    }

    /// Starts the processes that start before the next event.
    fn start_processes(&mut self) {
        while self.processes.start_before(self.folded.events, self.next_sequence).is_some() {}
    }

    /// Writes the processes that have started, and all that are known to start later, with their threads.
    fn write_processes<W: Write>(&mut self, started: Vec<Process>, out: &mut FileWriter<W>) -> Result<(), Error> {
        let threads = std::mem::take(&mut self.processes.threads).into_iter().collect();
        let processes = started.into_iter().chain(self.processes.take_waiting()).collect();
        let all = Processes { processes, threads };
        if !all.is_empty() {
            out.write(&all.to_block())?;
        }
        Ok(())
    }

    /// Returns the rows. Their allocations do not include the live blocks, which are written as events.
    fn rows(&self) -> Vec<FoldedRow> {
        let row = |used: &Use| FoldedRow {
            allocations: used.row.allocations.saturating_sub(used.live),
            at_peak: if used.epoch == self.epoch { used.row.at_peak } else { used.live },
            ..used.row
        };
        let mut rows: Vec<FoldedRow> = self.uses.values().map(row).collect();
        rows.retain(|row| row.allocations > 0 || row.at_peak > 0);
        rows.sort_unstable_by_key(|row| (row.alloc_class, row.thread));
        rows
    }
}

impl Visitor for Past {
    fn alloc(&mut self, sequence: u64, alloc_class: u32) {
        let (thread, tick) = (self.thread, self.tick);
        self.next_sequence = sequence;
        self.start_processes();
        self.next_sequence = sequence + 1;
        self.folded.events = self.folded.events.saturating_add(1);
        self.live.insert(sequence, Born { alloc_class, thread, tick });
        self.latest.insert(thread, sequence);
        let used = self.using(alloc_class, thread);
        used.row.allocations = used.row.allocations.saturating_add(1);
        used.live = used.live.saturating_add(1);
        self.epoch += self.heap.alloc_at(self.size(alloc_class), tick.saturating_mul(TICK_NS)) as u64;
    }

    fn free(&mut self, sequence: u64, how: Freed) {
        self.start_processes();
        self.processes.end(sequence);
        self.folded.events = self.folded.events.saturating_add(1);
        let Some(born) = self.live.remove(&sequence) else { return };
        self.folded.implied_frees = self.folded.implied_frees.saturating_add((how == Freed::Implied) as u64);
        let is_temporary = how == Freed::Call && self.latest.get(&self.thread) == Some(&sequence);
        let age = self.tick.saturating_sub(born.tick);
        self.heap.free(self.size(born.alloc_class));
        let used = self.using(born.alloc_class, born.thread);
        used.live = used.live.saturating_sub(1);
        if !how.is_by_program() {
            used.row.leaked = used.row.leaked.saturating_add((how == Freed::Leaked) as u64);
            return;
        }
        used.row.deallocations = used.row.deallocations.saturating_add(1);
        used.row.temporary = used.row.temporary.saturating_add(is_temporary as u64);
        used.row.lifetime_ticks = used.row.lifetime_ticks.saturating_add(age);
    }

    fn release(&mut self, sequence: u64) {
        self.start_processes();
        if self.live.contains_key(&sequence) {
            let (time_ns, event) = (self.tick.saturating_mul(TICK_NS), self.folded.events);
            self.processes.release(sequence, self.thread, time_ns, self.next_sequence, event);
        }
        self.folded.events = self.folded.events.saturating_add(1);
    }

    fn unknown_free(&mut self) {
        self.start_processes();
        self.folded.events = self.folded.events.saturating_add(1);
        self.folded.unknown_frees = self.folded.unknown_frees.saturating_add(1);
    }

    fn thread(&mut self, index: u32) {
        self.thread = index;
    }

    fn time(&mut self, ns: u64) -> bool {
        self.tick = self.tick.max(ns / TICK_NS);
        true
    }

    fn image(&mut self, image: u32) {
        self.image = image;
        self.processes.end_all();
        let born: Vec<Born> = self.live.drain().map(|(_, born)| born).collect();
        for Born { alloc_class, thread, .. } in born {
            self.using(alloc_class, thread).live = 0;
        }
        self.latest.clear();
        self.heap.free_all();
    }

    fn latest_gone(&mut self) {
        self.latest.insert(self.thread, NO_SEQUENCE);
    }

    fn skip_to(&mut self, sequence: u64) {
        self.next_sequence = sequence;
    }
}
