//! Compares two traces. A function is matched wherever it was built, and functions that are not the same stay apart.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::twins::Version::{self, After, Before};
use heaptrack_tests::twins::{self, CHANGES};
use heaptrack_tests::view::{text, view};
use heaptrack_tests::{Folder, Outcome, Program};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn differences_are_found_although_the_program_moved() {
    let folder = Folder::new();
    let moved = folder.join("another-name");
    heaptrack_tests::folder::copy_program(target("leaky"), &moved);
    let before = Program::target("suppressed").recorded();
    let (one, two) = (Program::target("leaky").recorded(), Program::new(&moved).recorded());
    let base = |outcome: &Outcome| outcome.trace.to_str().unwrap().to_owned();
    let same = view(&two.trace, "diff", &["--diff", &base(&one), "--cost", "allocations"]);
    for row in same["functions"].as_array().unwrap() {
        assert_eq!((&row["state"], &row["delta"]), (&Value::from("same"), &Value::from(0)), "{row}");
    }
    let changed = view(&two.trace, "diff", &["--diff", &base(&before), "--cost", "leaked", "--no-suppressions"]);
    let row = |name: &str| {
        let list = changed["functions"].as_array().unwrap();
        list.iter().find(|row| row["function"] == name).unwrap_or_else(|| panic!("{name}: {changed}")).clone()
    };
    assert_eq!((&row("forget")["state"], &row("forget")["delta"]), (&Value::from("new"), &Value::from(20200)));
    assert_eq!((&row("known")["state"], &row("known")["delta"]), (&Value::from("gone"), &Value::from(-1)));
    let said = Command::new(heaptrack()).args(["diff", "--full"]).arg(&before.trace).arg(&two.trace).output().unwrap();
    assert!(said.status.success());
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.contains("MOST CALLS TO ALLOCATION FUNCTIONS\n") && said.contains("WHAT CHANGED AT THE PEAK"),
        "{said}"
    );
    let time = view(&two.trace, "diff", &["--compare", "@start", "--cost", "live", "--no-suppressions"]);
    let list = time["functions"].as_array().unwrap();
    assert!(
        list.iter().any(|row| row["function"] == "forget" && row["before"] == 0 && row["after"] == 20200),
        "{time}"
    );
}

/// Regression test: stacks were taken for equal if their frames began with the same functions, and the sum of all was
/// printed under one of them.
#[test]
fn stacks_that_differ_in_an_inlined_function_stay_apart() {
    let run = |left: &str, right: &str| Program::target("inlined_callers").arg(left).arg(right).recorded();
    let (before, after) = (run("10", "10"), run("10", "5"));
    let said =
        Command::new(heaptrack()).args(["diff", "--full"]).arg(&before.trace).arg(&after.trace).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    let calls = said.split("MOST CALLS TO ALLOCATION FUNCTIONS\n").nth(1).unwrap();
    let calls = calls.split("\n\n").next().unwrap();
    assert!(calls.starts_with("-5 calls to allocation functions"), "{said}");
    assert!(calls.contains("\nright\n") || calls.contains("    right\n"), "{said}");
    assert!(!calls.contains("left"), "{said}");
    assert!(said.contains("-5 temporary allocations of -5 allocations in total from"), "{said}");
}

/// Builds the program in its own folder and records it.
fn twins(version: Version, lines: usize) -> Outcome {
    let folder = Folder::new();
    Program::new(twins::build(&folder.join("deep/er"), version, lines)).recorded()
}

/// The rows of a diff that are about the program's own functions.
fn changes(after: &Path, before: &Path, options: &[&str]) -> Vec<(String, String, i64, i64)> {
    let base = before.to_str().unwrap();
    let words: Vec<&str> = ["--diff", base, "--cost", "leaked"].iter().chain(options).copied().collect();
    let list = view(after, "diff", &words)["functions"].as_array().unwrap().clone();
    let row = |row: &Value| {
        let file = row["file"].as_str().unwrap_or("?").rsplit_once("deep/er/").map_or("?", |(_, file)| file).to_owned();
        let number = |name: &str| row[name].as_i64().unwrap();
        assert_eq!(number("delta"), number("after") - number("before"), "{row}");
        let state = match (number("before"), number("after")) {
            (0, _) => "new",
            (_, 0) => "gone",
            (before, after) if before == after => "same",
            _ => "changed",
        };
        assert_eq!(row["state"], state, "{row}");
        (row["function"].as_str().unwrap().to_owned(), file, number("before"), number("after"))
    };
    list.iter().map(row).collect()
}

fn wanted() -> Vec<(String, String, i64, i64)> {
    CHANGES.iter().map(|(name, file, [before, after])| ((*name).into(), (*file).into(), *before, *after)).collect()
}

#[test]
fn functions_of_one_name_in_several_files_stay_apart() {
    let (before, after) = (twins(Before, 0), twins(After, 40));
    for options in [&[][..], &["--by", "function"], &["--by", "function", "--hide", "all-but-mine"]] {
        assert_eq!(changes(&after.trace, &before.trace, options), wanted(), "{options:?}");
    }
    // KDE's file of the same trace has the same function names.
    let folder = Folder::new();
    let kde = folder.join("before.zst");
    let exported =
        Command::new(heaptrack()).args(["export", "--to", "heaptrack"]).arg(&before.trace).arg("-o").arg(&kde).status();
    assert!(exported.unwrap().success());
    assert_eq!(changes(&after.trace, &kde, &[]), wanted(), "KDE's");
    // The comparison in the other direction has the same rows, except for the names of files that only one trace knows.
    let turned = changes(&before.trace, &after.trace, &[]);
    let plain = |rows: Vec<(String, String, i64, i64)>| {
        let mut rows: Vec<_> = rows.into_iter().map(|(name, _, one, other)| (name, one, other)).collect();
        rows.sort();
        rows
    };
    let expected = wanted().into_iter().map(|(name, file, before, after)| (name, file, after, before)).collect();
    assert_eq!(plain(turned), plain(expected));
}

#[test]
fn the_same_source_in_another_folder_is_the_same() {
    let (one, two) = (twins(After, 0), twins(After, 40));
    for row in changes(&two.trace, &one.trace, &[]) {
        assert_eq!(row.2, row.3, "{row:?}");
    }
    let said = text(&two.trace, &["-l", "--diff", one.trace.to_str().unwrap()]);
    assert!(
        said.contains(
            "\nMOST CALLS TO ALLOCATION FUNCTIONS\nnothing changed\n\nPEAK MEMORY CONSUMERS\nnothing changed\n\n\
             MEMORY LEAKS\nnothing changed\n\n"
        ),
        "{said}"
    );
}

#[test]
fn stacks_through_functions_of_one_name_stay_apart() {
    let (before, after) = (twins(Before, 0), twins(After, 40));
    let said = text(&after.trace, &["-l", "-p0", "-a0", "-T0", "--diff", before.trace.to_str().unwrap()]);
    // Each change is printed twice: for the innermost function, where the line ends in `from`, and for its stack, where
    // it ends in `from:`. Sizes are printed with units.
    let mut found: Vec<&str> = said.lines().filter_map(|line| line.strip_suffix(" calls from")).collect();
    found.sort_unstable();
    let expected = [
        "-200B leaked over -5",
        "-210B leaked over -7",
        "-3.00K leaked over -3",
        "100B leaked over 4",
        "13B leaked over 0",
        "200B leaked over 2",
        "205B leaked over 5",
        "60B leaked over 0",
        "9B leaked over 0",
    ];
    assert_eq!(found, expected, "{said}");
}

#[test]
fn a_trace_without_files_is_compared_by_name() {
    let folder = Folder::new();
    let program = twins::build(&folder.join("deep/er"), Before, 0);
    let (whole, bare) = (folder.join("whole"), folder.join("bare"));
    heaptrack_tests::folder::copy_program(&program, &whole);
    assert!(Command::new("strip").arg("--strip-debug").arg("-o").args([&bare, &program]).status().unwrap().success());
    let (whole, bare) = (Program::new(&whole).recorded(), Program::new(&bare).recorded());
    let mut rows = changes(&whole.trace, &bare.trace, &[]);
    rows.retain(|row| row.2 != row.3);
    rows.sort();
    // Names alone do not tell which `make` and which `grow` is meant.
    let row = |name: &str, file: &str, before, after| (name.to_owned(), file.to_owned(), before, after);
    let expected = [
        row("grow", "?", 300, 0),
        row("grow", "gui/pool.c", 0, 240),
        row("grow", "net/pool.c", 0, 60),
        row("make", "?", 7300, 0),
        row("make", "blue.c", 0, 7000),
        row("make", "red.c", 0, 300),
    ];
    assert_eq!(rows, expected);
}
