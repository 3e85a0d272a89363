//! One thread's place in the shared memory.
//!
//! Both sides count the events of a slot, so that no loss is silent. The thread counts in `begun` before it writes, and in
//! `dropped` when an event finds no room; the collector counts what arrives. When nothing is left in the rings,
//! **begun = arrived + dropped**, but for the one call in which a thread was killed. The counters are never reset.
use crate::record::Stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The life of a slot.
///
/// ```text
///            target: CAS                  collector: the thread is gone
///   Free ----------------------> Live ---------------------------------> Dead
///    ^                            |  ^                                     |
///    |                            +--+ same thread pointer, new tid:       |
///    |                               a ThreadStart record, stays Live      |
///    +---------------------- collector: both rings drained ----------------+
/// ```
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    Free = 0,
    Live = 1,
    Dead = 2,
}

/// A slot's owner, in one word, so that neither side can act on half of it.
///
/// ```text
///  63       32 31      18 17       2 1     0
/// | tid       | image    | epoch    | state |
/// ```
///
/// The image is the program image (`Header::image`) of the owner. The epoch counts owners: an owner word never comes back
/// for another thread, so the side that changes it by compare-and-swap knows whose slot it was.
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

    /// False for a thread of a program image before the last exec: it is gone.
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

/// Two cache lines, one per side, so that the two sides do not fight over a line.
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub struct SlotHeader {
    // -- line 0: the target's thread writes
    /// Words committed to the ring since the slot was made; never goes back.
    pub head: AtomicU64,
    /// See `Intent`.
    pub intent: AtomicU64,
    pub nested_head: AtomicU64,
    pub nested_intent: AtomicU64,
    /// Events that the thread has begun to record in the ring, and in the nested ring, since the slot was made.
    pub begun: AtomicU64,
    pub nested_begun: AtomicU64,
    /// Of those, events that were not written, of both rings.
    pub dropped: AtomicU64,
    /// Futex the thread sleeps on while a ring is full; the collector sets it to 0 and wakes after draining.
    pub waiting: AtomicU32,
    _pad0: u32,
    // -- line 1: the collector writes
    /// Words taken out of the ring; `head - tail` words are waiting.
    pub tail: AtomicU64,
    pub nested_tail: AtomicU64,
    // -- and both, when a thread comes or goes
    /// `Owner`.
    owner: AtomicU64,
    /// While the slot is free: the one below it on the stack of free slots, plus 1.
    pub(crate) next_free: AtomicU32,
    _pad1: [u32; 9],
}

/// What a thread says of the stamps of its next events, in `SlotHeader::intent`.
///
/// ```text
/// 0                      nothing: whatever it writes next is stamped by the clock after this was read
/// 0 | stamp (63)         Writing: an event is on its way, not older than this
/// 1 | stamp (63)         Resting: it may write events without looking at the clock, none older than this;
///                        ends with `Header::pace`
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

    /// The stamp that no later event of the thread is below, if there is one but the clock. `alone`: the target's
    /// `Header::pace` was not 0 before the barrier after which the intent was read.
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

    /// Target: takes a free slot. The image is told in the same word, so the collector never takes a new owner for one of an
    /// image before the last exec.
    pub fn claim(&self, tid: u32, image: u32) -> Option<Owner> {
        let owner = self.owner();
        if owner.state() != SlotState::Free {
            return None;
        }
        self.change(owner, owner.next(tid, image as u64 & Owner::IMAGE))
    }

    /// Target: a new thread has the thread pointer of a dead one and takes over its slot, unless the collector was first.
    pub fn inherit(&self, dead: Owner, tid: u32) -> Option<Owner> {
        if dead.state() != SlotState::Live {
            return None;
        }
        self.change(dead, dead.next(tid, dead.image() as u64))
    }

    /// The owner is gone. False when the slot has another one meanwhile.
    pub fn bury(&self, owner: Owner) -> bool {
        owner.state() == SlotState::Live && self.change(owner, owner.with_state(SlotState::Dead)).is_some()
    }

    /// Collector: true if both rings are empty.
    pub fn is_drained(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Relaxed)
            && self.nested_head.load(Ordering::Acquire) == self.nested_tail.load(Ordering::Relaxed)
    }

    /// Collector: the events that were begun in both rings, for the audit.
    pub fn events_begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire).wrapping_add(self.nested_begun.load(Ordering::Acquire))
    }

    /// Collector: both rings of a dead slot are drained. See `Region::give_slot_back`.
    pub(crate) fn release(&self, dead: Owner) -> bool {
        dead.state() == SlotState::Dead && self.change(dead, dead.with_state(SlotState::Free)).is_some()
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotHeader>() == 128);
