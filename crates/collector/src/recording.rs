//! A session as its owner sees it: how it is started, queried and ended. The collecting thread does the work
//! (`session.rs`).
//!
//! Receives: how to record, and an open file for the trace (none for `heaptrace`). Returns: what the target needs to
//! find us, live numbers, and at the end what was recorded. Must hold: the collecting thread runs before the target
//! can write its first event.
use crate::aggregate::Aggregate;
use crate::bound::Bound;
use crate::cores::RecorderThreads;
use crate::error::SetupError;
use crate::live::{Ask, Snapshot};
use crate::mapping::{AliveWord, HubPage, Mapping, Setup, hold_until_death, take_memory_in_large_steps, tsc};
use crate::memory_parts::MemoryPlan;
use crate::observed::Inspect;
use crate::offered::TreeHub;
use crate::session::Collector;
use crate::sink::Sink;
use crate::stats::Stats;
use crate::writer::Writer;
use channel::{Check, Clock, Phase, Stamp};
use format::{Exit, HeapAtAttach, Losses, RawBlock, Totals, Unseen, Waits};
use rustix::thread::futex;
use std::fs::File;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

/// How often a session without a trace measures the parts of the resident memory.
const LIVE_MEMORY: Duration = Duration::from_secs(1);

/// What to record, and where to write it.
#[derive(Debug)]
pub struct Plan {
    pub setup: Setup,
    /// The trace: empty, and open for writing.
    pub file: File,
    /// How large the trace may become.
    pub bound: Option<Bound>,
    /// The folder for the spill file.
    pub folder: PathBuf,
    pub command: Vec<String>,
    /// The path of the program's file.
    pub exe: String,
    /// Name and version of this tool.
    pub tool: String,
    /// How many threads may order, pair and record events.
    pub threads: RecorderThreads,
    /// Records everything that the program starts, too.
    pub follows: Option<String>,
    /// How often to measure the parts of the resident memory. `None`: never.
    pub memory_every: Option<Duration>,
}

/// How to watch a target without writing a trace.
#[derive(Clone, Debug)]
pub struct LivePlan {
    pub setup: Setup,
    /// The folder for the spill file.
    pub folder: PathBuf,
    /// The path of the program's file. Empty if any program may join.
    pub exe: String,
    /// Stacks are told apart by this many frames.
    pub depth: usize,
}

/// A process that is already running.
#[derive(Debug)]
pub struct Attachment {
    pub pid: u32,
    /// Its shared memory, which contains only zeros.
    pub channel: OwnedFd,
    pub heap: HeapAtAttach,
    /// The memory that the recorder has mapped into it, besides the shared memory.
    pub own_ranges: Vec<Range<u64>>,
}

/// The number that the target stored in `Header::failed_check`. A hostile target may store any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCheck(pub u32);

impl fmt::Display for FailedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let finding = Check::from_word(self.0).map_or("which this build does not have", Check::finding);
        write!(f, "heaptrack stopped the program: its check {} failed ({finding}). ", self.0)?;
        f.write_str("This build checks itself; please report this.")
    }
}

/// The result of a session.
#[derive(Debug)]
pub struct Outcome {
    /// False if the library in the target never started recording.
    pub started: bool,
    /// The reason, if the library gave one (`Header::refusal`).
    pub refusal: u32,
    /// Only in a build with the feature `checks`: the check that ended the program.
    pub failed_check: Option<FailedCheck>,
    /// The totals of malloc's blocks.
    pub totals: Totals,
    /// The totals of the blocks that the program reported itself, if it reported any.
    pub custom: Option<Totals>,
    pub events: u64,
    pub losses: Losses,
    /// What could not be recorded, and why.
    pub unseen: Vec<Unseen>,
    /// How long threads of the target waited for us.
    pub waits: Waits,
    pub file_bytes: u64,
    /// Events before this time were folded into sums, because the file has a size limit.
    pub folded_until_ns: Option<u64>,
    /// The error that ended the writing of the trace. The file then ends before the session did.
    pub write_error: Option<io::Error>,
    /// What was live at the end, for a session without a trace.
    pub last: Option<Snapshot>,
    /// Earlier snapshots that were not read.
    pub unread: Vec<Snapshot>,
    /// Snapshots that a signal or the owner asked for and that were not made, because too many were waiting already.
    pub unanswered: u64,
    /// How many child processes the program started that were not followed.
    pub children: u32,
}

/// How the target ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    pub exit: Exit,
    /// The highest resident memory, if the kernel reported it. It may include the time before the program started.
    pub peak_rss: Option<u64>,
}

impl From<Exit> for End {
    fn from(exit: Exit) -> Self {
        End { exit, peak_rss: None }
    }
}

/// A running session.
pub struct Recording {
    mapping: Arc<Mapping>,
    /// The page of a followed tree.
    hub: Option<Arc<HubPage>>,
    clock: Clock,
    stats: Arc<Stats>,
    stop: Arc<AtomicBool>,
    end: mpsc::Sender<(End, Inspect)>,
    blocks: mpsc::Sender<RawBlock>,
    asks: mpsc::Sender<Ask>,
    snapshots: mpsc::Receiver<Snapshot>,
    thread: JoinHandle<Outcome>,
}

/// A session whose thread may not be running yet.
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

/// How a session records, and what its first block says about it.
pub(crate) struct Subject {
    pub(crate) setup: Setup,
    pub(crate) folder: PathBuf,
    pub(crate) command: Vec<String>,
    pub(crate) exe: String,
    pub(crate) tool: String,
    /// For an attached process: how large its heap was.
    pub(crate) attached: Option<HeapAtAttach>,
    pub(crate) threads: RecorderThreads,
    /// The page of a followed tree.
    pub(crate) hub: Option<Arc<HubPage>>,
    pub(crate) memory: MemoryPlan,
}

/// The collecting thread's ends of its channels.
pub(crate) struct Inboxes {
    /// Blocks that other threads made.
    pub(crate) further: mpsc::Receiver<RawBlock>,
    /// Sends blocks to `further`.
    pub(crate) to_further: mpsc::Sender<RawBlock>,
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) snapshots: mpsc::Sender<Snapshot>,
}

impl Recording {
    /// Starts a session that writes a trace of a program that is launched later. When this returns, everything is ready
    /// for the target.
    pub fn start(plan: Plan) -> Result<Self, SetupError> {
        let mapping = Mapping::create(&plan.setup)?;
        Self::start_with(plan, mapping, None, Vec::new())
    }

    /// Starts a session that writes a trace of a process that is already running and has created the shared memory
    /// itself.
    pub fn start_attached(plan: Plan, attachment: Attachment) -> Result<Self, SetupError> {
        let mapping = Mapping::adopt(&plan.setup, attachment.channel)?;
        mapping.region().header().target_pid.store(attachment.pid, Ordering::Release);
        Self::start_with(plan, mapping, Some(attachment.heap), attachment.own_ranges)
    }

    fn start_with(
        plan: Plan,
        mapping: Mapping,
        attached: Option<HeapAtAttach>,
        own_ranges: Vec<Range<u64>>,
    ) -> Result<Self, SetupError> {
        take_memory_in_large_steps();
        let writer = Writer::start(plan.file, plan.bound)?;
        let Plan { setup, folder, command, exe, tool, threads, follows, memory_every, .. } = plan;
        let is_sampled = setup.sampling.rate > 0;
        let memory = MemoryPlan { every: memory_every, is_attached: attached.is_some(), is_sampled, own_ranges };
        let create = |names: String| match attached {
            Some(_) => HubPage::create_attached(&names),
            None => HubPage::create(true, &names),
        };
        let hub = follows.map(create).transpose()?.map(Arc::new);
        let subject = Subject { setup, folder, command, exe, tool, threads, hub, attached, memory };
        Self::begin(subject, mapping, writer, Sink::trace())?.ready()
    }

    /// Starts a session that writes no trace, for a program that is launched later. While the session runs, the owner
    /// can ask for what is live (`ask`, `snapshot`); `Outcome::last` has what was live at the end.
    pub fn live(plan: LivePlan) -> Result<Self, SetupError> {
        Self::begin_live(plan)?.ready()
    }

    /// Starts `count` sessions like `live` does, all their threads at the same time. Returns those that could be
    /// started.
    pub fn live_ones(plan: &LivePlan, count: usize) -> Vec<Self> {
        let begun: Vec<Starting> = (0..count).map_while(|_| Self::begin_live(plan.clone()).ok()).collect();
        begun.into_iter().filter_map(|starting| starting.ready().ok()).collect()
    }

    /// Starts a session that writes no trace, for a process that is already running.
    pub fn live_attached(plan: LivePlan, attachment: Attachment) -> Result<Self, SetupError> {
        let mapping = Mapping::adopt(&plan.setup, attachment.channel)?;
        mapping.region().header().target_pid.store(attachment.pid, Ordering::Release);
        Self::begin_live_in(plan, mapping, Some(attachment.heap), attachment.own_ranges)?.ready()
    }

    fn begin_live(plan: LivePlan) -> Result<Starting, SetupError> {
        let mapping = Mapping::create(&plan.setup)?;
        Self::begin_live_in(plan, mapping, None, Vec::new())
    }

    fn begin_live_in(
        plan: LivePlan,
        mapping: Mapping,
        attached: Option<HeapAtAttach>,
        own_ranges: Vec<Range<u64>>,
    ) -> Result<Starting, SetupError> {
        let LivePlan { setup, folder, exe, depth } = plan;
        let subject = Subject {
            setup,
            folder,
            command: Vec::new(),
            exe,
            tool: String::new(),
            threads: RecorderThreads::Exactly(NonZero::<usize>::MIN),
            hub: None,
            attached,
            memory: MemoryPlan {
                every: Some(LIVE_MEMORY),
                is_attached: attached.is_some(),
                is_sampled: false,
                own_ranges,
            },
        };
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
        let (to_reader, snapshots) = mpsc::channel();
        let inboxes = Inboxes { further, to_further: blocks.clone(), asks: asks_inbox, snapshots: to_reader };
        let (hub, tree_hub) = (plan.hub.clone(), plan.hub.clone());
        let (shared, numbers, stopping) = (Arc::clone(&mapping), Arc::clone(&stats), Arc::clone(&stop));
        let work = move || {
            // The processes of a tree look at the hub's word instead.
            let word = tree_hub
                .as_ref()
                .map_or_else(|| AliveWord::Session(Arc::clone(&shared)), |page| AliveWord::Hub(page.hub()));
            let held = hold_until_death(word);
            let failed = held.is_err();
            let (_held, answer) = held.map_or_else(|error| (None, Err(error)), |held| (Some(held), Ok(())));
            let _ = ready.send(answer);
            let mut collector = Collector::new(shared, plan, writer, sink, numbers, stopping, inboxes);
            if !failed {
                collector.run();
            }
            collector.finish(&end_inbox)
        };
        let thread =
            std::thread::Builder::new().name("heaptrack-drain".into()).spawn(work).map_err(SetupError::Thread)?;
        let recording = Recording { mapping, hub, clock, stats, stop, end, blocks, asks, snapshots, thread };
        Ok(Starting { recording, is_ready })
    }

    /// Returns the value of `HEAPTRACK_CHANNEL` for a target that inherits our memfd under the same number.
    pub fn variable(&self) -> String {
        let fd = self.mapping.fd().as_raw_fd();
        format!("{fd},/proc/{}/fd/{fd}", std::process::id())
    }

    /// Returns the value of `HEAPTRACK_CHANNEL` for a target that does not inherit our memfd and opens it by its path
    /// in /proc.
    pub fn variable_by_path(&self) -> String {
        format!("-,/proc/{}/fd/{}", std::process::id(), self.mapping.fd().as_raw_fd())
    }

    /// Returns the value of `HEAPTRACK_FOLLOW`, by which the processes of a followed tree find us.
    pub fn hub_variable(&self) -> Option<String> {
        let page = self.hub.as_ref()?;
        Some(format!("/proc/{}/fd/{}", std::process::id(), page.fd().as_raw_fd()))
    }

    /// Returns the number of the hub's file, by which its mapping in another process is recognised.
    pub fn hub_inode(&self) -> Option<u64> {
        let page = self.hub.as_ref()?;
        Some(rustix::fs::fstat(page.fd()).ok()?.st_ino)
    }

    /// Returns the hub of a followed tree.
    pub fn tree_hub(&self) -> Option<TreeHub> {
        let geometry = *self.mapping.region().geometry();
        self.hub.clone().map(|page| TreeHub::new(page, geometry))
    }

    /// Returns the sender for blocks that other threads make (names of frames). They are written to the trace.
    pub fn blocks(&self) -> mpsc::Sender<RawBlock> {
        self.blocks.clone()
    }

    /// Asks the collecting thread for a snapshot. `snapshot` returns it once it is made.
    pub fn ask(&self, what: Ask) {
        let _ = self.asks.send(what);
        self.ring();
    }

    /// Returns the next snapshot, if there is one. While too many are waiting, no more are made, and the refused ones
    /// are counted.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshots.try_recv().ok()
    }

    fn ring(&self) {
        let own = &self.mapping.region().header().doorbell;
        let doorbell = self.hub.as_ref().map_or(own, |page| &page.hub().doorbell);
        doorbell.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(doorbell, futex::Flags::empty(), 1);
    }

    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the target's pid, once it is known.
    pub fn target_pid(&self) -> Option<u32> {
        let pid = self.mapping.region().header().target_pid.load(Ordering::Acquire);
        (pid != 0).then_some(pid)
    }

    /// Returns true if the target records or has recorded.
    pub fn has_started(&self) -> bool {
        self.mapping.region().header().phase.load(Ordering::Acquire) != Phase::Waiting as u32
    }

    /// Returns the stamp that an event written now would get.
    pub fn now(&self) -> Stamp {
        match self.clock {
            Clock::Tsc => tsc(),
            Clock::Ticks => self.mapping.region().header().ticks.load(Ordering::Acquire),
        }
    }

    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Ends the session, because the target is gone or the owner wants to stop: writes all committed events and closes
    /// the trace. Returns `None` if the collecting thread failed.
    pub fn finish(self, end: End) -> Option<Outcome> {
        self.finish_inspected(end, Box::new(|_| Vec::new()))
    }

    /// Ends the session like `finish`. The collecting thread calls `inspect`, which finds out what could not be
    /// recorded.
    pub fn finish_inspected(self, end: End, inspect: Inspect) -> Option<Outcome> {
        let _ = self.end.send((end, inspect));
        self.stop.store(true, Ordering::Release);
        self.ring();
        let mut outcome = self.thread.join().ok()?;
        outcome.unread.extend(self.snapshots.try_iter());
        Some(outcome)
    }
}
