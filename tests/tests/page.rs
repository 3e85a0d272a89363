//! The page in a real browser. The tests are in `tests/page`, written in JavaScript. This file records the traces that
//! they use.
//!
//! `node tests/page/run.mjs THEME` runs one theme by hand with `HEAPTRACK_BIN` and `TRACES` set. Pictures of every
//! view, and of failed checks, are left in `target/screenshots`.
use format::{Block, Reader};
use heaptrack_tests::process;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{sources, target, workspace};
use heaptrack_tests::twins;
use heaptrack_tests::twins::Version::{After, Before};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const PYTHON: &str = "\
import json
records = [{'key%d' % i: [1.5 * i] * 20} for i in range(4000)]
for turn in range(3):
    json.loads(json.dumps(records))
";
const NODE: &str = "const all = []; for (let i = 0; i < 20000; i++) all.push(Buffer.alloc(300 + i % 50).toString('hex').slice(0, 20));";

/// A folder with a trace of each program, recorded once.
fn traces() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = workspace().join("target/page-traces");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder for traces");
        let orders = target("orders");
        let orders = orders.to_str().expect("a path");
        record(&folder, "orders", &[orders]);
        record(&folder, "base", &[orders, "6"]);
        record(&folder, "longer", &[orders, "14"]);
        for (name, version, lines) in [("twins-before", Before, 0), ("twins", After, 40), ("twins-again", After, 7)] {
            let program = twins::build(&folder.join(format!("{name}-sources")), version, lines);
            record(&folder, name, &[program.to_str().expect("a path")]);
        }
        let screens = target("screens");
        let screens = screens.to_str().expect("a path");
        record_with(&folder, "screens", &["--memory-every", "20ms"], &[screens, "after"]);
        record_with(&folder, "screens-before", &["--memory-every", "20ms"], &[screens]);
        record(&folder, "allocators", &[target("own_names").to_str().expect("a path")]);
        merge(&folder, "tree", &["orders", "screens"]);
        let family = target("family");
        let line = format!("'{0}' 3 2 2; exec '{0}' 4 1 3", family.display());
        record_with(&folder, "followed", &["--follow"], &["/bin/sh", "-c", &line]);
        record_memory(&folder, "memory");
        record_with(&folder, "memory-off", &["--memory-every", "off"], &[orders]);
        let users = target("many_users");
        let users = users.to_str().expect("a path");
        record(&folder, "users", &[users, "12"]);
        record(&folder, "users-before", &[users, "9"]);
        let pool = pool(&folder);
        record(&folder, "pool", &[&pool, "20000"]);
        record(&folder, "pool-before", &[&pool, "8000"]);
        fold(&folder, "folded", "early");
        fold(&folder, "folded-before", "late");
        let compiler = compiler();
        let source = sources().join("orders.cpp");
        let source = source.to_str().expect("a path");
        record(
            &folder,
            "compiler",
            &[&compiler, "-quiet", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE", source, "-o", "/dev/null"],
        );
        record(&folder, "python", &["/usr/bin/python3.11", "-c", PYTHON]);
        record(&folder, "node", &["node", "--perf-basic-prof", "-e", NODE]);
        folder
    })
}

/// A trace of several processes.
fn merge(folder: &Path, name: &str, parts: &[&str]) {
    let file = |name: &str| folder.join(format!("{name}.htz"));
    let mut command = Command::new(heaptrack());
    let merged = command.arg("merge").args(parts.iter().map(|part| file(part))).arg("-o").arg(file(name)).output();
    let merged = merged.expect("heaptrack");
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
}

fn record(folder: &Path, name: &str, words: &[&str]) {
    record_with(folder, name, &[], words);
}

fn record_with(folder: &Path, name: &str, options: &[&str], words: &[&str]) {
    let done = Command::new(heaptrack())
        .args(["-q", "-o", name])
        .args(options)
        .arg("--")
        .args(words)
        .current_dir(folder)
        .output()
        .expect("heaptrack runs");
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Records a program with memory of every kind, until its parts were measured several times.
fn record_memory(folder: &Path, name: &str) {
    let mut heaptrack = Command::new(heaptrack());
    std::fs::write(folder.join("data"), vec![1; 3 << 20]).expect("a file");
    heaptrack.args(["-q", "--memory-every", "20ms", "-o", name, "--"]).arg(target("memory_kinds")).arg("data");
    let mut recorder = heaptrack.current_dir(folder).stdout(Stdio::null()).spawn().expect("heaptrack");
    let trace = folder.join(format!("{name}.htz"));
    let wait_for = |instants| {
        process::wait_for("the parts of the memory", || (measured(&trace) >= instants).then_some(()));
    };
    wait_for(2);
    let pid = *process::children(recorder.id()).first().expect("the program");
    // A stopped program makes no events that the browser would have to wait for.
    process::signal("STOP", &[pid]);
    wait_for(5);
    process::signal("KILL", &[pid]);
    recorder.wait().expect("heaptrack ends");
}

/// How often a trace that grows has the parts of the memory.
fn measured(trace: &Path) -> usize {
    let Some(mut reader) = std::fs::File::open(trace).ok().and_then(|file| Reader::new(file).ok()) else { return 0 };
    let mut count = 0;
    while let Ok(Some(block)) = reader.next_block() {
        if let Ok(Block::MemoryParts(parts)) = block.decode() {
            count += parts.instants.len();
        }
    }
    count
}

/// Records a trace with a size limit. If its peak is early, the peak is in the folded part.
fn fold(folder: &Path, name: &str, highest: &str) {
    let program = target("renewal");
    let done = Command::new(heaptrack())
        .args(["-q", "--max-size", "1M", "-o", name, "--"])
        .arg(program)
        .args(["counted", "500000", highest])
        .current_dir(folder)
        .output()
        .expect("heaptrack runs");
    assert_eq!(done.status.code(), Some(3), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The C++ compiler itself and not its driver, because it has many different stacks.
fn compiler() -> String {
    let said = Command::new("g++").arg("-print-prog-name=cc1plus").output().expect("g++ runs");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

/// A program that reports blocks of its own.
fn pool(folder: &Path) -> String {
    let program = folder.join("pool");
    let include = format!("-I{}", workspace().join("include").display());
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", &include]).arg(sources().join("pool.c")).arg("-o").arg(&program);
    assert!(compiler.status().expect("cc runs").success());
    program.to_string_lossy().into_owned()
}

fn run(themes: &[&str]) {
    let done = Command::new("node")
        .arg(workspace().join("tests/page/run.mjs"))
        .args(themes)
        .env("HEAPTRACK_BIN", heaptrack())
        .env("TRACES", traces())
        .env("SHOTS", workspace().join("target/screenshots"))
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&done.stdout);
    println!("{said}");
    assert!(done.status.success(), "{}\n{}", failures(&said), String::from_utf8_lossy(&done.stderr));
}

/// The failed checks, each with all its lines. A crawl has one line for each contradiction.
fn failures(said: &str) -> String {
    let mut is_failed = false;
    let lines = said.lines().filter(|line| {
        let is_next = ["ok      ", "FAILED  ", "-- "].iter().any(|start| line.starts_with(start));
        is_failed = if is_next { line.starts_with("FAILED  ") } else { is_failed };
        is_failed
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_has_every_feature_of_the_older_tool() {
    run(&["lists"]);
}

#[test]
fn the_page_has_the_features_that_the_older_tool_lacks() {
    run(&["better", "wrappers", "compare"]);
}

#[test]
fn the_three_hunts_end_on_the_first_screen() {
    run(&["hunts"]);
}

#[test]
fn every_number_is_that_of_print() {
    run(&["numbers", "custom", "processes", "allocators", "memory", "folded", "profiles"]);
}

#[test]
fn no_screen_contradicts_itself_or_the_engine() {
    run(&["truth", "crawl"]);
}

#[test]
fn the_crawler_finds_a_planted_mistake() {
    run(&["mistakes"]);
}

#[test]
fn requests_without_the_token_are_refused_and_bad_files_are_reported() {
    run(&["safety", "files"]);
}

#[test]
fn a_report_is_the_same_page_and_a_running_program_is_followed() {
    run(&["report", "live", "versions"]);
}

#[test]
fn the_page_is_accessible_and_fits_every_screen() {
    run(&["access", "screens"]);
}
