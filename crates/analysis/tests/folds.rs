//! Compares a trace whose oldest events were folded, once or several times, with a naive replay of the whole trace.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;

use analysis::{BlocksInMemory, CodeClasses, Costs, Engine, Query, Span, StackTable, Suppressions, View, When, view};
use common::{Rng, Trace, random_trace};
use format::{Block, BlockKind, FileWriter, RawBlock, Reader, Totals, fold};
use std::collections::BTreeMap;
use std::io::Cursor;

fn file(blocks: &[RawBlock]) -> Vec<u8> {
    let mut out = FileWriter::new(Vec::new(), 1).unwrap();
    for block in blocks {
        out.write(block).unwrap();
    }
    out.get_ref().clone()
}

/// The blocks and where each begins.
fn blocks(file: &[u8]) -> Vec<(u64, RawBlock)> {
    let mut reader = Reader::new(Cursor::new(file)).unwrap();
    let mut blocks = Vec::new();
    loop {
        let at = reader.offset();
        let Some(block) = reader.next_block().unwrap() else { break };
        blocks.push((at, block.clone()));
    }
    assert_eq!(reader.damage_count(), 0);
    blocks
}

fn folded(file: &[u8], cut: u64) -> Vec<u8> {
    let mut out = FileWriter::new(Vec::new(), 1).unwrap();
    fold(&mut Reader::new(Cursor::new(file)).unwrap(), cut, file.len() as u64, &mut out).unwrap();
    out.get_ref().clone()
}

struct Cut {
    blocks: Vec<RawBlock>,
    until_ns: u64,
}

/// Folds at several blocks, one after the other, like a file that reaches its size limit several times.
fn random_cut(rng: &mut Rng, trace: &Trace) -> Cut {
    let mut bytes = file(&trace.blocks);
    for _ in 0..1 + rng.u64(..3) {
        let places = blocks(&bytes);
        // The cut is at any block, or at the end of the file.
        let at = rng.usize(..places.len() + 1);
        let cut = places.get(at).map_or(bytes.len() as u64, |(place, _)| *place);
        bytes = folded(&bytes, cut);
    }
    let blocks: Vec<RawBlock> = blocks(&bytes).into_iter().map(|(_, block)| block).collect();
    let parts = blocks.iter().filter_map(|block| match block.decode().unwrap() {
        Block::Folded(part) => Some(part.until_ns),
        _ => None,
    });
    let until_ns: Vec<u64> = parts.collect();
    assert!(until_ns.len() <= 1, "a folded part is merged with the next one");
    Cut { until_ns: until_ns.first().copied().unwrap_or(0), blocks }
}

/// The costs that a folded part knows: all but a stack's own peak.
fn without_own_peak(sites: BTreeMap<usize, Costs>) -> BTreeMap<usize, Costs> {
    let forget = |costs: Costs| Costs { own_peak_bytes: 0, own_peak_time_ns: 0, ..costs };
    sites.into_iter().map(|(site, costs)| (site, forget(costs))).collect()
}

fn compare(engine: &Engine, cut: &Cut, trace: &Trace, query: &Query, context: &str) {
    let profile = engine.profile(&mut BlocksInMemory::new(cut.blocks.iter().cloned()), query).unwrap();
    let ours = profile.stacks.iter().map(|(site, costs)| (*site as usize, *costs)).collect();
    let naive = trace.naive(query);
    assert_eq!(without_own_peak(ours), without_own_peak(naive.sites), "{context} {query:?}; left is our result");
    assert_eq!(profile.peak_time_ns, naive.peak_time_ns, "{context} {query:?}");
}

fn whole_query(rng: &mut Rng) -> Query {
    let mut query = Query::default();
    match rng.u64(..4) {
        0 => query.threads = vec![rng.u32(..3)],
        1 => query.size = Some(Span { min: 100, max: 600 }),
        2 => query.at = Some(When::Peak),
        _ => {}
    }
    query
}

fn later_query(rng: &mut Rng, cut: &Cut, trace: &Trace) -> Query {
    let mut later = || When::Ns(cut.until_ns + rng.u64(..(trace.runtime_ns - cut.until_ns) * 2 + 1));
    let mut query = Query::default();
    let (first, second) = (later(), later());
    match rng.u64(..3) {
        0 => query.at = Some(first),
        1 => query.from = Some(first),
        _ => (query.from, query.to) = (Some(first), Some(second)),
    }
    if rng.u64(..3) == 0 {
        query.lifetime = Some(Span { min: 100_000, max: 5_000_000 });
    }
    query
}

#[test]
fn what_is_folded_counts_as_if_it_were_there() {
    let mut folds = 0;
    common::rounds(4000, |seed, mut rng| {
        let steps = 20 + rng.u64(..600);
        let trace = random_trace(&mut rng, steps);
        let cut = random_cut(&mut rng, &trace);
        folds += cut.blocks.iter().filter(|block| block.kind == BlockKind::Folded).count();
        let context = format!("seed {seed}");
        let engines = [Engine::new(), Engine::indexed_finely(2 + rng.usize(..12), 1 << 20)].map(|mut engine| {
            cut.blocks.iter().for_each(|block| engine.add(block));
            assert!(engine.faults().is_empty(), "{context}: {:?}", engine.faults());
            engine
        });
        for engine in &engines {
            assert_eq!(engine.totals(), unfolded(&trace), "{context}; left is the folded one");
            compare(engine, &cut, &trace, &Query::default(), &context);
            for _ in 0..6 {
                compare(engine, &cut, &trace, &whole_query(&mut rng), &context);
                compare(engine, &cut, &trace, &later_query(&mut rng, &cut, &trace), &context);
            }
        }
    });
    assert!(folds > 0);
}

/// A trace, the same trace with its beginning folded, and an engine that counted the folded one.
fn cut_trace(seed: u64) -> (Trace, Cut, Engine) {
    let mut rng = Rng::with_seed(seed);
    let trace = random_trace(&mut rng, 400);
    let cut = random_cut(&mut rng, &trace);
    let mut engine = Engine::new();
    cut.blocks.iter().for_each(|block| engine.add(block));
    (trace, cut, engine)
}

/// The timeline shows the peak of the whole trace with its exact time, bytes and number of blocks, even if the peak is
/// in the folded part. The bytes of all bands at the peak add up to those of the peak.
#[test]
fn the_timeline_shows_a_folded_peak() {
    let mut seen = 0;
    for seed in 0..300 {
        let (trace, cut, engine) = cut_trace(seed);
        let table = StackTable::new(engine.definitions(), &CodeClasses::new("/a"), Suppressions::new());
        let mut held = BlocksInMemory::new(cut.blocks.iter().cloned());
        let mut trace_view = view::Trace { engine: &engine, table: &table, blocks: &mut held, complete: true };
        let mut out = Vec::new();
        let query = Query::new([("points", "7"), ("top", "3")]).unwrap();
        analysis::answer(View::Timeline, &query, &mut trace_view, None, &mut out).unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let totals = unfolded(&trace);
        let at = answer["peak"]["index"].as_u64().unwrap() as usize;
        assert_eq!(answer["peak"]["time_ns"], totals.peak_time_ns, "seed {seed}");
        assert_eq!(answer["live_bytes"][at], totals.peak_bytes, "seed {seed}");
        assert_eq!(answer["live_allocations"][at], totals.peak_allocations, "seed {seed}");
        let bands = answer["bands"].as_array().unwrap().iter().chain([&answer["other"]]);
        let sum: u64 = bands.map(|band| band["live_bytes"][at].as_u64().unwrap()).sum();
        assert_eq!(sum, totals.peak_bytes, "seed {seed}");
        seen += (engine.definitions().folded_until_ns().is_some_and(|until| until >= totals.peak_time_ns)) as u32;
    }
    assert!(seen > 50, "{seen} peaks were folded");
}

#[test]
fn a_merged_trace_has_the_counts_of_both() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let traces = [random_trace(&mut rng, 300), random_trace(&mut rng, 300)];
        let sources = traces.iter().map(|trace| {
            let mut blocks = vec![format::Session::default().to_block()];
            blocks.extend(random_cut(&mut rng, trace).blocks);
            format::Source::new(Cursor::new(file(&blocks))).unwrap()
        });
        let mut out = FileWriter::new(Vec::new(), 1).unwrap();
        let merged = format::merge(sources.collect(), "test", &mut out).unwrap();
        let mut engine = Engine::new();
        blocks(out.get_ref()).iter().for_each(|(_, block)| engine.add(block));
        let alone: Vec<Totals> = traces.iter().map(unfolded).collect();
        let counts = |totals: &Totals| {
            [totals.allocations, totals.allocated_bytes, totals.temporary, totals.leaked_bytes, totals.unknown_frees]
        };
        let sum: Vec<u64> = counts(&alone[0]).into_iter().zip(counts(&alone[1])).map(|(a, b)| a + b).collect();
        assert_eq!(counts(&engine.totals()).to_vec(), sum, "seed {seed}");
        assert_eq!(counts(&merged.summary.totals).to_vec(), sum, "seed {seed}");
    }
}

fn unfolded(trace: &Trace) -> Totals {
    let mut engine = Engine::new();
    trace.blocks.iter().for_each(|block| engine.add(block));
    engine.totals()
}

#[test]
fn a_trimmed_trace_begins_with_the_same_counts() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let trace = random_trace(&mut rng, 400);
        let cut = random_cut(&mut rng, &trace);
        let mut out = FileWriter::new(Vec::new(), 1).unwrap();
        let mut source = format::Source::new(Cursor::new(file(&cut.blocks))).unwrap();
        let format::Trimmed { summary, folded_until_ns } = format::trim(&mut source, None, u64::MAX, &mut out).unwrap();
        assert_eq!(folded_until_ns, None);
        assert_eq!(summary.totals, unfolded(&trace), "seed {seed}");
        let mut trimmed = Engine::new();
        blocks(out.get_ref()).iter().for_each(|(_, block)| trimmed.add(block));
        assert_eq!(trimmed.totals(), unfolded(&trace), "seed {seed}");
    }
}

/// Merged alone, a folded trace has the same totals. Merged with a later run, it has the higher peak of the two.
#[test]
fn a_merged_trace_keeps_a_folded_peak() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let traces = [random_trace(&mut rng, 400), random_trace(&mut rng, 300)];
        let mut at = 1_700_000_000_000_000_000;
        let parts = traces.each_ref().map(|trace| {
            let mut blocks = vec![format::Session { started_unix_ns: at, ..Default::default() }.to_block()];
            blocks.extend(random_cut(&mut rng, trace).blocks);
            at += trace.runtime_ns + 100_000;
            file(&blocks)
        });
        let totals = traces.each_ref().map(unfolded);
        let highest = totals.iter().map(|totals| totals.peak_bytes).max().unwrap();
        for (count, peak) in [(1, totals[0].peak_bytes), (2, highest)] {
            let sources = parts.iter().take(count).map(|part| format::Source::new(Cursor::new(part.clone())).unwrap());
            let mut out = FileWriter::new(Vec::new(), 1).unwrap();
            let merged = format::merge(sources.collect(), "test", &mut out).unwrap();
            assert_eq!(merged.folded_until_ns, None, "seed {seed}: nothing ran beside it");
            let mut engine = Engine::new();
            blocks(out.get_ref()).iter().for_each(|(_, block)| engine.add(block));
            assert_eq!(engine.totals().peak_bytes, peak, "seed {seed}, {count}");
            assert_eq!(merged.summary.totals.peak_bytes, peak, "seed {seed}, {count}");
            let at_peak: u64 = engine.whole_profile().unwrap().stacks.iter().map(|(_, costs)| costs.peak_bytes).sum();
            assert_eq!(at_peak, peak, "seed {seed}, {count}");
            if count == 1 {
                assert_eq!(engine.totals(), totals[0], "seed {seed}");
            }
        }
    }
}

/// Sums cannot be divided, so a trimmed trace says where they end.
#[test]
fn a_trace_that_was_trimmed_within_its_folded_part_says_so() {
    let mut seen = 0;
    for seed in 0..200 {
        let (_, cut, whole) = cut_trace(seed);
        let Some(until) = whole.definitions().folded_until_ns().filter(|until| *until > 0) else { continue };
        for from in [until - 1, until] {
            let mut out = FileWriter::new(Vec::new(), 1).unwrap();
            let mut source = format::Source::new(Cursor::new(file(&cut.blocks))).unwrap();
            let trimmed = format::trim(&mut source, Some(from), u64::MAX, &mut out).unwrap();
            let is_within = (from < until).then_some(until);
            let mut engine = Engine::new();
            blocks(out.get_ref()).iter().for_each(|(_, block)| engine.add(block));
            assert_eq!(
                (trimmed.folded_until_ns, engine.definitions().folded_until_ns()),
                (is_within, is_within),
                "seed {seed}"
            );
            assert_eq!(trimmed.summary.totals.allocations, engine.totals().allocations, "seed {seed}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}
