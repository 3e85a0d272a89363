//! The engine, with and without its index, against a replay with maps: on random traces, at random instants and ranges,
//! with random filters.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;

use analysis::{BlocksInMemory, Engine, Query, Span, When};
use common::{Rng, Trace, random_trace};
use std::collections::BTreeMap;

fn engine(mut engine: Engine, trace: &Trace) -> Engine {
    trace.blocks.iter().for_each(|block| engine.add(block));
    assert!(engine.faults().is_empty(), "{:?}", engine.faults());
    engine
}

fn random_when(rng: &mut Rng, trace: &Trace) -> When {
    match rng.u64(..9) {
        0 => When::Start,
        1 => When::End,
        2 => When::Peak,
        3 => When::Percent(rng.u64(..101) as f64),
        4 => trace.event(rng.f64()),
        _ => When::Ns(1 + rng.u64(..trace.runtime_ns + 200_000)),
    }
}

fn random_query(rng: &mut Rng, trace: &Trace) -> Query {
    let mut query = Query::default();
    if rng.u64(..4) == 0 {
        query.at = Some(random_when(rng, trace));
    } else {
        query.from = (rng.u64(..4) != 0).then(|| random_when(rng, trace));
        query.to = (rng.u64(..4) != 0).then(|| random_when(rng, trace));
    }
    if rng.u64(..5) == 0 {
        query.threads = (0..1 + rng.u64(..2)).map(|_| rng.u32(..3)).collect();
    }
    if rng.u64(..5) == 0 {
        let min = rng.u64(..500);
        query.size = Some(Span { min, max: min + rng.u64(..500) });
    }
    if rng.u64(..5) == 0 {
        let min = rng.u64(..trace.runtime_ns / 2 + 1);
        query.lifetime = Some(Span { min, max: min + rng.u64(..=trace.runtime_ns) });
    }
    query
}

/// Compares the costs of each site and the time of the peak with the naive replay. The engine numbers sites in the
/// order of their allocation classes, as `random_trace` does.
fn compare(name: &str, engine: &Engine, trace: &Trace, query: &Query, context: &str) {
    let mut blocks = BlocksInMemory::new(trace.blocks.iter().cloned());
    let profile = engine.profile(&mut blocks, query).unwrap();
    let ours: BTreeMap<usize, _> = profile.stacks.iter().map(|(site, costs)| (*site as usize, *costs)).collect();
    let naive = trace.naive(query);
    assert_eq!(ours, naive.sites, "{name}: {context} {query:?}; left is our result");
    assert_eq!(profile.peak_time_ns, naive.peak_time_ns, "{name}: {context} {query:?}");
}

#[test]
fn any_range_of_any_trace_is_as_a_replay_with_maps_says() {
    common::rounds(6000, |seed, mut rng| {
        let steps = 20 + rng.u64(..600);
        let trace = random_trace(&mut rng, steps);
        let plain = engine(Engine::new(), &trace);
        let slices = 2 + rng.usize(..12);
        let live_bytes = if rng.u64(..2) == 0 { 1 << 20 } else { 200 };
        let indexed = engine(Engine::indexed_finely(slices, live_bytes), &trace);
        let context = format!("seed {seed}, {slices} slices");
        assert_eq!(plain.totals(), indexed.totals(), "{context}");
        compare("whole", &plain, &trace, &Query::default(), &context);
        compare("whole, indexed", &indexed, &trace, &Query::default(), &context);
        for _ in 0..12 {
            let query = random_query(&mut rng, &trace);
            compare("plain", &plain, &trace, &query, &context);
            compare("indexed", &indexed, &trace, &query, &context);
        }
    });
}

#[test]
fn a_range_may_be_asked_for_while_the_trace_grows() {
    common::rounds(100, |seed, mut rng| {
        let trace = random_trace(&mut rng, 500);
        let mut growing = Engine::indexed_finely(6, 1 << 20);
        for (number, block) in trace.blocks.iter().enumerate() {
            growing.add(block);
            let mut whole = Engine::new();
            trace.blocks[..=number].iter().for_each(|block| whole.add(block));
            let query = Query::new([("from", "30%"), ("to", "80%")]).unwrap();
            let mut blocks = BlocksInMemory::new(trace.blocks.iter().cloned());
            let (ours, theirs) = (growing.profile(&mut blocks, &query), whole.profile(&mut blocks, &query));
            assert_eq!(ours.unwrap().stacks, theirs.unwrap().stacks, "seed {seed}, block {number}");
        }
    });
}

#[test]
fn blocks_that_are_gone_are_told() {
    let trace = random_trace(&mut Rng::with_seed(1), 300);
    let engine = engine(Engine::new(), &trace);
    assert!(engine.profile(&mut BlocksInMemory::default(), &Query::default()).is_err());
}

/// An index lacks the kept blocks of each site, so a report from it would be incomplete.
#[test]
fn there_is_no_report_without_sites() {
    let trace = random_trace(&mut Rng::with_seed(1), 300);
    let report = engine(Engine::new(), &trace).into_report().unwrap();
    assert!(report.totals.allocations > 0 && !report.sites.is_empty());
    assert!(engine(Engine::indexed(), &trace).into_report().is_none());
}
