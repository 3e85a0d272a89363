//! Hostile blocks, for `HEAPTRACK_FUZZ_SECONDS` (default 2). A replay counts them or reports damage, and never panics.
//! Its totals are the sums of its sites. Every view answers every query about them. A failure prints its seed, and
//! `HEAPTRACK_FUZZ_SEED` runs that seed first.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
#[path = "../../../fuzz/src/checks.rs"]
mod checks;
#[path = "../../format/tests/common/fuzzing.rs"]
mod fuzzing;

use analysis::{
    AnswerError, BlocksInMemory, CodeClasses, Engine, Lookup, Query, Report, StackTable, Suppressions, View, view,
};
use checks::check_blocks;
use fastrand::Rng;
use format::*;

/// If `wild`, sizes and times may be any 64-bit number. The format does not allow all of them.
fn blocks(rng: &mut Rng, wild: bool) -> Vec<RawBlock> {
    let module = |instance, path: &str| Module { instance, path: path.into(), ..Module::default() };
    let mut blocks = vec![Module::to_block(&[module(1, "/a"), module(2, "/b"), module(3, "/a")])];
    let (mut stacks, mut alloc_classes, mut events) =
        (StackEncoder::new(), AllocClassEncoder::new(), EventEncoder::new());
    let (mut known_stacks, mut known_alloc_classes) = (0, 0);
    let mut live = Vec::new();
    for _ in 0..4 {
        for _ in 0..1 + rng.usize(..5) {
            let parent = rng.u32(..known_stacks + 1);
            known_stacks = stacks.push(parent, Frame::new(rng.u16(..4), rng.u64(..) & 0xfff, false));
            let size = if wild { rng.u64(..) >> rng.usize(..64) } else { rng.u64(..) >> rng.usize(..40).max(16) };
            known_alloc_classes = alloc_classes.push(size, known_stacks) + 1;
        }
        for _ in 0..rng.usize(..200) {
            match rng.usize(..20) {
                0 => events.thread(rng.u32(..3)),
                1 if wild && rng.usize(..20) == 0 => events.time(rng.u64(..) >> rng.usize(..64)),
                1 => events.time(events.next_sequence().saturating_mul(50_000)),
                2 => events.unknown_free(),
                3 if rng.usize(..10) == 0 => events.latest_gone(),
                3 if rng.usize(..10) == 0 => {
                    let far = if wild { rng.u64(..) >> rng.usize(..64) } else { rng.u64(..100_000) };
                    events.skip_to(events.next_sequence().saturating_add(far).min(u64::MAX / 2));
                }
                3 if rng.usize(..20) == 0 => {
                    events.image(rng.u32(..4));
                    live.clear();
                }
                4..10 if !live.is_empty() => {
                    let at = rng.usize(..live.len());
                    let sequence = live.swap_remove(at);
                    if rng.usize(..4) == 0 { events.free_by_realloc(sequence) } else { events.free(sequence) }
                }
                _ => live.push(events.alloc(rng.u32(..known_alloc_classes))),
            }
        }
        blocks.extend([stacks.take(), alloc_classes.take()]);
        if rng.usize(..4) == 0 {
            blocks.push(folded(rng, known_alloc_classes));
        }
        blocks.push(events.take());
    }
    blocks
}

/// A folded part with random counts.
fn folded(rng: &mut Rng, alloc_classes: u32) -> RawBlock {
    let mut any = || rng.u64(..) >> rng.u64(..64);
    let mut rows = Vec::new();
    for alloc_class in 0..alloc_classes + 2 {
        let allocations = any();
        let row = FoldedRow {
            alloc_class,
            thread: any() as u32 % 4,
            allocations,
            deallocations: allocations / 2,
            ..FoldedRow::default()
        };
        rows.push(FoldedRow { temporary: any(), lifetime_ticks: any(), at_peak: any(), ..row });
    }
    let (until_ns, events, unknown_frees, implied_frees) = (any(), any(), any(), any());
    let (peak_bytes, peak_allocations, peak_time_ns) = (any(), any(), any());
    Folded { until_ns, events, unknown_frees, implied_frees, peak_bytes, peak_allocations, peak_time_ns, rows }
        .to_block()
}

/// Checks what must hold for any file, valid or not.
fn check(blocks: &[RawBlock]) -> Report {
    let report = check_blocks(blocks);
    for site in &report.sites {
        assert!(report.frames(site.stack).count() < 1000);
    }
    report
}

const TIMES: [&str; 10] = ["start", "end", "peak", "0s", "1ms", "7ms", "50%", "99.9%", "100%", "600000000000s"];
const QUESTIONS: [(&str, &[&str]); 16] = [
    ("include", &["a", "module:/a", "nowhere"]),
    ("exclude", &["a", "module:/b"]),
    ("thread", &["0", "1", "4294967295"]),
    ("size", &["0..100", "1M..", "..18446744073709551615"]),
    ("lifetime", &["0s..1ms", "1ms..", "1s..600000000000s"]),
    ("hide", &["libc", "all-but-mine"]),
    ("collapse", &["recursion"]),
    ("merge", &["line", "module", "namespace"]),
    ("suppressions", &["off"]),
    ("cost", &["peak", "leaked", "allocated", "kept", "growth", "deallocations", "temporary"]),
    ("compare", &["@start", "@peak", "@1ms..50%", "@end..start"]),
    ("limit", &["0", "1"]),
    ("depth", &["1", "1000000"]),
    ("points", &["1", "2", "4096"]),
    ("top", &["0", "1", "1000000"]),
    ("by", &["function"]),
];

fn question(rng: &mut Rng, view: View) -> Query {
    let time = |rng: &mut Rng| TIMES[rng.usize(..TIMES.len())];
    let mut words = match rng.usize(..4) {
        0 => vec![("at", time(rng))],
        1 => vec![],
        _ => vec![("from", time(rng)), ("to", time(rng))],
    };
    for _ in 0..rng.usize(..4) {
        let (name, values) = QUESTIONS[rng.usize(..QUESTIONS.len())];
        words.push((name, values[rng.usize(..values.len())]));
    }
    match view {
        View::Callers => words.push(("function", "a")),
        View::Source => words.push(("file", "/a")),
        View::Diff => words.push(("compare", ["@start", "@50%"][rng.usize(..2)])),
        _ => {}
    }
    // A view refuses words that it does not use, and for one instant only two costs are known.
    words.retain(|(name, _)| view::heeding(name).contains(&view));
    let is_instant = |(name, value): &(&str, &str)| *name == "at" || *name == "compare" && !value.contains("..");
    if words.iter().any(is_instant) {
        words.retain(|(name, value)| *name != "cost" || *value == "leaked");
    }
    Query::new(words).unwrap()
}

struct Opened {
    engine: Engine,
    table: StackTable,
    blocks: BlocksInMemory,
}

impl Opened {
    fn new(mut engine: Engine, blocks: &[RawBlock]) -> Self {
        blocks.iter().for_each(|block| engine.add(block));
        let mut known = Suppressions::new();
        known.add("leak:/a\n", analysis::Source::File);
        let table = StackTable::new(engine.definitions(), &CodeClasses::new("/a"), known);
        Opened { engine, table, blocks: BlocksInMemory::new(blocks.iter().cloned()) }
    }

    fn trace(&mut self) -> view::Trace<'_> {
        view::Trace { engine: &self.engine, table: &self.table, blocks: &mut self.blocks, complete: false }
    }
}

/// A random query for a random view. The answer must be JSON, or a sentence about the query.
fn ask(rng: &mut Rng, opened: &mut Opened, other: &mut Opened) {
    let (name, view) = View::ALL[rng.usize(..View::ALL.len())];
    let query = question(rng, view);
    let mut out = Vec::new();
    let mut base = (view == View::Diff && rng.usize(..2) == 0).then(|| other.trace());
    match analysis::answer(view, &query, &mut opened.trace(), base.as_mut(), &mut out) {
        Ok(()) => {
            let answer: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(answer["view"], name);
            let totals = &answer["totals"];
            assert!(totals["leaked_bytes"].as_u64().unwrap() <= totals["live_bytes"].as_u64().unwrap(), "{query:?}");
        }
        Err(AnswerError::Query(_)) => {}
        Err(error) => panic!("{name}: {error}"),
    }
}

fn round(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let wild = rng.usize(..3) == 0;
    let mut blocks = blocks(&mut rng, wild);
    let report = check(&blocks);
    assert!(report.faults.is_empty() || wild);
    let mut honest = Opened::new(Engine::indexed_finely(4, 1 << 10), &blocks);
    for _ in 0..1 + rng.usize(..4) {
        let at = rng.usize(..blocks.len());
        match rng.usize(..4) {
            0 => drop(blocks.remove(at)),
            1 => {
                let other = rng.usize(..blocks.len());
                blocks.swap(at, other);
            }
            2 => blocks.insert(at, blocks[at].clone()),
            _ => {
                let payload = &mut blocks[at].payload;
                let place = rng.usize(..payload.len().max(1));
                match rng.usize(..3) {
                    _ if payload.is_empty() => payload.push(rng.u8(..)),
                    0 => payload[place] ^= 1 << rng.usize(..8),
                    1 => payload.truncate(place),
                    _ => payload[place] = rng.u8(..),
                }
            }
        }
    }
    check(&blocks);
    let engine = if rng.usize(..2) == 0 { Engine::new() } else { Engine::indexed_finely(4, 1 << 10) };
    let mut opened = Opened::new(engine, &blocks);
    for _ in 0..4 {
        ask(&mut rng, &mut opened, &mut honest);
    }
    let mut lookup = Lookup::new(rng.u64(..100));
    for block in &blocks {
        lookup.add(block).ok();
    }
    if let Some(found) = lookup.finish() {
        assert!(found.definitions.frames(found.stack).count() < 1000);
    }
}

#[test]
fn hostile_blocks_are_harmless() {
    fuzzing::fuzz(2, round);
}
