//! The recorder of a followed tree of processes.
//!
//! Receives: events of all processes, in one order. Returns: the same stream as for one process, with an entry for each process. Must
//! hold: a block is freed in the stream when the last process lets go of it.
use super::{AHEAD, Recorder};
use crate::holdings::LetGo;
use crate::merge::{Consumer, Item, RecentFrees, Verdict, take_each};
use crate::tree::{Joining, Now, Number};
use channel::{Event, HeapMark, Stamp};
use format::{Exit, Module};

impl Recorder {
    /// All processes are recorded. The first one joins next.
    pub fn follow(&mut self) {
        self.tree = Some(Box::default());
        self.numbering.stacks.translate();
    }

    /// Returns the number of the process.
    pub fn join(&mut self, joining: Joining) -> Option<Number> {
        let number = self.tree.as_mut()?.join(joining)?;
        // Another process may have had the number before.
        self.forget_rings(number, std::iter::empty());
        self.heaps.forget_process(number);
        Some(number)
    }

    /// Takes the processes whose pid became known and that have no shared memory yet.
    pub fn take_new_pids(&mut self) -> Vec<(Number, u32)> {
        self.tree.as_mut().map(|tree| tree.take_new_pids()).unwrap_or_default()
    }

    fn now(&self) -> Now {
        Now {
            next: [self.malloc.next_sequence(), self.custom.next_sequence()],
            events: self.malloc.event_count(),
            ns: self.malloc.now_ns(),
        }
    }

    /// Reads the modules of all processes. A file that several processes mapped is one module.
    pub(super) fn read_modules_of_all(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        for (number, running) in tree.running_mut() {
            let Some(mapping) = &running.mapping else { continue };
            let loaded = running.modules.loaded(&mapping.region(), &self.timeline, &running.files);
            for module in loaded {
                let file = (module.path.clone(), module.build_id.clone());
                let known = self.files.get(&file).copied();
                let Some(instance) = known.or_else(|| self.numbering.stacks.new_instance()) else { continue };
                self.numbering.stacks.set_instance(number, module.instance, instance);
                if known.is_none() {
                    self.files.insert(file, instance);
                    self.new_modules.push(Module { instance, image: 1, ..module.clone() });
                }
            }
        }
    }

    /// Adds modules for code that belongs to no module of its process.
    pub(super) fn add_code_modules(&mut self, new: &mut Vec<(u16, Number)>) {
        for (instance, number) in new.drain(..) {
            let pid = self.tree.as_ref().and_then(|tree| tree.get(number)).map_or(0, |running| running.pid());
            let path = format!("[code of process {pid}]");
            self.new_modules.push(Module { instance, image: 1, path, end: 1 << 47, ..Module::default() });
        }
    }

    /// Takes an event of a process of the tree.
    #[inline(never)]
    pub(super) fn take_in_tree(&mut self, item: &Item) -> Verdict {
        let number = item.process() as Number;
        if !item.has_block() {
            self.take_mark_in_tree(item, number);
            return Verdict::Taken;
        }
        if !self.tree.as_ref().is_some_and(|tree| tree.is_started(number)) {
            self.start_process(number, item.stamp());
        }
        if item.is_custom() {
            self.change_in_tree::<true>(item, number)
        } else {
            self.change_in_tree::<false>(item, number)
        }
    }

    /// Takes many events. Blocks in large tables are prefetched.
    pub(super) fn take_all_in_tree(&mut self, items: &[Item], frees: &mut RecentFrees) -> (usize, Verdict) {
        let mut ahead = items.iter().skip(AHEAD);
        take_each(items, frees, |item| {
            if let (Some(item), Some(tree)) = (ahead.next(), &self.tree) {
                tree.holdings.prefetch(item.process(), item.plain_address());
            }
            self.take(item)
        })
    }

    #[inline(always)]
    fn change_in_tree<const IS_CUSTOM: bool>(&mut self, item: &Item, number: Number) -> Verdict {
        if item.is_free() {
            let holdings = self.tree.as_mut().map(|tree| &mut tree.holdings);
            let let_go = holdings.and_then(|holdings| holdings.free(number as usize, item.plain_address()));
            let Some(let_go) = let_go else { return Verdict::NotLive };
            if self.heaps.is_used() {
                self.heaps.freed(item);
            }
            self.context::<IS_CUSTOM>(item);
            self.let_go::<IS_CUSTOM>(number, &let_go, item.is_by_realloc());
            return Verdict::Taken;
        }
        if !self.domain::<IS_CUSTOM>().knows(item.number) {
            self.learn_own();
        }
        let block = self.domain::<IS_CUSTOM>().next_block(item.number);
        let holdings = self.tree.as_mut().map(|tree| &mut tree.holdings);
        if holdings.is_some_and(|holdings| holdings.alloc(number as usize, item.plain_address(), block).is_err()) {
            return Verdict::StillLive;
        }
        self.context::<IS_CUSTOM>(item);
        self.domain::<IS_CUSTOM>().alloc(block);
        if !IS_CUSTOM {
            let (size, now_ns) = (self.malloc.size(block.alloc_class), self.malloc.now_ns());
            if let Some(running) = self.tree.as_mut().and_then(|tree| tree.get_mut(number)) {
                running.alloc(size, now_ns);
            }
        }
        if self.heaps.is_used() {
            self.heaps.allocated(item);
        }
        Verdict::Taken
    }

    /// A mark about a heap of a process. If the heap ends, the process lets go of its blocks.
    #[cold]
    fn mark_heap_in_tree(&mut self, mark: HeapMark, heap: u64, item: &Item, number: Number) {
        let ended = self.heaps.mark(mark, heap, item);
        let Some(tree) = &mut self.tree else { return };
        let plain = ended.iter().map(|address| address & ((1 << 48) - 1));
        let mut all: Vec<LetGo> = plain.filter_map(|address| tree.holdings.free(number as usize, address)).collect();
        all.sort_unstable_by_key(|let_go| let_go.block.sequence);
        for let_go in all {
            self.context::<false>(item);
            self.let_go::<false>(number, &let_go, false);
            self.make_room();
        }
    }

    #[inline(always)]
    fn let_go<const IS_CUSTOM: bool>(&mut self, number: Number, let_go: &LetGo, by_realloc: bool) {
        let LetGo { block, is_own, is_last, .. } = *let_go;
        let domain = self.domain::<IS_CUSTOM>();
        let is_temporary = if is_last {
            domain.free(block, by_realloc)
        } else {
            domain.release(block);
            false
        };
        if !IS_CUSTOM {
            let size = self.malloc.size(block.alloc_class);
            if let Some(running) = self.tree.as_mut().and_then(|tree| tree.get_mut(number)) {
                running.free(size, is_own, is_temporary);
            }
        }
    }

    fn take_mark_in_tree(&mut self, item: &Item, number: Number) {
        match item.event() {
            Event::ThreadStart { stamp, tid } => {
                self.start_process(number, stamp);
                self.start_thread_in_tree(item, number, tid);
                self.context::<false>(item);
            }
            Event::Fork { stamp, fork, pid } => {
                self.malloc.set_time(stamp, &mut self.timeline);
                let now = self.now();
                let over = self.tree.as_mut().and_then(|tree| tree.fork(number, fork, pid, now));
                if let Some(over) = over {
                    self.release_all(over, true, stamp);
                    self.tree.iter_mut().for_each(|tree| tree.remove(over));
                }
            }
            Event::Exit { stamp, code } => {
                self.start_process(number, stamp);
                self.release_all(number, false, stamp);
                let ns = self.malloc.now_ns();
                self.tree.iter_mut().for_each(|tree| tree.exits(number, ns, code));
            }
            Event::Heap { mark, heap, .. } => self.mark_heap_in_tree(mark, heap, item, number),
            // Every program of a process has shared memory of its own, so each has one image.
            Event::Image { .. } | Event::Alloc { .. } | Event::Free { .. } => (),
        }
    }

    fn start_thread_in_tree(&mut self, item: &Item, number: Number, tid: u32) {
        let slot = item.source / 2;
        let Some(tree) = &mut self.tree else { return };
        let name = tree.get(number).and_then(|running| running.files.thread_name(tid));
        self.malloc.start_thread(slot);
        self.custom.start_thread(slot);
        let thread = self.threads.start(slot, (number, tid), 1, name);
        tree.add_thread(number, thread);
    }

    /// Starts a process at its first event, if it has not started yet. A program that it replaces ends before.
    fn start_process(&mut self, number: Number, stamp: Stamp) {
        let Some(tree) = &mut self.tree else { return };
        if tree.is_started(number) {
            return;
        }
        if let Some(old) = tree.take_replaced(number) {
            self.end_process(old, true, Exit::Unknown, stamp);
        }
        self.malloc.set_time(stamp, &mut self.timeline);
        let now = self.now();
        if let Some(tree) = &mut self.tree {
            tree.start(number, now);
        }
    }

    /// Ends a process, or a program that was replaced with exec. The merge must hold no event of it.
    pub fn end_process(&mut self, number: Number, by_exec: bool, exit: Exit, stamp: Stamp) {
        self.release_all(number, by_exec, stamp);
        let ns = self.malloc.now_ns();
        if let Some(tree) = &mut self.tree {
            tree.end(number, by_exec, exit, ns);
        }
    }

    /// A process lets go of everything that it holds.
    fn release_all(&mut self, number: Number, by_exec: bool, stamp: Stamp) {
        self.malloc.set_time(stamp, &mut self.timeline);
        let Some(tree) = &mut self.tree else { return };
        let thread = tree.get(number).and_then(|running| running.thread);
        let mut ended = Vec::new();
        tree.holdings.end(number as usize, by_exec, |let_go, how| {
            if let_go.is_last {
                ended.push((let_go, how));
            }
        });
        if let Some(thread) = thread {
            self.malloc.set_thread(thread);
        }
        for (let_go, how) in ended {
            if !let_go.is_custom {
                self.malloc.ended(let_go.block, how);
            } else {
                // Not before: most trees have no such block, and then this stream is never written.
                self.custom.set_time(stamp, &mut self.timeline);
                thread.into_iter().for_each(|thread| self.custom.set_thread(thread));
                self.custom.ended(let_go.block, how);
            }
            self.make_room();
        }
    }

    /// The recording is over, and a process ended with it or runs on. What it holds stays live in the trace.
    pub fn finish_process(&mut self, number: Number, exit: Exit) {
        let ns = self.malloc.now_ns();
        if let Some(tree) = &mut self.tree {
            tree.end(number, false, exit, ns);
        }
    }

    /// How the process ended that we launched or attached to, if that is known.
    pub fn exit_of_first(&self) -> Option<Exit> {
        self.tree.as_ref()?.exit_of_first()
    }

    /// Only at the end of a recording do we know how the process ended that we launched.
    pub fn set_exit_of_first(&mut self, exit: Exit) {
        if let Some(tree) = &mut self.tree {
            tree.set_exit_of_first(exit);
        }
    }

    /// A process has ended, and its rings can be given to others.
    pub fn forget_rings(&mut self, number: Number, slots: impl Iterator<Item = u32>) {
        self.numbering.stacks.forget(number, slots.flat_map(|slot| [slot * 2, slot * 2 + 1]));
    }

    /// Takes an event that was refused, because the event that it misses does not come.
    pub(super) fn force_in_tree<const IS_CUSTOM: bool>(&mut self, item: &Item) {
        let number = item.process() as Number;
        self.context::<IS_CUSTOM>(item);
        let running = self.tree.as_mut().and_then(|tree| tree.get_mut(number));
        if item.is_free() {
            running.into_iter().for_each(|running| running.unknown_free());
            self.domain::<IS_CUSTOM>().unknown_free();
            return;
        }
        let holdings = self.tree.as_mut().map(|tree| &mut tree.holdings);
        if let Some(let_go) = holdings.and_then(|holdings| holdings.free(number as usize, item.plain_address())) {
            if self.heaps.is_used() {
                self.heaps.freed(item);
            }
            let size = self.malloc.size(let_go.block.alloc_class);
            if let Some(running) = self.tree.as_mut().and_then(|tree| tree.get_mut(number)).filter(|_| !IS_CUSTOM) {
                running.implied_free(size, let_go.is_own);
            }
            if let_go.is_last {
                self.domain::<IS_CUSTOM>().free_implied(let_go.block);
            } else {
                self.domain::<IS_CUSTOM>().release(let_go.block);
            }
        }
        self.take_in_tree(item);
    }
}
