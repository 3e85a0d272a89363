//! The counts of a whole session, at the lowest possible cost: by allocation class, because an event names its
//! allocation class.
//!
//! Must hold: an event changes the counts of one allocation class, which are in one place in memory. Sums by stack are
//! made at the end.
use crate::costs::Costs;
use crate::counter::Peak;
use crate::definitions::Definitions;
use crate::walker::{Now, Sink};
use format::{ClassCounter, ClassCounts, Freed, LiveBlocks};

/// The size of an allocation class whose definition was lost. No block is this large.
const LOST: u64 = u64::MAX;

#[derive(Default)]
pub(crate) struct SessionCounter {
    classes: ClassCounter,
    /// By allocation class: blocks that were live when an image ended. Empty if no program was replaced.
    gone: Vec<u64>,
    pub(crate) implied_frees: u64,
}

impl SessionCounter {
    /// Adds the allocation classes that are new in the definitions.
    pub(crate) fn grow(&mut self, definitions: &Definitions) {
        let new = definitions.alloc_classes.get(self.classes.len()..).unwrap_or_default();
        for alloc_class in new {
            self.classes.define(if alloc_class.site.is_lost() { LOST } else { alloc_class.size });
        }
    }

    /// The highest moment of the program's total.
    pub(crate) const fn peak(&self) -> Peak {
        peak(&self.classes)
    }

    /// Returns the costs of each site, in the order of the definitions.
    pub(crate) fn sites(&self, definitions: &Definitions) -> Vec<Costs> {
        sites(&self.classes, &self.gone, definitions)
    }
}

/// The highest moment of the program's total.
pub(crate) const fn peak(classes: &ClassCounter) -> Peak {
    Peak::of(classes.heap(), classes.peak_event())
}

/// Returns the costs of each site, in the order of the definitions. `gone`: by allocation class, blocks that disappeared
/// without being freed; those that are not in the list are 0.
pub(crate) fn sites(classes: &ClassCounter, gone: &[u64], definitions: &Definitions) -> Vec<Costs> {
    let mut sites = vec![Costs::default(); definitions.stacks.len()];
    let gone = gone.iter().copied().chain(std::iter::repeat(0));
    for ((counts, alloc_class), gone) in classes.counts().zip(&definitions.alloc_classes).zip(gone) {
        if let Some(site) = sites.get_mut(alloc_class.site.index()).filter(|_| counts.allocations > 0) {
            site.add(&costs(&counts, gone));
        }
    }
    sites
}

fn costs(counts: &ClassCounts, gone: u64) -> Costs {
    let bytes = |count: u64| count.saturating_mul(counts.size);
    let deallocations = counts.allocations.saturating_sub(counts.live + gone);
    Costs {
        deallocations,
        freed_bytes: bytes(deallocations),
        allocations: counts.allocations,
        allocated_bytes: bytes(counts.allocations),
        temporary: counts.temporary,
        temporary_bytes: bytes(counts.temporary),
        live_allocations: counts.live,
        live_bytes: bytes(counts.live),
        kept_allocations: counts.live,
        kept_bytes: bytes(counts.live),
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
    }

    fn end_image(&mut self, _: &Now, _: &LiveBlocks<Self::Kept>) {
        self.gone.resize(self.classes.len(), 0);
        let gone = &mut self.gone;
        self.classes.end_all(|alloc_class, live| {
            if let Some(gone) = gone.get_mut(alloc_class) {
                *gone += live;
            }
        });
    }
}
