//! The most recent frees, to recognise an address that was freed twice in a row.
use super::item::Item;
use channel::Stamp;

/// A circular buffer of addresses and stamps.
#[derive(Debug)]
pub struct RecentFrees {
    places: Box<[(u64, Stamp)]>,
    next: usize,
}

impl Default for RecentFrees {
    fn default() -> Self {
        RecentFrees { places: vec![(0, 0); Self::COUNT].into(), next: 0 }
    }
}

impl RecentFrees {
    /// Covers more time than a free waits for its allocation. A power of two.
    const COUNT: usize = 1024;

    /// Remembers the event if it is a free.
    #[inline(always)]
    pub fn note(&mut self, item: &Item) {
        if let Some(place) = self.places.get_mut(self.next & (Self::COUNT - 1)) {
            *place = (item.address, item.stamp());
            // No branch, because it would be mispredicted often. What is not a free is overwritten by the next event.
            self.next = self.next.wrapping_add(item.is_free() as usize);
        }
    }

    /// True if the event's address was freed at most `wait` stamps earlier.
    pub fn has(&self, item: &Item, wait: u64) -> bool {
        let oldest = item.stamp().saturating_sub(wait);
        let next = self.next & (Self::COUNT - 1);
        let frees = self.places.iter().enumerate().filter(|(index, _)| *index != next);
        frees.into_iter().any(|(_, (freed, stamp))| *freed == item.address && *stamp >= oldest)
    }
}
