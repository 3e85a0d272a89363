//! Programs into which no library can be preloaded are stopped when they are executed and patched. Their recordings hold
//! what those of other programs hold. Dynamic musl programs are here too.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Every way to link `counting.c`. Those with jemalloc define malloc themselves, in a dynamic and in a static program. The compiler of Debian's musl makes no search table of the unwind information unless
/// it is told to; without one, stacks of a launched program need frame pointers.
const BUILDS: [&str; 8] = [
    "counting",
    "counting_static",
    "counting_static_pie",
    "counting_musl",
    "counting_musl_pointers",
    "counting_musl_static",
    "counting_jemalloc",
    "counting_jemalloc_static",
];

/// The costs of a stack: allocations, bytes, blocks and bytes that were not freed.
type Costs = [u64; 4];

/// The costs of all stacks with frames in `counting.c`, by the functions and lines of these frames.
fn by_lines(report: &Report) -> BTreeMap<Vec<(String, u64)>, Costs> {
    let mut all = BTreeMap::new();
    for entry in report.json()["allocations"].as_array().expect("a list") {
        let frames = entry["frames"].as_array().expect("frames");
        let in_file = |frame: &&Value| frame["file"].as_str().is_some_and(|file| file.ends_with("/counting.c"));
        let place = |frame: &Value| {
            (frame["function"].as_str().expect("a name").to_owned(), frame["line"].as_u64().expect("a line"))
        };
        // A block of libc, such as that of a new thread, is not the program's own.
        if !frames.first().is_some_and(|leaf| in_file(&leaf)) {
            continue;
        }
        let costs = ["allocations", "allocated_bytes", "leaked_allocations", "leaked_bytes"];
        let sum: &mut Costs = all.entry(frames.iter().filter(in_file).map(place).collect()).or_default();
        for (sum, name) in sum.iter_mut().zip(costs) {
            *sum += entry[name].as_u64().expect("a number");
        }
    }
    all
}

/// Asserts that the program's own calls are recorded as it counted them. Returns them by source lines.
fn assert_counted(name: &str, report: &Report, said: &str) -> BTreeMap<Vec<(String, u64)>, Costs> {
    let own: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let lines = by_lines(report);
    let sum = |at: usize| lines.values().map(|costs| costs[at]).sum::<u64>();
    assert_eq!([sum(0), sum(1), sum(2), sum(3)], own[..], "{name}: {lines:#?}");
    let total = |what| report.total(what);
    assert_eq!((total("lost_events"), total("unknown_frees"), total("implied_frees")), (0, 0, 0), "{name}");
    lines
}

/// Launches and attaches to each build of the program at `path`, and compares with `expected`.
fn assert_same(name: &str, path: &Path, options: &[&str], expected: &BTreeMap<Vec<(String, u64)>, Costs>) {
    let program = options.iter().fold(Program::new(path), |program, option| program.option(option));
    let outcome = program.same_output();
    assert_eq!(outcome.code, 7, "{name}");
    assert_eq!(&assert_counted(name, &outcome.whole_report(), &outcome.stdout), expected, "{name}, launched");
    let mut running = Target::spawn(Command::new(path).arg("wait"));
    assert_eq!(running.line(), "ready");
    let session = Session::attach(running.pid, options);
    let said = running.tell("go");
    assert_eq!(running.finish().0, 7);
    let report = session.wait().report();
    assert_eq!(&assert_counted(name, &report, &said), expected, "{name}, attached");
}

#[test]
fn every_build_of_a_program_has_the_same_numbers_at_the_same_lines() {
    let outcome = Program::target("counting").same_output();
    let expected = assert_counted("counting", &outcome.whole_report(), &outcome.stdout);
    // One stack for each line that allocates, and for two of them one of main and one of the threads.
    assert_eq!(expected.len(), 8, "{expected:#?}");
    for name in BUILDS {
        assert_same(name, &target(name), &[], &expected);
    }
}

/// Rust's standard library, statically linked with glibc.
#[test]
fn a_static_rust_program() {
    let report = Program::target("boxes_static").same_output().whole_report();
    let counts = [512, 1000, 50_000].map(|size| report.counts(size));
    assert_eq!(counts, [(1, 0), (10, 1), (1, 0)]);
    let nodes = report.entries_of_size(24);
    let is_of_tree = |entry: &&&Value| {
        let frames = entry["frames"].as_array().expect("frames");
        frames.iter().any(|frame| frame["function"].as_str().is_some_and(|name| name.ends_with("::tree")))
    };
    let of_tree = nodes.iter().filter(is_of_tree).map(|entry| entry["allocations"].as_u64().expect("a number"));
    assert_eq!(of_tree.sum::<u64>(), 127);
}

/// libstdc++ is in the program, and its exceptions pass our hooks.
#[test]
fn a_static_cpp_program() {
    let report = Program::target("operators_static").arg("10").same_output().whole_report();
    let counts = [4001, 4002, 4003, 4096, 4224, 4005].map(|size| report.counts(size));
    assert_eq!(counts, [(22, 0), (22, 0), (11, 0), (22, 0), (11, 0), (500, 0)]);
    assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0));
}

/// Runs a tool that must succeed.
fn run(tool: &str, words: &[&OsStr]) {
    let output = Command::new(tool).args(words).output().expect("the tool is installed");
    assert!(output.status.success(), "{tool} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves the symbols and the debug information of `program` to a file `debug`, and writes the rest to `stripped`.
fn split(program: &Path, stripped: &Path, debug: &Path) {
    let (program, stripped) = (program.as_os_str(), stripped.as_os_str());
    run("objcopy", &["--only-keep-debug".as_ref(), program, debug.as_os_str()]);
    run("objcopy", &["--strip-all".as_ref(), program, stripped]);
}

#[test]
fn a_stripped_program_is_recorded_with_the_symbols_of_its_debug_file() {
    let outcome = Program::target("counting").same_output();
    let expected = assert_counted("counting", &outcome.whole_report(), &outcome.stdout);
    for name in ["counting_static", "counting_static_pie", "counting_musl_static"] {
        let folder = Folder::new();
        let (stripped, debug) = (folder.join("counting"), folder.join("symbols"));
        split(&target(name), &stripped, &debug);
        let refused = Program::new(&stripped).recorded();
        assert_eq!((refused.code, refused.stdout.as_str()), (126, ""), "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains("has no symbols"), "{}", refused.stderr);
        // By the link in the file.
        let linked = folder.join("linked");
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run("objcopy", &[link.as_ref(), stripped.as_os_str(), linked.as_os_str()]);
        assert_same(name, &linked, &[], &expected);
        // By the build-id, in a folder that the user names.
        let notes = Command::new("readelf").arg("-n").arg(&stripped).output().expect("readelf");
        let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
        let id = notes.split("Build ID: ").nth(1).expect("a build-id").split_whitespace().next().expect("a number");
        let place = folder.join("debug").join(".build-id").join(&id[..2]);
        std::fs::create_dir_all(&place).expect("a folder");
        std::fs::rename(&debug, place.join(format!("{}.debug", &id[2..]))).expect("moved");
        let option = format!("--debug-path={}", folder.join("debug").display());
        assert_same(name, &stripped, &[&option], &expected);
    }
}

/// Its constructor allocates before `main`, and its functions call each other.
#[test]
fn a_dynamic_program_with_its_own_malloc_is_patched_before_its_constructors() {
    let outcome = Program::target("own_malloc").same_output();
    let report = outcome.whole_report();
    let total = |what| report.total(what);
    assert_eq!((total("allocations"), total("allocated_bytes")), (4, 10 + 11 + 21 + 50));
    assert_eq!((total("leaked_allocations"), total("leaked_bytes")), (2, 21));
    let constructed = report.entries_of_size(11);
    assert_eq!(constructed.len(), 1);
    assert_eq!(constructed[0]["frames"][0]["function"], "construct");
    assert!(report.json()["modules"].as_u64().is_some_and(|modules| modules >= 3), "the program, libc, the loader");
}

/// The blocks of the first program are gone when it becomes another one: neither freed nor leaked.
#[test]
fn a_static_program_that_becomes_a_dynamic_one_is_followed() {
    let alone = Program::target("counting").recorded();
    let expected = assert_counted("counting", &alone.whole_report(), &alone.stdout);
    let outcome = Program::target("execs_static").arg(target("counting")).same_output();
    let report = outcome.whole_report();
    assert_eq!(assert_counted("counting", &report, &outcome.stdout), expected);
    assert_eq!(report.counts(7002), (100, 0));
    let environment = Program::target("execs_static").arg("/usr/bin/env").same_output();
    assert!(!environment.stdout.contains("HEAPTRACK"), "{}", environment.stdout);
}

#[test]
fn a_static_program_that_becomes_a_static_one_says_so() {
    let outcome = Program::target("execs_static").arg(target("hello_static")).same_output();
    let report = outcome.report();
    assert!(!report.complete());
    assert_eq!((report.counts(7002), report.total("leaked_bytes")), ((100, 0), 0));
    let said = &outcome.stderr;
    assert!(said.contains("the program replaced itself by") && said.contains("it is linked statically"), "{said}");
    // The execs fail, and the program goes on.
    let outcome = Program::target("execs_static").arg("/no/such/program").same_output();
    assert_eq!((outcome.code, outcome.whole_report().counts(7002)), (5, (100, 100)));
}
