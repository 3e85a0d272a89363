//! What must be true of the modules at every event, for the checks of a build with the feature `checks`.
use super::{Entry, Index, LIVE, Modules};
use core::sync::atomic::Ordering;

impl Modules {
    /// True if the index in force is sorted and no two modules overlap.
    pub fn is_in_order(&self) -> bool {
        self.holds(Index::is_in_order)
    }

    /// True if `instance` is the one module that holds `address`; `None` means that no module holds it. Modules are
    /// looked at one after the other, so this is true of an index that is not sorted, too.
    pub fn is_only(&self, address: u64, instance: Option<u16>) -> bool {
        self.holds(|index| {
            let mut holding = index.in_use().iter().filter(|entry| entry.holds(address));
            let found = holding.next().map(|entry| entry.instance.load(Ordering::Relaxed) as u16);
            // Where the loader is not watched, a frame may be left without its module, see `dl_find_object.rs`.
            holding.next().is_none() && (found == instance || instance.is_none() && crate::dl_find_object::is_on())
        })
    }

    /// True also if the index was replaced meanwhile: then what was looked at may be half of a new one.
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
