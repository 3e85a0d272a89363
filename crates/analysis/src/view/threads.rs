//! Costs by the thread that allocated.
use super::Trace;
use super::bands::{Bands, counter};
use super::sum::Sum;
use crate::counter::ByThread;
use crate::definitions::SiteId;
use crate::pass::Gone;
use crate::query::Query;
use serde::ser::{Serialize, SerializeMap, Serializer};

pub(crate) struct Threads {
    threads: Vec<ThreadRow>,
}

/// A thread and the costs of the blocks that it allocated.
#[derive(Clone, Debug)]
pub struct ThreadRow {
    pub index: u32,
    pub tid: Option<u32>,
    pub name: Option<String>,
    pub sum: Sum,
}

/// The threads that allocated, the highest cost first.
pub fn threads(trace: &mut Trace<'_>, query: &Query) -> Result<Vec<ThreadRow>, Gone> {
    Ok(Threads::new(trace, query)?.threads)
}

/// The most threads of a trace. A malformed file must not make us allocate for more.
const MOST: u32 = 1 << 19;

impl Threads {
    pub(crate) fn new(trace: &mut Trace<'_>, query: &Query) -> Result<Self, Gone> {
        let engine = trace.engine;
        let range = engine.range(query);
        let bands = Bands::new(engine, trace.table, query);
        let known = &engine.definitions().threads;
        let count = known.keys().last().map_or(1, |last| last.saturating_add(1).min(MOST)) as usize;
        let table = trace.table;
        let is_suppressed = |site: SiteId| query.suppressions && table.stack(site).suppressed.is_some();
        let group = |site: SiteId| bands.of(site).map(|_| is_suppressed(site) as u32);
        // Each thread has two groups, because suppressed leaks are counted separately.
        let part_of = (0..count as u32).map(|thread| (thread, thread)).collect();
        let by_thread = ByThread { part_of, parts: count, per_part: 2 };
        let counter = counter(trace, query, &range, 0, |site, _| group(site))?.by_thread(by_thread);
        let (costs, _) = engine.costs_by_walk(trace.blocks, &range, counter)?;
        let (pairs, _) = costs.as_chunks::<2>();
        let numbered = pairs.iter().zip(0u32..).filter(|(pair, _)| pair.iter().any(|costs| !costs.is_zero()));
        let mut threads: Vec<ThreadRow> = numbered
            .map(|([own, suppressed], index)| {
                let thread = known.get(&index);
                let mut sum = Sum::default();
                sum.add(own, false);
                sum.add(suppressed, true);
                let name = thread.map(|thread| thread.name.clone()).filter(|name| !name.is_empty());
                ThreadRow { index, tid: thread.map(|thread| thread.tid), name, sum }
            })
            .collect();
        let cost = query.cost();
        threads.sort_by_key(|row| std::cmp::Reverse(row.sum.cost(cost).unsigned_abs()));
        super::cut(&mut threads, query.limit);
        Ok(Threads { threads })
    }
}

impl Serialize for Threads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("threads", &self.threads)?;
        map.end()
    }
}

impl Serialize for ThreadRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("tid", &self.tid)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("costs", &self.sum)?;
        map.end()
    }
}
