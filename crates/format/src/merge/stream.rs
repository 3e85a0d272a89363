//! One of the traces that are merged: its position, and its numbers in the new trace.
use super::{MergeError, MergedBlock, Merger};
use crate::walk::{EventList, Walked};
use crate::{
    Block, Domain, Event, Exit, Folded, FoldedRow, Frame, Freed, Gone, HeapAtAttach, IntMap, Losses, Module, Process,
    ProcessEnd, ProcessStart, Processes, RawBlock, Session, Source, Summary, Symbols, Thread, Totals, Unseen, Visitor,
    Waits,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{Read, Write};

/// The most events of a block that are unpacked at once. Blocks of recordings have fewer.
const AT_ONCE: usize = 1 << 20;
/// The most lost definitions in one gap for which placeholders are made. After a larger gap, definitions are ignored.
const HOLES: usize = 1 << 22;
const LOST: u32 = u32::MAX;

pub(crate) struct Stream<R: Read> {
    pub(super) number: usize,
    source: Source<R>,
    pub(super) session: Session,
    pub(super) summary: Option<Summary>,
    pub(super) losses: Option<Losses>,
    pub(super) unseen: Vec<Unseen>,
    /// The stream has no more blocks, and `now_ns` is the end of its process.
    pub(super) is_ending: bool,
    pub(super) is_over: bool,
    /// The process ended before the last one.
    pub(super) is_gone: bool,
    pub(super) folded_until_ns: Option<u64>,
    /// The time from the start of the merged trace to the start of this one.
    offset_ns: u64,
    /// The current time, in the merged trace's time.
    pub(super) now_ns: u64,
    pub(super) end_ns: u64,
    block: RawBlock,
    /// The number of events of `block` that were unpacked, and (below) whether those are all.
    unpacked: u64,
    is_unpacked: bool,
    events: std::vec::IntoIter<Event>,
    thread: u32,
    image: Option<u32>,
    /// Numbers of this trace -> numbers of the merged trace. An allocation class has its size beside its new number.
    instances: HashMap<u16, u16>,
    stacks: Vec<u32>,
    alloc_classes: Vec<(u32, u64)>,
    threads: IntMap<u32, u32>,
    processes: IntMap<u32, u32>,
    /// Processes that start after events that are not handled yet, the latest first.
    waiting: Vec<Process>,
    /// By old index: the number of merged events before the process.
    started: IntMap<u32, u64>,
    /// Allocations and frees of all kinds that were handled.
    events_seen: u64,
    live: IntMap<u64, MergedBlock>,
    /// Blocks that end with their process, of a trace that was merged in the old way, and whether they are leaked.
    gone: IntMap<u64, bool>,
    /// The process that stands for this trace, if the trace names none.
    own_process: Option<Process>,
    has_parts: bool,
}

impl<R: Read> Stream<R> {
    pub(super) fn new(number: usize, mut source: Source<R>) -> Result<Self, MergeError> {
        let first = source.next_block().map_err(|error| MergeError::Source(number, error))?;
        let Some(Ok(Block::Session(session))) = first.map(RawBlock::decode) else {
            return Err(MergeError::NoSession(number));
        };
        if session.kde().is_some() {
            return Err(MergeError::Kde(number));
        }
        if session.sampling.is_some() {
            return Err(MergeError::Sampled(number));
        }
        Ok(Stream {
            number,
            source,
            session,
            summary: None,
            losses: None,
            unseen: Vec::new(),
            is_ending: false,
            is_over: false,
            is_gone: false,
            folded_until_ns: None,
            offset_ns: 0,
            now_ns: 0,
            end_ns: 0,
            block: RawBlock { kind: crate::BlockKind::Session, payload: Vec::new() },
            unpacked: 0,
            is_unpacked: true,
            events: Vec::new().into_iter(),
            thread: 0,
            image: None,
            instances: HashMap::new(),
            stacks: Vec::new(),
            alloc_classes: Vec::new(),
            threads: IntMap::default(),
            processes: IntMap::default(),
            waiting: Vec::new(),
            started: IntMap::default(),
            events_seen: 0,
            live: IntMap::default(),
            gone: IntMap::default(),
            own_process: None,
            has_parts: false,
        })
    }

    pub(super) fn begin(&mut self, started_unix_ns: u64) {
        self.offset_ns = self.session.started_unix_ns.saturating_sub(started_unix_ns);
        (self.now_ns, self.end_ns) = (self.offset_ns, self.offset_ns);
    }

    pub(super) const fn begin_ns(&self) -> u64 {
        self.offset_ns
    }

    /// Ends the process. Its live blocks end with it, unless we detached from it or it is the last one.
    pub(super) fn end<W: Write>(&mut self, is_last: bool, merger: &mut Merger<W>) -> Result<(), MergeError> {
        self.is_over = true;
        // Processes that start after the last event.
        self.events_seen = u64::MAX;
        self.start_processes(merger);
        if self.processes.is_empty() && !merger.is_alone {
            self.start_own_process(merger);
        }
        self.end_own_process(merger);
        let lives_on = self.summary.is_some_and(|summary| summary.exit == Exit::Detached);
        if is_last || lives_on {
            return Ok(());
        }
        self.is_gone = true;
        self.take_all(true, merger)
    }

    /// True if the trace has parts of the resident memory, or mappings of the program.
    pub(super) const fn has_memory(&self) -> bool {
        self.has_parts || self.source.has(Domain::Mapped)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.summary.is_some_and(|summary| summary.complete)
            && self.source.finished()
            && self.source.damage_count() == 0
    }

    /// Handles the events up to the next time mark, or one block if there are no events.
    pub(super) fn advance<W: Write>(&mut self, merger: &mut Merger<W>) -> Result<(), MergeError> {
        loop {
            match self.events.next() {
                Some(Event::Time(ns)) => {
                    self.set_time(ns);
                    return Ok(());
                }
                Some(event) => {
                    self.event(event, merger)?;
                    merger.flush(false)?;
                }
                None if self.unpack() => (),
                None => return self.next_block(merger),
            }
        }
    }

    fn set_time(&mut self, ns: u64) {
        self.now_ns = self.now_ns.max(self.offset_ns.saturating_add(ns));
        self.end_ns = self.end_ns.max(self.now_ns);
    }

    fn event<W: Write>(&mut self, event: Event, merger: &mut Merger<W>) -> Result<(), MergeError> {
        if !matches!(event, Event::Thread(_) | Event::Image(_) | Event::LatestGone | Event::Time(_)) {
            if !self.waiting.is_empty() {
                self.start_processes(merger);
            }
            if self.processes.is_empty() && !merger.is_alone {
                self.start_own_process(merger);
            }
            self.events_seen += 1;
        }
        match event {
            Event::Alloc { sequence, alloc_class } => {
                let known = self.alloc_classes.get(alloc_class as usize).copied().filter(|known| known.0 != LOST);
                let Some((alloc_class, size)) = known else { return Ok(()) };
                let thread = self.thread(merger);
                let new = merger.alloc(thread, alloc_class, size, self.now_ns);
                self.live.insert(sequence, MergedBlock { sequence: new, alloc_class, size });
            }
            Event::Free { sequence, how } => {
                // The allocation of this block is in a lost part of the file.
                let Some(block) = self.live.remove(&sequence) else { return Ok(()) };
                let thread = self.thread(merger);
                let how = match self.gone.remove(&sequence) {
                    Some(true) => Freed::Leaked,
                    Some(false) => Freed::Replaced,
                    None => how,
                };
                merger.free(thread, block, how, self.now_ns);
            }
            Event::Release { sequence } => {
                let Some(block) = self.live.get(&sequence).copied() else { return Ok(()) };
                let thread = self.thread(merger);
                merger.release(thread, block.sequence, self.now_ns);
            }
            Event::UnknownFree => {
                let thread = self.thread(merger);
                merger.unknown_free(thread, self.now_ns);
            }
            Event::Thread(thread) => self.thread = thread,
            Event::Image(image) => return self.set_image(image, merger),
            Event::LatestGone => {
                let thread = self.thread(merger);
                merger.latest_gone(thread);
            }
            Event::Time(ns) => self.set_time(ns),
        }
        Ok(())
    }

    fn thread<W: Write>(&mut self, merger: &mut Merger<W>) -> u32 {
        self.thread_of(self.thread, merger)
    }

    fn thread_of<W: Write>(&mut self, index: u32, merger: &mut Merger<W>) -> u32 {
        // The threads of a single trace keep their numbers.
        if merger.is_alone {
            return index;
        }
        if let Some(known) = self.threads.get(&index) {
            return *known;
        }
        let thread = merger.thread();
        self.threads.insert(index, thread);
        if let Some(process) = &self.own_process {
            merger.news.threads.push((thread, process.index));
        }
        thread
    }

    /// Makes a process that stands for this trace, which names none.
    fn start_own_process<W: Write>(&mut self, merger: &mut Merger<W>) {
        let session = &self.session;
        let process = Process {
            index: merger.process(),
            pid: session.pid,
            start: if session.attached { ProcessStart::Attached } else { ProcessStart::Launched },
            command: session.command.clone(),
            exe: session.exe.clone(),
            start_ns: self.offset_ns,
            events_before: merger.event_count(),
            ..Process::default()
        };
        self.processes.insert(0, process.index);
        merger.news.threads.extend(self.threads.values().map(|thread| (*thread, process.index)));
        merger.news.processes.push(process.clone());
        self.own_process = Some(process);
    }

    fn end_own_process<W: Write>(&self, merger: &mut Merger<W>) {
        let (Some(process), Some(summary)) = (&self.own_process, self.summary) else { return };
        if summary.exit == Exit::Detached {
            return;
        }
        let peak_time_ns = summary.totals.peak_time_ns.saturating_add(self.offset_ns);
        let totals = Totals { peak_time_ns, ..summary.totals };
        let end = Some(ProcessEnd { at_ns: self.now_ns, by_exec: false, exit: summary.exit, totals });
        merger.news.processes.retain(|news| news.index != process.index);
        merger.news.processes.push(Process { end, ..process.clone() });
    }

    /// An `exec` removed the blocks of this process, and of no other.
    fn set_image<W: Write>(&mut self, image: u32, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let before = self.image.replace(image);
        if before.is_none_or(|before| before == image) { Ok(()) } else { self.take_all(false, merger) }
    }

    fn take_all<W: Write>(&mut self, is_leak: bool, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let mut ended: Vec<MergedBlock> = self.live.drain().map(|(_, block)| block).collect();
        ended.sort_unstable_by_key(|block| block.sequence);
        let how = if is_leak { Freed::Leaked } else { Freed::Replaced };
        for block in ended {
            let thread = self.thread(merger);
            merger.free(thread, block, how, self.now_ns);
            merger.flush(false)?;
        }
        Ok(())
    }

    /// Handles a Gone block, in which older versions listed the blocks of a merged trace that end with their process. The
    /// frees of these blocks come next.
    fn gone(&mut self, gone: &Gone) {
        self.set_time(gone.at_ns);
        self.gone.extend(gone.blocks.iter().map(|block| (block.sequence, gone.is_leak)));
    }

    /// Unpacks more events of the block. Returns false if it has no more.
    fn unpack(&mut self) -> bool {
        if self.is_unpacked {
            return false;
        }
        let mut list = EventList::default();
        let limit = self.unpacked + AT_ONCE as u64;
        let walked = self.block.events().and_then(|mut events| {
            events.walk(&mut Skip, self.unpacked)?;
            let walked = events.walk(&mut list, limit);
            self.unpacked = events.done();
            walked
        });
        // The rest of a malformed block is lost, as for every other reader.
        self.is_unpacked = walked != Ok(Walked::Limit);
        self.events = list.events.into_iter();
        true
    }

    fn next_block<W: Write>(&mut self, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let number = self.number;
        let failed = |error| MergeError::Source(number, error);
        let Some(block) = self.source.next_block().map_err(failed)? else {
            self.is_ending = true;
            self.now_ns = self.now_ns.max(self.end_ns);
            return Ok(());
        };
        // A malformed block is treated like a lost one.
        let Ok(decoded) = block.decode() else { return Ok(()) };
        if let Block::Events(events) = decoded {
            let (time, thread, image) = (events.time_ns(), events.thread(), events.image());
            self.block = block.clone();
            (self.unpacked, self.is_unpacked) = (0, false);
            self.set_time(time);
            self.thread = thread;
            return self.set_image(image, merger);
        }
        self.has_parts |= matches!(&decoded, Block::MemoryParts(parts) if !parts.instants.is_empty());
        // Moved into a type that borrows nothing, because `decoded` borrows `source`.
        let decoded = owned(decoded);
        match decoded {
            Some(Owned::Modules(modules)) => self.modules(modules, merger),
            Some(Owned::Threads(threads)) => self.name_threads(threads, merger),
            Some(Owned::Stacks(stacks)) => self.add_stacks(&stacks, merger),
            Some(Owned::AllocClasses(alloc_classes)) => self.add_alloc_classes(&alloc_classes, merger),
            Some(Owned::Allocators(allocators)) => self.allocators(&allocators, merger),
            Some(Owned::Symbols(symbols)) => self.symbols(symbols, merger),
            Some(Owned::Folded(folded)) => self.folded(*folded, merger),
            Some(Owned::Gone(gone)) => {
                self.gone(&gone);
                Ok(())
            }
            Some(Owned::HeapAtAttach(heap)) => {
                merger.add_heap(heap);
                Ok(())
            }
            Some(Owned::Waits(waits)) => {
                merger.add_waits(waits);
                Ok(())
            }
            Some(Owned::Processes(processes)) => {
                self.processes(processes, merger);
                Ok(())
            }
            Some(Owned::Suppressions(text)) => merger.add_suppressions(&text),
            Some(Owned::Samples(samples)) => {
                for sample in samples {
                    let at = self.offset_ns.saturating_add(sample.time_ns);
                    self.end_ns = self.end_ns.max(at);
                    merger.samples.push((at, number, sample.rss_bytes, sample.overhead_bytes));
                }
                Ok(())
            }
            Some(Owned::Losses(losses)) => {
                self.losses = Some(losses);
                Ok(())
            }
            Some(Owned::Unseen(unseen)) => {
                self.unseen = unseen;
                Ok(())
            }
            Some(Owned::Summary(summary)) => {
                self.summary = Some(summary);
                self.end_ns = self.end_ns.max(self.offset_ns.saturating_add(summary.totals.runtime_ns));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn modules<W: Write>(&mut self, modules: Vec<Module>, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let mut new = Vec::with_capacity(modules.len());
        for module in modules {
            let instance = match self.instances.get(&module.instance) {
                Some(known) => *known,
                None => {
                    let next = merger.instance()?;
                    self.instances.insert(module.instance, next);
                    next
                }
            };
            let shift = |ns: u64| ns.saturating_add(self.offset_ns);
            new.push(Module {
                instance,
                loaded_ns: shift(module.loaded_ns),
                unloaded_ns: module.unloaded_ns.map(shift),
                ..module
            });
        }
        merger.add_modules(&new)
    }

    /// Returns the merged number of an instance. Code of no module (instance 0) can be at addresses that are other code
    /// in another process. So each trace but the first gets a module for it. An instance whose definition was lost gets
    /// a module without a path.
    fn instance<W: Write>(&mut self, instance: u16, merger: &mut Merger<W>) -> Result<u16, MergeError> {
        if let Some(known) = self.instances.get(&instance) {
            return Ok(*known);
        }
        if instance == 0 && self.number == 0 {
            return Ok(0);
        }
        let next = merger.instance()?;
        self.instances.insert(instance, next);
        let path = if instance == 0 { Module::path_of_code(self.session.pid) } else { String::new() };
        merger.add_modules(&[Module { instance: next, path, end: 1 << 47, ..Module::default() }])?;
        Ok(next)
    }

    fn name_threads<W: Write>(&mut self, threads: Vec<Thread>, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let mut new = Vec::with_capacity(threads.len());
        for thread in threads {
            let index = self.thread_of(thread.index, merger);
            new.push(Thread { index, ..thread });
        }
        merger.add_threads(&new)
    }

    fn process_of<W: Write>(&mut self, index: u32, merger: &mut Merger<W>) -> u32 {
        *self.processes.entry(index).or_insert_with(|| merger.process())
    }

    /// Writes the processes that are known in the merged order. Those that start later wait for their place.
    fn processes<W: Write>(&mut self, all: Processes, merger: &mut Merger<W>) {
        for (thread, process) in all.threads {
            let thread = self.thread_of(thread, merger);
            let process = self.process_of(process, merger);
            merger.news.threads.push((thread, process));
        }
        // The last of them is taken first. A process that is written again, because it has ended, must come after what was written before.
        self.waiting.splice(0..0, all.processes.into_iter().rev());
        self.waiting.sort_by_key(|process| Reverse(process.events_before));
        self.start_processes(merger);
    }

    /// Writes the processes that start before the next event.
    fn start_processes<W: Write>(&mut self, merger: &mut Merger<W>) {
        while let Some(process) = self.waiting.pop_if(|process| process.events_before <= self.events_seen) {
            let shift = |ns: u64| ns.saturating_add(self.offset_ns);
            let end = process.end.map(|end| ProcessEnd { at_ns: shift(end.at_ns), ..end });
            let (start_ns, old) = (shift(process.start_ns), process.index);
            let index = self.process_of(old, merger);
            let parent = process.parent.map(|parent| self.process_of(parent, merger));
            let events_before = *self.started.entry(old).or_insert_with(|| merger.event_count());
            merger.news.processes.push(Process { index, parent, start_ns, events_before, end, ..process });
        }
    }

    fn add_stacks<W: Write>(&mut self, stacks: &crate::Stacks, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let first = (stacks.first as usize).saturating_sub(1);
        if first < self.stacks.len() || first - self.stacks.len() > HOLES {
            return Ok(());
        }
        while self.stacks.len() < first {
            self.stacks.push(merger.stacks.push(0, Frame::LOST));
        }
        for node in &stacks.nodes {
            let parent = self.stack(node.parent);
            let frame = match node.frame {
                marker if marker.is_marker() => marker,
                frame => {
                    let instance = self.instance(frame.instance(), merger)?;
                    Frame::new(instance, frame.offset(), frame.is_exact())
                }
            };
            self.stacks.push(merger.stacks.push(parent, frame));
        }
        let block = merger.stacks.take();
        merger.write(&block)
    }

    fn stack(&self, stack: u32) -> u32 {
        (stack as usize).checked_sub(1).and_then(|place| self.stacks.get(place)).copied().unwrap_or(0)
    }

    fn add_alloc_classes<W: Write>(
        &mut self,
        alloc_classes: &crate::AllocClasses,
        merger: &mut Merger<W>,
    ) -> Result<(), MergeError> {
        let first = alloc_classes.first as usize;
        if first < self.alloc_classes.len() || first - self.alloc_classes.len() > HOLES {
            return Ok(());
        }
        self.alloc_classes.resize(first, (LOST, 0));
        for alloc_class in &alloc_classes.alloc_classes {
            let stack = self.stack(alloc_class.stack);
            self.alloc_classes.push((merger.alloc_classes.push(alloc_class.size, stack), alloc_class.size));
        }
        let block = merger.alloc_classes.take();
        merger.write(&block)
    }

    /// Writes the allocators of allocation classes with the numbers that these have in the merged trace.
    fn allocators<W: Write>(&self, from: &crate::Allocators, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let mut renumbered = crate::Allocators::default();
        for (name, classes) in &from.lists {
            let known = classes.iter().filter_map(|class| self.alloc_classes.get(*class as usize));
            known.filter(|known| known.0 != LOST).for_each(|known| renumbered.push(name, known.0));
        }
        if renumbered.is_empty() { Ok(()) } else { merger.write(&renumbered.to_block()) }
    }

    /// The peak of this process is the peak of all, if the others held nothing then. Otherwise it is a lower bound, and
    /// the merged trace notes that.
    fn folded<W: Write>(&mut self, folded: Folded, merger: &mut Merger<W>) -> Result<(), MergeError> {
        let mut rows = Vec::with_capacity(folded.rows.len());
        for row in &folded.rows {
            let Some((alloc_class, size)) =
                self.alloc_classes.get(row.alloc_class as usize).copied().filter(|known| known.0 != LOST)
            else {
                continue;
            };
            let thread = self.thread_of(row.thread, merger);
            merger.tally.folded(row, size);
            rows.push(FoldedRow { alloc_class, thread, ..*row });
        }
        self.events_seen = self.events_seen.saturating_add(folded.events);
        merger.write_news()?;
        merger.folded = merger.folded.saturating_add(folded.events);
        merger.tally.totals.unknown_frees += folded.unknown_frees;
        merger.tally.totals.implied_frees += folded.implied_frees;
        let until_ns = folded.until_ns.saturating_add(self.offset_ns);
        let peak_time_ns = folded.peak_time_ns.saturating_add(self.offset_ns);
        self.folded_until_ns = self.folded_until_ns.max(Some(until_ns));
        let folded = Folded { until_ns, peak_time_ns, rows, ..folded };
        merger.tally.folded_peak(&folded);
        merger.write(&folded.to_block())
    }

    fn symbols<W: Write>(&mut self, mut symbols: Symbols, merger: &mut Merger<W>) -> Result<(), MergeError> {
        for module in &mut symbols.modules {
            module.instance = self.instance(module.instance, merger)?;
        }
        merger.write(&symbols.to_block())
    }
}

/// A decoded block that borrows nothing.
enum Owned {
    Modules(Vec<Module>),
    Threads(Vec<Thread>),
    Stacks(crate::Stacks),
    AllocClasses(crate::AllocClasses),
    Allocators(crate::Allocators),
    Symbols(Symbols),
    Suppressions(String),
    Samples(Vec<crate::RssSample>),
    Losses(Losses),
    Unseen(Vec<Unseen>),
    Summary(Summary),
    Folded(Box<Folded>),
    Gone(Gone),
    HeapAtAttach(HeapAtAttach),
    Waits(Waits),
    Processes(Processes),
}

fn owned(block: Block) -> Option<Owned> {
    Some(match block {
        Block::Modules(modules) => Owned::Modules(modules),
        Block::Threads(threads) => Owned::Threads(threads),
        Block::Stacks(stacks) => Owned::Stacks(stacks),
        Block::AllocClasses(alloc_classes) => Owned::AllocClasses(alloc_classes),
        Block::Allocators(allocators) => Owned::Allocators(allocators),
        Block::Symbols(symbols) => Owned::Symbols(symbols),
        Block::Suppressions(text) => Owned::Suppressions(text.0),
        Block::Samples(samples) => Owned::Samples(samples),
        Block::Losses(losses) => Owned::Losses(losses),
        Block::Unseen(unseen) => Owned::Unseen(unseen),
        Block::Summary(summary) => Owned::Summary(summary),
        Block::Folded(folded) => Owned::Folded(folded),
        Block::Gone(gone) => Owned::Gone(gone),
        Block::HeapAtAttach(heap) => Owned::HeapAtAttach(heap),
        Block::Waits(waits) => Owned::Waits(waits),
        Block::Processes(processes) => Owned::Processes(processes),
        // The parts of a merged trace's memory are left out: each instant is about one process only.
        Block::Session(_)
        | Block::Events(_)
        | Block::Checkpoint(_)
        | Block::Index(_)
        | Block::OtherDomain(_)
        | Block::MapCalls(_)
        | Block::MemoryMap(_)
        | Block::MemoryParts(_) => {
            return None;
        }
    })
}

/// Skips events.
struct Skip;

impl Visitor for Skip {
    fn alloc(&mut self, _: u64, _: u32) {}
    fn free(&mut self, _: u64, _: Freed) {}
}
