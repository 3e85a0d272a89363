//! Threads: their own counters compared with the trace, blocks that are freed by other threads, threads that begin and
//! end.
use heaptrack_tests::report::sum;
use heaptrack_tests::{Program, scale};
use std::collections::HashMap;

fn numbers(text: &str) -> HashMap<&str, u64> {
    text.split_whitespace().filter_map(|word| word.split_once('=')).map(|(k, v)| (k, v.parse().unwrap())).collect()
}

fn counters_agree(threads: u32, events: u64) {
    let program = Program::target("threads").arg(threads.to_string()).arg(events.to_string());
    let outcome = program.recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let counted = numbers(&outcome.stdout);
    let report = outcome.whole_report();
    let own = sum(&report.own(&program.path));
    assert_eq!(own.allocations, counted["allocations"]);
    assert_eq!(own.allocated_bytes, counted["bytes"]);
    assert_eq!(own.freed(), counted["frees"]);
    assert_eq!(own.leaked_allocations, counted["left"]);
    assert_eq!(own.leaked_bytes, counted["left_bytes"]);
    assert_eq!(report.total("unknown_frees"), 0, "a free that met no block");
    let implied = &report.json()["totals"]["implied_frees"];
    assert_eq!(implied.as_u64(), Some(0), "an address handed out again before its free was seen");
}

#[test]
fn eight_threads_with_cross_thread_frees() {
    counters_agree(8, scale::count(10_000_000));
}

#[test]
fn two_threads() {
    counters_agree(2, scale::count(2_000_000));
}

#[test]
fn more_threads_than_the_machine_has_cores() {
    counters_agree(64, scale::count(1_000_000));
}

#[test]
fn a_hundred_thousand_threads_in_turn() {
    let wanted = scale::count(100_000);
    let program = Program::target("short_threads").arg(wanted.to_string());
    let report = program.same_output().whole_report();
    let own = sum(&report.own(&program.path));
    assert_eq!(own.allocations, 3 * wanted);
    assert_eq!(own.allocated_bytes, 300 * wanted);
    assert_eq!(own.leaked_allocations, 0);
    assert_eq!(report.total("unknown_frees"), 0);
}

#[test]
fn what_a_thread_allocates_while_it_dies() {
    let report = Program::target("thread_ends").same_output().whole_report();
    let counts = |size| (report.of_size(size).allocations, report.of_size(size).leaked_allocations);
    assert_eq!(counts(501), (3, 0));
    assert_eq!(counts(502), (6, 6));
    assert_eq!(counts(503), (3, 0));
}

#[test]
fn temporary_is_counted_per_thread() {
    // Each thread allocates three blocks and then frees the first two, so neither is its latest allocation. The main
    // thread frees the third.
    let program = Program::target("short_threads").arg("100");
    let report = program.recorded().whole_report();
    assert_eq!(sum(&report.own(&program.path)).temporary, 0);
}
