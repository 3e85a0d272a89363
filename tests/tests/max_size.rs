//! `--max-size`: the file stays below the limit, and its numbers about the whole run are those of an unlimited
//! recording.
use heaptrack_tests::attach::Target;
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::report::sum;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::sampled::{TOTALS, report};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Chance, Folder, Outcome, Program, Report, promised, scale};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BOUND: u64 = 1_000_000;

fn renewal(folder: &Folder, rounds: u64, shape: &str) -> Program {
    Program::target("renewal").arg(folder.join("counted")).arg(rounds.to_string()).arg(shape)
}

fn bounded(program: &Program) -> Program {
    program.clone().option("--max-size").option(BOUND.to_string())
}

/// The entries of a list, none of which contains a time, in a fixed order.
fn timeless(report: &Report, list: &str) -> Vec<String> {
    let entries = report.json()[list].as_array().expect("a list").iter();
    let mut entries: Vec<String> = entries.map(Value::to_string).collect();
    entries.sort();
    entries
}

fn numbers(text: &str) -> HashMap<&str, u64> {
    text.split_whitespace().filter_map(|word| word.split_once('=')).map(|(k, v)| (k, v.parse().unwrap())).collect()
}

fn length(outcome: &Outcome) -> u64 {
    std::fs::metadata(&outcome.trace).expect("a trace").len()
}

fn assert_counts(report: &Report, program: &Program, said: &str) {
    let (own, counted) = (sum(&report.own(&program.path)), numbers(said));
    assert_eq!(own.allocations, counted["allocations"]);
    assert_eq!(own.freed(), counted["frees"]);
    assert_eq!(own.allocated_bytes, counted["bytes"]);
    assert_eq!(own.temporary, counted["temporary"]);
}

/// Folded blocks of a sample keep their weights. Both recordings take the same blocks.
#[test]
fn a_bounded_sample_estimates_what_an_unbounded_one_does() {
    for shape in ["early", "late"] {
        let folder = Folder::new();
        let program = renewal(&folder, 1_500_000, shape).env("HEAPTRACK_TEST_SAMPLE_SEED", "5");
        let program = program.option("--sample").option("100");
        let free = program.recorded();
        std::fs::remove_file(folder.join("counted")).unwrap();
        let small = bounded(&program).recorded();
        assert_eq!((small.code, &small.stdout), (free.code, &free.stdout), "{}", small.stderr);
        assert!(length(&free) > 2 * BOUND && length(&small) <= BOUND, "{} and {}", length(&free), length(&small));
        let (small, free) = (report(&small.trace, 1000), report(&free.trace, 1000));
        assert!(small["folded_until_ns"].is_u64() && free["folded_until_ns"].is_null(), "{shape}");
        for name in TOTALS.iter().flat_map(|(name, _)| [(*name).to_owned(), format!("{name}_error")]) {
            assert_eq!(small["totals"][&name], free["totals"][&name], "{shape}, {name}");
        }
        let sorted = |report: &Value| {
            let mut stacks: Vec<String> =
                report["allocations"].as_array().unwrap().iter().map(Value::to_string).collect();
            stacks.sort();
            stacks
        };
        assert_eq!(sorted(&small), sorted(&free), "{shape}");
    }
}

/// In one run the peak is in the folded part and in the other it is not. The lists and the totals are the same with and
/// without a limit.
#[test]
fn a_bounded_trace_says_what_an_unbounded_one_says() {
    for shape in ["early", "late"] {
        let folder = Folder::new();
        let program = renewal(&folder, 1_500_000, shape);
        let free = program.recorded();
        std::fs::remove_file(folder.join("counted")).unwrap();
        let small = bounded(&program).recorded();
        assert_eq!((small.code, &small.stdout), (free.code, &free.stdout), "{}", small.stderr);
        assert!(length(&free) > 3 * BOUND, "{} bytes are not much", length(&free));
        assert!(length(&small) <= BOUND, "{} bytes", length(&small));
        let (small_report, free_report) = (small.whole_report(), free.whole_report());
        assert_counts(&small_report, &program, &small.stdout);
        for list in ["peak", "leaked", "allocations", "temporary"] {
            assert_eq!(timeless(&small_report, list), timeless(&free_report, list), "{shape}, {list}");
        }
        let same =
            ["allocations", "deallocations", "allocated_bytes", "temporary", "leaked_bytes", "leaked_allocations"];
        for total in same.into_iter().chain(["peak_bytes", "peak_allocations", "unknown_frees", "lost_events"]) {
            assert_eq!(small_report.total(total), free_report.total(total), "{shape}, {total}");
        }
        let peak = small_report.total("peak_time_ns");
        let until = small_report.json()["folded_until_ns"].as_u64().expect("something was folded");
        assert_eq!(peak <= until, shape == "early", "the peak was at {peak}, the cut at {until}");
        assert_eq!(free_report.json()["folded_until_ns"], Value::Null);
        assert!(small.stderr.contains("(--max-size, --keep-last)"), "{}", small.stderr);
        let named = small_report.json()["allocations"][0]["frames"][0]["function"].as_str();
        assert!(named.is_some_and(|name| name.starts_with("make_") || name == "scratch"), "{named:?}");
        let names = small_folder(&small);
        assert_eq!(names, ["trace.htz"], "nothing else is left");
    }
}

fn small_folder(outcome: &Outcome) -> Vec<String> {
    let entries = std::fs::read_dir(outcome.trace.parent().expect("a folder")).expect("its entries");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Events after the cut are kept as they were, so views of a range after the cut need no folded sums.
#[test]
fn ranges_after_the_cut_add_up() {
    let folder = Folder::new();
    let program = renewal(&folder, 1_000_000, "early");
    let outcome = bounded(&program).recorded();
    let whole = outcome.whole_report();
    let until = whole.json()["folded_until_ns"].as_u64().expect("a cut");
    let output = Command::new(heaptrack())
        .args(["print", "--json", "--no-suppressions", "--from", &format!("{until}ns")])
        .arg(&outcome.trace)
        .output()
        .expect("print runs");
    let range: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let totals = &range["totals"];
    assert_eq!(totals["leaked_bytes"].as_u64(), Some(whole.total("leaked_bytes")));
    assert_eq!(totals["leaked_allocations"].as_u64(), Some(whole.total("leaked_allocations")));
    let (allocations, all) = (totals["allocations"].as_u64().unwrap(), whole.total("allocations"));
    assert!(allocations > 1000 && allocations < all / 2, "{allocations} of {all}");
    assert!(totals["peak_bytes"].as_u64().unwrap() < whole.total("peak_bytes"), "the peak is before the cut");
}

#[test]
fn threads_are_counted_as_without_a_bound() {
    let program = Program::target("threads").arg("4").arg(scale::count(8_000_000).to_string());
    let outcome = bounded(&program).recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let counted = numbers(&outcome.stdout);
    let report = outcome.whole_report();
    let own = sum(&report.own(&program.path));
    assert_eq!((own.allocations, own.freed()), (counted["allocations"], counted["frees"]));
    assert_eq!((own.leaked_allocations, own.leaked_bytes), (counted["left"], counted["left_bytes"]));
    assert!(length(&outcome) <= BOUND);
}

/// The allocations and frees that the program had finished.
fn finished(folder: &Folder) -> (u64, u64) {
    let bytes = std::fs::read(folder.join("counted")).unwrap_or_default();
    let word = |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
    (word(0), word(8))
}

#[test]
fn the_target_is_killed_while_its_trace_is_folded() {
    let mut chance = Chance::new("kill a bounded target");
    for _ in 0..scale::count(50) {
        let folder = Folder::new();
        let program = bounded(&renewal(&folder, 0, "early"));
        let running = program.start();
        let target = running.target(&program);
        wait_for("a file that is folded", || (finished(&folder).0 > 400_000).then_some(()));
        std::thread::sleep(Duration::from_micros(chance.between(0, 300_000)));
        signal("KILL", &[target]);
        let outcome = running.finish();
        assert_eq!(outcome.code, 137, "{}", outcome.stderr);
        let (allocations, frees) = finished(&folder);
        let own = sum(&outcome.whole_report().own(&program.path));
        // The last call may be recorded and not yet counted. A realloc is one allocation and one free.
        assert!((allocations..=allocations + 1).contains(&own.allocations), "{} of {allocations}", own.allocations);
        assert!((frees..=frees + 1).contains(&own.freed()), "{} of {frees}", own.freed());
        assert!(length(&outcome) <= BOUND, "{} bytes", length(&outcome));
    }
}

#[test]
fn both_are_killed_while_the_trace_is_folded() {
    let mut chance = Chance::new("kill both, bounded");
    for _ in 0..scale::count(50) {
        let folder = Folder::new();
        let program = bounded(&renewal(&folder, 0, "early").arg("200"));
        let running = program.start();
        let target = running.target(&program);
        wait_for("a file that is folded", || (finished(&folder).0 > 400_000).then_some(()));
        let duration = Duration::from_millis(chance.between(300, 900));
        let due = promised::watch(running.pid(), duration, || finished(&folder).0);
        signal("KILL", &[running.pid(), target]);
        let outcome = running.finish();
        assert_eq!(outcome.code, 137);
        let report = outcome.report();
        assert!(!report.complete(), "the report says that the trace has no end");
        assert_eq!(report.json()["damage"], json!([]), "{}", report.json()["damage"]);
        assert!(report.json()["folded_until_ns"].is_u64(), "it was folded");
        let own = sum(&report.own(&program.path)).allocations;
        assert!(due <= own && own <= finished(&folder).0 + 1, "{own} of {}, {due} were due", finished(&folder).0);
        assert!(length(&outcome) <= BOUND);
    }
}

/// Live blocks cannot be folded. The recording ends as on a full disk, and the program does not notice.
#[test]
fn a_bound_that_what_lives_does_not_fit_ends_the_trace() {
    let folder = Folder::new();
    let program = bounded(&renewal(&folder, 2_000_000, "keep"));
    let outcome = program.recorded();
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--max-size"), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("events were dropped because the trace could not be written"),
        "{}",
        outcome.stderr
    );
    assert!(length(&outcome) <= BOUND, "{} bytes", length(&outcome));
    let report = outcome.report();
    assert!(!report.complete());
    let own = sum(&report.own(&program.path));
    assert!(own.leaked_allocations > 40_000, "{} blocks are there", own.leaked_allocations);
    assert_eq!(report.total("unknown_frees"), 0);
}

#[test]
fn a_wrong_size_is_refused() {
    for (size, sentence) in [("12", "at least 1M"), ("fast", "500M, 2G"), ("1X", "500M, 2G"), ("-5G", "")] {
        let folder = Folder::new();
        let output = Command::new(heaptrack())
            .current_dir(folder.path())
            .args(["--max-size", size, "true"])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{size}: {said}");
        assert!(said.contains(sentence), "{size}: {said}");
        assert!(folder.names().is_empty());
    }
}

/// While a trace with a size limit grows, `print` can read it, also after it was folded, and it has names.
#[test]
fn a_bounded_trace_can_be_read_while_it_grows() {
    let folder = Folder::new();
    let program = bounded(&renewal(&folder, 0, "early"));
    let running = program.start();
    let target = running.target(&program);
    let named = |trace: &Path| {
        let report = Report::try_of(trace).ok()?;
        let is_folded = report.json()["folded_until_ns"].is_u64();
        let function = report.json()["allocations"][0]["frames"][0]["function"].as_str()?.to_owned();
        is_folded.then_some((function, report.total("allocations")))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let (function, first) = loop {
        if let Some(found) = named(&running.trace) {
            break found;
        }
        assert!(Instant::now() < deadline, "no names came");
        std::thread::sleep(Duration::from_millis(200));
    };
    let later = wait_for("another look", || named(&running.trace)).1;
    assert!(later >= first, "{later} after {first}");
    assert!(function.starts_with("make_") || function == "scratch", "{function}");
    signal("KILL", &[target]);
    running.finish();
}

/// The page's server, on a port of its choice.
struct Server {
    process: std::process::Child,
    url: String,
}

impl Server {
    fn start(trace: &Path) -> Self {
        let mut process = Command::new(heaptrack())
            .args(["analyze", "--no-browser"])
            .arg(trace)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut url).expect("a line");
        Server { process, url: url.trim().to_owned() }
    }

    fn ask(&self, view: &str) -> Value {
        let (site, token) = self.url.split_once("/?").expect("an address with a token");
        let output = Command::new("curl").args(["-s", &format!("{site}/api/{view}?{token}")]).output().expect("curl");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_page_follows_a_trace_that_is_replaced() {
    let folder = Folder::new();
    let program = bounded(&renewal(&folder, 400_000, "early").arg("200"));
    let running = program.start();
    wait_for("a trace", || running.trace.exists().then_some(()));
    let server = Server::start(&running.trace);
    let counted = |answer: &Value| answer["totals"]["allocations"].as_u64();
    wait_for("a first answer", || counted(&server.ask("summary")));
    let outcome = running.finish();
    let report = outcome.whole_report();
    assert!(report.json()["folded_until_ns"].is_u64());
    wait_for("the whole of it", || (counted(&server.ask("summary"))? == report.total("allocations")).then_some(()));
    let summary = server.ask("summary");
    assert_eq!(summary["folded_until_ns"], report.json()["folded_until_ns"]);
    assert_eq!(summary["totals"]["peak_bytes"].as_u64(), Some(report.total("peak_bytes")));
    assert_eq!(summary["totals"]["temporary"].as_u64(), Some(report.total("temporary")));
}

/// `--keep-last`: what is older than that is folded, and the totals are exact.
#[test]
fn the_last_second_is_kept_and_older_events_are_sums() {
    let folder = Folder::new();
    let trace = folder.join("kept.htz");
    let mut command = with_default_signals(heaptrack());
    command.args(["-q", "--keep-last", "1s", "-o"]).arg(&trace).arg(target("ledger"));
    let mut program = Target::spawn(&mut command);
    assert_eq!(program.line(), "ready");
    let start = Instant::now();
    let (mut held, mut freed) = (0u64, 0u64);
    while start.elapsed() < Duration::from_secs(4) {
        held += 100;
        freed += 90;
        program.tell("+100 64");
        program.tell("-90");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(program.finish().0, 0);
    let report = Report::of(&trace);
    let until = report.json()["folded_until_ns"].as_u64().expect("something was folded");
    assert!(until + 1_000_000_000 <= report.total("runtime_ns"), "the last second is there: {until}");
    let of = |count: u64| (count, count * 64);
    let own = sum(&report.own(target("ledger")));
    assert_eq!((own.allocations, own.allocated_bytes), of(held));
    assert_eq!((own.leaked_allocations, own.leaked_bytes), of(held - freed));
    assert_eq!(report.total("lost_events"), 0);
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "no file is left beside the trace");
}

#[test]
fn less_than_a_second_cannot_be_kept() {
    let done = Command::new(heaptrack()).args(["--keep-last", "0.5s", "true"]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("must be at least 1s"));
}
