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
use channel::{Geometry, SlotHeader, Stamp};
use core::sync::atomic::{AtomicU64, Ordering};

/// Lives at the start of a slot's private area; only its thread (and signal handlers on it) touches it.
#[repr(C)]
pub struct Local {
    pub thread_pointer: u64,
    /// Where libc keeps the tid, 0 = unknown.
    pub tid_at: u64,
    pub tid: u32,
    pub slot: u32,
    pub header: *const SlotHeader,
    pub area: *mut u8,
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
    /// The last event found no room and was not waited for.
    pub dropping: bool,
    pub pace: Pace,
}

impl Level {
    const fn new(head: u64, now: Stamp) -> Self {
        Level { guard: 0, head, limit: 0, last_stamp: now, dropping: false, pace: Pace::NEW }
    }
}

const ENTRIES: usize = 1 << 13;

#[repr(C)]
struct Entry {
    thread_pointer: AtomicU64,
    local: AtomicU64,
}

/// Open addressing; entries are never removed, only taken over by another thread pointer when their slot was.
#[repr(C)]
pub struct Threads {
    entries: [Entry; ENTRIES],
}

#[inline(always)]
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: fs:0 is the thread pointer itself, by the ABI.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

impl Threads {
    #[inline(always)]
    fn entry(&self, index: usize) -> &Entry {
        // SAFETY: the mask keeps the index below the array's length.
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
        let entry = self.entry(Self::start(pointer));
        if entry.thread_pointer.load(Ordering::Relaxed) == pointer {
            let local = entry.local.load(Ordering::Relaxed) as *mut Local;
            // SAFETY: a published local stays mapped; it is this thread's if the next line says so.
            if !local.is_null() && unsafe { (*local).is_mine(pointer) } {
                return Some(local);
            }
        }
        None
    }

    #[inline(never)]
    fn find_far(&self, pointer: u64) -> Option<*mut Local> {
        for i in 0..ENTRIES {
            let entry = self.entry(Self::start(pointer) + i);
            match entry.thread_pointer.load(Ordering::Acquire) {
                0 => return None,
                found if found == pointer => {
                    let local = entry.local.load(Ordering::Acquire) as *mut Local;
                    // SAFETY: as in `find`.
                    return (!local.is_null() && unsafe { (*local).is_mine(pointer) }).then_some(local);
                }
                _ => {}
            }
        }
        None
    }

    /// The last local that this thread pointer had, whoever's it is now.
    pub fn last(&self, pointer: u64) -> Option<*mut Local> {
        for i in 0..ENTRIES {
            let entry = self.entry(Self::start(pointer) + i);
            match entry.thread_pointer.load(Ordering::Acquire) {
                0 => return None,
                found if found == pointer => {
                    let local = entry.local.load(Ordering::Acquire) as *mut Local;
                    return (!local.is_null()).then_some(local);
                }
                _ => {}
            }
        }
        None
    }

    /// Publishes the calling thread's state. False when the table is full.
    pub fn enter(&self, pointer: u64, local: *mut Local) -> bool {
        for i in 0..ENTRIES {
            let entry = self.entry(Self::start(pointer) + i);
            let found = entry.thread_pointer.load(Ordering::Acquire);
            let mine = found == pointer
                || (found == 0 || is_stale(found, entry))
                    && entry
                        .thread_pointer
                        .compare_exchange(found, pointer, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok();
            if mine {
                entry.local.store(local as u64, Ordering::Release);
                return true;
            }
        }
        false
    }
}

/// The entry's slot was given to a thread with another thread pointer.
fn is_stale(pointer: u64, entry: &Entry) -> bool {
    let local = entry.local.load(Ordering::Acquire) as *const Local;
    // SAFETY: locals stay mapped for ever.
    !local.is_null() && unsafe { (&raw const (*local).thread_pointer).read_volatile() } != pointer
}

impl Local {
    /// True when this is the state of the calling thread and not that of a dead one whose pointer it got.
    #[inline(always)]
    pub fn is_mine(&self, pointer: u64) -> bool {
        if self.thread_pointer != pointer {
            return false;
        }
        // SAFETY: inside the calling thread's own thread block.
        self.tid_at == 0 || unsafe { (self.tid_at as *const u32).read_volatile() } == self.tid
    }

    #[inline(always)]
    pub fn header(&self) -> &'static SlotHeader {
        // SAFETY: set at creation to a part of the shared mapping, which stays.
        unsafe { &*self.header }
    }

    /// Starts the state of a new thread in memory that may hold another's.
    pub fn begin(&mut self, core: &Core, pointer: u64, tid: u32, tid_at: u64) {
        self.thread_pointer = pointer;
        self.tid = tid;
        self.tid_at = tid_at;
        self.generation = core.modules().generation();
        let header = self.header();
        let now = core.stamp();
        self.main = Level::new(header.head.load(Ordering::Relaxed), now);
        self.nested = Level::new(header.nested_head.load(Ordering::Relaxed), now);
        self.inside = Range::NONE;
        self.freed = Freed::NONE;
        self.proof = Default::default();
        self.memo.forget();
        self.scratch.iter_mut().for_each(Scratch::forget);
    }
}

/// Where the thread block holds `tid`: the place learnt before if it fits, else the first word that does. 0 = nowhere.
pub fn find_tid(pointer: u64, tid: u32, learnt: u32) -> u32 {
    const LAST: u32 = 0x800;
    // SAFETY: only asked for words of pages that were probed, or that hold the thread pointer.
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
