//! The receiver of the merged events, and what it answers to each of them.
use super::item::Item;
use super::recent_frees::RecentFrees;
use channel::{Path, StackId};

/// The consumer's answer to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// An allocation of a live address. The free of the earlier block must come first.
    StillLive,
    /// A free of an address that is not live. Its allocation may still be in a ring.
    NotLive,
}

/// Gives numbers to what rings define.
pub trait NumberSource {
    /// A ring defines new stacks. The same definition may come more than once.
    fn define(&mut self, process: u16, source: u32, path: &Path<'_>);
    /// Returns the number by which the consumer knows the size and the stack of an allocation.
    fn number(&mut self, source: u32, address: u64, size: u64, stack: StackId) -> u32;
}

pub trait Consumer {
    /// True if the consumer is faster when it gets many events at once: its tables are so large that they are not in the processor's caches.
    fn wants_slices(&self) -> bool;
    fn take(&mut self, item: &Item) -> Verdict;
    /// Takes the items in order, up to the first one that it refuses. Returns how many it took, and its verdict on the next one. Frees
    /// must be noted in `frees`.
    #[inline]
    fn take_all(&mut self, items: &[Item], frees: &mut RecentFrees) -> (usize, Verdict) {
        take_each(items, frees, |item| self.take(item))
    }
    /// Takes an event that `take` refused, because the event that it misses does not come.
    fn force(&mut self, item: &Item);
    /// True if the consumer takes no more events for now.
    fn is_full(&self) -> bool;
}

/// A `take_all` of single steps.
#[inline(always)]
pub fn take_each(items: &[Item], frees: &mut RecentFrees, mut take: impl FnMut(&Item) -> Verdict) -> (usize, Verdict) {
    for (at, item) in items.iter().enumerate() {
        match take(item) {
            Verdict::Taken => frees.note(item),
            refused => return (at, refused),
        }
    }
    (items.len(), Verdict::Taken)
}
