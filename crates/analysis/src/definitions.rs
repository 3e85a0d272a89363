//! Everything that a trace contains besides its events: the session, modules, threads, stacks, allocation classes and
//! names.
//!
//! Receives: the blocks of a trace, in file order. Returns: among others, the stacks that allocate (sites), and the
//! levels of each stack with their names. Must hold: a stack keeps its number while the file grows. If a module was
//! loaded again, its frames count as frames of the first load. So two stacks of the file that differ only in the load
//! of a module become one stack.
use crate::frame_names::{Level, Names};
use crate::group_id::GroupId;
use crate::interning::number_of;
use crate::known_costs::KnownCosts;
use format::{
    AllocClass, AllocClasses, Allocators, Block, Folded, Frame, Gone, HeapAtAttach, IntMap, Losses, MapCalls,
    MemoryMap, MemoryParts, Module, Process, Processes, RssSample, Sampling, Session, StackNode, Stacks, Summary,
    Thread, Unseen, Waits,
};
use std::collections::{BTreeMap, HashMap};

/// The most lost definitions that get a placeholder. A file with more of them is malformed.
const HOLES: usize = 1 << 22;
const LOST_NODE: StackNode = StackNode { parent: 0, frame: Frame::LOST };
/// The most samples of the resident size. If there are more, every second one is dropped.
const SAMPLES: usize = 1 << 17;

/// The allocator of blocks for which no other one is recorded.
const MALLOC: &str = "malloc";

/// The number of a stack that allocates, in order of its first allocation class.
pub type SiteId = u32;

/// Blocks of a sampled recording are counted in units of this part of a block, because their weights are no whole numbers.
pub(crate) const SCALE: u32 = 256;

/// An allocation class as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownAllocClass {
    pub(crate) size: u64,
    /// The bytes that one block counts for: its size, or more if blocks were sampled.
    pub(crate) bytes: u64,
    /// The blocks that one block counts for: 1, or `SCALE` times its weight if blocks were sampled.
    pub(crate) blocks: u32,
    /// The group that its blocks are counted in: its site, unless a view groups blocks by something else or leaves them
    /// out (`GroupId::LEFT_OUT`). `GroupId::LOST` if the definition of the class was lost.
    pub(crate) site: GroupId,
}

impl Definitions {
    /// The unit in which the classes count blocks: this many are one block.
    pub(crate) fn scale(&self) -> u64 {
        if self.session.sampling.is_some() { SCALE as u64 } else { 1 }
    }
}

impl KnownAllocClass {
    /// The same class in another group; `None` leaves it out. A class that was lost or left out before stays as it is.
    pub(crate) fn regrouped(self, group: impl FnOnce(SiteId) -> Option<u32>) -> Self {
        let site = self.site.number().map_or(self.site, |site| GroupId::new(group(site)));
        KnownAllocClass { site, ..self }
    }

    fn new(size: u64, site: GroupId, sampling: Option<&Sampling>) -> Self {
        let Some(sampling) = sampling else {
            return KnownAllocClass { size, bytes: size, blocks: 1, site };
        };
        let blocks = (sampling.weight(size).blocks * SCALE as f64).round() as u32;
        KnownAllocClass { size, bytes: sampling.bytes_of_one(size), blocks, site }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Definitions {
    pub session: Session,
    /// `None` if the recording was not finished.
    pub summary: Option<Summary>,
    pub losses: Losses,
    /// What could not be recorded, and why.
    pub unseen: Vec<Unseen>,
    pub suppressions: String,
    /// What is known, if this is a heap profile of another tool. It has no events.
    pub profile: Option<KnownCosts>,
    /// The size of the heap when the recorder attached to the program.
    pub heap_at_attach: Option<HeapAtAttach>,
    /// How long threads of the program waited for the recorder.
    pub waits: Waits,
    /// The parts of the resident memory, or why they were not measured.
    pub memory: MemoryParts,
    /// In the order in which they were written. Two of them can be of one instant.
    pub memory_maps: Vec<MemoryMap>,
    /// How often the program called mmap and its relatives.
    pub map_calls: Vec<MapCalls>,
    /// The counts of events that were dropped because of the file's size limit.
    pub(crate) folded: Vec<Folded>,
    /// Blocks of a merged trace that were live when their process ended or called exec.
    pub(crate) gone: Vec<Gone>,
    pub threads: BTreeMap<u32, Thread>,
    /// Empty unless a tree of processes was followed.
    pub processes: BTreeMap<u32, Process>,
    /// By thread: the index of its process.
    pub process_of_thread: IntMap<u32, u32>,
    pub modules: BTreeMap<u16, Module>,
    pub names: Names,
    /// Resident size over time. Samples are dropped if there are very many.
    pub samples: Vec<RssSample>,
    /// The highest of all samples.
    pub peak_rss_bytes: u64,
    pub overhead_bytes: u64,
    pub(crate) alloc_classes: Vec<KnownAllocClass>,
    /// The names of the allocators. The first is malloc.
    allocators: Vec<String>,
    /// By allocation class, the index of its allocator. Classes after the last one are malloc's.
    allocator_of_class: Vec<u8>,
    /// By stack id minus 1.
    pub(crate) nodes: Vec<StackNode>,
    /// The stack of each site.
    pub(crate) stacks: Vec<u32>,
    site_of_stack: IntMap<u32, SiteId>,
    holes: usize,
    sample_step: u32,
    samples_seen: u64,
    reloads: Reloads,
}

/// Modules that were loaded more than once.
#[derive(Clone, Debug, Default)]
struct Reloads {
    first_of_file: HashMap<(String, Vec<u8>), u16>,
    /// The first instance of the same file, for instances that are not the first.
    first: HashMap<u16, u16>,
    /// Used since the first reload: the first node with each parent and frame, and for each node the first equal one.
    known: Option<HashMap<(u32, Frame), u32>>,
    same: Vec<u32>,
}

impl Definitions {
    /// Adds a block that has no events. Returns false if the block does not fit the earlier ones.
    pub(crate) fn add(&mut self, block: Block) -> bool {
        match block {
            Block::Session(session) => self.session = session,
            Block::Suppressions(text) => self.suppressions = text.0,
            Block::HeapAtAttach(heap) => self.heap_at_attach = Some(heap),
            Block::Waits(waits) => self.waits = waits,
            Block::MemoryParts(parts) => self.add_memory(parts),
            Block::MemoryMap(map) => self.memory_maps.push(map),
            Block::MapCalls(calls) => self.map_calls = calls,
            Block::Processes(processes) => self.add_processes(processes),
            Block::Folded(folded) => self.folded.push(*folded),
            Block::Gone(gone) => self.gone.push(gone),
            Block::Modules(modules) => modules.into_iter().for_each(|module| self.add_module(module)),
            Block::Threads(threads) => self.threads.extend(threads.into_iter().map(|thread| (thread.index, thread))),
            Block::Stacks(stacks) => return self.add_stacks(&stacks),
            Block::AllocClasses(alloc_classes) => return self.add_alloc_classes(&alloc_classes),
            Block::Allocators(allocators) => return self.add_allocators(&allocators),
            Block::Samples(samples) => samples.iter().for_each(|sample| self.add_sample(sample)),
            Block::Losses(losses) => self.losses = losses,
            Block::Unseen(unseen) => self.unseen = unseen,
            Block::Summary(summary) => self.summary = Some(summary),
            Block::Symbols(symbols) => self.names.add(symbols, &self.reloads.first),
            Block::Events(_) | Block::Checkpoint(_) | Block::Index(_) | Block::OtherDomain(_) => {}
        }
        true
    }

    fn add_memory(&mut self, parts: MemoryParts) {
        if !parts.reason.is_empty() {
            self.memory.reason = parts.reason;
        }
        self.memory.instants.extend(parts.instants);
    }

    fn add_processes(&mut self, added: Processes) {
        let folded: u64 = self.folded.iter().map(|part| part.events).fold(0, u64::saturating_add);
        for mut process in added.processes {
            // The number of events before it, in this file. Of an entry that replaces another one it is not used, because
            // events may have been folded since the first one was written.
            process.events_before = match self.processes.get(&process.index) {
                Some(known) => known.events_before,
                None => process.events_before.saturating_sub(folded),
            };
            self.processes.insert(process.index, process);
        }
        self.process_of_thread.extend(added.threads);
    }

    fn add_module(&mut self, module: Module) {
        let instance = module.instance;
        let first =
            self.reloads.first_of_file.entry((module.path.clone(), module.build_id.clone())).or_insert(instance);
        if *first != instance {
            self.reloads.first.insert(instance, *first);
            self.reloads.start(&self.nodes);
        }
        self.modules.insert(instance, module);
    }

    pub(crate) fn add_alloc_classes(&mut self, block: &AllocClasses) -> bool {
        let lost = KnownAllocClass::new(0, GroupId::LOST, None);
        if !pad(&mut self.alloc_classes, block.first as usize, lost, &mut self.holes) {
            return false;
        }
        for &AllocClass { size, stack } in &block.alloc_classes {
            let stack = self.reloads.canonical(stack);
            let site = self.site(stack);
            let sampling = self.session.sampling.as_ref();
            self.alloc_classes.push(KnownAllocClass::new(size, GroupId::new(Some(site)), sampling));
        }
        true
    }

    fn add_allocators(&mut self, block: &Allocators) -> bool {
        for (name, classes) in &block.lists {
            let Some(index) = self.allocator_index(name) else { return false };
            for class in classes.iter().map(|class| *class as usize) {
                // The block comes after the definitions of the classes.
                if class >= self.alloc_classes.len() {
                    return false;
                }
                if class >= self.allocator_of_class.len() {
                    self.allocator_of_class.resize(class + 1, 0);
                }
                if let Some(place) = self.allocator_of_class.get_mut(class) {
                    *place = index;
                }
            }
        }
        true
    }

    /// Returns the index of an allocator, and adds it if it is new. `None` if there are too many.
    fn allocator_index(&mut self, name: &str) -> Option<u8> {
        if self.allocators.is_empty() {
            self.allocators.push(MALLOC.to_owned());
        }
        let known = self.allocators.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.allocators.push(name.to_owned());
            self.allocators.len() - 1
        });
        u8::try_from(index).ok()
    }

    /// The names of the allocators that blocks came from, malloc first.
    pub fn allocators(&self) -> impl Iterator<Item = &str> {
        std::iter::once(MALLOC).chain(self.allocators.iter().skip(1).map(String::as_str))
    }

    /// The process of a thread, and its name. If no tree was followed, all threads are of one process.
    pub fn process_of(&self, thread: u32) -> Option<(u32, &str)> {
        if self.processes.is_empty() {
            let command = self.session.command.first().map_or("", String::as_str);
            let program = if self.session.exe.is_empty() { command } else { &self.session.exe };
            return (self.session.pid != 0).then(|| (self.session.pid, program.rsplit('/').next().unwrap_or(program)));
        }
        let process = self.processes.get(self.process_of_thread.get(&thread)?)?;
        Some((process.pid, process.name()))
    }

    /// For each site, the indexes of its allocators. There is usually one.
    pub fn allocators_by_site(&self) -> Vec<Vec<usize>> {
        let mut found: Vec<Vec<usize>> = vec![Vec::new(); self.site_count()];
        for (class, known) in self.alloc_classes.iter().enumerate() {
            let Some(list) = known.site.number().and_then(|site| found.get_mut(site as usize)) else { continue };
            let allocator = self.allocator_of(class);
            if !list.contains(&allocator) {
                list.push(allocator);
            }
        }
        found
    }

    /// The size and the site of each allocation class, as far as they are known.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (u64, SiteId)> {
        self.alloc_classes.iter().filter_map(|known| Some((known.size, known.site.number()?)))
    }

    /// The index of an allocation class's allocator in `allocators`.
    pub(crate) fn allocator_of(&self, alloc_class: usize) -> usize {
        self.allocator_of_class.get(alloc_class).copied().unwrap_or(0).into()
    }

    pub(crate) fn add_stacks(&mut self, block: &Stacks) -> bool {
        let Some(first) = (block.first as usize).checked_sub(1) else { return false };
        let before = self.nodes.len();
        if !pad(&mut self.nodes, first, LOST_NODE, &mut self.holes) {
            return false;
        }
        self.nodes.extend_from_slice(&block.nodes);
        self.reloads.rewrite(&mut self.nodes, before);
        true
    }

    fn site(&mut self, stack: u32) -> SiteId {
        number_of(stack, &mut self.site_of_stack, &mut self.stacks)
    }

    fn add_sample(&mut self, sample: &RssSample) {
        self.peak_rss_bytes = self.peak_rss_bytes.max(sample.rss_bytes);
        self.overhead_bytes = self.overhead_bytes.max(sample.overhead_bytes);
        if self.samples_seen.is_multiple_of(1 << self.sample_step) {
            self.samples.push(*sample);
        }
        self.samples_seen += 1;
        if self.samples.len() >= SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.sample_step += 1;
        }
    }

    /// The number of stacks that allocate.
    pub const fn site_count(&self) -> usize {
        self.stacks.len()
    }

    /// Whether the recorder reached the end of the session.
    pub fn has_ended(&self) -> bool {
        self.summary.is_some_and(|summary| summary.complete)
    }

    /// Whether the recorder reached the end of the session, and no event was lost.
    pub fn is_complete(&self) -> bool {
        self.has_ended() && self.losses.lost_events == 0
    }

    /// Returns the site of a stack, if it is known.
    pub fn site_of(&self, stack: u32) -> Option<SiteId> {
        self.site_of_stack.get(&stack).copied()
    }

    pub fn stack_of(&self, site: SiteId) -> u32 {
        self.stacks.get(site as usize).copied().unwrap_or(0)
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = Frame> {
        let mut at = stack;
        std::iter::from_fn(move || {
            let index = at.checked_sub(1)? as usize;
            let Some(node) = self.nodes.get(index) else {
                at = 0;
                return Some(Frame::LOST);
            };
            // A parent is older than its child. Anything else is malformed and ends the walk.
            at = if node.parent < at { node.parent } else { 0 };
            Some(node.frame)
        })
    }

    /// The levels of a stack, with names. An inlined function has a level of its own, before that of its frame.
    pub fn all_levels(&self, stack: u32) -> impl Iterator<Item = Level<'_>> {
        self.frames(stack).flat_map(|frame| self.levels_of(frame))
    }

    /// The levels without the allocator's own functions at the innermost end, such as `operator new`.
    pub fn levels(&self, stack: u32) -> impl Iterator<Item = Level<'_>> {
        self.all_levels(stack).skip_while(Level::is_allocator)
    }

    /// The levels of one frame, innermost first. There is at least one.
    pub fn levels_of(&self, frame: Frame) -> impl Iterator<Item = Level<'_>> {
        let module = self.module(frame).map(|module| module.path.as_str());
        self.names.levels(frame, module)
    }

    pub fn module(&self, frame: Frame) -> Option<&Module> {
        self.modules.get(&frame.instance()).filter(|_| !frame.is_marker() && !frame.is_jit())
    }
}

impl Reloads {
    /// Starts to look for equal nodes. All nodes so far are of first instances.
    fn start(&mut self, nodes: &[StackNode]) {
        if self.known.is_some() {
            return;
        }
        let mut known = HashMap::with_capacity(nodes.len());
        self.same = Vec::with_capacity(nodes.len());
        for (node, id) in nodes.iter().zip(1..) {
            self.same.push(*known.entry((node.parent, node.frame)).or_insert(id));
        }
        self.known = Some(known);
    }

    /// Rewrites the nodes from `first` on so that they refer to first instances.
    fn rewrite(&mut self, nodes: &mut [StackNode], first: usize) {
        let Some(known) = &mut self.known else { return };
        for (node, id) in nodes.iter_mut().zip(1..).skip(first) {
            if let Some(parent) = node.parent.checked_sub(1) {
                node.parent = self.same.get(parent as usize).copied().unwrap_or(0);
            }
            if let Some(instance) = self.first.get(&node.frame.instance()).filter(|_| !node.frame.is_marker()) {
                node.frame = Frame::new(*instance, node.frame.offset(), node.frame.is_exact());
            }
            self.same.push(*known.entry((node.parent, node.frame)).or_insert(id));
        }
    }

    fn canonical(&self, stack: u32) -> u32 {
        stack.checked_sub(1).and_then(|index| self.same.get(index as usize)).copied().unwrap_or(stack)
    }
}

/// Fills the list with `lost` up to the index `first`. Returns false if the list is longer already, or the gap is too
/// large.
fn pad<T: Copy>(list: &mut Vec<T>, first: usize, lost: T, holes: &mut usize) -> bool {
    let Some(gap) = first.checked_sub(list.len()) else { return false };
    if gap > HOLES - *holes {
        return false;
    }
    *holes += gap;
    list.resize(first, lost);
    true
}
