//! The counts of a whole session, at the lowest possible cost: by allocation class, because an event names its
//! allocation class.
//!
//! Must hold: an event changes the counts of one allocation class, which are in one place in memory. Sums by stack are
//! made at the end.
use crate::costs::Costs;
use crate::counter::Peak;
use crate::definitions::{Definitions, KnownAllocClass};
use crate::walker::{Now, Sink};
use format::{ClassCounter, ClassCounts, Freed, LiveBlocks};

/// The size of an allocation class whose definition was lost. No block is this large.
const LOST: u64 = u64::MAX;

#[derive(Default)]
pub(crate) struct SessionCounter {
    classes: ClassCounter,
    /// By allocation class: blocks that ended without being freed. Empty if there are none.
    unfreed: Vec<Unfreed>,
    pub(crate) implied_frees: u64,
}

/// Blocks of one allocation class that ended without being freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unfreed {
    /// Removed by an `exec`.
    replaced: u64,
    /// Live when their process ended.
    left: u64,
}

impl SessionCounter {
    /// Adds the allocation classes that are new in the definitions.
    pub(crate) fn grow(&mut self, definitions: &Definitions) {
        let new = definitions.alloc_classes.get(self.classes.len()..).unwrap_or_default();
        for alloc_class in new {
            self.classes.define(if alloc_class.site.is_lost() { LOST } else { alloc_class.bytes });
        }
    }

    /// Counts a block that ended with its process.
    #[cold]
    fn end_unfreed(&mut self, alloc_class: u32, how: Freed) {
        if self.unfreed.len() < self.classes.len() {
            self.unfreed.resize(self.classes.len(), Unfreed::default());
        }
        if let Some(unfreed) = self.unfreed.get_mut(alloc_class as usize) {
            unfreed.left += (how == Freed::Leaked) as u64;
            unfreed.replaced += (how == Freed::Replaced) as u64;
        }
    }

    /// The costs of each allocation class, in the order of the definitions, in which every block of the trace counts once.
    pub(crate) fn by_class(&self) -> impl Iterator<Item = Costs> {
        let unfreed = self.unfreed.iter().copied().chain(std::iter::repeat(Unfreed::default()));
        self.classes.counts().zip(unfreed).map(|(counts, unfreed)| costs(&counts, unfreed))
    }

    /// The highest moment of the program's total.
    pub(crate) const fn peak(&self) -> Peak {
        peak(&self.classes)
    }

    /// Returns the costs of each site, in the order of the definitions, with blocks in the units of `KnownAllocClass::blocks`.
    pub(crate) fn sites(&self, definitions: &Definitions) -> Vec<Costs> {
        sites(&self.classes, &self.unfreed, definitions)
    }
}

/// The highest moment of the program's total.
pub(crate) const fn peak(classes: &ClassCounter) -> Peak {
    Peak::of(classes.heap(), classes.peak_event())
}

/// Returns the costs of each site, in the order of the definitions, with blocks in the units of `KnownAllocClass::blocks`.
/// `unfreed`: by allocation class; there are none of the classes that are not in the list.
pub(crate) fn sites(classes: &ClassCounter, unfreed: &[Unfreed], definitions: &Definitions) -> Vec<Costs> {
    let mut sites = vec![Costs::default(); definitions.stacks.len()];
    let unfreed = unfreed.iter().copied().chain(std::iter::repeat(Unfreed::default()));
    for ((counts, alloc_class), unfreed) in classes.counts().zip(&definitions.alloc_classes).zip(unfreed) {
        if let Some(site) = sites.get_mut(alloc_class.site.index()).filter(|_| counts.allocations > 0) {
            site.add(&weighed(costs(&counts, unfreed), alloc_class));
        }
    }
    sites
}

/// Multiplies numbers of blocks by what one of them counts for. Their bytes were counted with that.
fn weighed(costs: Costs, class: &KnownAllocClass) -> Costs {
    let blocks = |count: u64| count.saturating_mul(class.blocks as u64);
    Costs {
        allocations: blocks(costs.allocations),
        deallocations: blocks(costs.deallocations),
        temporary: blocks(costs.temporary),
        live_allocations: blocks(costs.live_allocations),
        kept_allocations: blocks(costs.kept_allocations),
        peak_allocations: blocks(costs.peak_allocations),
        size_max: class.size,
        ..costs
    }
}

fn costs(counts: &ClassCounts, Unfreed { replaced, left }: Unfreed) -> Costs {
    let bytes = |count: u64| count.saturating_mul(counts.size);
    let live = counts.live.saturating_add(left);
    let deallocations = counts.allocations.saturating_sub(live.saturating_add(replaced));
    Costs {
        deallocations,
        freed_bytes: bytes(deallocations),
        allocations: counts.allocations,
        allocated_bytes: bytes(counts.allocations),
        temporary: counts.temporary,
        temporary_bytes: bytes(counts.temporary),
        live_allocations: live,
        live_bytes: bytes(live),
        kept_allocations: live,
        kept_bytes: bytes(live),
        peak_allocations: counts.at_peak,
        peak_bytes: bytes(counts.at_peak),
        size_max: counts.size,
        ..Costs::default()
    }
}

impl Sink for SessionCounter {
    type Kept = u32;

    #[inline(always)]
    fn keep(&self, _: &Now, alloc_class: u32) -> Option<u32> {
        self.classes.size(alloc_class).filter(|size| *size != LOST).map(|_| alloc_class)
    }

    #[inline(always)]
    fn alloc(&mut self, now: &Now, alloc_class: u32, _: u32) {
        if self.classes.alloc(alloc_class) {
            self.classes.set_peak(now.time_ns, now.events);
        }
    }

    #[inline(always)]
    fn free(&mut self, _: &Now, _: u64, alloc_class: u32, how: Freed, temporary: bool) {
        self.classes.free(alloc_class, temporary);
        self.implied_frees += (how == Freed::Implied) as u64;
        if !how.is_by_program() {
            self.end_unfreed(alloc_class, how);
        }
    }

    fn end_image(&mut self, _: &Now, _: &LiveBlocks<Self::Kept>) {
        self.unfreed.resize(self.classes.len(), Unfreed::default());
        let unfreed = &mut self.unfreed;
        self.classes.end_all(|alloc_class, live| {
            if let Some(unfreed) = unfreed.get_mut(alloc_class) {
                unfreed.replaced += live;
            }
        });
    }
}
