//! The core's state in one place, and its start.
//!
//! ```text
//! Asleep --first hook or constructor--> Starting --the channel is there--> Ready
//!                                          |
//!                                          +--no channel, not the target, refused--> Passive
//! ```
//! `Passive` and a forked child look the same to a hook: the gate is shut, the real function is all that runs. Only where a
//! whole tree is followed a forked child goes through `Starting` once more, with shared memory of its own.
mod attached;

pub use attached::{Attached, SlotGuards, adopt, geometry_of};

use crate::clock::{Source, StampClock};
use crate::elf::{self, Auxiliary, Debug, Headers, LinkMap, Symbols};
use crate::entry::Range;
use crate::environment::{self, Carried, Environment};
use crate::events;
use crate::families;
use crate::filters;
use crate::follow;
use crate::loader;
use crate::local::{Local, Threads};
use crate::modules::{self, Found, KnownModules, May, Modules};
use crate::real;
use crate::rule::Rules;
use crate::sandbox;
use crate::signals;
use crate::sys;
use crate::unwatched;
use channel::{
    Clock, Farewell, Fence, Geometry, Header, Loss, MAGIC, NO_CALLS_SAID, PAGE, Phase, Region, Stamp, UnrecordedExec,
    VERSION,
};
use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The gate's bits. Its page reads as zero in a forked child.
pub const ACTIVE: u32 = 1;
/// Tests only: count allocations and stop at some.
pub const COUNTING: u32 = 2;
/// The program wants no allocations recorded for now. Frees are: a block that is gone is no leak.
pub const PAUSED: u32 = 4;

#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    Starting,
    /// A forked child gets shared memory of its own. No thread waits for that: a handler that interrupts it would wait for ever.
    Joining,
    Ready,
    Passive,
}

/// Why recording could not start; `Header::refusal`.
#[repr(u32)]
#[derive(Clone, Copy)]
enum Refusal {
    Mismatch = 1,
    NotMapped = 2,
    NoAllocator = 3,
    NoSystemCall = 4,
}

/// The per-process tables, in the channel's private part.
#[repr(C)]
struct Private {
    rules: Rules,
    threads: Threads,
    /// Where the headers of far slots are mapped, 0 = not yet.
    far_slots: AtomicU64,
    /// Where each unit of slot areas is mapped, 0 = not yet.
    areas: [AtomicU64; Geometry::MAX_MAP_UNITS],
    modules: Modules,
    /// Only for the writer of the table of modules.
    known_modules: UnsafeCell<KnownModules>,
}

const _: () = assert!(size_of::<Private>() <= Geometry::PRIVATE_BYTES as usize);

/// Everything that is set once, before the gate opens.
#[repr(C)]
struct Parts {
    region: Region,
    private: *mut Private,
    debug: *const Debug,
    program: Headers,
    pid: u32,
}

/// Laid out as in C: of a process that runs already it is written from outside, see `attached.rs`.
///
/// What the SAFETY comments of this file refer to by name:
/// - **Start-up**: `start` does its work in the loader or in a constructor, before `main`: the first hook or the constructor
///   of `capture-so` calls it. The process has one thread then, and its loader waits for us, so its list is stable. A
///   forked child that joins is at its first hook after the fork, on the only thread that it has.
/// - **The gate is mapped**: `gate` points to `SHUT`, to the page that `assemble` has mapped and that is never unmapped, or
///   to the page in the home of an attached process, which is never unmapped either.
/// - **Parts are set**: `assemble` writes `parts` before `open` opens the gate and before the state is `Ready`; the `Core`
///   of an attached process is written with them. Only code that has seen the gate open or the state `Ready`, and what
///   `assemble` and `join` call, asks for them. Threads that see the gate open start later, or were stopped while it was
///   opened.
/// - **The region is mapped**: nothing unmaps what `map_parts`, `map_unit` and `map_far_slots` have mapped and published. Of
///   an attached process, `attach/src/repair.rs` unmaps it only when no thread is in a hook.
#[repr(C)]
pub struct Core {
    state: AtomicU32,
    gate: AtomicPtr<AtomicU32>,
    parts: UnsafeCell<MaybeUninit<Parts>>,
    clock: StampClock,
    /// What an exec must bring along; apart, for it is too large to be moved on a small stack.
    carried: UnsafeCell<Carried>,
    /// Where libc keeps the tid in a thread block, once learnt.
    pub tid_offset: AtomicU32,
    /// An address above all frames of the first thread's stack; 0 = not known.
    pub stack_top: AtomicU64,
    /// Where we are ourselves, in a process that ran already.
    own: Range,
    /// A frame was guessed: loading a module may prove it wrong.
    guessed: AtomicBool,
    /// The Image record has been written.
    pub announced: AtomicBool,
    /// Threads that have begun to record.
    threads_begun: AtomicU32,
    /// The state of the thread that records alone, or null.
    pub only: AtomicPtr<Local>,
    /// Where libc keeps `stderr`, 0 = unknown.
    stderr: AtomicU64,
    /// Tests only.
    stops: [AtomicU64; STOPS],
    allocations: AtomicU64,
}

const STOPS: usize = 128;

// SAFETY: `parts` and `carried` are the only fields that are not atomic and that are written. `start` and `join` admit one
// thread to `Starting`, which writes them; other threads read them only when parts are set (see `Core`).
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
    /// The gate, first thing in every hook.
    #[inline(always)]
    pub fn gate(&self) -> u32 {
        // SAFETY: the gate is mapped (see `Core`).
        unsafe { (*self.gate.load(Ordering::Relaxed)).load(Ordering::Relaxed) }
    }

    /// The gate, for an event: a forked child of a followed process opens it with its first.
    #[inline(always)]
    pub fn gate_or_join(&self) -> u32 {
        let gate = self.gate();
        if gate == 0 && follow::may_join() { self.join() } else { gate }
    }

    /// Ends recording for good; the program goes on.
    pub fn shut(&self) {
        follow::give_up();
        // SAFETY: the gate is mapped (see `Core`). `SHUT`, too, is a static that can be written.
        unsafe { (*self.gate.load(Ordering::Relaxed)).store(0, Ordering::Relaxed) };
    }

    /// The program's own wish. Only where we record: the shut gate is everybody's.
    pub fn pause(&self) {
        if self.gate() & ACTIVE != 0 {
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

    /// The program ends recording, for good. True: it was on.
    pub fn stop(&self) -> bool {
        let was_on = self.gate() & ACTIVE != 0;
        if was_on {
            self.header().stopped_by_program.store(1, Ordering::Relaxed);
            self.shut();
        }
        was_on
    }

    /// libc's `stderr`, where we record.
    pub fn standard_error(&self) -> Option<*mut u8> {
        if self.gate() & ACTIVE == 0 {
            return None;
        }
        // SAFETY: 0, or where `prepare` found the variable `stderr`: in the program or in a library of the start, which the
        // loader never unloads. It is a pointer, aligned; if the program assigns to it meanwhile, the old or the new value
        // is read.
        let stream = unsafe { (self.stderr.load(Ordering::Relaxed) as *const *mut u8).as_ref() }?;
        (!stream.is_null()).then_some(*stream)
    }

    /// What was remembered of modules and walks is forgotten.
    pub fn forget_modules(&self) {
        if self.gate() & ACTIVE != 0 {
            self.rules().clear();
            self.modules().forget();
        }
    }

    #[inline(always)]
    fn parts(&self) -> &Parts {
        // SAFETY: parts are set (see `Core`).
        unsafe { (*self.parts.get()).assume_init_ref() }
    }

    /// The parts, for code that may run with the gate shut.
    fn parts_if_any(&self) -> Option<&Parts> {
        if self.state.load(Ordering::Acquire) != State::Ready as u32 {
            return None;
        }
        Some(self.parts())
    }

    #[inline(always)]
    pub fn region(&self) -> &Region {
        &self.parts().region
    }
    #[inline(always)]
    pub fn header(&self) -> &'static Header {
        self.parts().region.header()
    }
    #[inline(always)]
    fn private(&self) -> &Private {
        // SAFETY: the region is mapped (see `Core`), and `private` is page-aligned in it. `Geometry::check` demands
        // `PRIVATE_BYTES`, which the assertion at `Private` compares. Zeros are valid, and what several threads write is
        // atomic or in an `UnsafeCell`.
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
    /// The caller is the only writer of the table of modules, and holds no other result of this function: it is called by
    /// the loader's notification, at start-up, or in `unwatched::alone`.
    #[allow(clippy::mut_from_ref)]
    unsafe fn known_modules(&self) -> &mut KnownModules {
        // SAFETY: no other reference to it exists, because the caller is the only writer. `private` has shown that it is
        // mapped.
        unsafe { &mut *self.private().known_modules.get() }
    }
    pub fn pid(&self) -> u32 {
        self.parts().pid
    }

    #[inline(always)]
    pub fn find_module(&self, address: u64) -> Option<Found> {
        let found = self.modules().find(self.region(), address);
        if !unwatched::is_on() || found.is_some_and(|found| !unwatched::may_go(found.instance)) {
            return found;
        }
        self.ask_for_module(found, address)
    }

    /// The loader is not watched: what is known may be gone, and what is new was not told.
    #[cold]
    #[inline(never)]
    fn ask_for_module(&self, known: Option<Found>, address: u64) -> Option<Found> {
        let parts = self.parts();
        // SAFETY: the object has code on the stack of this thread, so it stays.
        let map = unsafe { unwatched::find(address)?.as_ref()? };
        if !self.may_call() {
            return known;
        }
        // SAFETY: `map` is the object of a frame of this thread, as for `unwatched::find` above, so it stays during the
        // comparison.
        if known.is_some_and(|known| unsafe { modules::is_same(&parts.region, known.instance, map, parts.program) }) {
            return known;
        }
        let stamp = self.rough_stamp();
        unwatched::alone(|| {
            // SAFETY: `alone` makes this thread the only writer; without a notification there is no other. `map` is the
            // object of a frame of this thread, as for `unwatched::find` above.
            unsafe { self.known_modules().add(self.modules(), &parts.region, map, parts.program, stamp) };
            self.rules().clear();
        })?;
        self.modules().find(&parts.region, address)
    }

    /// A library may be unloaded now: stacks that were remembered are walked anew.
    pub fn modules_may_go(&self) {
        if self.gate() & ACTIVE != 0 {
            self.modules().forget();
            self.rules().clear();
        }
    }

    /// A symbol behind us in the loader's list, looked up outside of the start.
    pub fn find_later(&self, name: &[u8]) -> Option<u64> {
        let parts = self.parts_if_any()?;
        // SAFETY: the loader's list; the caller is in a function of the loader's own interface, not inside of malloc.
        unsafe { real::find_behind((*parts.debug).maps, elf::own_dynamic(), name) }
    }

    /// True for a return address into ourselves: a function that we called has jumped to another one.
    pub fn is_own(&self, address: u64) -> bool {
        self.own.holds(address)
    }

    pub fn note_guess(&self) {
        self.guessed.store(true, Ordering::Relaxed);
    }

    pub fn lose(&self, loss: Loss) {
        self.lose_events(loss, 1);
    }

    pub fn lose_events(&self, loss: Loss, count: u64) {
        self.header().losses[loss as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// The calling thread is about to forbid system calls. Returns `None` if that does not matter. Otherwise `allow_calls`
    /// must follow should it fail, and the value is true if calls were allowed before.
    pub fn forbid_calls(&self) -> Option<bool> {
        if self.gate() & ACTIVE == 0 {
            if follow::may_join() {
                // A forked child that has not joined yet: afterwards it must not.
                follow::miss();
                follow::give_up();
            }
            return None;
        }
        // A child of vfork shares our memory, and its filter is not ours.
        if self.may_call() {
            if sys::getpid() != self.parts().pid {
                return None;
            }
            events::begin_early(self);
        }
        Some(self.header().no_syscalls.fetch_add(NO_CALLS_SAID, Ordering::SeqCst) == 0)
    }

    /// What `forbid_calls` announced did not happen.
    pub fn allow_calls(&self) {
        if self.gate() & ACTIVE != 0 {
            let taken_back = |said: u32| said.checked_sub(NO_CALLS_SAID);
            // Fails if another recording has begun since: nothing was announced to that one.
            let _ = self.header().no_syscalls.fetch_update(Ordering::SeqCst, Ordering::Relaxed, taken_back);
        }
    }

    /// The calling thread is about to forbid itself the time stamp counter.
    pub fn leave_counter(&self) {
        if self.gate() & ACTIVE != 0 {
            self.clock.leave_counter(self.header());
        }
    }

    /// Before the first stamp of a thread. Makes a system call.
    pub fn check_clock(&self) {
        self.clock.check_thread(self.header());
    }

    /// As `may_call`, where the gate may be shut.
    pub fn may_call_if_ready(&self) -> bool {
        self.parts_if_any().is_none_or(|parts| parts.region.header().no_syscalls.load(Ordering::Relaxed) == 0)
    }

    /// Whether this process is about to become a program that cannot be recorded. `None`: it can be, or the exec failed.
    pub fn note_unrecorded_exec(&self, why: Option<UnrecordedExec>) {
        if self.gate() & ACTIVE != 0 {
            self.header().unrecorded_exec.store(why.map_or(0, |why| why as u32), Ordering::Release);
        }
    }

    /// False while a seccomp filter may punish any call of ours.
    pub fn may_call(&self) -> bool {
        self.header().no_syscalls.load(Ordering::Relaxed) == 0
    }

    pub fn stamp(&self) -> Stamp {
        self.stamp_after(0)
    }

    /// The stamp of an event of a thread whose last stamp was `last`.
    #[inline(always)]
    pub fn stamp_after(&self, last: Stamp) -> Stamp {
        self.clock.after(self.header(), last)
    }

    /// The clock may be read without a fence, see `plain_stamp`.
    #[inline(always)]
    pub fn has_plain_stamps(&self) -> bool {
        self.clock.is_plain()
    }

    /// As `stamp`, where stamps are plain.
    #[inline(always)]
    pub fn plain_stamp(&self) -> Stamp {
        self.clock.plain()
    }

    /// About now, 20 ms early at most. Any thread may ask, also one that has lost the time stamp counter unnoticed.
    fn rough_stamp(&self) -> Stamp {
        self.header().ticks.load(Ordering::Relaxed)
    }

    /// A thread begins to record. The first one is alone, until the second one is here: then no event of the first may
    /// go without the clock, from before the second one's first event on.
    pub fn begin_thread(&self, local: *mut Local) {
        let first = self.threads_begun.fetch_add(1, Ordering::SeqCst) == 0;
        let alone = first && self.clock.is_plain();
        if alone {
            self.only.store(local, Ordering::SeqCst);
            self.header().pace.store(1, Ordering::SeqCst);
        }
        // A second one that began just now may have said so before we said that we are alone.
        if !alone || self.threads_begun.load(Ordering::SeqCst) > 1 {
            self.only.store(core::ptr::null_mut(), Ordering::SeqCst);
            self.header().pace.store(0, Ordering::SeqCst);
        }
    }

    /// Looks for the channel and the real functions. Returns when both are known or known to be missing.
    #[cold]
    pub fn start(&self) {
        let begin = self.state.compare_exchange(
            State::Asleep as u32,
            State::Starting as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if begin.is_err() {
            while self.state.load(Ordering::Acquire) == State::Starting as u32 {
                core::hint::spin_loop();
            }
            return;
        }
        let ready = self.prepare().is_some();
        let state = if ready { State::Ready } else { State::Passive };
        self.state.store(state as u32, Ordering::Release);
        if ready {
            self.open();
        }
    }

    fn prepare(&self) -> Option<()> {
        let stack_end = stack_end();
        let auxiliary = auxiliary(stack_end)?;
        let program = auxiliary.headers;
        self.stack_top.store(auxiliary.random, Ordering::Relaxed);
        let debug = find_debug(program)?;
        // SAFETY: start-up (see `Core`). `find_debug` returned the loader's board, which is a static of the loader.
        let maps = unsafe { (*debug).maps };
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        let complete = unsafe { real::resolve(maps, elf::own_dynamic()) };
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        unsafe {
            sandbox::resolve(maps, elf::own_dynamic());
            crate::exec::resolve(maps, elf::own_dynamic());
            unwatched::resolve(maps, elf::own_dynamic());
        }
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        let stderr = unsafe { real::find_anywhere(maps, b"stderr") };
        self.stderr.store(stderr.unwrap_or(0), Ordering::Relaxed);
        // SAFETY: start-up (see `Core`): the list is stable. `stack_end` returned null or the value of the loader's
        // variable.
        let environment = unsafe { find_environment(stack_end, maps)? };
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        if unsafe { real::is_behind_a_copy(maps, elf::own_dynamic()) } {
            return None;
        }
        // SAFETY: start-up (see `Core`): `find_environment` found the initial list, whose strings the kernel put on the
        // stack, and no other thread uses it.
        let channel = unsafe { environment.take(environment::CHANNEL) };
        // SAFETY: start-up (see `Core`): the initial list, which no other thread uses.
        if unsafe { is_behind_own_filter(environment, path_of(channel.get())) } {
            if !channel.is_empty() {
                // SAFETY: `start` has set `Starting`. Start-up (see `Core`): the initial list, which no other thread uses.
                unsafe { self.read_carried(environment, channel.get()) };
            }
            return None;
        }
        // SAFETY: `start` has set `Starting`. Start-up (see `Core`): the initial list, which no other thread uses.
        let is_followed = unsafe { self.read_hub(environment) };
        if channel.is_empty() && !is_followed {
            return None;
        }
        if !is_followed {
            // SAFETY: `start` has set `Starting`. Start-up (see `Core`): the initial list, which no other thread uses.
            unsafe { self.read_carried(environment, channel.get()) };
        }
        // SAFETY: start-up (see `Core`): the initial list on the stack, which no other thread uses.
        let stops = unsafe { environment.take(environment::STOP_AT) };
        let pid = sys::getpid();
        let region = if channel.is_empty() { follow::claim(pid)? } else { connect(channel.get())? };
        let header = region.header();
        let target = &header.target_pid;
        let is_ours = target.load(Ordering::Acquire) == pid
            || target.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !is_ours || header.phase.load(Ordering::Acquire) == Phase::Stopped as u32 {
            return None;
        }
        if !complete {
            return refuse(header, Refusal::NoAllocator);
        }
        self.read_stops(stops.get());
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, it is stable, and there is no other thread.
        unsafe { families::enable(maps, program, Core::start as *const () as u64) };
        self.assemble(region, debug, program, pid)
    }

    /// Takes our library out of the environment, and remembers what an exec in place needs.
    ///
    /// # Safety
    /// The state is `Starting`, set by the caller's thread. `environment` is the process's initial one with its strings on
    /// the stack, and no other thread uses it.
    #[inline(never)]
    unsafe fn read_carried(&self, environment: Environment, channel: &[u8]) {
        // SAFETY: in `Starting` only this thread has a reference to `carried`. `take_library` asks for the initial list that
        // no other thread uses, which the caller promises.
        unsafe {
            let carried = &mut *self.carried.get();
            carried.library = environment.take_library();
            carried.value.push(b"-,");
            carried.value.push(path_of(channel));
        }
    }

    /// True where a tree of processes is followed; remembers what every exec needs. The environment stays as it is.
    ///
    /// # Safety
    /// As `read_carried`: `Starting`, and the initial environment, which no other thread uses.
    #[inline(never)]
    unsafe fn read_hub(&self, environment: Environment) -> bool {
        // SAFETY: in `Starting` only this thread has a reference to `carried`. `copy` and `library` ask for the initial list
        // that no other thread uses, which the caller promises.
        unsafe {
            let carried = &mut *self.carried.get();
            carried.value = environment.copy(environment::FOLLOW);
            if carried.value.is_empty() || !follow::find_hub(carried.value.as_c_string()) {
                carried.value = environment::Value::EMPTY;
                return false;
            }
            carried.library = environment.library();
            carried.variable = environment::FOLLOW;
        }
        true
    }

    /// A forked child of a followed process: shared memory of its own, or never again. Returns the gate.
    #[cold]
    #[inline(never)]
    fn join(&self) -> u32 {
        // A second thread, or a handler that interrupts us, does not wait: its event is not seen.
        let begin = self.state.compare_exchange(
            State::Ready as u32,
            State::Joining as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if begin.is_err() {
            return 0;
        }
        let joined = self.join_as_child();
        if !joined {
            follow::give_up();
        }
        self.state.store(State::Ready as u32, Ordering::Release);
        if joined {
            self.open();
        }
        self.gate()
    }

    fn join_as_child(&self) -> bool {
        let Parts { debug, program, pid: parent, .. } = *self.parts();
        // The parent's loader may have been in the middle of a change when it forked.
        // SAFETY: `find_debug` found the loader's board in the parent; the child has a copy of it at the same address.
        if !self.may_call() || !unsafe { loader::is_quiet(debug) } {
            follow::miss();
            return false;
        }
        let pid = sys::getpid();
        if pid == parent {
            return false;
        }
        let Some(region) = follow::claim(pid) else { return false };
        region.header().target_pid.store(pid, Ordering::Release);
        self.announced.store(false, Ordering::Relaxed);
        self.threads_begun.store(0, Ordering::Relaxed);
        self.only.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.guessed.store(false, Ordering::Relaxed);
        self.assemble(region, debug, program, pid).is_some()
    }

    /// The program ends: if somebody watches, its memory can be looked at now. Waits half a second at most.
    pub fn say_farewell(&self) {
        const TRIES: u32 = 5;
        const TRY_MS: u64 = 100;
        const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
        if self.gate() & ACTIVE == 0 || self.header().watched == 0 || !self.may_call() {
            return;
        }
        let header = self.header();
        header.farewell.store(Farewell::Said as u32, Ordering::Release);
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
        for _ in 0..TRIES {
            let is_over = header.farewell.load(Ordering::Acquire) != Farewell::Said as u32;
            if is_over || header.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0 {
                return;
            }
            sys::futex_wait(&header.farewell, Farewell::Said as u32, TRY_MS);
        }
    }

    /// Makes the tables, patches the loader, fills in what the collector waits for.
    fn assemble(&self, region: Region, debug: *const Debug, program: Headers, pid: u32) -> Option<()> {
        let header = region.header();
        // A forked child has its parent's page, empty.
        let mut gate = self.gate.load(Ordering::Acquire).cast::<u8>();
        let is_forked = !core::ptr::eq(gate, (&raw const SHUT).cast());
        if !is_forked {
            let Some(page) = sys::map_private(PAGE) else { return refuse(header, Refusal::NotMapped) };
            if !sys::wipe_on_fork(page, PAGE) {
                return refuse(header, Refusal::NoSystemCall);
            }
            gate = page;
        }
        let membarrier = sys::register_membarrier();
        let fence = if membarrier { Fence::Membarrier } else { Fence::InTarget };
        header.fence.store(fence as u32, Ordering::Release);
        let image = header.image.fetch_add(1, Ordering::AcqRel) + 1;
        let private = region.private().cast::<Private>();
        let parts = Parts { region, private, debug, program, pid };
        self.clock.set(Source::choose(header.clock == Clock::Tsc as u32, membarrier));
        self.clock.check_thread(header);
        if image > 1 {
            // SAFETY: `private` is aligned and mapped (see `private`), and zeros are a valid `Private`. These are the tables
            // of the program before this exec, whose threads the kernel has ended. The new program has one thread, which has
            // not set `parts` yet.
            unsafe { core::ptr::write_bytes(private, 0, 1) };
        }
        // SAFETY: the state is `Starting`, which admits one thread, and the gate is shut, so no other thread has a reference
        // to `parts`.
        unsafe { *self.parts.get() = MaybeUninit::new(parts) };
        self.gate.store(gate.cast(), Ordering::Release);
        // SAFETY: start-up (see `Core`): the list is stable, and no notification can come, so this thread is the only
        // writer.
        unsafe { self.refresh_modules(if is_forked { May::Ask } else { May::AskForFolder }) };
        if !loader::watch(debug) {
            // SAFETY: start-up (see `Core`): `debug` is the loader's board, its list is stable, and `refresh_modules` has
            // taken in its modules.
            unsafe { unwatched::begin((*debug).maps, header.module_count.load(Ordering::Relaxed)) };
        }
        if header.watched == 0 {
            self.copy_suppressions();
        } else {
            signals::watch(is_forked);
        }
        follow::joined();
        header.phase.store(Phase::Recording as u32, Ordering::Release);
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
        Some(())
    }

    fn open(&self) {
        let counting = self.stops.iter().any(|s| s.load(Ordering::Relaxed) != 0);
        // SAFETY: the gate is mapped (see `Core`); `assemble` has stored it.
        unsafe {
            (*self.gate.load(Ordering::Relaxed))
                .store(if counting { ACTIVE | COUNTING } else { ACTIVE }, Ordering::Release)
        };
    }

    /// The loader has changed its list.
    ///
    /// # Safety
    /// Called by the loader's notification, which comes with the loader's lock held, or at start-up: the list is stable,
    /// there is one writer.
    pub unsafe fn refresh_modules(&self, may: May) {
        let parts = self.parts();
        let stamp = self.rough_stamp();
        let may = if self.may_call() { may } else { May::AskNothing };
        // SAFETY: the caller is the only writer, and the list is stable, both by the promise to this function. Parts are set
        // (see `Core`), so `debug` and `program` are the loader's board and the program's headers.
        let change = unsafe {
            self.known_modules().refresh(self.modules(), &parts.region, parts.debug, parts.program, stamp, may)
        };
        // Its whole path is to be had only while the program lives, which may not be long.
        if change.loaded != 0 && self.may_call() {
            let header = parts.region.header();
            header.doorbell.fetch_add(1, Ordering::Release);
            sys::futex_wake(&header.doorbell);
        }
        if change.unloaded != 0 || change.loaded != 0 && self.guessed.swap(false, Ordering::Relaxed) {
            self.rules().clear();
        }
    }

    /// The loader's notification.
    pub fn modules_changed(&self) {
        if self.gate() & ACTIVE == 0 {
            return;
        }
        // SAFETY: parts are set (see `Core`), so `debug` is the loader's board. The loader calls us with its lock held and
        // waits, so its list is stable, and there is one writer.
        unsafe {
            let debug = self.parts().debug;
            if (*debug).state == 0 {
                self.refresh_modules(May::AskForFolder);
            }
        }
    }

    /// The text of `__lsan_default_suppressions`, if the program has one.
    fn copy_suppressions(&self) {
        let parts = self.parts();
        // SAFETY: start-up (see `Core`): the board and its list are stable. LeakSanitizer's interface says that the function
        // of this name has no arguments and returns null or a C string that stays. `find_anywhere` or `hidden_suppressions`
        // found it. The loader has relocated the program before it calls us.
        unsafe {
            let maps = (*parts.debug).maps;
            let exported = real::find_anywhere(maps, b"__lsan_default_suppressions");
            let Some(address) = exported.or_else(|| self.hidden_suppressions(maps)) else { return };
            let function: extern "C" fn() -> *const u8 = core::mem::transmute(address);
            let text = function();
            if text.is_null() {
                return;
            }
            let (at, len) = crate::modules::store_name(&parts.region, environment::bytes(text));
            self.header().lsan_text.store((at as u64) << 32 | len as u64, Ordering::Release);
        }
    }

    /// The same function of a program that does not export it; the collector read its symbol table.
    fn hidden_suppressions(&self, maps: *const LinkMap) -> Option<u64> {
        let header = self.header();
        let offset = header.lsan_symbol;
        // SAFETY: `maps` is the loader's list, taken by `copy_suppressions` at start-up (see `Core`). Its first entry is the
        // program.
        let bias = unsafe { maps.as_ref() }?.bias;
        (offset != 0 && header.image.load(Ordering::Relaxed) == 1).then(|| bias.wrapping_add(offset))
    }

    /// The mapped area of a slot, or `None` if it cannot be mapped.
    pub fn area(&self, slot: u32) -> Option<*mut u8> {
        let geometry = self.parts().region.geometry();
        let unit = geometry.map_unit_of(slot);
        let mapped = self.private().areas.get(unit.index)?;
        if mapped.load(Ordering::Acquire) == 0 {
            // At most `MAX_MAP_UNITS` steps, each of which finds a unit mapped or maps it.
            (0..=unit.index).try_for_each(|index| self.map_unit(index))?;
        }
        let in_unit = geometry.slot_area_at(slot) - geometry.slot_area_at(unit.first_slot);
        Some((mapped.load(Ordering::Acquire) as usize + in_unit) as *mut u8)
    }

    /// Maps a unit of slot areas. Units are mapped in order, each from the last page of the one before: the kernel duplicates a
    /// shared mapping without a descriptor (mremap with an old size of 0), and we keep none open.
    fn map_unit(&self, index: usize) -> Option<()> {
        let parts = self.parts();
        let geometry = parts.region.geometry();
        let place = self.private().areas.get(index)?;
        if place.load(Ordering::Acquire) != 0 {
            return Some(());
        }
        let before = match index.checked_sub(1) {
            Some(before) => {
                let start = self.private().areas.get(before)?.load(Ordering::Acquire);
                start + geometry.map_unit_len(geometry.map_unit(before)) as u64
            }
            None => parts.region.fixed_end(),
        };
        let len = PAGE + geometry.map_unit_len(geometry.map_unit(index));
        if !self.may_call() {
            return None;
        }
        let copy = sys::map_again(before - PAGE as u64, len)?;
        sys::keep_out_of_dumps(copy, len);
        let area = copy as u64 + PAGE as u64;
        if place.compare_exchange(0, area, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `map_again` has just mapped these `len` bytes at `copy`. The exchange failed, so their address was not
            // published.
            unsafe { sys::unmap(copy, len) };
        }
        Some(())
    }

    /// Maps the headers of far slots. `None` when they are mapped already, or cannot be.
    pub fn map_far_slots(&self) -> Option<()> {
        let region = &self.parts().region;
        let place = &self.private().far_slots;
        let len = region.geometry().fixed_len() - region.geometry().near_len();
        if len == 0 || place.load(Ordering::Acquire) != 0 || !self.may_call() {
            return None;
        }
        let copy = sys::map_again(region.near_end() - PAGE as u64, PAGE + len)?;
        sys::keep_out_of_dumps(copy, PAGE + len);
        if place.compare_exchange(0, copy as u64 + PAGE as u64, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `map_again` has just mapped these `PAGE + len` bytes at `copy`. The exchange failed, so their address
            // was not published.
            unsafe { sys::unmap(copy, PAGE + len) };
        }
        Some(())
    }

    /// Where a slot's thread keeps its state.
    pub fn local(&self, slot: u32, area: *mut u8) -> *mut Local {
        area.wrapping_add(self.region().geometry().private_in_slot(slot)).cast()
    }

    /// What an exec must carry; `None` in a process that does not record, unless it is of a tree that is followed.
    pub fn carried(&self) -> Option<&Carried> {
        let parts = self.parts_if_any()?;
        // In a sandbox the pid cannot be asked for. There, nothing is carried: see `exec.rs`.
        let is_own_process = || !self.may_call() || sys::getpid() == parts.pid;
        let is_carried = follow::is_on() || self.gate() & ACTIVE != 0 && is_own_process();
        // SAFETY: the state is `Ready`, checked by `parts_if_any`. `carried` is only written in `Starting`, by `prepare`; a
        // child that joins does not write it again.
        is_carried.then(|| unsafe { &*self.carried.get() })
    }

    fn read_stops(&self, list: &[u8]) {
        let mut rest = list;
        for stop in &self.stops {
            let Some((value, digits)) = environment::number(rest) else { break };
            stop.store(value, Ordering::Relaxed);
            rest = rest.get(digits + 1..).unwrap_or(&[]);
        }
    }

    /// Tests only: one more allocation was recorded.
    #[cold]
    pub fn counted(&self) {
        let n = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
        if self.stops.iter().any(|s| s.load(Ordering::Relaxed) == n) {
            sys::stop_thread(self.parts().pid, sys::gettid());
        }
    }
}

fn refuse(header: &Header, why: Refusal) -> Option<()> {
    header.refusal.store(why as u32, Ordering::Release);
    None
}

/// glibc's pointer to argc on the initial stack; null elsewhere.
fn stack_end() -> *const u64 {
    let variable: *const *const u64;
    // SAFETY: the loader fills the word at GOTPCREL with the address of the variable, or with 0 if no module defines the
    // weak symbol. The variable is a pointer in glibc's loader, which is never unloaded; 0 is not followed.
    unsafe {
        core::arch::asm!(
            ".weak __libc_stack_end",
            "mov {}, qword ptr [rip + __libc_stack_end@GOTPCREL]",
            out(reg) variable,
            options(nostack, preserves_flags, readonly),
        );
        if variable.is_null() { core::ptr::null() } else { *variable }
    }
}

/// What the kernel told the program, from its stack or, where the libc does not say where that began, from /proc.
fn auxiliary(stack_end: *const u64) -> Option<Auxiliary> {
    if stack_end.is_null() {
        return Auxiliary::from_proc();
    }
    // SAFETY: not null, so it is the value of glibc's `__libc_stack_end`, which points to argc where the kernel put it.
    unsafe { Auxiliary::from_stack(stack_end) }
}

/// The loader's board, through the program's own dynamic section.
fn find_debug(program: Headers) -> Option<*const Debug> {
    let (bias, is_certain) = program.bias();
    let dynamic = bias.wrapping_add(program.find(elf::PT_DYNAMIC)?.vaddr) as *const [u64; 2];
    // The kernel is asked only where it must be: the program may be behind a filter that kills it for the call.
    if !is_certain && !sys::is_readable(dynamic as usize) {
        return None;
    }
    // SAFETY: the program's dynamic section, mapped and terminated.
    let debug = unsafe { elf::dynamic_value(dynamic, elf::DT_DEBUG) }.map(|debug| debug as *const Debug);
    debug.or_else(|| debug_of_loader(bias, dynamic)).filter(|debug| !debug.is_null())
}

/// The board of a musl loader that was run as a command: what the kernel started is the loader itself, and a variable of it
/// leads to its board.
fn debug_of_loader(bias: u64, dynamic: *const [u64; 2]) -> Option<*const Debug> {
    let null = core::ptr::null();
    let loader = LinkMap { bias, name: null, dynamic, next: core::ptr::null(), prev: core::ptr::null() };
    // SAFETY: the program that the kernel started is mapped for as long as the process runs.
    let variable = unsafe { Symbols::of(&loader) }?.find(b"_dl_debug_addr")? as *const *const Debug;
    // SAFETY: musl's variable of that name, found in its own table of symbols.
    Some(unsafe { *variable })
}

/// # Safety
/// `stack_end` is null or points to argc on the initial stack. `maps` is the loader's list, and it is stable.
unsafe fn find_environment(stack_end: *const u64, maps: *const LinkMap) -> Option<Environment> {
    // SAFETY: the ABI puts argc, argv, a null and then the environment at `stack_end`. `maps` is the loader's stable list,
    // by the caller's promise; `environ` is a variable of libc or of the program, which are never unloaded.
    unsafe {
        if !stack_end.is_null() {
            return Some(Environment(stack_end.add(*stack_end as usize + 2) as *mut *mut u8));
        }
        let variable = real::find_anywhere(maps, b"environ")? as *const *mut *mut u8;
        let list = *variable;
        (!list.is_null()).then_some(Environment(list))
    }
}

/// True if the program is behind a seccomp filter that the collector is not behind. `channel` is the channel's path, empty if a
/// tree is followed. Not inlined, so that its copy of a variable is not on the stack for the rest of the start.
///
/// # Safety
/// `environment` is the process's initial one, and no other thread uses it.
#[inline(never)]
unsafe fn is_behind_own_filter(environment: Environment, channel: &[u8]) -> bool {
    if !channel.is_empty() {
        return filters::is_behind_own_filter(channel);
    }
    // SAFETY: the caller promises that `environment` is the initial one and that no other thread uses it.
    let hub = unsafe { environment.copy(environment::FOLLOW) };
    !hub.is_empty() && filters::is_behind_own_filter(hub.get())
}

/// What is behind the comma of `<fd>,<path>`.
fn path_of(channel: &[u8]) -> &[u8] {
    let comma = channel.iter().position(|&b| b == b',');
    comma.and_then(|at| channel.get(at + 1..)).unwrap_or(&[])
}

/// Maps the fixed part of the channel, checked.
fn connect(channel: &[u8]) -> Option<Region> {
    let fd = match environment::number(channel) {
        Some((fd, _)) => fd as i32,
        None => {
            let mut path = environment::Value::EMPTY;
            path.push(path_of(channel));
            sys::open(path.as_c_string())?
        }
    };
    let region = map_region(fd);
    sys::close(fd);
    region
}

/// The same for an offer of the hub.
pub fn map_offer(collector: u32, fd: u32) -> Option<Region> {
    let fd = sys::open(follow::Path::of_descriptor(collector, fd).get())?;
    let region = map_region(fd);
    sys::close(fd);
    region
}

fn map_region(fd: i32) -> Option<Region> {
    let first = sys::map_shared(fd, 0, PAGE)?;
    // SAFETY: `map_shared` has just mapped this page, and a page holds a header. The collector has sealed the file's size
    // before it offered it, so the page stays behind the mapping. The three fields are not written once a target can see
    // them.
    let (magic, version, geometry) = unsafe {
        let header = &*first.cast::<Header>();
        (header.magic, header.version, header.geometry)
    };
    // SAFETY: the page at `first` is mapped until the end of this function, and what both sides write in a `Header` is
    // atomic.
    let header = unsafe { &*first.cast::<Header>() };
    let region = if magic != MAGIC || version != VERSION || geometry.check().is_err() {
        refuse(header, Refusal::Mismatch);
        None
    } else {
        let region = map_parts(fd, geometry);
        if region.is_none() {
            refuse(header, Refusal::NotMapped);
        }
        region
    };
    // SAFETY: `map_shared` mapped this page above. `header` is not used any more, and `region` is a mapping of its own.
    unsafe { sys::unmap(first, PAGE) };
    region
}

/// Maps what is needed at once: the near part, and the page in front of the slot areas, from which these are mapped later.
fn map_parts(fd: i32, geometry: Geometry) -> Option<Region> {
    let base = sys::map_shared(fd, 0, geometry.near_len())?;
    let last = sys::map_shared(fd, geometry.fixed_len() - PAGE, PAGE)?;
    sys::keep_out_of_dumps(base, geometry.near_len());
    let far = base.wrapping_add(geometry.private_at() + offset_of!(Private, far_slots));
    // SAFETY: `map_shared` has mapped both parts, and nothing unmaps them. `map_region` has checked the geometry.
    // `far_slots` is in `Private`, so in the near part; it is 0 in fresh memory, and `assemble` clears it after an exec,
    // until `map_far_slots` sets it.
    Some(unsafe { Region::in_parts(base, geometry, far.cast(), last as u64 + PAGE as u64) })
}
