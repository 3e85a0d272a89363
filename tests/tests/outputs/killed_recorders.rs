//! A recorder that is killed leaves a trace that can be opened, or the old trace unchanged. Tests both `heaptrack
//! PROGRAM` and `heaptrack attach`.
use super::ended::{assert_tidied, wait_for_a_moment};
use super::{command, run, said, with_traces};
use heaptrack_tests::attach::{Target, detach};
use heaptrack_tests::process::{code, has_group, signal, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Chance, Folder, Report, scale};
use serde_json::json;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a recorder in its own process group, and kills it at a random moment.
fn kill_it(folder: &Folder, words: &[&str], took: Duration, chance: &mut Chance) {
    let mut recorder = command(folder.path(), words);
    recorder.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut recorder = recorder.spawn().unwrap();
    wait_for_a_moment(folder, recorder.id(), took, chance);
    signal("KILL", &[recorder.id()]);
    recorder.wait().unwrap();
    // Kill the program too, because it would continue without its recorder.
    let group = format!("-{}", recorder.id());
    let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status().expect("kill(1)");
    // Between fork and exec, the program is a copy of the recorder and holds the locks of its files.
    wait_for("the end of the program", || (!has_group(recorder.id())).then_some(()));
}

/// A recording replaces the old trace as soon as the program runs, and can be read from that moment on. Returns true if
/// the old trace is still there.
fn is_old(folder: &Folder, old: &[u8], context: &str) -> bool {
    let trace = folder.join("out.htz");
    if fs::read(&trace).unwrap() == old {
        return true;
    }
    let report = Report::try_of(&trace).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(report.json()["damage"], json!([]), "{context}");
    false
}

/// Kills the recorder repeatedly, each time at a random moment.
fn at_any_moment(folder: &Folder, words: &[&str], took: Duration, each: impl Fn()) {
    let mut chance = Chance::new("kill a recorder");
    let old = fs::read(folder.join("t.htz")).unwrap();
    let rounds = if scale::soak() { 200 } else { 4 };
    let (mut kept, mut parts) = (0, 0);
    for round in 0..rounds {
        let context = format!("{words:?}, round {round}");
        fs::write(folder.join("out.htz"), &old).unwrap();
        kill_it(folder, words, took, &mut chance);
        kept += usize::from(is_old(folder, &old, &context));
        parts += assert_tidied(folder, "KILL", &context);
        fs::remove_file(folder.join("out.htz")).unwrap();
        let _ = fs::remove_file(folder.join("counted"));
        assert_eq!(folder.names(), ["t.htz", "u.htz"], "{context}");
        each();
    }
    println!("{words:?}: {rounds} were killed, {kept} left the old trace, {parts} an unfinished file");
}

#[test]
fn a_recorder_that_is_killed_leaves_a_trace_that_opens() {
    let folder = with_traces();
    let renewal = target("renewal");
    let program = [renewal.to_str().unwrap(), "counted", "600000", "early"];
    for options in [&["-q", "-o", "out"][..], &["-q", "--max-size", "1M", "-o", "out"]] {
        let words = [options, &program].concat();
        let start = Instant::now();
        let output = run(folder.path(), &words);
        assert_eq!(code(output.status), 3, "{}", said(&output));
        at_any_moment(&folder, &words, start.elapsed(), || ());
    }
}

#[test]
fn an_attached_recorder_that_is_killed_leaves_a_trace_that_opens() {
    let folder = with_traces();
    let mut target = Target::start("attach_throw", &[]);
    assert_eq!(target.line(), "ready");
    let pid = target.pid.to_string();
    let words = ["attach", &pid, "-q", "--duration", "100ms", "-o", "out"];
    let start = Instant::now();
    let output = run(folder.path(), &words);
    assert_eq!(code(output.status), 0, "{}", said(&output));
    at_any_moment(&folder, &words, start.elapsed(), || {
        // Remove what the killed recorder left in the program.
        detach(target.pid);
        assert!(target.is_alive());
    });
    let (code, text) = target.finish();
    assert!(code == 0 && text.contains("right"), "{code} {text}");
}
