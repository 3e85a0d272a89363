//! A small dataset of real recordings: `heaptrack dataset report`, DuckDB with the SQL of `fleet/`, and a naive sum over
//! `heaptrack print` give the same answers. `make soak-fleet` does the same with 2,000 traces and three engines.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::{Folder, process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QUESTIONS: [&str; 5] = ["top_peak", "grown", "leaking_hosts", "new_sites", "label_costs"];

/// Two versions of each program of tests/fleet/record.py.
const TRACES: u64 = 44;

/// The folder with `heaptrack-dataset`, which `make unit` builds.
fn folder_of_program() -> PathBuf {
    let folder = workspace().join("target/debug");
    assert!(folder.join("heaptrack-dataset").exists(), "`cargo test --workspace --no-run` builds heaptrack-dataset");
    folder
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn script(name: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.env("PYTHONPATH", workspace().join("target/duckdb")).arg(workspace().join("tests/fleet").join(name));
    command
}

/// `heaptrack dataset`, with its program in PATH.
fn dataset(words: &[&str]) -> Command {
    let paths = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(heaptrack());
    command.env("PATH", format!("{}:{paths}", folder_of_program().display())).arg("dataset").args(words);
    command
}

fn report(folder: &str) -> Value {
    let text = output(&mut dataset(&["report", folder, "--since-version", "1.5", "--json"]));
    serde_json::from_str(&text).unwrap()
}

fn by_duckdb(folder: &Path) -> Value {
    let text = output(script("engines.py").arg("duckdb").arg(folder));
    serde_json::from_str(text.trim().strip_prefix("ANSWERS ").unwrap()).unwrap()
}

fn assert_same(found: &Value, wanted: &Value, what: &str) {
    for question in QUESTIONS {
        assert_eq!(found[question], wanted[question], "{question}, {what}");
    }
}

#[test]
fn report_duckdb_and_a_naive_sum_agree() {
    let folder = Folder::new();
    let (traces, data) = (folder.join("traces"), folder.join("dataset"));
    let path = data.to_str().unwrap();
    output(script("record.py").arg(heaptrack()).arg(&traces).arg(TRACES.to_string()));
    output(script("add.py").arg(folder_of_program().join("heaptrack-dataset")).arg(&traces).arg(&data));
    let naive: Value =
        serde_json::from_str(&output(script("naive.py").arg(heaptrack()).arg(&traces).arg("1.5"))).unwrap();
    for question in ["top_peak", "grown", "new_sites", "label_costs"] {
        assert_ne!(naive[question].as_array().unwrap().len(), 0, "{question} has no rows, so it tests nothing");
    }
    assert_eq!(report(path)["traces"], TRACES);
    assert_same(&report(path), &naive, "dataset report");
    assert_same(&by_duckdb(&data), &naive, "DuckDB");
    output(&mut dataset(&["compact", path, "--grace", "0"]));
    assert_same(&report(path), &naive, "dataset report, compacted");
    assert_same(&by_duckdb(&data), &naive, "DuckDB, compacted");
    a_population_is_one_profile(path, &naive);
    the_page_opens_a_population(path);
}

/// The sums of a profile of one service are those of the report.
fn a_population_is_one_profile(data: &str, naive: &Value) {
    let row = &naive["top_peak"].as_array().unwrap().iter().find(|row| row["service"] == "perl").unwrap();
    let condition = format!("service='perl' and version={}", row["version"]).replace('"', "'");
    let folder = Folder::new();
    let profile = folder.join("perl.pb");
    output(&mut dataset(&["profile", data, "--where", &condition, "--sum", "-o", profile.to_str().unwrap()]));
    let json = output(Command::new(heaptrack()).args(["print", "--json"]).arg(&profile));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["totals"]["peak_bytes"], row["sum_of_peak_bytes"]);
}

/// `heaptrack analyze DIR --where` prints its address when both groups are read. It keeps them where only the user can
/// read them, and removes them when it is interrupted.
fn the_page_opens_a_population(data: &str) {
    let paths = std::env::var("PATH").unwrap_or_default();
    let temporary = Folder::new();
    let mut command = Command::new(heaptrack());
    command.env("PATH", format!("{}:{paths}", folder_of_program().display())).env("TMPDIR", temporary.path());
    command.args(["analyze", data, "--no-browser", "--where", "version='1.5'", "--compare-where", "version='1.4'"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let modes = std::fs::read_dir(temporary.path()).unwrap().flatten();
    let modes: Vec<u32> = modes.map(|entry| entry.metadata().unwrap().permissions().mode() & 0o777).collect();
    assert_eq!(modes, [0o700, 0o700]);
    process::signal("TERM", &[child.id()]);
    assert_eq!(process::code(child.wait().unwrap()), 128 + 15);
    assert_eq!(temporary.names(), [""; 0]);
    assert!(address.starts_with("http://127.0.0.1:") && address.contains("compare=1"), "{address}");
}

#[test]
fn a_missing_program_is_named() {
    let folder = Folder::new();
    let alone = folder.join("heaptrack");
    std::fs::copy(heaptrack(), &alone).unwrap();
    let output = Command::new(&alone).env("PATH", "").args(["dataset", "report", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("/heaptrack-dataset is missing, and it is not in PATH: a release has it"), "{text}");
}
