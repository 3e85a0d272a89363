//! The files that commands write: where they go, what they never replace, what is left when a command is killed or the
//! disk is full, and what `trim` and `merge` produce. Also the messages of all commands.
#[path = "outputs/ended.rs"]
mod ended;
#[path = "outputs/folders.rs"]
mod folders;
#[path = "outputs/full_disk.rs"]
mod full_disk;
#[path = "outputs/inputs.rs"]
mod inputs;
#[path = "outputs/killed_recorders.rs"]
mod killed_recorders;
#[path = "outputs/made.rs"]
mod made;
#[path = "outputs/messages.rs"]
mod messages;
#[path = "outputs/places.rs"]
mod places;
#[path = "outputs/writers.rs"]
mod writers;

use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report, process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `heaptrack` with these arguments, in this folder.
fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(heaptrack());
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command.env_remove("DEBUGINFOD_URLS").env_remove("DISPLAY").env_remove("SSH_CONNECTION").env_remove("BROWSER");
    command
}

fn run(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().expect("heaptrack runs")
}

fn succeed(folder: &Path, words: &[&str]) -> Output {
    let output = run(folder, words);
    assert_eq!(process::code(output.status), 0, "{words:?}: {}", said(&output));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a short program lives until its memory is measured for the first time depends on the machine, and so would
/// the messages about its trace.
const WITHOUT_MEMORY: [&str; 2] = ["--memory-every", "off"];

/// A folder with two small traces, `t.htz` and `u.htz`.
fn with_traces() -> Folder {
    let folder = Folder::new();
    for name in ["t", "u"] {
        let mut command = command(folder.path(), &["-q", "-o", name]);
        let output = command.args(WITHOUT_MEMORY).arg(target("hello")).output().expect("heaptrack runs");
        assert_eq!(said(&output), "");
    }
    folder
}

/// The totals without those that change when names are added, because known leaks are recognised by name.
fn nameless_totals(report: &Report) -> Value {
    let mut totals = report.json()["totals"].clone();
    for name in ["suppressed_bytes", "suppressed_allocations"] {
        totals.as_object_mut().expect("totals").remove(name);
    }
    totals
}
