//! The crate `heaptrack-trace`, used by programs outside of the workspace: its API, its examples, and its promises.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::{Folder, Program, view};
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Builds a crate with tests/library/main.rs and the examples as its programs. It has the workspace's settings and target
/// folder, so that packages of others are not built again. Our own crates are, as they are not part of its workspace.
fn build(folder: &Folder) -> PathBuf {
    let trace = workspace().join("crates/trace");
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let profiles = &manifest[manifest.find("[profile.dev]").unwrap()..];
    let ours = ["analysis", "format", "import", "symbols", "heaptrack-trace"];
    let quickly: String = ours.iter().map(|name| format!("{name} = {{ opt-level = 0 }}\n")).collect();
    let package = "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    let text = format!("{package}[dependencies]\nheaptrack-trace = {{ path = {trace:?} }}\n{profiles}\n{quickly}");
    std::fs::write(folder.join("Cargo.toml"), text).unwrap();
    std::fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    std::fs::create_dir_all(folder.join("src/bin")).unwrap();
    std::fs::copy(workspace().join("tests/library/main.rs"), folder.join("src/main.rs")).unwrap();
    for example in ["leaks", "live_at", "lifetimes"] {
        let name = format!("{example}.rs");
        std::fs::copy(trace.join("examples").join(&name), folder.join("src/bin").join(&name)).unwrap();
    }
    let target = workspace().join("target");
    run(Command::new("cargo").args(["build", "--offline", "--target-dir"]).arg(&target).current_dir(folder.path()));
    target.join("debug")
}

#[test]
fn a_program_outside_of_the_workspace_gets_the_answers_of_print() {
    let folder = Folder::new();
    let programs = build(&folder);
    let outcome = Program::target("exported").recorded();
    let trace = outcome.trace.as_path();
    let profile = folder.join("x.pb.gz");
    run(Command::new(heaptrack()).args(["export", "--to", "pprof"]).arg(trace).arg("-o").arg(&profile));
    let program = |name: &str, words: &[&Path]| run(Command::new(programs.join(name)).args(words));
    let sampled = Program::target("exported").option("--sample").option("1000").recorded();
    let said = program("outside", &[trace, &profile, &sampled.trace]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], view::text(trace, &["--json"]).trim_end());
    assert_eq!(lines[1], view::text(trace, &["--view", "timeline", "--points", "8"]).trim_end());
    assert_eq!(lines[2], view::text(trace, &["--view", "diff", "--diff", trace.to_str().unwrap()]).trim_end());

    let leaks = view::view(trace, "leaks", &[]);
    let rows: Vec<String> = program("leaks", &[trace]).lines().map(str::to_owned).collect();
    assert_eq!(rows.len(), leaks["sites"].as_array().unwrap().len());
    for (row, leak) in rows.iter().zip(leaks["sites"].as_array().unwrap()) {
        let cells: Vec<&str> = row.split('\t').collect();
        assert_eq!(cells[0].to_lowercase(), leak["verdict"].as_str().unwrap());
        assert_eq!((cells[1], cells[4]), (leak["live_bytes"].to_string().as_str(), leak["reason"].as_str().unwrap()));
    }
    let held = program("live_at", &[trace, Path::new("peak")]);
    let held: u64 = held.lines().map(|row| row.split('\t').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(held, view::total(&view::view(trace, "profile", &["--at", "peak"]), "live_bytes"));
    let blocks = program("lifetimes", &[trace]);
    let blocks: u64 = blocks.trim_end().split('\t').map(|count| count.parse::<u64>().unwrap()).sum();
    assert_eq!(blocks, view::total(&view::view(trace, "summary", &[]), "allocations"));
}
