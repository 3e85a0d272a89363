//! The first page: who is there, what both agreed on, what was lost.
use crate::geometry::Geometry;
use crate::requests::Requests;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub const MAGIC: u64 = u64::from_le_bytes(*b"HTCHANL1");
/// Both sides ship in one file, so only an equal version is accepted.
pub const VERSION: u32 = 4;

/// How far the session is. Stored in `Header::phase`.
///
/// ```text
/// Waiting --target's init--> Recording --collector ends / target gives up--> Stopped
/// ```
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting = 0,
    Recording = 1,
    Stopped = 2,
}

/// What a stamp counts. Chosen by the collector: `Tsc` only where the kernel itself trusts the counter.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Tsc = 0,
    /// One shared counter, `Header::ticks`: exact order, slower.
    Ticks = 1,
}

/// How the collector learns that it has seen all events up to an instant.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The target could not register for membarrier: it fences by itself before each stamp.
    InTarget = 0,
    /// The collector calls `membarrier(GLOBAL_EXPEDITED)`; the hot path has no fence.
    Membarrier = 1,
}

#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    Wait = 0,
    Drop = 1,
}

/// A watched target that ends by itself lets its memory be looked at before. Stored in `Heaptrace::exit_handshake`.
///
/// ```text
/// Unsaid --target's destructor--> Said --collector has looked--> Answered
/// ```
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitHandshake {
    Unsaid = 0,
    Said = 1,
    Answered = 2,
}

/// Events that we know we did not record, by cause. An index into `Header::losses`.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The ring stayed full longer than allowed.
    RingFull = 0,
    /// No thread slot was left.
    NoSlot = 1,
    /// A hook inside a hook inside a hook.
    Nested = 2,
    /// A hook was left by a jump (`siglongjmp`) before its event was written.
    Abandoned = 3,
    /// Events of the target after recording stopped because the collector was gone.
    NoCollector = 4,
    /// The core itself failed and switched recording off.
    Fault = 5,
    /// The module table was full: frames of later modules have no module.
    ModuleFull = 6,
    /// A thread's remembered walks made no sense and were forgotten. Its events are there.
    MemoBroken = 7,
}

impl Loss {
    pub const COUNT: usize = 8;
    pub const ALL: [Loss; Self::COUNT] = [
        Loss::RingFull,
        Loss::NoSlot,
        Loss::Nested,
        Loss::Abandoned,
        Loss::NoCollector,
        Loss::Fault,
        Loss::ModuleFull,
        Loss::MemoBroken,
    ];
    /// True when an event itself is missing.
    pub const fn is_event(self) -> bool {
        !matches!(self, Loss::ModuleFull | Loss::MemoBroken)
    }
    pub const fn name(self) -> &'static str {
        match self {
            Loss::RingFull => "ring_full",
            Loss::NoSlot => "no_slot",
            Loss::Nested => "nested",
            Loss::Abandoned => "abandoned",
            Loss::NoCollector => "no_collector",
            Loss::Fault => "fault",
            Loss::ModuleFull => "module_full",
            Loss::MemoBroken => "memo_broken",
        }
    }
}

/// In `Header::no_syscalls`. C: a filter was seen in force that the target did not announce.
pub const NO_CALLS_SEEN: u32 = 1;
/// In `Header::no_syscalls`, once for each thread that announced it. T: a thread is about to forbid system calls, or has.
pub const NO_CALLS_SAID: u32 = 2;
/// Room for the path of an exec, in words of eight bytes.
pub const LEFT_FOR_WORDS: usize = 32;

/// The part of the header that exists only for LeakSanitizer's suppressions: a program may define a function
/// `__lsan_default_suppressions`, whose text lists leaks that are no mistakes. The target calls it once and hands the text to the
/// collector.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Suppressions {
    /// C, before the target starts: the address of the function in the program's file. 0 = its symbol table has none.
    pub symbol: u64,
    /// T: the place of a copy of the text in `names`, as `offset << 32 | length`. 0 = there is none.
    pub text: AtomicU64,
}

/// The part of the header that exists only for `heaptrace`, the live front end. All of it stays zero in a recording to a file.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Heaptrace {
    /// C, before the target starts: nonzero = the target handles the signals that ask for reports, and waits at its exit until
    /// the collector has looked at its memory.
    pub watched: u32,
    /// The reports that signals have asked for.
    pub requests: Requests,
    /// `ExitHandshake`, a futex.
    pub exit_handshake: AtomicU32,
}

/// One page. "C" = written by the collector, "T" = by the target.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Header {
    // -- written by the collector before the target starts; the target copies them
    pub magic: u64,
    pub version: u32,
    pub clock: u32,
    pub geometry: Geometry,
    pub on_full: u32,
    /// How long a thread waits on a full ring while the collector makes no progress, before it drops. The budget of a thread
    /// is full again when the collector has emptied its ring.
    pub max_stall_ms: u32,
    pub suppressions: Suppressions,
    /// The pid that may record: written by the forked child just before it executes the program.
    pub target_pid: AtomicU32,
    // -- life of the session
    /// `Phase`.
    pub phase: AtomicU32,
    /// T: `Fence`.
    pub fence: AtomicU32,
    /// T: how many program images (exec) have started recording, from 1.
    pub image: AtomicU32,
    /// C: robust futex held by the collector; the kernel sets `FUTEX_OWNER_DIED` when it dies.
    pub collector_alive: AtomicU32,
    /// Nonzero while the target must make no system call of ours: see `NO_CALLS_SEEN` and `NO_CALLS_SAID`.
    pub no_syscalls: AtomicU32,
    /// Futex: the target adds one and wakes when a ring is half full and `collector_asleep` is set.
    pub doorbell: AtomicU32,
    /// C: set before the collector sleeps on the doorbell. T: cleared by whoever rings, so that nobody rings twice.
    pub collector_asleep: AtomicU32,
    /// T: slots ever used; slots `[0, slot_count)` are worth a look. May be more than there are.
    pub slot_count: AtomicU32,
    /// T: modules published; `[0, module_count)` of the table are readable. Index + 1 is the instance number.
    pub module_count: AtomicU32,
    /// T: bytes used of `names`.
    pub names_used: AtomicU32,
    /// T adds one for each event when `clock` is `Ticks`, or when one of its threads may not read the time stamp counter.
    /// When `clock` is `Tsc`, C raises it to its own counter in every round.
    pub ticks: AtomicU64,
    /// T: see `Loss`.
    pub losses: [AtomicU64; Loss::COUNT],
    /// T: why recording could not start (`capture`'s refusal code), 0 = it did.
    pub refusal: AtomicU32,
    /// 0: several threads have recorded, each event is stamped by the clock. Else one thread alone records (T sets 1) and
    /// need not look at the clock each time, as long as this stays the same: C counts its rounds here.
    pub pace: AtomicU32,
    /// C: counts what it has done. A thread that waits for room waits as long as this changes; see `Header::max_stall_ms`.
    pub progress: AtomicU32,
    /// Slots that were used and are free, see `free_slots.rs`.
    pub free_slots: AtomicU64,
    pub heaptrace: Heaptrace,
    /// T: how often the program itself paused recording.
    pub pauses: AtomicU32,
    /// T: nonzero when the program itself ended recording.
    pub stopped_by_program: AtomicU32,
    /// T: nonzero when events are stamped by `ticks` although `clock` is `Tsc`.
    pub counter_lost: AtomicU32,
    /// T: the number of the image that is about to be replaced by an exec, 0 = none. If that is still `image` at the end,
    /// the program that came after it did not record.
    pub leaving: AtomicU32,
    /// T: the stamp of that exec.
    pub left_at: AtomicU64,
    /// T: the path that it names, ended by a zero byte unless it was cut.
    pub left_for: [AtomicU64; LEFT_FOR_WORDS],
    /// T: `UnrecordedExec`, 0 = none. Stored before the exec, and taken back if the exec fails.
    pub unrecorded_exec: AtomicU32,
    /// T: the number of the first `Check` that failed, 0 = none. Only a build with the feature `checks` stores one.
    pub failed_check: AtomicU32,
}

impl Header {
    /// Target: these events are not recorded, or not fully.
    pub fn lose_events(&self, loss: Loss, count: u64) {
        self.losses[loss as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Target: false while a seccomp filter may punish any system call of the capture library.
    pub fn may_call(&self) -> bool {
        self.no_syscalls.load(Ordering::Relaxed) == 0
    }

    /// Target: true for the first one that finds the collector asleep. A collector that is stopped while it sleeps would
    /// otherwise cost every event a system call.
    pub fn wants_bell(&self) -> bool {
        let asleep = &self.collector_asleep;
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// The next event of each ring is to be stamped by the clock. True when one thread of the target records alone.
    pub fn next_round(&self) -> bool {
        let pace = self.pace.load(Ordering::Acquire);
        if pace != 0 {
            // Fails, and stays 0, if a second thread has begun meanwhile.
            let next = pace.wrapping_add(1).max(1);
            let _ = self.pace.compare_exchange(pace, next, Ordering::SeqCst, Ordering::Relaxed);
        }
        pace != 0
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() <= crate::geometry::PAGE);
