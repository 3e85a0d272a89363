//! Programs that give up their privileges, change their root folder or become a program that cannot be recorded. Their
//! stderr, environment and exit code are the same as without heaptrack, and the trace says what is missing.
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report, process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A folder that every user may write to, and a copy of `surroundings` that every user may run.
fn open_folder() -> (Folder, PathBuf) {
    let folder = Folder::new();
    let program = folder.join("surroundings");
    heaptrack_tests::folder::copy_program(target("surroundings"), &program);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    (folder, program)
}

struct Ended {
    code: i32,
    /// The program's stderr, without heaptrack's own lines.
    stderr: String,
    ours: Vec<String>,
    written: String,
}

fn run(folder: &Folder, words: &[String]) -> Ended {
    let out = folder.join("out");
    let _ = std::fs::remove_file(&out);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_remove("LD_PRELOAD").current_dir(folder.path());
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_ours = |line: &&str| line.starts_with("heaptrack: ") || line.starts_with("  ");
    // The numbers of pipes differ in each run.
    let written = std::fs::read_to_string(&out).unwrap_or_default();
    let lines = |keep: &dyn Fn(&&str) -> bool| said.lines().filter(keep).map(str::to_owned).collect::<Vec<_>>();
    Ended {
        code: process::code(output.status),
        stderr: lines(&|line| !is_ours(line)).join("\n"),
        ours: lines(&is_ours),
        written: written.lines().filter(|line| !line.contains(" pipe:[")).collect::<Vec<_>>().join("\n"),
    }
}

/// Runs the command alone and recorded. Asserts that nothing differs and that the trace names `reason`.
fn assert_harmless(folder: &Folder, command: &[String], reason: &str) -> Report {
    let trace = folder.join("trace.htz");
    let alone = run(folder, command);
    let recorder =
        [heaptrack().display().to_string(), "-r".into(), "-o".into(), trace.display().to_string(), "--".into()];
    let recorded = run(folder, &[&recorder, command].concat());
    assert_eq!(recorded.stderr, alone.stderr, "{command:?}");
    assert_eq!((recorded.code, &recorded.written), (alone.code, &alone.written), "{command:?}: {:?}", recorded.ours);
    let notes: Vec<&String> =
        recorded.ours.iter().filter(|line| line.contains("which could not be recorded")).collect();
    assert_eq!(notes.len(), 1, "{command:?}: {:?}", recorded.ours);
    assert!(notes[0].contains(reason), "{notes:?}");
    let report = Report::of(&trace);
    let unseen = &report.json()["unseen"];
    let is_told = |one: &serde_json::Value| one["sentence"].as_str().is_some_and(|sentence| sentence.contains(reason));
    assert!(unseen.as_array().is_some_and(|all| all.iter().any(is_told)), "{unseen}");
    assert_eq!(report.total("leaked_allocations"), 0, "blocks that ended with an exec are no leak");
    assert!(report.total("allocations") > 0 && !report.complete());
    report
}

fn words(parts: &[&[&str]]) -> Vec<String> {
    parts.concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn another_user() {
    let (folder, program) = open_folder();
    let (program, out) = (program.display().to_string(), folder.join("out").display().to_string());
    assert_harmless(&folder, &words(&[&NOBODY, &[&program, &out]]), "another user");
    let chroot = words(&[&["chroot", "--userspec=65534:65534", "/", &program, &out]]);
    assert_harmless(&folder, &chroot, "another user");
    let shell = format!("exec {program} {out}");
    let su = words(&[&["su", "nobody", "-s", "/bin/sh", "-c", &shell]]);
    let (alone, trace) = (run(&folder, &su), folder.join("su.htz").display().to_string());
    let recorded =
        run(&folder, &[words(&[&[&heaptrack().display().to_string(), "-r", "-o", &trace, "--"]]), su].concat());
    assert_eq!((recorded.code, recorded.stderr, recorded.written), (alone.code, alone.stderr, alone.written));
}

#[test]
fn another_root_folder() {
    let (folder, _) = open_folder();
    heaptrack_tests::folder::copy_program(target("hello_static"), folder.join("hello"));
    let root = folder.path().display().to_string();
    assert_harmless(&folder, &words(&[&["chroot", &root, "/hello", "word"]]), "another root folder");
}

#[test]
fn a_static_program() {
    let (folder, _) = open_folder();
    let hello = target("hello_static").display().to_string();
    assert_harmless(&folder, &words(&[&["env", "A=1", &hello, "word"]]), "linked statically");
    // A script with a static interpreter, found in PATH.
    heaptrack_tests::folder::write_program(folder.join("script"), format!("#!{hello} word\n"));
    std::fs::set_permissions(folder.join("script"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH=/nowhere:{}", folder.path().display());
    assert_harmless(&folder, &words(&[&["/usr/bin/env", &path, "script"]]), "linked statically");
}

#[test]
fn a_program_that_gains_privileges() {
    let (folder, program) = open_folder();
    let out = folder.join("out").display().to_string();
    let gaining = folder.join("gaining");
    heaptrack_tests::folder::copy_program(&program, &gaining);
    std::fs::set_permissions(&gaining, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let command = words(&[&["env", &gaining.display().to_string(), &out]]);
    let trace = folder.join("trace.htz").display().to_string();
    let recorder = [&heaptrack().display().to_string(), "-r", "-o", &trace, "--"];
    let alone = run(&folder, &[words(&[&NOBODY]), command.clone()].concat());
    let _ = std::fs::remove_file(&out);
    let recorded = run(&folder, &[words(&[&NOBODY, &recorder]), command].concat());
    assert!(alone.written.contains("secure 1"), "the precondition of this test does not hold: {}", alone.written);
    assert_eq!((recorded.code, recorded.stderr, recorded.written), (alone.code, alone.stderr, alone.written));
    assert!(recorded.ours.iter().any(|line| line.contains("setuid")), "{:?}", recorded.ours);
}

/// An exec that fails leaves the recording as it was.
#[test]
fn an_exec_that_fails_is_not_reported() {
    let outcome = Program::target("exec_in_place").same_output();
    assert!(!outcome.stderr.contains("exec"), "{}", outcome.stderr);
    let (folder, _) = open_folder();
    let broken = folder.join("broken");
    // By its header it is a static program, but it is too short to be executed.
    heaptrack_tests::folder::write_program(&broken, &std::fs::read(target("hello_static")).unwrap()[..64]);
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script =
        format!("import os\ntry: os.execv('{}', ['x'])\nexcept OSError as e: print(e.errno)", broken.display());
    let outcome = Program::new("python3").option("-r").arg("-c").arg(script).same_output();
    assert!(!outcome.stderr.contains("exec"), "{}", outcome.stderr);
    assert_eq!(outcome.whole_report().note(), None);
}

/// Runs a command under `heaptrace`. Returns the exit code, and the messages of the loader on stderr.
fn complaints(words: &[String]) -> (i32, Vec<String>) {
    let traced = Heaptrace::new(words).run();
    (traced.code, traced.stderr.lines().filter(|line| line.contains("ld.so")).map(str::to_owned).collect())
}

#[test]
fn children_of_a_watched_program_that_became_another_user() {
    let (folder, program) = open_folder();
    let (program, out) = (program.display().to_string(), folder.join("out").display().to_string());
    assert_eq!(complaints(&words(&[&NOBODY, &[&program, &out]])), (9, vec![]));
    let dropping = format!("import os; os.setuid(65534); raise SystemExit(os.system('{program} {out}') >> 8)");
    assert_eq!(complaints(&words(&[&["python3", "-c", &dropping]])), (9, vec![]));
    let spawning =
        format!("import os, subprocess; os.setuid(65534); raise SystemExit(subprocess.call(['{program}', '{out}']))");
    assert_eq!(complaints(&words(&[&["python3", "-c", &spawning]])), (9, vec![]));
    let written = std::fs::read_to_string(Path::new(&out)).unwrap();
    assert_eq!(written.matches("\n--\n").count(), 3);
}
