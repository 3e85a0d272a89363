//! The sum of the costs of several stacks.
use crate::costs::{Costs, to_signed};
use crate::profile::Profile;
use crate::query::{Cost, Query};
use crate::stack_table::StackTable;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Sums of costs, and the part of the live blocks that is leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub costs: Costs,
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
}

/// Costs that do not add up.
const NO_SUMS: [&str; 3] = ["own_peak_bytes", "own_peak_time_ns", "size_max"];

impl Sum {
    pub fn add(&mut self, costs: &Costs, suppressed: bool) {
        self.costs.add(costs);
        if !suppressed {
            self.leaked_bytes = self.leaked_bytes.saturating_add(costs.live_bytes);
            self.leaked_allocations = self.leaked_allocations.saturating_add(costs.live_allocations);
        }
    }

    pub fn cost(&self, cost: Cost) -> i64 {
        match cost {
            Cost::Leaked => to_signed(self.leaked_bytes),
            other => other.of(&self.costs, false),
        }
    }

    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        for (name, value) in Costs::NAMES.iter().zip(self.costs.values()) {
            if !NO_SUMS.contains(name) {
                map.serialize_entry(name, &value)?;
            }
        }
        map.serialize_entry("leaked_bytes", &self.leaked_bytes)?;
        map.serialize_entry("leaked_allocations", &self.leaked_allocations)
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

/// The totals of a whole profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) sum: Sum,
    peak_time_ns: u64,
}

impl Totals {
    pub(crate) fn new(profile: &Profile, table: &StackTable, query: &Query) -> Self {
        let mut sum = Sum::default();
        for (site, costs) in &profile.stacks {
            sum.add(costs, query.suppressions && table.stack(*site).suppressed.is_some());
        }
        Totals { sum, peak_time_ns: profile.peak_time_ns }
    }
}

impl Serialize for Totals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.sum.entries(&mut map)?;
        let Sum { costs, leaked_bytes, leaked_allocations } = self.sum;
        map.serialize_entry("suppressed_bytes", &(costs.live_bytes - leaked_bytes))?;
        map.serialize_entry("suppressed_allocations", &(costs.live_allocations - leaked_allocations))?;
        map.serialize_entry("peak_time_ns", &self.peak_time_ns)?;
        map.end()
    }
}
