//! One thread's place in the shared memory.
//!
//! Both sides count the events of a slot, so that no loss stays unnoticed. The thread increments `begun` before it
//! writes an event, and `dropped` if there is no room for it. The collector counts the events that arrive. When the
//! rings are empty, **begun = arrived + dropped**, except for the one call in which a thread may have been killed. The
//! counters are never reset.
use crate::numbered::numbered;
use crate::record::Stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

numbered! {
    /// The life of a slot.
    ///
    /// ```text
    ///            target: CAS           the thread is gone, or cannot use the slot
    ///   Free ----------------------> Live ---------------------------------> Dead
    ///    ^                            |  ^                                     |
    ///    |                            +--+ same thread pointer, new tid:       |
    ///    |                               a ThreadStart record, stays Live      |
    ///    +---------------------- collector: both rings drained ----------------+
    /// ```
    pub enum SlotState: u32 { Free = 0, Live = 1, Dead = 2 }
}

/// A slot's owner, in one word, so that neither side can act on half of it.
///
/// ```text
///  63       32 31      18 17       2 1     0
/// | tid       | image    | epoch    | state |
/// ```
///
/// The image is the program image (`Header::image`) of the owner. The epoch counts owners. So two owners of a slot have
/// different words, unless 65,535 owners were in between and the tid is the same too. A compare-and-swap of the word
/// therefore succeeds only while the slot has the expected owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub u64);

impl Owner {
    const EPOCH_SHIFT: u32 = 2;
    const EPOCH: u64 = 0xffff;
    const IMAGE_SHIFT: u32 = 18;
    const IMAGE: u64 = 0x3fff;

    pub const fn state(self) -> SlotState {
        match self.0 & 3 {
            0 => SlotState::Free,
            1 => SlotState::Live,
            _ => SlotState::Dead,
        }
    }

    pub const fn tid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The program image of the owner, modulo 2^14.
    pub const fn image(self) -> u32 {
        (self.0 >> Self::IMAGE_SHIFT & Self::IMAGE) as u32
    }

    /// Returns false for a thread of an earlier program image. An exec has ended that thread.
    pub const fn is_of_image(self, image: u32) -> bool {
        self.image() == image & Self::IMAGE as u32
    }

    const fn with_state(self, state: SlotState) -> Owner {
        Owner(self.0 & !3 | state as u64)
    }

    /// The next owner of the same slot.
    const fn next(self, tid: u32, image: u64) -> Owner {
        let epoch = (self.0 >> Self::EPOCH_SHIFT).wrapping_add(1) & Self::EPOCH;
        Owner((tid as u64) << 32 | image << Self::IMAGE_SHIFT | epoch << Self::EPOCH_SHIFT | SlotState::Live as u64)
    }
}

/// Two cache lines. While events are recorded, the target's thread writes only line 0 and the collector only line 1.
/// The exceptions are `waiting`, which the collector clears, and the fields of line 1 that change when a thread begins
/// or ends.
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub struct SlotHeader {
    // -- line 0: the target's thread writes
    /// Words committed to the ring since the slot was made. Never decreases.
    pub head: AtomicU64,
    /// See `Intent`.
    pub intent: AtomicU64,
    pub nested_head: AtomicU64,
    pub nested_intent: AtomicU64,
    /// Events that the thread has begun to record in the ring, and in the nested ring, since the slot was made.
    pub begun: AtomicU64,
    pub nested_begun: AtomicU64,
    /// How many of these events were dropped, of both rings.
    pub dropped: AtomicU64,
    /// The futex on which the thread sleeps while a ring is full. After the collector has drained the ring, it sets
    /// this to 0 and wakes the thread.
    pub waiting: AtomicU32,
    _pad0: u32,
    // -- line 1: the collector writes
    /// Words that the collector has taken from the ring. `head - tail` words are waiting.
    pub tail: AtomicU64,
    pub nested_tail: AtomicU64,
    // -- both sides write, when a thread begins or ends
    /// `Owner`.
    owner: AtomicU64,
    /// While the slot is free: 1 + the number of the slot below it on the stack of free slots, or 0 if it is the
    /// lowest.
    pub(crate) next_free: AtomicU32,
    _pad1: [u32; 9],
}

/// What a thread promises about the stamps of its next events, in `SlotHeader::intent`.
///
/// ```text
/// 0                      None: the thread will read the clock for its next event, after the collector has read this 0
/// 0 | stamp (63)         Writing: the thread is writing an event whose stamp is not less than this one
/// 1 | stamp (63)         Resting: the thread may write events without reading the clock, and none of their stamps is
///                        less than this one; void once `Header::pace` is 0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent(pub u64);

impl Intent {
    pub const NONE: Intent = Intent(0);
    const RESTING: u64 = 1 << 63;

    pub const fn writing(since: Stamp) -> Self {
        Intent(since)
    }

    pub const fn resting(since: Stamp) -> Self {
        Intent(Self::RESTING | since)
    }

    /// Returns a lower bound of the stamps of the thread's later events, or `None` if the clock is the only bound.
    /// `alone`: `Header::pace` was not 0 before the barrier after which the collector read the intent.
    pub const fn bound(self, alone: bool) -> Option<Stamp> {
        match self.0 {
            0 => None,
            word if word & Self::RESTING == 0 => Some(word),
            word if alone => Some(word & !Self::RESTING),
            _ => None,
        }
    }
}

impl SlotHeader {
    pub fn owner(&self) -> Owner {
        Owner(self.owner.load(Ordering::Acquire))
    }

    fn change(&self, from: Owner, to: Owner) -> Option<Owner> {
        self.owner.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(to)
    }

    /// Target: takes a free slot. The image is stored in the same word, so the collector never mistakes a new owner for
    /// a thread of an earlier program image.
    pub fn claim(&self, tid: u32, image: u32) -> Option<Owner> {
        let owner = self.owner();
        if owner.state() != SlotState::Free {
            return None;
        }
        self.change(owner, owner.next(tid, image as u64 & Owner::IMAGE))
    }

    /// Target: a new thread with the thread pointer of a dead one takes over its slot. Returns `None` if the collector
    /// has already buried the dead owner.
    pub fn inherit(&self, dead: Owner, tid: u32) -> Option<Owner> {
        if dead.state() != SlotState::Live {
            return None;
        }
        self.change(dead, dead.next(tid, dead.image() as u64))
    }

    /// Marks the slot as dead. The collector does this when the owner has ended, the target when it cannot use a slot
    /// that it has just taken. Returns false if the slot has another owner by now.
    pub fn bury(&self, owner: Owner) -> bool {
        owner.state() == SlotState::Live && self.change(owner, owner.with_state(SlotState::Dead)).is_some()
    }

    /// Collector: returns true if both rings are empty.
    pub fn is_drained(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Relaxed)
            && self.nested_head.load(Ordering::Acquire) == self.nested_tail.load(Ordering::Relaxed)
    }

    /// Collector: returns how many events were begun in both rings, for the audit.
    pub fn events_begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire).wrapping_add(self.nested_begun.load(Ordering::Acquire))
    }

    /// Collector: makes a dead slot free, once both rings are drained. See `Region::give_slot_back`.
    pub(crate) fn release(&self, dead: Owner) -> bool {
        dead.state() == SlotState::Dead && self.change(dead, dead.with_state(SlotState::Free)).is_some()
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotHeader>() == 128);
