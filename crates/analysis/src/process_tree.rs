//! The processes of a tree: what each of them did, and what each held when all together held most.
//!
//! Receives: the definitions, and the events up to the peak, or all if a process has no totals in the file. Must hold: the
//! shares of the processes add up to the peak. A block counts at the process that allocated it while that one holds it,
//! and else at the first process that inherited it and holds it.
use crate::counter::{Birth, Peak};
use crate::definitions::{Definitions, KnownAllocClass};
use crate::engine::Engine;
use crate::moment::{Moment, When};
use crate::pass::{Blocks, Gone};
use crate::walker::{Now, Sink, Walker};
use format::{Folded, Freed, IntMap, IntSet, LiveBlocks, Process, ProcessCounter, ProcessEnd, ProcessStart, Totals};
use std::collections::BTreeMap;

/// All processes of a trace, in the order of their indexes.
#[derive(Clone, Debug, Default)]
pub struct ProcessTree {
    pub processes: Vec<ProcessRow>,
    /// `None` if the trace is of one process only.
    pub peak: Option<CombinedPeak>,
}

#[derive(Clone, Debug)]
pub struct ProcessRow {
    pub process: Process,
    /// From the file if the process has ended, and counted otherwise.
    pub totals: Totals,
}

/// The instant at which all processes together held most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CombinedPeak {
    pub time_ns: u64,
    pub bytes: u64,
    pub allocations: u64,
    /// What the processes held that were alive then, by index.
    pub shares: BTreeMap<u32, Share>,
    /// What threads without a known process held, because a part of the file is lost.
    pub unknown: Share,
}

/// What a process held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    pub bytes: u64,
    pub allocations: u64,
}

impl Share {
    const fn add(&mut self, bytes: u64, allocations: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.allocations = self.allocations.saturating_add(allocations);
    }
}

impl Engine {
    /// The processes of the trace. Empty unless it is that of a tree. Walks the events up to the peak, or all of them if a
    /// process has no totals in the file.
    pub fn process_tree(&self, blocks: &mut dyn Blocks) -> Result<ProcessTree, Gone> {
        let definitions = &self.definitions;
        if definitions.processes.is_empty() {
            return Ok(ProcessTree::default());
        }
        let folded = self.folded_peak();
        let is_counted = definitions.processes.values().any(|process| process.end.is_none());
        let mut moments = Vec::new();
        moments.extend(folded.is_none().then(|| self.moment(When::Peak)));
        moments.extend(is_counted.then_some(Moment::END));
        let mut peak = folded.map(|part| peak_of_sums(definitions, part)).unwrap_or_default();
        let first = &self.index.checkpoints[0];
        let mut walker = first.other_walker(Holders::new(definitions));
        let counted = self.counted_peak();
        self.stretch(blocks, first).walk(&mut walker, &moments, |at, walker| {
            if at == 0 && folded.is_none() {
                peak = peak_of_holders(counted, walker);
            }
        })?;
        // Some may have started after the last event.
        walker.sink.start_before(u64::MAX, walker.now.next_sequence);
        let rows = definitions.processes.values().map(|process| ProcessRow {
            totals: process.end.map_or_else(|| walker.sink.totals(process, self.runtime_ns()), totals_at_end),
            process: process.clone(),
        });
        Ok(ProcessTree { processes: rows.collect(), peak: Some(peak) })
    }
}

/// What exec ended is not leaked. The file has it as such.
fn totals_at_end(end: ProcessEnd) -> Totals {
    match end.by_exec {
        true => Totals { leaked_bytes: 0, leaked_allocations: 0, ..end.totals },
        false => end.totals,
    }
}

/// The peak is among events that are known only as sums: their blocks count at the processes that allocated them.
fn peak_of_sums(definitions: &Definitions, part: &Folded) -> CombinedPeak {
    let (time_ns, bytes, allocations) = (part.peak_time_ns, part.peak_bytes, part.peak_allocations);
    let mut peak = CombinedPeak { time_ns, bytes, allocations, ..CombinedPeak::default() };
    let lived = |process: &&Process| process.start_ns <= time_ns && process.end.is_none_or(|end| end.at_ns >= time_ns);
    peak.shares.extend(definitions.processes.values().filter(lived).map(|process| (process.index, Share::default())));
    for row in part.rows.iter().filter(|row| row.at_peak > 0) {
        let Some((_, class)) = definitions.group_of_row(row) else { continue };
        peak.add(
            definitions.process_of_thread.get(&row.thread).copied(),
            class.bytes.saturating_mul(row.at_peak),
            row.at_peak,
        );
    }
    peak
}

fn peak_of_holders(peak: Peak, walker: &Walker<Holders<'_>>) -> CombinedPeak {
    let Peak { bytes, allocations, time_ns, .. } = peak;
    let mut found = CombinedPeak { time_ns, bytes, allocations, ..CombinedPeak::default() };
    let holders = &walker.sink;
    let alive: Vec<&Process> = holders.alive(&walker.now, time_ns).collect();
    found.shares.extend(alive.iter().map(|process| (process.index, Share::default())));
    walker.live.each_from(0, |sequence, birth| {
        let size = holders.size(&birth);
        found.add(holders.holder(sequence, birth.thread, &found.shares, &alive), size, 1);
    });
    found
}

impl CombinedPeak {
    fn add(&mut self, process: Option<u32>, bytes: u64, allocations: u64) {
        let share = match process {
            Some(process) => self.shares.entry(process).or_default(),
            None => &mut self.unknown,
        };
        share.add(bytes, allocations);
    }
}

/// Keeps track of which process holds which block.
struct Holders<'a> {
    definitions: &'a Definitions,
    counter: ProcessCounter,
    /// Processes that have not started yet, the first one last.
    waiting: Vec<&'a Process>,
    /// Process -> the sequence number of the first allocation after its start.
    first_sequence: IntMap<u32, u64>,
    /// Processes whose end was seen in the events.
    ended: IntSet<u32>,
    /// Live block -> the processes that freed it although others hold it, and the events before that.
    releases: IntMap<u64, Vec<(u32, u64)>>,
}

impl<'a> Holders<'a> {
    fn new(definitions: &'a Definitions) -> Self {
        let mut waiting: Vec<&Process> = definitions.processes.values().collect();
        waiting.sort_by_key(|process| std::cmp::Reverse((process.events_before, process.index)));
        Holders {
            definitions,
            counter: ProcessCounter::default(),
            waiting,
            first_sequence: IntMap::default(),
            ended: IntSet::default(),
            releases: IntMap::default(),
        }
    }

    fn process(&self, thread: u32) -> Option<u32> {
        self.definitions.process_of_thread.get(&thread).copied()
    }

    fn size(&self, birth: &Birth) -> u64 {
        self.definitions.alloc_classes.get(birth.alloc_class as usize).map_or(0, |known: &KnownAllocClass| known.size)
    }

    /// Starts the processes that start before the next event. `sequence`: the number of the next allocation.
    #[inline]
    fn start_before(&mut self, events: u64, sequence: u64) {
        while let Some(process) = self.waiting.pop_if(|process| process.events_before <= events) {
            self.counter.start(process);
            self.first_sequence.insert(process.index, sequence);
        }
    }

    /// The processes that have started and not ended.
    fn alive(&self, now: &Now, time_ns: u64) -> impl Iterator<Item = &'a Process> {
        let (events, ended) = (now.events, &self.ended);
        self.definitions.processes.values().filter(move |process| {
            process.events_before < events
                && !ended.contains(&process.index)
                && process.end.is_none_or(|end| end.at_ns >= time_ns)
        })
    }

    /// The process at which a block counts. `alive`: the processes that are alive, with the same indexes as `shares`.
    fn holder(&self, sequence: u64, thread: u32, shares: &BTreeMap<u32, Share>, alive: &[&Process]) -> Option<u32> {
        let owner = self.process(thread)?;
        if shares.contains_key(&owner) && self.released(sequence, owner).is_none() {
            return Some(owner);
        }
        let heir = alive.iter().find(|process| self.inherited(process, sequence, owner)).map(|process| process.index);
        heir.or(Some(owner))
    }

    /// The events before a process freed a block that others hold.
    fn released(&self, sequence: u64, process: u32) -> Option<u64> {
        let releases = self.releases.get(&sequence)?;
        releases.iter().find(|(other, _)| *other == process).map(|(_, events)| *events)
    }

    /// Whether a process inherited a block from its ancestor `owner` and has not freed it.
    fn inherited(&self, process: &Process, sequence: u64, owner: u32) -> bool {
        if self.released(sequence, process.index).is_some() {
            return false;
        }
        let mut child = process;
        // A parent has a lower index than its child. Anything else is malformed and ends the walk.
        while child.start == ProcessStart::Forked
            && self.first_sequence.get(&child.index).is_some_and(|s| sequence < *s)
        {
            let Some(parent) = child.parent.filter(|parent| *parent < child.index) else { return false };
            // The child has the block only if its parent freed it later.
            if self.released(sequence, parent).is_some_and(|events| events < child.events_before) {
                return false;
            }
            if parent == owner {
                return true;
            }
            let Some(next) = self.definitions.processes.get(&parent) else { return false };
            child = next;
        }
        false
    }

    /// The totals of a process that has not ended.
    fn totals(&self, process: &Process, runtime_ns: u64) -> Totals {
        let mut totals = self.counter.totals(process.index);
        for row in self.definitions.folded.iter().flat_map(|part| &part.rows) {
            if self.process(row.thread) != Some(process.index) {
                continue;
            }
            let size = self.definitions.group_of_row(row).map_or(0, |(_, class)| class.bytes);
            totals.allocations = totals.allocations.saturating_add(row.allocations);
            totals.deallocations = totals.deallocations.saturating_add(row.deallocations);
            totals.temporary = totals.temporary.saturating_add(row.temporary);
            totals.allocated_bytes = totals.allocated_bytes.saturating_add(row.allocations.saturating_mul(size));
        }
        Totals { runtime_ns: runtime_ns.saturating_sub(process.start_ns), ..totals }
    }
}

impl Sink for Holders<'_> {
    type Kept = Birth;

    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Birth> {
        Birth::of(now, alloc_class, &self.definitions.alloc_classes)
    }

    fn alloc(&mut self, now: &Now, _: u32, birth: Birth) {
        self.start_before(now.events - 1, now.next_sequence - 1);
        if let Some(process) = self.process(birth.thread) {
            self.counter.alloc(process, self.size(&birth), now.time_ns);
        }
    }

    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, how: Freed, temporary: bool) {
        self.start_before(now.events - 1, now.next_sequence);
        self.releases.remove(&sequence);
        let Some(process) = self.process(now.thread) else { return };
        self.counter.free(process, self.process(birth.thread), self.size(&birth), how, temporary);
        if matches!(how, Freed::Leaked | Freed::Replaced | Freed::Dropped) {
            self.ended.insert(process);
        }
    }

    fn release(&mut self, now: &Now, sequence: u64, birth: Birth) {
        self.start_before(now.events - 1, now.next_sequence);
        let Some(process) = self.process(now.thread) else { return };
        self.counter.release(process, self.process(birth.thread), self.size(&birth));
        self.releases.entry(sequence).or_default().push((process, now.events - 1));
    }

    fn unknown_free(&mut self, now: &Now) {
        self.start_before(now.events - 1, now.next_sequence);
        if let Some(process) = self.process(now.thread) {
            self.counter.unknown_free(process);
        }
    }

    fn end_image(&mut self, _: &Now, _: &LiveBlocks<Birth>) {
        self.releases.clear();
    }
}
