//! The most bytes that the blocks of a query held together at any moment of its range.
use crate::costs::Costs;
use crate::counter::Counter;
use crate::engine::Engine;
use crate::pass::{Blocks, Gone};
use crate::query::Query;
use std::borrow::Cow;

impl Engine {
    /// Returns the maximum of the selected blocks themselves, which may be at another moment than the program's peak.
    /// Returns `None` for a heap profile of another tool, which has no events. Of a time whose events are folded
    /// (`--max-size`), only the program's peak is known.
    pub fn own_peak(&self, blocks: &mut dyn Blocks, query: &Query) -> Result<Option<u64>, Gone> {
        if self.sums().is_some() {
            return Ok(None);
        }
        let range = self.range(query);
        let chosen = self.chosen(query);
        let selection = self.selection(blocks, query, &range)?;
        let alloc_classes = self.alloc_classes_by_size(query);
        let of_one_group = alloc_classes.iter().map(|class| class.regrouped(|site| chosen.has(site).then_some(0)));
        let counter = Counter::new(Cow::Owned(of_one_group.collect()), 1, selection);
        let (costs, _) = self.costs_by_walk(blocks, &range, counter)?;
        let Costs { own_peak_bytes, peak_bytes, .. } = costs.first().copied().unwrap_or_default();
        Ok(Some(own_peak_bytes.max(peak_bytes)))
    }

    /// Returns true if a stack matches the patterns of the query.
    pub fn has_match(&self, query: &Query) -> bool {
        self.chosen(query).has_any()
    }
}
