//! Counts the calls of each process of a tree, and what it holds.
//!
//! Receives: the events, each with the process that made it and the process that allocated the block. Returns: the totals
//! of any process. Must hold: memory grows with processes, not with blocks.
use crate::{Freed, IntMap, PeakTracker, Process, Totals};

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// All totals but the peak and what is leaked.
    totals: Totals,
    /// What it holds, with what it inherited.
    held: PeakTracker,
    /// What it allocated and still holds.
    own_allocations: u64,
    own_bytes: u64,
}

impl Counts {
    /// It holds a block no longer. `is_own`: it allocated the block.
    const fn let_go(&mut self, is_own: bool, size: u64) {
        self.held.free(size);
        if is_own {
            self.own_allocations = self.own_allocations.saturating_sub(1);
            self.own_bytes = self.own_bytes.saturating_sub(size);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ProcessCounter {
    counts: IntMap<u32, Counts>,
}

impl ProcessCounter {
    /// The process begins with what it inherited.
    pub fn start(&mut self, process: &Process) {
        let held = &mut self.counts.entry(process.index).or_default().held;
        held.live_bytes = held.live_bytes.saturating_add(process.inherited_bytes);
        held.live_allocations = held.live_allocations.saturating_add(process.inherited_allocations);
        held.set_peak(process.start_ns);
    }

    pub fn alloc(&mut self, process: u32, size: u64, now_ns: u64) {
        let counts = self.counts.entry(process).or_default();
        counts.totals.allocations += 1;
        counts.totals.allocated_bytes = counts.totals.allocated_bytes.saturating_add(size);
        counts.own_allocations += 1;
        counts.own_bytes = counts.own_bytes.saturating_add(size);
        counts.held.alloc_at(size, now_ns);
    }

    /// The process freed a block, or ended as the last one that held it. `owner`: the process that allocated the block.
    pub fn free(&mut self, process: u32, owner: Option<u32>, size: u64, how: Freed, is_temporary: bool) {
        let counts = self.counts.entry(process).or_default();
        let is_own = owner == Some(process);
        match how {
            Freed::Leaked => counts.held.free(size),
            Freed::Replaced | Freed::Dropped => counts.let_go(is_own, size),
            Freed::Call | Freed::Realloc | Freed::Implied => {
                counts.let_go(is_own, size);
                counts.totals.deallocations += 1;
                counts.totals.temporary += is_temporary as u64;
                counts.totals.implied_frees += (how == Freed::Implied) as u64;
            }
        }
    }

    /// The process freed a block that another process still holds.
    pub fn release(&mut self, process: u32, owner: Option<u32>, size: u64) {
        let counts = self.counts.entry(process).or_default();
        counts.let_go(owner == Some(process), size);
        counts.totals.deallocations += 1;
    }

    pub fn unknown_free(&mut self, process: u32) {
        self.counts.entry(process).or_default().totals.unknown_frees += 1;
    }

    /// The totals of a process so far. What it allocated and still holds counts as leaked.
    pub fn totals(&self, process: u32) -> Totals {
        let Counts { totals, held, own_allocations, own_bytes } =
            self.counts.get(&process).copied().unwrap_or_default();
        Totals { leaked_allocations: own_allocations, leaked_bytes: own_bytes, ..held.fill(totals) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_its_own_calls_and_holds_what_it_inherited_until_it_frees_it() {
        let mut counter = ProcessCounter::default();
        counter.start(&Process::default());
        counter.alloc(0, 100, 0);
        counter.alloc(0, 10, 100);
        counter.start(&Process {
            index: 1,
            start_ns: 150,
            inherited_allocations: 2,
            inherited_bytes: 110,
            ..Process::default()
        });
        counter.alloc(1, 7, 200);
        counter.release(0, Some(0), 100);
        counter.free(1, Some(0), 100, Freed::Call, false);
        counter.free(1, Some(1), 7, Freed::Call, true);
        counter.unknown_free(1);
        let first = counter.totals(0);
        assert_eq!((first.allocations, first.deallocations, first.allocated_bytes), (2, 1, 110));
        assert_eq!(
            (first.peak_bytes, first.peak_time_ns, first.leaked_bytes, first.leaked_allocations),
            (110, 100, 10, 1)
        );
        let second = counter.totals(1);
        assert_eq!((second.allocations, second.deallocations, second.temporary, second.unknown_frees), (1, 2, 1, 1));
        assert_eq!((second.peak_bytes, second.peak_allocations, second.peak_time_ns), (117, 3, 200));
        assert_eq!((second.leaked_bytes, second.leaked_allocations), (0, 0));
    }

    #[test]
    fn a_process_that_ends_leaks_its_own_blocks_only() {
        let mut counter = ProcessCounter::default();
        counter.start(&Process { inherited_allocations: 1, inherited_bytes: 50, ..Process::default() });
        counter.alloc(0, 100, 0);
        counter.free(0, Some(0), 100, Freed::Leaked, false);
        counter.free(0, Some(9), 50, Freed::Leaked, false);
        let totals = counter.totals(0);
        assert_eq!((totals.leaked_bytes, totals.leaked_allocations, totals.deallocations), (100, 1, 0));
        assert_eq!((totals.peak_bytes, totals.peak_allocations), (150, 2));
    }
}
