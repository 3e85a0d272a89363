//! The collecting thread and its loop, from the first event to the last.
//!
//! Receives: the shared memory, and where to write. Returns: the trace, or live numbers, and at the end what was
//! recorded. Must hold: after the target's death everything that it committed is in the file; whatever fails, the
//! target continues.
mod ending;
mod members;
mod notes;
mod parallel;
mod telling;

use crate::clock::Timeline;
use crate::cores::Cores;
use crate::drain::{Drain, Drained};
use crate::estimate::Estimate;
use crate::live::{Ask, Backlog};
use crate::mapping::{Mapping, SharedHeader};
use crate::memory::Looks;
use crate::memory_parts::MemoryLooks;
use crate::merge::{Merge, Patience, Stopped};
use crate::proc_files::Process;
use crate::queue::Store;
use crate::recorder::Recorder;
use crate::recording::{Inboxes, Subject};
use crate::sampler::Sampler;
use crate::sink::Sink;
use crate::spill::Spill;
use crate::stats::Stats;
use crate::writer::Writer;
use channel::{NO_CALLS_SEEN, Phase, Stamp};
use format::Losses;
use members::Members;
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Events are gathered for this long before they are written. We promise at most 200 ms until an event is in the file.
const BLOCK_AGE: Duration = Duration::from_millis(100);
const CHECK_EVERY: Duration = Duration::from_millis(100);
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// The time between two rounds. A thread whose ring gets half full ends it early by ringing the doorbell.
const SLEEP: Duration = Duration::from_millis(10);
/// The same while the target must make no system calls, so that its threads cannot ring the doorbell.
const UNRUNG_SLEEP: Duration = Duration::from_millis(1);
/// The time between two rounds that merge. A merge costs 40 us of system calls, interrupts the target's processors, and
/// finds its tables evicted from the cache. Rounds in between only empty the rings.
const MERGE_EVERY: Duration = Duration::from_millis(20);
/// If a round comes this soon, a thread rang the doorbell. There is much to do, so it merges at once.
const BUSY: Duration = Duration::from_micros(1500);
const START_SLEEP: Duration = Duration::from_micros(100);
/// The time between two rounds while no target has joined. A target that joins rings the doorbell.
const SPARE_SLEEP: Duration = Duration::from_millis(500);
const STARTING_NS: u64 = 50_000_000;
/// An upper bound of our own growth between our start and the fork of the target.
const LAUNCH_SLACK: u64 = 1 << 20;
/// How long an allocation waits for the free before it, and (below) a free for its allocation.
const FREE_PATIENCE_NS: u64 = 1_000_000;
const ALLOC_PATIENCE_NS: u64 = 10_000;

/// The state of the collecting thread.
pub(crate) struct Collector {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) header: SharedHeader,
    stats: Arc<Stats>,
    /// If blocks are sampled: what is live.
    estimate: Option<Estimate>,
    stop: Arc<AtomicBool>,
    writer: Writer,
    drain: Drain,
    /// Every event below this stamp has been drained.
    whole_until: Stamp,
    merge: Merge,
    cores: Cores,
    /// The other processes, if a tree is followed.
    members: Option<Members>,
    pub(crate) recorder: Recorder,
    sampler: Sampler,
    pub(crate) plan: Subject,
    started_unix_ns: u64,
    session_written: bool,
    suppressions_written: bool,
    losses: Losses,
    inboxes: Inboxes,
    /// Snapshots that are held, and (below) the number of those that were refused.
    backlog: Backlog,
    unanswered: u64,
    /// The watermark of the round before.
    last_watermark: Stamp,
    looks: Looks,
    pub(crate) memory_looks: MemoryLooks,
    is_live: bool,
    /// Our own resident memory when the target was forked, plus `LAUNCH_SLACK`.
    launch_rss: u64,
    first_pending: Option<Instant>,
    last_round: Instant,
    last_merge: Instant,
    /// Words that were drained since the last merge.
    unmerged: usize,
    next_check: Instant,
    next_refresh: Instant,
}

impl Collector {
    pub(crate) fn new(
        mapping: Arc<Mapping>,
        plan: Subject,
        writer: Writer,
        sink: Sink,
        stats: Arc<Stats>,
        stop: Arc<AtomicBool>,
        inboxes: Inboxes,
    ) -> Self {
        let header = SharedHeader::of(&mapping);
        let now = Instant::now();
        let timeline = Timeline::new(plan.setup.clock, now, &header);
        let is_live = sink.is_live();
        let mut recorder = Recorder::new(Arc::clone(&mapping), timeline, Process::new(0), plan.exe.clone(), sink);
        let members = plan.hub.clone().map(|page| Members::new(page, plan.setup));
        if members.is_some() {
            recorder.follow();
        }
        let memory_looks = MemoryLooks::new(plan.memory.clone(), inboxes.to_further.clone());
        // The first process of a tree has number 1, so that its blocks take the way of a tree.
        let first = members.is_some() as u16;
        Collector {
            header,
            stats,
            estimate: Estimate::new(plan.setup.sampling, now),
            stop,
            writer,
            drain: Drain::new(Arc::clone(&mapping), first),
            whole_until: 0,
            merge: Merge::new(Store::new(Spill::new(plan.folder.clone()), Store::BOUND)),
            cores: Cores::new(plan.threads),
            members,
            recorder,
            sampler: Sampler::default(),
            plan,
            started_unix_ns: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos() as u64),
            session_written: false,
            suppressions_written: false,
            losses: Losses::default(),
            inboxes,
            backlog: Backlog::default(),
            unanswered: 0,
            last_watermark: 0,
            looks: Looks::new(),
            memory_looks,
            is_live,
            launch_rss: Process::new(std::process::id()).rss_bytes().unwrap_or(u64::MAX / 2) + LAUNCH_SLACK,
            first_pending: None,
            last_round: now,
            last_merge: now,
            unmerged: 0,
            next_check: now,
            next_refresh: now,
            mapping,
        }
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(&mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let rung = self.doorbell().load(Ordering::Acquire);
            let drained = self.round();
            // A program can end within a millisecond, and its memory must be sampled at least once.
            let is_starting = !self.is_recording() && self.recorder.timeline.now_ns() < STARTING_NS;
            let is_spare = self.is_live && self.header.target_pid.load(Ordering::Acquire) == 0;
            let may_ring = self.header.no_syscalls.load(Ordering::Acquire) == 0;
            let is_soon = is_starting || self.memory_looks.waits_for_merge();
            let time = match (is_spare, is_soon, may_ring) {
                (true, ..) => SPARE_SLEEP,
                (_, true, _) => START_SLEEP,
                (.., true) => SLEEP,
                (.., false) => UNRUNG_SLEEP,
            };
            self.sleep(rung, time, drained);
        }
    }

    /// Shows threads that wait for room that we are working.
    fn note_progress(&self) {
        self.header.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// One round of the loop.
    fn round(&mut self) -> Drained {
        let pid = self.header.target_pid.load(Ordering::Acquire);
        if pid != 0 && !self.session_written {
            self.write_session(pid);
        }
        if !self.is_merge_due() {
            return self.empty_rings();
        }
        // Questions are taken before the watermark, so that an answer includes everything up to its question.
        let asks: Vec<Ask> = self.inboxes.asks.try_iter().collect();
        let now = self.recorder.timeline.sample(&self.header);
        let watermark = self.watermark(now);
        self.find_ended(now);
        self.welcome();
        // A process that has just joined may be about to end.
        let watermark = self.before_exits(watermark, now);
        let drained = self.drain_all();
        if self.is_live {
            let until = self.served_until(now, watermark, drained);
            self.serve_signals(until);
        }
        self.merge_drained(drained, watermark);
        if self.members.is_some() {
            self.last_watermark = watermark;
            if self.writer.has_room() {
                self.end_processes(watermark);
            }
        }
        if self.is_live {
            self.serve(pid, &asks);
        } else if self.is_recording() {
            self.sample_memory();
        }
        self.periodic(pid);
        self.measure_parts(pid);
        self.publish();
        drained
    }

    fn is_merge_due(&mut self) -> bool {
        let now = Instant::now();
        // With less than this, a merge takes less time than a fast program needs to fill the ring again.
        let is_much = self.unmerged >= self.mapping.region().geometry().ring_words as usize / 4;
        let is_busy = is_much || now - self.last_round < BUSY;
        self.last_round = now;
        // The blocks of a process that has ended count as live until the merge that ends it.
        let has_news = self.members.as_ref().is_some_and(Members::take_news);
        let is_due = is_busy
            || has_news
            || self.memory_looks.waits_for_merge()
            || self.is_live
            || !self.is_recording()
            || now - self.last_merge >= MERGE_EVERY;
        if is_due {
            (self.last_merge, self.unmerged) = (now, 0);
        }
        is_due
    }

    /// A round that only empties the rings, and leaves the merge to a later one.
    fn empty_rings(&mut self) -> Drained {
        self.recorder.timeline.tick(&self.header);
        self.header.next_round();
        self.welcome();
        let drained = self.drain_all();
        self.unmerged += drained.words;
        self.sample_memory();
        drained
    }

    /// The stamp below which every event of every process is committed. `now` must be read before the call.
    fn watermark(&self, now: Stamp) -> Stamp {
        match &self.members {
            None => self.drain.watermark(now),
            Some(members) => self.drain.watermark_of_all(&members.mappings(), now),
        }
    }

    /// Empties the rings of all processes.
    fn drain_all(&mut self) -> Drained {
        let mut drained = self.drain.empty_rings(self.merge.ordering());
        if let Some(members) = &mut self.members {
            members.empty_rings(&mut self.merge, &mut drained);
        }
        drained
    }

    fn sample_memory(&mut self) {
        let others = || self.members.as_ref().map_or(0, Members::rss_bytes);
        self.sampler.look(&self.mapping, &self.recorder, others);
    }

    /// Goes on with measuring the parts of the resident memory. In a tree, those of the first process.
    fn measure_parts(&mut self, pid: u32) {
        if pid != 0 && self.is_recording() {
            let rss_bytes = || self.recorder.process.rss_bytes().unwrap_or(0);
            let time_ns = self.recorder.timeline.now_ns();
            self.memory_looks.go_on(&self.recorder, pid, time_ns, rss_bytes);
        }
    }

    /// The futex on which we sleep.
    fn doorbell(&self) -> &AtomicU32 {
        self.members.as_ref().map_or(&self.header.doorbell, |members| &members.hub().doorbell)
    }

    /// True once the target runs the program that we launched. Before that, it is a copy of ourselves.
    fn is_recording(&self) -> bool {
        self.header.phase.load(Ordering::Acquire) == Phase::Recording as u32
    }

    /// If a ring could not be emptied (no memory, no spill file), its events are older than those of other rings, and
    /// the merge waits for them. If the queues have no room, waiting would keep them out for ever, so the merge
    /// continues.
    fn merge_drained(&mut self, drained: Drained, watermark: Stamp) {
        if drained.is_partial {
            self.merge_to(self.whole_until);
            if self.merge.ordering().has_room() {
                return;
            }
        } else {
            self.whole_until = watermark;
            // The blocks of a process that has ended must not count while later events of others are merged.
            for ended_at in self.ends_before(watermark) {
                self.merge_to(ended_at);
                // If the writer has no room, events of others may be left that were before this end.
                if self.writer.has_room() {
                    self.end_processes(ended_at);
                }
            }
        }
        self.merge_to(watermark);
    }

    fn merge_to(&mut self, watermark: Stamp) {
        self.recorder.read_modules();
        let timeline = &self.recorder.timeline;
        let patience =
            Patience { free: timeline.stamps_in(FREE_PATIENCE_NS), alloc: timeline.stamps_in(ALLOC_PATIENCE_NS) };
        if self.cores.threads() > 1 && self.merge.ordering().queued() >= parallel::MUCH {
            self.merge_in_parallel(watermark, patience);
        }
        while self.writer.has_room() {
            match self.merge.run(watermark, patience, &mut self.recorder) {
                Stopped::Done | Stopped::Waiting => break,
                Stopped::Paused => {
                    self.note_progress();
                    self.relieve_rings();
                }
                Stopped::Full => {
                    self.note_progress();
                    if self.is_live {
                        self.recorder.compact();
                    }
                    self.write_pending();
                }
            }
        }
        match self.first_pending {
            None if self.recorder.has_pending() => self.first_pending = Some(Instant::now()),
            Some(first) if first.elapsed() >= BLOCK_AGE => self.write_pending(),
            _ => (),
        }
    }

    /// Empties rings during a merge, so that threads need not wait until it is done. The events that arrive here are
    /// younger than the watermark.
    fn relieve_rings(&mut self) {
        let mut words = 0;
        let others = self.members.iter_mut().flat_map(Members::drains);
        for drain in std::iter::once(&mut self.drain).chain(others) {
            words += drain.relieve_rings(self.merge.ordering()).map_or(0, |drained| drained.words);
        }
        if words > 0 {
            self.unmerged += words;
            self.recorder.read_modules();
        }
    }

    fn write_pending(&mut self) {
        self.first_pending = None;
        parallel::write_pending(&mut self.recorder, &self.writer);
    }

    /// A target that enters a sandbox through libc announces it. If it makes the system call itself, only this check
    /// notices, later.
    fn watch_sandbox(&self) {
        let is_known = self.header.no_syscalls.load(Ordering::Acquire) != 0;
        if !is_known && self.recorder.process.has_own_filter() {
            self.header.no_syscalls.fetch_or(NO_CALLS_SEEN, Ordering::AcqRel);
        }
    }

    fn periodic(&mut self, pid: u32) {
        let now = Instant::now();
        if now < self.next_check || pid == 0 {
            return;
        }
        self.next_check = now + CHECK_EVERY;
        self.drain.reap(&self.recorder.process, &self.merge);
        self.look_at_members();
        self.cores.look();
        self.watch_sandbox();
        let events = self.recorder.event_count();
        if let Some(block) = self.sampler.take() {
            self.writer.put(block, events);
        }
        for block in self.inboxes.further.try_iter() {
            self.writer.put(block, events);
        }
        let losses = self.read_losses();
        if losses != self.losses {
            self.writer.put(losses.to_block(), events);
            self.losses = losses;
        }
        if now >= self.next_refresh {
            self.next_refresh = now + REFRESH_EVERY;
            self.recorder.refresh();
        }
        self.write_suppressions();
    }

    fn publish(&mut self) {
        let totals = self.recorder.totals();
        let (live_bytes, peak_bytes) = match &mut self.estimate {
            None => (totals.leaked_bytes, totals.peak_bytes),
            Some(estimate) => {
                estimate.look(&self.recorder);
                (estimate.live_bytes, estimate.peak_bytes)
            }
        };
        Stats::set(&self.stats.events, self.recorder.event_count());
        Stats::set(&self.stats.live_bytes, live_bytes);
        Stats::set(&self.stats.peak_bytes, peak_bytes);
        Stats::set(&self.stats.file_bytes, self.writer.file_bytes());
        Stats::set(&self.stats.lost_events, self.losses.lost_events);
    }

    /// Waits for the doorbell or until `time` has passed. Does not sleep if a ring was half full in the last round, so
    /// that its thread need not ring again so soon. Also stays awake while a ring that can be emptied is half full: its
    /// writer saw the collector awake and did not ring. `drained` is the result of the last round.
    fn sleep(&self, rung: u32, time: Duration, drained: Drained) {
        if drained.fullest >= self.mapping.region().geometry().ring_words as usize / 2 {
            return;
        }
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as _ };
        let asleep =
            self.members.as_ref().map_or(&self.header.collector_asleep, |members| &members.hub().collector_asleep);
        asleep.store(1, Ordering::SeqCst);
        let could_empty = drained.words > 0 && !drained.is_partial;
        let is_half_full =
            || self.drain.is_any_half_full() || self.members.as_ref().is_some_and(Members::is_any_half_full);
        if !(could_empty && is_half_full()) {
            let _ = futex::wait(self.doorbell(), futex::Flags::empty(), rung, Some(&timeout));
        }
        asleep.store(0, Ordering::Relaxed);
    }
}
