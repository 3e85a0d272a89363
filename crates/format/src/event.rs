//! The events of a block: allocations and frees in order, with their thread, time and image.
//!
//! They are stored in columns, because values of one kind compress better together:
//!
//! ```text
//! head    first sequence number, sequence freed last, tick, thread, image: the state before the first event
//!         number of events, byte lengths of the seven columns (all varints), then the columns:
//! runs    a byte per turn: | frees 7..4 | allocations 3..0 |, first the allocations, then the frees;
//!         15 means 15 or more: a varint of the part above 15 follows (if both are 15, first that of the allocations)
//! low     per allocation: the low byte of its allocation class's index; its sequence number is one more than that of
//!         the allocation before
//! high    per allocation: the rest of that index (index >> 8), or 255: the rest is in `wide`
//! wide    per 255 in `high`: index >> 8, varint
//! frees   per free of a known block: zigzag(its sequence number - that of the block freed before), varint
//! odd     per free that is not a plain call of free: plain frees since the last odd one << 2 | how, varint; if how is 3,
//!         a varint follows that says what happened to the block when a process let go of it
//! marks   events since the last mark << 2 | what, varint, then its value:
//!         0 thread index · 1 ticks since the last time mark · 2 image · 3 events were folded away: 0 the thread's
//!         latest allocation is gone, n the next allocation's sequence number is larger by n
//! ```
mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

pub use decoder::Events;
pub(crate) use decoder::How;
pub use encoder::EventEncoder;

/// The most events that a block may claim. It bounds the work that a hostile block can cause.
pub const MAX_EVENTS: u64 = 1 << 26;
/// Times are rounded down to this grid. Most time marks then differ by 1 from the one before, which compresses to
/// almost nothing.
pub(crate) const TICK_NS: u64 = 100_000;
const LONG: u32 = 15;
pub(crate) const WIDE: u32 = 255;

/// How a block was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freed {
    Call,
    /// The first half of a realloc. Its allocation follows, perhaps after other threads' events. `trim.rs` also writes
    /// this for a plain free that must not count as temporary; no allocation follows then.
    Realloc,
    /// The call was not seen, but the address was allocated again. In a merged trace also: the block ended with its
    /// process (`gone.rs`).
    Implied,
    /// The process ended without freeing it. No other process holds it.
    Leaked,
    /// The process called exec, which removed it. It is neither freed nor leaked. No other process holds it.
    Replaced,
    /// The process that allocated it freed it earlier. Now the last process that had inherited it ended or called exec.
    Dropped,
}

impl Freed {
    /// True if the program freed the block. False if the block ended with its process.
    pub const fn is_by_program(self) -> bool {
        !matches!(self, Freed::Leaked | Freed::Replaced)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Alloc {
        sequence: u64,
        alloc_class: u32,
    },
    Free {
        sequence: u64,
        how: Freed,
    },
    /// A free of a block that was allocated before the recording started, or whose allocation was lost.
    UnknownFree,
    /// A process freed a block that another process still holds, because one of them inherited it. The block stays live.
    Release {
        sequence: u64,
    },
    /// The events that follow belong to this thread.
    Thread(u32),
    /// The events that follow are not older than this, in nanoseconds since the session's start.
    Time(u64),
    /// The events that follow belong to this image. Unless it is the first, an `exec` started it, and all blocks are
    /// gone.
    Image(u32),
    /// The thread's latest allocation was folded away, so none of its remaining blocks is the latest.
    LatestGone,
}

pub(crate) const ODD_REALLOC: u64 = 0;
pub(crate) const ODD_IMPLIED: u64 = 1;
pub(crate) const ODD_UNKNOWN: u64 = 2;
/// A process let go of a block. One of the numbers below follows.
pub(crate) const ODD_LET_GO: u64 = 3;
pub(crate) const LET_GO_LEAKED: u64 = 0;
pub(crate) const LET_GO_REPLACED: u64 = 1;
pub(crate) const LET_GO_DROPPED: u64 = 2;
pub(crate) const LET_GO_RELEASED: u64 = 3;
pub(crate) const MARK_THREAD: u64 = 0;
pub(crate) const MARK_TIME: u64 = 1;
pub(crate) const MARK_IMAGE: u64 = 2;
pub(crate) const MARK_FOLD: u64 = 3;
/// The value of a fold mark that means `LatestGone`. Other values skip sequence numbers.
pub(crate) const FOLD_LATEST: u64 = 0;

/// The values that an event needs but does not contain: the next sequence number, the sequence number freed last, the
/// tick, the thread and the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) sequence: u64,
    pub(crate) freed: u64,
    pub(crate) tick: u64,
    thread: u32,
    image: u32,
}
