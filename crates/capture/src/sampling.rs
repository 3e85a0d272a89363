//! Which blocks a sampled recording takes: each thread counts the bytes that it allocates, until the next sample point.
//!
//! The shims of a launched program read these tables in assembler code (`capture-so/src/sampled_shims.rs`). An
//! allocation that is not taken, and a free of a block that was not taken, then jump into the real function without a
//! frame. All other hooks ask [`takes`] and [`live_blocks::remove`].
//!
//! Must hold: no lock, no loop without a bound, no system call except to map memory once. A thread that loses its entry
//! to another one draws a new distance. That is correct, because the distances have no memory.
pub(crate) mod heaps;
pub mod live_blocks;

use crate::core::{ACTIVE, CORE, EXACT};
use crate::local::thread_pointer;
use channel::{CUSTOM, first_state, gap, is_map_call, next_state, sampled_bytes};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Nonzero if the exported shims jump to their sampled variants.
pub static SHIMS_SAMPLE: AtomicU32 = AtomicU32::new(0);
/// Blocks of at least this size are all taken. For the shims.
pub static EXACT_FROM: AtomicU64 = AtomicU64::new(u64::MAX);
/// Counts the threads that have an entry, and so the sequences of random numbers.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// How many bits the index of an entry has.
const INDEX_BITS: u32 = 10;
/// The size of an entry is 2 to this power.
pub const ENTRY_BITS: u32 = 6;
/// How far the hash of a thread pointer is shifted to the right for the index of its entry.
pub const INDEX_SHIFT: u32 = 64 - INDEX_BITS;
/// How many entries are searched for a thread.
const PROBES: usize = 4;
/// The factor of all hashes here.
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A thread's distance to its next sample point. The assembler code knows the first two fields.
#[repr(C, align(64))]
pub struct Countdown {
    /// The thread pointer, 0 = the entry is free.
    owner: AtomicU64,
    /// The bytes before the next sample point. Negative: the last allocation had the point in it.
    left: AtomicI64,
    /// The state of the random numbers.
    random: AtomicU64,
    /// The block that was taken last, and (below) what `left` was then. If it is still the same when the thread frees
    /// the block, the thread has allocated nothing in between.
    latest: AtomicU64,
    left_then: AtomicI64,
}

const _: () = assert!(size_of::<Countdown>() == 1 << ENTRY_BITS);

pub static COUNTDOWNS: [Countdown; 1 << INDEX_BITS] = [const { Countdown::new() }; 1 << INDEX_BITS];

impl Countdown {
    const fn new() -> Countdown {
        Countdown {
            owner: AtomicU64::new(0),
            left: AtomicI64::new(0),
            random: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            left_then: AtomicI64::new(0),
        }
    }

    /// Draws the distance to the next sample point.
    fn draw(&self) {
        let state = self.random.load(Ordering::Relaxed);
        self.random.store(next_state(state), Ordering::Relaxed);
        let rate = CORE.header().sampling.rate.load(Ordering::Relaxed);
        self.left.store(gap(state, rate) as i64, Ordering::Relaxed);
    }

    /// Makes the entry that of the calling thread.
    fn begin(&self, pointer: u64) {
        let thread = THREADS.fetch_add(1, Ordering::Relaxed);
        self.random.store(first_state(CORE.header().sampling.seed, thread), Ordering::Relaxed);
        self.latest.store(0, Ordering::Relaxed);
        self.draw();
        self.owner.store(pointer, Ordering::Relaxed);
    }
}

/// Returns the entries in which a thread may have its own.
fn places(pointer: u64) -> impl Iterator<Item = &'static Countdown> {
    let first = (pointer.wrapping_mul(FACTOR) >> INDEX_SHIFT) as usize;
    (first..first + PROBES).filter_map(|place| COUNTDOWNS.get(place & (COUNTDOWNS.len() - 1)))
}

/// Returns the entry of the calling thread, if it has one.
fn find(pointer: u64) -> Option<&'static Countdown> {
    places(pointer).find(|entry| entry.owner.load(Ordering::Relaxed) == pointer)
}

/// Returns the entry of the calling thread. If there is none, takes a free one, or that of another thread.
fn own(pointer: u64) -> Option<&'static Countdown> {
    if let Some(entry) = find(pointer) {
        return Some(entry);
    }
    let is_free = |entry: &&Countdown| entry.owner.load(Ordering::Relaxed) == 0;
    let entry = places(pointer).find(is_free).or_else(|| places(pointer).next())?;
    entry.begin(pointer);
    Some(entry)
}

/// Called when this process begins to record. Forgets the threads of the process that it was forked from.
pub(crate) fn begin(exact_above: u64) {
    for entry in &COUNTDOWNS {
        entry.owner.store(0, Ordering::Relaxed);
    }
    THREADS.store(0, Ordering::Relaxed);
    EXACT_FROM.store(if exact_above == 0 { u64::MAX } else { exact_above }, Ordering::Relaxed);
    live_blocks::prepare();
}

/// Decides about an allocation of `size` bytes, before or after the real call. Only to be called if the gate is active.
pub fn takes(size: u64) -> bool {
    let exact_above = CORE.header().sampling.exact_above;
    if exact_above != 0 && size >= exact_above {
        return true;
    }
    let Some(entry) = own(thread_pointer()) else { return false };
    let left = entry.left.load(Ordering::Relaxed).wrapping_sub(sampled_bytes(size) as i64);
    entry.left.store(left, Ordering::Relaxed);
    if left < 0 {
        entry.draw();
    }
    left < 0
}

/// As `takes`, for a shim that found no entry of its thread, or a large block. Returns 0 for no.
pub extern "C" fn decide(size: u64) -> u32 {
    (CORE.gate_or_join() & ACTIVE != 0 && takes(size)) as u32
}

/// For a shim whose allocation had the sample point in it. Returns 0 if this process does not record.
pub extern "C" fn reached() -> u32 {
    if CORE.gate_or_join() & ACTIVE == 0 {
        return 0;
    }
    if let Some(entry) = own(thread_pointer()) {
        entry.draw();
    }
    1
}

/// Returns true if the gate says that blocks are sampled, and this one is malloc's.
#[inline(always)]
pub(crate) fn concerns(gate: u32, address: u64) -> bool {
    gate & (ACTIVE | EXACT) == ACTIVE && address & CUSTOM == 0
}

/// Returns the size of a block, which may be tagged with its allocator (`channel::tagged`).
pub(crate) const fn plain_size(size: u64) -> u64 {
    if size >> 61 == 0 || is_map_call(size) { size } else { size & ((1 << 40) - 1) }
}

/// Remembers the block that was taken last.
pub(crate) fn note(address: u64) {
    if let Some(entry) = own(thread_pointer()) {
        entry.latest.store(address, Ordering::Relaxed);
        entry.left_then.store(entry.left.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Returns true if the block is the last one that the calling thread allocated, taken or not. `counted` bytes were
/// counted since then for the call that frees it.
pub(crate) fn is_latest(address: u64, counted: u64) -> bool {
    find(thread_pointer()).is_some_and(|entry| {
        let left = entry.left.load(Ordering::Relaxed).wrapping_add(counted as i64);
        entry.latest.load(Ordering::Relaxed) == address && entry.left_then.load(Ordering::Relaxed) == left
    })
}
