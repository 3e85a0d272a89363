//! Random traces, and a naive replay that keeps everything in maps and visits all of it at every event.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr, reason = "shared by tests")]
pub mod tree;

use analysis::{Costs, Query, When};
pub use fastrand::Rng;
use format::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Alloc { sequence: u64, alloc_class: usize },
    Free { sequence: u64, temporary: bool, how: Freed },
    Release { sequence: u64 },
    Unknown,
    Image,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub time_ns: u64,
    pub thread: u32,
    pub kind: Kind,
}

/// A trace in two forms: as blocks, and as a list of events.
pub struct Trace {
    pub blocks: Vec<RawBlock>,
    pub events: Vec<Event>,
    /// Size and site of each allocation class.
    pub alloc_classes: Vec<(u64, usize)>,
    pub sites: usize,
    pub runtime_ns: u64,
    /// Empty unless the trace is that of a tree of processes.
    pub processes: Vec<Process>,
    pub process_of_thread: HashMap<u32, u32>,
    /// Process -> the number of events up to its end.
    pub ended_at: HashMap<u32, usize>,
    /// Process -> what it held at its start.
    pub inherited: HashMap<u32, BTreeSet<u64>>,
    /// The totals of the processes that have not ended.
    pub running: HashMap<u32, Totals>,
}

const TICK: u64 = 100_000;

/// A trace of `steps` random steps, most of which are events: of one process, or of a tree of processes.
pub fn random_trace(rng: &mut Rng, steps: u64) -> Trace {
    if rng.bool() { tree::random_tree(rng, steps) } else { trace_of_one(rng, steps) }
}

/// The definitions of random sites and allocation classes, and the size and site of each class.
fn random_classes(rng: &mut Rng) -> (Vec<RawBlock>, Vec<(u64, usize)>, usize) {
    let sites = 1 + rng.usize(..12);
    let mut stacks = StackEncoder::new();
    let mut encoder = AllocClassEncoder::new();
    let mut alloc_classes = Vec::new();
    let leaves: Vec<u32> = (0..sites)
        .map(|site| {
            let root = stacks.push(0, Frame::new(1, 0x100 + site as u64, false));
            stacks.push(root, Frame::new(1, 0x1000 + site as u64, false))
        })
        .collect();
    for (site, leaf) in leaves.iter().enumerate() {
        for _ in 0..1 + rng.u64(..4) {
            let size = if rng.u64(..10) == 0 { 0 } else { rng.u64(..1000) };
            encoder.push(size, *leaf);
            alloc_classes.push((size, site));
        }
    }
    (vec![stacks.take(), encoder.take()], alloc_classes, sites)
}

pub fn trace_of_one(rng: &mut Rng, steps: u64) -> Trace {
    let (mut blocks, alloc_classes, sites) = random_classes(rng);
    let mut out = EventEncoder::new();
    let mut events = Vec::new();
    let (mut tick, mut thread, mut image) = (0, 0, 0);
    let mut live: Vec<u64> = Vec::new();
    let mut latest: HashMap<u32, u64> = HashMap::new();
    let growing = 45 + rng.u64(..15);
    for _ in 0..steps {
        let time_ns = tick * TICK;
        match rng.u64(..100) {
            0..4 => {
                tick += 1 + rng.u64(..5);
                out.time(tick * TICK);
            }
            4..7 => {
                thread = rng.u32(..3);
                out.thread(thread);
            }
            7 if rng.u64(..60) == 0 => {
                image += 1;
                out.image(image);
                live.clear();
                latest.clear();
                events.push(Event { time_ns, thread, kind: Kind::Image });
            }
            8 => {
                out.unknown_free();
                events.push(Event { time_ns, thread, kind: Kind::Unknown });
            }
            9 if rng.u64(..4) == 0 => blocks.push(out.take()),
            choice if live.is_empty() || choice < growing => {
                let alloc_class = rng.usize(..alloc_classes.len());
                let sequence = out.alloc(alloc_class as u32);
                live.push(sequence);
                latest.insert(thread, sequence);
                events.push(Event { time_ns, thread, kind: Kind::Alloc { sequence, alloc_class } });
            }
            choice => {
                // Often the youngest block, so that there are temporary blocks.
                let at = if choice % 3 == 0 { live.len() - 1 } else { rng.usize(..live.len()) };
                let sequence = live.swap_remove(at);
                let how = random_free(rng);
                out.freed_by(sequence, how);
                let temporary = how == Freed::Call && latest.get(&thread) == Some(&sequence);
                events.push(Event { time_ns, thread, kind: Kind::Free { sequence, temporary, how } });
            }
        }
    }
    blocks.push(out.take());
    Trace {
        blocks,
        events,
        alloc_classes,
        sites,
        runtime_ns: tick * TICK,
        processes: Vec::new(),
        process_of_thread: HashMap::new(),
        ended_at: HashMap::new(),
        inherited: HashMap::new(),
        running: HashMap::new(),
    }
}

fn random_free(rng: &mut Rng) -> Freed {
    match rng.u64(..20) {
        0 => Freed::Realloc,
        1 => Freed::Implied,
        _ => Freed::Call,
    }
}

#[derive(Clone, Copy)]
struct Block {
    alloc_class: usize,
    thread: u32,
    born_ns: u64,
}

/// The answer of the naive replay.
#[derive(Debug, PartialEq)]
pub struct Naive {
    /// The costs of each site, without sites that have none.
    pub sites: BTreeMap<usize, Costs>,
    pub peak_time_ns: u64,
}

impl Trace {
    /// The number of entries of `events` up to a point in time. Events exactly at that time are included.
    fn place(&self, when: When, peak: usize) -> usize {
        let time = |ns: u64| self.events.iter().take_while(|event| event.time_ns <= ns).count();
        match when {
            When::Start => 0,
            When::End => self.events.len(),
            When::Peak => peak,
            When::Ns(ns) => time(ns),
            When::Percent(100.0) => self.events.len(),
            When::Percent(share) => time((self.runtime_ns as f64 * share / 100.0) as u64),
            When::Event { events, .. } => self.after_events(events),
        }
    }

    /// The number of entries up to and including the event of this number. An `exec` is an entry, but no event.
    fn after_events(&self, events: u64) -> usize {
        let mut counted = self.events.iter().enumerate().filter(|(_, event)| !matches!(event.kind, Kind::Image));
        events.checked_sub(1).map_or(0, |last| counted.nth(last as usize).map_or(self.events.len(), |(at, _)| at + 1))
    }

    /// The event of a number between 0 and that of the last one, as a query can name it.
    pub fn event(&self, share: f64) -> When {
        let counted: Vec<&Event> = self.events.iter().filter(|event| !matches!(event.kind, Kind::Image)).collect();
        let events = (counted.len() as f64 * share) as u64;
        When::Event { events, time_ns: events.checked_sub(1).map_or(0, |last| counted[last as usize].time_ns) }
    }

    /// The size of a block.
    pub fn size_of(&self, sequence: u64) -> u64 {
        let size = |event: &Event| match event.kind {
            Kind::Alloc { sequence: other, alloc_class } if other == sequence => {
                Some(self.alloc_classes[alloc_class].0)
            }
            _ => None,
        };
        self.events.iter().find_map(size).unwrap()
    }

    pub fn time(&self, when: When) -> u64 {
        let peak = self.peak();
        match when {
            When::Start => 0,
            When::End => self.runtime_ns,
            When::Peak => peak.checked_sub(1).map_or(0, |at| self.events[at].time_ns),
            When::Ns(time_ns) | When::Event { time_ns, .. } => time_ns,
            When::Percent(share) => (self.runtime_ns as f64 * share / 100.0) as u64,
        }
    }

    /// The number of entries up to and including the event of the peak. 0 if nothing was ever held.
    pub fn peak(&self) -> usize {
        let (mut total, mut best, mut at) = (0, 0, 0);
        let mut sizes = HashMap::new();
        for (number, event) in self.events.iter().enumerate() {
            match event.kind {
                Kind::Alloc { sequence, alloc_class } => {
                    sizes.insert(sequence, self.alloc_classes[alloc_class].0);
                    total += self.alloc_classes[alloc_class].0;
                }
                Kind::Free { sequence, .. } => total -= sizes.remove(&sequence).unwrap(),
                Kind::Release { .. } | Kind::Unknown => {}
                Kind::Image => {
                    sizes.clear();
                    total = 0;
                }
            }
            if total > best {
                (best, at) = (total, number + 1);
            }
        }
        at
    }

    /// The time at which each block was freed, or ended with its image, before `end`, by sequence number.
    fn deaths(&self, end: usize) -> HashMap<u64, u64> {
        let mut live = Vec::new();
        let mut deaths = HashMap::new();
        for event in &self.events[..end] {
            match event.kind {
                Kind::Alloc { sequence, .. } => live.push(sequence),
                Kind::Free { sequence, .. } => {
                    live.retain(|known| *known != sequence);
                    deaths.insert(sequence, event.time_ns);
                }
                Kind::Release { .. } | Kind::Unknown => {}
                Kind::Image => deaths.extend(live.drain(..).map(|sequence| (sequence, event.time_ns))),
            }
        }
        deaths
    }

    /// Answers a query by a slow replay. Supports only ranges, threads, sizes and lifetimes.
    pub fn naive(&self, query: &Query) -> Naive {
        let peak_place = self.peak();
        let (from, to) = match query.at {
            Some(at) => (at, at),
            None => (query.from.unwrap_or(When::Start), query.to.unwrap_or(When::End)),
        };
        let begin = self.place(from, peak_place);
        let end = self.place(to, peak_place).max(begin);
        let from_ns = self.time(from);
        let to_ns = self.time(to).max(from_ns);
        let deaths = self.deaths(end);
        let counts = |sequence: u64, block: &Block| {
            let lived = deaths.get(&sequence).copied().unwrap_or(to_ns).saturating_sub(block.born_ns);
            (query.threads.is_empty() || query.threads.contains(&block.thread))
                && query.size.is_none_or(|span| span.contains(self.alloc_classes[block.alloc_class].0))
                && query.lifetime.is_none_or(|span| span.contains(lived))
        };
        let reaches_end = query.at.is_none() && matches!(to, When::End | When::Percent(100.0));
        let mut live: BTreeMap<u64, Block> = BTreeMap::new();
        // Blocks that were live when their process ended within the range.
        let mut left: BTreeMap<u64, Block> = BTreeMap::new();
        let mut costs = vec![Costs::default(); self.sites];
        let held = |live: &BTreeMap<u64, Block>| {
            let mut held = vec![(0, 0); self.sites];
            for (sequence, block) in live.iter().filter(|(sequence, block)| counts(**sequence, block)) {
                let _ = sequence;
                let (size, site) = self.alloc_classes[block.alloc_class];
                held[site].0 += size;
                held[site].1 += 1;
            }
            held
        };
        let total = |live: &BTreeMap<u64, Block>| {
            live.values().map(|block| self.alloc_classes[block.alloc_class].0).sum::<u64>()
        };
        let mut first_sequence = 0;
        let mut peak = (0, 0, vec![(0, 0); self.sites]);
        for number in 0..=end {
            if number == begin {
                first_sequence =
                    self.events[..begin].iter().filter(|event| matches!(event.kind, Kind::Alloc { .. })).count() as u64;
                let now = held(&live);
                peak = (total(&live), from_ns, now.clone());
                for (costs, (bytes, blocks)) in costs.iter_mut().zip(now) {
                    *costs = Costs {
                        base_bytes: bytes,
                        base_allocations: blocks,
                        own_peak_bytes: bytes,
                        own_peak_time_ns: from_ns,
                        ..Costs::default()
                    };
                }
            }
            if number == end {
                break;
            }
            let event = self.events[number];
            match event.kind {
                Kind::Alloc { sequence, alloc_class } => {
                    let block = Block { alloc_class, thread: event.thread, born_ns: event.time_ns };
                    live.insert(sequence, block);
                    let (size, site) = self.alloc_classes[alloc_class];
                    if number >= begin && counts(sequence, &block) {
                        costs[site].allocations += 1;
                        costs[site].allocated_bytes += size;
                        costs[site].size_max = costs[site].size_max.max(size);
                    }
                }
                Kind::Free { sequence, how: Freed::Leaked, .. } => {
                    let block = live.remove(&sequence).unwrap();
                    if number >= begin && reaches_end {
                        left.insert(sequence, block);
                    }
                }
                Kind::Free { sequence, how: Freed::Replaced, .. } => drop(live.remove(&sequence)),
                Kind::Free { sequence, temporary, .. } => {
                    let block = live.remove(&sequence).unwrap();
                    let (size, site) = self.alloc_classes[block.alloc_class];
                    if number >= begin && counts(sequence, &block) {
                        costs[site].deallocations += 1;
                        costs[site].freed_bytes += size;
                        costs[site].lifetime_ns += event.time_ns - block.born_ns;
                        costs[site].temporary += temporary as u64;
                        costs[site].temporary_bytes += if temporary { size } else { 0 };
                    }
                }
                Kind::Release { .. } | Kind::Unknown => {}
                Kind::Image => live.clear(),
            }
            if number >= begin {
                if total(&live) > peak.0 {
                    peak = (total(&live), event.time_ns, held(&live));
                }
                for (costs, (bytes, _)) in costs.iter_mut().zip(held(&live)) {
                    if bytes > costs.own_peak_bytes {
                        (costs.own_peak_bytes, costs.own_peak_time_ns) = (bytes, event.time_ns);
                    }
                }
            }
        }
        live.extend(left);
        for (costs, (bytes, blocks)) in costs.iter_mut().zip(held(&live)) {
            (costs.live_bytes, costs.live_allocations) = (bytes, blocks);
        }
        for (sequence, block) in live.range(first_sequence..) {
            let (size, site) = self.alloc_classes[block.alloc_class];
            if counts(*sequence, block) {
                costs[site].kept_bytes += size;
                costs[site].kept_allocations += 1;
            }
        }
        for (costs, (bytes, blocks)) in costs.iter_mut().zip(&peak.2) {
            (costs.peak_bytes, costs.peak_allocations) = (*bytes, *blocks);
            if query.at.is_some() {
                *costs = Costs {
                    live_bytes: costs.live_bytes,
                    live_allocations: costs.live_allocations,
                    ..Costs::default()
                };
            }
        }
        let sites = costs.into_iter().enumerate().filter(|(_, costs)| !costs.is_zero()).collect();
        Naive { sites, peak_time_ns: if query.at.is_some() { 0 } else { peak.1 } }
    }
}

/// The seed of `HEAPTRACK_SEED`, or a new one. It is printed.
fn seed() -> u64 {
    let given = std::env::var("HEAPTRACK_SEED").ok().and_then(|text| text.parse().ok());
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = given.unwrap_or_else(now);
    eprintln!("HEAPTRACK_SEED={seed}");
    seed
}

/// The full number in a soak, a tenth otherwise.
fn count(full: u64) -> u64 {
    if std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1") { full } else { (full / 10).max(1) }
}

/// Runs a round for each of this many seeds in a soak, and for a tenth of them otherwise.
pub fn rounds(full: u64, mut round: impl FnMut(u64, Rng)) {
    let start = seed();
    for number in 0..count(full) {
        let seed = start.wrapping_add(number);
        round(seed, Rng::with_seed(seed));
    }
}
