//! A command that is killed at a random moment leaves the old file unchanged or the complete new one.
use super::writers::{WRITERS, Writer};
use super::{command, succeed};
use heaptrack_tests::process::{code, signal};
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::view::view;
use heaptrack_tests::{Chance, Folder, Report, scale};
use serde_json::json;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Traces that take a while to rewrite.
pub fn with_large_traces() -> Folder {
    let folder = Folder::new();
    for name in ["t", "u"] {
        let mut record = command(folder.path(), &["-q", "-o", name]);
        let recorded = record.arg(target("threads")).args(["4", "100000"]).stdout(Stdio::null()).status().unwrap();
        assert_eq!(code(recorded), 0);
    }
    folder
}

/// Runs a command to its end. Returns what it writes and how long it takes.
fn whole(folder: &Folder, writer: &Writer) -> (Vec<u8>, Duration) {
    let start = Instant::now();
    succeed(folder.path(), &writer.words("whole"));
    let took = start.elapsed();
    let file = folder.join(&writer.file("whole"));
    let bytes = fs::read(&file).unwrap();
    fs::remove_file(file).unwrap();
    (bytes, took)
}

/// Sleeps for a random part of the time that a command takes.
fn sleep_a_part_of(took: Duration, chance: &mut Chance) {
    std::thread::sleep(Duration::from_micros(chance.between(0, took.as_micros() as u64 + 2000)));
}

/// Half of the moments are anywhere in the time that a command takes. The others come when the command has begun to
/// write.
pub fn wait_for_a_moment(folder: &Folder, child: u32, took: Duration, chance: &mut Chance) {
    if chance.between(0, 2) == 0 {
        return sleep_a_part_of(took, chance);
    }
    let (part, end) = (format!(".heaptrack.{child}."), Instant::now() + took);
    while Instant::now() < end && !folder.names().iter().any(|name| name.starts_with(&part)) {}
    sleep_a_part_of(took / 10, chance);
}

/// Starts the command and ends it by a random signal when `wait` returns. `wait` receives the process id. Returns the
/// signal and the exit code.
fn end_it(
    folder: &Folder,
    words: &[&str],
    chance: &mut Chance,
    wait: impl FnOnce(u32, &mut Chance),
) -> (&'static str, i32) {
    let name = ["KILL", "TERM", "INT", "HUP"][chance.between(0, 4) as usize];
    let mut child = {
        let mut command = with_default_signals(heaptrack());
        command.args(words).current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    wait(child.id(), chance);
    signal(name, &[child.id()]);
    (name, code(child.wait().unwrap()))
}

/// Like `end_it`, for a command that writes a file: waits by `wait_for_a_moment`.
fn end_writer(folder: &Folder, words: &[&str], took: Duration, chance: &mut Chance) -> (&'static str, i32) {
    end_it(folder, words, chance, |child, chance| wait_for_a_moment(folder, child, took, chance))
}

/// Only SIGKILL may leave a file, and at most one unfinished one. The next command that writes here removes it. Returns
/// the number of files that were left.
pub fn assert_tidied(folder: &Folder, signal: &str, context: &str) -> usize {
    let parts = || -> Vec<String> { folder.names().into_iter().filter(|name| name.ends_with(".part")).collect() };
    let left = parts();
    assert!(left.len() <= usize::from(signal == "KILL"), "{context}: {left:?}");
    assert!(left.iter().all(|part| part.starts_with(".heaptrack.")), "{context}: {left:?}");
    if !left.is_empty() {
        succeed(folder.path(), &["export", "--to", "folded", "t.htz", "-o", "tidy"]);
        fs::remove_file(folder.join("tidy")).unwrap();
        assert_eq!(parts(), [""; 0], "{context}");
    }
    left.len()
}

#[test]
fn a_command_that_is_ended_leaves_the_old_file_or_the_new_one() {
    let folder = with_large_traces();
    let mut chance = Chance::new("end a writing command");
    let wholes: Vec<(Vec<u8>, Duration)> = WRITERS.iter().map(|writer| whole(&folder, writer)).collect();
    // In a soak, every command 200 times; otherwise 20 runs in total.
    let rounds = if scale::soak() { 200 * WRITERS.len() } else { 20 };
    let (mut old, mut new, mut parts) = (0, 0, 0);
    for round in 0..rounds {
        let number =
            if scale::soak() { round % WRITERS.len() } else { chance.between(0, WRITERS.len() as u64) as usize };
        let (writer, (expected, took)) = (&WRITERS[number], &wholes[number]);
        let file = folder.join(&writer.file("out"));
        fs::write(&file, "the old file").unwrap();
        let (signal, code) = end_writer(&folder, &writer.words("out"), *took, &mut chance);
        let left = fs::read(&file).unwrap();
        let context = format!("{} ended by {signal}, exit code {code}", writer.name);
        if left == b"the old file" {
            assert_ne!(code, 0, "{context}: it reports that it wrote the file");
            old += 1;
        } else {
            assert!(left == *expected, "{context}: {} bytes, {} are whole", left.len(), expected.len());
            new += 1;
        }
        fs::remove_file(file).unwrap();
        parts += assert_tidied(&folder, signal, &context);
        assert_eq!(folder.names(), ["t.htz", "u.htz"], "{context}");
    }
    println!(
        "{rounds} commands were ended: {old} left the old file, {new} the new one, {parts} an unfinished one besides"
    );
}

/// `lib --install` writes two files and a link. Each is the old one or the new one, and the link leads to the library.
#[test]
fn an_install_that_is_ended_leaves_whole_files() {
    let folder = super::with_traces();
    let start = Instant::now();
    succeed(folder.path(), &["lib", "--install", "whole"]);
    let took = start.elapsed();
    let (files, link) = (["libheaptrack_preload.so", "heaptrack_api.h"], "libheaptrack_inject.so");
    let wholes = files.map(|name| fs::read(folder.join("whole").join(name)).unwrap());
    fs::remove_dir_all(folder.join("whole")).unwrap();
    let mut chance = Chance::new("end an install");
    for _ in 0..scale::count(200).min(if scale::soak() { 200 } else { 10 }) {
        for name in [files[0], link, files[1]] {
            fs::write(folder.join(name), "the old file").unwrap();
        }
        let (signal, code) = end_writer(&folder, &["lib", "--install", "."], took, &mut chance);
        let context = format!("ended by {signal}, exit code {code}");
        let mut is_old = false;
        for (name, whole) in files.iter().zip(&wholes) {
            let left = fs::read(folder.join(name)).unwrap();
            assert!(left == b"the old file" || left == *whole, "{context}: {name} has {} bytes", left.len());
            is_old |= left == b"the old file";
        }
        assert!(!is_old || code != 0, "{context}: it reports that it wrote the files");
        let is_link = fs::read_link(folder.join(link)).is_ok_and(|to| to == std::path::Path::new(files[0]));
        assert!(is_link || fs::read(folder.join(link)).unwrap() == b"the old file", "{context}");
        [files[0], link, files[1]].iter().for_each(|name| fs::remove_file(folder.join(name)).unwrap());
        // A new link is too young to be taken for abandoned, so the test removes it.
        folder.names().iter().filter(|name| folder.join(name).is_symlink()).for_each(|name| {
            assert!(signal == "KILL" && name.starts_with(".heaptrack."), "{context}: {name}");
            fs::remove_file(folder.join(name)).unwrap();
        });
        assert_tidied(&folder, signal, &context);
        assert_eq!(folder.names(), ["t.htz", "u.htz"], "{context}");
    }
}

/// `symbolize` appends to the trace itself. At every moment the file is the old trace, or the old trace with more
/// names.
#[test]
fn a_symbolize_that_is_ended_leaves_a_whole_trace() {
    let folder = Folder::new();
    let mut record = command(folder.path(), &["-q", "-r", "-o", "bare"]);
    let recorded = record.args(["/usr/bin/python3", "-c", "import json, re"]).status().unwrap();
    assert_eq!(code(recorded), 0);
    let bare = fs::read(folder.join("bare.htz")).unwrap();
    // The summary only, because a whole report of Python's deep stacks has 65 MB.
    let summary = |name: &str| {
        let summary = view(&folder.join(name), "summary", &["--no-suppressions"]);
        (summary["complete"].clone(), summary["totals"].clone())
    };
    let expected = summary("bare.htz");
    assert_eq!(expected.0, true);
    let start = Instant::now();
    fs::write(folder.join("t.htz"), &bare).unwrap();
    succeed(folder.path(), &["symbolize", "-q", "t.htz"]);
    let took = start.elapsed();
    let mut chance = Chance::new("end symbolize");
    for _ in 0..scale::count(200).min(if scale::soak() { 200 } else { 5 }) {
        fs::write(folder.join("t.htz"), &bare).unwrap();
        let wait = |_, chance: &mut Chance| sleep_a_part_of(took, chance);
        let (signal, code) = end_it(&folder, &["symbolize", "-q", "t.htz"], &mut chance, wait);
        assert_eq!(summary("t.htz"), expected, "{signal}, {code}");
        // An interrupted `symbolize` can be repeated.
        succeed(folder.path(), &["symbolize", "-q", "t.htz"]);
        assert_eq!(summary("t.htz"), expected, "{signal}, {code}");
    }
    assert_eq!(Report::of(&folder.join("t.htz")).json()["damage"], json!([]));
}
