//! `--follow`: all processes that a program starts are in one trace, each with its own counts.
use format::{Block, Exit, Process, ProcessEnd, Reader, Totals};
use heaptrack_tests::Program;
use heaptrack_tests::dhat::{self, Counts};
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

/// The combined totals that the recorder counted.
fn summary(trace: &Path) -> Totals {
    let mut reader = Reader::open(trace).expect("a trace");
    let mut totals = None;
    while let Some(block) = reader.next_block().expect("a whole trace") {
        if let Ok(Block::Summary(summary)) = block.decode() {
            totals = Some(summary.totals);
        }
    }
    totals.expect("a summary")
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
        assert_eq!(recorded, told, "seed {seed}");
        assert!(all.len() >= 13, "a root, three children, nine grandchildren");
        assert_eq!(all[&0].end.map(|end| end.exit), Some(Exit::Code(0)), "the one that heaptrack waited for");
        for process in all.values() {
            assert!(process.command.iter().any(|word| word.contains("family")), "{process:?}");
            let parent = process.parent.map(|parent| &all[&parent]);
            assert!(parent.is_none_or(|parent| parent.start_ns <= process.start_ns), "{process:?}");
        }
        let own: u64 = told.iter().map(|line| words(line)["allocations"].parse::<u64>().expect("a number")).sum();
        assert_eq!(outcome.whole_report().total("allocations"), own, "seed {seed}");
    }
}

/// The last component of a command's first word.
fn name(command: &[String]) -> String {
    command.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default().to_owned()
}

#[test]
fn programs_that_a_shell_starts_have_the_totals_of_dhat() {
    let script = "ls -l /usr/share > /dev/null; wc -l /etc/passwd; cat /etc/hostname; expr 3 + 4; \
                  awk 'BEGIN { for (i = 0; i < 1000; i++) a[i] = i \"x\"; print length(a) }'; true";
    let program = Program::new("/bin/sh").arg("-c").arg(script);
    let mut expected: Vec<(String, Counts)> =
        dhat::run_tree(&program).into_iter().map(|(command, counts)| (name(&command), counts)).collect();
    let outcome = program.option("--follow").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let mut recorded: Vec<(String, Counts)> = Vec::new();
    for process in processes(&outcome.trace).values() {
        let totals = process.end.expect("its end").totals;
        let counts = Counts {
            allocations: totals.allocations,
            allocated_bytes: totals.allocated_bytes,
            peak_allocations: totals.peak_allocations,
            peak_bytes: totals.peak_bytes,
            leaked_allocations: totals.leaked_allocations,
            leaked_bytes: totals.leaked_bytes,
        };
        recorded.push((name(&process.command), counts));
    }
    // The shell copies its environment, which is another one under Valgrind.
    expected.retain(|(name, _)| name != "sh");
    recorded.retain(|(name, _)| name != "sh");
    expected.sort();
    recorded.sort();
    assert_eq!(recorded, expected, "left is ours, right is DHAT's");
    assert_eq!(recorded.len(), 5);
}

#[test]
fn the_combined_peak_counts_an_inherited_block_once() {
    for seed in 1..=5 {
        let outcome = Program::target("family_peak").arg(seed.to_string()).option("--follow").recorded();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let told: BTreeMap<&str, u64> =
            words(&outcome.stdout).into_iter().map(|(name, value)| (name, value.parse().expect("a number"))).collect();
        let totals = summary(&outcome.trace);
        let found = [totals.peak_bytes, totals.peak_allocations, totals.leaked_allocations, totals.leaked_bytes];
        assert_eq!(found, ["peak", "blocks", "left", "left_bytes"].map(|name| told[name]), "seed {seed}");
    }
}
