//! The events of one domain on their way into a trace or into live numbers. Each domain has its own allocation classes,
//! sequence numbers and totals.
//!
//! Receives: allocations and frees of one domain, in order, with their blocks. Returns: raw blocks of that domain, or
//! live sites (`sink.rs`). Must hold: the events of one domain change no number of the other.
use crate::aggregate::LiveSite;
use crate::alloc_classes::AllocClasses;
use crate::blocks::{Block, Blocks};
use crate::clock::Timeline;
use crate::sink::{Freed, Sink};
use crate::stacks::Stacks;
use channel::{AllocatorId, Stamp, split_size};
use format::{Checkpoint, Domain, PeakTracker, RawBlock, Sampling, Totals};

/// Time marks are at least this far apart.
const MARK_NS: u64 = 100_000;
/// If stamps count events and not time, time marks are this many stamps apart.
const MARK_TICKS: u64 = 256;
/// Checkpoints are at least this many events apart, and so far apart that writing them costs little compared with the
/// events.
const CHECKPOINT_EVENTS: u64 = 4 << 20;
const CHECKPOINT_EVENTS_PER_ALLOC_CLASS: u64 = 64;
/// Raw bytes of events in a block. The first blocks are small, so that a small disk holds at least some events.
const FIRST_BLOCK_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 512 << 10;
const NO_SOURCE: u32 = u32::MAX;
const NO_SEQUENCE: u64 = u64::MAX;

pub struct DomainRecorder {
    domain: Domain,
    sink: Sink,
    alloc_classes: AllocClasses,
    /// The sequence number of the last allocation, by slot.
    last_alloc: Vec<u64>,
    /// The ring whose events are being written.
    source: u32,
    slot: usize,
    next_mark: Stamp,
    now_ns: u64,
    image: u32,
    heap: PeakTracker,
    /// All totals but those of `heap` and of the sink.
    totals: Totals,
    /// Blocks that processes had not freed when they ended, and their bytes.
    left: (u64, u64),
    /// Events in blocks that were taken already.
    taken: u64,
    next_checkpoint: u64,
    block_bytes: usize,
    has_jemalloc: bool,
}

impl DomainRecorder {
    pub fn new(domain: Domain, sink: Sink) -> Self {
        DomainRecorder {
            domain,
            sink,
            alloc_classes: AllocClasses::default(),
            last_alloc: vec![NO_SEQUENCE],
            source: NO_SOURCE,
            slot: 0,
            next_mark: 0,
            now_ns: 0,
            image: 0,
            heap: PeakTracker::default(),
            totals: Totals::default(),
            left: (0, 0),
            taken: 0,
            next_checkpoint: CHECKPOINT_EVENTS,
            block_bytes: FIRST_BLOCK_BYTES,
            has_jemalloc: false,
        }
    }

    /// Returns the totals up to the last event; `leaked_*` is what is live.
    pub fn totals(&self) -> Totals {
        let totals = self.heap.fill(self.totals);
        Totals {
            allocations: self.sink.allocations(),
            leaked_allocations: totals.leaked_allocations + self.left.0,
            leaked_bytes: totals.leaked_bytes.saturating_add(self.left.1),
            ..totals
        }
    }

    /// The live bytes that the blocks that were taken stand for.
    pub fn live_estimate(&self, sampling: &Sampling) -> u64 {
        let live = self.alloc_classes.usage().iter().filter(|usage| usage.live > 0);
        let bytes = live.map(|usage| usage.live.saturating_mul(sampling.bytes_of_one(usage.size)));
        bytes.fold(0, u64::saturating_add)
    }

    /// The sequence number that the next allocation gets.
    pub fn next_sequence(&self) -> u64 {
        self.sink.allocations()
    }

    /// The time of the last event, as the file stores it.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The size of the blocks of an allocation class.
    pub fn size(&self, alloc_class: u32) -> u64 {
        self.alloc_classes.size(alloc_class)
    }

    /// The stack of the blocks of an allocation class.
    pub fn stack(&self, alloc_class: u32) -> u32 {
        self.alloc_classes.stack(alloc_class)
    }

    /// Returns true if a block was allocated by a function of jemalloc.
    pub const fn has_jemalloc(&self) -> bool {
        self.has_jemalloc
    }

    /// The number of the current program image.
    pub const fn image(&self) -> u32 {
        self.image
    }

    pub const fn is_live(&self) -> bool {
        self.sink.is_live()
    }

    /// Events of all kinds so far.
    pub const fn event_count(&self) -> u64 {
        self.taken + self.sink.events()
    }

    pub fn has_pending(&self) -> bool {
        matches!(&self.sink, Sink::Trace(trace) if !trace.events.is_empty())
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        matches!(&self.sink, Sink::Trace(trace) if trace.events.len() >= self.block_bytes)
    }

    /// Takes all pending blocks, in the order in which they must be in the file. The stacks must be written before
    /// them.
    pub fn take_blocks(&mut self, put: &mut impl FnMut(RawBlock)) {
        let is_full = self.is_full();
        let Sink::Trace(trace) = &mut self.sink else { return };
        if !trace.alloc_classes.is_empty() {
            put(trace.alloc_classes.take().of(self.domain));
        }
        // The program's own reports have no allocator, so there is no such block in the custom domain.
        if !trace.allocators.is_empty() {
            put(std::mem::take(&mut trace.allocators).to_block());
        }
        if !trace.events.is_empty() {
            self.block_bytes = if is_full { (self.block_bytes * 2).min(BLOCK_BYTES) } else { self.block_bytes };
            self.taken += trace.events.events();
            put(trace.events.take().of(self.domain));
        }
        if self.taken >= self.next_checkpoint {
            put(self.checkpoint().of(self.domain));
        }
    }

    fn checkpoint(&mut self) -> RawBlock {
        let distance = CHECKPOINT_EVENTS.max(self.alloc_classes.len() as u64 * CHECKPOINT_EVENTS_PER_ALLOC_CLASS);
        self.next_checkpoint = self.taken + distance;
        let checkpoint = Checkpoint {
            events: self.taken,
            next_sequence: self.sink.allocations(),
            time_ns: self.now_ns,
            image: self.image,
            totals: self.totals(),
            live: self.alloc_classes.live(),
            blocks: None,
        };
        checkpoint.to_block()
    }

    /// Returns true if an event of `source` comes from another ring than the last event. The caller must then call
    /// `switch`.
    #[inline(always)]
    pub fn differs(&self, source: u32) -> bool {
        source != self.source
    }

    pub fn switch(&mut self, source: u32, thread: u32) {
        self.source = source;
        self.slot = source as usize / 2;
        if self.last_alloc.len() <= self.slot {
            self.last_alloc.resize(self.slot + 1, NO_SEQUENCE);
        }
        self.sink.thread(thread);
    }

    /// Must be called when another thread has taken the slot.
    pub fn start_thread(&mut self, slot: u32) {
        if let Some(last) = self.last_alloc.get_mut(slot as usize) {
            *last = NO_SEQUENCE;
        }
        self.source = NO_SOURCE;
    }

    #[inline(always)]
    pub fn set_time(&mut self, stamp: Stamp, timeline: &mut Timeline) {
        if stamp >= self.next_mark {
            self.mark(stamp, timeline);
        }
    }

    #[cold]
    pub fn mark(&mut self, stamp: Stamp, timeline: &mut Timeline) {
        let ns = timeline.advance(stamp);
        self.sink.time(stamp, ns, timeline.stamps_in(1_000_000));
        // As coarse as the file stores it, so that a replay finds the same time of the peak.
        self.now_ns = ns - ns % MARK_NS;
        let step = timeline.stamps_in(MARK_NS);
        self.next_mark = stamp.saturating_add(if step == 0 { MARK_TICKS } else { step });
    }

    /// Takes note of the next allocation class. `size` includes the allocator, as in a decoded event.
    pub fn define(&mut self, size: u64, stack: u32) {
        if let Sink::Trace(trace) = &mut self.sink {
            let (size, allocator) = split_size(size);
            let index = trace.alloc_classes.push(size, stack);
            self.has_jemalloc |= allocator == AllocatorId::Jemalloc as u8;
            if let Some(allocator) = AllocatorId::ALL.get(allocator as usize).filter(|id| **id != AllocatorId::Malloc) {
                trace.allocators.push(allocator.name(), index);
            }
            self.alloc_classes.define(size, stack, index);
        }
    }

    /// Returns the allocation class of a pair, and defines it if it is new. For a domain whose classes no `Numbering` numbers.
    pub fn class_of(&mut self, size: u64, stack: u32) -> u32 {
        self.alloc_classes.find(size, stack).unwrap_or_else(|| {
            let index = self.alloc_classes.len() as u32;
            if let Sink::Trace(trace) = &mut self.sink {
                trace.alloc_classes.push(size, stack);
            }
            self.alloc_classes.add(size, stack, index);
            index
        })
    }

    /// Returns the block that an allocation of this class would become.
    #[inline(always)]
    pub fn next_block(&self, alloc_class: u32) -> Block {
        Block { sequence: self.sink.allocations(), alloc_class }
    }

    /// For the live front end: returns the block that an allocation would become.
    pub fn live_block(&mut self, stamp: Stamp, size: u64, stack: u32, stacks: &Stacks) -> Block {
        let Sink::Live(live) = &mut self.sink else { return Block { sequence: 0, alloc_class: 0 } };
        let site = live.site_of(stack, stacks, &mut self.alloc_classes);
        let alloc_class = match self.alloc_classes.find(size, site) {
            Some(alloc_class) => alloc_class,
            None => live.new_alloc_class(&mut self.alloc_classes, size, site),
        };
        Block { sequence: live.birth(stamp), alloc_class }
    }

    /// True if the allocation class was defined.
    #[inline(always)]
    pub const fn knows(&self, alloc_class: u32) -> bool {
        (alloc_class as usize) < self.alloc_classes.len()
    }

    #[inline(always)]
    pub fn alloc(&mut self, block: Block) {
        let Some(usage) = self.alloc_classes.usage_mut(block.alloc_class) else { return };
        usage.live += 1;
        let size = usage.size;
        self.sink.alloc(block.alloc_class, size);
        if let Some(last) = self.last_alloc.get_mut(self.slot) {
            *last = block.sequence;
        }
        self.totals.allocated_bytes = self.totals.allocated_bytes.wrapping_add(size);
        self.heap.alloc_at(size, self.now_ns);
    }

    /// Returns true if the block was temporary.
    #[inline(always)]
    pub fn free(&mut self, block: Block, by_realloc: bool) -> bool {
        let is_temporary = !by_realloc && self.last_alloc.get(self.slot) == Some(&block.sequence);
        self.totals.temporary += is_temporary as u64;
        self.forget(block, if by_realloc { Freed::ByRealloc } else { Freed::Called });
        is_temporary
    }

    /// A process freed a block that another process still holds.
    pub fn release(&mut self, block: Block) {
        self.sink.release(block);
    }

    /// A block ended with its process.
    pub fn ended(&mut self, block: Block, how: format::Freed) {
        let size = self.size(block.alloc_class);
        if let Some(usage) = self.alloc_classes.usage_mut(block.alloc_class) {
            usage.live = usage.live.wrapping_sub(1);
        }
        self.heap.free(size);
        self.totals.deallocations += how.is_by_program() as u64;
        if how == format::Freed::Leaked {
            self.left = (self.left.0 + 1, self.left.1.saturating_add(size));
        }
        self.sink.ended(block, how);
    }

    /// The events that follow belong to this thread, until an event of a ring comes.
    pub fn set_thread(&mut self, thread: u32) {
        self.source = NO_SOURCE;
        self.sink.thread(thread);
    }

    /// Removes a block from all counts of live blocks.
    #[inline(always)]
    fn forget(&mut self, block: Block, how: Freed) {
        if let Some(usage) = self.alloc_classes.usage_mut(block.alloc_class) {
            usage.live = usage.live.wrapping_sub(1);
            self.heap.free(usage.size);
            self.sink.free(block, usage.size, how);
        }
        self.totals.deallocations += 1;
    }

    /// Ends a block whose free was not seen, because its address was allocated again.
    pub fn free_implied(&mut self, block: Block) {
        self.totals.implied_frees += 1;
        self.forget(block, Freed::Implied);
    }

    pub fn unknown_free(&mut self) {
        self.sink.unknown_free();
        self.totals.unknown_frees += 1;
    }

    /// Starts a new image: an `exec` has removed all blocks.
    pub fn new_image(&mut self, image: u32) {
        self.image = image;
        self.sink.image(image);
        self.forget_all();
    }

    /// Forgets all live blocks.
    fn forget_all(&mut self) {
        if self.sink.is_live() {
            self.alloc_classes = AllocClasses::default();
        }
        self.alloc_classes.clear_live();
        self.heap.free_all();
        self.last_alloc.fill(NO_SEQUENCE);
    }

    /// For the live front end: starts again, as if the target had started now.
    pub fn new_window(&mut self) {
        if let Sink::Live(live) = &mut self.sink {
            live.clear();
            self.forget_all();
            self.heap = PeakTracker::default();
            self.totals = Totals::default();
        }
    }

    /// For the live front end: the stacks have new ids.
    pub fn stacks_moved(&mut self) {
        if let Sink::Live(live) = &mut self.sink {
            live.stacks_moved();
        }
    }

    /// For the live front end: returns all sites with live blocks.
    pub fn live_sites(&self, blocks: &Blocks) -> Vec<LiveSite> {
        self.sink.live().map(|live| live.live(blocks)).unwrap_or_default()
    }
}
