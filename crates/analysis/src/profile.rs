//! The answer to most queries: the costs of each stack within a range.
use crate::costs::Costs;
use crate::definitions::SiteId;
use crate::known_costs::KnownCosts;
use crate::moment::When;

/// The part of a trace between two points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub from: When,
    pub to: When,
    pub from_ns: u64,
    pub to_ns: u64,
    /// The range is one point, so only live blocks matter.
    pub instant: bool,
}

impl Range {
    /// The end of a slice, from 1; slice 0 ends where the range begins. All `slices` have the same length.
    pub(crate) fn slice_end(&self, slice: usize, slices: usize) -> u64 {
        let length = (self.to_ns - self.from_ns) as u128;
        self.from_ns + (length * slice as u128 / slices as u128) as u64
    }

    /// The part of the range after the time `cut`, up to which events are folded. Before the cut only surviving blocks
    /// are known, which always looks like growth, so verdicts do not use that time.
    pub(crate) fn after_cut(self, cut: Option<u64>) -> Self {
        match cut {
            Some(cut) if self.from_ns < cut => {
                Range { from: When::Ns(cut), from_ns: cut, to_ns: self.to_ns.max(cut), ..self }
            }
            _ => self,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Profile {
    pub range: Range,
    /// Every stack that has any cost, sorted by number.
    pub stacks: Vec<(SiteId, Costs)>,
    pub totals: Costs,
    /// When the program's total was highest within the range.
    pub peak_time_ns: u64,
    /// What is known, if this is a heap profile of another tool.
    pub known: Option<KnownCosts>,
}

impl Profile {
    pub(crate) fn new(range: Range, stacks: Vec<(SiteId, Costs)>, peak_time_ns: u64) -> Self {
        let mut totals = Costs::default();
        stacks.iter().for_each(|(_, costs)| totals.add(costs));
        // Own peaks do not add up.
        (totals.own_peak_bytes, totals.own_peak_time_ns) = (0, 0);
        Profile { range, stacks, totals, peak_time_ns, known: None }
    }
}
