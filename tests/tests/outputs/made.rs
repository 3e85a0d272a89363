//! Traces made by `trim` and `merge` have the same answers as their originals.
use super::{command, run, said, succeed};
use heaptrack_tests::process::code;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report};
use serde_json::Value;
use std::process::Stdio;

fn record(folder: &Folder, name: &str, options: &[&str], program: &[&str]) {
    let mut command = command(folder.path(), &[&["-q", "-o", name][..], options, &["--"], program].concat());
    // Some targets exit with their own code.
    let code = code(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap());
    assert!(matches!(code, 0 | 3), "{program:?}: {code}");
}

/// The output of `print --json` with these options.
fn asked(folder: &Folder, file: &str, options: &[&str]) -> Value {
    let output = succeed(folder.path(), &[&["print", "--json"], options, &[file]].concat());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Compares everything except what a trace says about itself.
fn assert_same(one: &Value, other: &Value, context: &str) {
    for part in ["totals", "peak", "leaked", "allocations", "temporary", "complete", "folded_until_ns", "exit"] {
        assert_eq!(one[part], other[part], "{context}: {part}");
    }
}

/// Keeps 20 MB, waits, and becomes another program.
const BECOMES_ANOTHER: &str = "import os, time
kept = [bytes(200000) for _ in range(100)]
time.sleep(0.4)
os.execv('/usr/bin/python3', ['python3', '-c', 'import time; x = bytes(3000000); time.sleep(0.2)'])";

#[test]
fn what_lived_before_an_exec_lives_until_then_in_a_trimmed_and_in_a_merged_trace() {
    let folder = Folder::new();
    record(&folder, "t", &[], &["/usr/bin/python3", "-c", BECOMES_ANOTHER]);
    succeed(folder.path(), &["trim", "t.htz", "-o", "trimmed"]);
    succeed(folder.path(), &["merge", "t.htz", "-o", "merged"]);
    let mut most = 0;
    for percent in (0..=100).step_by(5) {
        let at = format!("{percent}%");
        let whole = asked(&folder, "t.htz", &["--at", &at]);
        most = most.max(whole["totals"]["leaked_bytes"].as_u64().unwrap());
        for made in ["trimmed.htz", "merged.htz"] {
            let found = asked(&folder, made, &["--at", &at]);
            assert_eq!(found["totals"], whole["totals"], "{made} at {at}");
        }
    }
    assert!(most > 20_000_000, "no view was taken while the program waited: {most}");
    let whole = asked(&folder, "t.htz", &[]);
    assert_same(&asked(&folder, "trimmed.htz", &[]), &whole, "trimmed");
    assert_same(&asked(&folder, "merged.htz", &[]), &whole, "merged");
    // Cut in the middle of the wait.
    succeed(folder.path(), &["trim", "t.htz", "--from", "30%", "-o", "rest"]);
    let runtime = whole["totals"]["runtime_ns"].as_u64().unwrap();
    for percent in [31, 40, 60, 90] {
        let at = format!("{}ns", runtime / 100 * percent);
        let (one, other) = (asked(&folder, "rest.htz", &["--at", &at]), asked(&folder, "t.htz", &["--at", &at]));
        assert_eq!(one["totals"]["leaked_bytes"], other["totals"]["leaked_bytes"], "at {percent}%");
    }
}

/// Runs that follow each other. Each leaks, and none has live memory while another one runs.
#[test]
fn the_peak_of_two_runs_one_after_the_other_is_that_of_the_higher() {
    let folder = Folder::new();
    let leaks =
        |megabytes: u32| format!("import os; kept = [bytes(10000) for _ in range({})]; os._exit(0)", megabytes * 100);
    for (name, megabytes) in [("one", 5), ("two", 6), ("three", 4)] {
        record(&folder, name, &[], &["/usr/bin/python3", "-c", &leaks(megabytes)]);
    }
    succeed(folder.path(), &["merge", "one.htz", "two.htz", "three.htz", "-o", "all"]);
    let parts = ["one.htz", "two.htz", "three.htz"].map(|file| Report::of(&folder.join(file)));
    let all = Report::of(&folder.join("all.htz"));
    assert!(all.complete());
    for total in ["allocations", "deallocations", "allocated_bytes", "temporary", "leaked_bytes", "leaked_allocations"]
    {
        assert_eq!(all.total(total), parts.iter().map(|part| part.total(total)).sum::<u64>(), "{total}");
    }
    for total in ["peak_bytes", "peak_rss_bytes"] {
        assert_eq!(all.total(total), parts.iter().map(|part| part.total(total)).max().unwrap(), "{total}");
    }
    assert!(parts.iter().all(|part| part.total("leaked_bytes") > 4_000_000), "each leaks");
    let timeline = succeed(folder.path(), &["print", "--view", "timeline", "--points", "500", "all.htz"]);
    let timeline: Value = serde_json::from_slice(&timeline.stdout).unwrap();
    let column = |name: &str| -> Vec<u64> {
        timeline[name].as_array().unwrap_or_else(|| panic!("{name}")).iter().map(|v| v.as_u64().unwrap_or(0)).collect()
    };
    let live = column("live_bytes");
    assert!(live.iter().skip(1).any(|bytes| *bytes == 0), "between two runs no block is live: {live:?}");
    let most = live.iter().max().copied().unwrap_or(0);
    assert!(most <= all.total("peak_bytes"));
    // KDE's format has one process. So blocks that the first two processes leaked count as freed when their process
    // ends, and a message says so.
    let output = succeed(folder.path(), &["export", "--to", "heaptrack", "all.htz", "-o", "kde"]);
    let freed = parts[0].total("leaked_allocations") + parts[1].total("leaked_allocations");
    let sentence =
        format!("heaptrack: {freed} blocks that were not freed when their process ended are freed there in KDE's file");
    assert!(said(&output).starts_with(&sentence), "{}", said(&output));
    let kde = Report::of(&folder.join("kde"));
    assert_eq!(kde.total("leaked_allocations"), parts[2].total("leaked_allocations"));
    assert_eq!(
        (kde.total("peak_bytes"), kde.total("allocations")),
        (all.total("peak_bytes"), all.total("allocations"))
    );
    // A single trace stays the same if it is merged alone or trimmed to its whole time.
    for made in [&["merge", "one.htz", "-o", "again"][..], &["trim", "one.htz", "-o", "again"]] {
        succeed(folder.path(), made);
        assert_same(&asked(&folder, "again.htz", &["--no-suppressions"]), parts[0].json(), made[0]);
    }
}

#[test]
fn a_bounded_trace_keeps_its_peak_and_says_what_cannot_be_cut() {
    let folder = Folder::new();
    let (renewal, counted) = (target("renewal"), folder.join("counted"));
    let program = [renewal.to_str().unwrap(), counted.to_str().unwrap(), "700000", "early"];
    record(&folder, "t", &["--max-size", "1000000"], &program);
    let whole = asked(&folder, "t.htz", &[]);
    let until = whole["folded_until_ns"].as_u64().expect("it is folded");
    for made in [&["merge", "t.htz", "-o", "made"][..], &["trim", "t.htz", "-o", "made"]] {
        let output = succeed(folder.path(), made);
        // `merge` also says that it leaves out what is about one process.
        assert_eq!(said(&output).lines().count(), if made[0] == "merge" { 2 } else { 1 }, "{}", said(&output));
        assert_same(&asked(&folder, "made.htz", &[]), &whole, made[0]);
    }
    let early = format!("{}ns", until / 2);
    for range in [["--from", early.as_str()], ["--to", early.as_str()]] {
        let words = [&["trim", "t.htz", "-o", "part"], &range[..]].concat();
        let output = succeed(folder.path(), &words);
        assert!(
            said(&output).contains("(--max-size, --keep-last), which cannot be cut"),
            "{range:?}: {}",
            said(&output)
        );
        assert_eq!(asked(&folder, "part.htz", &[])["folded_until_ns"], whole["folded_until_ns"], "{range:?}");
        // The part has the same answers about its time as the whole trace.
        let (one, other) = (asked(&folder, "part.htz", &range), asked(&folder, "t.htz", &range));
        assert_eq!((&one["peak"], &one["leaked"]), (&other["peak"], &other["leaked"]), "{range:?}");
        assert_eq!(one["totals"]["allocations"], other["totals"]["allocations"], "{range:?}");
    }
    let late = format!("{until}ns");
    let output = succeed(folder.path(), &["trim", "t.htz", "--from", &late, "-o", "part"]);
    assert_eq!(said(&output).lines().count(), 1, "nothing is missing: {}", said(&output));
    assert_eq!(asked(&folder, "part.htz", &[])["folded_until_ns"], Value::Null);
}

#[test]
fn a_trace_of_a_newer_version_is_refused_by_every_command() {
    let folder = super::with_traces();
    let mut bytes = std::fs::read(folder.join("t.htz")).unwrap();
    bytes[8] = 99;
    std::fs::write(folder.join("newer.htz"), bytes).unwrap();
    for words in [
        &["print", "newer.htz"][..],
        &["diff", "t.htz", "newer.htz"],
        &["diff", "newer.htz", "t.htz"],
        &["export", "--to", "svg", "newer.htz", "-o", "out"],
        &["report", "newer.htz", "-o", "out"],
        &["trim", "newer.htz", "-o", "out"],
        &["merge", "t.htz", "newer.htz", "-o", "out"],
        &["symbolize", "newer.htz"],
        &["analyze", "--no-browser", "newer.htz"],
    ] {
        let output = run(folder.path(), words);
        assert_eq!(code(output.status), 2, "{words:?}: {}", said(&output));
        assert_eq!(
            said(&output),
            "heaptrack: cannot read newer.htz: its format version 99 is newer than this heaptrack knows; use a newer heaptrack\n",
            "{words:?}"
        );
    }
    assert_eq!(folder.names(), ["newer.htz", "t.htz", "u.htz"]);
}
