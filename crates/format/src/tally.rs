//! The totals of a trace that is made from others, counted while its events are written.
use crate::{Counting, Folded, FoldedRow, Freed, IntMap, KdeRule, PeakTracker, Totals};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counting: Counting,
    /// All totals but those of `heap`.
    pub(crate) totals: Totals,
    heap: PeakTracker,
    /// Thread -> its latest allocation.
    latest: IntMap<u32, u64>,
    /// Blocks that processes had not freed when they ended, and their bytes.
    left: (u64, u64),
}

impl Tally {
    pub(crate) fn alloc(&mut self, thread: u32, sequence: u64, size: u64, now_ns: u64) {
        self.latest.insert(thread, sequence);
        let totals = &mut self.totals;
        totals.allocations += 1;
        totals.allocated_bytes = totals.allocated_bytes.saturating_add(size);
        self.heap.alloc_at(size, now_ns);
    }

    pub(crate) fn free(&mut self, thread: u32, sequence: u64, alloc_class: u32, size: u64, how: Freed) {
        let is_temporary = match self.counting.kde() {
            None => how == Freed::Call && self.latest.get(&thread) == Some(&sequence),
            Some(rule) => rule.is_temporary(self.latest.remove(&thread), sequence, alloc_class, how),
        };
        let totals = &mut self.totals;
        totals.temporary += is_temporary as u64;
        totals.implied_frees += (how == Freed::Implied) as u64;
        totals.deallocations += how.is_by_program() as u64;
        self.heap.free(size);
        if how == Freed::Leaked {
            self.leave(1, size);
        }
    }

    fn leave(&mut self, count: u64, size: u64) {
        self.left = (self.left.0.saturating_add(count), self.left.1.saturating_add(count.saturating_mul(size)));
    }

    pub(crate) fn unknown_free(&mut self, thread: u32) {
        self.totals.unknown_frees += 1;
        if self.counting.kde().is_some_and(KdeRule::forgets_at_unknown_free) {
            self.latest.remove(&thread);
        }
    }

    /// The totals at the end of the trace.
    pub(crate) fn totals(&self) -> Totals {
        let totals = self.heap.fill(self.totals);
        Totals {
            leaked_allocations: totals.leaked_allocations.saturating_add(self.left.0),
            leaked_bytes: totals.leaked_bytes.saturating_add(self.left.1),
            ..totals
        }
    }

    /// Adds the sums of blocks of `size` bytes whose events were folded.
    pub(crate) fn folded(&mut self, row: &FoldedRow, size: u64) {
        let totals = &mut self.totals;
        totals.allocations = totals.allocations.saturating_add(row.allocations);
        totals.deallocations = totals.deallocations.saturating_add(row.deallocations);
        totals.temporary = totals.temporary.saturating_add(row.temporary);
        totals.allocated_bytes = totals.allocated_bytes.saturating_add(row.allocations.saturating_mul(size));
        self.leave(row.leaked, size);
    }

    /// Takes over the peak of events that were folded, if it is higher than the peak so far.
    pub(crate) fn folded_peak(&mut self, folded: &Folded) {
        self.heap.raise(folded.peak_bytes, folded.peak_allocations, folded.peak_time_ns);
    }

    /// The thread's latest allocation was folded, so none of its remaining blocks is the latest.
    pub(crate) fn latest_gone(&mut self, thread: u32) {
        self.latest.remove(&thread);
    }

    /// Removes all blocks, because an `exec` started a new image.
    pub(crate) fn end_image(&mut self) {
        self.heap.free_all();
        self.latest.clear();
    }
}
