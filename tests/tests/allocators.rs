//! Allocators under names of their own: jemalloc with any prefix, mimalloc, snmalloc, rpmalloc, as local symbols, in the
//! program and in a library that is loaded later. Every block is recorded once, from the first constructor on.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sizes that a round of the target `own_names` requests, each once.
const SIZES: [u64; 16] = [8001, 8002, 8003, 8004, 8005, 8006, 8007, 8008, 8010, 17, 8012, 8013, 8014, 8015, 8016, 8017];

fn assert_rounds(report: &Report, rounds: u64) {
    for size in SIZES {
        let site = report.of_size(size);
        assert_eq!((site.allocations, site.leaked_allocations), (rounds, 0), "blocks of {size} bytes");
    }
    assert_eq!(report.of_size(8018).leaked_allocations, rounds / 10);
    assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0));
    assert_eq!(report.json()["unseen"].as_array().map(Vec::len), Some(0), "{}", report.json()["unseen"]);
}

#[test]
fn in_a_launched_program_from_the_first_constructor_on() {
    for name in ["own_names", "own_names_no_pie"] {
        assert_rounds(&Program::target(name).same_output().whole_report(), 100);
    }
}

#[test]
fn in_a_library_that_is_loaded_later_from_its_constructor_on() {
    let library = target("libown_names.so");
    let program = Program::target("opens").args([library.to_str().unwrap(), "now"]);
    assert_rounds(&program.same_output().whole_report(), 100);
}

#[test]
fn in_a_program_that_runs_already() {
    let mut program = Target::start("own_names", &["wait"]);
    assert_eq!(program.line(), "ready");
    let session = Session::attach(program.pid, &["--no-symbols"]);
    assert_eq!(program.tell("go"), "done");
    assert_rounds(&session.detach().report(), 90);
    program.send("end");
    assert_eq!(program.finish().0, 0);
}

#[test]
fn in_a_library_that_is_loaded_while_attached() {
    let library = target("libown_names.so");
    let mut program = Target::start("own_names", &[library.to_str().unwrap()]);
    assert_eq!(program.line(), "ready");
    let code = program.code();
    let session = Session::attach(program.pid, &["--no-symbols"]);
    assert_eq!(program.tell("go"), "done");
    assert_rounds(&session.detach().report(), 100);
    // The code of all modules is as it is in their files, the loaded library's too.
    let of_library = |code: &[(String, u64)]| code.iter().any(|(name, _)| name.ends_with("libown_names.so"));
    assert!(!of_library(&code) && of_library(&program.code()));
    let mut other = Target::start("own_names", &[library.to_str().unwrap()]);
    assert_eq!((other.line().as_str(), other.tell("go").as_str()), ("ready", "done"));
    let sums = |code: Vec<(String, u64)>| {
        let mut sums: Vec<u64> =
            code.into_iter().filter(|(name, _)| name.contains("own_names")).map(|one| one.1).collect();
        sums.sort_unstable();
        sums
    };
    assert_eq!(sums(program.code()), sums(other.code()));
    program.send("end");
    assert_eq!(program.finish().0, 0);
}

/// mimalloc's library has one function under the names `malloc` and `mi_malloc`. It is loaded with the addon, so the program's
/// malloc stays libc's, and the addon calls `mi_malloc`.
#[test]
fn in_a_node_addon_whose_memory_is_mimallocs() {
    let addon = target("mimalloc_addon.node");
    let work = format!("console.log(require('{}').work())", addon.display());
    let launched = Program::new("node").args(["-e", &work]).same_output();
    let attached = |before: &str| {
        let wait = format!("{before}; process.stdin.once('data', () => {{ {work} }}); console.log('ready')");
        let mut running = Target::spawn(Command::new("node").args(["-e", &wait]));
        assert_eq!(running.line(), "ready");
        let session = Session::attach(running.pid, &["--no-symbols"]);
        assert_eq!(running.tell("go"), "1000");
        session.detach()
    };
    let (early, late) = (attached(""), attached(&format!("require('{}')", addon.display())));
    let ways =
        [(&launched.trace, "launched"), (&early.trace, "before it is loaded"), (&late.trace, "after it was loaded")];
    for (trace, how) in ways {
        let report = print(&["--allocator", "mimalloc", "--json", "--view", "summary"], trace);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let totals = |name: &str| report["totals"][name].as_u64().unwrap();
        assert_eq!((totals("allocations"), totals("allocated_bytes")), (2000, 9_001_000 + 9_002_000), "{how}");
        assert_eq!((totals("live_allocations"), totals("live_bytes")), (10, 90_020), "{how}");
    }
}

/// Copies a target to the folder without its symbols, and puts them into `symbols/` there.
fn split(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (copy, symbols) = (folder.join(name), folder.join("symbols"));
    std::fs::create_dir_all(&symbols).unwrap();
    std::fs::copy(target(name), &copy).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
    };
    let id = Command::new("readelf").args(["-n", copy.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8(id.stdout).unwrap();
    let id = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
    let debug = symbols.join(format!("{id}.debug"));
    run("objcopy", &["--only-keep-debug", copy.to_str().unwrap(), debug.to_str().unwrap()]);
    run("strip", &[copy.to_str().unwrap()]);
    (copy, symbols)
}

#[test]
fn with_symbols_in_a_separate_debug_file() {
    let folder = Folder::new();
    let (program, symbols) = split(folder.path(), "own_names");
    let (library, _) = split(folder.path(), "libown_names.so");
    let options = ["--debug-path", symbols.to_str().unwrap()];
    let with_symbols = |program: Program| program.option(options[0]).option(options[1]);
    let launched = with_symbols(Program::new(&program)).same_output();
    assert_rounds(&launched.whole_report(), 100);
    let opened = Program::target("opens").args([library.to_str().unwrap(), "now"]);
    let opened = with_symbols(opened).same_output();
    assert_rounds(&opened.whole_report(), 100);
    let mut running = Target::spawn(Command::new(&program).arg("wait"));
    assert_eq!(running.line(), "ready");
    let session = Session::attach(running.pid, &options);
    assert_eq!(running.tell("go"), "done");
    assert_rounds(&session.detach().report(), 90);
}

/// Without symbols nothing is known but the messages that the allocator would print.
#[test]
fn without_symbols_the_module_is_named() {
    let folder = Folder::new();
    let (program, _) = split(folder.path(), "own_names");
    let outcome = Program::new(&program).same_output();
    let unseen = outcome.report().json()["unseen"].clone();
    let expected = format!(
        "{} seems to have an allocator of its own (jemalloc, by its messages), but no symbols for it: give heaptrack its debug \
         file (--debug-path, --debuginfod), or build it with symbols.",
        program.canonicalize().unwrap().display()
    );
    assert_eq!((&unseen[0]["kind"], &unseen[0]["sentence"]), (&"hidden_allocator".into(), &expected.into()));
    assert_eq!(unseen.as_array().map(Vec::len), Some(1));
}

/// `own_names` has 5 allocations of jemalloc in a round (and one more in every 10th), 7 of mimalloc, 2 of snmalloc and of
/// rpmalloc.
#[test]
fn a_report_can_be_about_one_allocator() {
    let outcome = Program::target("own_names").same_output();
    let count = |allocators: &[&str]| {
        let options: Vec<&str> = allocators.iter().flat_map(|name| ["--allocator", name]).collect();
        let report = print(&[&options[..], &["--json", "--view", "summary"]].concat(), &outcome.trace);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        (report["totals"]["allocations"].as_u64().unwrap(), report["totals"]["live_bytes"].as_u64().unwrap())
    };
    assert_eq!(count(&["jemalloc"]), (510, 10 * 8018));
    assert_eq!((count(&["mimalloc"]), count(&["snmalloc"]), count(&["rpmalloc"])), ((700, 0), (200, 0), (200, 0)));
    assert_eq!(count(&["mimalloc", "rpmalloc"]), (900, 0));
    let (malloc, all) = (count(&["malloc"]), count(&[]));
    assert_eq!((malloc.0 + 1610, malloc.1 + 10 * 8018), all);
    let merged = outcome.trace.with_file_name("merged.htz");
    let trimmed = outcome.trace.with_file_name("trimmed.htz");
    let trace = outcome.trace.to_str().unwrap();
    for (arguments, file) in [(vec!["merge", trace, trace], &merged), (vec!["trim", trace, "--to", "end"], &trimmed)] {
        let output = Command::new(heaptrack()).args(arguments).arg("-o").arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let of = |trace: &Path, name: &str| {
        let report = print(&["--allocator", name, "--json", "--view", "summary"], trace);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["totals"]["allocations"].as_u64().unwrap()
    };
    assert_eq!((of(&merged, "jemalloc"), of(&trimmed, "mimalloc")), (1020, 700));
    let wrong = Command::new(heaptrack()).args(["print", "--allocator", "tcmalloc", trace]).output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("which has blocks of malloc, jemalloc, mimalloc, snmalloc, rpmalloc"), "{said}");
}

fn print(options: &[&str], trace: &Path) -> String {
    let output = Command::new(heaptrack()).arg("print").args(options).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn heaptrace_sees_them_too() {
    let traced = Heaptrace::new(["--top", "2"]).target("own_names").run();
    let [dump] = &traced.dumps()[..] else { panic!("{}", traced.stderr) };
    // What leaks: 1 block in the rounds of the constructor, and 9 in those of main.
    let leaks: Vec<(u64, u64)> = dump.lists[0].1.iter().map(|site| (site.count, site.bytes)).collect();
    assert_eq!(leaks, [(9, 9 * 8018), (1, 8018)]);
}
