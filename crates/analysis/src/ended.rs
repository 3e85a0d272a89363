//! Blocks of a merged trace that were live when their process ended or called exec. An event frees them, but the
//! program did not (`format::Gone`).
//!
//! Must hold: such a free counts only for live blocks and the peak. Blocks that a process had not freed when it ended
//! are leaked, in every range that reaches the end of the trace.
use crate::costs::Costs;
use crate::counter::{Birth, Counter};
use crate::definitions::{Definitions, KnownAllocClass};
use crate::engine::Engine;
use crate::moment::Moment;
use crate::profile::Range;
use format::{Gone, GoneBlock};

/// Corrects the costs of the groups in which these frees were counted. `first`: the sequence number of the range's
/// first allocation. `group`: the group of a block, and its class. Blocks are counted in the units of a counter.
pub(crate) fn add<'a>(
    parts: impl Iterator<Item = &'a Gone>,
    reaches_end: bool,
    first: u64,
    costs: &mut [Costs],
    group: impl Fn(&GoneBlock) -> Option<(usize, KnownAllocClass)>,
) {
    for part in parts {
        for block in &part.blocks {
            let Some((group, class)) = group(block) else { continue };
            let Some(costs) = costs.get_mut(group) else { continue };
            let (blocks, bytes) = (class.blocks as u64, class.bytes);
            let lifetime_ns = part.at_ns.saturating_sub(block.born_ns).saturating_mul(blocks);
            costs.deallocations = costs.deallocations.saturating_sub(blocks);
            costs.freed_bytes = costs.freed_bytes.saturating_sub(bytes);
            costs.lifetime_ns = costs.lifetime_ns.saturating_sub(lifetime_ns);
            if !part.is_leak || !reaches_end {
                continue;
            }
            costs.live_allocations = costs.live_allocations.saturating_add(blocks);
            costs.live_bytes = costs.live_bytes.saturating_add(bytes);
            if block.sequence >= first {
                costs.kept_allocations = costs.kept_allocations.saturating_add(blocks);
                costs.kept_bytes = costs.kept_bytes.saturating_add(bytes);
            }
        }
    }
}

impl Definitions {
    pub(crate) fn group_of_gone(&self, block: &GoneBlock) -> Option<(usize, KnownAllocClass)> {
        let class = *self.alloc_classes.get(block.alloc_class as usize)?;
        Some((class.site.index(), class))
    }

    /// The number of frees that the program did not make.
    pub(crate) fn gone_blocks(&self) -> u64 {
        self.gone.iter().map(|part| part.blocks.len() as u64).sum()
    }
}

impl Counter<'_> {
    pub(crate) fn group_of_gone(&self, block: &GoneBlock) -> Option<(usize, KnownAllocClass)> {
        let birth = Birth { alloc_class: block.alloc_class, thread: block.thread, time_ns: block.born_ns };
        self.group_of(block.sequence, &birth)
    }
}

impl Engine {
    pub(crate) fn reaches_end(&self, range: &Range) -> bool {
        !range.instant && self.moment(range.to) == Moment::END
    }

    /// The blocks whose process ended or called exec within the range.
    pub(crate) fn gone_in(&self, range: &Range) -> impl Iterator<Item = &Gone> {
        let (from_ns, to_ns, instant) = (range.from_ns, range.to_ns, range.instant);
        let (is_from_start, reaches_end) = (self.moment(range.from) == Moment::START, self.reaches_end(range));
        self.definitions.gone.iter().filter(move |part| {
            !instant && (is_from_start || part.at_ns > from_ns) && (reaches_end || part.at_ns <= to_ns)
        })
    }

    pub(crate) fn add_gone(&self, range: &Range, first: u64, counter: &Counter<'_>, costs: &mut [Costs]) {
        add(self.gone_in(range), self.reaches_end(range), first, costs, |block| counter.group_of_gone(block));
    }
}
