//! The first page of the shared memory: what the collector chose before the target started, the state of both sides,
//! and how many events were lost.
use crate::geometry::Geometry;
use crate::numbered::numbered;
use crate::requests::Requests;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub const MAGIC: u64 = u64::from_le_bytes(*b"HTCHANL1");
/// The collector and the capture library ship in one binary, so the target accepts only an equal version.
pub const VERSION: u32 = 11;

numbered! {
    /// The state of the session. Stored in `Header::phase`.
    ///
    /// ```text
    /// Waiting --the target starts, or heaptrack has attached--> Recording --the collector ends--> Stopped
    /// ```
    pub enum Phase: u32 { Waiting = 0, Recording = 1, Stopped = 2 }

    /// What a stamp counts. The collector chooses `Tsc` only if the kernel itself trusts the counter.
    pub enum Clock: u32 {
        Tsc = 0,
        /// One counter that all threads share, `Header::ticks`. Slower, but always in exact order.
        Ticks = 1,
    }

    /// Which side runs the memory barrier that makes a watermark correct.
    pub enum Fence: u32 {
        /// The target could not register for membarrier, so it runs a fence before each stamp.
        InTarget = 0,
        /// The collector calls `membarrier(GLOBAL_EXPEDITED)`, so the hot path has no fence.
        Membarrier = 1,
    }

    pub enum OnFull: u32 { Wait = 0, Drop = 1 }

    /// Before a watched target exits, it waits until the collector has looked at its memory. Stored in
    /// `Heaptrace::exit_handshake`.
    ///
    /// ```text
    /// Unsaid --target's destructor--> Said --collector has looked--> Answered
    /// ```
    pub enum ExitHandshake: u32 { Unsaid = 0, Said = 1, Answered = 2 }

    /// A thread that has loaded modules waits until the profiler has patched the allocators in them. Stored in
    /// `Loading::step`. T and C mark the side that makes a step.
    ///
    /// ```text
    /// Idle --T--> Asked --C--> Map --T--> Mapped --C--> Writing --C--> Done --T--> Idle
    ///               |                       |  ^          ^
    ///               |                       +--+ (C: Map) |
    ///               +--C----------------------------------+
    /// ```
    /// While the step is `Asked` or `Mapped`, T may give up: it stores `Idle`. C stores `Writing` before it changes
    /// code, so T waits until that is done.
    pub enum LoadingStep: u32 { Idle = 0, Asked = 1, Map = 2, Mapped = 3, Writing = 4, Done = 5 }
}

numbered! {
    /// Why events were not recorded, or not fully. An index into `Header::losses`.
    pub enum Loss: usize {
        /// The ring was full, and the thread had waited as long as it may. With `OnFull::Drop` it may not wait at all.
        RingFull = 0 => "ring_full",
        /// The thread got no slot: none was left, its area could not be mapped, or the thread began in a sandbox.
        NoSlot = 1 => "no_slot",
        /// A signal handler called a hook while two other hooks of its thread were at work. A thread has rings for two
        /// levels only.
        Nested = 2 => "nested",
        /// A hook was left by a jump (`siglongjmp`) before its event was written.
        Abandoned = 3 => "abandoned",
        /// A thread found that the collector had died, and stopped recording. Counts only events that were being
        /// written then.
        NoCollector = 4 => "no_collector",
        /// The module table was full, so a module was not recorded. Its frames have no module.
        ModuleFull = 5 => "module_full",
        /// A thread's stack memo contradicted itself and was cleared. No event is missing.
        MemoBroken = 6 => "memo_broken",
        /// A program that was patched before its first instruction allocated before it had a thread pointer.
        NoThreadPointer = 7 => "no_thread_pointer",
        /// A block was to be sampled, but there was no room for its address among those of the sampled live blocks.
        SamplesFull = 8 => "samples_full",
    }
    pub fn name
}

impl Loss {
    /// Returns true if the event itself is missing.
    pub const fn is_event(self) -> bool {
        !matches!(self, Loss::ModuleFull | Loss::MemoBroken)
    }
}

/// A bit of `Header::no_syscalls`. C: a seccomp filter is in force that the target did not announce.
pub const NO_CALLS_SEEN: u32 = 1;
/// Added to `Header::no_syscalls` by each thread that is about to forbid system calls. T.
pub const NO_CALLS_SAID: u32 = 2;
/// The length of `Header::left_for`, in words of eight bytes.
pub const LEFT_FOR_WORDS: usize = 32;

/// The part of the header that exists only for LeakSanitizer's suppressions: a program may define a function
/// `__lsan_default_suppressions`, whose text lists leaks that are no mistakes. The target calls it once and hands the
/// text to the collector.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Suppressions {
    /// C, before the target starts: the address of the function in the program's file. 0 = its symbol table has none.
    /// The target uses this address only if no module exports the function.
    pub symbol: u64,
    /// T: the place of a copy of the text in `names`, as `offset << 32 | length`. 0 = there is none.
    pub text: AtomicU64,
}

/// The part of the header that exists only for `heaptrace`, the live front end. All of it stays zero in a recording to
/// a file.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Heaptrace {
    /// C, before the target starts: nonzero = the target handles the signals that ask for reports, and waits at its
    /// exit until the collector has looked at its memory.
    pub watched: u32,
    /// The reports that signals have asked for.
    pub requests: Requests,
    /// `ExitHandshake`, a futex.
    pub exit_handshake: AtomicU32,
}

/// A command line of a followed process that is at least this long may be cut.
pub const LONGEST_COMMAND: u32 = 4096;

/// How a process of a followed tree came to its shared memory. The process stores it before `Header::target_pid`.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Origin {
    /// The process that it was forked from, or its parent.
    pub parent_pid: AtomicU32,
    /// If it was forked: the number of the fork in its parent (`Event::Fork`). 0 if it was started by an exec, or if the
    /// number is not known.
    pub fork: AtomicU32,
    /// Nonzero if it was forked and runs the program of its parent.
    pub is_forked: AtomicU32,
    /// Counts the processes of the tree (`Hub::joined`).
    pub order: AtomicU32,
    /// If it was not forked: the words of its command line, each with a zero byte at its end, cut at about [`LONGEST_COMMAND`]; and (below) the path of its
    /// file. `offset in names (32) | length (32)`. A short process is gone before the collector can ask the kernel.
    pub command: AtomicU64,
    pub exe: AtomicU64,
}

/// The part of the header about modules that were just loaded, see [`LoadingStep`].
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Loading {
    /// C: how long a thread may wait for an answer, in milliseconds. 0 = no thread asks.
    pub patience_ms: AtomicU32,
    /// `LoadingStep`, a futex.
    pub step: AtomicU32,
    /// C, before `Map`: memory is needed below the module that begins here, and of this length.
    pub near: AtomicU64,
    pub length: AtomicU64,
    /// T, before `Mapped`: where the memory is. 0 = there is none.
    pub mapped_at: AtomicU64,
}

/// The part of the header about a recording that samples, see [`crate::SamplingSetup`].
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Sampling {
    /// C: 0 = every block is recorded.
    pub rate: AtomicU64,
    /// C, before the target starts.
    pub exact_above: u64,
    pub seed: u64,
}

/// One page. "C" marks a field that the collector writes, "T" one that the target writes.
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Header {
    // -- written by the collector before the target starts; the target copies them
    pub magic: u64,
    pub version: u32,
    pub clock: u32,
    pub geometry: Geometry,
    pub on_full: u32,
    /// How long a thread may wait on a full ring, in total, while the collector makes no progress. After that the
    /// thread drops events. It may wait for the whole time again when the collector has emptied its ring.
    pub max_stall_ms: u32,
    pub suppressions: Suppressions,
    /// C: nonzero = every event reads the clock, because the events of several processes are put into one order.
    pub reads_every_clock: u32,
    /// C: nonzero = the program's own mappings are recorded, too (`MapCall`).
    pub records_maps: u32,
    /// T: how the process came to this shared memory, if a tree of processes is followed.
    pub origin: Origin,
    /// The pid of the process that may record. When heaptrack launches a program, the forked child writes it just
    /// before it executes the program. When heaptrack attaches, the collector writes it. A process that took an offer
    /// of the hub (`hub.rs`) writes it itself.
    pub target_pid: AtomicU32,
    // -- life of the session
    /// `Phase`.
    pub phase: AtomicU32,
    /// T: `Fence`.
    pub fence: AtomicU32,
    /// T: the number of the program image that records, from 1. Each exec starts a new image.
    pub image: AtomicU32,
    /// C: robust futex that the collector holds. The kernel sets `FUTEX_OWNER_DIED` when the collector dies.
    pub collector_alive: AtomicU32,
    /// Nonzero while the capture library must make no system call: see `NO_CALLS_SEEN` and `NO_CALLS_SAID`.
    pub no_syscalls: AtomicU32,
    /// Futex. The target increments it and wakes the collector when a ring is half full and `collector_asleep` is set.
    /// It also does so when a thread waits for room, when recording starts, when modules were loaded, and when a
    /// watched target exits.
    pub doorbell: AtomicU32,
    /// C sets it before it sleeps on the doorbell. T: the thread that rings clears it, so that no other thread rings
    /// too.
    pub collector_asleep: AtomicU32,
    /// T: how many slots were ever taken, which are slots `[0, slot_count)`. May exceed the number of slots.
    pub slot_count: AtomicU32,
    /// T: how many modules are published. Entries `[0, module_count)` of the table may be read. The instance number of
    /// a module is its index + 1.
    pub module_count: AtomicU32,
    /// T: bytes used of `names`.
    pub names_used: AtomicU32,
    /// T increments it for each event if `clock` is `Ticks`, or if one of its threads may not read the time stamp
    /// counter. If `clock` is `Tsc`, C raises it to the time stamp counter in every round.
    pub ticks: AtomicU64,
    /// T: how many events were lost, by `Loss`.
    pub losses: [AtomicU64; Loss::COUNT],
    /// T: why recording could not start (a `Refusal` of the capture library). 0 = no reason was stored.
    pub refusal: AtomicU32,
    /// 0: no thread or several threads have recorded, or the clock is not a plain read of the time stamp counter. Then
    /// each event reads the clock. Otherwise one thread records alone (T sets 1), and it may skip clock reads until the
    /// value changes. C increments the value in every round. T increments it when a signal handler records, or asks for
    /// a report. See `clock_skipping.rs`.
    pub pace: AtomicU32,
    /// C: changes whenever the collector makes progress. A thread that waits for room keeps waiting while this changes;
    /// see `Header::max_stall_ms`.
    pub progress: AtomicU32,
    /// The stack of slots that were used and are free again, see `free_slots.rs`.
    pub free_slots: AtomicU64,
    pub heaptrace: Heaptrace,
    /// T: how often the program itself paused recording.
    pub pauses: AtomicU32,
    /// T: nonzero if the program itself ended recording.
    pub stopped_by_program: AtomicU32,
    /// T: nonzero if events are stamped by `ticks` although `clock` is `Tsc`.
    pub counter_lost: AtomicU32,
    /// T: the number of the image that an exec is about to replace, 0 = none. If it is still equal to `image` at the
    /// end, the program after the exec did not record.
    pub leaving: AtomicU32,
    /// T: the stamp at which `leaving` was set.
    pub left_at: AtomicU64,
    /// T: the path that the exec names, with a zero byte at its end unless it was cut.
    pub left_for: [AtomicU64; LEFT_FOR_WORDS],
    /// T: `UnrecordedExec`, 0 = none. Stored before the exec, and cleared if the exec fails.
    pub unrecorded_exec: AtomicU32,
    /// T: the first `Check` that failed, 0 = none. Only a build with the feature `checks` stores one.
    pub failed_check: AtomicU32,
    /// T: how long threads have waited for room in their rings, in nanoseconds, summed over all threads.
    pub waited_ns: AtomicU64,
    pub loading: Loading,
    /// T: how many child processes the program has started, if they are not followed.
    pub children: AtomicU32,
    /// T: the stamp at which a process of a followed tree began to end itself while it had several threads. 0 = it has not.
    /// The other threads may write events after it, until the kernel has ended them.
    pub exits_at: AtomicU64,
    /// T: its exit code, stored before `exits_at`.
    pub exit_code: AtomicU32,
    pub sampling: Sampling,
}

impl Header {
    /// Target: counts events that are not recorded, or not fully.
    pub fn lose_events(&self, loss: Loss, count: u64) {
        self.losses[loss as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Target: counts time that a thread waited for room in its ring.
    pub(crate) fn add_wait(&self, ns: u64) {
        if ns > 0 {
            self.waited_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Target: returns false while a seccomp filter may kill the program for a system call of the capture library.
    pub fn may_call(&self) -> bool {
        self.no_syscalls.load(Ordering::Relaxed) == 0
    }

    /// Target: returns true for the first thread that finds the collector asleep. Other threads do not wake it too: if
    /// the collector were stopped while it sleeps, every event would cost a system call.
    pub fn wants_bell(&self) -> bool {
        let asleep = &self.collector_asleep;
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// Begins a new round: the next event of each ring reads the clock. Returns true if one thread of the target
    /// records alone.
    pub fn next_round(&self) -> bool {
        let pace = self.pace.load(Ordering::Acquire);
        if pace != 0 {
            // If a second thread has begun meanwhile, this fails and `pace` stays 0.
            let next = pace.wrapping_add(1).max(1);
            let _ = self.pace.compare_exchange(pace, next, Ordering::SeqCst, Ordering::Relaxed);
        }
        pace != 0
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() <= crate::geometry::PAGE);
