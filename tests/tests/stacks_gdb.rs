//! The recorded stack of an allocation is the one that gdb sees when the program is stopped right after it.
use heaptrack_tests::{Chance, Program, gdb, scale};
use std::path::PathBuf;
use std::process::Command;

/// `slack` is for programs with several threads: see `gdb::Stop::difference`.
fn equal_to_gdb(name: &str, program: Program, slack: u64) {
    let first = program.recorded();
    assert_eq!(first.code, 0, "{name}: {}", first.stderr);
    let total = first.whole_allocations();
    assert!(total > 200, "{name}: only {total} allocations");
    let events = Chance::new(name).several(scale::count(100) as usize, 2, total * 9 / 10);
    let (outcome, stops) = gdb::stops(&program, &events);
    assert_eq!((outcome.code, stops.len()), (0, events.len() + 1), "{name}: {}", outcome.stderr);
    let frames: usize = stops.iter().map(|stop| stop.frames.len()).sum();
    println!("{name}: {} stops in {total} allocations, {frames} frames", stops.len());
    let differences: Vec<String> = stops.iter().filter_map(|stop| stop.difference(&outcome.trace, slack)).collect();
    assert!(
        differences.is_empty(),
        "{name}: {} of {} differ; the first: {}",
        differences.len(),
        stops.len(),
        differences[0]
    );
}

#[test]
fn rust_program() {
    equal_to_gdb("rust", Program::target("growth").arg("100"), 0);
}

#[test]
fn cc1plus() {
    let output = Command::new("g++").arg("-print-prog-name=cc1plus").output().expect("g++");
    let cc1plus = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let source = heaptrack_tests::targets::sources().join("containers.cpp");
    equal_to_gdb(
        "cc1plus",
        Program::new(cc1plus)
            .args(["-quiet", "-O1", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE", "-o", "/dev/null"])
            .arg(source),
        0,
    );
}

#[test]
fn python() {
    let program = Program::new("/usr/bin/python3.11")
        .args(["-c", "import json; [json.loads(json.dumps({str(i): [i, {'a': i}]})) for i in range(300)]"])
        .env("PYTHONMALLOC", "malloc")
        .env("PYTHONHASHSEED", "0");
    equal_to_gdb("python", program, 0);
}

#[test]
fn sqlite() {
    let sql = "create table t(a integer, b text); \
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into t select i, 'row ' || i from n; \
        create index x on t(b); select count(*), max(b) from t where b like 'row 1%' group by a % 7;";
    equal_to_gdb("sqlite3", Program::new("/usr/bin/sqlite3").arg(":memory:").arg(sql), 0);
}

#[test]
fn node_up_to_its_jit_code() {
    let node = Command::new("sh").args(["-c", "command -v node"]).output().expect("sh");
    let node = PathBuf::from(String::from_utf8_lossy(&node.stdout).trim()).canonicalize().expect("node");
    let script = "const z = require('zlib'); let n = 0; for (let i = 0; i < 20; i++) \
        n += z.deflateSync(JSON.stringify(Array.from({length: 500}, (_, k) => ({k, s: 'x'.repeat(k % 50)})))).length; console.log(n)";
    equal_to_gdb("node", Program::new(node).arg("-e").arg(script), 40);
}
