//! Hands ordered events to the consumer, and corrects the order where two threads stamped an address in the wrong order.
//!
//! Receives: ordered events. Returns: the same events to a `Consumer`, in an order in which every free follows its allocation.
//! Must hold: only frees move, so the order of allocations, and with it their numbers, is that of their stamps.
//!
//! ```text
//! an allocation of a live address     the next free of that address is taken before it
//! a free of an address that is free   it is taken right after the next allocation of that address
//! ```
use super::Patience;
use super::consumer::{Consumer, Verdict};
use super::item::Item;
use super::recent_frees::RecentFrees;
use super::slice::Items;
use channel::Stamp;

/// Events that are in order and were not taken yet.
#[derive(Debug, Default)]
pub struct Pending {
    items: Items,
    /// The index of the next event.
    at: usize,
    frees: RecentFrees,
}

/// Why no more events were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    All,
    /// The next event can be taken only when all events up to this stamp are here.
    Needs(Stamp),
}

impl Pending {
    pub const fn is_empty(&self) -> bool {
        self.at == self.items.count()
    }

    /// True if an event of this ring is here.
    pub fn has(&self, source: u32) -> bool {
        self.rest().iter().any(|item| item.source == source)
    }

    fn rest(&self) -> &[Item] {
        self.items.get().get(self.at..).unwrap_or_default()
    }

    /// Remembers an event that was taken without being here.
    #[inline(always)]
    pub fn note(&mut self, item: &Item) {
        self.frees.note(item);
    }

    /// Puts an event here that the consumer refused. There must be no other.
    pub fn put(&mut self, item: Item) {
        self.accept(&mut Items::one(item));
    }

    /// Appends events, and removes them from `items`.
    pub fn accept(&mut self, items: &mut Items) {
        // What was taken is removed, also if some event always waits for another. Not every time, because the rest must be moved.
        if self.is_empty() || self.at > self.items.count() / 2 {
            self.items.remove_first(self.at);
            self.at = 0;
        }
        self.items.append(items);
    }

    /// How many events are held here, those that were taken included.
    #[cfg(test)]
    pub const fn held(&self) -> usize {
        self.items.count()
    }

    /// Takes events in order. All events with stamps below `complete` are here.
    pub fn take(&mut self, complete: Stamp, patience: Patience, consumer: &mut impl Consumer) -> Took {
        loop {
            let rest = self.items.get().get(self.at..).unwrap_or_default();
            let (taken, verdict) = consumer.take_all(rest, &mut self.frees);
            self.at += taken;
            if verdict == Verdict::Taken {
                return Took::All;
            }
            if let Some(until) = self.resolve(verdict, complete, patience, consumer) {
                return Took::Needs(until);
            }
        }
    }

    /// Decides about the next event, which the consumer refused. Returns a stamp if the partner may still come, with a stamp of
    /// at most that.
    #[cold]
    fn resolve(
        &mut self,
        verdict: Verdict,
        complete: Stamp,
        patience: Patience,
        consumer: &mut impl Consumer,
    ) -> Option<Stamp> {
        let item = *self.rest().first()?;
        let wait = if verdict == Verdict::StillLive { patience.free } else { patience.alloc };
        let until = item.stamp().saturating_add(wait);
        // Two frees in a row: thread A frees a block and is given its address again. Thread B frees that second block with an older
        // stamp than A's free, so B's free was taken for the first block. The allocation that A's free needs is then in A's own
        // ring. An address that was live before the recording started is freed only once.
        let may_be_own = verdict == Verdict::NotLive && self.frees.has(&item, wait);
        let wanted = |other: &Item| {
            (may_be_own || other.source != item.source)
                && other.address == item.address
                && if verdict == Verdict::StillLive { other.is_free() } else { other.is_alloc() }
        };
        let near = self.rest().iter().take_while(|other| other.stamp() <= until);
        let found = near.skip(1).position(wanted);
        match found {
            Some(distance) => {
                let moved = self.items.get_mut().get_mut(self.at..=self.at + 1 + distance)?;
                if verdict == Verdict::StillLive {
                    moved.rotate_right(1)
                } else {
                    moved.rotate_left(1)
                }
                None
            }
            None if complete <= until => Some(until),
            None => {
                consumer.force(&item);
                self.at += 1;
                None
            }
        }
    }
}
