//! The processes of a tree, against a replay that copies everything that a process holds.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;

use analysis::{BlocksInMemory, CombinedPeak, Engine, ProcessName, Query, Share};
use common::{Kind, Trace, tree::random_tree};
use format::{
    BlockKind, Exit, FileWriter, Freed, Process, RawBlock, Reader, Session, Source, Summary, Totals, fold, merge, trim,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Cursor;

fn engine(mut engine: Engine, trace: &Trace) -> Engine {
    trace.blocks.iter().for_each(|block| engine.add(block));
    assert!(engine.faults().is_empty(), "{:?}", engine.faults());
    engine
}

/// What each process that was alive held after the first `events` events, and the process that counts for each block.
fn shares(trace: &Trace, events: usize) -> BTreeMap<u32, Share> {
    let mut held: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut owner: HashMap<u64, u32> = HashMap::new();
    for at in 0..events {
        for process in trace.processes.iter().filter(|process| process.events_before as usize == at) {
            held.insert(process.index, trace.inherited[&process.index].clone());
        }
        held.retain(|process, _| trace.ended_at.get(process).is_none_or(|ended| *ended > at));
        let event = trace.events[at];
        let process = trace.process_of_thread[&event.thread];
        match event.kind {
            Kind::Alloc { sequence, .. } => {
                held.get_mut(&process).unwrap().insert(sequence);
                owner.insert(sequence, process);
            }
            Kind::Free { sequence, .. } | Kind::Release { sequence } => {
                held.get_mut(&process).unwrap().remove(&sequence);
            }
            Kind::Unknown | Kind::Image => {}
        }
    }
    let mut shares: BTreeMap<u32, Share> = held.keys().map(|process| (*process, Share::default())).collect();
    for (sequence, owner) in owner {
        let holders: Vec<u32> = held.iter().filter(|(_, held)| held.contains(&sequence)).map(|(one, _)| *one).collect();
        let Some(first) = holders.first() else { continue };
        let at = if holders.contains(&owner) { owner } else { *first };
        let share = shares.get_mut(&at).unwrap();
        share.bytes += trace.size_of(sequence);
        share.allocations += 1;
    }
    shares
}

fn tree(engine: &Engine, trace: &Trace) -> analysis::ProcessTree {
    engine.process_tree(&mut BlocksInMemory::new(trace.blocks.iter().cloned())).unwrap()
}

#[test]
fn the_combined_peak_is_what_the_processes_held() {
    common::rounds(2000, |seed, mut rng| {
        let steps = 20 + rng.u64(..400);
        let trace = random_tree(&mut rng, steps);
        let expected = shares(&trace, trace.peak());
        let engine = engine(Engine::new(), &trace);
        let peak = tree(&engine, &trace).peak.unwrap();
        let totals = engine.totals();
        let CombinedPeak { time_ns, bytes, allocations, shares, unknown } = peak;
        assert_eq!((time_ns, bytes, allocations), (totals.peak_time_ns, totals.peak_bytes, totals.peak_allocations));
        assert_eq!((shares, unknown), (expected.clone(), Share::default()), "seed {seed}; left is our result");
        assert_eq!(expected.values().map(|share| share.bytes).sum::<u64>(), bytes, "seed {seed}");
    });
}

#[test]
fn the_totals_of_a_process_are_those_of_its_own_calls() {
    common::rounds(2000, |seed, mut rng| {
        let steps = 20 + rng.u64(..400);
        let mut trace = random_tree(&mut rng, steps);
        let indexed = rng.bool();
        // A cut file: no process has ended.
        let is_cut = rng.bool();
        if is_cut {
            trace.blocks.retain(|block| block.kind != format::BlockKind::Processes);
            let processes = trace.processes.iter().map(|process| format::Process { end: None, ..process.clone() });
            let threads = trace.process_of_thread.iter().map(|(thread, process)| (*thread, *process)).collect();
            trace.blocks.insert(0, format::Processes { processes: processes.collect(), threads }.to_block());
        }
        let engine = engine(if indexed { Engine::indexed_finely(4, 1 << 20) } else { Engine::new() }, &trace);
        let found = tree(&engine, &trace).processes;
        assert_eq!(found.len(), trace.processes.len(), "seed {seed}");
        let of = |totals: &Totals| {
            [
                totals.allocations,
                totals.deallocations,
                totals.allocated_bytes,
                totals.temporary,
                totals.peak_bytes,
                totals.unknown_frees,
                totals.implied_frees,
            ]
        };
        for (row, process) in found.iter().zip(&trace.processes) {
            let expected = process.end.map_or_else(|| trace.running[&process.index], |end| end.totals);
            assert_eq!(of(&row.totals), of(&expected), "seed {seed}, process {}", process.index);
            let leaked = |totals: &Totals| (totals.leaked_bytes, totals.leaked_allocations);
            // If the file does not say that exec removed the blocks, they look like leaks unless an event says it.
            match process.end.is_some_and(|end| end.by_exec) {
                true if is_cut => (),
                true => assert_eq!(leaked(&row.totals), (0, 0), "seed {seed}, process {}", process.index),
                false => {
                    assert_eq!(leaked(&row.totals), leaked(&expected), "seed {seed}, process {}", process.index);
                }
            }
        }
        // Every allocation is the call of one process.
        let sum: u64 = found.iter().map(|row| row.totals.allocations).sum();
        assert_eq!(sum, engine.totals().allocations, "seed {seed}");
    });
}

#[test]
fn a_filter_by_process_selects_what_its_threads_allocated() {
    common::rounds(1000, |seed, mut rng| {
        let trace = random_tree(&mut rng, 300);
        let engine = engine(Engine::new(), &trace);
        let chosen = &trace.processes[rng.usize(..trace.processes.len())];
        let (pid, index, command) = (chosen.pid, chosen.index, &chosen.command);
        let (name, is_chosen): (_, fn(&Process, &Process) -> bool) = match rng.u64(..3) {
            0 => (ProcessName::Pid(pid), |one, other| one.pid == other.pid),
            1 => (ProcessName::Index(index), |one, other| one.index == other.index),
            _ => (ProcessName::Name(command[0].replace("/bin/", "")), |one, other| one.command == other.command),
        };
        let mut query = Query::default();
        query.processes = vec![name];
        let of_process = |thread: &u32| is_chosen(chosen, &trace.processes[trace.process_of_thread[thread] as usize]);
        let mut by_threads = Query::default();
        by_threads.threads = trace.process_of_thread.keys().copied().filter(|thread| of_process(thread)).collect();
        let mut blocks = BlocksInMemory::new(trace.blocks.iter().cloned());
        let found = engine.profile(&mut blocks, &query).unwrap();
        let expected = trace.naive(&by_threads);
        let ours: BTreeMap<usize, _> = found.stacks.iter().map(|(site, costs)| (*site as usize, *costs)).collect();
        assert_eq!(ours, expected.sites, "seed {seed}: {query:?}");
    });
}

#[test]
fn blocks_that_end_with_their_process_occur_in_every_way() {
    let mut rng = common::Rng::with_seed(7);
    let events: Vec<Kind> = (0..40).flat_map(|_| random_tree(&mut rng, 400).events).map(|event| event.kind).collect();
    let has = |how: Freed| events.iter().any(|kind| matches!(kind, Kind::Free { how: found, .. } if *found == how));
    assert!([Freed::Leaked, Freed::Replaced, Freed::Dropped, Freed::Realloc].into_iter().all(has));
    assert!(events.iter().any(|kind| matches!(kind, Kind::Release { .. })));
}

fn file(blocks: &[RawBlock]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
    for block in blocks {
        writer.write(block).unwrap();
    }
    writer.finish().unwrap()
}

fn blocks_of(bytes: Vec<u8>) -> Vec<RawBlock> {
    let mut source = Source::new(Cursor::new(bytes)).unwrap();
    let mut blocks = Vec::new();
    while let Some(block) = source.next_block().unwrap() {
        blocks.push(block.clone());
    }
    blocks
}

fn peak_of(blocks: &[RawBlock]) -> (Engine, CombinedPeak) {
    let mut engine = Engine::new();
    blocks.iter().for_each(|block| engine.add(block));
    assert!(engine.faults().is_empty(), "{:?}", engine.faults());
    let tree = engine.process_tree(&mut BlocksInMemory::new(blocks.iter().cloned())).unwrap();
    (engine, tree.peak.unwrap())
}

/// The number of events up to the peak within `begin..end`; `None` if nothing after `begin` is higher than what was live
/// there.
fn peak_between(trace: &Trace, begin: usize, end: usize) -> Option<usize> {
    let (mut total, mut best, mut at) = (0, 0, None);
    for (number, event) in trace.events[..end].iter().enumerate() {
        if number == begin {
            (best, at) = (total, None);
        }
        match event.kind {
            Kind::Alloc { sequence, .. } => total += trace.size_of(sequence),
            Kind::Free { sequence, .. } => total -= trace.size_of(sequence),
            Kind::Release { .. } | Kind::Unknown | Kind::Image => {}
        }
        if total > best && number >= begin {
            (best, at) = (total, Some(number + 1));
        }
    }
    at
}

#[test]
fn a_trimmed_trace_knows_who_holds_the_blocks_from_before() {
    let mut compared = 0;
    common::rounds(3000, |seed, mut rng| {
        let steps = 20 + rng.u64(..400);
        let trace = random_tree(&mut rng, steps);
        let from = (rng.u64(..5) != 0).then(|| 1 + rng.u64(..trace.runtime_ns + 1));
        let to = from.unwrap_or(0) + rng.u64(..trace.runtime_ns + 1);
        let place = |ns: u64| trace.events.iter().take_while(|event| event.time_ns <= ns).count();
        let Some(peak) = peak_between(&trace, from.map_or(0, place), place(to)) else { return };
        let mut source = Source::new(Cursor::new(file(&trace.blocks))).unwrap();
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        trim(&mut source, from, to, &mut writer).unwrap();
        let trimmed = blocks_of(writer.finish().unwrap());
        let (engine, found) = peak_of(&trimmed);
        assert_eq!(found.shares, shares(&trace, peak), "seed {seed}: {from:?}..{to}; left is the trimmed one");
        assert_eq!(found.unknown, Share::default(), "seed {seed}");
        for process in engine.definitions().processes.values() {
            let old = &trace.processes[process.index as usize];
            assert!(place(to) as u64 >= old.events_before, "seed {seed}: it starts after the end");
            assert_eq!(process.end, old.end.filter(|end| end.at_ns <= to), "seed {seed}");
            assert_eq!((process.pid, process.parent, process.start_ns), (old.pid, old.parent, old.start_ns));
        }
        compared += 1;
    });
    assert!(compared > 50, "{compared}");
}

#[test]
fn a_folded_trace_knows_who_holds_the_blocks_from_before() {
    let mut compared = 0;
    common::rounds(3000, |seed, mut rng| {
        let steps = 20 + rng.u64(..400);
        let trace = random_tree(&mut rng, steps);
        let mut bytes = file(&trace.blocks);
        for _ in 0..1 + rng.u64(..2) {
            let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
            let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
            fold(&mut reader, rng.u64(..bytes.len() as u64), bytes.len() as u64, &mut writer).unwrap();
            bytes = writer.finish().unwrap();
        }
        let (engine, found) = peak_of(&blocks_of(bytes));
        let totals = engine.totals();
        assert_eq!((found.bytes, found.time_ns), (totals.peak_bytes, totals.peak_time_ns), "seed {seed}");
        let held = found.shares.values().map(|share| share.bytes).sum::<u64>();
        assert_eq!(held, found.bytes, "seed {seed}");
        for process in engine.definitions().processes.values() {
            assert_eq!(process.end, trace.processes[process.index as usize].end, "seed {seed}");
        }
        if engine.definitions().folded_until_ns().is_some_and(|until| until >= found.time_ns) {
            return;
        }
        assert_eq!(found.shares, shares(&trace, trace.peak()), "seed {seed}; left is the folded one");
        compared += 1;
    });
    assert!(compared > 50, "{compared}");
}

#[test]
fn each_trace_is_a_process_of_the_merged_one() {
    common::rounds(300, |seed, mut rng| {
        let count = 2 + rng.usize(..3);
        let traces: Vec<Trace> = (0..count).map(|_| common::trace_of_one(&mut rng, 200)).collect();
        let mut sources = Vec::new();
        for (number, trace) in traces.iter().enumerate() {
            let started_unix_ns = 1_700_000_000_000_000_000 + 100_000 * rng.u64(..50);
            let (pid, command) = (10 + number as u32, vec![format!("/bin/part{number}")]);
            let session = Session { started_unix_ns, pid, command, ..Session::default() };
            let totals = Totals { runtime_ns: trace.runtime_ns, ..engine(Engine::new(), trace).totals() };
            let mut blocks = vec![session.to_block()];
            blocks.extend(trace.blocks.iter().cloned());
            blocks.push(Summary { complete: true, exit: Exit::Code(3), totals }.to_block());
            sources.push(Source::new(Cursor::new(file(&blocks))).unwrap());
        }
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        merge(sources, "test", &mut writer).unwrap();
        let blocks = blocks_of(writer.finish().unwrap());
        assert!(blocks.iter().all(|block| block.kind != BlockKind::Gone), "seed {seed}");
        let (engine, peak) = peak_of(&blocks);
        let held = peak.shares.values().map(|share| share.bytes).sum::<u64>();
        assert_eq!((held, peak.unknown), (engine.totals().peak_bytes, Share::default()), "seed {seed}");
        let processes = &engine.definitions().processes;
        assert_eq!(processes.len(), count, "seed {seed}");
        for (number, trace) in traces.iter().enumerate() {
            let process = processes.values().find(|process| process.pid == 10 + number as u32).unwrap();
            let whole = trace.naive(&Query::default()).sites;
            let allocations: u64 = whole.values().map(|costs| costs.allocations).sum();
            let end = process.end.unwrap();
            assert_eq!((end.exit, end.totals.allocations), (Exit::Code(3), allocations), "seed {seed}");
            let mut query = Query::default();
            query.processes = vec![ProcessName::Name(format!("part{number}"))];
            let mut events = BlocksInMemory::new(blocks.iter().cloned());
            let found = engine.profile(&mut events, &query).unwrap();
            let leaked: u64 = whole.values().map(|costs| costs.live_bytes).sum();
            assert_eq!((found.totals.allocations, found.totals.live_bytes), (allocations, leaked), "seed {seed}");
        }
    });
}
