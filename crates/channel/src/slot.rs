//! One thread's place in the shared memory.
use crate::sync::{AtomicU32, AtomicU64};

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

/// 256 bytes, one cache line per writer so that the two sides do not fight over a line.
#[repr(C, align(64))]
pub struct SlotHeader {
    // -- line 0: the target's thread writes
    /// Words committed to the ring since the slot was made; never goes back.
    pub head: AtomicU64,
    /// 0, or "I am writing an event whose stamp is not below this".
    pub intent: AtomicU64,
    pub nested_head: AtomicU64,
    pub nested_intent: AtomicU64,
    /// Futex the thread sleeps on while a ring is full; the collector sets it to 0 and wakes after draining.
    pub waiting: AtomicU32,
    _pad0: [u32; 7],
    // -- line 1: the collector writes
    /// Words taken out of the ring; `head - tail` words are waiting.
    pub tail: AtomicU64,
    pub nested_tail: AtomicU64,
    _pad1: [u64; 6],
    // -- line 2: both, rarely
    /// `SlotState`.
    pub state: AtomicU32,
    /// The tid of the owner, for the collector's check whether it still lives.
    pub tid: AtomicU32,
    /// The program image (`Header::image`) of the owner.
    pub image: AtomicU32,
    _pad2: [u32; 13],
    _pad3: [u64; 8],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotHeader>() == 256);
