//! Nim programs with malloc, and with Nim's own allocator, whose blocks are reported.
use heaptrack_tests::dhat::{self, Counts};
use heaptrack_tests::targets::workspace;
use heaptrack_tests::{Folder, Program, Report};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Compiles the `words.nim` of a folder.
fn nim(folder: &Folder, flags: &[&str]) -> Output {
    let cache = format!("--nimcache:{}", folder.join("cache").display());
    let mut command = Command::new("nim");
    command.current_dir(folder.path()).args(["c", "--hints:off", &cache]).args(flags);
    command.arg("words.nim").output().expect("nim")
}

/// Compiles `words.nim` with debug information, and returns the path of the program. Fails if the compiler does.
fn build(folder: &Folder, flags: &[&str]) -> PathBuf {
    let output = nim(folder, &[&["-d:release", "--debugger:native"], flags].concat());
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    folder.join("words")
}

/// The example, compiled in a folder of its own.
fn compile(folder: &Folder, flags: &[&str]) -> PathBuf {
    for name in ["words.nim", "config.nims"] {
        std::fs::copy(workspace().join("examples/nim").join(name), folder.join(name)).unwrap();
    }
    build(folder, flags)
}

/// `function file:line` of each frame of the first stack of a list, leaf first.
fn stack(list: &Value) -> Vec<String> {
    let name = |frame: &Value| {
        let file = frame["file"].as_str().unwrap_or("?").rsplit('/').next().unwrap_or("?");
        format!("{} {file}:{}", frame["short"].as_str().unwrap_or("?"), frame["line"])
    };
    list[0]["frames"].as_array().expect("frames").iter().map(name).collect()
}

/// The innermost level of the user's own code.
fn blamed(list: &Value) -> String {
    stack(list)[list[0]["blamed"].as_u64().expect("a blamed frame") as usize].clone()
}

#[test]
fn on_malloc_there_is_nothing_to_do() {
    let folder = Folder::new();
    let program = Program::new(compile(&folder, &["--gc:orc", "-d:useMalloc", "-d:nimAllocStats"]));
    let outcome = program.same_output();
    let report = outcome.whole_report();
    assert_eq!(report.json()["custom"], Value::Null);
    assert_eq!(Counts::of_report(&report), dhat::run(&program).total);
    // Nim does not count reallocs, which are one allocation and one free each. The number of live blocks is the same
    // either way.
    let said: Vec<u64> = outcome
        .stdout
        .lines()
        .last()
        .unwrap()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let own: u64 = report.own(folder.join("words")).iter().map(|site| site.leaked_allocations).sum();
    // One more block: the text of the numbers, allocated after Nim had read its counters.
    assert_eq!(own, said[0] - said[1] + 1, "{}", outcome.stdout);
    let keep = report.json()["leaked"]
        .as_array()
        .unwrap()
        .iter()
        .find(|site| site["frames"].as_array().unwrap().iter().any(|frame| frame["short"] == "words.keep"))
        .expect("what keep() left");
    assert_eq!(keep["leaked_allocations"], 60);
}

fn check_reported(gc: &str, innermost: &str) {
    let folder = Folder::new();
    let include = format!("-d:heaptrackInclude={}", workspace().join("include").display());
    let path = compile(&folder, &[gc, "-d:nimTypeNames", "-d:heaptracker", &include]);
    let outcome = Program::new(&path).recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let report = outcome.whole_report();
    let custom = &report.json()["custom"];
    let totals = &custom["totals"];
    let found = format!("allocations={} deallocations={}", totals["allocations"], totals["deallocations"]);
    assert_eq!(outcome.stdout.lines().last(), Some(found.as_str()), "{gc}");
    assert_eq!((&totals["unknown_frees"], &totals["implied_frees"]), (&0.into(), &0.into()));
    assert!(totals["allocations"].as_u64().unwrap() > 6000);
    let stack = stack(&custom["leaked"]);
    assert!(stack[0].starts_with("system.rawAlloc alloc.nim:"), "{stack:?}");
    assert!(stack.iter().all(|level| !level.contains("__") || level.starts_with("__libc")), "{stack:?}");
    assert!(
        stack.iter().any(|level| level == "words.run words.nim:27" || level == "words.run words.nim:24"),
        "{stack:?}"
    );
    assert_eq!(blamed(&custom["leaked"]), innermost, "{gc}");
    // The program runs without any file of ours.
    let alone = Command::new(&path).env_clear().output().unwrap();
    assert!(alone.status.success());
    assert!(String::from_utf8_lossy(&alone.stdout).starts_with("kept 60\n"));
    let needed = Command::new("ldd").arg(&path).output().expect("ldd");
    assert!(!String::from_utf8_lossy(&needed.stdout).contains("heaptrack"));
}

#[test]
fn reference_counting_with_its_own_allocator() {
    check_reported("--gc:refc", "words.run words.nim:24");
}

#[test]
fn orc_with_its_own_allocator() {
    check_reported("--gc:orc", "words.keep words.nim:15");
}

#[test]
fn threads_have_heaps_of_their_own() {
    // Each thread has its own region under refc, and the shared heap is one more. All of them report.
    let folder = Folder::new();
    let source = "import std/os\n\
        proc work(n: int) {.thread.} =\n  for i in 0 ..< 1000:\n    let p = alloc(100 + n)\n    dealloc(p)\n\
        var threads: array[4, Thread[int]]\n\
        for i in 0 ..< 4: createThread(threads[i], work, i)\njoinThreads(threads)\n\
        let shared = allocShared(777)\ndoAssert shared != nil\nquit 0\n";
    let include = format!("-d:heaptrackInclude={}", workspace().join("include").display());
    compile(&folder, &["-d:heaptracker", &include]);
    std::fs::write(folder.join("words.nim"), source).unwrap();
    let outcome = Program::new(build(&folder, &["--threads:on", "-d:heaptracker", &include])).recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let report: Report = outcome.whole_report();
    let sites = report.json()["custom"]["allocations"].as_array().unwrap().clone();
    let in_work: u64 = sites
        .iter()
        .filter(|site| site["frames"].as_array().unwrap().iter().any(|frame| frame["short"] == "words.work"))
        .map(|site| site["allocations"].as_u64().unwrap())
        .sum();
    assert_eq!(in_work, 4000);
    // refc puts a header of 16 bytes before each block.
    let word = 16;
    assert!(
        sites.iter().any(|site| site["allocated_bytes"] == 777 + word && site["leaked_allocations"] == 1),
        "{sites:?}"
    );
}

#[test]
fn another_allocator_is_refused() {
    // The build fails with a sentence if the compiler's file is not a known version.
    let folder = Folder::new();
    let text = std::fs::read_to_string(workspace().join("examples/nim/config.nims")).unwrap();
    std::fs::write(folder.join("config.nims"), text.replace("proc rawDealloc(a:", "proc rawDealloc(b:")).unwrap();
    std::fs::copy(workspace().join("examples/nim/words.nim"), folder.join("words.nim")).unwrap();
    let output = nim(&folder, &["-d:heaptracker"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("is not known here"), "{said}");
}
