//! The invariants of the module index, which a build with the feature `checks` checks at every event.
use super::{Entry, Index, LIVE, Modules};
use core::sync::atomic::Ordering;

impl Modules {
    /// Returns true if the current index is sorted and no two modules overlap, or if the index was replaced during the
    /// check (see `holds`).
    pub fn is_in_order(&self) -> bool {
        self.holds(Index::is_in_order)
    }

    /// Returns true if `instance` is the only module that holds `address`, or if it is `None` and no module holds it.
    /// The search is linear, so that it also works on an index that is not sorted.
    pub fn is_only(&self, address: u64, instance: Option<u16>) -> bool {
        self.holds(|index| {
            let mut holding = index.in_use().iter().filter(|entry| entry.holds(address));
            let found = holding.next().map(|entry| entry.instance.load(Ordering::Relaxed) as u16);
            // If the loader is not watched, a frame may be recorded without its module, see `dl_find_object.rs`.
            holding.next().is_none() && (found == instance || instance.is_none() && crate::dl_find_object::is_on())
        })
    }

    /// Returns true if `is_right` holds for the current index, or if the index was replaced during the check, because
    /// then `is_right` may have seen it half written.
    fn holds(&self, is_right: impl Fn(&Index) -> bool) -> bool {
        let generation = self.generation();
        let is_right = self.indexes.get(generation as usize & 1).is_none_or(is_right);
        is_right || self.generation() != generation
    }
}

impl Index {
    fn in_use(&self) -> &[Entry] {
        let count = (self.count.load(Ordering::Relaxed) as usize).min(LIVE);
        self.entries.get(..count).unwrap_or(&[])
    }

    fn is_in_order(&self) -> bool {
        let mut end_before = 0;
        self.in_use().iter().all(|entry| {
            let (start, end) = (entry.start.load(Ordering::Relaxed), entry.end.load(Ordering::Relaxed));
            let is_after = end_before <= start && start < end;
            end_before = end;
            is_after
        })
    }
}

impl Entry {
    fn holds(&self, address: u64) -> bool {
        self.start.load(Ordering::Relaxed) <= address && address < self.end.load(Ordering::Relaxed)
    }
}
