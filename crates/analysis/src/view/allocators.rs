//! Costs by the allocator that blocks came from.
use super::Trace;
use super::bands::counter_by_class;
use super::sum::Sum;
use crate::pass::Gone;
use crate::profile::Profile;
use crate::query::Query;
use format::Domain;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::cmp::Reverse;

/// The blocks of one allocator.
#[derive(Clone, Debug)]
pub struct AllocatorRow {
    pub name: String,
    pub sum: Sum,
}

/// `profile`: the answer to the query by stack. Returns the allocators that blocks of the query came from, the one with the highest cost first. Blocks that the program
/// reported itself and its mappings have no allocator.
pub fn allocator_rows(trace: &mut Trace<'_>, query: &Query, profile: &Profile) -> Result<Vec<AllocatorRow>, Gone> {
    // A heap profile of another tool does not say which allocator it is about.
    if query.domain != Domain::Malloc || trace.engine.definitions().profile.is_some() {
        return Ok(Vec::new());
    }
    if trace.engine.definitions().allocators().count() == 1 {
        return Ok(only_row(trace, query, profile));
    }
    let (engine, table) = (trace.engine, trace.table);
    let definitions = engine.definitions();
    let names: Vec<String> = definitions.allocators().map(str::to_owned).collect();
    let range = engine.range(query);
    let chosen = engine.chosen(query);
    // Each allocator has two groups, because suppressed leaks are counted separately.
    let counter = counter_by_class(trace, query, &range, names.len() * 2, |site, _, index| {
        let is_suppressed = query.suppressions && table.stack(site).suppressed.is_some();
        chosen.has(site).then(|| definitions.allocator_of(index) as u32 * 2 + is_suppressed as u32)
    })?;
    let (mut costs, _) = engine.costs_by_walk(trace.blocks, &range, counter)?;
    if range.instant {
        costs.iter_mut().for_each(|costs| *costs = costs.live_only());
    }
    let (pairs, _) = costs.as_chunks::<2>();
    let used = names.into_iter().zip(pairs).filter(|(_, pair)| pair.iter().any(|costs| !costs.is_zero()));
    let mut rows: Vec<AllocatorRow> = used
        .map(|(name, [own, suppressed])| {
            let mut sum = Sum::default();
            sum.add(own, false);
            sum.add(suppressed, true);
            AllocatorRow { name, sum }
        })
        .collect();
    let cost = query.cost();
    rows.sort_by_key(|row| Reverse(row.sum.cost(cost).unsigned_abs()));
    Ok(rows)
}

/// The row of the only allocator of a trace, which needs no walk over the events.
fn only_row(trace: &Trace<'_>, query: &Query, profile: &Profile) -> Vec<AllocatorRow> {
    let mut sum = Sum::default();
    for (site, costs) in &profile.stacks {
        sum.add(costs, query.suppressions && trace.table.stack(*site).suppressed.is_some());
    }
    let names = trace.engine.definitions().allocators().filter(|_| !sum.costs.is_zero());
    names.map(|name| AllocatorRow { name: name.to_owned(), sum }).collect()
}

pub(crate) struct Allocators(Vec<AllocatorRow>);

impl Allocators {
    pub(crate) fn new(trace: &mut Trace<'_>, query: &Query, profile: &Profile) -> Result<Self, Gone> {
        let mut rows = allocator_rows(trace, query, profile)?;
        super::cut(&mut rows, query.limit);
        Ok(Allocators(rows))
    }
}

impl Serialize for Allocators {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("allocators", &self.0)?;
        map.end()
    }
}

impl Serialize for AllocatorRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("costs", &self.sum)?;
        map.end()
    }
}
