//! One thread's place in the shared memory.
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

/// 256 bytes, one cache line per writer so that the two sides do not fight over a line.
#[repr(C, align(64))]
pub struct SlotHeader {
    // -- line 0: the target's thread writes
    /// Words committed to the ring since the slot was made; never goes back.
    pub head: AtomicU64,
    /// See `Intent`.
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
    /// `tid << 32 | SlotState`, one word so that neither side can act on half of it.
    owner: AtomicU64,
    /// The program image (`Header::image`) of the owner.
    pub image: AtomicU32,
    _pad2: [u32; 13],
    _pad3: [u64; 8],
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

const fn pack(state: SlotState, tid: u32) -> u64 {
    (tid as u64) << 32 | state as u64
}

impl SlotHeader {
    /// The state and the owner's tid, of one moment.
    pub fn owner(&self) -> (SlotState, u32) {
        let word = self.owner.load(Ordering::Acquire);
        let state = match word as u32 {
            0 => SlotState::Free,
            1 => SlotState::Live,
            _ => SlotState::Dead,
        };
        (state, (word >> 32) as u32)
    }

    fn change(&self, from: (SlotState, u32), to: (SlotState, u32)) -> bool {
        let (from, to) = (pack(from.0, from.1), pack(to.0, to.1));
        self.owner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Target: takes a free slot.
    pub fn claim(&self, tid: u32) -> bool {
        let (state, last) = self.owner();
        state == SlotState::Free && self.change((SlotState::Free, last), (SlotState::Live, tid))
    }

    /// Target: a new thread has the thread pointer of a dead one and takes over its slot, unless the collector was first.
    pub fn inherit(&self, dead: u32, tid: u32) -> bool {
        self.change((SlotState::Live, dead), (SlotState::Live, tid))
    }

    /// Collector: the owner `tid` is gone. False when the slot has been inherited meanwhile.
    pub fn bury(&self, tid: u32) -> bool {
        self.change((SlotState::Live, tid), (SlotState::Dead, tid))
    }

    /// Collector: both rings of a dead slot are drained.
    pub fn release(&self, tid: u32) -> bool {
        self.change((SlotState::Dead, tid), (SlotState::Free, tid))
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotHeader>() == 256);
