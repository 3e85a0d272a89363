//! The collecting thread and its loop, from the first event to the last.
//!
//! Given: the shared memory, and where to write. Gives back: the trace, or live numbers, and at the end what was recorded. What must
//! hold: after the target's death everything it committed is in the file; whatever fails, the target goes on.
mod ending;
mod notes;
mod telling;

use crate::clock::Timeline;
use crate::drain::{Drain, Drained};
use crate::live::{Ask, Backlog};
use crate::mapping::{Mapping, SharedHeader};
use crate::memory::Looks;
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
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// An event waits so long for company before it is written; at most 200 ms are promised until it is in the file.
const BLOCK_AGE: Duration = Duration::from_millis(100);
const CHECK_EVERY: Duration = Duration::from_millis(100);
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// Between two rounds, unless a ring gets half full: who writes it rings then.
const SLEEP: Duration = Duration::from_millis(10);
/// The same while the target must make no system calls, so that none of its threads can ring.
const UNRUNG_SLEEP: Duration = Duration::from_millis(1);
/// Between two rounds that merge. To merge costs 40 us of system calls, interrupts the target's processors, and finds its tables out of the
/// processor's cache; rounds in between only empty the rings.
const MERGE_EVERY: Duration = Duration::from_millis(20);
/// Rounds that come so quickly were rung for: there is much to do, and it is done at once.
const BUSY: Duration = Duration::from_micros(1500);
const START_SLEEP: Duration = Duration::from_micros(100);
/// Nobody is there yet; who comes rings.
const SPARE_SLEEP: Duration = Duration::from_millis(500);
const STARTING_NS: u64 = 50_000_000;
/// What we may have grown by between our start and the fork of the target.
const LAUNCH_SLACK: u64 = 1 << 20;
/// How long an allocation waits for the free before it, and a free for its allocation.
const FREE_PATIENCE_NS: u64 = 1_000_000;
const ALLOC_PATIENCE_NS: u64 = 10_000;

/// What the collecting thread works with.
pub(crate) struct Collector {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) header: SharedHeader,
    stats: Arc<Stats>,
    stop: Arc<AtomicBool>,
    writer: Writer,
    drain: Drain,
    /// Up to here every event has been drained.
    whole_until: Stamp,
    merge: Merge,
    pub(crate) recorder: Recorder,
    sampler: Sampler,
    pub(crate) plan: Subject,
    started_unix_ns: u64,
    session_written: bool,
    suppressions_written: bool,
    losses: Losses,
    inboxes: Inboxes,
    /// Snapshots that wait, and those that were asked for and not made.
    backlog: Backlog,
    unanswered: u64,
    /// The watermark of the round before.
    last_watermark: Stamp,
    looks: Looks,
    is_live: bool,
    /// Our own resident memory when the target was forked, and some more.
    launch_rss: u64,
    first_pending: Option<Instant>,
    last_round: Instant,
    last_merge: Instant,
    /// Words that were drained since then.
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
        let recorder = Recorder::new(Arc::clone(&mapping), timeline, Process::new(0), plan.exe.clone(), sink);
        Collector {
            header,
            stats,
            stop,
            writer,
            drain: Drain::new(Arc::clone(&mapping)),
            whole_until: 0,
            merge: Merge::new(Store::new(Spill::new(plan.folder.clone()), Store::BOUND)),
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

    /// Until told to stop.
    pub(crate) fn run(&mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let rung = self.header.doorbell.load(Ordering::Acquire);
            let drained = self.round();
            // A program can be over in a millisecond, and one look at its memory must be had.
            let is_starting = !self.is_recording() && self.recorder.timeline.now_ns() < STARTING_NS;
            let is_spare = self.is_live && self.header.target_pid.load(Ordering::Acquire) == 0;
            let may_ring = self.header.no_syscalls.load(Ordering::Acquire) == 0;
            let time = match (is_spare, is_starting, may_ring) {
                (true, ..) => SPARE_SLEEP,
                (_, true, _) => START_SLEEP,
                (.., true) => SLEEP,
                (.., false) => UNRUNG_SLEEP,
            };
            self.sleep(rung, time, drained);
        }
    }

    /// Threads that wait for room see that we work.
    fn note_progress(&self) {
        self.header.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at everything once.
    fn round(&mut self) -> Drained {
        let pid = self.header.target_pid.load(Ordering::Acquire);
        if pid != 0 && !self.session_written {
            self.write_session(pid);
        }
        if !self.is_merge_due() {
            return self.empty_rings();
        }
        // Before the instant that is merged up to: an answer holds everything up to its question.
        let asks: Vec<Ask> = self.inboxes.asks.try_iter().collect();
        let now = self.recorder.timeline.sample(&self.header);
        let watermark = self.drain.watermark(now);
        let drained = self.drain.empty_rings(&mut self.merge);
        if self.is_live {
            let until = self.served_until(now, watermark, drained);
            self.serve_signals(until);
        }
        self.merge_drained(drained, watermark);
        if self.is_live {
            self.serve(pid, &asks);
        } else if self.is_recording() {
            self.sampler.look(&self.mapping, &self.recorder);
        }
        self.periodic(pid);
        self.publish();
        drained
    }

    fn is_merge_due(&mut self) -> bool {
        let now = Instant::now();
        // To merge a ring's worth takes less time than a quick program needs to fill the ring again.
        let is_much = self.unmerged >= self.mapping.region().geometry().ring_words as usize / 4;
        let is_busy = is_much || now - self.last_round < BUSY;
        self.last_round = now;
        let is_due = is_busy || self.is_live || !self.is_recording() || now - self.last_merge >= MERGE_EVERY;
        if is_due {
            (self.last_merge, self.unmerged) = (now, 0);
        }
        is_due
    }

    /// A round that leaves the rest to the next one.
    fn empty_rings(&mut self) -> Drained {
        self.recorder.timeline.tick(&self.header);
        self.header.next_round();
        let drained = self.drain.empty_rings(&mut self.merge);
        self.unmerged += drained.words;
        self.sampler.look(&self.mapping, &self.recorder);
        drained
    }

    /// The program in the target is the one we launched: before, it is a copy of ourselves.
    fn is_recording(&self) -> bool {
        self.header.phase.load(Ordering::Acquire) == Phase::Recording as u32
    }

    /// Where a ring could not be emptied (no memory, no spill file), its events are older than what the others gave: they are waited for, unless
    /// that keeps the room from them.
    fn merge_drained(&mut self, drained: Drained, watermark: Stamp) {
        if drained.is_partial {
            self.merge_to(self.whole_until);
            if self.merge.has_room() {
                return;
            }
        } else {
            self.whole_until = watermark;
        }
        self.merge_to(watermark);
    }

    fn merge_to(&mut self, watermark: Stamp) {
        self.recorder.read_modules();
        let timeline = &self.recorder.timeline;
        let patience =
            Patience { free: timeline.stamps_in(FREE_PATIENCE_NS), alloc: timeline.stamps_in(ALLOC_PATIENCE_NS) };
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

    /// A thread that writes while we merge need not wait until we are done. What comes here is younger than the watermark.
    fn relieve_rings(&mut self) {
        if let Some(drained) = self.drain.relieve_rings(&mut self.merge) {
            self.unmerged += drained.words;
            self.recorder.read_modules();
        }
    }

    fn write_pending(&mut self) {
        self.first_pending = None;
        let events = self.recorder.event_count();
        self.recorder.take_blocks(|block| self.writer.put(block, events));
    }

    /// A target that enters a sandbox through libc has announced it. One that does so by its own means is seen here, late.
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

    fn publish(&self) {
        let totals = self.recorder.totals();
        Stats::set(&self.stats.events, self.recorder.event_count());
        Stats::set(&self.stats.live_bytes, totals.leaked_bytes);
        Stats::set(&self.stats.peak_bytes, totals.peak_bytes);
        Stats::set(&self.stats.file_bytes, self.writer.file_bytes());
        Stats::set(&self.stats.lost_events, self.losses.lost_events);
    }

    /// Not where one ring had been half full, so that it need not ring again so soon; nor while one is that can be emptied: who filled it
    /// found us awake. `drained`: by the round before.
    fn sleep(&self, rung: u32, time: Duration, drained: Drained) {
        if drained.fullest >= self.mapping.region().geometry().ring_words as usize / 2 {
            return;
        }
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as _ };
        self.header.collector_asleep.store(1, Ordering::SeqCst);
        let could_empty = drained.words > 0 && !drained.is_partial;
        if !(could_empty && self.drain.is_any_half_full()) {
            let _ = futex::wait(&self.header.doorbell, futex::Flags::empty(), rung, Some(&timeout));
        }
        self.header.collector_asleep.store(0, Ordering::Relaxed);
    }
}
