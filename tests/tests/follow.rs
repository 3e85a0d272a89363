//! `--follow`: all processes that a program starts are in one trace, each with its own counts.
use format::{Block, Process, ProcessEnd, Reader};
use heaptrack_tests::Program;
use std::collections::BTreeMap;
use std::path::Path;

/// The processes of a trace, by index.
fn processes(trace: &Path) -> BTreeMap<u32, Process> {
    let mut reader = Reader::open(trace).expect("a trace");
    let mut all = BTreeMap::new();
    while let Some(block) = reader.next_block().expect("a whole trace") {
        if let Ok(Block::Processes(processes)) = block.decode() {
            all.extend(processes.processes.into_iter().map(|process| (process.index, process)));
        }
    }
    all
}

/// The words of a line `name=value ...`.
fn words(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace().filter_map(|word| word.split_once('=')).collect()
}

/// What a program says about itself, in the words of `tests/targets/family.c`.
fn counts(process: &Process, end: &ProcessEnd) -> String {
    let totals = &end.totals;
    format!(
        "pid={} end={} allocations={} bytes={} frees={} left={} left_bytes={} peak={} inherited={} inherited_bytes={}",
        process.pid,
        if end.by_exec { "exec" } else { "exit" },
        totals.allocations,
        totals.allocated_bytes,
        totals.deallocations,
        totals.leaked_allocations,
        totals.leaked_bytes,
        totals.peak_bytes,
        process.inherited_allocations,
        process.inherited_bytes
    )
}

#[test]
fn every_process_of_a_tree_has_its_own_counts() {
    for seed in 1..=5 {
        let program = Program::target("family").arg(seed.to_string()).arg("2").arg("3").option("--follow");
        let outcome = program.recorded();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let mut told: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
        let all = processes(&outcome.trace);
        let mut recorded: Vec<String> =
            all.values().filter_map(|process| Some(counts(process, process.end.as_ref()?))).collect();
        told.sort();
        recorded.sort();
        assert_eq!(recorded, told, "seed {seed} {}", outcome.stderr);
        assert!(all.len() >= 13, "a root, three children, nine grandchildren");
        for process in all.values() {
            assert!(process.command.iter().any(|word| word.contains("family")), "{process:?}");
            let parent = process.parent.map(|parent| &all[&parent]);
            assert!(parent.is_none_or(|parent| parent.start_ns <= process.start_ns), "{process:?}");
        }
        let own: u64 = told.iter().map(|line| words(line)["allocations"].parse::<u64>().expect("a number")).sum();
        assert_eq!(outcome.whole_report().total("allocations"), own, "seed {seed}");
    }
}
