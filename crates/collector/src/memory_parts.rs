//! The parts of the target's resident memory, measured now and then on a thread of its own.
//!
//! Receives: from the collecting thread an order to look, then all live blocks in slices. Returns: a block of the trace for each look, and the
//! latest look; at the end a map of the address space at the highest and at the last look. Must hold: looks take at most 0.5 % of one CPU; the collecting thread is never kept for more than one slice; a look is
//! kept only if the target ran the same program until its end; if the target's memory cannot be read, the trace says why.
//!
//! ```text
//! collecting thread       -- Order::Look -->      heaptrack-parts: reads smaps
//!   in its next rounds    <-- Step::Blocks --
//!                         -- Order::Blocks -->    covers pages with blocks
//!                         -- Order::Divide -->    reads pagemap, divides pages into parts --> a block of the trace
//! ```
//! [Decision 79](../../../docs/decisions/0079-parts-of-the-resident-memory.md) says why blocks are visited and not counted by page.
mod address_map;
mod arena_headers;
mod block_cover;
pub(crate) mod callers;
mod fragmentation;
mod huge_pages;
mod owner_sets;
mod parts;
mod resident_pages;
mod sampled;
mod schedule;
mod slabs;
pub(crate) mod smaps;
mod surroundings;

use crate::recorder::Recorder;
use address_map::AddressMap;
use arena_headers::ArenaHeaders;
use block_cover::{BlockCover, PAGE};
use callers::MappedBy;
use format::{MemoryInstant, MemoryMap, MemoryParts, RawBlock};
use fragmentation::PinnedPages;
use parts::Known;
use resident_pages::PageMap;
use schedule::Schedule;
use smaps::{MappedRange, Smaps};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use surroundings::{Cgroup, StackPointers};

/// About the number of blocks in a slice. The collecting thread takes a millisecond for them.
const SLICE: usize = 64 << 10;
/// The most slices that wait for the memory thread, 1.5 MB each.
const MOST_WAITING: u32 = 2;
/// The most mappings of the program that a look knows. Pages of others have no caller.
const MOST_MAPPINGS: usize = 64 << 10;
/// A map is written when the recording has become longer by this part, and by so many nanoseconds. The highest and the last one are always written.
const MAP_PART: u64 = 4;
const MAP_NS: u64 = 10_000_000_000;
/// The most points of time that are known by the number of the allocations before them.
const MOST_TIMES: usize = 4096;
/// Points of time are at least this far apart.
const TIMES_NS: u64 = 10_000_000;
/// How long the end of a session waits for the last look.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPlan {
    /// How often to look. `None`: never.
    pub every: Option<Duration>,
    pub is_attached: bool,
    /// Only some blocks are known, so nothing can be said about which memory of the allocator is free.
    pub is_sampled: bool,
    /// Memory that the recorder has mapped into an attached program.
    pub own_ranges: Vec<Range<u64>>,
}

/// A live block, and the number of the stack that allocated it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBlock {
    pub address: u64,
    pub size: u64,
    pub stack: u32,
    /// When it was allocated: the number of allocations in the trace before it, in units of `BORN_UNIT`.
    pub born: u32,
}

/// With 32 bits for the number of units, 10^12 allocations can be told apart.
pub(crate) const BORN_UNIT: u64 = 256;

/// The times at which allocations were made, as far as blocks need them: the number of allocations, in units of `BORN_UNIT`, and the time then.
#[derive(Clone, Debug)]
struct Times {
    points: Vec<(u32, u64)>,
    apart_ns: u64,
}

impl Times {
    const fn new() -> Self {
        Times { points: Vec::new(), apart_ns: TIMES_NS }
    }

    fn add(&mut self, sequence: u64, time_ns: u64) {
        let is_soon = |(_, last): &(u32, u64)| time_ns < last.saturating_add(self.apart_ns);
        if self.points.last().is_some_and(is_soon) {
            return;
        }
        self.points.push(((sequence / BORN_UNIT) as u32, time_ns));
        if self.points.len() >= MOST_TIMES {
            let mut at = 0..;
            self.points.retain(|_| at.next().is_some_and(|at: usize| at.is_multiple_of(2)));
            self.apart_ns *= 2;
        }
    }

    /// Returns about when a block was allocated.
    fn of(&self, born: u32) -> u64 {
        let next = self.points.partition_point(|(number, _)| *number <= born);
        self.points.get(next.saturating_sub(1)).map_or(0, |(_, time_ns)| *time_ns)
    }
}

enum Order {
    Look {
        pid: u32,
        time_ns: u64,
        is_jemalloc: bool,
    },
    Blocks(Vec<LiveBlock>),
    /// All blocks were sent. The collecting thread took this long for that.
    Divide {
        visiting_ns: u64,
        /// The mappings that the program made itself.
        mapped: Vec<MappedBy>,
        times: Times,
    },
    /// The program has replaced itself meanwhile.
    Forget,
    /// All blocks that live now are unknown from now on, as at an attach.
    Restart,
}

/// What the memory thread waits for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Order = 0,
    Mappings = 1,
    Blocks = 2,
    Parts = 3,
}

#[derive(Debug, Default)]
struct Shared {
    step: AtomicU32,
    /// Slices that the memory thread has not added yet.
    waiting: AtomicU32,
    /// The CPU time that the last look took.
    cost_ns: AtomicU64,
    latest: Mutex<Option<Arc<MemoryInstant>>>,
}

impl Shared {
    fn is_at(&self, step: Step) -> bool {
        self.step.load(Ordering::Acquire) == step as u32
    }

    fn set(&self, step: Step) {
        self.step.store(step as u32, Ordering::Release);
    }
}

/// The memory thread, as the collecting thread sees it.
pub(crate) struct MemoryLooks {
    plan: MemoryPlan,
    schedule: Schedule,
    shared: Arc<Shared>,
    blocks: mpsc::Sender<RawBlock>,
    thread: Option<(mpsc::Sender<Order>, JoinHandle<()>)>,
    visit: Option<Visit>,
    times: Times,
}

/// A visit of all live blocks.
struct Visit {
    pid: u32,
    /// `Recorder::program_of`
    program: Option<u32>,
    /// A merge began after the mappings were read, so the recorder knows every call that made one of them.
    is_merged: bool,
    from: u64,
    /// How long the collecting thread has taken.
    took: Duration,
}

impl MemoryLooks {
    /// `blocks`: takes the blocks for the trace.
    pub fn new(plan: MemoryPlan, blocks: mpsc::Sender<RawBlock>) -> Self {
        let schedule = Schedule::new(plan.every, plan.is_attached);
        MemoryLooks { plan, schedule, shared: Arc::default(), blocks, thread: None, visit: None, times: Times::new() }
    }

    /// The latest look.
    pub fn latest(&self) -> Option<Arc<MemoryInstant>> {
        self.shared.latest.lock().ok()?.clone()
    }

    /// To be called in every round of the collecting thread, after a merge. `rss_bytes` reads those of the target.
    pub fn go_on(&mut self, recorder: &Recorder, pid: u32, time_ns: u64, rss_bytes: impl FnOnce() -> u64) {
        self.times.add(recorder.next_sequence(), time_ns);
        if let Some(visit) = &mut self.visit {
            if self.shared.is_at(Step::Blocks) {
                if std::mem::replace(&mut visit.is_merged, true) {
                    self.send_blocks(recorder);
                }
            } else if self.shared.is_at(Step::Order) {
                // Nothing could be read.
                self.end_look(time_ns);
            }
        } else if self.schedule.is_waiting() {
            if self.shared.is_at(Step::Order) {
                self.end_look(time_ns);
            }
        } else if self.schedule.begin_if_due(time_ns, rss_bytes) {
            self.look(recorder, pid, time_ns);
        }
    }

    /// Returns true if the mappings were read, and the blocks are visited after the next merge. The program changes meanwhile, so it should be soon.
    pub fn waits_for_merge(&self) -> bool {
        self.visit.is_some() && self.shared.is_at(Step::Blocks)
    }

    fn end_look(&mut self, time_ns: u64) {
        self.visit = None;
        self.schedule.end(time_ns, self.shared.cost_ns.load(Ordering::Acquire));
    }

    fn look(&mut self, recorder: &Recorder, pid: u32, time_ns: u64) {
        if self.thread.is_none() {
            self.thread = self.start();
        }
        // If no thread can be started (no memory, too many processes), there are no looks.
        let Some((orders, _)) = &self.thread else { return self.schedule.stop() };
        self.shared.set(Step::Mappings);
        self.visit =
            Some(Visit { pid, program: recorder.program_of(pid), is_merged: false, from: 0, took: Duration::ZERO });
        let _ = orders.send(Order::Look { pid, time_ns, is_jemalloc: recorder.is_jemalloc() });
    }

    fn start(&self) -> Option<(mpsc::Sender<Order>, JoinHandle<()>)> {
        let (orders, inbox) = mpsc::channel();
        let mut measuring = Measuring::new(self.plan.clone(), Arc::clone(&self.shared), self.blocks.clone());
        let work = move || {
            inbox.iter().for_each(|order| measuring.obey(order));
            measuring.write_maps();
        };
        let thread = std::thread::Builder::new().name("heaptrack-parts".into()).spawn(work).ok()?;
        Some((orders, thread))
    }

    /// Sends one slice of blocks, unless too many wait.
    fn send_blocks(&mut self, recorder: &Recorder) {
        let (Some(visit), Some((orders, _))) = (&mut self.visit, &self.thread) else { return };
        if visit.program != recorder.program_of(visit.pid) {
            // Before the order, after which the memory thread sets the next step.
            self.shared.set(Step::Parts);
            let _ = orders.send(Order::Forget);
            self.visit = None;
            return;
        }
        if self.shared.waiting.load(Ordering::Acquire) >= MOST_WAITING {
            return;
        }
        let began = Instant::now();
        let mut slice = Vec::with_capacity(SLICE);
        let next = recorder.visit_blocks(visit.pid, visit.from, SLICE, |block| slice.push(block));
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = orders.send(Order::Blocks(slice));
        visit.took += began.elapsed();
        if let Some(from) = next {
            visit.from = from;
            return;
        }
        self.shared.set(Step::Parts);
        let mapped = recorder.mapped_by(MOST_MAPPINGS);
        let _ =
            orders.send(Order::Divide { visiting_ns: visit.took.as_nanos() as u64, mapped, times: self.times.clone() });
        self.visit = None;
    }

    /// To be called when the recorder has forgotten all live blocks.
    pub fn restart(&mut self) {
        self.plan.is_attached = true;
        if let Some((orders, _)) = &self.thread {
            let _ = orders.send(Order::Restart);
        }
    }

    /// Ends the thread. `last_look`: the pid and the time for a last look, if the target lives on.
    pub fn finish(&mut self, recorder: &Recorder, last_look: Option<(u32, u64)>) {
        let began = Instant::now();
        let is_over = || began.elapsed() >= LAST_LOOK;
        if let Some((pid, time_ns)) = last_look.filter(|_| self.plan.every.is_some()) {
            while !self.shared.is_at(Step::Order) && !is_over() {
                self.send_blocks_of_last(recorder);
            }
            if self.shared.is_at(Step::Order) {
                self.look(recorder, pid, time_ns);
            }
            while !self.shared.is_at(Step::Order) && !is_over() {
                self.send_blocks_of_last(recorder);
            }
        }
        if let Some((orders, thread)) = self.thread.take() {
            drop(orders);
            // A look at a process that has ended is soon over. One that takes longer must not keep the session from ending.
            while !thread.is_finished() && !is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn send_blocks_of_last(&mut self, recorder: &Recorder) {
        if self.shared.is_at(Step::Blocks) {
            self.send_blocks(recorder);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The state of the memory thread.
struct Measuring {
    plan: MemoryPlan,
    shared: Arc<Shared>,
    blocks: mpsc::Sender<RawBlock>,
    stack_pointers: StackPointers,
    /// Of an attached program: the memory without a file that it had at the first look.
    older: Option<Vec<Range<u64>>>,
    /// The pools that the last look has found. They stay pools when all of their blocks are freed.
    pools: Vec<Range<u64>>,
    look: Option<Look>,
    /// The maps at the highest and at the last look, unless they were written.
    highest_map: Option<MemoryMap>,
    last_map: Option<MemoryMap>,
    highest_rss: u64,
    next_map_ns: u64,
    /// The reason why nothing could be read was written.
    is_excused: bool,
    began_ns: u64,
}

/// A look that is not finished.
struct Look {
    process: PathBuf,
    smaps: Smaps,
    mappings: Vec<MappedRange>,
    cover: BlockCover,
    instant: MemoryInstant,
    stack_pointers: Vec<u64>,
}

/// What is found page by page.
struct Found {
    pinned: PinnedPages,
    map: AddressMap,
}

impl Measuring {
    fn new(plan: MemoryPlan, shared: Arc<Shared>, blocks: mpsc::Sender<RawBlock>) -> Self {
        Measuring {
            plan,
            shared,
            blocks,
            stack_pointers: StackPointers::default(),
            older: None,
            pools: Vec::new(),
            look: None,
            highest_map: None,
            last_map: None,
            highest_rss: 0,
            next_map_ns: MAP_NS,
            is_excused: false,
            began_ns: 0,
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Look { pid, time_ns, is_jemalloc } => {
                self.began_ns = cpu_ns();
                match self.begin(pid, time_ns) {
                    Ok(mut look) => {
                        look.cover.has_slabs = is_jemalloc;
                        self.look = Some(look);
                        self.shared.set(Step::Blocks);
                    }
                    Err(error) => {
                        self.excuse(&error);
                        self.end(0);
                    }
                }
            }
            Order::Blocks(slice) => {
                if let Some(look) = &mut self.look {
                    slice.iter().for_each(|block| look.cover.add(block));
                }
                self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            }
            Order::Divide { visiting_ns, mapped, times } => {
                if let Some(look) = self.look.take() {
                    self.divide(look, mapped, &times);
                }
                self.end(visiting_ns);
            }
            Order::Forget => {
                self.pools.clear();
                self.end(0);
            }
            Order::Restart => {
                self.plan.is_attached = true;
                self.older = None;
            }
        }
    }

    fn end(&mut self, visiting_ns: u64) {
        self.look = None;
        let cost_ns = cpu_ns().saturating_sub(self.began_ns).saturating_add(visiting_ns);
        self.shared.cost_ns.store(cost_ns, Ordering::Release);
        self.shared.set(Step::Order);
    }

    fn begin(&mut self, pid: u32, time_ns: u64) -> io::Result<Look> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let smaps = Smaps::open(&process)?;
        let mappings = smaps.read()?;
        if mappings.is_empty() {
            // The process is ending.
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.plan.is_attached && self.older.is_none() {
            let had = |range: &&MappedRange| range.name == "[heap]" || range.is_anonymous_data();
            self.older = Some(mappings.iter().filter(had).map(|range| range.start..range.end).collect());
        }
        let sum = |bytes: fn(&MappedRange) -> u64| mappings.iter().map(bytes).sum();
        let cgroup = Cgroup::of(&process);
        let instant = MemoryInstant {
            time_ns,
            rss_bytes: sum(|range| range.rss_bytes),
            pss_bytes: sum(|range| range.pss_bytes),
            swap_bytes: sum(|range| range.swap_bytes),
            page_table_bytes: surroundings::page_table_bytes(&process),
            cgroup_cache_bytes: cgroup.as_ref().and_then(Cgroup::cache_bytes),
            cgroup_limit_bytes: cgroup.as_ref().and_then(Cgroup::limit_bytes),
            ..MemoryInstant::default()
        };
        let headers = ArenaHeaders::open(&process);
        let cover = BlockCover::new(&mappings, |start, is_by_place| headers.is_arena(start, is_by_place));
        let stack_pointers = self.stack_pointers.read(&process);
        Ok(Look { process, smaps, mappings, cover, instant, stack_pointers })
    }

    fn divide(&mut self, look: Look, mapped: Vec<MappedBy>, times: &Times) {
        let Look { process, smaps, mappings, mut cover, mut instant, stack_pointers } = look;
        let pages = PageMap::open(&process, PAGE).ok();
        // What the program has mapped itself meanwhile is no pool any more.
        let is_mapped = |pool: &Range<u64>| {
            let first = mapped.partition_point(|call| call.end <= pool.start);
            mapped.get(first).is_some_and(|call| call.start < pool.end)
        };
        self.pools.retain(|pool| !is_mapped(pool));
        cover.mark_pools(&self.pools);
        let older = self.older.clone().unwrap_or_default();
        let known = Known { stack_pointers, own_ranges: self.plan.own_ranges.clone(), older, mapped };
        let mut found = Found {
            pinned: PinnedPages::new(cover.has_slabs),
            map: AddressMap::new(mappings.iter().filter(|mapping| mapping.rss_bytes > 0).count()),
        };
        (instant.parts, instant.facts) = parts::divide(&mappings, &cover, pages.as_ref(), &known, &mut found);
        if let Some(pages) = &pages {
            huge_pages::add_facts(&process, &mappings, pages, &mut instant.facts);
        }
        if self.plan.is_sampled {
            sampled::without_blocks(&mut instant);
        } else {
            instant.live_blocks = cover.blocks;
            instant.requested_bytes = cover.requested_bytes;
            instant.usable_bytes = cover.usable_bytes;
            instant.fragmentation = found.pinned.finish(&cover);
        }
        self.pools = cover.pools();
        if !smaps.is_alive() {
            // The program has ended or replaced itself. Blocks and pages may have been missing, so nothing is known of this instant.
            return;
        }
        if !self.plan.is_sampled {
            self.keep_map(found.map.finish(instant.time_ns, instant.rss_bytes, |born| times.of(born)));
        }
        if let Ok(mut latest) = self.shared.latest.lock() {
            *latest = Some(Arc::new(instant.clone()));
        }
        let parts = MemoryParts { reason: String::new(), instants: vec![instant] };
        let _ = self.blocks.send(parts.to_block());
    }

    /// Keeps a map if it is the highest, and as the last one. Writes it if the last one that was written is old.
    fn keep_map(&mut self, map: MemoryMap) {
        if map.rss_bytes > self.highest_rss {
            self.highest_rss = map.rss_bytes;
            self.highest_map = Some(map.clone());
        }
        let is_due = map.time_ns >= self.next_map_ns;
        self.next_map_ns = if is_due { map.time_ns + (map.time_ns / MAP_PART).max(MAP_NS) } else { self.next_map_ns };
        self.last_map = Some(map);
        if is_due {
            self.write_maps();
        }
    }

    /// Writes the maps that were not written.
    fn write_maps(&mut self) {
        let highest = self.highest_map.take();
        let last =
            self.last_map.take().filter(|last| highest.as_ref().is_none_or(|highest| highest.time_ns != last.time_ns));
        for map in highest.iter().chain(&last) {
            let _ = self.blocks.send(map.to_block());
        }
    }

    /// Says once why the memory cannot be read. A process that has ended is no reason.
    fn excuse(&mut self, error: &io::Error) {
        let is_gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
        if is_gone || std::mem::replace(&mut self.is_excused, true) {
            return;
        }
        let reason = format!("The recorder could not read the program's mappings (smaps in /proc): {error}.");
        let _ = self.blocks.send(MemoryParts { reason, instants: Vec::new() }.to_block());
    }
}

/// The CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
