//! The state of the capture library in one process.
//!
//! ```text
//! Asleep --first hook or constructor--> Starting --the channel is there--> Ready
//!                                          |
//!                                          +--no channel, not the target, refused--> Passive
//! ```
//! For a hook, `Passive` and a forked child look the same: the gate is shut, and the hook only calls the real function.
//! If a whole tree of processes is followed, a forked child starts again with shared memory of its own (`Joining`).
mod attach_block;
mod attached;
mod early;
mod forbidden;
mod initial;
mod joining;
mod loading;
mod mapping;
mod patching;
mod start;

pub use attach_block::{AttachBlock, CORE_BYTES, PassedOn, Recorder};
pub use attached::{SlotGuards, adopt, geometry_of};
pub use mapping::map_offer;

use crate::clock::{Source, StampClock};
use crate::elf::{Debug, Headers};
use crate::entry::Range;
use crate::environment::Carried;
use crate::follow::{self, Need};
use crate::local::{Local, Threads};
use crate::modules::{KnownModules, Modules};
use crate::rule::Rules;
use crate::sys;
use channel::{ExitHandshake, Geometry, Header, Loss, Region, Stamp, UnrecordedExec, WriterMemory};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A bit of the gate: this process records. The page of the gate reads as zero in a forked child.
pub const ACTIVE: u32 = 1;
/// A bit of the gate, for tests: allocations are counted, and the process stops itself (SIGSTOP) after those in
/// `Core::stops`.
pub const COUNTING: u32 = 2;
/// A bit of the gate: the program has paused recording. Frees are recorded nevertheless, because otherwise freed blocks
/// would look like leaks.
pub const PAUSED: u32 = 4;
/// A bit of the gate, alone: the process will record as soon as its first thread has a thread pointer. A program that
/// was patched before its first instruction begins like this (`core/early.rs`).
pub const EARLY: u32 = 8;
/// A bit of the gate: every block is recorded. If `ACTIVE` is set and this is not, blocks are sampled (`sampling.rs`).
pub const EXACT: u32 = 16;

#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    Starting,
    /// A forked child is getting shared memory of its own. Hooks do not wait for that, because a hook in a signal
    /// handler that interrupts it would wait for ever.
    Joining,
    Ready,
    Passive,
}

/// Why recording could not start. Stored in `Header::refusal`.
#[repr(u32)]
#[derive(Clone, Copy)]
enum Refusal {
    Mismatch = 1,
    NotMapped = 2,
    NoAllocator = 3,
    NoSystemCall = 4,
}

/// The tables of the process, in the part of the shared memory that belongs to the writer.
#[repr(C)]
struct Private {
    rules: Rules,
    threads: Threads,
    /// Where the headers of far slots are mapped, 0 = not yet.
    far_slots: AtomicU64,
    /// Where each unit of slot areas is mapped, 0 = not yet.
    areas: [AtomicU64; Geometry::MAX_MAP_UNITS],
    modules: Modules,
    /// Only the writer of the module table uses it.
    known_modules: UnsafeCell<KnownModules>,
}

/// How much of the shared memory belongs to this library: per process a `Private`, per thread a `Local`. The recorder
/// of the same build reserves this much, and `is_ours` refuses a channel with another size.
pub const WRITER_MEMORY: WriterMemory = WriterMemory { process: 5 << 18, thread: 1408 << 10 };

const _: () = assert!(size_of::<Private>() <= WRITER_MEMORY.process as usize);
const _: () = assert!(matches!(Geometry::roomy(WRITER_MEMORY).check(), Ok(())));
const _: () = assert!(matches!(Geometry::tight(WRITER_MEMORY).check(), Ok(())));

/// Returns true if a channel of this geometry can be used: its offsets do not overflow, and it has room for what we
/// keep in it.
fn is_ours(geometry: &Geometry) -> bool {
    geometry.check().is_ok() && geometry.writer_memory() == WRITER_MEMORY
}

/// What is set before the gate opens, and does not change while it is open.
#[repr(C)]
struct Parts {
    region: Region<'static>,
    private: *mut Private,
    debug: *const Debug,
    program: Headers,
    pid: u32,
}

/// The state of the process. When heaptrack attaches to a running process, the profiler fills in this struct from
/// outside (see `attach_block.rs`), so its layout must be that of C.
///
/// The SAFETY comments of this file and of the folder `core` refer to these invariants by name:
/// - **Start-up**: the first hook or the constructor of `capture-so` calls `start`, before `main`. The process has one
///   thread then, and the loader waits until the call returns, so its list is stable. A forked child that joins is at
///   its first hook after the fork, on its only thread.
/// - **The gate is mapped**: `gate` points to `SHUT`, to the page that `assemble` has mapped, or to the page that the
///   profiler has mapped in an attached process. None of them is ever unmapped.
/// - **Parts are set**: `assemble` writes `parts` before `open` opens the gate and before the state becomes `Ready`. In
///   an attached process the profiler writes them before it opens the gate, while all threads are stopped. Only code
///   that has seen the gate open or the state `Ready` uses them, and what `assemble` and `join` call.
/// - **The region is mapped**: nothing in the target unmaps what `map_parts`, `map_unit` and `map_far_slots` have
///   mapped and published. In an attached process, `attach/src/repair.rs` unmaps it only when no thread is in a hook.
#[repr(C)]
pub struct Core {
    state: AtomicU32,
    gate: AtomicPtr<AtomicU32>,
    parts: UnsafeCell<MaybeUninit<Parts>>,
    clock: StampClock,
    /// What an exec must pass on. It is not in `Parts`, because it is too large to be moved on a small stack.
    carried: UnsafeCell<Carried>,
    /// The offset of the tid in libc's thread block. 0 = not known yet.
    pub tid_offset: AtomicU32,
    /// An address above all frames of the first thread's stack; 0 = not known.
    pub stack_top: AtomicU64,
    /// Where this library is mapped, in an attached process.
    own: Range,
    /// Some cached rule is a guess. A module that is loaded later may have CFI for that address.
    guessed: AtomicBool,
    /// A thread has written the Image record, or is about to write it.
    pub announced: AtomicBool,
    /// Threads that have begun to record.
    threads_begun: AtomicU32,
    /// The state of the only thread that has recorded. Null if there are none or several, or if the clock is not plain
    /// (`StampClock::is_plain`).
    pub only: AtomicPtr<Local>,
    /// The address of libc's variable `stderr`. 0 = unknown.
    stderr: AtomicU64,
    /// For tests: the numbers of the allocations after which the process stops itself. 0 = no number.
    stops: [AtomicU64; STOPS],
    allocations: AtomicU64,
}

const STOPS: usize = 128;

// SAFETY: `parts` and `carried` are the only fields that are not atomic and that are written. `start` admits one thread
// to `Starting` and `join` one to `Joining`. Only that thread writes them. Other threads read them only when parts are
// set (see `Core`).
unsafe impl Sync for Core {}

static SHUT: AtomicU32 = AtomicU32::new(0);

pub static CORE: Core = Core {
    state: AtomicU32::new(State::Asleep as u32),
    gate: AtomicPtr::new(&raw const SHUT as *mut AtomicU32),
    parts: UnsafeCell::new(MaybeUninit::uninit()),
    clock: StampClock::new(Source::SharedWord),
    carried: UnsafeCell::new(Carried::EMPTY),
    tid_offset: AtomicU32::new(0),
    stack_top: AtomicU64::new(0),
    own: Range::NONE,
    guessed: AtomicBool::new(false),
    announced: AtomicBool::new(false),
    threads_begun: AtomicU32::new(0),
    only: AtomicPtr::new(core::ptr::null_mut()),
    stderr: AtomicU64::new(0),
    stops: [const { AtomicU64::new(0) }; STOPS],
    allocations: AtomicU64::new(0),
};

impl Core {
    /// Begins a new state. Returns false if the state is not `from`.
    fn advance(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends `Starting` or `Joining`. A thread that sees the new state also sees what was written before, such as the
    /// parts.
    fn settle(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Returns the bits of the gate. Every hook reads them before it records.
    #[inline(always)]
    pub fn gate(&self) -> u32 {
        // SAFETY: the gate is mapped (see `Core`).
        unsafe { (*self.gate.load(Ordering::Relaxed)).load(Ordering::Relaxed) }
    }

    /// Returns the bits of the gate, for a hook that is about to record. A forked child of a followed process joins
    /// here at its first event.
    #[inline(always)]
    pub fn gate_or_join(&self) -> u32 {
        let gate = self.gate();
        if gate & ACTIVE != 0 { gate } else { self.gate_when_not_active(gate, Need::Event) }
    }

    /// As `gate_or_join`, for a process that is about to end or to execute another program.
    pub fn gate_or_join_to_leave(&self) -> u32 {
        let gate = self.gate();
        if gate & ACTIVE != 0 { gate } else { self.gate_when_not_active(gate, Need::Farewell) }
    }

    #[cold]
    #[inline(never)]
    fn gate_when_not_active(&self, gate: u32, need: Need) -> u32 {
        match gate {
            EARLY => self.open_early(),
            0 if follow::may_join() => self.join(need),
            gate => gate,
        }
    }

    /// Returns the bits of the gate, for a call of the program that is no event. A program that was patched before its
    /// first instruction may make such a call before its first event.
    pub fn gate_after_start(&self) -> u32 {
        match self.gate() {
            EARLY => self.open_early(),
            gate => gate,
        }
    }

    /// Ends recording for good. The program runs on.
    pub fn shut(&self) {
        follow::give_up();
        // SAFETY: the gate is mapped (see `Core`). `SHUT`, too, is a static that can be written.
        unsafe { (*self.gate.load(Ordering::Relaxed)).store(0, Ordering::Relaxed) };
    }

    /// Called when the program asks to pause. Does nothing if the gate is shut, because then the gate may be `SHUT`,
    /// which must stay 0.
    pub fn pause(&self) {
        if self.gate_after_start() & ACTIVE != 0 {
            // SAFETY: the gate is mapped (see `Core`).
            let before = unsafe { (*self.gate.load(Ordering::Relaxed)).fetch_or(PAUSED, Ordering::Relaxed) };
            self.header().pauses.fetch_add((before & PAUSED == 0) as u32, Ordering::Relaxed);
        }
    }

    pub fn resume(&self) {
        if self.gate() & ACTIVE != 0 {
            // SAFETY: the gate is mapped (see `Core`).
            unsafe { (*self.gate.load(Ordering::Relaxed)).fetch_and(!PAUSED, Ordering::Relaxed) };
        }
    }

    /// Called when the program itself ends recording for good. Returns true if the process was recording.
    pub fn stop(&self) -> bool {
        let was_on = self.gate_after_start() & ACTIVE != 0;
        if was_on {
            self.header().stopped_by_program.store(1, Ordering::Relaxed);
            self.shut();
        }
        was_on
    }

    /// Returns libc's `stderr` if this process is recorded.
    pub fn standard_error(&self) -> Option<*mut u8> {
        if self.gate() & ACTIVE == 0 {
            return None;
        }
        // SAFETY: 0, or where `prepare` found the variable `stderr`: in the program or in a library of the start, which
        // the loader never unloads. It is a pointer, aligned; if the program assigns to it meanwhile, the old or the
        // new value is read.
        let stream = unsafe { (self.stderr.load(Ordering::Relaxed) as *const *mut u8).as_ref() }?;
        (!stream.is_null()).then_some(*stream)
    }

    #[inline(always)]
    fn parts(&self) -> &Parts {
        // SAFETY: parts are set (see `Core`).
        unsafe { (*self.parts.get()).assume_init_ref() }
    }

    /// Returns the parts if they are set, for code that may run with the gate shut.
    fn parts_if_any(&self) -> Option<&Parts> {
        if self.state.load(Ordering::Acquire) != State::Ready as u32 {
            return None;
        }
        Some(self.parts())
    }

    #[inline(always)]
    pub fn region(&self) -> &Region<'static> {
        &self.parts().region
    }
    #[inline(always)]
    pub fn header(&self) -> &'static Header {
        self.parts().region.header()
    }
    #[inline(always)]
    fn private(&self) -> &Private {
        // SAFETY: the region is mapped (see `Core`), and `private` is page-aligned in it. A `Private` fits there:
        // `is_ours` accepts only a channel that reserves `WRITER_MEMORY`, and the assertion below `WRITER_MEMORY`
        // proves that a `Private` is not larger. Zeros are a valid `Private`, and what several threads write is atomic
        // or in an `UnsafeCell`.
        unsafe { &*self.parts().private }
    }
    #[inline(always)]
    pub fn rules(&self) -> &Rules {
        &self.private().rules
    }
    #[inline(always)]
    pub fn threads(&self) -> &Threads {
        &self.private().threads
    }
    #[inline(always)]
    pub fn modules(&self) -> &Modules {
        &self.private().modules
    }
    /// # Safety
    /// The caller is the only writer of the table of modules, and holds no other result of this function: it is called
    /// by the loader's notification, at start-up, or in `dl_find_object::alone`.
    #[allow(clippy::mut_from_ref)]
    unsafe fn known_modules(&self) -> &mut KnownModules {
        // SAFETY: no other reference to it exists, because the caller is the only writer. `private` has shown that it
        // is mapped.
        unsafe { &mut *self.private().known_modules.get() }
    }
    pub fn pid(&self) -> u32 {
        self.parts().pid
    }

    pub fn lose(&self, loss: Loss) {
        self.header().lose_events(loss, 1);
    }

    /// Stores why the program that this process is about to execute cannot be recorded. `None`: it can be, or the exec
    /// failed.
    pub fn note_unrecorded_exec(&self, why: Option<UnrecordedExec>) {
        if self.gate() & ACTIVE != 0 && self.is_own_process() {
            self.header().unrecorded_exec.store(why.map_or(0, |why| why as u32), Ordering::Release);
        }
    }

    pub fn stamp(&self) -> Stamp {
        self.stamp_after(0)
    }

    /// Returns the stamp of an event of a thread whose last stamp was `last`.
    #[inline(always)]
    pub fn stamp_after(&self, last: Stamp) -> Stamp {
        self.clock.after(self.header(), last)
    }

    /// Returns true if `plain_stamp` may be used: the clock is read without a fence.
    #[inline(always)]
    pub fn has_plain_stamps(&self) -> bool {
        self.clock.is_plain()
    }

    /// As `stamp`. May be called only if `has_plain_stamps` is true.
    #[inline(always)]
    pub fn plain_stamp(&self) -> Stamp {
        self.clock.plain()
    }

    /// Returns a stamp without a read of the time stamp counter. It is too early by at most the time since the
    /// collector's last round, normally 10 ms. Any thread may call this, also one that has lost the time stamp counter
    /// unnoticed.
    fn rough_stamp(&self) -> Stamp {
        self.header().ticks.load(Ordering::Relaxed)
    }

    /// Returns true if the profiler has written this library into the process, which it patched while it was running or at
    /// its start.
    fn is_patched(&self) -> bool {
        self.own != Range::NONE
    }

    /// Called when a thread begins to record.
    pub fn begin_thread(&self, local: *mut Local) {
        self.only.store(local, Ordering::SeqCst);
        if !self.header().begin_thread(&self.threads_begun, self.clock.is_plain()) {
            self.only.store(core::ptr::null_mut(), Ordering::SeqCst);
        }
    }

    /// Wakes the collector.
    pub fn ring_bell(&self) {
        let doorbell = channel::Host::doorbell(self);
        doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(doorbell);
    }

    /// Called when the program exits. If `heaptrace` watches, waits until the collector has looked at the memory, but
    /// for at most half a second.
    pub fn say_farewell(&self) {
        const TRIES: u32 = 5;
        const TRY_MS: u64 = 100;
        const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
        if self.gate() & ACTIVE == 0 || self.header().heaptrace.watched == 0 || !self.may_call() {
            return;
        }
        let header = self.header();
        header.heaptrace.exit_handshake.store(ExitHandshake::Said as u32, Ordering::Release);
        self.ring_bell();
        for _ in 0..TRIES {
            let is_over = header.heaptrace.exit_handshake.load(Ordering::Acquire) != ExitHandshake::Said as u32;
            if is_over || header.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0 {
                return;
            }
            sys::futex_wait(&header.heaptrace.exit_handshake, ExitHandshake::Said as u32, TRY_MS);
        }
    }

    /// Returns false in a child that shares the memory of this process (`vfork`). In a sandbox the kernel cannot be asked for the
    /// pid; there it returns true.
    pub fn is_own_process(&self) -> bool {
        !self.may_call() || sys::getpid() == self.parts().pid
    }

    /// Returns true in a process of a followed tree, also if it was forked and has not joined. Returns false in a child that
    /// shares the memory of such a process, and in a sandbox.
    pub fn has_own_memory(&self) -> bool {
        if !follow::is_on() || self.parts_if_any().is_none() || !self.may_call() {
            return false;
        }
        let pid = sys::getpid();
        pid == self.parts().pid || pid == follow::forked_pid()
    }

    /// Counts a child process that is not followed.
    pub fn note_child(&self) {
        if self.gate() & ACTIVE != 0 && !follow::is_on() && self.is_own_process() {
            self.header().children.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns what an exec must pass on. `None` in a process that does not record, unless its tree is followed.
    pub fn carried(&self) -> Option<&Carried> {
        let state = self.state.load(Ordering::Acquire);
        if state == State::Asleep as u32 || state == State::Starting as u32 {
            return None;
        }
        let records = || state == State::Ready as u32 && self.gate_after_start() & ACTIVE != 0 && self.is_own_process();
        let is_carried = follow::is_on() || records();
        // SAFETY: `carried` is only written in `Starting`, by `prepare`, and the state shows that this is over. A child
        // that joins does not write it again.
        is_carried.then(|| unsafe { &*self.carried.get() })
    }

    /// For tests: counts an allocation, and stops the process if its number is one of `stops`.
    #[cold]
    pub fn counted(&self) {
        let n = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
        if self.stops.iter().any(|s| s.load(Ordering::Relaxed) == n) {
            sys::stop_thread(self.parts().pid, sys::gettid());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under ThreadSanitizer (`make soak-thread`) this shows that the state orders the accesses to the parts, which
    /// are not atomic.
    #[test]
    fn a_thread_that_sees_the_state_ready_sees_the_parts() {
        // SAFETY: zeros are a core in the state `Asleep`: null pointers, no parts, nothing that is carried.
        let core: Box<Core> = unsafe { Box::new(core::mem::zeroed()) };
        assert!(core.advance(State::Asleep, State::Starting));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match core.parts_if_any() {
                        Some(parts) => return parts.pid,
                        None => std::thread::yield_now(),
                    }
                }
            });
            // SAFETY: zeros are `Parts`, whose pointers are not followed here. In `Starting` only this thread uses them.
            unsafe { *core.parts.get() = MaybeUninit::new(Parts { pid: 4711, ..core::mem::zeroed() }) };
            core.settle(State::Ready);
            assert_eq!(reader.join().ok(), Some(4711));
        });
    }
}
