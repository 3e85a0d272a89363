//! Traces that are made from others. A trimmed trace has the same answers for its time, and a merged trace is the sum
//! of its parts.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;

use analysis::{BlocksInMemory, Engine, Query, When};
use common::{Event, Kind, Rng, Trace, random_trace};
use format::{
    BlockKind, EventEncoder, FileWriter, Freed, Gone, GoneBlock, RawBlock, RssSample, Session, Source, Summary, merge,
    trim,
};
use std::collections::HashMap;
use std::io::Cursor;

fn file(blocks: &[RawBlock]) -> Source<Cursor<Vec<u8>>> {
    let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
    for block in blocks {
        writer.write(block).unwrap();
    }
    Source::new(Cursor::new(writer.finish().unwrap())).unwrap()
}

fn read(bytes: Vec<u8>) -> Vec<RawBlock> {
    let mut source = Source::new(Cursor::new(bytes)).unwrap();
    let mut blocks = Vec::new();
    while let Some(block) = source.next_block().unwrap() {
        blocks.push(block.clone());
    }
    assert!(source.finished() && source.damage_count() == 0);
    blocks
}

fn engine(blocks: &[RawBlock]) -> Engine {
    let mut engine = Engine::new();
    blocks.iter().for_each(|block| engine.add(block));
    assert!(engine.faults().is_empty(), "{:?}", engine.faults());
    engine
}

fn with_session(trace: &Trace, started_unix_ns: u64) -> Vec<RawBlock> {
    let session = Session { started_unix_ns, ..Session::default() };
    let mut blocks = vec![session.to_block()];
    blocks.extend(trace.blocks.iter().cloned());
    let samples = [10, 20, 30].map(|ms| RssSample { time_ns: ms * 1_000_000, rss_bytes: ms << 20, overhead_bytes: 1 });
    blocks.push(RssSample::to_block(&samples));
    let mut summary = Summary { complete: true, ..Summary::default() };
    summary.totals.runtime_ns = trace.runtime_ns;
    blocks.push(summary.to_block());
    blocks
}

#[test]
fn a_trimmed_trace_answers_for_its_time_as_the_whole_one() {
    common::rounds(3000, |seed, mut rng| {
        let steps = 20 + rng.u64(..600);
        let trace = random_trace(&mut rng, steps);
        let blocks = with_session(&trace, 0);
        let from = (rng.u64(..5) != 0).then(|| 1 + rng.u64(..trace.runtime_ns + 200_000));
        let to = from.unwrap_or(0) + 1 + rng.u64(..trace.runtime_ns + 1);
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        let summary = trim(&mut file(&blocks), from, to, &mut writer).unwrap().summary;
        let trimmed = read(writer.finish().unwrap());
        let mut query = Query::default();
        (query.from, query.to) = (from.map(When::Ns), Some(When::Ns(to)));
        let answer = |blocks: &[RawBlock]| {
            let profile = engine(blocks).profile(&mut BlocksInMemory::new(blocks.iter().cloned()), &query).unwrap();
            (profile.stacks, profile.totals)
        };
        let (whole, short) = (answer(&blocks), answer(&trimmed));
        assert_eq!(short, whole, "seed {seed}: {from:?}..{to}; left is the trimmed one");
        // Blocks that were live at its beginning count as allocated in it, and all later events are there.
        let totals = engine(&trimmed).totals();
        assert_eq!(totals.allocations, whole.1.base_allocations + whole.1.allocations, "seed {seed}");
        // The new trace ends at B. So what processes had not freed when they ended is leaked in it.
        let is_within = |event: &&Event| from.is_none_or(|from| event.time_ns > from) && event.time_ns <= to;
        let left = |event: &Event| match event.kind {
            Kind::Free { sequence, how: Freed::Leaked, .. } => trace.size_of(sequence),
            _ => 0,
        };
        let left: u64 = trace.events.iter().filter(is_within).map(left).sum();
        assert_eq!(totals.leaked_bytes, short.1.live_bytes + left, "seed {seed}");
        let told = summary.totals;
        assert_eq!(
            (told.allocations, told.deallocations, told.allocated_bytes, told.temporary, told.unknown_frees),
            (totals.allocations, totals.deallocations, totals.allocated_bytes, totals.temporary, totals.unknown_frees),
            "seed {seed}"
        );
        assert_eq!((told.leaked_bytes, told.peak_bytes), (totals.leaked_bytes, totals.peak_bytes), "seed {seed}");
        assert_eq!(told.peak_rss_bytes, totals.peak_rss_bytes, "seed {seed}");
    });
}

/// The time at which a process ends. It is at least 30 ms, because the memory samples of a trace reach that far.
fn length(trace: &Trace) -> u64 {
    trace.runtime_ns.max(30_000_000)
}

/// Returns the highest number of live bytes of several traces together, and the total of their leaks. The blocks of a
/// trace end when its program is replaced or ends.
fn naive_peak(traces: &[Trace], starts: &[u64]) -> (u64, u64) {
    let mut all = Vec::new();
    for (number, trace) in traces.iter().enumerate() {
        all.extend(trace.events.iter().map(|event| (starts[number] + event.time_ns, number, Some(event.kind))));
        all.push((starts[number] + length(trace), number, None));
    }
    all.sort_by_key(|(time, number, _)| (*time, *number));
    let mut live: Vec<HashMap<u64, u64>> = vec![HashMap::new(); traces.len()];
    let (mut now, mut peak, mut leaked) = (0u64, 0, 0);
    for (_, number, kind) in all {
        let Some(kind) = kind else {
            let left = live[number].drain().map(|(_, size)| size).sum::<u64>();
            (now, leaked) = (now - left, leaked + left);
            continue;
        };
        match kind {
            Kind::Alloc { sequence, alloc_class } => {
                let size = traces[number].alloc_classes[alloc_class].0;
                live[number].insert(sequence, size);
                now += size;
                peak = peak.max(now);
            }
            Kind::Free { sequence, how, .. } => {
                let size = live[number].remove(&sequence).unwrap();
                now -= size;
                leaked += if how == Freed::Leaked { size } else { 0 };
            }
            Kind::Image => now -= live[number].drain().map(|(_, size)| size).sum::<u64>(),
            Kind::Release { .. } | Kind::Unknown => (),
        }
    }
    (peak, leaked)
}

#[test]
fn a_merged_trace_is_the_sum_of_its_parts_in_their_order() {
    common::rounds(1000, |seed, mut rng| {
        let count = 1 + rng.usize(..4);
        let traces: Vec<Trace> = (0..count)
            .map(|_| {
                let steps = rng.u64(..400);
                random_trace(&mut rng, steps)
            })
            .collect();
        let starts: Vec<u64> = (0..count).map(|_| 1_700_000_000_000_000_000 + 100_000 * rng.u64(..200)).collect();
        let blocks: Vec<Vec<RawBlock>> =
            traces.iter().zip(&starts).map(|(trace, at)| with_session(trace, *at)).collect();
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        let merged = merge(blocks.iter().map(|blocks| file(blocks)).collect(), "test", &mut writer).unwrap();
        let all = engine(&read(writer.finish().unwrap()));
        let (ours, told) = (all.totals(), merged.summary.totals);
        let parts: Vec<_> = blocks.iter().map(|blocks| engine(blocks).totals()).collect();
        let sum = |of: fn(&format::Totals) -> u64| parts.iter().map(of).sum::<u64>();
        assert_eq!(ours.allocations, sum(|totals| totals.allocations), "seed {seed}");
        assert_eq!(ours.allocated_bytes, sum(|totals| totals.allocated_bytes), "seed {seed}");
        assert_eq!(ours.temporary, sum(|totals| totals.temporary), "seed {seed}");
        assert_eq!(ours.leaked_allocations, sum(|totals| totals.leaked_allocations), "seed {seed}");
        assert_eq!(ours.unknown_frees, sum(|totals| totals.unknown_frees), "seed {seed}");
        assert_eq!(ours.deallocations, sum(|totals| totals.deallocations), "seed {seed}");
        assert_eq!(ours.implied_frees, sum(|totals| totals.implied_frees), "seed {seed}");
        assert_eq!((ours.peak_bytes, ours.leaked_bytes), naive_peak(&traces, &starts), "seed {seed}");
        let first = starts.iter().min().unwrap();
        let end = traces.iter().zip(&starts).map(|(trace, at)| at - first + length(trace)).max();
        assert_eq!(Some(ours.runtime_ns), end, "seed {seed}");
        assert_eq!(all.definitions().threads.len(), 0);
        assert!(merged.summary.complete);
        assert_eq!(
            (told.allocations, told.deallocations, told.temporary, told.leaked_bytes, told.peak_bytes),
            (ours.allocations, ours.deallocations, ours.temporary, ours.leaked_bytes, ours.peak_bytes),
            "seed {seed}"
        );
        assert_eq!((told.peak_rss_bytes, told.runtime_ns), (ours.peak_rss_bytes, ours.runtime_ns), "seed {seed}");
    });
}

fn merged(parts: &[Vec<RawBlock>]) -> Vec<RawBlock> {
    let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
    merge(parts.iter().map(|blocks| file(blocks)).collect(), "test", &mut writer).unwrap();
    read(writer.finish().unwrap())
}

fn random_query(rng: &mut Rng, runtime_ns: u64) -> Query {
    let mut query = Query::default();
    let mut when = || When::Ns(100_000 * rng.u64(..runtime_ns / 100_000 + 2));
    let (one, other) = (when(), when());
    match rng.u64(..6) {
        0 => (),
        1 => query.from = Some(one),
        2 => query.to = Some(one),
        3 => query.at = Some(one),
        4 => query.threads = vec![rng.u32(..3)],
        _ => (query.from, query.to) = (Some(one), Some(other)),
    }
    query
}

/// One trace that is merged alone, or trimmed to its whole time, has the same totals, of the session and of ranges,
/// even if the program replaced itself.
#[test]
fn what_is_made_of_one_whole_trace_has_its_answers() {
    common::rounds(1000, |seed, mut rng| {
        let steps = rng.u64(..500);
        let trace = random_trace(&mut rng, steps);
        let blocks = with_session(&trace, 1_700_000_000_000_000_000);
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        trim(&mut file(&blocks), None, u64::MAX, &mut writer).unwrap();
        let trimmed = read(writer.finish().unwrap());
        let one = merged(std::slice::from_ref(&blocks));
        let whole = engine(&blocks);
        for (what, made) in
            [("merged", &one), ("trimmed", &trimmed), ("merged twice", &merged(std::slice::from_ref(&one)))]
        {
            let engine = engine(made);
            assert_eq!(engine.totals(), whole.totals(), "seed {seed}, {what}");
            for _ in 0..4 {
                let query = random_query(&mut rng, trace.runtime_ns);
                let expected = whole.profile(&mut BlocksInMemory::new(blocks.iter().cloned()), &query).unwrap();
                let found = engine.profile(&mut BlocksInMemory::new(made.iter().cloned()), &query).unwrap();
                assert_eq!(found.totals, expected.totals, "seed {seed}, {what}: {query:?}");
            }
        }
    });
}

/// Runs that follow each other are never live together: the peak is the highest of their peaks, and nothing is live
/// between the first and the second run.
#[test]
fn runs_one_after_the_other_peak_as_the_highest_of_them() {
    common::rounds(300, |seed, mut rng| {
        let traces: Vec<Trace> = (0..3).map(|_| random_trace(&mut rng, 300)).collect();
        let begin = 1_700_000_000_000_000_000;
        let mut at = begin;
        let parts: Vec<Vec<RawBlock>> = traces
            .iter()
            .map(|trace| {
                let blocks = with_session(trace, at);
                at += length(trace) + 100_000;
                blocks
            })
            .collect();
        let totals: Vec<_> = parts.iter().map(|blocks| engine(blocks).totals()).collect();
        let all = merged(&parts);
        let found = engine(&all);
        assert_eq!(found.totals().peak_bytes, totals.iter().map(|one| one.peak_bytes).max().unwrap(), "seed {seed}");
        assert_eq!(found.totals().leaked_bytes, totals.iter().map(|one| one.leaked_bytes).sum::<u64>(), "seed {seed}");
        // An instant between the first and the second run.
        let mut query = Query::default();
        query.at = Some(When::Ns(length(&traces[0])));
        let between = found.profile(&mut BlocksInMemory::new(all.iter().cloned()), &query).unwrap();
        assert_eq!((between.totals.live_bytes, between.totals.live_allocations), (0, 0), "seed {seed}");
        // An engine with an index has the same answers.
        let mut indexed = Engine::indexed_finely(4, 1 << 20);
        all.iter().for_each(|block| indexed.add(block));
        assert_eq!(indexed.totals(), found.totals(), "seed {seed}");
        for _ in 0..6 {
            let query = random_query(&mut rng, found.runtime_ns());
            let answer =
                |engine: &Engine| engine.profile(&mut BlocksInMemory::new(all.iter().cloned()), &query).unwrap().totals;
            assert_eq!(answer(&indexed), answer(&found), "seed {seed}: {query:?}");
        }
    });
}

/// A random file of KDE's heaptrack: interpreted, or raw with addresses that are used again.
fn random_kde(rng: &mut Rng, is_raw: bool) -> String {
    let mut text = String::from("v 10400 3\n");
    text += if is_raw {
        "x 2 /a\nX a\nm 1 -\nm 1 x 0 0 1000\nt 10 0\nt 20 1\n"
    } else {
        "X a\ns 2 /a\ni 10 1\nt 1 0\ni 20 1\nt 2 1\n"
    };
    let (mut alloc_classes, mut live, mut now) = (0, Vec::new(), 0);
    for _ in 0..rng.u64(..300) {
        match rng.u64(..8) {
            0 if !is_raw => {
                text += &format!("a {:x} {}\n", rng.u64(..100), rng.u64(..3));
                alloc_classes += 1;
            }
            1 => {
                now += rng.u64(..30);
                text += &format!("c {now:x}\nR {:x}\n", rng.u64(..50));
            }
            2..5 if is_raw => {
                let address = 0x1000 + rng.u64(..40);
                live.push(address);
                text += &format!("+ {:x} {} {address:x}\n", rng.u64(..5), rng.u64(..3));
            }
            2..5 if alloc_classes > 0 => {
                let alloc_class = rng.u64(..alloc_classes);
                live.push(alloc_class);
                text += &format!("+ {alloc_class:x}\n");
            }
            _ if !live.is_empty() => {
                let at = if rng.u64(..2) == 0 { live.len() - 1 } else { rng.usize(..live.len()) };
                text += &format!("- {:x}\n", live.swap_remove(at));
            }
            _ => (),
        }
    }
    text
}

/// The translation counts by KDE's rules while it reads the file, and the engine counts blocks. Both must have the same
/// totals.
#[test]
fn the_engine_counts_kdes_files_as_their_own_reader_does() {
    common::rounds(3000, |seed, mut rng| {
        let is_raw = rng.u64(..3) == 0;
        let text = random_kde(&mut rng, is_raw) + "\n# strings: 1\n# ips: 2\n";
        let mut source = Source::new(Cursor::new(text.into_bytes())).unwrap();
        let mut blocks = Vec::new();
        while let Some(block) = source.next_block().unwrap() {
            blocks.push(block.clone());
        }
        let mut engines = [Engine::new(), Engine::indexed_finely(3, 1 << 20)];
        for engine in &mut engines {
            blocks.iter().for_each(|block| engine.add(block));
        }
        let totals = engines[0].totals();
        assert_eq!(engines[1].totals(), totals, "seed {seed}");
        for engine in &engines {
            let profile = engine.profile(&mut BlocksInMemory::new(blocks.iter().cloned()), &Query::default()).unwrap();
            assert_eq!(profile.totals.temporary, totals.temporary, "a walk counts by the same rule; seed {seed}");
        }
        let Some(told) = engines[0].definitions().summary.map(|summary| summary.totals) else {
            assert!(is_raw, "seed {seed}");
            return;
        };
        assert_eq!(told, totals, "seed {seed}, raw {is_raw}");
    });
}

/// The blocks as older versions wrote a merged trace: an implied free ends a block that ended with its process, and a Gone
/// block before it says that the program did not make that free.
fn in_old_form(blocks: &[RawBlock]) -> Vec<RawBlock> {
    let mut old = Vec::new();
    let mut out = EventEncoder::new();
    let mut births: HashMap<u64, GoneBlock> = HashMap::new();
    for block in blocks {
        let Ok(mut events) = block.events() else {
            if !matches!(block.kind, BlockKind::Processes) {
                old.push(block.clone());
            }
            continue;
        };
        let mut now = (events.time_ns(), events.thread());
        while let Some(event) = events.read().unwrap() {
            match event {
                format::Event::Time(ns) => now.0 = ns,
                format::Event::Thread(thread) => now.1 = thread,
                _ => {}
            }
            out.time(now.0);
            out.thread(now.1);
            match event {
                format::Event::Alloc { sequence, alloc_class } => {
                    assert_eq!(out.alloc(alloc_class), sequence);
                    births.insert(sequence, GoneBlock { sequence, alloc_class, thread: now.1, born_ns: now.0 });
                }
                format::Event::Free { sequence, how: how @ (Freed::Leaked | Freed::Replaced) } => {
                    old.push(out.take());
                    let gone = Gone { at_ns: now.0, is_leak: how == Freed::Leaked, blocks: vec![births[&sequence]] };
                    old.push(gone.to_block());
                    out.free_implied(sequence);
                }
                format::Event::Free { sequence, how } => out.freed_by(sequence, how),
                format::Event::UnknownFree => out.unknown_free(),
                _ => {}
            }
        }
        old.push(out.take());
    }
    old
}

#[test]
fn a_trace_that_was_merged_in_the_old_way_has_the_same_answers() {
    let mut with_gone = 0;
    common::rounds(150, |seed, mut rng| {
        let traces: Vec<Trace> = (0..3).map(|_| common::trace_of_one(&mut rng, 200)).collect();
        let parts: Vec<Vec<RawBlock>> = traces
            .iter()
            .map(|trace| with_session(trace, 1_700_000_000_000_000_000 + 100_000 * rng.u64(..200)))
            .collect();
        let new = merged(&parts);
        let old = in_old_form(&new);
        // What the process leaks that ends last needs no such block.
        with_gone += old.iter().any(|block| block.kind == BlockKind::Gone) as usize;
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        trim(&mut file(&old), None, u64::MAX, &mut writer).unwrap();
        let trimmed = read(writer.finish().unwrap());
        let again = merged(std::slice::from_ref(&old));
        for made in [&trimmed, &again] {
            assert!(made.iter().all(|block| block.kind != BlockKind::Gone), "seed {seed}");
        }
        let whole = engine(&new);
        for (what, made) in [("old", &old), ("trimmed", &trimmed), ("merged again", &again)] {
            let found = engine(made);
            assert_eq!(found.totals(), whole.totals(), "seed {seed}, {what}");
            for _ in 0..4 {
                let query = random_query(&mut rng, whole.runtime_ns());
                let answer = |engine: &Engine, blocks: &[RawBlock]| {
                    engine.profile(&mut BlocksInMemory::new(blocks.iter().cloned()), &query).unwrap().totals
                };
                assert_eq!(answer(&found, made), answer(&whole, &new), "seed {seed}, {what}: {query:?}");
            }
        }
    });
    assert!(with_gone > 0);
}
