//! Turns ordered events into blocks of the trace.
//!
//! Receives: the merge's events, one after the other. Returns: raw blocks, definitions before the events that use them,
//! or live numbers by site; and the session's totals. Must hold: a free is written as the allocation that it ends; an
//! event takes a few dozen nanoseconds and allocates nothing.
mod followed;

use crate::aggregate::LiveSite;
use crate::blocks::{Block, Blocks};
use crate::clock::Timeline;
use crate::domain_recorder::DomainRecorder;
use crate::heaps::Heaps;
use crate::mapped::MappedRecorder;
use crate::mapping::Mapping;
use crate::memory_parts::callers::MappedBy;
use crate::memory_parts::{BORN_UNIT, LiveBlock};
use crate::merge::{Consumer, Item, NumberSource, RecentFrees, Verdict, take_each};
use crate::modules::Modules;
use crate::numbering::{Definitions, Numbering};
use crate::proc_files::Process;
use crate::sink::Sink;
use crate::threads::Threads;
use crate::tree::Tree;
use channel::{CUSTOM, Event, HeapMark, MapCall, Path, StackId, Stamp, split_size};
use format::{Domain, Frame, MapCalls, Module, RawBlock, Sampling, StackEncoder, Thread, Totals};
use std::collections::HashMap;
use std::sync::Arc;

pub struct Recorder {
    mapping: Arc<Mapping>,
    pub timeline: Timeline,
    pub process: Process,
    malloc: DomainRecorder,
    custom: DomainRecorder,
    mapped: MappedRecorder,
    numbering: Numbering,
    /// What `numbering` lists, until it is learnt.
    definitions: Definitions,
    stacks: StackEncoder,
    /// The blocks of both domains; a bit of the address tells which.
    blocks: Blocks,
    heaps: Heaps,
    /// Blocks of the trace that had to be taken in the middle of a round.
    early: Vec<RawBlock>,
    threads: Threads,
    modules: Modules,
    new_modules: Vec<Module>,
    /// The processes, if a tree is followed.
    tree: Option<Box<Tree>>,
    /// By path and build-id: the number of a file that a process of the tree mapped.
    files: HashMap<(String, Vec<u8>), u16>,
}

impl Recorder {
    pub fn new(mapping: Arc<Mapping>, timeline: Timeline, process: Process, launched: String, sink: Sink) -> Self {
        let numbering = if sink.is_live() { Numbering::unwritten() } else { Numbering::written() };
        Recorder {
            mapping,
            timeline,
            process,
            malloc: DomainRecorder::new(Domain::Malloc, sink),
            custom: DomainRecorder::new(Domain::Custom, Sink::trace()),
            mapped: MappedRecorder::new(),
            numbering,
            definitions: Definitions::default(),
            stacks: StackEncoder::new(),
            blocks: Blocks::new(),
            heaps: Heaps::default(),
            early: Vec::new(),
            threads: Threads::default(),
            modules: Modules::new(launched),
            new_modules: Vec::new(),
            tree: None,
            files: HashMap::new(),
        }
    }

    /// Malloc's totals up to the last event; `leaked_*` is what is live.
    pub fn totals(&self) -> Totals {
        self.malloc.totals()
    }

    /// An estimate of malloc's live bytes, if blocks are sampled.
    pub fn live_estimate(&self, sampling: &Sampling) -> u64 {
        self.malloc.live_estimate(sampling)
    }

    /// The totals of the blocks that the program reported itself, or `None` if it reported nothing.
    pub fn custom_totals(&self) -> Option<Totals> {
        let totals = self.custom.totals();
        (totals.allocations > 0 || totals.unknown_frees > 0).then_some(totals)
    }

    /// The totals of the program's own mappings, or `None` if it made none.
    pub fn mapped_totals(&self) -> Option<Totals> {
        self.mapped.totals()
    }

    /// How often the program called mmap and its relatives.
    pub fn map_calls(&self) -> Vec<MapCalls> {
        self.mapped.calls()
    }

    /// Events of all kinds so far, without those of mappings.
    pub const fn event_count(&self) -> u64 {
        self.malloc.event_count() + self.custom.event_count()
    }

    pub fn has_pending(&self) -> bool {
        self.malloc.has_pending()
            || self.custom_totals().is_some() && self.custom.has_pending()
            || self.mapped.is_used() && self.mapped.domain.has_pending()
            || !self.early.is_empty()
            || self.tree.as_ref().is_some_and(|tree| tree.has_new())
    }

    pub const fn corrupt_stacks(&self) -> u64 {
        self.numbering.stacks.corrupt()
    }

    /// Takes the numbering out, so that another thread can use it. Until it is returned, numbers come through `learn`.
    pub fn lend_numbering(&mut self) -> Numbering {
        std::mem::replace(&mut self.numbering, Numbering::unwritten())
    }

    pub fn return_numbering(&mut self, numbering: Numbering) {
        self.numbering = numbering;
    }

    /// Takes note of definitions. Must be called before events that refer to them are taken.
    pub fn learn(&mut self, definitions: &mut Definitions) {
        for (parent, frame) in definitions.nodes.drain(..) {
            self.stacks.push(parent, Frame(frame));
        }
        let [malloc, custom] = &mut definitions.alloc_classes;
        self.add_code_modules(&mut definitions.code_modules);
        malloc.drain(..).for_each(|(size, stack)| self.malloc.define(size, stack));
        custom.drain(..).for_each(|(size, stack)| self.custom.define(size, stack));
    }

    /// Learns what our own numbering lists.
    #[cold]
    #[inline(never)]
    fn learn_own(&mut self) {
        let mut definitions = std::mem::take(&mut self.definitions);
        self.numbering.take_new(&mut definitions);
        self.learn(&mut definitions);
        self.definitions = definitions;
    }

    /// Reads new modules. Must be called after rings were copied and before their events are merged.
    pub fn read_modules(&mut self) {
        if self.tree.is_some() {
            return self.read_modules_of_all();
        }
        self.new_modules.extend_from_slice(self.modules.loaded(&self.mapping.region(), &self.timeline, &self.process));
    }

    /// Reads what changes rarely: unloaded modules, and names of threads.
    pub fn refresh(&mut self) {
        let (process, tree) = (&self.process, &self.tree);
        let of_tree = |number| tree.as_ref().and_then(|tree| tree.get(number)).map(|running| &running.files);
        self.threads.refresh_names(|number| if number == 0 { Some(process) } else { of_tree(number) });
        if self.tree.is_none() {
            self.new_modules.extend(self.modules.unloaded(&self.mapping.region(), &self.timeline));
        }
    }

    /// How often blocks were freed with their heap of which it is not known which they were.
    pub const fn unknown_heap_ends(&self) -> u64 {
        self.heaps.unknown()
    }

    /// Takes all pending blocks, in the order in which they must be in the file.
    pub fn take_blocks(&mut self, mut put: impl FnMut(RawBlock)) {
        self.early.drain(..).for_each(&mut put);
        self.learn_own();
        if !self.new_modules.is_empty() {
            put(Module::to_block(&self.new_modules));
            self.new_modules.clear();
        }
        let processes = self.tree.as_mut().map(|tree| tree.take_new()).unwrap_or_default();
        if !processes.is_empty() {
            put(processes.to_block());
        }
        let threads = self.threads.take();
        if !threads.is_empty() {
            put(Thread::to_block(&threads));
        }
        if !self.stacks.is_empty() {
            put(self.stacks.take());
        }
        self.malloc.take_blocks(&mut put);
        // Most programs report no blocks themselves. Their files have none of the custom kinds.
        if self.custom_totals().is_some() {
            self.custom.take_blocks(&mut put);
        }
        if self.mapped.is_used() {
            self.mapped.domain.take_blocks(&mut put);
        }
    }

    /// For the live front end: starts again, as if the target had started now.
    pub fn new_window(&mut self) {
        self.malloc.new_window();
        self.blocks.clear();
        self.heaps.clear();
    }

    /// For the live front end: frees memory when there are many stacks. The merge must hold no event.
    pub fn compact(&mut self) {
        if self.malloc.is_live() {
            self.numbering.stacks.compact();
            self.malloc.stacks_moved();
        }
    }

    /// For the live front end: returns all sites with live blocks.
    pub fn live_sites(&self) -> Vec<LiveSite> {
        self.malloc.live_sites(&self.blocks)
    }

    /// Returns a number for the program that runs in a process. It changes with an exec.
    pub fn program_of(&self, pid: u32) -> Option<u32> {
        match &self.tree {
            None => Some(self.malloc.image()),
            Some(tree) => tree.find(pid).map(u32::from),
        }
    }

    /// Visits some of malloc's live blocks of a process, with their sizes and stacks, as `Blocks::visit_some` does. Without a tree there is only one
    /// process.
    pub fn visit_blocks(&self, pid: u32, from: u64, most: usize, mut look: impl FnMut(LiveBlock)) -> Option<u64> {
        let blocks = match &self.tree {
            None => &self.blocks,
            Some(tree) => tree.find(pid).and_then(|number| tree.holdings.blocks_of(number.into()))?,
        };
        blocks.visit_some(from, most, |address, block| {
            if address & CUSTOM == 0 {
                let (size, stack) = (self.malloc.size(block.alloc_class), self.malloc.stack(block.alloc_class));
                let born = (block.sequence / BORN_UNIT) as u32;
                look(LiveBlock { address, size, stack, born });
            }
        })
    }

    /// The number that the next allocation gets.
    pub fn next_sequence(&self) -> u64 {
        self.malloc.next_sequence()
    }

    /// Returns true if the program's blocks are jemalloc's: it calls jemalloc's own functions, or malloc of jemalloc's library.
    pub fn is_jemalloc(&self) -> bool {
        let is_library = |module: &Module| {
            let file = module.path.rsplit('/').next().unwrap_or_default();
            module.unloaded_ns.is_none() && file.starts_with("libjemalloc")
        };
        self.malloc.has_jemalloc() || self.modules().iter().any(is_library)
    }

    /// Some of the mappings that the program made itself, in the order of addresses.
    pub fn mapped_by(&self, most: usize) -> Vec<MappedBy> {
        self.mapped.mappings().take(most).collect()
    }

    /// All modules that were ever loaded.
    pub fn modules(&self) -> &[Module] {
        self.modules.seen()
    }

    #[inline(always)]
    fn domain<const IS_CUSTOM: bool>(&mut self) -> &mut DomainRecorder {
        if IS_CUSTOM { &mut self.custom } else { &mut self.malloc }
    }

    /// Sets the thread and time of the event that is written next.
    #[inline(always)]
    fn context<const IS_CUSTOM: bool>(&mut self, item: &Item) {
        if self.domain::<IS_CUSTOM>().differs(item.source) {
            self.switch::<IS_CUSTOM>(item.source);
        }
        let domain = if IS_CUSTOM { &mut self.custom } else { &mut self.malloc };
        domain.set_time(item.stamp(), &mut self.timeline);
    }

    #[inline(never)]
    fn switch<const IS_CUSTOM: bool>(&mut self, source: u32) {
        let thread = self.thread_of(source);
        self.domain::<IS_CUSTOM>().switch(source, thread);
    }

    /// Returns the thread that writes to a ring.
    fn thread_of(&mut self, source: u32) -> u32 {
        match self.threads.of_slot(source / 2) {
            Some(thread) => thread,
            // The live front end does not number threads, because over a long run the numbers would never end.
            None if self.malloc.is_live() => 0,
            None => self.start_thread(source / 2, u32::MAX, 0),
        }
    }

    /// Takes a call by which the program changed its mappings.
    fn take_map_call(&mut self, call: MapCall, item: &Item) {
        if self.mapped.domain.differs(item.source) {
            let thread = self.thread_of(item.source);
            self.mapped.domain.switch(item.source, thread);
        }
        self.mapped.domain.set_time(item.stamp(), &mut self.timeline);
        self.mapped.take(call, item.plain_address(), split_size(item.size).0, item.number);
    }

    /// `local`: the slot in the process's own shared memory.
    fn start_thread(&mut self, slot: u32, local: u32, tid: u32) -> u32 {
        if self.malloc.is_live() {
            self.malloc.start_thread(slot);
            return 0;
        }
        let image = self.mapping.region().slot(local).map_or(0, |slot| slot.owner().image());
        let name = self.process.thread_name(tid);
        self.malloc.start_thread(slot);
        self.custom.start_thread(slot);
        self.mapped.domain.start_thread(slot);
        self.threads.start(slot, (0, tid), image, name)
    }

    /// Takes an allocation or a free of one domain.
    #[inline(always)]
    fn change<const IS_CUSTOM: bool>(&mut self, item: &Item) -> Verdict {
        if item.is_alloc() {
            let domain = if IS_CUSTOM { &mut self.custom } else { &mut self.malloc };
            if !domain.knows(item.number) {
                self.learn_own();
            }
            let block = self.domain::<IS_CUSTOM>().next_block(item.number);
            if self.blocks.insert(item.address, block).is_err() {
                return Verdict::StillLive;
            }
            self.context::<IS_CUSTOM>(item);
            self.domain::<IS_CUSTOM>().alloc(block);
            if self.heaps.is_used() {
                self.heaps.allocated(item);
            }
        } else {
            let Some(block) = self.blocks.remove(item.address) else { return Verdict::NotLive };
            if self.heaps.is_used() {
                self.heaps.freed(item);
            }
            self.context::<IS_CUSTOM>(item);
            self.domain::<IS_CUSTOM>().free(block, item.is_by_realloc());
        }
        Verdict::Taken
    }

    /// Takes an event of the live front end. Its blocks have the time of their allocation instead of a sequence number.
    #[inline(never)]
    fn take_live(&mut self, item: &Item) -> Verdict {
        match item.event() {
            // It shows malloc's blocks only.
            Event::Alloc { address, .. } | Event::Free { address, .. } if address & CUSTOM != 0 => (),
            Event::Alloc { stamp, address, size, stack } => {
                self.malloc.set_time(stamp, &mut self.timeline);
                let (size, _) = split_size(size);
                let block = self.malloc.live_block(stamp, size, stack, &self.numbering.stacks);
                if self.blocks.insert(address, block).is_err() {
                    return Verdict::StillLive;
                }
                self.context::<false>(item);
                self.malloc.alloc(block);
                if self.heaps.is_used() {
                    self.heaps.allocated(item);
                }
            }
            Event::Free { address, by_realloc, .. } => {
                let Some(block) = self.blocks.remove(address) else { return Verdict::NotLive };
                if self.heaps.is_used() {
                    self.heaps.freed(item);
                }
                self.context::<false>(item);
                self.malloc.free(block, by_realloc);
            }
            _ => self.take_mark(item),
        }
        Verdict::Taken
    }

    #[inline(never)]
    fn take_mark(&mut self, item: &Item) {
        match item.event() {
            Event::ThreadStart { tid, .. } => {
                self.start_thread(item.source / 2, item.size as u32, tid);
                self.context::<false>(item);
            }
            // This event comes before the slot's new thread is known.
            Event::Image { stamp, image } => self.end_image(stamp, image),
            Event::Heap { mark, heap, .. } => self.mark_heap(mark, heap, item),
            Event::Fork { .. } | Event::Exit { .. } => (),
            Event::Alloc { .. } | Event::Free { .. } => (),
        }
    }

    /// A mark about a heap. If the heap ends, its blocks end as if each of them had been freed.
    #[cold]
    fn mark_heap(&mut self, mark: HeapMark, heap: u64, item: &Item) {
        let ended = self.heaps.mark(mark, heap, item);
        let mut blocks: Vec<Block> = ended.iter().filter_map(|address| self.blocks.remove(*address)).collect();
        // In the order of their allocation, so that the file does not depend on the layout of a table.
        blocks.sort_unstable_by_key(|block| block.sequence);
        for block in blocks {
            self.context::<false>(item);
            self.malloc.free(block, false);
            self.make_room();
        }
    }

    /// Takes the blocks of the trace if they are full, because one event can end any number of blocks.
    fn make_room(&mut self) {
        if self.malloc.is_full() && !self.malloc.is_live() {
            let mut early = std::mem::take(&mut self.early);
            self.take_blocks(|block| early.push(block));
            self.early = early;
        }
    }

    /// An event of a block that the program reported itself, or a mark.
    #[inline(never)]
    fn take_rare(&mut self, item: &Item) -> Verdict {
        if let Some(call) = item.map_call() {
            // The processes of a tree share mappings, of which nothing is known here.
            if self.tree.is_none() {
                self.take_map_call(call, item);
            }
            return Verdict::Taken;
        }
        if self.tree.is_some() {
            return self.take_in_tree(item);
        }
        if item.has_block() {
            return self.change::<true>(item);
        }
        self.take_mark(item);
        Verdict::Taken
    }

    /// An exec removed all blocks. `image` is the number of the new image. Numbers only rise; the target may write any
    /// other number, which is ignored.
    pub fn end_image(&mut self, stamp: Stamp, image: u32) {
        if image <= self.malloc.image() {
            return;
        }
        self.blocks.clear();
        self.heaps.clear();
        self.mapped.clear();
        for domain in [&mut self.malloc, &mut self.custom, &mut self.mapped.domain] {
            domain.mark(stamp, &mut self.timeline);
            domain.new_image(image);
        }
    }

    fn force_in<const IS_CUSTOM: bool>(&mut self, item: &Item) {
        self.context::<IS_CUSTOM>(item);
        if item.is_free() {
            self.domain::<IS_CUSTOM>().unknown_free();
            return;
        }
        if let Some(block) = self.blocks.remove(item.address) {
            if self.heaps.is_used() {
                self.heaps.freed(item);
            }
            self.domain::<IS_CUSTOM>().free_implied(block);
        }
        self.take(item);
    }
}

impl NumberSource for Recorder {
    fn define(&mut self, process: u16, source: u32, path: &Path<'_>) {
        self.numbering.define(process, source, path);
    }

    #[inline(always)]
    fn number(&mut self, source: u32, address: u64, size: u64, stack: StackId) -> u32 {
        self.numbering.number(source, address, size, stack)
    }
}

/// How many events ahead their blocks are prefetched: enough to hide a cache miss.
const AHEAD: usize = 16;

impl Consumer for Recorder {
    #[inline]
    fn wants_slices(&self) -> bool {
        self.blocks.is_large()
    }

    #[inline(always)]
    fn take(&mut self, item: &Item) -> Verdict {
        if self.malloc.is_live() {
            self.take_live(item)
        } else if item.is_mallocs() {
            self.change::<false>(item)
        } else {
            self.take_rare(item)
        }
    }

    #[inline(never)]
    fn take_all(&mut self, items: &[Item], frees: &mut RecentFrees) -> (usize, Verdict) {
        if self.tree.is_some() {
            return self.take_all_in_tree(items, frees);
        }
        if !self.blocks.is_large() {
            return take_each(items, frees, |item| self.take(item));
        }
        let mut ahead = items.iter().skip(AHEAD);
        take_each(items, frees, |item| {
            if let Some(item) = ahead.next() {
                self.blocks.prefetch(item.address);
            }
            self.take(item)
        })
    }

    #[inline]
    fn is_full(&self) -> bool {
        let is_full = self.malloc.is_full() || self.custom.is_full() || self.mapped.domain.is_full();
        is_full || self.malloc.is_live() && self.numbering.stacks.wants_compact()
    }

    #[cold]
    fn force(&mut self, item: &Item) {
        if self.tree.is_some() {
            if item.is_custom() { self.force_in_tree::<true>(item) } else { self.force_in_tree::<false>(item) }
        } else if item.is_custom() {
            self.force_in::<true>(item);
        } else {
            self.force_in::<false>(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::mapping::tests::tight;
    use crate::merge::Origin;
    use std::time::Instant;

    /// Regression test of a finding by `fuzz/targets/ring.rs`: the totals forgot the blocks, and the trace kept them.
    #[test]
    fn an_image_whose_number_does_not_rise_ends_nothing() {
        let mapping = Arc::new(Mapping::create(&tight()).unwrap());
        let timeline = Timeline::new(channel::Clock::Ticks, Instant::now(), mapping.region().header());
        let mut recorder = Recorder::new(mapping, timeline, Process::new(0), String::new(), Sink::trace());
        assert_eq!(recorder.number(0, 0x10, 8, 0), 0, "the class of all allocations below");
        let mut take = |event| {
            assert_eq!(recorder.take(&Item::new(&event, 0, Origin::default())), Verdict::Taken);
            recorder.totals().leaked_allocations
        };
        assert_eq!(take(Event::Alloc { stamp: 1, address: 0x10, size: 8, stack: 0 }), 1);
        assert_eq!(take(Event::Image { stamp: 2, image: 0 }), 1);
        assert_eq!(take(Event::Image { stamp: 3, image: 2 }), 0);
        assert_eq!(take(Event::Alloc { stamp: 4, address: 0x10, size: 8, stack: 0 }), 1);
        assert_eq!((take(Event::Image { stamp: 5, image: 2 }), take(Event::Image { stamp: 6, image: 1 })), (1, 1));
    }

    /// The stream of blocks that programs report themselves is written only if there are any. It was filled with the ends of
    /// processes, and after 19,000 of them the recorder waited for room in it for ever.
    #[test]
    fn ends_of_processes_leave_room() {
        let mapping = Arc::new(Mapping::create(&tight()).unwrap());
        let timeline = Timeline::new(channel::Clock::Ticks, Instant::now(), mapping.region().header());
        let mut recorder = Recorder::new(Arc::clone(&mapping), timeline, Process::new(0), String::new(), Sink::trace());
        recorder.follow();
        for pid in 1..=20_000 {
            let joining = crate::tree::Joining {
                pid,
                parent_pid: 0,
                fork: 0,
                start: format::ProcessStart::Spawned,
                command: Vec::new(),
                exe: String::new(),
                mapping: Arc::clone(&mapping),
                files: Process::new(pid),
            };
            let number = recorder.join(joining).unwrap();
            recorder.tree.as_mut().unwrap().add_thread(number, pid);
            recorder.end_process(number, false, format::Exit::Unknown, u64::from(pid) * 1_000_000);
            if recorder.is_full() {
                recorder.take_blocks(drop);
            }
            assert!(!recorder.is_full(), "after {pid} processes");
        }
    }
}
