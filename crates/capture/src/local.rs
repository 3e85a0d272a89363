//! A thread's own state, and how a thread finds it without thread-local storage.
//!
//! The key is the thread pointer, which the ABI stores at `fs:0`. A new thread may get the thread pointer of a dead
//! one, if libc reuses its stack. So the state of a thread also holds its tid, and the offset at which libc keeps the
//! tid in the thread block. A thread compares its own tid with the one in the state.
use crate::core::{Core, WRITER_MEMORY};
use crate::entry::{Allocator, Freed, Range};
use crate::memo::Memo;
use crate::proof::Proof;
use crate::walk::Scratch;
use channel::{Owner, Region, SlotHeader, SlotState, Stamp, WriterState};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The state of a thread, at the start of its slot's private area. Only its thread, and signal handlers on it, use it.
/// The exception is `identity`, which any thread may read. So no code makes a `&mut` of all of it.
///
/// Unsafe code relies on these invariants and refers to them by name:
/// - **Locals stay mapped**: `Core::area` maps a slot's area, its rings included, and nothing in the target unmaps it.
///   A profiler that detaches does so from outside, once no thread is in a hook (`in_hook.rs` in `attach`).
/// - **Own local**: `Threads::find` returns a local only to the thread that `Identity::is_mine` says it belongs to. So
///   only that thread, and signal handlers on it, write its fields.
/// - **Main hook's fields**: only the hook for which the guard of `main` is up uses `memo`, `generation`,
///   `patched_together`, and the first proof and scratch.
#[repr(C)]
pub struct Local {
    pub identity: Identity,
    pub header: *const SlotHeader,
    /// The number of the slot.
    pub slot: u32,
    pub generation: u32,
    /// How many comparisons by the memo took many jumps since a stack was last walked again for that reason, see
    /// `events/stacks.rs`.
    pub patched_together: u32,
    /// In an attached process: the last free by a patched function that may call another one. In a launched program
    /// only its `address` is used: the block that an allocator family's function is freeing or resizing now
    /// (`events/families.rs`).
    pub freed: Freed,
    /// The module of the allocator's function that a hook of this thread is calling now.
    pub inside: Range,
    /// What `inside` and `freed.address` were before the nested hook replaced them. `None` if no nested hook is calling
    /// an allocator's function (`AtWork::begin_call`).
    pub outer: Option<Allocator>,
    /// The heap that the allocator itself has deleted, while a hook of this thread waits for its function that destroys a
    /// heap. 0 = none.
    pub deleted_heap: u64,
    pub main: Level,
    pub nested: Level,
    pub proof: [Proof; 2],
    pub memo: Memo,
    pub scratch: [Scratch; 2],
}

const _: () = assert!(size_of::<Local>() <= WRITER_MEMORY.thread as usize);

/// Which thread a slot belongs to. Written by the thread that takes the slot, read by any thread that looks for its
/// own.
#[repr(C)]
pub struct Identity {
    thread_pointer: AtomicU64,
    /// The slot's `Owner` while this thread has it.
    owner: AtomicU64,
    tid: AtomicU32,
    /// The offset of the tid in libc's thread block. 0 = unknown.
    tid_offset: AtomicU32,
}

impl Identity {
    /// Where these fields are in a `Local`, for a profiler that reads them from outside.
    pub const THREAD_POINTER_AT: usize = offset_of!(Local, identity) + offset_of!(Identity, thread_pointer);
    pub const TID_AT: usize = offset_of!(Local, identity) + offset_of!(Identity, tid);

    /// Returns true if this slot belongs to the calling thread, and not to a dead one with the same thread pointer.
    #[inline(always)]
    pub fn is_mine(&self, pointer: u64) -> bool {
        if self.thread_pointer.load(Ordering::Relaxed) != pointer {
            return false;
        }
        let offset = self.tid_offset.load(Ordering::Relaxed);
        // SAFETY: inside the calling thread's own thread block: `find_tid` has read the tid at this offset of a block
        // of the same libc, and the offset is used with the caller's own pointer only.
        offset == 0
            || unsafe { ((pointer + offset as u64) as *const u32).read_volatile() } == self.tid.load(Ordering::Relaxed)
    }

    /// Returns the owner word that the slot's last thread has stored here, if that thread had this thread pointer.
    pub fn last_owner(&self, pointer: u64) -> Option<Owner> {
        // A thread that takes the slot stores its pointer before its owner word. So the owner word, which is loaded
        // first, never belongs to a thread with another pointer.
        let owner = self.owner.load(Ordering::Acquire);
        (self.thread_pointer.load(Ordering::Acquire) == pointer).then_some(Owner(owner))
    }

    /// Returns true if this slot belongs to the calling thread, and the slot's header says so too. For
    /// `channel::Check`.
    pub fn is_owner_of(&self, slot: &SlotHeader, pointer: u64) -> bool {
        let owner = Owner(self.owner.load(Ordering::Relaxed));
        self.is_mine(pointer) && slot.owner() == owner && owner.state() == SlotState::Live
    }

    fn set(&self, pointer: u64, owner: Owner, tid_offset: u32) {
        self.thread_pointer.store(pointer, Ordering::Release);
        self.tid.store(owner.tid(), Ordering::Relaxed);
        self.tid_offset.store(tid_offset, Ordering::Relaxed);
        self.owner.store(owner.0, Ordering::Release);
    }
}

/// The writer's state of one of the two rings, and the hook that is writing.
#[repr(C)]
pub struct Level {
    /// The CFA of the hook that is at work, 0 = none.
    pub guard: u64,
    /// The heap that the last `HeapMark::In` named.
    pub heap: u64,
    pub ring: WriterState,
}

impl Level {
    /// Makes the state for a slot that the calling thread has taken.
    ///
    /// # Safety
    /// The slot's area stays mapped, and the calling thread is its owner.
    unsafe fn new(region: &Region, slot: &Slot, is_nested: bool, now: Stamp) -> Self {
        // SAFETY: the caller promises that the area stays mapped and that the calling thread is the slot's owner.
        let ring = unsafe { WriterState::new(region, slot.index, slot.header, slot.area, is_nested, now) };
        Level { guard: 0, heap: 0, ring }
    }
}

const ENTRIES: usize = 1 << 16;
/// How many entries are searched for a thread. There are more than twice as many entries as slots, so a thread is
/// hardly ever that far from its first place.
const MAX_PROBES: usize = 128;

/// A hash table from thread pointers to thread states, with open addressing. A new thread may take the entry of one
/// that is gone.
#[repr(C)]
pub struct Threads {
    entries: [AtomicPtr<Local>; ENTRIES],
}

#[inline(always)]
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: the x86-64 ABI: fs points to the thread's own block, whose first word is its address. libc makes the
    // block before the thread can reach a hook.
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

    /// Returns the calling thread's state, if it has one.
    #[inline(always)]
    pub fn find(&self, pointer: u64) -> Option<*mut Local> {
        self.find_near(pointer).or_else(|| self.find_far(pointer))
    }

    /// As `find`, but looks only at the first place of the thread in the table.
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

    /// Returns the state of the last thread with this thread pointer, and the owner word of its slot.
    pub fn last(&self, pointer: u64) -> Option<(*mut Local, Owner)> {
        let local = self.first(pointer, |identity| identity.last_owner(pointer).is_some())?;
        // SAFETY: `first` returns a local that `enter` has stored; locals stay mapped (see `Local`). `identity` is
        // atomic.
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

    /// Publishes the calling thread's state. Returns false if there is no place for it.
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

/// Returns true if no thread looks for `local` in the entry `at`. That is so if it belonged to a thread with the
/// caller's thread pointer, if its slot has no owner, or if the owner's place in the table is elsewhere.
fn is_stale(local: *const Local, pointer: u64, at: usize) -> bool {
    // SAFETY: `enter` stores locals only, and locals stay mapped (see `Local`). So do the slot headers that they point
    // to.
    let (identity, header) = unsafe { (&(*local).identity, &*(*local).header) };
    let its_pointer = identity.thread_pointer.load(Ordering::Acquire);
    let distance = at.wrapping_sub(Threads::start(its_pointer)) & (ENTRIES - 1);
    its_pointer == pointer || distance >= MAX_PROBES || header.owner().state() != SlotState::Live
}

impl Local {
    /// Makes the state of a new thread, in memory that may hold that of a dead one.
    ///
    /// # Safety
    /// The calling thread has just become the owner of `slot`, and `local` is in that slot's private area.
    pub unsafe fn begin(local: *mut Local, core: &Core, slot: Slot, pointer: u64, tid_offset: u32) {
        let Slot { index, owner, header, .. } = slot;
        let region = core.region();
        let now = core.stamp();
        // SAFETY: the owner of a slot is the only one that touches these fields; `identity` is atomic. Each field is
        // written by itself, so that no reference to `identity` of another thread is in the way. The area of the slot
        // stays mapped: it holds the local (see `Local`).
        unsafe {
            (*local).identity.thread_pointer.store(0, Ordering::Release);
            (*local).header = header;
            (*local).slot = index;
            (*local).generation = core.modules().generation();
            (*local).patched_together = 0;
            (*local).main = Level::new(region, &slot, false, now);
            (*local).nested = Level::new(region, &slot, true, now);
            (*local).inside = Range::NONE;
            (*local).outer = None;
            (*local).deleted_heap = 0;
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

/// Returns the offset of `tid` in the thread block, or 0 if it is not found. Tries the offset that was learnt before,
/// then all multiples of 4 from 16 up to 2 KB.
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::alloc::Layout;

    /// Returns zeroed memory that is never freed, like that of threads and their slots.
    fn zeros<T>() -> *mut T {
        // SAFETY: no type here is empty.
        unsafe { std::alloc::alloc_zeroed(Layout::new::<T>()).cast() }
    }

    /// Returns thread pointers that all have the same first place in the table.
    fn neighbours(count: usize) -> Vec<u64> {
        let place = |pointer: &u64| Threads::start(*pointer) & (ENTRIES - 1);
        (1..).map(|number| number << 6).filter(|pointer| place(pointer) == 7).take(count).collect()
    }

    /// Under ThreadSanitizer (`make soak-thread`) this shows that what a thread wrote before it published its state is
    /// visible to other threads that search the same place of the table.
    #[test]
    fn threads_of_one_place_find_their_own_states() {
        const THREADS: usize = 4;
        const TURNS: usize = 8;
        // SAFETY: zeros are null pointers, which is an empty table.
        let table: &Threads = unsafe { &*zeros::<Threads>() };
        let pointers = neighbours(THREADS * TURNS);
        std::thread::scope(|scope| {
            for own in pointers.chunks(TURNS) {
                scope.spawn(move || {
                    for &pointer in own {
                        let (header, local) = (zeros::<SlotHeader>(), zeros::<Local>());
                        // SAFETY: zeros are a free slot, and only this thread knows it.
                        let owner = unsafe { (*header).claim(pointer as u32, 1) };
                        let Some(owner) = owner else { panic!("a free slot was not to be had") };
                        // SAFETY: no other thread has the address of this state before `enter` publishes it.
                        unsafe {
                            (*local).header = header;
                            (*local).identity.set(pointer, owner, 0);
                        }
                        assert_eq!(table.find(pointer), None);
                        assert!(table.enter(pointer, local));
                        assert_eq!((table.find(pointer), table.last(pointer)), (Some(local), Some((local, owner))));
                    }
                });
            }
        });
        let found: Vec<_> = pointers.iter().filter_map(|pointer| table.find(*pointer)).collect();
        assert_eq!(found.len(), THREADS * TURNS);
    }
}
