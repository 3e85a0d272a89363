//! The most recent frees, to recognise an address that was freed twice in a row.
use super::address;
use channel::{Event, Stamp};

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
    pub fn note(&mut self, event: &Event) {
        if let Event::Free { address, stamp, .. } = *event
            && let Some(place) = self.places.get_mut(self.next & (Self::COUNT - 1))
        {
            *place = (address, stamp);
            self.next = self.next.wrapping_add(1);
        }
    }

    /// True if the event's address was freed at most `wait` stamps earlier.
    pub fn has(&self, event: &Event, wait: u64) -> bool {
        let oldest = event.stamp().saturating_sub(wait);
        self.places.iter().any(|(freed, stamp)| *freed == address(event) && *stamp >= oldest)
    }
}
