//! Folded events: a file with a size limit replaces its oldest events by their counts.
//!
//! Must hold: a range contains a folded part as a whole, or not at all. A range that begins with the session and does
//! not end before the cut counts all of it. Any other range counts nothing of it, and sees the blocks that survived the
//! cut like all others.
use crate::costs::Costs;
use crate::counter::{Counter, Left, Peak};
use crate::definitions::{Definitions, KnownAllocClass};
use format::{Folded, FoldedRow};

/// Returns the folded part with the highest peak, if that peak is at least as high as `counted`, the peak of the events
/// that are in the file.
pub(crate) fn peaking<'a>(parts: impl Iterator<Item = &'a Folded>, counted: Peak) -> Option<&'a Folded> {
    // Of equal peaks the first counts, which is the folded one.
    parts.filter(|part| part.peak_bytes > 0 && part.peak_bytes >= counted.bytes).max_by_key(|part| part.peak_bytes)
}

pub(crate) const fn peak_of(part: &Folded) -> Peak {
    Peak { bytes: part.peak_bytes, allocations: part.peak_allocations, time_ns: part.peak_time_ns, event: 0 }
}

/// Adds the counts of a part. `reaches_end`: the range does, so what processes had not freed when they ended is leaked.
/// `group`: the group of a row, and the class of its blocks. Blocks are counted in the units of a counter.
pub(crate) fn add(
    part: &Folded,
    reaches_end: bool,
    costs: &mut [Costs],
    group: impl Fn(&FoldedRow) -> Option<(usize, KnownAllocClass)>,
) {
    for row in part.rows.iter().filter(|row| row.allocations > 0) {
        let Some((group, class)) = group(row) else { continue };
        let Some(costs) = costs.get_mut(group) else { continue };
        let blocks = |count: u64| count.saturating_mul(class.blocks as u64);
        let bytes = |count: u64| count.saturating_mul(class.bytes);
        costs.add(&Costs {
            allocations: blocks(row.allocations),
            allocated_bytes: bytes(row.allocations),
            deallocations: blocks(row.deallocations),
            freed_bytes: bytes(row.deallocations),
            temporary: blocks(row.temporary),
            temporary_bytes: bytes(row.temporary),
            lifetime_ns: blocks(row.lifetime_ns()),
            size_max: class.size,
            ..Costs::default()
        });
        if reaches_end {
            Left::kept(blocks(row.leaked), bytes(row.leaked)).add_to(costs);
        }
    }
}

/// Sets what the groups held at the peak, which is in this part.
pub(crate) fn set_peak(
    part: &Folded,
    costs: &mut [Costs],
    group: impl Fn(&FoldedRow) -> Option<(usize, KnownAllocClass)>,
) {
    costs.iter_mut().for_each(|costs| (costs.peak_bytes, costs.peak_allocations) = (0, 0));
    for row in part.rows.iter().filter(|row| row.at_peak > 0) {
        let Some((group, class)) = group(row) else { continue };
        let Some(costs) = costs.get_mut(group) else { continue };
        let (blocks, bytes) =
            (row.at_peak.saturating_mul(class.blocks as u64), row.at_peak.saturating_mul(class.bytes));
        costs.peak_bytes = costs.peak_bytes.saturating_add(bytes);
        costs.peak_allocations = costs.peak_allocations.saturating_add(blocks);
    }
}

impl Definitions {
    /// The time of the latest cut. Events before it are known as sums only. `None` if the file has all events.
    pub fn folded_until_ns(&self) -> Option<u64> {
        self.folded.iter().map(|part| part.until_ns).max()
    }

    pub(crate) fn group_of_row(&self, row: &FoldedRow) -> Option<(usize, KnownAllocClass)> {
        let class = *self.alloc_classes.get(row.alloc_class as usize)?;
        Some((class.site.index(), class))
    }
}

impl Counter<'_> {
    /// The group of a row and the class of its blocks. The lifetime of a single folded block is not known, so a query
    /// for lifetimes does not count folded blocks.
    pub(crate) fn group_of_row(&self, row: &FoldedRow) -> Option<(usize, KnownAllocClass)> {
        let class = self.alloc_class(row.alloc_class)?;
        self.selects_folded(row.thread).then(|| (self.group(class.site, row.thread), class))
    }
}
