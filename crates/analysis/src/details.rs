//! Costs by stack and thread, and numbers about each stack that only some formats of other tools have.
//!
//! Receives: a query and the blocks of events. Must hold: the costs of all rows of a stack add up to its costs in the
//! profile of the same query.
use crate::costs::Costs;
use crate::counter::{Birth, Counter};
use crate::definitions::{KnownAllocClass, SiteId};
use crate::engine::Engine;
use crate::pass::{Blocks, Gone};
use crate::profile::Range;
use crate::query::Query;
use format::LiveBlocks;
use std::borrow::Cow;

/// A stack, or the part of it that one thread allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    pub site: SiteId,
    /// The index of the thread that allocated. `None` if the costs are those of all threads.
    pub thread: Option<u32>,
    /// The index of the allocator in `Definitions::allocators`. `None` if the costs are those of all allocators.
    pub allocator: Option<usize>,
    pub costs: Costs,
    /// The blocks that were live at the row's own maximum (`own_peak_bytes`).
    pub own_peak_allocations: u64,
    /// The sum of the ages of the blocks that are live when the range ends.
    pub live_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Details {
    pub range: Range,
    /// Every row that has any cost, sorted by stack, then by thread.
    pub rows: Vec<Detail>,
    /// When the program's total was highest within the range.
    pub peak_time_ns: u64,
}

impl Engine {
    /// Walks over the events of the query's range. `by_thread`: each stack has a row for each thread that allocated
    /// there.
    pub fn details(&self, blocks: &mut dyn Blocks, query: &Query, by_thread: bool) -> Result<Details, Gone> {
        let range = self.range(query);
        let chosen = self.chosen(query);
        let selection = self.selection(blocks, query, &range)?;
        let alloc_classes = self.alloc_classes_by_size(query);
        let wanted = alloc_classes.iter().map(|class| class.regrouped(|site| chosen.has(site).then_some(site)));
        let counter = Counter::new(Cow::Owned(wanted.collect()), self.definitions.site_count(), selection);
        let counter = if by_thread { counter.by_pairs() } else { counter };
        let mut rows = Vec::new();
        let (costs, peak) = self.costs_and_more(blocks, &range, counter, |counter, live| {
            rows = self.rows(&range, counter, live);
        })?;
        for (row, costs) in rows.iter_mut().zip(costs) {
            row.costs = costs;
        }
        rows.retain(|row| !row.costs.is_zero());
        rows.sort_by_key(|row| (row.site, row.thread));
        Ok(Details { range, rows, peak_time_ns: peak.time_ns })
    }

    /// A row for each group, without its costs.
    fn rows(&self, range: &Range, counter: &Counter<'_>, live: Option<&LiveBlocks<Birth>>) -> Vec<Detail> {
        let mut rows: Vec<Detail> = match counter.pairs() {
            Some(pairs) => pairs
                .iter()
                .map(|(site, thread)| Detail { site: *site, thread: Some(*thread), ..Detail::default() })
                .collect(),
            None => (0..counter.groups.len() as SiteId).map(|site| Detail { site, ..Detail::default() }).collect(),
        };
        for (row, group) in rows.iter_mut().zip(&counter.groups) {
            row.own_peak_allocations = group.own_peak_allocations / counter.scale();
        }
        let mut add_age = |group: Option<(usize, KnownAllocClass)>, ns: u64| {
            let Some((group, class)) = group else { return };
            if let Some(row) = rows.get_mut(group) {
                row.live_ns = row.live_ns.saturating_add(ns.saturating_mul(class.blocks as u64));
            }
        };
        if let Some(live) = live {
            live.each_from(0, |sequence, birth| {
                add_age(counter.group_of(sequence, &birth), range.to_ns.saturating_sub(birth.time_ns));
            });
        }
        // What a process of a merged trace had not freed when it ended lived until then.
        for part in self.gone_in(range).filter(|part| part.is_leak && self.reaches_end(range)) {
            for block in &part.blocks {
                add_age(counter.group_of_gone(block), part.at_ns.saturating_sub(block.born_ns));
            }
        }
        rows.iter_mut().for_each(|row| row.live_ns /= counter.scale());
        rows
    }
}
