//! The processes of a tree, against a replay that copies everything that a process holds.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;

use analysis::{BlocksInMemory, CombinedPeak, Engine, ProcessName, Query, Share};
use common::{Kind, Trace, tree::random_tree};
use format::{Freed, Process, Totals};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
            // If the file does not say that exec removed the blocks, they look like leaks unless an event says it.
            if !is_cut || !process.end.is_some_and(|end| end.by_exec) {
                let leaked = |totals: &Totals| (totals.leaked_bytes, totals.leaked_allocations);
                assert_eq!(leaked(&row.totals), leaked(&expected), "seed {seed}, process {}", process.index);
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
