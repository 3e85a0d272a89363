//! What a recording has counted since the last profile.
//!
//! Receives: the sums of all stacks, again and again. Returns: their differences. Must hold: the differences of a stack add
//! up to its last sum, whenever profiles were made. A range of time could not promise that: many events have the same
//! time, and `--keep-last` replaces old events by their sums.
use analysis::{Costs, Definitions, Detail, Profile, Range, When};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Default)]
pub struct SinceLast {
    /// By the frames of a stack, because its number changes when a trace is folded.
    known: HashMap<u64, Sums>,
    time_ns: u64,
}

/// The sums of a stack that only grow.
#[derive(Clone, Copy, Default)]
struct Sums {
    allocations: u64,
    allocated_bytes: u64,
    temporary: u64,
}

impl SinceLast {
    /// The rows of the next profile, and the time that it is about.
    pub fn rows(&mut self, profile: &Profile, definitions: &Definitions) -> (Vec<Detail>, Range) {
        let rows = profile.stacks.iter().map(|(site, costs)| {
            let mut hasher = DefaultHasher::new();
            definitions.frames(definitions.stack_of(*site)).for_each(|frame| frame.0.hash(&mut hasher));
            let costs = self.difference(hasher.finish(), costs);
            Detail { site: *site, costs, ..Detail::default() }
        });
        let rows = rows.filter(|row| !row.costs.is_zero()).collect();
        let from_ns = std::mem::replace(&mut self.time_ns, profile.range.to_ns).min(profile.range.to_ns);
        (rows, Range { from: When::Ns(from_ns), from_ns, ..profile.range })
    }

    fn difference(&mut self, stack: u64, costs: &Costs) -> Costs {
        let last = self.known.entry(stack).or_default();
        let since = Costs {
            allocations: costs.allocations.saturating_sub(last.allocations),
            allocated_bytes: costs.allocated_bytes.saturating_sub(last.allocated_bytes),
            temporary: costs.temporary.saturating_sub(last.temporary),
            live_allocations: costs.live_allocations,
            live_bytes: costs.live_bytes,
            ..Costs::default()
        };
        *last =
            Sums { allocations: costs.allocations, allocated_bytes: costs.allocated_bytes, temporary: costs.temporary };
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_add_up_and_live_blocks_are_those_of_now() {
        let mut since = SinceLast::default();
        let of = |allocations, live_allocations| Costs { allocations, live_allocations, ..Costs::default() };
        let mut differences = Vec::new();
        for (allocations, live) in [(10, 10), (10, 3), (25, 5)] {
            let costs = since.difference(7, &of(allocations, live));
            differences.push((costs.allocations, costs.live_allocations));
        }
        assert_eq!(differences, [(10, 10), (0, 3), (15, 5)]);
        assert_eq!(since.difference(8, &of(4, 1)).allocations, 4, "another stack");
    }
}
