//! How certain the numbers of a sampled recording are: half the width of the 95 % interval of each.
//!
//! Receives: a query. Returns: the errors of each stack, and of all of them together. Must hold: they belong to the costs
//! that `Engine::profile` returns for the same query. `format::Sampling` has the estimator.
use crate::costs::Costs;
use crate::counter::Counter;
use crate::definitions::{KnownAllocClass, SiteId};
use crate::engine::Engine;
use crate::folds;
use crate::pass::{Blocks, Gone};
use crate::query::Query;
use format::{FoldedRow, IntMap, Sampling, Variance};
use std::borrow::Cow;

/// The uncertainty of the costs of a group of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Variances {
    pub allocations: Variance,
    pub allocated_bytes: Variance,
    pub temporary: Variance,
    pub live_allocations: Variance,
    pub live_bytes: Variance,
    pub peak_allocations: Variance,
    pub peak_bytes: Variance,
}

impl Variances {
    /// Adds the blocks of one allocation class. `counts` has how many of them are in the trace.
    fn add(&mut self, size: u64, counts: &Costs, sampling: &Sampling) {
        let weight = sampling.weight(size);
        for (variance, count) in [
            (&mut self.allocations, counts.allocations),
            (&mut self.temporary, counts.temporary),
            (&mut self.live_allocations, counts.live_allocations),
            (&mut self.peak_allocations, counts.peak_allocations),
        ] {
            variance.add(count, weight.blocks, weight.missed);
        }
        for (variance, count) in [
            (&mut self.allocated_bytes, counts.allocations),
            (&mut self.live_bytes, counts.live_allocations),
            (&mut self.peak_bytes, counts.peak_allocations),
        ] {
            variance.add(count, weight.bytes, weight.missed);
        }
    }

    pub fn merge(&mut self, other: &Variances) {
        self.allocations.merge(&other.allocations);
        self.allocated_bytes.merge(&other.allocated_bytes);
        self.temporary.merge(&other.temporary);
        self.live_allocations.merge(&other.live_allocations);
        self.live_bytes.merge(&other.live_bytes);
        self.peak_allocations.merge(&other.peak_allocations);
        self.peak_bytes.merge(&other.peak_bytes);
    }

    /// Half the widths of the intervals, under the names of JSON outputs.
    pub fn errors(&self) -> [(&'static str, u64); 7] {
        [
            ("allocations_error", self.allocations.error()),
            ("allocated_bytes_error", self.allocated_bytes.error()),
            ("temporary_error", self.temporary.error()),
            ("leaked_allocations_error", self.live_allocations.error()),
            ("leaked_bytes_error", self.live_bytes.error()),
            ("peak_allocations_error", self.peak_allocations.error()),
            ("peak_bytes_error", self.peak_bytes.error()),
        ]
    }
}

/// How certain the numbers of a profile are.
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    pub totals: Variances,
    sites: IntMap<SiteId, Variances>,
}

impl Intervals {
    /// `counts`: of each class, how many of its blocks are in the trace.
    fn new(classes: &[KnownAllocClass], counts: &[Costs], sampling: &Sampling) -> Self {
        let mut intervals = Intervals::default();
        for (class, counts) in classes.iter().zip(counts).filter(|(_, counts)| !counts.is_zero()) {
            let Some(site) = class.site.number() else { continue };
            intervals.sites.entry(site).or_default().add(class.size, counts, sampling);
        }
        for variances in intervals.sites.values() {
            intervals.totals.merge(variances);
        }
        intervals
    }

    pub fn of(&self, site: SiteId) -> Variances {
        self.sites.get(&site).copied().unwrap_or_default()
    }
}

impl Engine {
    /// How certain the profile of a query is. `None` if every block was recorded.
    pub fn intervals(&self, blocks: &mut dyn Blocks, query: &Query) -> Result<Option<Intervals>, Gone> {
        let Some(sampling) = self.definitions.session.sampling else { return Ok(None) };
        let (range, chosen) = (self.range(query), self.chosen(query));
        let selection = self.selection(blocks, query, &range)?;
        let classes = self.alloc_classes_by_size(query);
        // Each class is a group of its own, in which every block of the trace counts once.
        let own_groups = classes.iter().zip(0u32..).map(|(class, number)| {
            let class = class.regrouped(|site| chosen.has(site).then_some(number));
            KnownAllocClass { blocks: 1, ..class }
        });
        let counter = Counter::new(Cow::Owned(own_groups.collect()), classes.len(), selection);
        let (costs, _) = self.costs_by_walk(blocks, &range, counter)?;
        Ok(Some(Intervals::new(&classes, &costs, &sampling)))
    }

    /// How certain the numbers of the whole session are, without a walk. `None` if every block was recorded.
    pub fn whole_intervals(&self) -> Option<Intervals> {
        let sampling = self.definitions.session.sampling?;
        let mut counts = self.by_class()?;
        let classes = &self.definitions.alloc_classes;
        let own_group = |row: &FoldedRow| {
            let class = *classes.get(row.alloc_class as usize)?;
            Some((row.alloc_class as usize, KnownAllocClass { blocks: 1, ..class }))
        };
        for part in &self.definitions.folded {
            folds::add(part, true, &mut counts, own_group);
        }
        if let Some(part) = self.folded_peak() {
            folds::set_peak(part, &mut counts, own_group);
        }
        Some(Intervals::new(classes, &counts, &sampling))
    }
}
