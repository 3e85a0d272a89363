//! The counts of a whole session, at the lowest possible cost: by allocation class, because an event names its
//! allocation class.
//!
//! Must hold: an event changes the counts of one allocation class, which are in one place in memory. Sums by stack are
//! made at the end.
use crate::costs::Costs;
use crate::counter::Peak;
use crate::definitions::Definitions;
use crate::live::Live;
use crate::walker::{Now, Sink};
use format::{Freed, IntMap, PeakTracker};

/// The size of an allocation class whose definition was lost. No block is this large.
const LOST: u64 = u64::MAX;

/// The counts of one allocation class.
///
/// While a heap grows, nearly every event is a new peak of the program, so a new peak must not visit every allocation
/// class. It only increments an epoch. An allocation class copies its live count to `at_peak` before its first change
/// after that.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Use {
    size: u64,
    allocations: u64,
    /// Carries beyond 32 bits are in `SessionCounter::carried`.
    temporary: u32,
    live: u32,
    at_peak: u32,
    epoch: u32,
}

/// Half a cache line.
const _: () = assert!(size_of::<Use>() == 32);

#[derive(Default)]
pub(crate) struct SessionCounter {
    uses: Vec<Use>,
    /// By allocation class: blocks that were live when an image ended. Empty if no program was replaced.
    gone: Vec<u64>,
    /// By allocation class: temporary blocks beyond 32 bits.
    carried: IntMap<u32, u64>,
    epoch: u32,
    heap: PeakTracker,
    /// Events up to and including the one that made the peak.
    peak_event: u64,
    pub(crate) implied_frees: u64,
}

impl SessionCounter {
    /// Adds the allocation classes that are new in the definitions.
    pub(crate) fn grow(&mut self, definitions: &Definitions) {
        let new = definitions.alloc_classes.get(self.uses.len()..).unwrap_or_default();
        self.uses.extend(new.iter().map(|alloc_class| Use {
            size: if alloc_class.site.is_lost() { LOST } else { alloc_class.size },
            allocations: 0,
            temporary: 0,
            live: 0,
            at_peak: 0,
            epoch: self.epoch,
        }));
    }

    /// The highest moment of the program's total.
    pub(crate) const fn peak(&self) -> Peak {
        Peak::of(&self.heap, self.peak_event)
    }

    /// Returns the costs of each site, in the order of the definitions.
    pub(crate) fn sites(&self, definitions: &Definitions) -> Vec<Costs> {
        let mut sites = vec![Costs::default(); definitions.stacks.len()];
        let gone = self.gone.iter().copied().chain(std::iter::repeat(0));
        for (((used, alloc_class), gone), number) in
            self.uses.iter().zip(&definitions.alloc_classes).zip(gone).zip(0u32..)
        {
            let Some(site) = sites.get_mut(alloc_class.site.index()).filter(|_| used.allocations > 0) else {
                continue;
            };
            let at_peak = if used.epoch == self.epoch { used.at_peak } else { used.live } as u64;
            let temporary = used.temporary as u64 + self.carried.get(&number).copied().unwrap_or(0);
            let bytes = |count: u64| count.saturating_mul(used.size);
            let deallocations = used.allocations.saturating_sub(used.live as u64 + gone);
            site.add(&Costs {
                deallocations,
                freed_bytes: bytes(deallocations),
                allocations: used.allocations,
                allocated_bytes: bytes(used.allocations),
                temporary,
                temporary_bytes: bytes(temporary),
                live_allocations: used.live as u64,
                live_bytes: bytes(used.live as u64),
                kept_allocations: used.live as u64,
                kept_bytes: bytes(used.live as u64),
                peak_allocations: at_peak,
                peak_bytes: bytes(at_peak),
                size_max: used.size,
                ..Costs::default()
            });
        }
        sites
    }

    /// Not inlined, so that the hot loop need not keep the current time in a register.
    #[inline(never)]
    fn new_peak(&mut self, now: &Now) {
        self.heap.set_peak(now.time_ns);
        self.peak_event = now.events;
        self.epoch += 1;
        if self.epoch == u32::MAX {
            self.first_epoch();
        }
    }

    /// The epoch counter is at its end: starts again with 0.
    #[cold]
    fn first_epoch(&mut self) {
        for used in &mut self.uses {
            used.settle(self.epoch);
            used.epoch = 0;
        }
        self.epoch = 0;
    }
}

impl Use {
    #[inline]
    fn settle(&mut self, epoch: u32) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.at_peak = self.live;
        }
    }
}

impl Sink for SessionCounter {
    type Kept = u32;

    #[inline(always)]
    fn keep(&self, _: &Now, alloc_class: u32) -> Option<u32> {
        self.uses.get(alloc_class as usize).filter(|used| used.size != LOST).map(|_| alloc_class)
    }

    #[inline(always)]
    fn alloc(&mut self, now: &Now, alloc_class: u32, _: u32) {
        let Some(used) = self.uses.get_mut(alloc_class as usize) else { return };
        used.settle(self.epoch);
        used.allocations += 1;
        used.live = used.live.wrapping_add(1);
        if self.heap.alloc(used.size) {
            self.new_peak(now);
        }
    }

    #[inline(always)]
    fn free(&mut self, _: &Now, _: u64, alloc_class: u32, how: Freed, temporary: bool) {
        let Some(used) = self.uses.get_mut(alloc_class as usize) else { return };
        used.settle(self.epoch);
        used.live = used.live.wrapping_sub(1);
        if temporary {
            used.temporary = used.temporary.wrapping_add(1);
            if used.temporary == 0 {
                *self.carried.entry(alloc_class).or_default() += 1 << 32;
            }
        }
        self.heap.free(used.size);
        self.implied_frees += (how == Freed::Implied) as u64;
    }

    fn end_image(&mut self, _: &Now, _: &Live<Self::Kept>) {
        self.gone.resize(self.uses.len(), 0);
        for (used, gone) in self.uses.iter_mut().zip(&mut self.gone) {
            used.settle(self.epoch);
            *gone += std::mem::take(&mut used.live) as u64;
        }
        self.heap.free_all();
    }
}
