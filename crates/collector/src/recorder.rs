//! Ordered events in, blocks of the trace out.
//!
//! Given: the merge's events, one after the other. Gives back: raw blocks, definitions before the events that use
//! them, or live numbers by site (`sink.rs`), and the session's totals. What must hold: a free is written as the allocation it ends; a few dozen
//! nanoseconds an event; no allocation per event.
use crate::aggregate::LiveSite;
use crate::blocks::{Block, Blocks};
use crate::clock::Timeline;
use crate::infos::Infos;
use crate::merge::{Consumer, Item, Verdict};
use crate::modules::Modules;
use crate::process::Process;
use crate::sink::{Freed, Sink};
use crate::stacks::Stacks;
use crate::threads::Threads;
use channel::{Event, Path, Region, StackId, Stamp};
use format::{Checkpoint, Module, RawBlock, Thread, Totals};
use std::sync::atomic::Ordering;

/// A time mark stands at most this often.
const MARK_NS: u64 = 100_000;
/// Where stamps count events, not time.
const MARK_TICKS: u64 = 256;
/// Checkpoints are at least this many events apart, and so far that writing them costs little beside the events.
const CHECKPOINT_EVENTS: u64 = 4 << 20;
const CHECKPOINT_EVENTS_PER_INFO: u64 = 64;
/// Raw bytes of events in a block: small at first, so that something is in the file even of a small disk.
const FIRST_BLOCK_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 512 << 10;
const NO_SOURCE: u32 = u32::MAX;
const NO_SEQUENCE: u64 = u64::MAX;

pub struct Recorder {
    region: Region,
    pub timeline: Timeline,
    pub process: Process,
    sink: Sink,
    infos: Infos,
    stacks: Stacks,
    blocks: Blocks,
    threads: Threads,
    modules: Modules,
    new_modules: Vec<Module>,
    /// The sequence number of the last allocation, by slot.
    last_alloc: Vec<u64>,
    /// Whose events are being written.
    source: u32,
    slot: usize,
    next_mark: Stamp,
    now_ns: u64,
    image: u32,
    totals: Totals,
    /// Events in blocks that were taken.
    taken: u64,
    next_checkpoint: u64,
    block_bytes: usize,
}

impl Recorder {
    pub fn new(region: Region, timeline: Timeline, process: Process, launched: String, sink: Sink) -> Self {
        let stacks = if sink.is_live() { Stacks::unwritten() } else { Stacks::default() };
        Recorder {
            region,
            timeline,
            process,
            sink,
            infos: Infos::default(),
            stacks,
            blocks: Blocks::new(),
            threads: Threads::default(),
            modules: Modules::new(launched),
            new_modules: Vec::new(),
            last_alloc: vec![NO_SEQUENCE],
            source: NO_SOURCE,
            slot: 0,
            next_mark: 0,
            now_ns: 0,
            image: 0,
            totals: Totals::default(),
            taken: 0,
            next_checkpoint: CHECKPOINT_EVENTS,
            block_bytes: FIRST_BLOCK_BYTES,
        }
    }

    /// Totals up to the last event; `leaked_*` is what lives.
    pub fn totals(&self) -> Totals {
        Totals { allocations: self.sink.allocations(), ..self.totals }
    }

    /// Events of all sorts so far.
    pub const fn event_count(&self) -> u64 {
        self.taken + self.sink.events()
    }

    pub fn has_pending(&self) -> bool {
        matches!(&self.sink, Sink::Trace(trace) if !trace.events.is_empty())
    }

    pub const fn corrupt_stacks(&self) -> u64 {
        self.stacks.corrupt()
    }

    /// Modules that appeared: to be called after rings were copied, before their events are merged.
    pub fn read_modules(&mut self) {
        let loaded = self.modules.loaded(&self.region, &self.timeline, &self.process);
        if !self.sink.is_live() {
            self.new_modules.extend_from_slice(loaded);
        }
    }

    /// What changes rarely: modules that went, threads that named themselves.
    pub fn refresh(&mut self) {
        let unloaded = self.modules.unloaded(&self.region, &self.timeline);
        if self.sink.is_live() {
            return;
        }
        self.new_modules.extend(unloaded);
        self.threads.refresh_names(&self.process);
    }

    /// Takes all that is pending, in the order in which it must stand in the file.
    pub fn take_blocks(&mut self, mut put: impl FnMut(RawBlock)) {
        if !self.new_modules.is_empty() {
            put(Module::to_block(&self.new_modules));
            self.new_modules.clear();
        }
        let threads = self.threads.take();
        if !threads.is_empty() {
            put(Thread::to_block(&threads));
        }
        if let Some(block) = self.stacks.take() {
            put(block);
        }
        let is_full = self.is_full();
        let Sink::Trace(trace) = &mut self.sink else { return };
        if !trace.infos.is_empty() {
            put(trace.infos.take());
        }
        if !trace.events.is_empty() {
            self.block_bytes = if is_full { (self.block_bytes * 2).min(BLOCK_BYTES) } else { self.block_bytes };
            self.taken += trace.events.events();
            put(trace.events.take());
        }
        if self.taken >= self.next_checkpoint {
            put(self.checkpoint());
        }
    }

    /// The live front end: everything is as if the target had started now.
    pub fn new_window(&mut self) {
        if let Sink::Live(live) = &mut self.sink {
            live.clear();
            self.forget_all();
            self.totals = Totals::default();
        }
    }

    /// The live front end: gives memory back when there are many stacks. The merge must hold no event.
    pub fn compact(&mut self) {
        if let Sink::Live(live) = &mut self.sink {
            self.stacks.compact();
            live.stacks_moved();
        }
    }

    /// The live front end: all sites with live blocks.
    pub fn live_sites(&self) -> Vec<LiveSite> {
        self.sink.live().map(|live| live.live(&self.blocks)).unwrap_or_default()
    }

    /// All modules there were.
    pub fn modules(&self) -> &[Module] {
        self.modules.seen()
    }

    fn checkpoint(&mut self) -> RawBlock {
        let distance = CHECKPOINT_EVENTS.max(self.infos.len() as u64 * CHECKPOINT_EVENTS_PER_INFO);
        self.next_checkpoint = self.taken + distance;
        let checkpoint = Checkpoint {
            events: self.taken,
            next_sequence: self.sink.allocations(),
            time_ns: self.now_ns,
            image: self.image,
            totals: self.totals(),
            live: self.infos.live(),
            blocks: None,
        };
        checkpoint.to_block()
    }

    /// Thread and time of the event that is written next.
    #[inline(always)]
    fn context(&mut self, source: u32, stamp: Stamp) {
        if source != self.source {
            self.switch(source);
        }
        if stamp >= self.next_mark {
            self.mark(stamp);
        }
    }

    #[cold]
    fn mark(&mut self, stamp: Stamp) {
        let ns = self.timeline.advance(stamp);
        self.sink.time(stamp, ns, self.timeline.stamps_in(1_000_000));
        // Kept as coarse as the file keeps it, so that a replay finds the same time of the peak.
        self.now_ns = ns - ns % MARK_NS;
        let step = self.timeline.stamps_in(MARK_NS);
        self.next_mark = stamp.saturating_add(if step == 0 { MARK_TICKS } else { step });
    }

    #[inline(never)]
    fn switch(&mut self, source: u32) {
        self.source = source;
        self.slot = source as usize / 2;
        if self.last_alloc.len() <= self.slot {
            self.last_alloc.resize(self.slot + 1, NO_SEQUENCE);
        }
        // Threads have no numbers there, for numbers would never end.
        if self.sink.is_live() {
            return;
        }
        let thread = match self.threads.of_slot(source / 2) {
            Some(thread) => thread,
            None => self.start_thread(source / 2, 0),
        };
        self.sink.thread(thread);
    }

    fn start_thread(&mut self, slot: u32, tid: u32) -> u32 {
        if let Some(last) = self.last_alloc.get_mut(slot as usize) {
            *last = NO_SEQUENCE;
        }
        self.source = NO_SOURCE;
        if self.sink.is_live() {
            return 0;
        }
        let image = self.region.slot(slot).map_or(0, |slot| slot.image.load(Ordering::Relaxed));
        let name = self.process.thread_name(tid);
        self.threads.start(slot, tid, image, name)
    }

    #[cold]
    fn new_info(&mut self, size: u64, key: u32) -> u32 {
        self.sink.new_info(&mut self.infos, size, key)
    }

    #[inline(always)]
    fn alloc(&mut self, item: &Item, address: u64, size: u64, stack: u32) -> Verdict {
        if self.sink.is_live() && item.event.stamp() >= self.next_mark {
            self.mark(item.event.stamp());
        }
        let key = self.sink.key(stack, &self.stacks, &mut self.infos);
        let info = match self.infos.find(size, key) {
            Some(info) => info,
            None => self.new_info(size, key),
        };
        let sequence = self.sink.number(item.event.stamp());
        if self.blocks.insert(address, Block { sequence, info }).is_err() {
            return Verdict::StillLive;
        }
        self.context(item.source, item.event.stamp());
        self.sink.alloc(info, size);
        if let Some(usage) = self.infos.usage_mut(info) {
            usage.live += 1;
        }
        if let Some(last) = self.last_alloc.get_mut(self.slot) {
            *last = sequence;
        }
        let totals = &mut self.totals;
        totals.allocated_bytes += size;
        totals.leaked_allocations += 1;
        totals.leaked_bytes += size;
        if totals.leaked_bytes > totals.peak_bytes {
            totals.peak_bytes = totals.leaked_bytes;
            totals.peak_allocations = totals.leaked_allocations;
            totals.peak_time_ns = self.now_ns;
        }
        Verdict::Taken
    }

    #[inline(always)]
    fn free(&mut self, item: &Item, address: u64, by_realloc: bool) -> Verdict {
        let Some(block) = self.blocks.remove(address) else { return Verdict::NotLive };
        self.context(item.source, item.event.stamp());
        if !by_realloc {
            self.totals.temporary += (self.last_alloc.get(self.slot) == Some(&block.sequence)) as u64;
        }
        self.forget(block, if by_realloc { Freed::ByRealloc } else { Freed::Called });
        Verdict::Taken
    }

    /// Takes a block out of all counts.
    #[inline(always)]
    fn forget(&mut self, block: Block, how: Freed) {
        if let Some(usage) = self.infos.usage_mut(block.info) {
            usage.live = usage.live.wrapping_sub(1);
            self.totals.leaked_bytes -= usage.size;
            self.sink.free(block, usage.size, how);
        }
        self.totals.leaked_allocations -= 1;
        self.totals.deallocations += 1;
    }

    #[cold]
    fn take_mark(&mut self, item: &Item) {
        match item.event {
            Event::ThreadStart { stamp, tid } => {
                self.start_thread(item.source / 2, tid);
                self.context(item.source, stamp);
            }
            // Comes before the slot has said whose it is.
            Event::Image { stamp, image } => {
                self.mark(stamp);
                self.new_image(image);
            }
            _ => (),
        }
    }

    fn new_image(&mut self, image: u32) {
        self.image = image;
        self.sink.image(image);
        self.forget_all();
    }

    /// No block lives, as far as we know.
    fn forget_all(&mut self) {
        self.blocks.clear();
        if self.sink.is_live() {
            self.infos = Infos::default();
        }
        self.infos.clear_live();
        self.totals.leaked_bytes = 0;
        self.totals.leaked_allocations = 0;
        self.last_alloc.fill(NO_SEQUENCE);
    }
}

impl Consumer for Recorder {
    fn define(&mut self, source: u32, path: &Path<'_>) {
        self.stacks.define(source, path);
    }

    #[inline(always)]
    fn stack(&mut self, source: u32, number: StackId) -> u32 {
        self.stacks.id(source, number)
    }

    #[inline]
    fn wants_expect(&self) -> bool {
        self.blocks.is_large()
    }

    #[inline(always)]
    fn expect(&self, address: u64) {
        self.blocks.prefetch(address);
    }

    #[inline(always)]
    fn take(&mut self, item: &Item) -> Verdict {
        if let Event::Alloc { address, size, stack, .. } = item.event {
            return self.alloc(item, address, size, stack);
        }
        if let Event::Free { address, by_realloc, .. } = item.event {
            return self.free(item, address, by_realloc);
        }
        self.take_mark(item);
        Verdict::Taken
    }

    #[inline]
    fn is_full(&self) -> bool {
        match &self.sink {
            Sink::Trace(trace) => trace.events.len() >= self.block_bytes,
            Sink::Live(_) => self.stacks.wants_compact(),
        }
    }

    #[cold]
    fn force(&mut self, item: &Item) {
        self.context(item.source, item.event.stamp());
        match item.event {
            Event::Alloc { address, .. } => {
                if let Some(block) = self.blocks.remove(address) {
                    self.totals.implied_frees += 1;
                    self.forget(block, Freed::Implied);
                }
                self.take(item);
            }
            Event::Free { .. } => {
                self.sink.unknown_free();
                self.totals.unknown_frees += 1;
            }
            _ => (),
        }
    }
}
