//! The merge of all rings into one order of events.
//!
//! Receives: the queues of all rings, and a watermark below which no ring gets another event. Returns: all events below the watermark,
//! one after the other, to a `Consumer`. Must hold: events of one ring keep their order, and at equal stamps a free comes first.
//!
//! Stamps are taken without a fence. Two threads that hand an address to each other within a few hundred cycles can
//! therefore stamp in the wrong order. The consumer notices (an allocation of a live address, or a free of an address that is not
//! live), and the merge looks ahead for the other event (`partner.rs`). Only frees move.
mod consumer;
mod item;
mod ordering;
mod partner;
mod pipeline;
mod recent_frees;
mod slice;
mod source;
#[cfg(test)]
pub mod tests;

use crate::queue::Store;
use channel::Stamp;
pub use consumer::{Consumer, NumberSource, Verdict, take_each};
pub use item::{Item, Origin};
pub use ordering::Ordering;
use partner::{Pending, Took};
pub use pipeline::{Learner, MOST_THREADS};
pub use recent_frees::RecentFrees;
use slice::Slice;

/// Why the merge stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every event below the watermark was taken.
    Done,
    /// An event waits for one that has not arrived yet. Call again with a later watermark.
    Waiting,
    /// The consumer is full. Call again when it is not.
    Full,
    /// Some thread may be waiting for ring space by now. Look at the rings, then call again.
    Paused,
}

/// How far apart, in stamps, two events of one address can be in the wrong order.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// An allocation waits this long for the free of the block before it.
    pub free: u64,
    /// A free waits this long for its allocation. This time is short, because the block may have been live before the recording
    /// started. The next allocation of its address is then another block.
    pub alloc: u64,
}

#[derive(Debug)]
pub struct Merge {
    ordering: Ordering,
    /// Empty; kept for its room.
    slice: Slice,
    pending: Pending,
    /// All events with keys below this are in `pending` or were taken.
    complete: u64,
}

/// Rings of one thread: one for its events, one for events that happen within them.
const RINGS: usize = 2;
/// Events between two checks of the consumer and the rings. They take a small part of the time in which a thread can fill
/// half of its ring.
const STRETCH: usize = 4096;

/// Keys of events below the watermark are below this.
const fn limit(watermark: Stamp) -> u64 {
    let most = Stamp::MAX >> 1;
    (if watermark < most { watermark } else { most }) << 1
}

impl Merge {
    pub fn new(store: Store) -> Self {
        Merge { ordering: Ordering::new(store), slice: Slice::default(), pending: Pending::default(), complete: 0 }
    }

    /// The queues, which take the words of rings.
    pub const fn ordering(&mut self) -> &mut Ordering {
        &mut self.ordering
    }

    /// True when nothing of this source is left to merge.
    pub fn is_drained(&self, source: u32) -> bool {
        self.ordering.source(source).is_none_or(|source| source.queue.is_empty()) && !self.pending.has(source)
    }

    /// True when nothing of any source is left.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.ordering.is_empty()
    }

    /// How many events of a source left its queue, since its ring was made.
    pub fn taken(&self, source: u32) -> u64 {
        self.ordering.source(source).map_or(0, |source| source.taken)
    }

    /// Words that were discarded because they were no records. Words that cannot be read back from the spill file are not among
    /// them; the audit finds those.
    pub const fn broken_words(&self) -> u64 {
        self.ordering.broken_words()
    }

    /// Hands every event with a stamp below `watermark` to `consumer`.
    pub fn run(
        &mut self,
        watermark: Stamp,
        patience: Patience,
        consumer: &mut (impl Consumer + NumberSource),
    ) -> Stopped {
        let limit = limit(watermark);
        let mut done = 0;
        loop {
            while let Took::Needs(until) = self.pending.take(self.complete >> 1, patience, consumer) {
                if self.complete >= limit {
                    return Stopped::Waiting;
                }
                let most = limit.min(until.saturating_add(1).saturating_mul(2));
                self.gather(most, consumer);
            }
            if consumer.is_full() {
                return Stopped::Full;
            }
            if done >= STRETCH {
                return Stopped::Paused;
            }
            match self.run_straight(limit, consumer) {
                Some(events) => done += events,
                None => match self.gather(limit, consumer) {
                    0 => return Stopped::Done,
                    events => done += events,
                },
            }
        }
    }

    /// Passes some of the next events straight to the consumer, if that is cheaper than to order and announce them. Returns their number.
    fn run_straight(&mut self, limit: u64, consumer: &mut (impl Consumer + NumberSource)) -> Option<usize> {
        if consumer.wants_slices() {
            return None;
        }
        // A thread that is alone receives no block of another thread, so its frees need not be remembered.
        let is_shared = self.ordering.sources() > RINGS;
        let pending = &mut self.pending;
        let (events, refused) = self.ordering.run_straight((limit, STRETCH), consumer, |item| {
            if is_shared {
                pending.note(item);
            }
        })?;
        if let Some(item) = refused {
            self.pending.put(item);
        }
        // One more, so that a run without events counts too.
        Some(events + 1)
    }

    /// Appends the next events below `limit` to `pending`. Returns their number.
    fn gather(&mut self, limit: u64, numbers: &mut impl NumberSource) -> usize {
        let (start, end) = self.ordering.decode(limit, numbers, &mut self.slice);
        self.complete = self.complete.max(end);
        let events = self.slice.count();
        self.slice.sort(start);
        self.pending.accept(&mut self.slice.sorted);
        events
    }
}
