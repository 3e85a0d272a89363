//! Which costs are known. A trace knows all of them; a heap profile of another tool has only some, and no events.
use crate::costs::Costs;
use crate::definitions::Definitions;
use crate::query::{BadQuery, Cost, Query};
use crate::view::View;

/// The costs that a heap profile has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownCosts {
    pub allocations: bool,
    pub allocated_bytes: bool,
    pub live_allocations: bool,
    pub live_bytes: bool,
    pub peak_allocations: bool,
    pub peak_bytes: bool,
    pub temporary: bool,
    /// If only some blocks were taken: the mean distance of two sample points, in bytes.
    pub sampled_every: Option<u64>,
}

impl KnownCosts {
    /// Whether a cost of `Costs::NAMES`, or a total, is known.
    pub fn has(&self, name: &str) -> bool {
        match name {
            "allocations" => self.allocations,
            "allocated_bytes" => self.allocated_bytes,
            "deallocations" => self.allocations && self.live_allocations,
            "freed_bytes" => self.allocated_bytes && self.live_bytes,
            "live_allocations" | "leaked_allocations" | "suppressed_allocations" => self.live_allocations,
            "live_bytes" | "leaked_bytes" | "suppressed_bytes" => self.live_bytes,
            "peak_allocations" => self.peak_allocations,
            "peak_bytes" => self.peak_bytes,
            "temporary" => self.temporary,
            _ => false,
        }
    }

    pub fn knows(&self, cost: Cost) -> bool {
        match cost {
            Cost::Peak => self.peak_bytes,
            Cost::Leaked | Cost::Live => self.live_bytes,
            Cost::Allocations => self.allocations,
            Cost::Temporary => self.temporary,
            Cost::Allocated => self.allocated_bytes,
            Cost::Deallocations => self.has("deallocations"),
            Cost::Kept | Cost::Growth => false,
        }
    }

    /// Whether a view can be made of sums. The others need events.
    pub const fn can_show(view: View) -> bool {
        !matches!(
            view,
            View::Timeline
                | View::Sizes
                | View::Lifetimes
                | View::Threads
                | View::Processes
                | View::Allocators
                | View::Leaks
        )
    }

    /// Refuses a view and a cost that need more than a heap profile has. Returns the query with a cost that it has.
    pub fn check(&self, view: View, query: &Query) -> Result<Query, BadQuery> {
        if !Self::can_show(view) {
            let name = view.name();
            let sentence = format!("the view `{name}` needs events, and this is a heap profile, which has only sums");
            return Err(BadQuery::Whole(sentence));
        }
        if let Some(cost) = query.cost.filter(|cost| !self.knows(*cost)) {
            return Err(BadQuery::Whole(format!("this heap profile does not know the cost `{}`", cost.name())));
        }
        let mut query = query.clone();
        query.cost = query.cost.or(Some(self.usual()));
        Ok(query)
    }

    /// The cost to show if none is asked for.
    pub fn usual(&self) -> Cost {
        let usual = [Cost::Peak, Cost::Live, Cost::Allocated, Cost::Allocations];
        usual.into_iter().find(|cost| self.knows(*cost)).unwrap_or(Cost::Live)
    }

    /// Adds the costs that follow from others.
    pub(crate) fn complete(&self, costs: &mut Costs) {
        if self.has("deallocations") {
            costs.deallocations = costs.allocations.saturating_sub(costs.live_allocations);
        }
        if self.has("freed_bytes") {
            costs.freed_bytes = costs.allocated_bytes.saturating_sub(costs.live_bytes);
        }
    }
}

impl Definitions {
    /// Whether a cost of `Costs::NAMES`, or a total, is known.
    pub fn has_cost(&self, name: &str) -> bool {
        self.profile.is_none_or(|known| known.has(name))
    }

    pub fn knows(&self, cost: Cost) -> bool {
        self.profile.is_none_or(|known| known.knows(cost))
    }
}
