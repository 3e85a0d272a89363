//! Turns ordered events into blocks of the trace.
//!
//! Receives: the merge's events, one after the other. Returns: raw blocks, definitions before the events that use them,
//! or live numbers by site; and the session's totals. Must hold: a free is written as the allocation that it ends; an
//! event takes a few dozen nanoseconds and allocates nothing.
use crate::aggregate::LiveSite;
use crate::blocks::Blocks;
use crate::clock::Timeline;
use crate::domain_recorder::DomainRecorder;
use crate::mapping::Mapping;
use crate::merge::{Consumer, Item, Verdict};
use crate::modules::Modules;
use crate::proc_files::Process;
use crate::sink::Sink;
use crate::stacks::Stacks;
use crate::threads::Threads;
use channel::{CUSTOM, Event, Path, StackId, Stamp};
use format::{Domain, Module, RawBlock, Thread, Totals};
use std::sync::Arc;

pub struct Recorder {
    mapping: Arc<Mapping>,
    pub timeline: Timeline,
    pub process: Process,
    malloc: DomainRecorder,
    custom: DomainRecorder,
    stacks: Stacks,
    /// The blocks of both domains; a bit of the address tells which.
    blocks: Blocks,
    threads: Threads,
    modules: Modules,
    new_modules: Vec<Module>,
}

impl Recorder {
    pub fn new(mapping: Arc<Mapping>, timeline: Timeline, process: Process, launched: String, sink: Sink) -> Self {
        let stacks = if sink.is_live() { Stacks::unwritten() } else { Stacks::default() };
        Recorder {
            mapping,
            timeline,
            process,
            malloc: DomainRecorder::new(Domain::Malloc, sink),
            custom: DomainRecorder::new(Domain::Custom, Sink::trace()),
            stacks,
            blocks: Blocks::new(),
            threads: Threads::default(),
            modules: Modules::new(launched),
            new_modules: Vec::new(),
        }
    }

    /// Malloc's totals up to the last event; `leaked_*` is what is live.
    pub fn totals(&self) -> Totals {
        self.malloc.totals()
    }

    /// The totals of the blocks that the program reported itself, or `None` if it reported nothing.
    pub fn custom_totals(&self) -> Option<Totals> {
        let totals = self.custom.totals();
        (totals.allocations > 0 || totals.unknown_frees > 0).then_some(totals)
    }

    /// Events of all kinds so far.
    pub const fn event_count(&self) -> u64 {
        self.malloc.event_count() + self.custom.event_count()
    }

    pub fn has_pending(&self) -> bool {
        self.malloc.has_pending() || self.custom_totals().is_some() && self.custom.has_pending()
    }

    pub const fn corrupt_stacks(&self) -> u64 {
        self.stacks.corrupt()
    }

    /// Reads new modules. Must be called after rings were copied and before their events are merged.
    pub fn read_modules(&mut self) {
        self.new_modules.extend_from_slice(self.modules.loaded(&self.mapping.region(), &self.timeline, &self.process));
    }

    /// Reads what changes rarely: unloaded modules, and names of threads.
    pub fn refresh(&mut self) {
        self.new_modules.extend(self.modules.unloaded(&self.mapping.region(), &self.timeline));
        self.threads.refresh_names(&self.process);
    }

    /// Takes all pending blocks, in the order in which they must be in the file.
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
        self.malloc.take_blocks(&mut put);
        // Most programs report no blocks themselves. Their files have none of the custom kinds.
        if self.custom_totals().is_some() {
            self.custom.take_blocks(&mut put);
        }
    }

    /// For the live front end: starts again, as if the target had started now.
    pub fn new_window(&mut self) {
        self.malloc.new_window();
        self.blocks.clear();
    }

    /// For the live front end: frees memory when there are many stacks. The merge must hold no event.
    pub fn compact(&mut self) {
        if self.malloc.is_live() {
            self.stacks.compact();
            self.malloc.stacks_moved();
        }
    }

    /// For the live front end: returns all sites with live blocks.
    pub fn live_sites(&self) -> Vec<LiveSite> {
        self.malloc.live_sites(&self.blocks)
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
        domain.set_time(item.event.stamp(), &mut self.timeline);
    }

    #[inline(never)]
    fn switch<const IS_CUSTOM: bool>(&mut self, source: u32) {
        let thread = match self.threads.of_slot(source / 2) {
            Some(thread) => thread,
            // The live front end does not number threads, because over a long run the numbers would never end.
            None if self.malloc.is_live() => 0,
            None => self.start_thread(source / 2, 0),
        };
        self.domain::<IS_CUSTOM>().switch(source, thread);
    }

    fn start_thread(&mut self, slot: u32, tid: u32) -> u32 {
        if self.malloc.is_live() {
            self.malloc.start_thread(slot);
            return 0;
        }
        let image = self.mapping.region().slot(slot).map_or(0, |slot| slot.owner().image());
        let name = self.process.thread_name(tid);
        self.malloc.start_thread(slot);
        self.custom.start_thread(slot);
        self.threads.start(slot, tid, image, name)
    }

    #[inline(always)]
    fn alloc<const IS_CUSTOM: bool>(&mut self, item: &Item, address: u64, size: u64, stack: u32) -> Verdict {
        let stamp = item.event.stamp();
        let domain = if IS_CUSTOM { &mut self.custom } else { &mut self.malloc };
        if domain.is_live() {
            domain.set_time(stamp, &mut self.timeline);
        }
        let block = domain.next_block(stamp, size, stack, &self.stacks);
        if self.blocks.insert(address, block).is_err() {
            return Verdict::StillLive;
        }
        self.context::<IS_CUSTOM>(item);
        self.domain::<IS_CUSTOM>().alloc(block, size);
        Verdict::Taken
    }

    #[inline(always)]
    fn free<const IS_CUSTOM: bool>(&mut self, item: &Item, address: u64, by_realloc: bool) -> Verdict {
        let Some(block) = self.blocks.remove(address) else { return Verdict::NotLive };
        self.context::<IS_CUSTOM>(item);
        self.domain::<IS_CUSTOM>().free(block, by_realloc);
        Verdict::Taken
    }

    /// Handles an event of a block that the program reported itself, or a mark.
    #[inline(never)]
    fn take_rare(&mut self, item: &Item) -> Verdict {
        match item.event {
            // The live front end shows malloc's blocks only.
            Event::Alloc { .. } | Event::Free { .. } if self.malloc.is_live() => (),
            Event::Alloc { address, size, stack, .. } => return self.alloc::<true>(item, address, size, stack),
            Event::Free { address, by_realloc, .. } => return self.free::<true>(item, address, by_realloc),
            Event::ThreadStart { tid, .. } => {
                self.start_thread(item.source / 2, tid);
                self.context::<false>(item);
            }
            // This event comes before the slot's new thread is known.
            Event::Image { stamp, image } => self.end_image(stamp, image),
        }
        Verdict::Taken
    }

    /// An exec removed all blocks. `image` is the number of the new image. Numbers only rise; the target may write any
    /// other number, which is ignored.
    pub fn end_image(&mut self, stamp: Stamp, image: u32) {
        if image <= self.malloc.image() {
            return;
        }
        self.blocks.clear();
        for domain in [&mut self.malloc, &mut self.custom] {
            domain.mark(stamp, &mut self.timeline);
            domain.new_image(image);
        }
    }

    fn force_in<const IS_CUSTOM: bool>(&mut self, item: &Item) {
        self.context::<IS_CUSTOM>(item);
        match item.event {
            Event::Alloc { address, .. } => {
                if let Some(block) = self.blocks.remove(address) {
                    self.domain::<IS_CUSTOM>().free_implied(block);
                }
                self.take(item);
            }
            Event::Free { .. } => self.domain::<IS_CUSTOM>().unknown_free(),
            _ => (),
        }
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
    fn expect(&self, event: &Event) {
        match *event {
            Event::Alloc { address, size, stack, .. } => {
                self.blocks.prefetch(address);
                self.malloc.expect(size, stack);
            }
            Event::Free { address, .. } => self.blocks.prefetch(address),
            Event::ThreadStart { .. } | Event::Image { .. } => (),
        }
    }

    #[inline(always)]
    fn take(&mut self, item: &Item) -> Verdict {
        match item.event {
            Event::Alloc { address, size, stack, .. } if address & CUSTOM == 0 => {
                self.alloc::<false>(item, address, size, stack)
            }
            Event::Free { address, by_realloc, .. } if address & CUSTOM == 0 => {
                self.free::<false>(item, address, by_realloc)
            }
            _ => self.take_rare(item),
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.malloc.is_full() || self.custom.is_full() || self.malloc.is_live() && self.stacks.wants_compact()
    }

    #[cold]
    fn force(&mut self, item: &Item) {
        match item.event {
            Event::Alloc { address, .. } | Event::Free { address, .. } if address & CUSTOM != 0 => {
                self.force_in::<true>(item);
            }
            _ => self.force_in::<false>(item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::mapping::tests::tight;
    use std::time::Instant;

    /// Regression test of a finding by `fuzz/targets/ring.rs`: the totals forgot the blocks, and the trace kept them.
    #[test]
    fn an_image_whose_number_does_not_rise_ends_nothing() {
        let mapping = Arc::new(Mapping::create(&tight()).unwrap());
        let timeline = Timeline::new(channel::Clock::Ticks, Instant::now(), mapping.region().header());
        let mut recorder = Recorder::new(mapping, timeline, Process::new(0), String::new(), Sink::trace());
        let mut take = |event| {
            assert_eq!(recorder.take(&Item { event, source: 0 }), Verdict::Taken);
            recorder.totals().leaked_allocations
        };
        assert_eq!(take(Event::Alloc { stamp: 1, address: 0x10, size: 8, stack: 0 }), 1);
        assert_eq!(take(Event::Image { stamp: 2, image: 0 }), 1);
        assert_eq!(take(Event::Image { stamp: 3, image: 2 }), 0);
        assert_eq!(take(Event::Alloc { stamp: 4, address: 0x10, size: 8, stack: 0 }), 1);
        assert_eq!((take(Event::Image { stamp: 5, image: 2 }), take(Event::Image { stamp: 6, image: 1 })), (1, 1));
    }
}
