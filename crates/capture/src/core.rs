//! The core's state in one place, and its start.
//!
//! ```text
//! Asleep --first hook or constructor--> Starting --the channel is there--> Ready
//!                                          |
//!                                          +--no channel, not the target, refused--> Passive
//! ```
//! `Passive` and a forked child look the same to a hook: the gate is shut, the real function is all that runs.
mod attached;

pub use attached::{Attached, adopt};

use crate::elf::{self, Auxiliary, Debug, Headers, LinkMap};
use crate::entry::Range;
use crate::environment::{self, Carried, Environment};
use crate::loader;
use crate::local::{Local, Threads};
use crate::modules::{Found, Modules};
use crate::real;
use crate::rule::Rules;
use crate::sys;
use channel::{Clock, Fence, Geometry, Header, Loss, MAGIC, PAGE, Phase, Region, Stamp, VERSION};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The gate's bits. Its page reads as zero in a forked child.
pub const ACTIVE: u32 = 1;
/// Tests only: count allocations and stop at some.
pub const COUNTING: u32 = 2;

#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    Starting,
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
    areas: [AtomicU64; SLOTS],
    modules: Modules,
}

const SLOTS: usize = 4096;
const _: () = assert!(size_of::<Private>() <= Geometry::PRIVATE_BYTES as usize);
const _: () = assert!(Geometry::roomy().slots as usize <= SLOTS);

/// Everything that is set once, before the gate opens.
#[repr(C)]
struct Parts {
    region: Region,
    private: *mut Private,
    debug: *const Debug,
    program: Headers,
    pid: u32,
    /// rdtsc alone is a good stamp: the collector has membarrier.
    plain_stamps: bool,
    ticks: bool,
    carried: Carried,
}

/// Laid out as in C: of a process that runs already it is written from outside, see `attached.rs`.
#[repr(C)]
pub struct Core {
    state: AtomicU32,
    gate: AtomicPtr<AtomicU32>,
    parts: UnsafeCell<MaybeUninit<Parts>>,
    /// Where libc keeps the tid in a thread block, once learnt.
    pub tid_offset: AtomicU32,
    /// Where we are ourselves, in a process that ran already.
    own: Range,
    /// A frame was guessed: loading a module may prove it wrong.
    guessed: AtomicBool,
    /// The Image record has been written.
    pub announced: AtomicBool,
    /// A thread has begun to record.
    accompanied: AtomicBool,
    /// Tests only.
    stops: [AtomicU64; STOPS],
    allocations: AtomicU64,
}

const STOPS: usize = 128;

// SAFETY: `parts` is written once, in `Starting`, by one thread, and only read after the gate has opened.
unsafe impl Sync for Core {}

static SHUT: AtomicU32 = AtomicU32::new(0);

pub static CORE: Core = Core {
    state: AtomicU32::new(State::Asleep as u32),
    gate: AtomicPtr::new(&raw const SHUT as *mut AtomicU32),
    parts: UnsafeCell::new(MaybeUninit::uninit()),
    tid_offset: AtomicU32::new(0),
    own: Range::NONE,
    guessed: AtomicBool::new(false),
    announced: AtomicBool::new(false),
    accompanied: AtomicBool::new(false),
    stops: [const { AtomicU64::new(0) }; STOPS],
    allocations: AtomicU64::new(0),
};

impl Core {
    /// The gate, first thing in every hook.
    #[inline(always)]
    pub fn gate(&self) -> u32 {
        // SAFETY: `SHUT` or a page that stays mapped.
        unsafe { (*self.gate.load(Ordering::Relaxed)).load(Ordering::Relaxed) }
    }

    /// Ends recording for good; the program goes on.
    pub fn shut(&self) {
        // SAFETY: as in `gate`.
        unsafe { (*self.gate.load(Ordering::Relaxed)).store(0, Ordering::Relaxed) };
    }

    #[inline(always)]
    fn parts(&self) -> &Parts {
        // SAFETY: set before the gate opened; only called behind it.
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
        // SAFETY: in the shared mapping, sized by `Geometry`; all parts that several threads write are atomic.
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
    pub fn pid(&self) -> u32 {
        self.parts().pid
    }

    #[inline(always)]
    pub fn find_module(&self, address: u64) -> Option<Found> {
        self.modules().find(self.region(), address)
    }

    /// True for a return address into ourselves: a function that we called has jumped to another one.
    pub fn is_own(&self, address: u64) -> bool {
        self.own.holds(address)
    }

    pub fn note_guess(&self) {
        self.guessed.store(true, Ordering::Relaxed);
    }

    pub fn lose(&self, loss: Loss) {
        self.header().losses[loss as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The program is about to enter a seccomp sandbox. If it does not, the collector sees that and takes it back.
    pub fn entering_sandbox(&self) {
        if self.gate() & ACTIVE != 0 {
            self.header().no_syscalls.store(1, Ordering::Relaxed);
        }
    }

    /// False while a seccomp filter may punish any call of ours.
    pub fn may_call(&self) -> bool {
        self.header().no_syscalls.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    pub fn stamp(&self) -> Stamp {
        let parts = self.parts();
        if parts.plain_stamps { rdtsc() } else { self.careful_stamp() }
    }

    /// A thread begins to record. The first one is alone, until the second one is here: then no event of the first may
    /// go without the clock, from before the second one's first event on.
    pub fn begin_thread(&self) {
        let first = !self.accompanied.swap(true, Ordering::SeqCst);
        let alone = first && self.parts().plain_stamps;
        self.header().pace.store(alone as u32, Ordering::SeqCst);
    }

    #[cold]
    fn careful_stamp(&self) -> Stamp {
        if self.parts().ticks {
            return self.header().ticks.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: fences only. The intent must be visible to all before the stamp is taken.
        unsafe {
            core::arch::x86_64::_mm_mfence();
            core::arch::x86_64::_mm_lfence();
        }
        rdtsc()
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
        let debug = find_debug(program)?;
        // SAFETY: the loader's board; start-up is single-threaded or holds the loader's lock.
        let maps = unsafe { (*debug).maps };
        // SAFETY: as above.
        let complete = unsafe { real::resolve(maps, Core::start as *const () as u64) };
        // SAFETY: as above.
        unsafe {
            crate::sandbox::resolve(maps, Core::start as *const () as u64);
            crate::exec::resolve(maps, Core::start as *const () as u64);
        }
        // SAFETY: as above.
        let environment = unsafe { find_environment(stack_end, maps)? };
        // SAFETY: before main, nobody else edits the environment.
        let channel = unsafe { environment.take(environment::CHANNEL) };
        if channel.is_empty() {
            return None;
        }
        // SAFETY: as above.
        let (library, stops) = unsafe { (environment.take_library(), environment.take(environment::STOP_AT)) };
        let region = connect(channel.get())?;
        let header = region.header();
        let pid = sys::getpid();
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
        let mut carried = Carried { library, ..Carried::EMPTY };
        carried.channel.push(b"-,");
        carried.channel.push(path_of(channel.get()));
        self.assemble(region, debug, program, pid, carried)
    }

    /// Makes the tables, patches the loader, fills in what the collector waits for.
    fn assemble(
        &self,
        region: Region,
        debug: *const Debug,
        program: Headers,
        pid: u32,
        carried: Carried,
    ) -> Option<()> {
        let header = region.header();
        let Some(gate) = sys::map_private(PAGE) else { return refuse(header, Refusal::NotMapped) };
        if !sys::wipe_on_fork(gate, PAGE) {
            return refuse(header, Refusal::NoSystemCall);
        }
        let ticks = header.clock != Clock::Tsc as u32;
        let membarrier = sys::register_membarrier();
        let fence = if membarrier { Fence::Membarrier } else { Fence::InTarget };
        header.fence.store(fence as u32, Ordering::Release);
        let image = header.image.fetch_add(1, Ordering::AcqRel) + 1;
        let private = region.private().cast::<Private>();
        let parts = Parts { region, private, debug, program, pid, plain_stamps: membarrier && !ticks, ticks, carried };
        if image > 1 {
            // SAFETY: the tables of the program before this exec; nobody of it is left to use them.
            unsafe { core::ptr::write_bytes(private, 0, 1) };
        }
        // SAFETY: `Starting`: no one else reads it yet.
        unsafe { *self.parts.get() = MaybeUninit::new(parts) };
        self.gate.store(gate.cast(), Ordering::Release);
        // SAFETY: start-up: the list is stable and we are the only writer.
        unsafe { self.refresh_modules() };
        loader::watch(debug);
        self.copy_suppressions();
        header.phase.store(Phase::Recording as u32, Ordering::Release);
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
        Some(())
    }

    fn open(&self) {
        let counting = self.stops.iter().any(|s| s.load(Ordering::Relaxed) != 0);
        // SAFETY: as in `gate`.
        unsafe {
            (*self.gate.load(Ordering::Relaxed))
                .store(if counting { ACTIVE | COUNTING } else { ACTIVE }, Ordering::Release)
        };
    }

    /// The loader has changed its list.
    ///
    /// # Safety
    /// Called by the loader's notification or at start-up: the list is stable, there is one writer.
    pub unsafe fn refresh_modules(&self) {
        let parts = self.parts();
        let stamp = rdtsc_or_zero(parts.ticks);
        // SAFETY: the caller's promise.
        let change = unsafe {
            let may_ask = self.may_call();
            (*parts.private).modules.refresh(&parts.region, parts.debug, parts.program, stamp, may_ask)
        };
        if change.unloaded != 0 || change.loaded != 0 && self.guessed.swap(false, Ordering::Relaxed) {
            self.rules().clear();
        }
    }

    /// The loader's notification.
    pub fn modules_changed(&self) {
        if self.gate() & ACTIVE == 0 {
            return;
        }
        // SAFETY: the loader calls us with its lock held.
        unsafe {
            let debug = self.parts().debug;
            if (*debug).state == 0 {
                self.refresh_modules();
            }
        }
    }

    /// The text of `__lsan_default_suppressions`, if the program has one.
    fn copy_suppressions(&self) {
        let parts = self.parts();
        // SAFETY: start-up; a function without arguments that returns a C string, by LeakSanitizer's interface.
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
        // SAFETY: the loader's list; its first entry is the program.
        let bias = unsafe { maps.as_ref() }?.bias;
        (offset != 0 && header.image.load(Ordering::Relaxed) == 1).then(|| bias.wrapping_add(offset))
    }

    /// The mapped area of a slot. Areas are mapped in order, each from the last page of the one before: the kernel
    /// duplicates a shared mapping without a descriptor (mremap with an old size of 0), and we keep none open.
    pub fn area(&self, slot: u32) -> Option<*mut u8> {
        let parts = self.parts();
        let geometry = parts.region.geometry();
        let len = geometry.slot_area_len();
        let mut before = parts.region.header() as *const Header as u64 + geometry.fixed_len() as u64 - PAGE as u64;
        for i in 0..=slot as usize {
            let place = self.private().areas.get(i)?;
            let mut area = place.load(Ordering::Acquire);
            if area == 0 {
                if !self.may_call() {
                    return None;
                }
                let copy = sys::map_again(before, PAGE + len)?;
                area = copy as u64 + PAGE as u64;
                sys::keep_out_of_dumps(copy, PAGE + len);
                if let Err(other) = place.compare_exchange(0, area, Ordering::AcqRel, Ordering::Acquire) {
                    // SAFETY: just mapped, nobody has seen it.
                    unsafe { sys::unmap(copy, PAGE + len) };
                    area = other;
                }
            }
            before = area + len as u64 - PAGE as u64;
        }
        let area = self.private().areas.get(slot as usize)?.load(Ordering::Acquire);
        Some(area as *mut u8)
    }

    /// Where a slot's thread keeps its state.
    pub fn local(&self, area: *mut u8) -> *mut Local {
        area.wrapping_add(self.region().geometry().private_in_slot()).cast()
    }

    /// What an exec in place must carry; `None` in a process that does not record.
    pub fn carried(&self) -> Option<&Carried> {
        let parts = self.parts_if_any()?;
        (self.gate() & ACTIVE != 0 && sys::getpid() == parts.pid).then_some(&parts.carried)
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

#[inline(always)]
fn rdtsc() -> Stamp {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn rdtsc_or_zero(ticks: bool) -> Stamp {
    if ticks { 0 } else { rdtsc() }
}

/// glibc's pointer to argc on the initial stack; null elsewhere.
fn stack_end() -> *const u64 {
    let variable: *const *const u64;
    // SAFETY: loads the address of a weak symbol, null if nobody defines it.
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
    // SAFETY: the loader's own variable.
    unsafe { Auxiliary::from_stack(stack_end) }
}

/// The loader's board, through the program's own dynamic section.
fn find_debug(program: Headers) -> Option<*const Debug> {
    const PT_PHDR: u32 = 6;
    let bias = program.find(PT_PHDR).map_or(0, |h| (program.first as u64).wrapping_sub(h.vaddr));
    let dynamic = bias.wrapping_add(program.find(elf::PT_DYNAMIC)?.vaddr) as *const [u64; 2];
    // SAFETY: the program's dynamic section, mapped and terminated.
    let debug = unsafe { elf::dynamic_value(dynamic, elf::DT_DEBUG) }? as *const Debug;
    (!debug.is_null()).then_some(debug)
}

/// # Safety
/// `stack_end` is null or the loader's; `maps` is its list.
unsafe fn find_environment(stack_end: *const u64, maps: *const LinkMap) -> Option<Environment> {
    // SAFETY: the caller's promise; argc, argv, NULL, environment: the ABI.
    unsafe {
        if !stack_end.is_null() {
            return Some(Environment(stack_end.add(*stack_end as usize + 2) as *mut *mut u8));
        }
        let variable = real::find_anywhere(maps, b"environ")? as *const *mut *mut u8;
        let list = *variable;
        (!list.is_null()).then_some(Environment(list))
    }
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

fn map_region(fd: i32) -> Option<Region> {
    let first = sys::map_shared(fd, 0, PAGE)?;
    // SAFETY: just mapped; a page holds a header. The file is sealed, so it cannot shrink under us.
    let (magic, version, geometry) = unsafe {
        let header = &*first.cast::<Header>();
        (header.magic, header.version, header.geometry)
    };
    // SAFETY: as above.
    let header = unsafe { &*first.cast::<Header>() };
    let region = if magic != MAGIC || version != VERSION || geometry.check().is_err() {
        refuse(header, Refusal::Mismatch);
        None
    } else {
        let base = sys::map_shared(fd, 0, geometry.fixed_len());
        if base.is_none() {
            refuse(header, Refusal::NotMapped);
        }
        base.map(|base| {
            sys::keep_out_of_dumps(base, geometry.fixed_len());
            // SAFETY: mapped for its length, for ever; the geometry was checked.
            unsafe { Region::new(base, geometry) }
        })
    };
    // SAFETY: our own look at the first page, over now.
    unsafe { sys::unmap(first, PAGE) };
    region
}
