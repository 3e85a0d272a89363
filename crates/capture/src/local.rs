//! A thread's own state, and how a thread finds it without thread-local storage.
//!
//! The key is the thread pointer (`fs:0` holds its own address: the ABI). It comes back when a thread has died and its
//! stack is reused, so each slot also knows where libc keeps the tid in the thread block and compares it: another tid
//! is another thread.
use crate::core::Core;
use crate::entry::{Freed, Range};
use crate::memo::Memo;
use crate::pace::Pace;
use crate::proof::Proof;
use crate::walk::Scratch;
use channel::{Geometry, Owner, Region, SlotHeader, SlotState, Stamp};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Lives at the start of a slot's private area. Only its thread (and signal handlers on it) touches it, but for `identity`,
/// which any thread may read. So no code makes a `&mut` of all of it.
///
/// Names for what unsafe code rests on:
/// - **Locals stay mapped**: `Core::area` maps a slot's area, its rings included, and nothing in the target unmaps it. A
///   profiler that detaches does so from outside, once no thread is in a hook (`in_hook.rs` in `attach`).
/// - **Own local**: `Threads::find` returns a local only to the thread that `Identity::is_mine` says it belongs to. So only
///   that thread, and signal handlers on it, write its fields.
/// - **Main hook's fields**: only the hook for which the guard of `main` is up uses `memo`, `generation`,
///   `patched_together`, and the first proof and scratch.
#[repr(C)]
pub struct Local {
    pub identity: Identity,
    pub header: *const SlotHeader,
    /// The number of the slot.
    pub slot: u32,
    pub generation: u32,
    /// Comparisons of walks in many pieces since one was walked afresh.
    pub patched_together: u32,
    /// The last free by an entry that may lead to another one.
    pub freed: Freed,
    /// The allocator whose function a hook with its guard up has called, see `entry.rs`.
    pub inside: Range,
    pub main: Level,
    pub nested: Level,
    pub proof: [Proof; 2],
    pub memo: Memo,
    pub scratch: [Scratch; 2],
}

const _: () = assert!(size_of::<Local>() <= Geometry::SLOT_PRIVATE_BYTES as usize);

/// Which thread a slot belongs to. Written by the thread that takes the slot, read by any thread that looks for its own.
#[repr(C)]
pub struct Identity {
    thread_pointer: AtomicU64,
    /// The slot's `Owner` while this thread has it.
    owner: AtomicU64,
    tid: AtomicU32,
    /// Where libc keeps the tid in the thread block, 0 = unknown.
    tid_offset: AtomicU32,
}

impl Identity {
    /// Where these fields are in a `Local`, for a profiler that reads them from outside.
    pub const THREAD_POINTER_AT: usize = offset_of!(Local, identity) + offset_of!(Identity, thread_pointer);
    pub const TID_AT: usize = offset_of!(Local, identity) + offset_of!(Identity, tid);

    /// True when this is the slot of the calling thread and not that of a dead one whose pointer it got.
    #[inline(always)]
    pub fn is_mine(&self, pointer: u64) -> bool {
        if self.thread_pointer.load(Ordering::Relaxed) != pointer {
            return false;
        }
        let offset = self.tid_offset.load(Ordering::Relaxed);
        // SAFETY: inside the calling thread's own thread block: `find_tid` has read the tid at this offset of a block of the
        // same libc, and the offset is used with the caller's own pointer only.
        offset == 0
            || unsafe { ((pointer + offset as u64) as *const u32).read_volatile() } == self.tid.load(Ordering::Relaxed)
    }

    /// The owner word of the thread that had this thread pointer last, if the slot is still its.
    pub fn last_owner(&self, pointer: u64) -> Option<Owner> {
        // Another thread that takes the slot stores its pointer before its owner word, so the word that is loaded first is
        // never that of a thread with another pointer.
        let owner = self.owner.load(Ordering::Acquire);
        (self.thread_pointer.load(Ordering::Acquire) == pointer).then_some(Owner(owner))
    }

    fn set(&self, pointer: u64, owner: Owner, tid_offset: u32) {
        self.thread_pointer.store(pointer, Ordering::Release);
        self.tid.store(owner.tid(), Ordering::Relaxed);
        self.tid_offset.store(tid_offset, Ordering::Relaxed);
        self.owner.store(owner.0, Ordering::Release);
    }
}

/// One of the two rings as its writer sees it, and who is writing.
#[repr(C)]
pub struct Level {
    /// The CFA of the hook that is at work, 0 = none.
    pub guard: u64,
    /// Words written.
    pub head: u64,
    /// `head` may grow up to here without a look at the reader.
    pub limit: u64,
    /// No later event of this thread has an older stamp.
    pub last_stamp: u64,
    /// In a sandbox: the last event found no room and was not waited for.
    pub dropping: bool,
    /// How long this thread has waited for room while the collector made no progress.
    pub stalled_ms: u32,
    /// The budget for such waits is full again when the collector has taken everything up to here.
    pub refill_at: u64,
    /// Of the events that were begun in this ring: those that were written, or counted as dropped.
    pub settled: u64,
    pub words: *const AtomicU64,
    pub words_len: usize,
    pub pace: Pace,
}

impl Level {
    /// The ring of a slot whose area is mapped at `area`.
    fn new(region: &Region, slot: u32, header: &SlotHeader, area: *mut u8, nested: bool, now: Stamp) -> Self {
        let (words, words_len) = region.ring_words(slot, area, nested);
        let (head, begun) =
            if nested { (&header.nested_head, &header.nested_begun) } else { (&header.head, &header.begun) };
        Level {
            guard: 0,
            head: head.load(Ordering::Relaxed),
            limit: 0,
            last_stamp: now,
            dropping: false,
            stalled_ms: 0,
            refill_at: 0,
            settled: begun.load(Ordering::Relaxed),
            words,
            words_len,
            pace: Pace::NEW,
        }
    }
}

const ENTRIES: usize = 1 << 16;
/// How far from its place a thread is looked for. With twice as many places as slots, a thread is hardly ever that far.
const MAX_PROBES: usize = 128;

/// The states of all threads, found by their thread pointers. Open addressing. An entry whose thread is gone is taken over by
/// another thread.
#[repr(C)]
pub struct Threads {
    entries: [AtomicPtr<Local>; ENTRIES],
}

#[inline(always)]
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: the x86-64 ABI: fs points to the thread's own block, whose first word is its address. libc makes the block
    // before the thread can reach a hook.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

impl Threads {
    #[inline(always)]
    fn entry(&self, index: usize) -> &AtomicPtr<Local> {
        // SAFETY: the mask keeps the index below `ENTRIES`, the array's length.
        unsafe { self.entries.get_unchecked(index & (ENTRIES - 1)) }
    }

    #[inline(always)]
    fn start(pointer: u64) -> usize {
        (pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40
    }

    /// The calling thread's state, if it has one.
    #[inline(always)]
    pub fn find(&self, pointer: u64) -> Option<*mut Local> {
        self.find_near(pointer).or_else(|| self.find_far(pointer))
    }

    /// The same, where no other thread is in its place of the table.
    #[inline(always)]
    pub fn find_near(&self, pointer: u64) -> Option<*mut Local> {
        let local = self.entry(Self::start(pointer)).load(Ordering::Acquire);
        // SAFETY: `enter` stores locals only, and locals stay mapped (see `Local`). `identity` consists of atomics.
        (!local.is_null() && unsafe { (*local).identity.is_mine(pointer) }).then_some(local)
    }

    #[inline(never)]
    fn find_far(&self, pointer: u64) -> Option<*mut Local> {
        self.first(pointer, |identity| identity.is_mine(pointer))
    }

    /// The last state that a thread with this thread pointer had, and the owner word of its slot then.
    pub fn last(&self, pointer: u64) -> Option<(*mut Local, Owner)> {
        let local = self.first(pointer, |identity| identity.last_owner(pointer).is_some())?;
        // SAFETY: `first` returns a local that `enter` has stored; locals stay mapped (see `Local`). `identity` is atomic.
        let owner = unsafe { (*local).identity.last_owner(pointer) }?;
        Some((local, owner))
    }

    fn first(&self, pointer: u64, is_wanted: impl Fn(&Identity) -> bool) -> Option<*mut Local> {
        for i in 0..MAX_PROBES {
            let local = self.entry(Self::start(pointer) + i).load(Ordering::Acquire);
            if local.is_null() {
                return None;
            }
            // SAFETY: `enter` stores locals only, and locals stay mapped (see `Local`). `identity` consists of atomics.
            if is_wanted(unsafe { &(*local).identity }) {
                return Some(local);
            }
        }
        None
    }

    /// Publishes the calling thread's state. False when there is no place for it.
    pub fn enter(&self, pointer: u64, local: *mut Local) -> bool {
        let start = Self::start(pointer);
        for i in 0..MAX_PROBES {
            let entry = self.entry(start + i);
            let found = entry.load(Ordering::Acquire);
            let is_free = found.is_null() || found == local || is_stale(found, pointer, start + i);
            if is_free && entry.compare_exchange(found, local, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
        false
    }
}

/// True when no thread looks for `local` in the entry `at`: it was that of a thread with the caller's thread pointer, its
/// slot is not taken, or its slot is that of a thread whose place is elsewhere.
fn is_stale(local: *const Local, pointer: u64, at: usize) -> bool {
    // SAFETY: a published local stays mapped for ever, and its header with it.
    let (identity, header) = unsafe { (&(*local).identity, &*(*local).header) };
    let its_pointer = identity.thread_pointer.load(Ordering::Acquire);
    let distance = at.wrapping_sub(Threads::start(its_pointer)) & (ENTRIES - 1);
    its_pointer == pointer || distance >= MAX_PROBES || header.owner().state() != SlotState::Live
}

impl Local {
    /// Starts the state of a new thread in memory that may hold another's. `slot` is its number, `area` where it is mapped.
    ///
    /// # Safety
    /// The calling thread has just become the `owner` of the slot, and `local` is the slot's.
    pub unsafe fn begin(local: *mut Local, core: &Core, slot: Slot, pointer: u64, tid_offset: u32) {
        let Slot { index, owner, header, area } = slot;
        let region = core.region();
        let now = core.stamp();
        // SAFETY: the owner of a slot is the only one that touches these fields; `identity` is atomic. Each field is
        // written by itself, so that no reference to `identity` of another thread is in the way.
        unsafe {
            (*local).identity.thread_pointer.store(0, Ordering::Release);
            (*local).header = header;
            (*local).slot = index;
            (*local).generation = core.modules().generation();
            (*local).patched_together = 0;
            (*local).main = Level::new(region, index, header, area, false, now);
            (*local).nested = Level::new(region, index, header, area, true, now);
            (*local).inside = Range::NONE;
            (*local).freed = Freed::NONE;
            (*local).proof = Default::default();
            (*local).memo.begin(index < region.geometry().large_slots);
            (*local).scratch.iter_mut().for_each(Scratch::forget);
            (*local).identity.set(pointer, owner, tid_offset);
        }
    }
}

/// A slot that the calling thread has taken.
#[derive(Clone, Copy)]
pub struct Slot {
    pub index: u32,
    pub owner: Owner,
    pub header: &'static SlotHeader,
    pub area: *mut u8,
}

/// Where the thread block holds `tid`: the place learnt before if it fits, else the first word that does. 0 = nowhere.
pub fn find_tid(pointer: u64, tid: u32, learnt: u32) -> u32 {
    const LAST: u32 = 0x800;
    // SAFETY: both uses ask `may_read(offset)` first: the word is in the page of the thread pointer, or in one of which
    // `sys::is_readable` said that it can be read. It is aligned: offsets are multiples of 4, thread pointers of 8.
    let word = |offset: u32| unsafe { ((pointer + offset as u64) as *const u32).read_volatile() };
    let mut page = pointer >> 12;
    let mut may_read = |offset: u32| {
        let here = (pointer + offset as u64) >> 12;
        here == page || {
            page = here;
            crate::sys::is_readable((here << 12) as usize)
        }
    };
    if learnt != 0 && may_read(learnt) && word(learnt) == tid {
        return learnt;
    }
    let mut offset = 16;
    while offset < LAST && may_read(offset) {
        if word(offset) == tid {
            return offset;
        }
        offset += 4;
    }
    0
}
