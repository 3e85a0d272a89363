//! Events that are counted but not there any more: a file with a bound on its size folds its oldest events into their counts.
//!
//! What must hold: a range has a folded part as a whole, or nothing of it. So what begins with the session counts all of it; what begins later
//! counts nothing, and finds what lived at the cut as blocks like all others.
use crate::costs::Costs;
use crate::counter::{Counter, Peak};
use crate::definitions::{Definitions, KnownAllocClass};
use format::{Folded, FoldedRow};

/// The part that holds the highest moment, if that is not among the events that are there.
pub(crate) fn peaking<'a>(parts: impl Iterator<Item = &'a Folded>, counted: Peak) -> Option<&'a Folded> {
    // Of equal ones the first counts, which is the folded one.
    parts.filter(|part| part.peak_bytes > 0 && part.peak_bytes >= counted.bytes).max_by_key(|part| part.peak_bytes)
}

pub(crate) const fn peak_of(part: &Folded) -> Peak {
    Peak { bytes: part.peak_bytes, allocations: part.peak_allocations, time_ns: part.peak_time_ns, event: 0 }
}

/// Adds the counts of a part. `group`: where the blocks of a row count, and their size.
pub(crate) fn add(part: &Folded, costs: &mut [Costs], group: impl Fn(&FoldedRow) -> Option<(usize, u64)>) {
    for row in part.rows.iter().filter(|row| row.allocations > 0) {
        let Some((group, size)) = group(row) else { continue };
        let Some(costs) = costs.get_mut(group) else { continue };
        let bytes = |count: u64| count.saturating_mul(size);
        costs.add(&Costs {
            allocations: row.allocations,
            allocated_bytes: bytes(row.allocations),
            deallocations: row.deallocations,
            freed_bytes: bytes(row.deallocations),
            temporary: row.temporary,
            temporary_bytes: bytes(row.temporary),
            lifetime_ns: row.lifetime_ns(),
            size_max: size,
            ..Costs::default()
        });
    }
}

/// The highest moment is in this part: what the groups held then.
pub(crate) fn set_peak(part: &Folded, costs: &mut [Costs], group: impl Fn(&FoldedRow) -> Option<(usize, u64)>) {
    costs.iter_mut().for_each(|costs| (costs.peak_bytes, costs.peak_allocations) = (0, 0));
    for row in part.rows.iter().filter(|row| row.at_peak > 0) {
        let Some((group, size)) = group(row) else { continue };
        let Some(costs) = costs.get_mut(group) else { continue };
        costs.peak_bytes = costs.peak_bytes.saturating_add(row.at_peak.saturating_mul(size));
        costs.peak_allocations = costs.peak_allocations.saturating_add(row.at_peak);
    }
}

impl Definitions {
    /// The latest cut: what happened before it is known in sum only. `None`: every event is there.
    pub fn folded_until_ns(&self) -> Option<u64> {
        self.folded.iter().map(|part| part.until_ns).max()
    }

    pub(crate) fn group_of_row(&self, row: &FoldedRow) -> Option<(usize, u64)> {
        let KnownAllocClass { size, site } = *self.alloc_classes.get(row.alloc_class as usize)?;
        Some((site.index(), size))
    }
}

impl Counter<'_> {
    /// How long a folded block lived is not known: where that matters, it does not count.
    pub(crate) fn group_of_row(&self, row: &FoldedRow) -> Option<(usize, u64)> {
        let KnownAllocClass { size, site } = self.alloc_class(row.alloc_class)?;
        self.selects_folded(row.thread).then(|| (self.group(site, row.thread), size))
    }
}
