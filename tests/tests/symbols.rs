//! Frames have functions, files and lines, wherever and whenever the trace is opened.
use heaptrack_tests::process::wait_for;
use heaptrack_tests::run::{Running, heaptrack};
use heaptrack_tests::symbols::{assert_script_is_named, line_of};
use heaptrack_tests::view::view;
use heaptrack_tests::{Chance, Folder, Program, Report, scale, targets};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn named_source() -> PathBuf {
    targets::sources().join("named.cpp")
}

/// A copy of a target that may be removed or replaced.
fn copy_of(name: &str, folder: &Folder) -> PathBuf {
    let path = folder.join(name);
    heaptrack_tests::folder::copy_program(targets::target(name), &path);
    path
}

/// A recording of a copy of `named`, which runs for this many seconds.
fn running_copy(folder: &Folder, seconds: &str) -> (PathBuf, Running) {
    let path = copy_of("named", folder);
    let program = Program::new(&path).arg(seconds);
    let running = program.start();
    running.target(&program);
    (path, running)
}

/// The levels of the sites that requested blocks of `bytes`, up to `main`: (short name, line, inlined).
fn stacks(report: &Report, bytes: u64) -> Vec<Vec<(String, Option<u64>, bool)>> {
    let level = |frame: &Value| {
        let name = frame["short"].as_str().unwrap_or("?").to_owned();
        (name, frame["line"].as_u64(), frame["inlined"].as_bool().unwrap())
    };
    let mut found: Vec<Vec<_>> = Vec::new();
    for site in report.entries_of_size(bytes) {
        let levels: Vec<_> = site["frames"].as_array().unwrap().iter().map(level).collect();
        let end = levels.iter().position(|(name, _, _)| name == "main").map_or(levels.len(), |at| at + 1);
        found.push(levels[..end].to_vec());
    }
    found.sort();
    found
}

/// The expected stacks of `early`.
fn expected_early() -> Vec<Vec<(String, Option<u64>, bool)>> {
    let line = |name: &str| Some(line_of(&named_source(), name));
    let main = ("main".to_owned(), line("main"), false);
    let early = |at: &str| ("shelf::early".to_owned(), line(at), false);
    let mut stacks = vec![
        vec![early("early 1"), main.clone()],
        vec![("shelf::inlined".to_owned(), line("inlined"), true), early("early 2"), main.clone()],
        vec![early("early 3"), main],
    ];
    stacks.sort();
    stacks
}

fn state_of(report: &Report, module: &Path) -> String {
    let module = module.to_string_lossy();
    let list = report.json()["symbols"].as_array().unwrap();
    let entry = list.iter().find(|entry| entry["module"] == *module).unwrap_or_else(|| panic!("{list:?}"));
    entry["state"].as_str().unwrap().to_owned()
}

fn symbolize(arguments: &[&str], trace: &Path) -> String {
    let output = Command::new(heaptrack()).arg("symbolize").args(arguments).arg(trace).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn functions_files_lines_and_inlining_without_the_program() {
    let folder = Folder::new();
    let path = copy_of("named", &folder);
    let outcome = Program::new(&path).recorded();
    std::fs::remove_file(&path).unwrap();
    let report = outcome.whole_report();
    assert_eq!(stacks(&report, 1111), expected_early());
    assert_eq!(state_of(&report, &path), "debug");
    let list = report.json()["allocations"].as_array().unwrap();
    for site in list.iter().filter(|site| site["allocated_bytes"] == 1111) {
        let blamed = &site["frames"][site["blamed"].as_u64().unwrap() as usize];
        assert_eq!((blamed, &blamed["class"]), (&site["frames"][0], &Value::from("program")));
        assert_eq!(blamed["file"], *named_source().to_string_lossy());
        assert!(["shelf::early()", "shelf::inlined()"].contains(&blamed["function"].as_str().unwrap()));
    }
}

/// Checks a promise about time: code that is first used after 5 s has its name after 15 s.
#[test]
fn a_growing_trace_copied_after_15_seconds_has_its_names() {
    let folder = Folder::new();
    let (path, running) = running_copy(&folder, "20");
    std::thread::sleep(Duration::from_secs(15));
    let copy = folder.join("copy.htz");
    std::fs::copy(&running.trace, &copy).unwrap();
    std::fs::remove_file(&path).unwrap();
    let report = Report::of(&copy);
    assert!(!report.complete());
    assert_eq!(stacks(&report, 1111), expected_early());
    let line = |name: &str| Some(line_of(&named_source(), name));
    let late = vec![("shelf::late".to_owned(), line("late"), false), ("main".to_owned(), line("main late"), false)];
    assert_eq!(stacks(&report, 2222), std::slice::from_ref(&late));
    let whole = running.finish().whole_report();
    assert_eq!((stacks(&whole, 1111), stacks(&whole, 2222)), (expected_early(), vec![late]));
}

#[test]
fn names_can_come_later() {
    let program = Program::target("named");
    let outcome = program.clone().option("--no-symbols").recorded();
    let before = outcome.whole_report();
    assert!(stacks(&before, 1111).iter().flatten().all(|(name, line, _)| name == "?" && line.is_none()));
    let bytes = std::fs::read(&outcome.trace).unwrap();
    symbolize(&["-q"], &outcome.trace);
    let after = std::fs::read(&outcome.trace).unwrap();
    assert_eq!(after[..bytes.len()], bytes, "the old content does not change");
    let report = outcome.whole_report();
    assert_eq!(stacks(&report, 1111), expected_early());
    assert_eq!(report.json()["totals"], before.json()["totals"]);
    // A second `symbolize` has nothing to do.
    symbolize(&["-q"], &outcome.trace);
    assert_eq!(std::fs::read(&outcome.trace).unwrap(), after);
    let at_once = program.recorded().whole_report();
    assert_eq!(stacks(&at_once, 1111), stacks(&report, 1111));
}

#[test]
fn a_trace_that_is_being_recorded_is_left_alone() {
    let program = Program::target("named").arg("3");
    let running = program.start();
    running.target(&program);
    wait_for("the trace", || Report::try_of(&running.trace).ok());
    let output = Command::new(heaptrack()).arg("symbolize").arg(&running.trace).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("still being recorded"), "{said}");
    assert_eq!(stacks(&running.finish().whole_report(), 1111), expected_early());
}

#[test]
fn a_stripped_program_and_its_debug_file_elsewhere() {
    let folder = Folder::new();
    let path = copy_of("named", &folder);
    let debug = folder.join("elsewhere/named.debug");
    std::fs::create_dir_all(folder.join("elsewhere")).unwrap();
    run("objcopy", &["--only-keep-debug".as_ref(), path.as_os_str(), debug.as_os_str()]);
    run("strip", &[path.as_os_str()]);
    run("objcopy", &[format!("--add-gnu-debuglink={}", debug.display()).as_ref(), path.as_os_str()]);
    let option = format!("--debug-path={}", folder.join("elsewhere").display());
    let told = Program::new(&path).option(&option).recorded();
    assert_eq!(stacks(&told.whole_report(), 1111), expected_early());
    let plain = Program::new(&path).option("--no-symbols").recorded();
    symbolize(&[&option], &plain.trace);
    assert_eq!(stacks(&plain.whole_report(), 1111), expected_early());
}

#[test]
fn a_program_replaced_while_it_runs() {
    let folder = Folder::new();
    let (path, running) = running_copy(&folder, "2");
    // Long enough for the recorder to read the program's files, and before it needs any of their names at the end.
    std::thread::sleep(Duration::from_millis(700));
    let other = copy_of("hello", &folder);
    std::fs::rename(other, &path).unwrap();
    let outcome = running.finish();
    let report = outcome.whole_report();
    assert_eq!(stacks(&report, 1111), expected_early(), "{}", outcome.stderr);
    assert_eq!(state_of(&report, &path), "debug");
}

#[test]
fn another_file_at_the_path_is_said_and_not_used() {
    let folder = Folder::new();
    let path = copy_of("named", &folder);
    let outcome = Program::new(&path).option("--no-symbols").recorded();
    heaptrack_tests::folder::copy_program(targets::target("hello"), &path);
    let said = symbolize(&[], &outcome.trace);
    assert!(said.contains("named is not the file that ran: its build-id is "), "{said}");
    let report = outcome.whole_report();
    assert_eq!(state_of(&report, &path), "mismatch");
    let in_program = |site: &Value| site["frames"][0]["module"] == *path.to_string_lossy();
    for site in report.json()["allocations"].as_array().unwrap().iter().filter(|site| in_program(site)) {
        assert_eq!((&site["frames"][0]["function"], &site["frames"][0]["file"]), (&Value::Null, &Value::Null));
    }
    // When the right file is back, the names are found again.
    heaptrack_tests::folder::copy_program(targets::target("named"), &path);
    symbolize(&[], &outcome.trace);
    assert_eq!(stacks(&outcome.whole_report(), 1111), expected_early());
}

#[test]
fn a_session_that_was_killed_gets_its_names() {
    let program = Program::target("named").arg("5").option("--no-symbols");
    let running = program.start();
    running.target(&program);
    wait_for("the first blocks", || {
        let report = Report::try_of(&running.trace).ok()?;
        (report.of_size(1111).allocations > 3).then_some(())
    });
    heaptrack_tests::process::signal("KILL", &[running.pid()]);
    let outcome = running.finish();
    symbolize(&[], &outcome.trace);
    let report = outcome.report();
    assert!(!report.complete());
    assert_eq!(stacks(&report, 1111), expected_early());
}

#[test]
fn symbolize_killed_at_any_moment_leaves_a_trace() {
    let mut chance = Chance::new("kill symbolize");
    let recorded = Program::new("python3").args(["-c", "import json, re, decimal"]).option("--no-symbols").recorded();
    // Suppressions recognise known leaks by name, so the totals that depend on them change when names are added.
    let totals = |trace: &Path| {
        let summary = view(trace, "summary", &[]);
        assert_eq!(summary["complete"], true);
        let mut totals = summary["totals"].as_object().unwrap().clone();
        totals.retain(|name, _| !name.starts_with("suppressed_") && !name.starts_with("leaked_"));
        totals
    };
    let wanted = totals(&recorded.trace);
    let folder = Folder::new();
    let copy = folder.join("copy.htz");
    std::fs::copy(&recorded.trace, &copy).unwrap();
    for _ in 0..scale::count(100) {
        let mut command = Command::new(heaptrack());
        let mut child = command.arg("symbolize").arg(&copy).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(chance.between(0, 300_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(totals(&copy), wanted);
        if chance.between(0, 3) == 0 {
            std::fs::copy(&recorded.trace, &copy).unwrap();
        }
    }
    symbolize(&[], &copy);
    let named = Report::of(&copy);
    assert!(named.json()["symbols"].as_array().unwrap().len() > 1);
}

#[test]
fn node_functions_stand_between_native_frames() {
    let addon = targets::target("addon.node");
    let source = targets::sources().join("addon.js");
    // With `--perf-basic-prof`, node writes a log to its working directory, so it runs in a temporary folder. Its perf
    // map goes to /tmp.
    let folder = Folder::new();
    let node = Program::new("node").arg("--perf-basic-prof").arg(&source).arg(&addon).current_dir(folder.path());
    let outcome = node.recorded();
    let report = outcome.whole_report();
    let sites = report.entries_of_size(12345);
    for site in &sites {
        let frames = site["frames"].as_array().unwrap();
        assert_eq!(frames[0]["function"], "addon_takes", "{frames:?}");
        assert_eq!(frames[0]["line"], line_of(&targets::sources().join("addon.c"), "addon"));
        assert_eq!((&frames[0]["class"], &site["blamed"]), (&Value::from("program"), &Value::from(0)));
        assert_eq!(frames[1]["function"], "take");
    }
    assert_script_is_named(&sites);
}

#[test]
fn the_demo_blames_its_own_functions() {
    let folder = Folder::new();
    let source = targets::workspace().join("demo/shop.cpp");
    let program = folder.join("shop");
    run("g++", &["-g".as_ref(), "-O1".as_ref(), source.as_os_str(), "-o".as_ref(), program.as_os_str()]);
    let report = Program::new(&program).recorded().whole_report();
    let mut blamed = 0;
    for list in ["peak", "leaked", "allocations", "temporary"] {
        for site in report.json()[list].as_array().unwrap() {
            // Allocations that libraries make before `main` belong to no code of the program.
            let is_of_main = site["frames"].as_array().unwrap().iter().any(|frame| frame["function"] == "main");
            assert_eq!(site["blamed"].is_u64(), is_of_main, "{site}");
            if let Some(at) = site["blamed"].as_u64() {
                blamed += 1;
                assert_eq!(site["frames"][at as usize]["file"], *source.to_string_lossy(), "{site}");
            }
        }
    }
    assert!(blamed > 4);
}

#[test]
fn rules_change_who_is_blamed() {
    let outcome = Program::target("named").recorded();
    let folder = Folder::new();
    let rules = folder.join("rules");
    std::fs::write(&rules, "# not mine\ndependency name shelf::*\n").unwrap();
    let print = |rules: &Path| {
        let mut command = Command::new(heaptrack());
        command.arg("print").arg("--json").arg("--rules").arg(rules).arg(&outcome.trace).output().unwrap()
    };
    let report: Value = serde_json::from_slice(&print(&rules).stdout).unwrap();
    let sites = report["allocations"].as_array().unwrap();
    let site = sites.iter().find(|site| site["allocated_bytes"] == 1111).unwrap();
    assert_eq!(site["frames"][0]["class"], "dependency");
    assert_eq!(site["frames"][site["blamed"].as_u64().unwrap() as usize]["function"], "main");
    std::fs::write(&rules, "nonsense\n").unwrap();
    let refused = print(&rules);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("line 1: a rule is"));
}

/// The loader knows the library by a relative path such as `./libred.so`, and the trace is opened from another folder.
/// The program changes its folder and ends at once, so the recorder must resolve the path in time. One path is a link,
/// which the kernel would report under another name.
#[test]
fn a_library_by_a_relative_path() {
    let library = targets::target("libred.so");
    let kept = Folder::new();
    let folder = kept.join(".").canonicalize().unwrap();
    std::os::unix::fs::symlink(&library, folder.join("libalias.so")).unwrap();
    std::fs::create_dir(folder.join("below")).unwrap();
    for (stand, given, whole) in [
        (library.parent().unwrap().to_owned(), "./libred.so", library.clone()),
        (folder.clone(), "./libalias.so", folder.join("libalias.so")),
        (folder.join("below"), "../libalias.so", folder.join("below/../libalias.so")),
        (PathBuf::from("/"), &format!(".{}", library.display()), library.clone()),
    ] {
        let code =
            format!("import ctypes, os; red = ctypes.CDLL('{given}'); os.chdir('/tmp'); red.work(); os._exit(0)");
        let report = Program::new("python3").args(["-c", &code]).current_dir(&stand).recorded().whole_report();
        let list = report.json()["allocations"].as_array().unwrap();
        // The program that starts Python (in some setups a shell) may allocate 301 bytes, too.
        let is_of_size = |site: &&Value| site["allocations"] == 1 && site["allocated_bytes"] == 301;
        let leaves: Vec<Vec<(&Value, &Value)>> = list
            .iter()
            .filter(is_of_size)
            .map(|site| site["frames"].as_array().unwrap().iter().take(2))
            .map(|frames| frames.map(|frame| (&frame["function"], &frame["module"])).collect())
            .collect();
        let [inner, work, module] = ["red_inner", "work", &whole.to_string_lossy()].map(Value::from);
        let expected = vec![(&inner, &module), (&work, &module)];
        assert!(leaves.contains(&expected), "{given}: {leaves:?}");
    }
}
