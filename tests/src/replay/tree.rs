//! What the processes of a followed tree held together, computed by hand: every process has a set of the blocks that it holds, a fork
//! copies it, and a block counts while any process has it.
use format::{Block, Domain, Event, Freed, Process, ProcessStart, Reader};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// The highest moment of all processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    pub bytes: u64,
    pub blocks: u64,
    pub ns: u64,
}

#[derive(Default)]
struct Tree {
    processes: BTreeMap<u32, Process>,
    /// By the number of events before their start, and by the time of their end.
    starts: HashMap<u64, Vec<u32>>,
    ends: Vec<(u64, u32)>,
    process_of_thread: HashMap<u32, u32>,
    sizes: HashMap<u64, u64>,
    held: HashMap<u32, HashSet<u64>>,
    holders: HashMap<u64, u32>,
    /// Blocks that were freed while only a forked child held them that has no entry, because it executed a program before its first event.
    hidden: HashSet<u64>,
    live: Peak,
    peak: Peak,
}

/// Reads a trace and replays its calls. Panics if the trace contradicts itself: a block is freed that another process holds, or one stays
/// live that no process holds.
pub fn peak(trace: &Path) -> Peak {
    let (mut tree, mut classes, mut events) = (Tree::default(), Vec::new(), Vec::new());
    let mut reader = Reader::open(trace).expect("a trace");
    reader.set_domain(Domain::Malloc);
    let mut now = 0;
    while let Some(block) = reader.next_block().expect("readable") {
        match block.decode().expect("well-formed") {
            Block::Processes(more) => {
                tree.process_of_thread.extend(more.threads);
                tree.processes.extend(more.processes.into_iter().map(|process| (process.index, process)));
            }
            Block::AllocClasses(more) => classes.extend(more.alloc_classes.iter().map(|class| class.size)),
            Block::Events(mut block) => {
                now = block.time_ns().max(now);
                let mut thread = block.thread();
                while let Some(event) = block.read().expect("well-formed events") {
                    match event {
                        Event::Time(ns) => now = now.max(ns),
                        Event::Thread(index) => thread = index,
                        Event::Image(_) | Event::LatestGone => (),
                        other => events.push((now, thread, other)),
                    }
                }
            }
            _ => (),
        }
    }
    for process in tree.processes.values() {
        tree.starts.entry(process.events_before).or_default().push(process.index);
        tree.ends.extend(process.end.map(|end| (end.at_ns, process.index)));
    }
    // The earliest is the last.
    tree.ends.sort_unstable_by(|a, b| b.cmp(a));
    for (number, (ns, thread, event)) in events.into_iter().enumerate() {
        tree.start(number as u64);
        let process = tree.process_of_thread[&thread];
        tree.take(ns, process, event, &classes);
    }
    assert!(tree.hidden.is_empty(), "blocks that no process holds: {:?}", tree.hidden);
    tree.peak
}

impl Tree {
    /// Starts the processes that start before this event.
    fn start(&mut self, number: u64) {
        for index in self.starts.remove(&number).unwrap_or_default() {
            let process = self.processes[&index].clone();
            let inherited = match (process.start, process.parent) {
                (ProcessStart::Forked, Some(parent)) => self.held[&parent].clone(),
                _ => HashSet::new(),
            };
            let bytes: u64 = inherited.iter().map(|block| self.sizes[block]).sum();
            let found = (inherited.len() as u64, bytes);
            assert_eq!(found, (process.inherited_allocations, process.inherited_bytes), "{process:?}");
            inherited.iter().for_each(|block| *self.holders.entry(*block).or_default() += 1);
            self.held.insert(process.index, inherited);
        }
    }

    fn take(&mut self, ns: u64, process: u32, event: Event, classes: &[u64]) {
        // The events do not say when a process ended that held nothing alone.
        while let Some((_, index)) = self.ends.pop_if(|(end_ns, _)| *end_ns < ns) {
            self.end(index);
        }
        match event {
            Event::Alloc { sequence, alloc_class } => {
                let size = classes[alloc_class as usize];
                self.sizes.insert(sequence, size);
                self.holders.insert(sequence, 1);
                assert!(self.held.get_mut(&process).expect("started").insert(sequence), "block {sequence}");
                (self.live.bytes, self.live.blocks) = (self.live.bytes + size, self.live.blocks + 1);
                if self.live.bytes > self.peak.bytes {
                    self.peak = Peak { ns, ..self.live };
                }
            }
            Event::Free { sequence, how: Freed::Replaced | Freed::Dropped } if self.hidden.remove(&sequence) => {
                self.subtract(sequence);
            }
            Event::Free { sequence, how: Freed::Leaked | Freed::Replaced | Freed::Dropped } => {
                self.end(process);
                assert!(!self.holders.contains_key(&sequence), "block {sequence} is held after its end");
            }
            Event::Free { sequence, .. } => {
                self.end_others(sequence, process, ns);
                assert!(self.let_go(process, sequence), "block {sequence} is held by another process");
            }
            Event::Release { sequence } => self.release(process, sequence),
            _ => (),
        }
    }

    fn release(&mut self, process: u32, block: u64) {
        if self.let_go(process, block) {
            (self.live.bytes, self.live.blocks) = (self.live.bytes + self.sizes[&block], self.live.blocks + 1);
            self.hidden.insert(block);
        }
    }

    /// Others that hold a block which is freed have ended at this time, which is known to 0.1 ms.
    fn end_others(&mut self, block: u64, process: u32, ns: u64) {
        let others: Vec<u32> =
            self.held.iter().filter(|(_, held)| held.contains(&block)).map(|(one, _)| *one).collect();
        for other in others.into_iter().filter(|other| *other != process) {
            let end = self.processes[&other].end.expect("its end");
            assert!(end.at_ns <= ns, "block {block} is freed at {ns}, and held by a process until {}", end.at_ns);
            self.end(other);
        }
    }

    fn end(&mut self, process: u32) {
        let Some(held) = self.held.get(&process) else { return };
        for block in held.clone() {
            self.let_go(process, block);
        }
    }

    /// Returns true if no process holds the block any more.
    fn let_go(&mut self, process: u32, block: u64) -> bool {
        assert!(self.held.get_mut(&process).expect("started").remove(&block), "process {process} has no block {block}");
        let holders = self.holders.get_mut(&block).expect("held");
        *holders -= 1;
        if *holders > 0 {
            return false;
        }
        self.holders.remove(&block);
        self.subtract(block);
        true
    }

    fn subtract(&mut self, block: u64) {
        (self.live.bytes, self.live.blocks) = (self.live.bytes - self.sizes[&block], self.live.blocks - 1);
    }
}
