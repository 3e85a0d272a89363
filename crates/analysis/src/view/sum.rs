//! The sum of the costs of several stacks.
use crate::costs::{Costs, to_signed};
use crate::known_costs::KnownCosts;
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

/// A sum of which a heap profile of another tool may know only a part. What it does not know is null.
pub(crate) struct Known<'a> {
    pub(crate) sum: &'a Sum,
    /// `None` if everything is known.
    pub(crate) known: Option<KnownCosts>,
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
}

impl Known<'_> {
    fn entry<M: SerializeMap>(&self, map: &mut M, name: &'static str, value: u64) -> Result<(), M::Error> {
        map.serialize_entry(name, &self.known.is_none_or(|known| known.has(name)).then_some(value))
    }

    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        for (name, value) in Costs::NAMES.iter().zip(self.sum.costs.values()) {
            if !NO_SUMS.contains(name) {
                self.entry(map, name, value)?;
            }
        }
        self.entry(map, "leaked_bytes", self.sum.leaked_bytes)?;
        self.entry(map, "leaked_allocations", self.sum.leaked_allocations)
    }
}

impl Serialize for Known<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

/// A trace knows everything.
impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Known { sum: self, known: None }.serialize(serializer)
    }
}

/// The totals of a whole profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) sum: Sum,
    peak_time_ns: u64,
    known: Option<KnownCosts>,
}

impl Totals {
    pub(crate) fn new(profile: &Profile, table: &StackTable, query: &Query) -> Self {
        let mut sum = Sum::default();
        for (site, costs) in &profile.stacks {
            sum.add(costs, query.suppressions && table.stack(*site).suppressed.is_some());
        }
        Totals { sum, peak_time_ns: profile.peak_time_ns, known: profile.known }
    }
}

impl Serialize for Totals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let known = Known { sum: &self.sum, known: self.known };
        known.entries(&mut map)?;
        let Sum { costs, leaked_bytes, leaked_allocations } = self.sum;
        known.entry(&mut map, "suppressed_bytes", costs.live_bytes - leaked_bytes)?;
        known.entry(&mut map, "suppressed_allocations", costs.live_allocations - leaked_allocations)?;
        known.entry(&mut map, "peak_time_ns", self.peak_time_ns)?;
        map.end()
    }
}
