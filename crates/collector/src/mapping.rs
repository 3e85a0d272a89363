//! The shared memory as the collector holds it, and the few things that only the kernel or the processor can do.
//!
//! Receives: a geometry. Returns: a sealed memfd, its typed parts, the rings of one slot at a time, and the robust
//! futex that tells the target of our death. Must hold: the fixed part stays mapped as long as its `Mapping`, from
//! which every reference into it is borrowed; a slot area stays mapped as long as its `SlotArea`, which holds the
//! `Mapping`.
//!
//! Besides this file, only `spawn.rs` and `spawn/` have unsafe code in this crate.
use crate::error::SetupError;
use channel::{Clock, Geometry, Header, Hub, OnFull, Phase, Region, Ring, SamplingSetup, SlotHeader, Stamp};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{io, ptr};

/// The settings that both sides must know before the target starts.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub geometry: Geometry,
    pub clock: Clock,
    pub on_full: OnFull,
    pub max_stall_ms: u32,
    /// `channel::Suppressions::symbol`
    pub lsan_symbol: u64,
    /// `Header::watched`
    pub watched: bool,
    /// `Header::reads_every_clock`
    pub reads_every_clock: bool,
    /// `Header::records_maps`
    pub records_maps: bool,
    /// `Header::sampling`
    pub sampling: SamplingSetup,
}

pub struct Mapping {
    /// Never handed out with this lifetime, because it is mapped only until `drop`.
    region: Region<'static>,
    fd: OwnedFd,
}

impl Mapping {
    pub fn create(setup: &Setup) -> Result<Self, SetupError> {
        Self::create_named(setup, "heaptrack")
    }

    /// `name` is what /proc/PID/maps shows.
    pub fn create_named(setup: &Setup, name: &str) -> Result<Self, SetupError> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|e| SetupError::Memory(e.into()))?;
        Self::adopt(setup, fd)
    }

    /// Uses memory that another process created. It must contain only zeros and not be sealed yet.
    pub fn adopt(setup: &Setup, fd: OwnedFd) -> Result<Self, SetupError> {
        let geometry = setup.geometry;
        geometry.check().map_err(|_| SetupError::Geometry)?;
        rustix::fs::ftruncate(&fd, geometry.total_len() as u64).map_err(|e| SetupError::Memory(e.into()))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|e| SetupError::Memory(e.into()))?;
        // A hostile target may have made it shorter before it was sealed. A read after the end of a file faults.
        let length = rustix::fs::fstat(&fd).map_err(|e| SetupError::Memory(e.into()))?.st_size;
        if length != geometry.total_len() as i64 {
            return Err(SetupError::Memory(io::ErrorKind::InvalidData.into()));
        }
        let base = map(fd.as_fd(), 0, geometry.fixed_len()).map_err(SetupError::Memory)?;
        let header = base.cast::<Header>();
        // SAFETY: `map` has just returned `base`: page-aligned and writable for `fixed_len` bytes, of which the header
        // is the first page. This process has no reference to it yet. An attached target has it mapped too, but none of
        // its hooks is in force before `attach::session::open`, which comes later.
        unsafe {
            (&raw mut (*header).magic).write(channel::MAGIC);
            (&raw mut (*header).version).write(channel::VERSION);
            (&raw mut (*header).clock).write(setup.clock as u32);
            (&raw mut (*header).geometry).write(geometry);
            (&raw mut (*header).on_full).write(setup.on_full as u32);
            (&raw mut (*header).max_stall_ms).write(setup.max_stall_ms);
            (&raw mut (*header).suppressions.symbol).write(setup.lsan_symbol);
            (&raw mut (*header).heaptrace.watched).write(setup.watched as u32);
            (&raw mut (*header).reads_every_clock).write(setup.reads_every_clock as u32);
            (&raw mut (*header).records_maps).write(setup.records_maps as u32);
            (*header).sampling.rate.store(setup.sampling.rate, Ordering::Relaxed);
            (&raw mut (*header).sampling.exact_above).write(setup.sampling.exact_above);
            (&raw mut (*header).sampling.seed).write(setup.sampling.seed);
        }
        // SAFETY: `geometry.check` was `Ok`, and `base` is page-aligned, readable and writable for `fixed_len` bytes
        // (`map`) until `Mapping::drop`; `region` hands it out only for as long as the `Mapping` is borrowed. All of it
        // can be read: the file is sealed, and `fstat` has found its whole length after that.
        let region = unsafe { Region::new(base, geometry) };
        region.header().phase.store(Phase::Waiting as u32, Ordering::Release);
        Ok(Mapping { region, fd })
    }

    /// Maps memory of ours a second time, for another thread. `fd` is the number of its descriptor, and `geometry` the one
    /// that it was created with.
    pub fn again(fd: u32, geometry: Geometry) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{fd}");
        let fd =
            rustix::fs::open(path, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
        if rustix::fs::fstat(&fd)?.st_size != geometry.total_len() as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let base = map(fd.as_fd(), 0, geometry.fixed_len())?;
        // SAFETY: `create` has checked the geometry, and `base` is page-aligned, readable and writable for `fixed_len`
        // bytes (`map`) until `Mapping::drop`. All of it can be read: `create` sealed the file, and `fstat` has found its
        // whole length.
        let region = unsafe { Region::new(base, geometry) };
        Ok(Mapping { region, fd })
    }

    pub const fn region(&self) -> Region<'_> {
        self.region
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Maps the rings of one slot. The target's private part of the area is not mapped.
    pub fn slot_area(self: &Arc<Self>, index: u32) -> io::Result<SlotArea> {
        let slot = self.region.slot(index).ok_or(io::ErrorKind::InvalidInput)?;
        let geometry = self.region.geometry();
        let length = geometry.private_in_slot(index);
        let base = map(self.fd(), geometry.slot_area_at(index) as u64, length)?;
        Ok(SlotArea { mapping: Arc::clone(self), index, slot, base, length })
    }

    /// Returns the memory that recording costs, in bytes: all pages of the memfd that were ever touched.
    pub fn bytes_used(&self) -> u64 {
        rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_blocks as u64 * 512)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let base = std::ptr::from_ref(self.region.header()).cast_mut().cast();
        // SAFETY: `adopt` has mapped `fixed_len` bytes at `base`. Every reference into them borrows the `Mapping`, so
        // none is left.
        let _ = unsafe { rustix::mm::munmap(base, self.region.geometry().fixed_len()) };
    }
}

/// The header of a mapping, which stays mapped as long as this value.
pub struct SharedHeader(Arc<Mapping>);

impl SharedHeader {
    pub fn of(mapping: &Arc<Mapping>) -> Self {
        SharedHeader(Arc::clone(mapping))
    }
}

impl std::ops::Deref for SharedHeader {
    type Target = Header;
    fn deref(&self) -> &Header {
        self.0.region().header()
    }
}

/// The page through which the processes that are followed find the shared memory of their sessions.
pub struct HubPage {
    page: *mut u8,
    fd: OwnedFd,
    /// The name of the shared memory that is on offer.
    pub(crate) offer_name: &'static str,
    /// The shared memory of all processes but the first, as long as it is used or on offer.
    mappings: Mutex<Vec<Weak<Mapping>>>,
    /// Processes that have executed a program which could not be patched, and when.
    left: Mutex<Vec<(u32, Stamp)>>,
}

/// The names of the hub and of the shared memory that it offers. When heaptrack detaches from a process and from those that
/// it has forked, it finds what it has to unmap by the beginning of these names (`attach::CHANNEL`).
const HUB_NAMES: [&str; 2] = ["heaptrack-hub", "heaptrack"];
const ATTACHED_HUB_NAMES: [&str; 2] = ["heaptrack-attach-hub", "heaptrack-attach-tree"];

// SAFETY: `page` stays mapped whichever thread drops the `HubPage`, because there is no `Drop`.
unsafe impl Send for HubPage {}
// SAFETY: `hub` is the only access to `page`. Of what it returns, this process writes the plain fields (`magic`,
// `version`, `collector_pid`, `is_shared`) only in `create`, before the `HubPage` exists; all others are atomics.
unsafe impl Sync for HubPage {}

impl HubPage {
    /// A process has executed a program that is not recorded.
    pub(crate) fn add_left(&self, pid: u32, at: Stamp) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push((pid, at));
    }

    /// Takes the processes that were added since the last call.
    pub(crate) fn take_left(&self) -> Vec<(u32, Stamp)> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add_mapping(&self, mapping: &Arc<Mapping>) {
        let mut mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        mappings.retain(|known| known.strong_count() > 0);
        mappings.push(Arc::downgrade(mapping));
    }

    /// The shared memory of processes in which a thread waits until the modules that it has loaded are patched.
    pub(crate) fn asking(&self) -> Vec<Arc<Mapping>> {
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let asks = |mapping: &Arc<Mapping>| {
            mapping.region().header().loading.step.load(Ordering::Acquire) == channel::LoadingStep::Asked as u32
        };
        mappings.iter().filter_map(Weak::upgrade).filter(asks).collect()
    }

    /// `is_shared`: one thread collects the events of all processes. `names`: those of the programs that are recorded, with
    /// commas between them; empty = all. They are cut to `channel::NAMES` bytes.
    pub fn create(is_shared: bool, names: &str) -> Result<Self, SetupError> {
        Self::create_named(is_shared, names, HUB_NAMES)
    }

    /// For the tree of a process that heaptrack attaches to.
    pub fn create_attached(names: &str) -> Result<Self, SetupError> {
        Self::create_named(true, names, ATTACHED_HUB_NAMES)
    }

    fn create_named(is_shared: bool, names: &str, own_names: [&'static str; 2]) -> Result<Self, SetupError> {
        let [hub_name, offer_name] = own_names;
        let failed = |error: rustix::io::Errno| SetupError::Memory(error.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(hub_name, flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, channel::PAGE as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(failed)?;
        let page = map(fd.as_fd(), 0, channel::PAGE).map_err(SetupError::Memory)?;
        let hub = page.cast::<Hub>();
        // SAFETY: `map` has just returned `page`, aligned and writable for `PAGE` bytes, which a `Hub` fits into
        // (asserted in `channel`). The descriptor has not left this function, so no other process has the page and no
        // reference to it exists.
        unsafe {
            (&raw mut (*hub).magic).write(channel::HUB_MAGIC);
            (&raw mut (*hub).version).write(channel::VERSION);
            (&raw mut (*hub).collector_pid).write(std::process::id());
            (&raw mut (*hub).is_shared).write(is_shared as u32);
            let mut room = [0; channel::NAMES];
            room.iter_mut().zip(names.bytes()).for_each(|(place, byte)| *place = byte);
            (&raw mut (*hub).names).write(room);
        }
        Ok(HubPage { page, fd, offer_name, mappings: Mutex::default(), left: Mutex::default() })
    }

    /// Returns the page, which is never unmapped: this process needs only one.
    pub const fn hub(&self) -> &'static Hub {
        // SAFETY: `create` has mapped and filled the page, and nothing unmaps it: `HubPage` has no `Drop`. Its file
        // cannot become shorter, because `create` sealed it.
        unsafe { &*self.page.cast::<Hub>() }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn map(fd: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<*mut u8> {
    // SAFETY: without `MapFlags::FIXED` the kernel takes addresses that are free, so no memory in use is replaced.
    let base = unsafe {
        rustix::mm::mmap(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, offset)
    }?;
    Ok(base.cast())
}

/// The mapped rings of one slot.
pub struct SlotArea {
    mapping: Arc<Mapping>,
    index: u32,
    /// In the fixed part, which `mapping` keeps mapped.
    slot: *const SlotHeader,
    base: *mut u8,
    length: usize,
}

// SAFETY: `base` belongs to this `SlotArea` alone until `drop` unmaps it, whichever thread that is. `rings` reads it
// only through `AtomicU64`; `mapping` is `Send`, and what `slot` leads to consists of atomics.
unsafe impl Send for SlotArea {}

impl SlotArea {
    /// Returns the thread's ring, and the one for events inside a signal handler.
    pub fn rings(&self) -> [Ring<'_>; 2] {
        // SAFETY: `slot_area` has mapped `private_in_slot(index)` bytes at `base`, and checked that there is such a
        // slot. They stay mapped until `self` is dropped, and the rings that are returned borrow `self`. `slot` is in
        // the fixed part, which stays mapped as long as `self.mapping`.
        unsafe { self.mapping.region.rings(self.index, &*self.slot, self.base) }
    }

    /// Removes the pages from our resident memory; their content stays.
    pub fn release_pages(&self) {
        // SAFETY: `slot_area` has mapped `length` bytes at `base` as a shared mapping of a file. On such a mapping
        // `MADV_DONTNEED` drops page table entries only: the next read finds the same bytes.
        let _ = unsafe { rustix::mm::madvise(self.base.cast(), self.length, Advice::LinuxDontNeed) };
    }
}

impl Drop for SlotArea {
    fn drop(&mut self) {
        // SAFETY: `slot_area` has mapped `length` bytes at `base` for this `SlotArea` alone. The rings of `rings`
        // borrow `self`, so none of them is left.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.length) };
    }
}

/// A bucket of the table of live blocks (`blocks.rs`): four entries in one cache line. Equal parts of the entries lie
/// side by side, so that one instruction compares them.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub low: [u32; 4],
    pub high: [u32; 4],
    pub rest: [u64; 4],
}

/// A table of cache lines in memory of its own, all zero at first. A large table uses huge pages: it is accessed at
/// random, and with small pages the processor spends more time on TLB misses than on the table.
#[derive(Debug)]
pub struct ZeroedTable<T: Zeroes = Line> {
    /// Page-aligned, so that each `Line` is one cache line.
    base: ptr::NonNull<T>,
    length: usize,
    mapped: usize,
}

// SAFETY: the mapping at `base` belongs to this `ZeroedTable` alone (`zeroed` to `drop`), holds numbers, and is not
// tied to a thread.
unsafe impl<T: Zeroes> Send for ZeroedTable<T> {}

/// An entry of a `ZeroedTable`.
///
/// # Safety
/// The type consists of numbers only: every pattern of bits is a value, also all zeroes, and dropping it does nothing.
pub unsafe trait Zeroes: Copy {}

// SAFETY: two numbers.
unsafe impl Zeroes for [u64; 2] {}
// SAFETY: arrays of numbers.
unsafe impl Zeroes for Line {}

const HUGE_PAGE: usize = 2 << 20;

/// Returns the bytes to map for a table of `length` entries, and the alignment of its base.
const fn extent<T>(length: usize) -> (usize, usize) {
    let bytes = length * size_of::<T>();
    let align = if bytes >= HUGE_PAGE / 2 { HUGE_PAGE } else { channel::PAGE };
    ((if bytes > 0 { bytes } else { 1 }).next_multiple_of(align), align)
}

impl<T: Zeroes> ZeroedTable<T> {
    pub fn zeroed(length: usize) -> Self {
        let (mapped, align) = extent::<T>(length);
        let base = map_zeroes(mapped, align, ProtFlags::READ | ProtFlags::WRITE);
        let Some(base) = base else { std::alloc::handle_alloc_error(std::alloc::Layout::new::<T>()) };
        let mut table = ZeroedTable { base: base.cast(), length, mapped };
        table.advise(0);
        table
    }

    /// Appends zeroes until the table has `length` lines. Copies only small tables: the pages of a large one are moved
    /// to other addresses.
    pub fn grow(&mut self, length: usize) {
        let (mapped, align) = extent::<T>(length);
        if align != extent::<T>(self.length).1 {
            // The first half megabyte of a large table is to lie in a huge page, too.
            let mut larger = Self::zeroed(length);
            larger[..self.length].copy_from_slice(self);
            *self = larger;
            return;
        }
        let before = self.mapped;
        if mapped > before {
            let Some(base) = self.remap(mapped, align) else {
                std::alloc::handle_alloc_error(std::alloc::Layout::new::<T>())
            };
            (self.base, self.mapped) = (base, mapped);
            self.advise(before);
        }
        self.length = length;
    }

    /// Enlarges the mapping to `mapped` bytes. Returns its new base, which replaces `self.base`, or `None` if there is
    /// no memory; then the mapping is as before.
    fn remap(&mut self, mapped: usize, align: usize) -> Option<ptr::NonNull<T>> {
        let old = self.base.as_ptr().cast();
        let flags = rustix::mm::MremapFlags::MAYMOVE;
        // Huge pages stay huge only if they move to an address that is aligned like them.
        if align > channel::PAGE
            && let Some(place) = map_zeroes(mapped, align, ProtFlags::empty())
        {
            // SAFETY: `self` owns the `self.mapped` bytes at `old`, and no slice of them exists because `self` is
            // borrowed mutably. `map_zeroes` has just reserved the `mapped` bytes at `place`, which nothing refers to.
            let moved = unsafe { rustix::mm::mremap_fixed(old, self.mapped, mapped, flags, place.as_ptr().cast()) };
            if let Ok(base) = moved {
                return ptr::NonNull::new(base.cast());
            }
            // The reserved addresses are not unmapped: the kernel may have released them before it failed, and another
            // thread may have mapped something there. They take no memory.
        }
        // SAFETY: `self` owns the `self.mapped` bytes at `old`, and no slice of them exists because `self` is borrowed
        // mutably. Without a fixed address the kernel takes addresses that are free.
        let moved = unsafe { rustix::mm::mremap(old, self.mapped, mapped, flags) };
        ptr::NonNull::new(moved.ok()?.cast())
    }

    /// Tells the kernel how the pages from byte `from` on will be used.
    fn advise(&mut self, from: usize) {
        // All pages of a small table are used soon. Without populating them, each would fault twice: at its first read
        // and at its first write.
        let is_large = extent::<T>(self.length).1 == HUGE_PAGE;
        let advice = if is_large { Advice::LinuxHugepage } else { Advice::LinuxPopulateWrite };
        let start = self.base.as_ptr().cast::<u8>().wrapping_add(from);
        // SAFETY: `self` owns the `mapped` bytes at `base`, of which `from` are before `start`. Both kinds of advice
        // keep the bytes as they are.
        let _ = unsafe { rustix::mm::madvise(start.cast(), self.mapped - from, advice) };
    }
}

/// Makes glibc grow the heap in larger steps, and keep more freed memory. By default it returns freed tables to the
/// system and grows the heap in steps of 128 KB. Each new page costs one to two microseconds, and a recording's tables
/// grow all the time.
pub fn take_memory_in_large_steps() {
    const STEP: i32 = 1 << 20;
    const LARGE: i32 = 4 << 20;
    // SAFETY: `mallopt` takes numbers only. libc changes its settings under the lock of its main arena.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, STEP);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE);
    }
}

/// Maps `length` private zero bytes at a multiple of `align`. Returns `None` if there is no memory.
fn map_zeroes(length: usize, align: usize, access: ProtFlags) -> Option<ptr::NonNull<u8>> {
    let slack = if align > channel::PAGE { align } else { 0 };
    // SAFETY: without `MapFlags::FIXED` the kernel takes addresses that are free, so no memory in use is replaced.
    let raw = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), length + slack, access, MapFlags::PRIVATE) }.ok()?;
    let start = raw.cast::<u8>();
    let before = start.align_offset(align).min(slack);
    let base = start.wrapping_add(before);
    for (at, excess) in [(start, before), (base.wrapping_add(length), slack - before)] {
        if excess > 0 {
            // SAFETY: `[at, at + excess)` is the part of the new mapping before or after the `length` bytes that are
            // returned. It is whole pages, because the mapping, `align` and `length` are, and nothing refers to it.
            let _ = unsafe { rustix::mm::munmap(at.cast(), excess) };
        }
    }
    ptr::NonNull::new(base)
}

impl<T: Zeroes> std::ops::Deref for ZeroedTable<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        // SAFETY: `zeroed` or `grow` has mapped at least `length` lines at `base`, page-aligned, and only `drop` unmaps
        // them. They are zeroes or what `deref_mut` wrote, so every line is initialised. The slice borrows `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl<T: Zeroes> std::ops::DerefMut for ZeroedTable<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: `zeroed` or `grow` has mapped at least `length` initialised lines at `base`, page-aligned, and only
        // `drop` unmaps them. The slice borrows `self` mutably, so there is no other.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl<T: Zeroes> Drop for ZeroedTable<T> {
    fn drop(&mut self) {
        // SAFETY: `zeroed` or `grow` has mapped `mapped` bytes at `base` for this `ZeroedTable` alone. Slices of it
        // borrow `self`, so none is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// The kernel's `struct robust_list_head` with its one node.
#[repr(C)]
struct RobustList {
    first: *mut c_void,
    futex_offset: isize,
    pending: *mut c_void,
    node: *mut c_void,
}

/// The word by which other processes see that we are alive, and what keeps it mapped.
pub enum AliveWord {
    Session(Arc<Mapping>),
    /// The hub's page is never unmapped.
    Hub(&'static Hub),
}

impl AliveWord {
    fn word(&self) -> &AtomicU32 {
        match self {
            AliveWord::Session(mapping) => &mapping.region().header().collector_alive,
            AliveWord::Hub(hub) => &hub.collector_alive,
        }
    }
}

/// A word that the kernel marks when the thread that holds it ends, however it ends. The same thread must drop it. If
/// it is forgotten instead, the word stays mapped for ever.
pub struct HeldUntilDeath {
    alive: AliveWord,
    list: *mut RobustList,
}

impl Drop for HeldUntilDeath {
    fn drop(&mut self) {
        // SAFETY: `hold_until_death` made `list` from a `Box` and gave it to the kernel only. This is the same thread,
        // because `HeldUntilDeath` holds a raw pointer and so is not `Send`; the kernel forgets the list here before it
        // is freed.
        unsafe {
            libc::syscall(libc::SYS_set_robust_list, ptr::null::<RobustList>(), 3 * size_of::<usize>());
            drop(Box::from_raw(self.list));
        }
        self.alive.word().fetch_or(libc::FUTEX_OWNER_DIED, Ordering::AcqRel);
    }
}

/// Marks the word as held by the calling thread: when the thread ends, however it ends, the kernel sets
/// `FUTEX_OWNER_DIED` in it. Replaces the thread's list of libc's robust mutexes, of which this program has none.
pub fn hold_until_death(alive: AliveWord) -> io::Result<HeldUntilDeath> {
    let word = alive.word();
    let list = Box::leak(Box::new(RobustList {
        first: ptr::null_mut(),
        futex_offset: 0,
        pending: ptr::null_mut(),
        node: ptr::null_mut(),
    }));
    let head: *mut RobustList = list;
    list.node = head.cast();
    list.first = (&raw mut list.node).cast();
    list.futex_offset = (word.as_ptr() as isize).wrapping_sub(list.first as isize);
    // SAFETY: `head` is leaked memory that only `HeldUntilDeath::drop` frees, after it has taken the list from the
    // kernel. It is a complete list: one node, which leads back to the head and `futex_offset` bytes further to `word`,
    // which stays mapped as long as `alive`, so until `HeldUntilDeath::drop`.
    let failed = unsafe { libc::syscall(libc::SYS_set_robust_list, head, 3 * size_of::<usize>()) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    word.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Release);
    Ok(HeldUntilDeath { alive, list: head })
}

/// Returns true if the thread `tid` of process `pid` still exists. Works without /proc.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    // SAFETY: `tgkill` takes numbers only and touches no memory of ours; signal 0 is never delivered.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, pid as libc::c_long, tid as libc::c_long, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns the status of a process that has ended and was waited for, as wait(2) returns it. Linux 6.15 and newer know it.
pub fn exit_of(pidfd: &OwnedFd) -> Option<i32> {
    // SAFETY: `pidfd_info` consists of integers only, so zero bytes are a valid value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = libc::PIDFD_INFO_EXIT.into();
    // SAFETY: the request has the size of `pidfd_info` in its number, and the kernel writes at most that much to `info`.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (result == 0 && info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0).then_some(info.exit_code)
}

/// Reads the processor's time stamp counter.
#[inline]
pub fn tsc() -> u64 {
    // SAFETY: every processor this program is built for has the instruction, and Linux leaves it enabled.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Prefetches the cache line of `place` without waiting for it.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    // SAFETY: SSE is part of x86-64, which this crate is built for. A prefetch reads nothing for the program and never
    // faults.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(ptr::from_ref(place).cast()) }
}

/// What `Line::look_for` finds. Bit n is about entry n.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub same: u32,
    pub empty: u32,
    /// The lowest bits of `high`.
    pub count: u32,
}

/// Selects the entry with this index.
static SELECT: [[u32; 4]; 4] = [[!0, 0, 0, 0], [0, !0, 0, 0], [0, 0, !0, 0], [0, 0, 0, !0]];

impl Line {
    /// Looks for entries with the same address, and for those with address 0. The lower half of `high` is ignored.
    #[inline(always)]
    pub fn look_for(&self, low: u32, high: u32) -> Found {
        use core::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64, which this crate is built for. Four `u32` and an `__m128i` have 16 bytes each,
        // and any bytes are valid for both types.
        unsafe {
            let lows = std::mem::transmute::<[u32; 4], __m128i>(self.low);
            let highs = std::mem::transmute::<[u32; 4], __m128i>(self.high);
            let upper = _mm_and_si128(highs, _mm_set1_epi32(!0xffff));
            let is_low = _mm_cmpeq_epi32(lows, _mm_set1_epi32(low as i32));
            let is_high = _mm_cmpeq_epi32(upper, _mm_set1_epi32((high & !0xffff) as i32));
            let is_empty = _mm_cmpeq_epi32(_mm_or_si128(lows, upper), _mm_setzero_si128());
            let bits = |lanes| _mm_movemask_ps(_mm_castsi128_ps(lanes)) as u32;
            Found {
                same: bits(_mm_and_si128(is_low, is_high)),
                empty: bits(is_empty),
                count: bits(_mm_slli_epi32::<31>(highs)),
            }
        }
    }

    /// Writes `low` and `high` of an entry, except for the lowest bit of `high`. Writes those of the other entries again:
    /// `look_for` reads all four at once, and has to wait for the cache if only a part of them was written just before.
    #[inline(always)]
    pub fn set_address(&mut self, slot: usize, low: u32, high: u32) {
        use core::arch::x86_64::*;
        let selected = SELECT[slot % SELECT.len()];
        // SAFETY: SSE2 is part of x86-64, which this crate is built for. Four `u32` and an `__m128i` have 16 bytes each,
        // and any bytes are valid for both types.
        unsafe {
            let selected = std::mem::transmute::<[u32; 4], __m128i>(selected);
            let replace = |old: [u32; 4], bits: u32, new: u32| {
                let old = std::mem::transmute::<[u32; 4], __m128i>(old);
                let kept = _mm_andnot_si128(_mm_and_si128(selected, _mm_set1_epi32(bits as i32)), old);
                let new = _mm_or_si128(kept, _mm_and_si128(selected, _mm_set1_epi32(new as i32)));
                std::mem::transmute::<__m128i, [u32; 4]>(new)
            };
            self.low = replace(self.low, !0, low);
            self.high = replace(self.high, !1, high & !1);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn tight() -> Setup {
        Setup {
            geometry: Geometry::tight(channel::WriterMemory::NONE),
            clock: Clock::Tsc,
            on_full: OnFull::Wait,
            max_stall_ms: 1000,
            lsan_symbol: 0,
            watched: false,
            reads_every_clock: false,
            records_maps: false,
            sampling: Default::default(),
        }
    }

    #[test]
    fn tables_keep_their_content_when_they_grow() {
        let (mut table, mut before) = (ZeroedTable::<Line>::zeroed(64), 0);
        // Within small pages, within a page, from small to huge pages, and among huge pages.
        for length in [64, 4096, 4100, 32768, 5 * 32768, 6 * 32768, 40 * 32768] {
            table.grow(length);
            assert_eq!(table.len(), length);
            assert_eq!(table.base.as_ptr().align_offset(extent::<Line>(length).1), 0);
            for (n, line) in table.iter_mut().enumerate().step_by(63) {
                assert_eq!((line.rest[3], line.low[0]), if n < before { (n as u64, 1) } else { (0, 0) });
                (line.rest[3], line.low[0]) = (n as u64, 1);
            }
            before = length;
        }
    }

    #[test]
    fn header_is_ready_for_the_target() {
        let mapping = Mapping::create(&tight()).unwrap();
        let header = mapping.region().header();
        assert_eq!((header.magic, header.version), (channel::MAGIC, channel::VERSION));
        assert_eq!(header.geometry, Geometry::tight(channel::WriterMemory::NONE));
        assert!(mapping.bytes_used() >= 4096);
        assert!(rustix::fs::ftruncate(mapping.fd(), 4096).is_err(), "sealed");
    }

    /// Another thread makes the memory shorter again and again while it is adopted. Either `adopt` refuses it, or it
    /// has its whole length and can be read.
    #[test]
    fn memory_that_was_made_shorter_is_not_taken() {
        use std::sync::atomic::AtomicBool;
        let (mut taken, mut refused) = (0, 0);
        while taken + refused < 2000 {
            let fd = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
            let theirs = fd.try_clone().unwrap();
            let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = rustix::fs::ftruncate(&theirs, 0);
                        ready.store(true, Ordering::Relaxed);
                    }
                });
                while !ready.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                match Mapping::adopt(&tight(), fd) {
                    Ok(mapping) => {
                        assert_eq!(mapping.region().header().magic, channel::MAGIC);
                        taken += 1;
                    }
                    Err(_) => refused += 1,
                }
                stop.store(true, Ordering::Relaxed);
                thread.join().unwrap();
            });
        }
        assert!(refused > 0, "the test did not test");
    }

    #[test]
    fn words_written_through_one_map_are_read_through_another() {
        let mapping = Arc::new(Mapping::create(&tight()).unwrap());
        let (ours, theirs) = (mapping.slot_area(3).unwrap(), mapping.slot_area(3).unwrap());
        let [ring, nested] = theirs.rings();
        ring.put(0, 7);
        ring.commit(1);
        nested.put(0, 8);
        nested.commit(1);
        ours.release_pages();
        let mut words = Vec::new();
        for ring in ours.rings() {
            ring.drain(&mut words).unwrap();
        }
        assert_eq!(words, [7, 8]);
    }

    #[test]
    fn the_end_of_the_holding_thread_is_marked() {
        let mapping = Arc::new(Mapping::create(&tight()).unwrap());
        let word = &mapping.region().header().collector_alive;
        let hold = || hold_until_death(AliveWord::Session(Arc::clone(&mapping))).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let held = hold();
                // SAFETY: `hold_until_death` has made the list, and only `drop` frees it.
                let list = unsafe { &*held.list };
                // The kernel reads the list, which AddressSanitizer does not see. So the test reads it, too.
                assert_eq!(list.first.cast_const(), ptr::from_ref(&list.node).cast());
                // A value that is never dropped leaves the mark to the kernel.
                std::mem::forget(held);
                assert_ne!(word.load(Ordering::Acquire), 0);
            });
            thread.join().unwrap();
        });
        assert_ne!(word.load(Ordering::Acquire) & libc::FUTEX_OWNER_DIED, 0);
        drop(hold());
        assert_ne!(word.load(Ordering::Acquire) & libc::FUTEX_OWNER_DIED, 0);
    }

    /// Each kind of value that refers to the memory keeps it mapped, even if it is the only one that is left.
    #[test]
    fn memory_stays_mapped_for_its_last_user() {
        check_last_user(
            |mapping| mapping.slot_area(3).unwrap(),
            |area| {
                area.rings()[0].put(0, 7);
                area.rings()[0].commit(1);
            },
        );
        check_last_user(SharedHeader::of, |header| header.doorbell.store(1, Ordering::Release));
        // Dropping it writes to the header.
        check_last_user(|mapping| hold_until_death(AliveWord::Session(Arc::clone(mapping))).unwrap(), |_| ());
    }

    fn check_last_user<T>(make: impl FnOnce(&Arc<Mapping>) -> T, access: impl FnOnce(&T)) {
        let mapping = Arc::new(Mapping::create(&tight()).unwrap());
        let header = std::ptr::from_ref(mapping.region().header()) as usize;
        let inode = rustix::fs::fstat(mapping.fd()).unwrap().st_ino;
        let user = make(&mapping);
        drop(mapping);
        assert!(is_mapped(header, inode), "{} does not keep the memory mapped", std::any::type_name::<T>());
        access(&user);
        drop(user);
        assert!(!is_mapped(header, inode), "the memory stays mapped after its last user");
    }

    /// The inode tells this memory from that of a test that runs at the same time and got the same address.
    fn is_mapped(address: usize, inode: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (low, high) = fields[0].split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(low)..number(high)).contains(&address) && fields[4] == inode.to_string()
        })
    }

    #[test]
    fn a_thread_exists_until_it_ends() {
        let pid = std::process::id();
        let tid = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            assert!(thread_exists(pid, tid));
            tid
        })
        .join()
        .unwrap();
        // The kernel wakes the joining thread a little before the other thread is gone from its tables.
        for _ in 0..1000 {
            if !thread_exists(pid, tid) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the thread never went");
    }
}
