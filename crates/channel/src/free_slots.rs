//! How threads take slots and how the collector returns them. Both take constant time for any number of threads.
//!
//! Slots that were never used are handed out in order (`Header::slot_count`). Slots that were returned are on a
//! lock-free stack, linked by their numbers. The word of its top carries a tag that changes with every operation, which
//! prevents the ABA problem. Threads of the target pop, the collector pushes.
//!
//! ```text
//! Header::free_slots   | tag (32) | number of the top slot + 1, 0 = empty (32) |
//! SlotHeader::next_free           | number of the next slot + 1                |
//! ```
use crate::region::Region;
use crate::slot::{Owner, SlotHeader, SlotState};
use crate::sync::Ordering;

/// A compare-and-swap that fails means that another thread made progress. After this many failures, a thread takes a
/// slot that was never used instead. The collector gives up too: it does not put the slot on the stack, so that slot is
/// not used again.
const TRIES: u32 = 256;

/// What [`Region::reap`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// The slot has no owner.
    Free,
    /// The owner is alive.
    Alive,
    /// The owner has ended, and the slot is dead now. `by_exec`: an exec ended it, perhaps in the middle of a call.
    Ended { by_exec: bool },
    /// The slot was dead already. Once all its events are merged, `Region::give_slot_back` frees it.
    Dead(Owner),
}

impl Region<'_> {
    /// Target: takes a slot for the calling thread. Returns its number and owner word, or `None` when every slot that
    /// is mapped is taken.
    pub fn take_slot(&self, tid: u32, image: u32) -> Option<(u32, Owner)> {
        self.pop_slot(tid, image).or_else(|| self.new_slot(tid, image))
    }

    fn pop_slot(&self, tid: u32, image: u32) -> Option<(u32, Owner)> {
        let top = &self.header().free_slots;
        for _ in 0..TRIES {
            let word = top.load(Ordering::Acquire);
            let index = (word as u32).checked_sub(1)?;
            let slot = self.slot(index)?;
            let next = stacked(word, slot.next_free.load(Ordering::Relaxed));
            if top.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return slot.claim(tid, image).map(|owner| (index, owner));
            }
        }
        None
    }

    fn new_slot(&self, tid: u32, image: u32) -> Option<(u32, Owner)> {
        let count = &self.header().slot_count;
        // Do not use up a number if its slot does not exist or is not mapped.
        self.slot(count.load(Ordering::Relaxed))?;
        let index = count.fetch_add(1, Ordering::AcqRel);
        self.slot(index)?.claim(tid, image).map(|owner| (index, owner))
    }

    /// Collector: only slots `[0, slots_used)` can have an owner.
    pub fn slots_used(&self) -> u32 {
        self.header().slot_count.load(Ordering::Acquire).min(self.geometry().slots)
    }

    /// Collector: looks at the owner of a slot, and marks the slot as dead if the owner has ended. `is_alive` tells
    /// whether a thread with this tid exists.
    pub fn reap(&self, slot: &SlotHeader, is_alive: impl FnOnce(u32) -> bool) -> Reaped {
        let owner = slot.owner();
        // `bury` fails if another thread inherits the slot at this moment. That thread is alive.
        let end = |by_exec| if slot.bury(owner) { Reaped::Ended { by_exec } } else { Reaped::Alive };
        match owner.state() {
            SlotState::Free => Reaped::Free,
            SlotState::Dead => Reaped::Dead(owner),
            // The image is read after the owner word, so that a thread of a new image is never compared with the old
            // one.
            SlotState::Live if !owner.is_of_image(self.header().image.load(Ordering::Acquire)) => end(true),
            SlotState::Live if !is_alive(owner.tid()) => end(false),
            SlotState::Live => Reaped::Alive,
        }
    }

    /// Collector: makes a dead slot free for another thread. Its rings must be empty.
    pub fn give_slot_back(&self, index: u32, dead: Owner) {
        let Some(slot) = self.slot(index) else { return };
        if dead.state() != SlotState::Dead || slot.owner() != dead {
            return;
        }
        // Cleared before the slot is released, because its next owner writes these fields.
        slot.intent.store(0, Ordering::Relaxed);
        slot.nested_intent.store(0, Ordering::Relaxed);
        slot.waiting.store(0, Ordering::Relaxed);
        if !slot.release(dead) {
            return;
        }
        let top = &self.header().free_slots;
        for _ in 0..TRIES {
            let word = top.load(Ordering::Acquire);
            slot.next_free.store(word as u32, Ordering::Relaxed);
            if top.compare_exchange(word, stacked(word, index + 1), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
}

/// The word of the stack's top after one operation: a new tag, and `top`.
const fn stacked(before: u64, top: u32) -> u64 {
    ((before >> 32).wrapping_add(1) << 32) | top as u64
}
