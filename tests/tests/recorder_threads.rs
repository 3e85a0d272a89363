//! `--recorder-threads`: the answers do not depend on how many threads recorded the trace.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::{Chance, Outcome, Program, scale};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const THREADS: u64 = 4;
const CALLS: u64 = 60_000;

fn recorded_by(threads: &str) -> Outcome {
    let program = Program::target("many_sites").arg(THREADS.to_string()).arg(CALLS.to_string());
    let outcome = program.option("--recorder-threads").option(threads).recorded();
    assert_eq!((outcome.code, outcome.stdout.trim()), (0, format!("made {}", THREADS * CALLS).as_str()));
    outcome
}

/// Options of `print` that select some of the blocks. Times and the indexes of threads differ from run to run, so they are not used.
fn random_query(chance: &mut Chance) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
    match chance.between(0, 4) {
        0 => add("--include", format!("site_{}", chance.between(0, 16))),
        1 => add("--exclude", format!("site_{}", chance.between(0, 16))),
        2 => {
            add("--exclude", format!("site_{}", chance.between(0, 16)));
            add("--exclude", format!("site_{}", chance.between(0, 16)));
        }
        _ => (),
    }
    if chance.between(0, 3) > 0 {
        let least = chance.between(0, 1000);
        add("--size", format!("{least}..{}", least + chance.between(0, 400)));
    }
    options
}

/// The answer without what depends on the order of the threads' calls: the peak, and when it was.
fn answer(trace: &Path, query: &[String]) -> Vec<String> {
    let output = Command::new(heaptrack())
        .args(["print", "--no-suppressions", "--view", "bottom-up"])
        .args(query)
        .arg(trace)
        .output()
        .expect("print runs");
    assert!(output.status.success(), "{query:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut rows = Vec::new();
    collect(&mut json, &mut rows);
    rows.sort_unstable();
    rows
}

/// Collects the counts of all functions.
fn collect(json: &mut Value, rows: &mut Vec<String>) {
    if let Some(function) = json.get("function").and_then(Value::as_str) {
        let counts = ["allocations", "allocated_bytes", "leaked_allocations", "leaked_bytes", "temporary"];
        rows.push(format!("{function} {:?}", counts.map(|count| find(json, count))));
    }
    match json {
        Value::Array(list) => list.iter_mut().for_each(|entry| collect(entry, rows)),
        Value::Object(map) => map.values_mut().for_each(|entry| collect(entry, rows)),
        _ => (),
    }
}

fn find(json: &Value, name: &str) -> Option<u64> {
    json.get(name).or_else(|| json.get("costs")?.get(name)).and_then(Value::as_u64)
}

#[test]
fn traces_of_1_2_and_4_threads_give_the_same_answers() {
    let outcomes = ["1", "2", "4"].map(recorded_by);
    for outcome in &outcomes {
        let report = outcome.report();
        assert_eq!(report.total("lost_events") + report.total("unknown_frees") + report.total("implied_frees"), 0);
    }
    let sites = answer(&outcomes[0].trace, &[]);
    let places = sites.iter().filter(|row| row.starts_with("site_")).count();
    assert_eq!(places, 16, "{sites:#?}");
    let mut chance = Chance::new("queries about traces of different threads");
    for _ in 0..scale::count(1000) {
        let query = random_query(&mut chance);
        let [one, two, four] = outcomes.each_ref().map(|outcome| answer(&outcome.trace, &query));
        assert_eq!(two, one, "{query:?}");
        assert_eq!(four, one, "{query:?}");
    }
}
