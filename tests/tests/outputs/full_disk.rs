//! On a full disk no file is lost. The old file stays, no other file is left, and the message names the right file.
//! Only a recording for which there is a little room replaces the old trace.
use super::ended::with_large_traces;
use super::said;
use super::writers::WRITERS;
use super::{command, nameless_totals, succeed, with_traces};
use heaptrack_tests::attach::Target;
use heaptrack_tests::process::{code, wait_for};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report};
use serde_json::json;
use std::fs;
use std::process::{Command, Output};

/// Runs `heaptrack` on its own disk, which holds `kept` and has room for `room` more kB. `$KEEP` is a folder on another
/// disk.
fn on_a_full_disk(folder: &Folder, kept: &str, room: u32, words: &[&str]) -> Output {
    let script = format!(
        "mount -t tmpfs -o size=8m none /mnt && cp -- {kept} /mnt/ && cd /mnt && \
         head -c $((8388608 - $(du -sB1 . | cut -f1) - {room} * 1024)) /dev/zero > filler 2> /dev/null; \
         \"$HT\" \"$@\"; code=$?; rm filler; cp -- * \"$KEEP\"; ls -A > \"$KEEP/names\"; exit $code"
    );
    let keep = folder.join("keep");
    let _ = fs::remove_dir_all(&keep);
    fs::create_dir(&keep).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]).args(words);
    command.env("HT", heaptrack().canonicalize().unwrap()).env("KEEP", &keep).current_dir(folder.path());
    command.output().expect("unshare")
}

/// The names of the files on the disk at the end.
fn kept_names(folder: &Folder) -> Vec<String> {
    let names = fs::read_to_string(folder.join("keep/names")).unwrap();
    let mut names: Vec<String> = names.lines().map(Into::into).collect();
    names.sort();
    names
}

/// Amounts of room in kB that are too small for a file of `bytes`, from none to nearly enough. A disk allocates whole
/// pages of 4 kB.
fn too_little(bytes: u64) -> Vec<u32> {
    let pages = bytes.div_ceil(4096) as u32;
    let mut rooms: Vec<u32> = [0, pages / 4, pages / 2, pages - 1].map(|pages| pages * 4).to_vec();
    rooms.dedup();
    rooms
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let folder = with_large_traces();
    let mut larger_than_a_page = 0;
    for writer in &WRITERS {
        let file = writer.file("out");
        succeed(folder.path(), &writer.words("out"));
        let bytes = fs::metadata(folder.join(&file)).unwrap().len();
        fs::write(folder.join(&file), "the old file").unwrap();
        larger_than_a_page += usize::from(bytes > 4096);
        for room in too_little(bytes) {
            let context = format!("{} with room for {room} kB of {bytes} bytes", writer.name);
            let output = on_a_full_disk(&folder, &format!("t.htz u.htz {file}"), room, &writer.words("out"));
            let expected = format!("heaptrack: cannot write {file}: No space left on device\n");
            assert_eq!((code(output.status), said(&output)), (2, expected), "{context}");
            assert_eq!(fs::read_to_string(folder.join("keep").join(&file)).unwrap(), "the old file", "{context}");
            let mut expected = [file.clone(), "t.htz".into(), "u.htz".into()];
            expected.sort();
            assert_eq!(kept_names(&folder), expected, "{context}");
        }
        fs::remove_file(folder.join(&file)).unwrap();
    }
    assert!(larger_than_a_page > WRITERS.len() / 2, "most files are written page by page: {larger_than_a_page}");
}

#[test]
fn an_install_on_a_full_disk_leaves_whole_files() {
    let folder = Folder::new();
    let names = ["heaptrack_api.h", "libheaptrack_preload.so"];
    succeed(folder.path(), &["lib", "--install", "whole"]);
    let wholes = names.map(|name| fs::read(folder.join("whole").join(name)).unwrap());
    names.iter().for_each(|name| fs::write(folder.join(name), "the old file").unwrap());
    // The library is written first. If there is room for all its pages but none for the header, it is replaced and the
    // header is not.
    let pages = wholes[1].len().div_ceil(4096) as u32 * 4;
    for (room, is_new) in
        too_little(wholes[1].len() as u64).into_iter().map(|room| (room, false)).chain([(pages, true)])
    {
        let output = on_a_full_disk(&folder, &names.join(" "), room, &["lib", "--install", "."]);
        let expected = "heaptrack: cannot install to .: No space left on device\n";
        assert_eq!((code(output.status), said(&output).as_str()), (2, expected), "{room} kB");
        let left = names.map(|name| fs::read(folder.join("keep").join(name)).unwrap());
        assert_eq!(left[0], b"the old file", "{room} kB");
        assert!(if is_new { left[1] == wholes[1] } else { left[1] == b"the old file" }, "{room} kB");
        let mut left = kept_names(&folder);
        left.retain(|name| name != "libheaptrack_inject.so");
        assert_eq!(left, names, "{room} kB");
    }
}

/// Without any room the old trace stays and the program is not started. With a little room, the new trace holds what
/// fitted and reports the rest as missing.
#[test]
fn a_recording_on_a_full_disk_leaves_a_trace_that_opens() {
    let folder = with_traces();
    let old = fs::read(folder.join("t.htz")).unwrap();
    let (renewal, counted) = (target("renewal"), folder.join("counted"));
    let program = [renewal.to_str().unwrap(), counted.to_str().unwrap(), "600000", "early"];
    for options in [&["-o", "t"][..], &["--max-size", "4M", "-o", "t"]] {
        for room in [0, 4, 64, 500] {
            let context = format!("{options:?}, {room} kB");
            let output = on_a_full_disk(&folder, "t.htz", room, &[options, &program].concat());
            assert_eq!(kept_names(&folder), ["t.htz"], "{context}");
            if room == 0 {
                assert_eq!(said(&output), "heaptrack: cannot write the trace: No space left on device\n", "{context}");
                assert_eq!(code(output.status), 126, "{context}");
                assert!(fs::read(folder.join("keep/t.htz")).unwrap() == old, "{context}");
                continue;
            }
            assert_eq!(code(output.status), 3, "{context}: {}", said(&output));
            assert!(said(&output).contains("No space left on device"), "{context}: {}", said(&output));
            let report = Report::of(&folder.join("keep/t.htz"));
            assert_eq!(report.json()["damage"], json!([]), "{context}");
            assert!(!report.complete() || report.total("lost_events") > 0, "{context}");
        }
    }
}

#[test]
fn an_attached_recording_on_a_full_disk_leaves_a_trace_that_opens() {
    let folder = with_traces();
    let old = fs::read(folder.join("t.htz")).unwrap();
    let counted = folder.join("counted");
    let mut program = Command::new(target("renewal"));
    let target = Target::spawn(program.arg(&counted).args(["0", "early"]));
    wait_for("a program that allocates", || (fs::read(&counted).ok()?.first()? != &0).then_some(()));
    let pid = target.pid.to_string();
    for room in [0, 4, 16] {
        let words = ["attach", &pid, "--duration", "500ms", "-o", "t"];
        let output = on_a_full_disk(&folder, "t.htz", room, &words);
        assert!(target.is_alive(), "{room} kB");
        assert_eq!(kept_names(&folder), ["t.htz"], "{room} kB");
        assert!(said(&output).contains("No space left on device"), "{room} kB: {}", said(&output));
        if room == 0 {
            assert!(fs::read(folder.join("keep/t.htz")).unwrap() == old, "{room} kB");
            assert_eq!(code(output.status), 3, "{}", said(&output));
            continue;
        }
        let report = Report::of(&folder.join("keep/t.htz"));
        assert_eq!(report.json()["damage"], json!([]), "{room} kB");
        assert!(!report.complete() || report.total("lost_events") > 0, "{room} kB");
    }
}

/// On disks with room for some names, and for none.
#[test]
fn symbolize_on_a_full_disk_leaves_the_trace() {
    let folder = Folder::new();
    let mut record = command(folder.path(), &["-q", "-r", "-o", "t"]);
    assert_eq!(code(record.args(["/usr/bin/python3", "-c", "import json"]).status().unwrap()), 0);
    let totals = nameless_totals(&Report::of(&folder.join("t.htz")));
    let size = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
    fs::copy(folder.join("t.htz"), folder.join("named.htz")).unwrap();
    succeed(folder.path(), &["symbolize", "named.htz"]);
    let names = (size("named.htz") - size("t.htz")) as u32 / 1024;
    // A disk allocates whole pages of 4 kB, so a little more fits than the room that was asked for.
    assert!(names > 12, "the precondition of this test does not hold: {names} kB");
    for room in [0, names / 4, names / 2] {
        let output = on_a_full_disk(&folder, "t.htz", room, &["symbolize", "t.htz"]);
        assert_eq!(code(output.status), 2, "{room} kB: {}", said(&output));
        assert_eq!(said(&output), "heaptrack: cannot add names to t.htz: No space left on device\n", "{room} kB");
        let report = Report::of(&folder.join("keep/t.htz"));
        assert!(report.complete(), "{room} kB: {}", report.json()["damage"]);
        assert_eq!(nameless_totals(&report), totals, "{room} kB");
    }
}
