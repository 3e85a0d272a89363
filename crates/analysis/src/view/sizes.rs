//! Costs by size of blocks, in buckets of powers of two.
use super::Trace;
use super::bands::{Bands, counter};
use super::keys::Row;
use crate::costs::Costs;
use crate::pass::Gone;
use crate::query::Query;
use crate::stack_table::{NodeId, StackTable};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::{BTreeMap, HashMap};

/// Bucket 0 holds 0, bucket n holds 2^(n-1) up to 2^n - 1.
pub(crate) const fn bucket(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// The smallest and the largest value of a bucket.
pub(crate) const fn ends(bucket: u32) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        64 => (1 << 63, u64::MAX),
        n => (1 << (n - 1), (1 << n) - 1),
    }
}

pub(crate) struct Sizes<'a> {
    table: &'a StackTable,
    /// The costs and functions of each bucket. The functions with the most allocations come first.
    buckets: BTreeMap<u32, (Costs, Vec<(NodeId, Costs)>)>,
}

/// The blocks whose sizes are from one power of two to the next.
#[derive(Clone, Debug)]
pub struct SizeBucket {
    /// The smallest and the largest size, in bytes.
    pub from: u64,
    pub to: u64,
    pub costs: Costs,
    /// The levels with the most allocations.
    pub top: Vec<(NodeId, Costs)>,
}

/// Costs by size of blocks, the smallest first. Empty buckets are left out.
pub fn sizes(trace: &mut Trace<'_>, query: &Query) -> Result<Vec<SizeBucket>, Gone> {
    let buckets = Sizes::new(trace, query)?.buckets.into_iter();
    let made = buckets.map(|(number, (costs, top))| {
        let (from, to) = ends(number);
        SizeBucket { from, to, costs, top }
    });
    Ok(made.collect())
}

impl<'a> Sizes<'a> {
    pub(crate) fn new(trace: &mut Trace<'a>, query: &Query) -> Result<Self, Gone> {
        let (engine, table) = (trace.engine, trace.table);
        let range = engine.range(query);
        let bands = Bands::new(engine, table, query);
        let mut numbers: HashMap<(u32, u32), u32> = HashMap::new();
        let mut groups: Vec<(u32, u32)> = Vec::new();
        for alloc_class in engine.alloc_classes_by_size(query).iter() {
            if let Some(band) = alloc_class.site.number().and_then(|site| bands.of(site)) {
                let group = (bucket(alloc_class.size), band);
                numbers.entry(group).or_insert_with(|| {
                    groups.push(group);
                    groups.len() as u32 - 1
                });
            }
        }
        let of = |site, size| numbers.get(&(bucket(size), bands.of(site)?)).copied();
        let counter = counter(trace, query, &range, groups.len(), of)?;
        let (mut costs, _) = engine.costs_by_walk(trace.blocks, &range, counter)?;
        if range.instant {
            costs.iter_mut().for_each(|costs| *costs = costs.live_only());
        }
        let mut buckets: BTreeMap<u32, (Costs, Vec<(NodeId, Costs)>)> = BTreeMap::new();
        for ((bucket, band), costs) in groups.iter().zip(&costs).filter(|(_, costs)| !costs.is_zero()) {
            let (sum, list) = buckets.entry(*bucket).or_default();
            sum.add(costs);
            list.push((bands.nodes[*band as usize], *costs));
        }
        for (_, list) in buckets.values_mut() {
            list.sort_by_key(|(_, costs)| std::cmp::Reverse((costs.allocations, costs.live_bytes)));
            list.truncate(query.top);
        }
        Ok(Sizes { table, buckets })
    }
}

impl Serialize for Sizes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let column =
            |value: fn(&Costs) -> u64| -> Vec<u64> { self.buckets.values().map(|(sum, _)| value(sum)).collect() };
        let ends: Vec<(u64, u64)> = self.buckets.keys().map(|bucket| ends(*bucket)).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("from", &ends.iter().map(|(from, _)| *from).collect::<Vec<_>>())?;
        map.serialize_entry("to", &ends.iter().map(|(_, to)| *to).collect::<Vec<_>>())?;
        map.serialize_entry("allocations", &column(|costs| costs.allocations))?;
        map.serialize_entry("allocated_bytes", &column(|costs| costs.allocated_bytes))?;
        map.serialize_entry("peak_bytes", &column(|costs| costs.peak_bytes))?;
        map.serialize_entry("live_bytes", &column(|costs| costs.live_bytes))?;
        map.serialize_entry("live_allocations", &column(|costs| costs.live_allocations))?;
        let top: Vec<Vec<TopRow<'_>>> = self
            .buckets
            .values()
            .map(|(_, list)| {
                list.iter().map(|(node, costs)| TopRow { table: self.table, node: *node, costs }).collect()
            })
            .collect();
        map.serialize_entry("top", &top)?;
        map.end()
    }
}

struct TopRow<'a> {
    table: &'a StackTable,
    node: NodeId,
    costs: &'a Costs,
}

impl Serialize for TopRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        Row::of(self.table, self.table.level(self.node)).entries(&mut map)?;
        map.serialize_entry("allocations", &self.costs.allocations)?;
        map.serialize_entry("allocated_bytes", &self.costs.allocated_bytes)?;
        map.serialize_entry("peak_bytes", &self.costs.peak_bytes)?;
        map.serialize_entry("live_bytes", &self.costs.live_bytes)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_its_bucket() {
        for value in [0, 1, 2, 3, 4, 7, 8, 1023, 1024, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
            let (from, to) = ends(bucket(value));
            assert!(from <= value && value <= to, "{value}");
        }
        assert_eq!((ends(0), ends(1), ends(2), ends(3)), ((0, 0), (1, 1), (2, 3), (4, 7)));
    }
}
