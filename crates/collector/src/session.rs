//! A session from start to end: the collecting thread and its loop.
//!
//! Given: how to record, and an open file. Gives back: what the target needs to find us, live numbers, and at the end
//! what was recorded. What must hold: the collecting thread runs before the target does; after the target's death
//! everything it committed is in the file; whatever fails, the target goes on.
use crate::aggregate::Aggregate;
use crate::clock::Timeline;
use crate::drain::Drain;
use crate::error::SetupError;
use crate::live::{Ask, Reason, Snapshot};
use crate::mapping::{Mapping, Setup, hold_until_death, tsc};
use crate::memory::Looks;
use crate::merge::{Merge, Patience, Stopped};
use crate::modules::text;
use crate::process::Process;
use crate::queue::Store;
use crate::recorder::Recorder;
use crate::sampler::Sampler;
use crate::sink::Sink;
use crate::spill::Spill;
use crate::stats::Stats;
use crate::writer::Writer;
use channel::{Clock, Farewell, Header, Loss, Phase, Request, Stamp};
use format::{Domain, Exit, HeapAtAttach, Losses, RawBlock, Session, Summary, Suppressions, Totals};
use rustix::thread::futex;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// An event waits so long for company before it is written; at most 200 ms are promised until it is in the file.
const BLOCK_AGE: Duration = Duration::from_millis(120);
const CHECK_EVERY: Duration = Duration::from_millis(100);
const SANDBOX_DOUBTS: u32 = 2;
const REFRESH_EVERY: Duration = Duration::from_secs(1);
const SHORT_SLEEP: Duration = Duration::from_millis(2);
const LONG_SLEEP: Duration = Duration::from_millis(10);
const START_SLEEP: Duration = Duration::from_micros(100);
/// Nobody is there yet; who comes rings.
const SPARE_SLEEP: Duration = Duration::from_millis(500);
const STARTING_NS: u64 = 50_000_000;
/// What we may have grown by between our start and the fork of the target.
const LAUNCH_SLACK: u64 = 1 << 20;
/// How long an allocation waits for the free before it, and a free for its allocation.
const FREE_PATIENCE_NS: u64 = 1_000_000;
const ALLOC_PATIENCE_NS: u64 = 10_000;

/// What to record, and where to.
#[derive(Debug)]
pub struct Plan {
    pub setup: Setup,
    /// The trace; empty, open for writing.
    pub file: File,
    /// Where the spill file may be made.
    pub folder: PathBuf,
    pub command: Vec<String>,
    /// The program's file.
    pub exe: String,
    /// Name and version of this program.
    pub tool: String,
}

/// How to watch a target without a trace.
#[derive(Clone, Debug)]
pub struct LivePlan {
    pub setup: Setup,
    /// Where the spill file may be made.
    pub folder: PathBuf,
    /// The program's file; empty: whatever joins.
    pub exe: String,
    /// Frames by which stacks are told apart.
    pub depth: usize,
}

/// Snapshots that wait for somebody who reads them.
const MOST_SNAPSHOTS: usize = 4;

/// A process that runs already.
#[derive(Debug)]
pub struct Attachment {
    pub pid: u32,
    /// Its shared memory: empty.
    pub channel: OwnedFd,
    pub heap: HeapAtAttach,
}

/// What became of a session.
#[derive(Debug)]
pub struct Outcome {
    /// False: the library in the target never started recording.
    pub started: bool,
    /// Why not, if it said so (`Header::refusal`).
    pub refusal: u32,
    /// Malloc's.
    pub totals: Totals,
    /// Of the blocks that the program reported itself, if it did.
    pub custom: Option<Totals>,
    pub events: u64,
    pub losses: Losses,
    pub file_bytes: u64,
    /// The file ends before the session does.
    pub write_error: Option<io::Error>,
    /// What lived at the end, for a session without a trace.
    pub last: Option<Snapshot>,
    /// Snapshots before it that nobody has read.
    pub unread: Vec<Snapshot>,
}

/// How the target ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    pub exit: Exit,
    /// The most resident memory it ever had, where the kernel told. It may count what was there before the program
    /// started.
    pub peak_rss: Option<u64>,
}

impl From<Exit> for End {
    fn from(exit: Exit) -> Self {
        End { exit, peak_rss: None }
    }
}

/// A session that runs.
pub struct Recording {
    mapping: Arc<Mapping>,
    clock: Clock,
    stats: Arc<Stats>,
    stop: Arc<AtomicBool>,
    end: mpsc::Sender<End>,
    blocks: mpsc::Sender<RawBlock>,
    asks: mpsc::Sender<Ask>,
    snapshots: mpsc::Receiver<Snapshot>,
    thread: JoinHandle<Outcome>,
}

/// A session whose thread may not run yet.
struct Starting {
    recording: Recording,
    is_ready: mpsc::Receiver<io::Result<()>>,
}

impl Starting {
    fn ready(self) -> Result<Recording, SetupError> {
        match self.is_ready.recv() {
            Ok(Ok(())) => Ok(self.recording),
            Ok(Err(error)) => Err(SetupError::Thread(error)),
            Err(_) => Err(SetupError::Thread(io::Error::other("the collecting thread ended"))),
        }
    }
}

/// What a session has to say about itself.
struct Subject {
    setup: Setup,
    folder: PathBuf,
    command: Vec<String>,
    exe: String,
    tool: String,
    /// How large the heap was, of a process that ran already.
    attached: Option<HeapAtAttach>,
}

/// The collecting thread's ends of all its letter boxes.
struct Letters {
    /// Blocks that others made.
    further: mpsc::Receiver<RawBlock>,
    asks: mpsc::Receiver<Ask>,
    snapshots: mpsc::SyncSender<Snapshot>,
}

impl Recording {
    /// Everything is ready for the target when this returns.
    pub fn start(plan: Plan) -> Result<Self, SetupError> {
        let mapping = Mapping::create(&plan.setup)?;
        Self::start_with(plan, mapping, None)
    }

    /// The same for a process that runs already and has made the shared memory itself.
    pub fn start_attached(plan: Plan, attachment: Attachment) -> Result<Self, SetupError> {
        let mapping = Mapping::adopt(&plan.setup, attachment.channel)?;
        mapping.region().header().target_pid.store(attachment.pid, Ordering::Release);
        Self::start_with(plan, mapping, Some(attachment.heap))
    }

    fn start_with(plan: Plan, mapping: Mapping, attached: Option<HeapAtAttach>) -> Result<Self, SetupError> {
        let writer = Writer::start(plan.file.try_clone().map_err(SetupError::Output)?)?;
        let Plan { setup, folder, command, exe, tool, .. } = plan;
        let subject = Subject { setup, folder, command, exe, tool, attached };
        Self::begin(subject, mapping, writer, Sink::trace())?.ready()
    }

    /// The same without a trace: what lives can be asked for, and is in the outcome.
    pub fn live(plan: LivePlan) -> Result<Self, SetupError> {
        Self::begin_live(plan)?.ready()
    }

    /// Several at a time: their threads start side by side.
    pub fn live_ones(plan: &LivePlan, count: usize) -> Vec<Self> {
        let begun: Vec<Starting> = (0..count).map_while(|_| Self::begin_live(plan.clone()).ok()).collect();
        begun.into_iter().filter_map(|starting| starting.ready().ok()).collect()
    }

    /// Without a trace, for a process that runs already.
    pub fn live_attached(plan: LivePlan, attachment: Attachment) -> Result<Self, SetupError> {
        let mapping = Mapping::adopt(&plan.setup, attachment.channel)?;
        mapping.region().header().target_pid.store(attachment.pid, Ordering::Release);
        Self::begin_live_in(plan, mapping, Some(attachment.heap))?.ready()
    }

    fn begin_live(plan: LivePlan) -> Result<Starting, SetupError> {
        let mapping = Mapping::create(&plan.setup)?;
        Self::begin_live_in(plan, mapping, None)
    }

    fn begin_live_in(plan: LivePlan, mapping: Mapping, attached: Option<HeapAtAttach>) -> Result<Starting, SetupError> {
        let LivePlan { setup, folder, exe, depth } = plan;
        let subject = Subject { setup, folder, command: Vec::new(), exe, tool: String::new(), attached };
        Self::begin(subject, mapping, Writer::nowhere(), Sink::Live(Box::new(Aggregate::new(depth))))
    }

    fn begin(plan: Subject, mapping: Mapping, writer: Writer, sink: Sink) -> Result<Starting, SetupError> {
        let mapping = Arc::new(mapping);
        let clock = plan.setup.clock;
        let stats = Arc::new(Stats::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (end, end_inbox) = mpsc::channel();
        let (blocks, further) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (asks, asks_inbox) = mpsc::channel();
        let (to_reader, snapshots) = mpsc::sync_channel(MOST_SNAPSHOTS);
        let letters = Letters { further, asks: asks_inbox, snapshots: to_reader };
        let (shared, numbers, stopping) = (Arc::clone(&mapping), Arc::clone(&stats), Arc::clone(&stop));
        let work = move || {
            let held = hold_until_death(&shared.region().header().collector_alive);
            let failed = held.is_err();
            let (_held, answer) = held.map_or_else(|error| (None, Err(error)), |held| (Some(held), Ok(())));
            let _ = ready.send(answer);
            let mut collector = Collector::new(shared, plan, writer, sink, numbers, stopping, letters);
            if !failed {
                collector.run();
            }
            collector.finish(&end_inbox)
        };
        let thread =
            std::thread::Builder::new().name("heaptrack-drain".into()).spawn(work).map_err(SetupError::Thread)?;
        let recording = Recording { mapping, clock, stats, stop, end, blocks, asks, snapshots, thread };
        Ok(Starting { recording, is_ready })
    }

    /// The value of `HEAPTRACK_CHANNEL` for a target that inherits our memfd under its own number.
    pub fn variable(&self) -> String {
        let fd = self.mapping.fd().as_raw_fd();
        format!("{fd},/proc/{}/fd/{fd}", std::process::id())
    }

    /// The same for a target that does not inherit it.
    pub fn variable_by_path(&self) -> String {
        format!("-,/proc/{}/fd/{}", std::process::id(), self.mapping.fd().as_raw_fd())
    }

    /// Where blocks go that somebody else makes (names of frames).
    pub fn blocks(&self) -> mpsc::Sender<RawBlock> {
        self.blocks.clone()
    }

    /// Answered by a snapshot, soon.
    pub fn ask(&self, what: Ask) {
        let _ = self.asks.send(what);
        self.ring();
    }

    /// The next one that is there. Nobody waits: what is not read in time is left out.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshots.try_recv().ok()
    }

    fn ring(&self) {
        let header = self.mapping.region().header();
        header.doorbell.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&header.doorbell, futex::Flags::empty(), 1);
    }

    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The target's pid, once there is one.
    pub fn target_pid(&self) -> Option<u32> {
        let pid = self.mapping.region().header().target_pid.load(Ordering::Acquire);
        (pid != 0).then_some(pid)
    }

    /// The target records, or has recorded.
    pub fn has_started(&self) -> bool {
        self.mapping.region().header().phase.load(Ordering::Acquire) != Phase::Waiting as u32
    }

    /// The stamp that an event written now would get.
    pub fn now(&self) -> Stamp {
        match self.clock {
            Clock::Tsc => tsc(),
            Clock::Ticks => self.mapping.region().header().ticks.load(Ordering::Acquire),
        }
    }

    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// The target is gone, or recording is to end: writes everything committed and closes the trace.
    pub fn finish(self, end: End) -> Option<Outcome> {
        let _ = self.end.send(end);
        self.stop.store(true, Ordering::Release);
        self.ring();
        let mut outcome = self.thread.join().ok()?;
        outcome.unread.extend(self.snapshots.try_iter());
        Some(outcome)
    }
}

/// What the collecting thread works with.
struct Collector {
    mapping: Arc<Mapping>,
    header: &'static Header,
    stats: Arc<Stats>,
    stop: Arc<AtomicBool>,
    writer: Writer,
    drain: Drain,
    merge: Merge,
    recorder: Recorder,
    sampler: Sampler,
    plan: Subject,
    started_unix_ns: u64,
    session_written: bool,
    suppressions_written: bool,
    losses: Losses,
    sandbox_doubts: u32,
    letters: Letters,
    looks: Looks,
    is_live: bool,
    /// Our own resident memory when the target was forked, and some more.
    launch_rss: u64,
    first_pending: Option<Instant>,
    next_check: Instant,
    next_refresh: Instant,
}

impl Collector {
    fn new(
        mapping: Arc<Mapping>,
        plan: Subject,
        writer: Writer,
        sink: Sink,
        stats: Arc<Stats>,
        stop: Arc<AtomicBool>,
        letters: Letters,
    ) -> Self {
        let header = mapping.region().header();
        let now = Instant::now();
        let timeline = Timeline::new(plan.setup.clock, now, header);
        let is_live = sink.is_live();
        let recorder = Recorder::new(mapping.region(), timeline, Process::new(0), plan.exe.clone(), sink);
        Collector {
            header,
            stats,
            stop,
            writer,
            drain: Drain::new(Arc::clone(&mapping)),
            merge: Merge::new(Store::new(Spill::new(plan.folder.clone()), Store::BOUND)),
            recorder,
            sampler: Sampler::default(),
            plan,
            started_unix_ns: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos() as u64),
            session_written: false,
            suppressions_written: false,
            losses: Losses::default(),
            sandbox_doubts: 0,
            letters,
            looks: Looks::new(),
            is_live,
            launch_rss: Process::new(std::process::id()).rss_bytes().unwrap_or(u64::MAX / 2) + LAUNCH_SLACK,
            first_pending: None,
            next_check: now,
            next_refresh: now,
            mapping,
        }
    }

    /// Until told to stop.
    fn run(&mut self) {
        let mut sleep = SHORT_SLEEP;
        while !self.stop.load(Ordering::Acquire) {
            let rung = self.header.doorbell.load(Ordering::Acquire);
            let fullest = self.round();
            if fullest >= self.mapping.region().geometry().ring_words as usize / 2 {
                continue;
            }
            sleep = if fullest > 0 { SHORT_SLEEP } else { (sleep * 2).min(LONG_SLEEP) };
            // A program can be over in a millisecond, and one look at its memory must be had.
            let is_starting = !self.is_recording() && self.recorder.timeline.now_ns() < STARTING_NS;
            let is_spare = self.is_live && self.header.target_pid.load(Ordering::Acquire) == 0;
            self.sleep(
                rung,
                if is_spare {
                    SPARE_SLEEP
                } else if is_starting {
                    START_SLEEP
                } else {
                    sleep
                },
            );
        }
    }

    /// Looks at everything once. Returns the most words that one ring had.
    fn round(&mut self) -> usize {
        let pid = self.header.target_pid.load(Ordering::Acquire);
        if pid != 0 && !self.session_written {
            self.write_session(pid);
        }
        // Before the instant that is merged up to: an answer holds everything up to its question.
        let asks: Vec<Ask> = self.letters.asks.try_iter().collect();
        let now = self.recorder.timeline.sample(self.header);
        let watermark = self.drain.watermark(now);
        let drained = self.drain.empty_rings(&mut self.merge);
        if self.is_live {
            self.serve_signals(watermark);
        }
        self.merge_to(watermark);
        if self.is_live {
            self.serve(pid, &asks);
        } else if self.is_recording() {
            self.sampler.look(&self.mapping, &self.recorder);
        }
        self.periodic(pid);
        self.publish();
        drained.fullest
    }

    /// The program in the target is the one we launched: before, it is a copy of ourselves.
    fn is_recording(&self) -> bool {
        self.header.phase.load(Ordering::Acquire) == Phase::Recording as u32
    }

    fn merge_to(&mut self, watermark: Stamp) {
        self.recorder.read_modules();
        let timeline = &self.recorder.timeline;
        let patience =
            Patience { free: timeline.stamps_in(FREE_PATIENCE_NS), alloc: timeline.stamps_in(ALLOC_PATIENCE_NS) };
        while self.writer.has_room() && self.merge.run(watermark, patience, &mut self.recorder) == Stopped::Full {
            if self.is_live {
                self.recorder.compact();
            }
            self.write_pending();
        }
        match self.first_pending {
            None if self.recorder.has_pending() => self.first_pending = Some(Instant::now()),
            Some(first) if first.elapsed() >= BLOCK_AGE => self.write_pending(),
            _ => (),
        }
    }

    fn write_pending(&mut self) {
        self.first_pending = None;
        let events = self.recorder.event_count();
        self.recorder.take_blocks(|block| self.writer.put(block, events));
    }

    /// Signals that the target was sent: each is served at the very instant that its handler saw.
    fn serve_signals(&mut self, watermark: Stamp) {
        let mut due =
            Request::ALL.map(|request| (self.header.requests[request as usize].load(Ordering::Acquire), request));
        due.sort_unstable_by_key(|(stamp, _)| *stamp);
        for (stamp, request) in due.into_iter().filter(|(stamp, _)| (1..=watermark).contains(stamp)) {
            self.merge_to(stamp);
            let place = &self.header.requests[request as usize];
            let _ = place.compare_exchange(stamp, 0, Ordering::AcqRel, Ordering::Relaxed);
            match request {
                Request::BySize => self.send_snapshot(Reason::BySize),
                Request::ByCount => self.send_snapshot(Reason::ByCount),
                Request::Window => self.new_window(),
            }
        }
    }

    /// What others ask, and what the target says when it ends.
    fn serve(&mut self, pid: u32, asks: &[Ask]) {
        if self.header.farewell.load(Ordering::Acquire) == Farewell::Said as u32 {
            self.looks.look(pid, self.recorder.timeline.now_ns());
            self.looks.last.is_last = true;
            self.header.farewell.store(Farewell::Answered as u32, Ordering::Release);
            let _ = futex::wake(&self.header.farewell, futex::Flags::empty(), i32::MAX as u32);
        }
        if pid != 0 && self.is_recording() && !self.looks.last.is_last {
            self.looks.now_and_then(pid, self.recorder.timeline.now_ns());
        }
        for ask in asks {
            match ask {
                Ask::Snapshot(number) => self.send_snapshot(Reason::Asked(*number)),
                Ask::Window => self.new_window(),
            }
        }
    }

    fn new_window(&mut self) {
        self.recorder.new_window();
        self.send_snapshot(Reason::Window);
    }

    fn send_snapshot(&mut self, reason: Reason) {
        let pid = self.header.target_pid.load(Ordering::Acquire);
        self.looks.look(pid, self.recorder.timeline.now_ns());
        let snapshot = self.snapshot_now(reason);
        let _ = self.letters.snapshots.try_send(snapshot);
    }

    fn snapshot_now(&self, reason: Reason) -> Snapshot {
        Snapshot {
            reason,
            pid: self.header.target_pid.load(Ordering::Acquire),
            name: self.looks.name.clone(),
            time_ns: self.recorder.timeline.now_ns(),
            sites: self.recorder.live_sites(),
            totals: self.recorder.totals(),
            losses: self.read_losses(),
            modules: self.recorder.modules().to_vec(),
            memory: self.looks.last,
        }
    }

    /// The target says so before it enters a sandbox; if two looks find none, it did not get in.
    fn watch_sandbox(&mut self) {
        let said = self.header.no_syscalls.load(Ordering::Acquire) != 0;
        let inside = self.recorder.process.has_own_filter();
        self.sandbox_doubts = if said && !inside { self.sandbox_doubts + 1 } else { 0 };
        if inside || self.sandbox_doubts >= SANDBOX_DOUBTS {
            self.header.no_syscalls.store(inside as u32, Ordering::Release);
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
        for block in self.letters.further.try_iter() {
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

    fn write_session(&mut self, pid: u32) {
        self.session_written = true;
        self.recorder.process = Process::new(pid);
        if self.plan.attached.is_some() {
            self.recorder.process.accept_filters();
        }
        let names = rustix::system::uname();
        let memory = rustix::system::sysinfo();
        let session = Session {
            version: format::VERSION,
            command: self.plan.command.clone(),
            exe: self.plan.exe.clone(),
            pid,
            attached: self.plan.attached.is_some(),
            started_unix_ns: self.started_unix_ns,
            hostname: names.nodename().to_string_lossy().into_owned(),
            page_size: rustix::param::page_size() as u32,
            system_memory: memory.totalram as u64 * memory.mem_unit as u64,
            tool: self.plan.tool.clone(),
        };
        self.writer.put(session.to_block(), 0);
        if let Some(heap) = self.plan.attached {
            self.writer.put(heap.to_block(), 0);
        }
    }

    fn write_suppressions(&mut self) {
        let place = self.header.lsan_text.load(Ordering::Acquire);
        if place == 0 || self.suppressions_written {
            return;
        }
        self.suppressions_written = true;
        if let Some(text) = text(&self.mapping.region(), (place >> 32) as u32, place as u32) {
            self.writer.put(Suppressions(text).to_block(), self.recorder.event_count());
        }
    }

    fn read_losses(&self) -> Losses {
        let mut losses = Losses { implied_frees: self.recorder.totals().implied_frees, ..Losses::default() };
        for cause in Loss::ALL {
            let count = self.header.losses[cause as usize].load(Ordering::Relaxed);
            if count > 0 {
                losses.by_cause.push((cause.name().to_owned(), count));
                losses.lost_events = losses.lost_events.saturating_add(if cause.is_event() { count } else { 0 });
            }
        }
        // A record is two or three words: at least this many events are gone.
        let unread = self.merge.lost_words().div_ceil(3) + self.drain.stopped_slots();
        if unread > 0 {
            losses.by_cause.push(("unreadable_ring".to_owned(), unread));
            losses.lost_events = losses.lost_events.saturating_add(unread);
        }
        if self.recorder.corrupt_stacks() > 0 {
            losses.by_cause.push(("unreadable_stack".to_owned(), self.recorder.corrupt_stacks()));
        }
        losses.note = self.note();
        losses
    }

    /// What the program itself left out of the trace.
    fn note(&self) -> Option<String> {
        let stopped = self.header.stopped_by_program.load(Ordering::Relaxed) != 0;
        let ended = "The program ended recording itself (heaptrack_stop): what was live then counts as leaked.";
        let paused = match self.header.pauses.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("once".to_owned()),
            times => Some(format!("{times} times")),
        };
        let paused = paused.map(|times| {
            format!(
                "The program paused recording {times} (heaptrack_pause): allocations in between are not in the trace."
            )
        });
        let sentences: Vec<String> = paused.into_iter().chain(stopped.then(|| ended.to_owned())).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    fn publish(&self) {
        let totals = self.recorder.totals();
        Stats::set(&self.stats.events, self.recorder.event_count());
        Stats::set(&self.stats.live_bytes, totals.leaked_bytes);
        Stats::set(&self.stats.peak_bytes, totals.peak_bytes);
        Stats::set(&self.stats.file_bytes, self.writer.file_bytes());
        Stats::set(&self.stats.lost_events, self.losses.lost_events);
    }

    fn sleep(&self, rung: u32, time: Duration) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as _ };
        self.header.collector_asleep.store(1, Ordering::SeqCst);
        let _ = futex::wait(&self.header.doorbell, futex::Flags::empty(), rung, Some(&timeout));
        self.header.collector_asleep.store(0, Ordering::Relaxed);
    }

    /// The target writes no more: everything that it committed goes into the file.
    fn finish(mut self, end: &mpsc::Receiver<End>) -> Outcome {
        let end = end.recv().unwrap_or_default();
        let before = self.header.phase.swap(Phase::Stopped as u32, Ordering::AcqRel);
        let started = before != Phase::Waiting as u32;
        let pid = self.header.target_pid.load(Ordering::Acquire);
        if pid != 0 && !self.session_written {
            self.write_session(pid);
        }
        self.recorder.timeline.sample(self.header);
        loop {
            let drained = self.drain.empty_rings(&mut self.merge);
            if self.is_live {
                self.serve_signals(Stamp::MAX);
            }
            self.merge_to(Stamp::MAX);
            if drained.words == 0 && self.merge.is_empty() {
                break;
            }
            // Nobody waits for us any more, so here we may wait for the disk.
            while !self.writer.has_room() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.recorder.refresh();
        self.write_pending();
        self.write_suppressions();
        self.close(started, end)
    }

    /// Samples are 10 ms apart: the kernel's own figure is better, unless it is about us.
    fn peak_rss(&self, end: End) -> u64 {
        let sampled = self.sampler.peak_rss();
        end.peak_rss.filter(|peak| sampled == 0 || *peak > self.launch_rss).unwrap_or(0).max(sampled)
    }

    fn close(mut self, started: bool, end: End) -> Outcome {
        let (losses, events) = (self.read_losses(), self.recorder.event_count());
        if self.is_live && self.plan.attached.is_some() {
            // It may live on, and then this is how it is now.
            let pid = self.header.target_pid.load(Ordering::Acquire);
            self.looks.last.is_last = self.looks.look(pid, self.recorder.timeline.now_ns());
        }
        let last = self.is_live.then(|| self.snapshot_now(Reason::End));
        let totals = Totals {
            peak_rss_bytes: self.peak_rss(end),
            overhead_bytes: self.mapping.bytes_used(),
            runtime_ns: self.recorder.timeline.now_ns(),
            lost_events: losses.lost_events,
            ..self.recorder.totals()
        };
        if let Some(block) = self.sampler.take() {
            self.writer.put(block, events);
        }
        for block in self.letters.further.try_iter() {
            self.writer.put(block, events);
        }
        self.writer.put(losses.to_block(), events);
        let custom = self.recorder.custom_totals().map(|custom| Totals {
            peak_rss_bytes: totals.peak_rss_bytes,
            overhead_bytes: totals.overhead_bytes,
            runtime_ns: totals.runtime_ns,
            lost_events: totals.lost_events,
            ..custom
        });
        if let Some(totals) = custom {
            let summary = Summary { complete: true, exit: end.exit, totals };
            self.writer.put(summary.to_block().of(Domain::Custom), events);
        }
        self.writer.put(Summary { complete: true, exit: end.exit, totals }.to_block(), events);
        let written = self.writer.finish();
        let mut outcome = Outcome {
            started,
            refusal: self.header.refusal.load(Ordering::Acquire),
            totals,
            custom,
            events,
            losses,
            file_bytes: written.file_bytes,
            write_error: written.error,
            last,
            unread: Vec::new(),
        };
        if outcome.write_error.is_some() {
            let missing = events.saturating_sub(written.events);
            outcome.losses.by_cause.push(("not_written".to_owned(), missing));
            outcome.losses.lost_events = outcome.losses.lost_events.saturating_add(missing);
        }
        outcome
    }
}
