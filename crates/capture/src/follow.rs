//! Following a tree of processes: every process that the target creates gets shared memory of its own.
//!
//! The hub (`channel::Hub`) is a page that is mapped at the start and inherited by forked children. A forked child
//! finds the gate shut at its first hook, and joins then (`Core::join`). A program after an exec finds the hub's path
//! in its environment. If anything fails, the process runs unrecorded and is counted in the hub.
use crate::core::CORE;
use crate::modules::store_name;
use crate::sys;
use channel::{HUB_MAGIC, Header, Hub, LONGEST_COMMAND, PAGE, Region, UnrecordedExec, VERSION};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

pub(crate) const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// How long a process waits for an offer, in total and at once. If many processes start at the same time, each new offer wakes all of
/// them, so the number of attempts says nothing.
const PATIENCE_NS: u64 = 3_000_000_000;
const FAREWELL_PATIENCE_NS: u64 = 100_000_000;
const TRY_MS: u64 = 100;

/// What a process wants to record when it asks for shared memory. That decides how long it waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// An event. If the process gets no shared memory, it is counted as missed.
    Event,
    /// Only that it ends, or executes another program. The collector learns of the end from the kernel, too, only later. So
    /// a collector that is stopped, or has no memory to offer, must not delay every end of a process.
    Farewell,
}

/// What this process knows of its tree. When heaptrack attaches to a process, it writes the first two words from outside,
/// and clears them when it detaches. It finds them by their address in the journal, in whose layout they take part.
#[repr(C)]
pub struct Following {
    /// The hub, or null.
    hub: AtomicPtr<Hub>,
    /// 1 while a shut gate may mean that this is a forked child, which can join.
    may_join: AtomicU64,
    /// The number of threads in a fork or an exec that use the hub or the shared memory when libc's function has
    /// returned. While there are any, heaptrack unmaps neither.
    busy: AtomicU64,
}

/// The offset of `Following::busy`.
pub const BUSY_AT: usize = core::mem::offset_of!(Following, busy);

pub static FOLLOWING: Following =
    Following { hub: AtomicPtr::new(core::ptr::null_mut()), may_join: AtomicU64::new(0), busy: AtomicU64::new(0) };

/// Between `begin_call` and `end_call` a thread is in a function of libc that makes or replaces a process.
pub fn begin_call() {
    FOLLOWING.busy.fetch_add(1, Ordering::AcqRel);
}

pub fn end_call() {
    FOLLOWING.busy.fetch_sub(1, Ordering::AcqRel);
}

/// In a child of libc's `fork`: its pid, before it has joined.
static FORKED_PID: AtomicU32 = AtomicU32::new(0);

pub fn forked_pid() -> u32 {
    FORKED_PID.load(Ordering::Relaxed)
}

/// Called in a child of libc's `fork`, which has only the thread that called it.
pub fn end_all_calls() {
    FOLLOWING.busy.store(0, Ordering::Release);
    if shared_hub().is_some() && CORE.may_call_if_ready() {
        FORKED_PID.store(sys::getpid(), Ordering::Relaxed);
    }
}

/// True if only programs of other names are recorded.
static IS_UNWANTED: AtomicBool = AtomicBool::new(false);

/// Returns true in a process of a followed tree, also in a forked child that has not joined yet.
pub fn is_on() -> bool {
    !FOLLOWING.hub.load(Ordering::Acquire).is_null()
}

#[inline(always)]
pub fn may_join() -> bool {
    FOLLOWING.may_join.load(Ordering::Relaxed) != 0
}

/// Called when this process records. Its forked children may join from now on.
pub fn joined() {
    FOLLOWING.may_join.store((is_on() && is_wanted()) as u64, Ordering::Relaxed);
}

/// Returns false if only programs of other names are recorded.
pub fn is_wanted() -> bool {
    !IS_UNWANTED.load(Ordering::Relaxed)
}

/// Finds out, at the start of a program, whether programs of its name are recorded: the name of its file, or that of the
/// script that it interprets. Makes system calls only if there are names.
#[inline(never)]
pub fn look_at_name() -> bool {
    /// The kernel cuts the name of a process to this length.
    const LONGEST: usize = 15;
    let Some(hub) = shared_hub().filter(|hub| hub.names.first() != Some(&0)) else { return true };
    let mut text = [0; 256];
    let length = sys::read_link(b"/proc/self/exe\0", &mut text);
    let mut is_wanted = wants(hub, text.get(..length).unwrap_or(&[]));
    if let Some(fd) = sys::open_read(b"/proc/self/comm\0") {
        let length = sys::read(fd, &mut text).saturating_sub(1);
        sys::close(fd);
        is_wanted |= hub.wants(text.get(..length).unwrap_or(&[]), LONGEST);
    }
    IS_UNWANTED.store(!is_wanted, Ordering::Relaxed);
    is_wanted
}

/// Returns true if the program at `path` is recorded, as far as its name tells.
pub fn wants_program(path: &[u8]) -> bool {
    shared_hub().is_none_or(|hub| wants(hub, path))
}

fn wants(hub: &Hub, path: &[u8]) -> bool {
    hub.wants(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path), usize::MAX)
}

/// Called when this process will not record any more, and its children must not join.
pub fn give_up() {
    FOLLOWING.may_join.store(0, Ordering::Relaxed);
}

fn hub() -> Option<&'static Hub> {
    // SAFETY: null, or the page that `find_hub` has mapped and checked; nothing unmaps it. In an attached process, the
    // page that heaptrack has let the process map and checked; `attach/src/repair.rs` unmaps it when the pointer is null
    // again and no thread is in our code or in a call that it counts (`busy`). What several processes write in a `Hub` is
    // atomic.
    unsafe { FOLLOWING.hub.load(Ordering::Acquire).as_ref() }
}

/// Returns the hub if one thread collects the events of all processes.
pub fn shared_hub() -> Option<&'static Hub> {
    hub().filter(|hub| hub.is_shared != 0)
}

/// How long a thread of this process may wait until the profiler has patched modules.
pub fn loading_patience_ms() -> u64 {
    shared_hub().map_or(0, |hub| hub.loading_patience_ms.load(Ordering::Acquire) as u64)
}

/// Wakes the thread of the profiler that answers questions of all processes.
pub fn ring_starts() {
    if let Some(hub) = shared_hub() {
        hub.starts_bell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&hub.starts_bell);
    }
}

/// Stores how this process came to its shared memory. Must be called before the collector can see that it has joined.
pub fn store_origin(header: &Header, parent_pid: u32, fork: Option<u32>) {
    header.origin.parent_pid.store(parent_pid, Ordering::Relaxed);
    header.origin.fork.store(fork.unwrap_or(0), Ordering::Relaxed);
    header.origin.is_forked.store(fork.is_some() as u32, Ordering::Relaxed);
    let order = hub().map_or(0, |hub| hub.joined.fetch_add(1, Ordering::Relaxed));
    header.origin.order.store(order, Ordering::Relaxed);
}

/// Stores the command line and the path of the program, which has just been started by an exec.
pub fn store_program(region: &Region) {
    let origin = &region.header().origin;
    let mut piece = [0; 256];
    if let Some(fd) = sys::open_read(b"/proc/self/cmdline\0") {
        let start = region.header().names_used.load(Ordering::Relaxed);
        let mut length = 0;
        while length < LONGEST_COMMAND {
            let count = sys::read(fd, &mut piece);
            let (_, stored) = store_name(region, piece.get(..count).unwrap_or(&[]));
            if stored == 0 {
                break;
            }
            length += stored;
        }
        sys::close(fd);
        origin.command.store((start as u64) << 32 | length as u64, Ordering::Relaxed);
    }
    let length = sys::read_link(b"/proc/self/exe\0", &mut piece);
    // A path that does not fit is left to the collector, which asks the kernel.
    if length < piece.len() {
        let (at, length) = store_name(region, piece.get(..length).unwrap_or(&[]));
        origin.exe.store((at as u64) << 32 | length as u64, Ordering::Relaxed);
    }
}

/// Counts this process as one that runs unrecorded, unless it has nothing to record.
pub fn miss(need: Need) {
    if let Some(hub) = hub().filter(|_| need == Need::Event) {
        hub.missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A run of a program that is not recorded.
pub struct UnrecordedRun(&'static AtomicU32);

impl UnrecordedRun {
    /// Counts a run of the program at `path`, if a tree of processes is recorded.
    pub fn count(path: &[u8], why: UnrecordedExec) -> Option<UnrecordedRun> {
        let hub = shared_hub()?;
        let name = channel::short_name(path);
        if let Some(place) = hub.unrecorded.iter().find(|place| place.add(&name, why as u32)) {
            return Some(UnrecordedRun(&place.count));
        }
        hub.more_unrecorded.fetch_add(1, Ordering::Relaxed);
        Some(UnrecordedRun(&hub.more_unrecorded))
    }

    /// Called if the exec failed.
    pub fn take_back(self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Maps the hub. `path` is NUL-terminated. Returns false if the hub cannot be mapped, or is of another version.
pub fn find_hub(path: &[u8]) -> bool {
    let Some(fd) = sys::open(path) else { return false };
    let page = sys::map_shared(fd, 0, PAGE);
    sys::close(fd);
    let Some(page) = page else { return false };
    sys::keep_out_of_dumps(page, PAGE);
    // SAFETY: `map_shared` has just mapped this page, and a `Hub` fits into it. The collector has made the file one
    // page long and sealed its size before it gave its path away, so the page stays behind the mapping.
    let hub = unsafe { &*page.cast::<Hub>() };
    let is_ours = hub.magic == HUB_MAGIC && hub.version == VERSION;
    if is_ours {
        FOLLOWING.hub.store(page.cast(), Ordering::Release);
    }
    is_ours
}

/// Takes shared memory for this process. Waits for at most three seconds, or 0.1 s for a farewell. Returns `None` if it
/// gets none, and counts the process as missed if it has an event.
pub fn claim(pid: u32, need: Need) -> Option<Region<'static>> {
    let hub = hub()?;
    let region = pid_is_true(pid).then(|| take_offer(hub, pid, need)).flatten();
    if region.is_none() {
        miss(need);
    }
    region
}

fn take_offer(hub: &Hub, pid: u32, need: Need) -> Option<Region<'static>> {
    let patience = if need == Need::Event { PATIENCE_NS } else { FAREWELL_PATIENCE_NS };
    let latest = sys::now_ns().saturating_add(patience);
    loop {
        let served = hub.served.load(Ordering::Acquire);
        if hub.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0 {
            return None;
        }
        if let Some(fd) = hub.offers.iter().find_map(|offer| offer.take(pid)) {
            hub.doorbell.fetch_add(1, Ordering::Release);
            sys::futex_wake(&hub.doorbell);
            return crate::core::map_offer(hub.collector_pid, fd);
        }
        // Other processes have waited since the last offers were made.
        if need == Need::Farewell && hub.vain.load(Ordering::Relaxed) == served.wrapping_add(1) {
            return None;
        }
        let since = sys::now_ns();
        if since >= latest {
            hub.vain.store(served.wrapping_add(1), Ordering::Relaxed);
            return None;
        }
        sys::futex_wait(&hub.served, served, TRY_MS);
        hub.waited_ns.fetch_add(sys::now_ns().saturating_sub(since), Ordering::Relaxed);
    }
}

/// Returns false in another pid namespace, where our own pid means nothing to the collector.
pub(crate) fn pid_is_true(pid: u32) -> bool {
    let mut text = [0; 16];
    let length = sys::read_link(b"/proc/self\0", &mut text);
    let number = text.get(..length).and_then(crate::environment::number);
    number.is_some_and(|(number, _)| number == pid as u64)
}

/// The path `/proc/PID/fd/N`, NUL-terminated.
pub struct Path {
    bytes: [u8; 48],
    len: usize,
}

impl Path {
    pub fn of_descriptor(pid: u32, fd: u32) -> Self {
        let mut path = Path { bytes: [0; 48], len: 0 };
        path.push(b"/proc/");
        path.push_number(pid);
        path.push(b"/fd/");
        path.push_number(fd);
        path
    }

    pub fn of_own_descriptor(fd: u32) -> Self {
        let mut path = Path { bytes: [0; 48], len: 0 };
        path.push(b"/proc/self/fd/");
        path.push_number(fd);
        path
    }

    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.len + 1 < self.bytes.len()
                && let Some(place) = self.bytes.get_mut(self.len)
            {
                *place = *byte;
                self.len += 1;
            }
        }
    }

    fn push_number(&mut self, number: u32) {
        let mut unit = 1_000_000_000;
        while unit > 1 && number / unit == 0 {
            unit /= 10;
        }
        while unit > 0 {
            self.push(&[b'0' + (number / unit % 10) as u8]);
            unit /= 10;
        }
    }

    /// With the terminating zero.
    pub fn get(&self) -> &[u8] {
        self.bytes.get(..self.len + 1).unwrap_or(&[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_the_kernel_reads_them() {
        assert_eq!(Path::of_descriptor(1, 0).get(), b"/proc/1/fd/0\0");
        assert_eq!(Path::of_descriptor(4_194_304, 1030).get(), b"/proc/4194304/fd/1030\0");
        assert_eq!(Path::of_descriptor(u32::MAX, u32::MAX).get(), b"/proc/4294967295/fd/4294967295\0");
        assert_eq!(Path::of_own_descriptor(17).get(), b"/proc/self/fd/17\0");
        assert!(pid_is_true(std::process::id()) && !pid_is_true(1));
    }
}
