//! Random traces of trees of processes: they fork, start others, call exec, end, and free what they inherited.
use super::{Event, Kind, Rng, TICK, Trace, random_classes, random_free};
use format::*;
use std::collections::{BTreeSet, HashMap};

/// A process while the trace is made.
struct Running {
    entry: Process,
    threads: Vec<u32>,
    held: BTreeSet<u64>,
    /// The bytes that it holds, and the most that it held.
    bytes: u64,
    peak_bytes: u64,
    totals: Totals,
}

struct Maker {
    blocks: Vec<RawBlock>,
    out: EventEncoder,
    events: Vec<Event>,
    alloc_classes: Vec<(u64, usize)>,
    tick: u64,
    running: Vec<Running>,
    ended: Vec<Process>,
    /// New and changed entries that are not written yet.
    news: Processes,
    process_of_thread: HashMap<u32, u32>,
    processes: u32,
    threads: u32,
    /// Sequence number -> size and the process that allocated it.
    born: HashMap<u64, (u64, u32)>,
    /// Blocks that the process that allocated them has freed.
    freed_by_owner: BTreeSet<u64>,
    latest: HashMap<u32, u64>,
    ended_at: HashMap<u32, usize>,
    inherited: HashMap<u32, BTreeSet<u64>>,
}

pub fn random_tree(rng: &mut Rng, steps: u64) -> Trace {
    let (blocks, alloc_classes, sites) = random_classes(rng);
    let mut maker = Maker {
        blocks,
        out: EventEncoder::new(),
        events: Vec::new(),
        alloc_classes,
        tick: 0,
        running: Vec::new(),
        ended: Vec::new(),
        news: Processes::default(),
        process_of_thread: HashMap::new(),
        processes: 0,
        threads: 0,
        born: HashMap::new(),
        freed_by_owner: BTreeSet::new(),
        latest: HashMap::new(),
        ended_at: HashMap::new(),
        inherited: HashMap::new(),
    };
    maker.start(None, ProcessStart::Launched, 100);
    maker.alloc(0, rng);
    let growing = 50 + rng.u64(..15);
    for _ in 0..steps {
        if maker.running.is_empty() {
            break;
        }
        let at = rng.usize(..maker.running.len());
        match rng.u64(..100) {
            0..4 => {
                maker.tick += 1 + rng.u64(..5);
                maker.out.time(maker.tick * TICK);
            }
            4 => maker.start(Some(at), ProcessStart::Forked, rng.u32(200..230)),
            5 if rng.bool() => maker.start(Some(at), ProcessStart::Spawned, rng.u32(200..230)),
            6 if rng.bool() => maker.exec(at),
            7 if rng.bool() => maker.end(at, Some(Exit::Code(at as i32))),
            8 => maker.unknown_free(at, rng),
            9 if rng.u64(..4) == 0 => maker.flush(),
            10 => maker.new_thread(at),
            choice if maker.running[at].held.is_empty() || choice < growing => maker.alloc(at, rng),
            choice => maker.free(at, choice % 3 == 0, rng),
        }
    }
    // Some recordings end while processes run.
    while rng.bool() && !maker.running.is_empty() {
        maker.end(0, Some(Exit::Signal(9)));
    }
    maker.flush();
    let running = maker.running.iter().map(|process| (process.entry.index, process.totals_now(&maker.born))).collect();
    let mut processes = maker.ended;
    processes.extend(maker.running.into_iter().map(|process| process.entry));
    processes.sort_by_key(|process| process.index);
    Trace {
        blocks: maker.blocks,
        events: maker.events,
        alloc_classes: maker.alloc_classes,
        sites,
        runtime_ns: maker.tick * TICK,
        processes,
        process_of_thread: maker.process_of_thread,
        ended_at: maker.ended_at,
        inherited: maker.inherited,
        running,
    }
}

impl Running {
    /// What it allocated and still holds counts as leaked.
    fn totals_now(&self, born: &HashMap<u64, (u64, u32)>) -> Totals {
        let own = self.held.iter().map(|sequence| born[sequence]).filter(|(_, owner)| *owner == self.entry.index);
        let sizes: Vec<u64> = own.map(|(size, _)| size).collect();
        Totals {
            leaked_allocations: sizes.len() as u64,
            leaked_bytes: sizes.iter().sum(),
            peak_bytes: self.peak_bytes,
            ..self.totals
        }
    }
}

impl Maker {
    fn flush(&mut self) {
        let news = std::mem::take(&mut self.news);
        if !news.is_empty() {
            self.blocks.push(news.to_block());
        }
        if !self.out.is_empty() {
            self.blocks.push(self.out.take());
        }
    }

    fn add(&mut self, thread: u32, kind: Kind) {
        self.events.push(Event { time_ns: self.tick * TICK, thread, kind });
    }

    fn start(&mut self, parent: Option<usize>, start: ProcessStart, pid: u32) {
        let parent = parent.map(|at| &self.running[at]);
        let held = parent.filter(|_| start == ProcessStart::Forked).map(|parent| parent.held.clone());
        let held = held.unwrap_or_default();
        let bytes = held.iter().map(|sequence| self.born[sequence].0).sum();
        let entry = Process {
            index: self.processes,
            pid,
            parent: parent.map(|parent| parent.entry.index),
            start,
            command: vec![format!("/bin/{}", ["make", "cc1", "ld"][pid as usize % 3]), "-x".into()],
            start_ns: self.tick * TICK,
            events_before: self.events.len() as u64,
            inherited_allocations: held.len() as u64,
            inherited_bytes: bytes,
            ..Process::default()
        };
        self.inherited.insert(entry.index, held.clone());
        self.processes += 1;
        self.news.processes.push(entry.clone());
        let totals = Totals::default();
        self.running.push(Running { entry, threads: Vec::new(), held, bytes, peak_bytes: bytes, totals });
        self.new_thread(self.running.len() - 1);
    }

    fn new_thread(&mut self, at: usize) {
        let index = self.running[at].entry.index;
        self.running[at].threads.push(self.threads);
        self.news.threads.push((self.threads, index));
        self.process_of_thread.insert(self.threads, index);
        self.threads += 1;
    }

    fn exec(&mut self, at: usize) {
        let (index, pid) = (self.running[at].entry.index, self.running[at].entry.pid);
        self.end(at, None);
        self.start(None, ProcessStart::Executed, pid);
        let started = self.running.last_mut().unwrap();
        started.entry.parent = Some(index);
        self.news.processes.last_mut().unwrap().parent = Some(index);
    }

    /// Ends a process: by an exit, or by exec if `exit` is `None`.
    fn end(&mut self, at: usize, exit: Option<Exit>) {
        let mut process = self.running.swap_remove(at);
        let thread = process.threads[0];
        self.out.thread(thread);
        process.totals = process.totals_now(&self.born);
        if exit.is_none() {
            (process.totals.leaked_allocations, process.totals.leaked_bytes) = (0, 0);
        }
        for sequence in &process.held {
            if self.running.iter().any(|other| other.held.contains(sequence)) {
                continue;
            }
            let how = match exit {
                _ if self.freed_by_owner.contains(sequence) => Freed::Dropped,
                Some(_) => Freed::Leaked,
                None => Freed::Replaced,
            };
            self.out.freed_by(*sequence, how);
            self.add(thread, Kind::Free { sequence: *sequence, temporary: false, how });
        }
        self.ended_at.insert(process.entry.index, self.events.len());
        process.entry.end = Some(ProcessEnd {
            at_ns: self.tick * TICK,
            by_exec: exit.is_none(),
            exit: exit.unwrap_or_default(),
            totals: process.totals,
        });
        self.news.processes.retain(|news| news.index != process.entry.index);
        self.news.processes.push(process.entry.clone());
        self.ended.push(process.entry);
        // The events do not say when a process ended that held nothing alone. So no later event has the same time.
        self.tick += 1;
        self.out.time(self.tick * TICK);
    }

    fn thread(&mut self, at: usize, rng: &mut Rng) -> u32 {
        let threads = &self.running[at].threads;
        let thread = threads[rng.usize(..threads.len())];
        self.out.thread(thread);
        thread
    }

    fn unknown_free(&mut self, at: usize, rng: &mut Rng) {
        let thread = self.thread(at, rng);
        self.out.unknown_free();
        self.running[at].totals.unknown_frees += 1;
        self.add(thread, Kind::Unknown);
    }

    fn alloc(&mut self, at: usize, rng: &mut Rng) {
        let thread = self.thread(at, rng);
        let alloc_class = rng.usize(..self.alloc_classes.len());
        let size = self.alloc_classes[alloc_class].0;
        let sequence = self.out.alloc(alloc_class as u32);
        let process = &mut self.running[at];
        process.held.insert(sequence);
        process.totals.allocations += 1;
        process.totals.allocated_bytes += size;
        process.bytes += size;
        if process.bytes > process.peak_bytes {
            process.peak_bytes = process.bytes;
            process.totals.peak_time_ns = self.tick * TICK;
        }
        self.born.insert(sequence, (size, process.entry.index));
        self.latest.insert(thread, sequence);
        self.add(thread, Kind::Alloc { sequence, alloc_class });
    }

    fn free(&mut self, at: usize, is_youngest: bool, rng: &mut Rng) {
        let thread = self.thread(at, rng);
        let held: Vec<u64> = self.running[at].held.iter().copied().collect();
        // Often the youngest block, so that there are temporary blocks.
        let sequence = held[if is_youngest { held.len() - 1 } else { rng.usize(..held.len()) }];
        let (size, owner) = self.born[&sequence];
        let process = &mut self.running[at];
        process.held.remove(&sequence);
        process.bytes -= size;
        process.totals.deallocations += 1;
        if owner == process.entry.index {
            self.freed_by_owner.insert(sequence);
        }
        if self.running.iter().any(|other| other.held.contains(&sequence)) {
            self.out.release(sequence);
            return self.add(thread, Kind::Release { sequence });
        }
        let how = random_free(rng);
        self.out.freed_by(sequence, how);
        let temporary = how == Freed::Call && self.latest.get(&thread) == Some(&sequence);
        let totals = &mut self.running[at].totals;
        totals.temporary += temporary as u64;
        totals.implied_frees += (how == Freed::Implied) as u64;
        self.add(thread, Kind::Free { sequence, temporary, how });
    }
}
