//! `--follow`: a program with an allocator of its own has the same counts whether heaptrack starts it or a process of the tree executes
//! it.
use heaptrack_tests::processes::processes;
use heaptrack_tests::{Program, Report, targets::target};
use serde_json::Value;

/// What a report says about the blocks of each allocator.
fn by_allocator(report: &Report) -> Vec<(String, u64, u64)> {
    let rows = report.json()["allocators"].as_array().expect("a table");
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
    let row = |row: &Value| (row["name"].to_string(), number(row, "allocations"), number(row, "allocated_bytes"));
    let mut rows: Vec<_> = rows.iter().map(row).collect();
    rows.sort();
    rows
}

#[test]
fn programs_with_an_allocator_of_their_own_are_recorded_as_children() {
    for (name, word) in [
        ("own_names", ""),
        ("own_names_no_pie", ""),
        ("counting_jemalloc", "1"),
        ("counting_jemalloc_static", "1"),
        ("counting_static", "1"),
    ] {
        let path = target(name);
        let alone = Program::new(&path).args(word.split_whitespace()).recorded();
        let script = format!("{} {word} | cat; exec {} {word}", path.display(), path.display());
        let outcome = Program::new("/bin/sh").arg("-c").arg(script).option("--follow").recorded();
        assert_eq!(outcome.code, alone.code, "{name}: {}", outcome.stderr);
        let direct = alone.whole_report();
        let totals = ["allocations", "allocated_bytes", "deallocations", "leaked_allocations", "peak_bytes"];
        let expected = totals.map(|total| direct.total(total));
        let all = processes(&outcome.trace);
        let found: Vec<[u64; 5]> = all
            .values()
            .filter(|process| process.exe.ends_with(name))
            .filter_map(|process| Some(process.end?.totals))
            .map(|t| [t.allocations, t.allocated_bytes, t.deallocations, t.leaked_allocations, t.peak_bytes])
            .collect();
        assert_eq!(found, [expected, expected], "{name}: forked and executed, and executed by the shell itself");
        let others = |rows: Vec<(String, u64, u64)>| rows.into_iter().filter(|row| row.0 != "\"malloc\"");
        let twice: Vec<_> = others(by_allocator(&direct)).map(|(name, a, b)| (name, 2 * a, 2 * b)).collect();
        assert_eq!(others(by_allocator(&outcome.report())).collect::<Vec<_>>(), twice, "{name}");
    }
}

/// AddressSanitizer refuses to run if another library is preloaded before its own. Such a program works as it does alone, and is named.
#[test]
fn programs_with_a_sanitizer_run_as_they_do_alone() {
    let path = target("attach_phases_asan");
    for (options, script) in [
        (&["--follow"][..], format!("{} < /dev/null; echo $?", path.display())),
        (&[], format!("exec {} < /dev/null", path.display())),
    ] {
        let program = Program::new("/bin/sh").arg("-c").arg(script);
        let alone = program.alone();
        let outcome = options.iter().fold(program, |program, option| program.option(option)).recorded();
        assert_eq!((outcome.code, &outcome.stdout), (alone.code, &alone.stdout), "{}", outcome.stderr);
        let is_named =
            ["attach_phases_asan", "is built with AddressSanitizer"].iter().all(|part| outcome.stderr.contains(part));
        assert!(is_named, "{options:?}: {}", outcome.stderr);
    }
}
