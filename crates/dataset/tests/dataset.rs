//! The program with made profiles: what is added is there once and completely, whenever a writer is killed and however
//! many there are.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../format/tests/data/v1.htz");

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("heaptrack-{name}.{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn dataset(&self) -> PathBuf {
        self.0.join("dataset")
    }

    /// Profiles in the text format of gperftools. That of number N has a block of N + 1 bytes.
    fn profiles(&self, count: usize) -> Vec<PathBuf> {
        let profile = |number: usize| {
            let path = self.0.join(format!("{number}.heap"));
            let counts = format!("1: {0} [ 1: {0}]", number + 1);
            let text = format!(
                "heap profile: {counts} @ heapprofile\n {counts} @ 0x{:x} 0x2000\n\nMAPPED_LIBRARIES:\n",
                4096 + number
            );
            fs::write(&path, text).unwrap();
            path
        };
        (0..count).map(profile).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_heaptrack-dataset"))
}

fn adding(dataset: &Path, files: &[PathBuf], words: &[&str]) -> Command {
    let mut command = program();
    command
        .arg("add")
        .arg(dataset)
        .args(files)
        .args(["--service", "s", "--host", "h", "--date", "2026-11-18"])
        .args(words);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn done(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The one sentence of a refusal, which has exit code 2.
fn refused(command: &mut Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim().to_owned()
}

fn report(dataset: &Path) -> Value {
    serde_json::from_str(&done(program().arg("report").arg(dataset).arg("--json"))).unwrap()
}

/// The traces of the dataset and the sum of their live bytes, each by a table of its own.
fn traces_and_bytes(folder: &Folder) -> (u64, u64) {
    let dataset = folder.dataset();
    let count = report(&dataset)["traces"].as_u64().unwrap();
    let profile = folder.0.join("all.pb");
    done(program().arg("profile").arg(&dataset).arg("--sum").arg("-o").arg(&profile));
    let trace = heaptrack_trace::Trace::open(&profile).unwrap();
    (count, trace.totals().leaked_bytes.unwrap())
}

fn names(folder: &Path, end: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for item in fs::read_dir(folder).into_iter().flatten() {
        let path = item.unwrap().path();
        match path.is_dir() {
            true => found.extend(names(&path, end)),
            false if path.to_string_lossy().ends_with(end) => drop(found.insert(path.display().to_string())),
            false => {}
        }
    }
    found
}

fn soak(full: usize) -> usize {
    if std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1") { full } else { full / 10 }
}

#[test]
fn a_trace_is_added_once() {
    let folder = Folder::new("once");
    let dataset = folder.dataset();
    let copy = folder.0.join("copy.htz");
    fs::copy(TRACE, &copy).unwrap();
    let files = [PathBuf::from(TRACE), copy];
    let text = done(&mut adding(&dataset, &files, &["--version", "1", "--label", "a=b", "--events"]));
    assert!(text.contains("v1.htz: added\n") && text.contains("copy.htz: already in the dataset\n"), "{text}");
    let before = names(&dataset, "");
    // Also with other words, and as a part of a compacted batch.
    done(&mut adding(&dataset, &files, &["--version", "2"]));
    assert_eq!(names(&dataset, ""), before);
    let profiles = folder.profiles(3);
    done(&mut adding(&dataset, &profiles, &[]));
    assert_eq!(report(&dataset)["traces"], 4);
    let text = done(program().arg("compact").arg(&dataset).args(["--grace", "0"]));
    assert!(text.starts_with("4 batches became 1, and "), "{text}");
    assert_eq!(names(&dataset.join("manifest"), ".json").len(), 1);
    done(&mut adding(&dataset, &[&files[..], &profiles[..]].concat(), &["--version", "3"]));
    assert_eq!(report(&dataset)["traces"], 4);
    assert_eq!(names(&dataset.join("sites"), ".parquet").len(), 1);
    // All removed: they do not come back.
    let text = done(program().arg("retain").arg(&dataset).args(["--before", "2027-01-01", "--grace", "0"]));
    assert!(text.starts_with("4 traces before 2027-01-01 were removed, and "), "{text}");
    done(&mut adding(&dataset, &files, &[]));
    assert_eq!((report(&dataset)["traces"].as_u64(), names(&dataset.join("sites"), ".parquet").len()), (Some(0), 0));
}

/// Totals of the trace that was recorded by the first version, by `print --json` and in the dataset.
#[test]
fn numbers_are_those_of_the_trace() {
    let folder = Folder::new("numbers");
    done(&mut adding(&folder.dataset(), &[PathBuf::from(TRACE)], &["--version", "1", "--label", "team=x"]));
    let trace = heaptrack_trace::Trace::open(TRACE).unwrap();
    let json: Value =
        serde_json::from_str(&trace.json(&heaptrack_trace::Selection::everything(), None).unwrap()).unwrap();
    let (report, totals) = (report(&folder.dataset()), &json["totals"]);
    assert_eq!(report["top_peak"][0]["largest_peak_bytes"], totals["peak_bytes"]);
    let label = &report["label_costs"][0];
    assert_eq!((&label["key"], &label["value"], &label["traces"]), (&"team".into(), &"x".into(), &1.into()));
    for name in ["peak_bytes", "allocated_bytes", "leaked_bytes"] {
        assert_eq!(label[name], totals[name], "{name}");
    }
}

/// Starts a command, kills it after a time, and returns true if it had not ended by itself.
fn kill_after(command: &mut Command, time: Duration) -> bool {
    let mut child: Child = command.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(time);
    let was_running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    was_running
}

/// Adding and compacting are killed at moments that cover their whole time. What is committed is always readable.
#[test]
fn a_killed_writer_leaves_a_complete_dataset() {
    let folder = Folder::new("killed");
    let dataset = folder.dataset();
    let profiles = folder.profiles(12);
    let start = Instant::now();
    done(&mut adding(&dataset, &profiles, &[]));
    let whole = start.elapsed();
    let all: u64 = (1..=12).sum();
    assert_eq!(traces_and_bytes(&folder), (12, all));
    let mut killed = 0;
    let rounds = soak(50);
    for round in 0..rounds {
        fs::remove_dir_all(&dataset).unwrap();
        let moment = whole * (round as u32) / (rounds as u32);
        killed += usize::from(kill_after(&mut adding(&dataset, &profiles, &[]), moment));
        let committed = names(&dataset.join("manifest"), ".json").len() as u64;
        if committed > 0 {
            assert_eq!(traces_and_bytes(&folder), (committed, committed * (committed + 1) / 2));
            kill_after(
                program().arg("compact").arg(&dataset).args(["--grace", "0"]),
                whole * (round as u32) / (rounds as u32),
            );
            assert_eq!(traces_and_bytes(&folder).0, committed);
        }
        done(&mut adding(&dataset, &profiles, &[]));
        assert_eq!(traces_and_bytes(&folder), (12, all));
        done(program().arg("compact").arg(&dataset).args(["--grace", "0"]));
        assert_eq!(traces_and_bytes(&folder), (12, all));
        // Nothing else is left, so an engine that reads all files sees the same.
        assert_eq!(names(&dataset.join("sites"), "").len(), 1);
        assert_eq!(names(&dataset, ".part").len(), 0);
    }
    assert!(killed > 0, "no writer was killed while it worked");
}

/// Two writers add the same traces under different names while two others compact.
#[test]
fn writers_at_the_same_time_add_each_trace_once() {
    let folder = Folder::new("writers");
    let dataset = folder.dataset();
    let profiles = folder.profiles(30);
    done(&mut adding(&dataset, &profiles[..2], &[]));
    let mut backwards = profiles.clone();
    backwards.reverse();
    let mut children = Vec::new();
    for (files, version) in [(&profiles, "1"), (&backwards, "2")] {
        children.push(adding(&dataset, files, &["--version", version]).stdout(Stdio::null()).spawn().unwrap());
    }
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        let mut compacting: Vec<Child> =
            (0..2).map(|_| program().arg("compact").arg(&dataset).stdout(Stdio::null()).spawn().unwrap()).collect();
        compacting.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    }
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    assert_eq!(traces_and_bytes(&folder), (30, (1..=30).sum()));
    done(program().arg("compact").arg(&dataset).args(["--grace", "0"]));
    assert_eq!(traces_and_bytes(&folder), (30, (1..=30).sum()));
    assert_eq!(names(&dataset.join("sessions"), ".parquet").len(), 1);
}

/// As a writer leaves them that is killed on a mount without hard links: at any length, of any table and of the manifest.
#[test]
fn cut_objects_do_not_count_and_are_replaced() {
    let folder = Folder::new("cut");
    let (dataset, profiles) = (folder.dataset(), folder.profiles(3));
    done(&mut adding(&dataset, &profiles[..2], &[]));
    let before = names(&dataset, "");
    done(&mut adding(&dataset, &profiles[2..], &[]));
    let added: Vec<String> = names(&dataset, "").difference(&before).cloned().collect();
    assert_eq!(added.len(), 6);
    let whole: Vec<Vec<u8>> = added.iter().map(|name| fs::read(name).unwrap()).collect();
    for part in [0, 1, 50, 99] {
        for (name, bytes) in added.iter().zip(&whole) {
            fs::write(name, &bytes[..bytes.len() * part / 100]).unwrap();
        }
        assert_eq!(traces_and_bytes(&folder), (2, 3));
        let text = done(&mut adding(&dataset, &profiles, &[]));
        assert!(text.ends_with("2.heap: added\n"), "{text}");
        assert_eq!(traces_and_bytes(&folder), (3, 6));
        assert!(added.iter().zip(&whole).all(|(name, bytes)| fs::read(name).unwrap() == *bytes));
    }
    for (name, bytes) in added.iter().zip(&whole) {
        fs::write(name, &bytes[..bytes.len() / 2]).unwrap();
    }
    let text = done(program().arg("compact").arg(&dataset).args(["--grace", "0"]));
    assert!(text.starts_with("2 batches became 1, and "), "{text}");
    assert!(added.iter().all(|name| !Path::new(name).exists()));
    assert_eq!(traces_and_bytes(&folder), (2, 3));
}

/// A dataset that the first version of heaptrack-dataset wrote, without the columns that came later.
#[test]
fn an_old_dataset_stays_readable() {
    let folder = Folder::new("old");
    let dataset = folder.dataset();
    let old = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/first"));
    for name in names(old, "") {
        let copy = dataset.join(Path::new(&name).strip_prefix(old).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(name, copy).unwrap();
    }
    let first = report(&dataset);
    assert_eq!((&first["traces"], &first["sampled_traces"]), (&1.into(), &0.into()));
    let totals = heaptrack_trace::Trace::open(TRACE).unwrap().totals();
    assert_eq!(first["top_peak"][0]["sum_of_peak_bytes"], totals.peak_bytes.unwrap());
    assert_eq!(first["label_costs"][0]["leaked_bytes"], totals.leaked_bytes.unwrap());
    // A new trace in the same partition, so that files of both versions become one.
    let words = ["--service", "shop", "--host", "a", "--date", "2026-11-18", "--version", "1.4"];
    let text = done(program().arg("add").arg(&dataset).arg(TRACE).args(folder.profiles(1)).args(words));
    assert!(text.contains("v1.htz: already in the dataset\n") && text.contains("0.heap: added\n"), "{text}");
    let both = report(&dataset);
    assert_eq!((&both["traces"], &both["label_costs"]), (&2.into(), &first["label_costs"]));
    let text = done(program().arg("compact").arg(&dataset).args(["--grace", "0"]));
    assert!(text.starts_with("2 batches became 1, and "), "{text}");
    assert_eq!(report(&dataset), both);
}

/// A profile of tcmalloc's sampler is an estimate. It is not compared with profiles that have every block.
#[test]
fn sampled_and_whole_profiles_are_told_apart() {
    let folder = Folder::new("sampled");
    let (dataset, profiles) = (folder.dataset(), folder.profiles(2));
    let text = fs::read_to_string(&profiles[1]).unwrap().replace("heapprofile", "heap_v2/524288");
    fs::write(&profiles[1], text).unwrap();
    done(&mut adding(&dataset, &profiles[..1], &["--version", "1"]));
    done(&mut adding(&dataset, &profiles[1..], &["--version", "2"]));
    let found = report(&dataset);
    assert_eq!((&found["traces"], &found["sampled_traces"]), (&2.into(), &1.into()));
    let text = done(program().arg("report").arg(&dataset));
    assert!(text.starts_with("2 traces, 1 of them sampled: their numbers are estimates\n"), "{text}");
    let text = refused(program().arg("diff").arg(&dataset).args(["--before", "version=1", "--after", "version=2"]));
    assert_eq!(
        text,
        "heaptrack: the traces of these groups were not all recorded with the same --sample, so rare functions differ by that alone"
    );
    done(program().arg("compact").arg(&dataset).args(["--grace", "0"]));
    assert_eq!(report(&dataset), found);
}

/// Adds one profile for each of these days.
fn add_days(folder: &Folder, dates: &[&str]) {
    for (profile, date) in folder.profiles(dates.len()).iter().zip(dates) {
        let words = ["--service", "s", "--host", "h", "--date", date];
        done(program().arg("add").arg(folder.dataset()).arg(profile).args(words));
    }
}

fn retain(folder: &Folder, words: &[&str]) -> String {
    done(program().arg("retain").arg(folder.dataset()).args(["--grace", "0"]).args(words))
}

#[test]
fn retention_removes_old_days_only() {
    let folder = Folder::new("retain");
    add_days(&folder, &["2020-11-10", "2020-11-11", "2020-11-12", "2020-11-13"]);
    let text = retain(&folder, &["--days", "2"]);
    assert!(text.starts_with("2 traces before 2020-11-12 were removed, and "), "{text}");
    assert_eq!(traces_and_bytes(&folder), (2, 3 + 4));
    let text = retain(&folder, &["--days", "2"]);
    assert_eq!(text, "0 traces before 2020-11-12 were removed, and 0 unused files\n");
}

/// A host with a wrong clock adds traces of the future. They do not make all others old.
#[test]
fn a_wrong_date_removes_nothing() {
    let folder = Folder::new("ahead");
    add_days(&folder, &["2020-11-10", "2020-11-12", "2020-11-13", "9999-12-30", "9999-12-31"]);
    let text = retain(&folder, &["--days", "2"]);
    let (removed, about) = text.split_once('\n').unwrap();
    assert!(removed.starts_with("1 traces before 2020-11-12 were removed, and "), "{text}");
    assert_eq!(about, "2 traces dated after today, up to 9999-12-31: kept, and not counted as the last day\n");
    assert_eq!(traces_and_bytes(&folder), (4, 2 + 3 + 4 + 5));
    // If all of them are of the future, none is old.
    retain(&folder, &["--before", "9999-12-31"]);
    assert_eq!(traces_and_bytes(&folder), (1, 5));
    let text = retain(&folder, &["--days", "1"]);
    assert_eq!(
        text,
        "nothing to remove\n1 trace dated after today, up to 9999-12-31: kept, and not counted as the last day\n"
    );
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let folder = Folder::new("wrong");
    let (dataset, profiles) = (folder.dataset(), folder.profiles(1));
    let add = |words: &[&str]| refused(program().arg("add").arg(&dataset).args(&profiles).args(words));
    let text = add(&["--service", "a/b"]);
    assert!(text.starts_with("heaptrack: the service `a/b` must have letters, digits, "), "{text}");
    let text = add(&["--service", "a", "--date", "2026-02-30"]);
    assert_eq!(text, "heaptrack: `2026-02-30` is no date such as 2026-11-18");
    let text = add(&["--service", "a", "--label", "x=1", "--label", "x=2"]);
    assert_eq!(text, "heaptrack: the label `x` is given twice, with different values");
    let text = refused(program().arg("report").arg(folder.0.join("none")));
    assert!(text.contains("none cannot be read: No such file"), "{text}");
    let text = refused(program().arg("report").arg(&folder.0));
    assert!(text.contains(" is no dataset: it has no manifest/"), "{text}");
    done(&mut adding(&dataset, &profiles, &["--version", "1"]));
    let diff = |before: &str, after: &str| {
        refused(program().arg("diff").arg(&dataset).args(["--before", before, "--after", after]))
    };
    assert_eq!(diff("version=2", "version=1"), "heaptrack: no trace has version=2");
    assert_eq!(diff("version=1", "host=h"), "heaptrack: some traces are in both groups: version=1, and host=h");
    assert_eq!(
        diff("color=1", "host=h"),
        "heaptrack: `color` is none of service, date, host, version, program and label.NAME"
    );
    assert_eq!(diff("date>=2026-9-01", "host=h"), "heaptrack: `2026-9-01` is no date such as 2026-11-18");
    let newer = dataset.join("manifest/newer.json");
    fs::write(&newer, "{\"schema\":9}\n").unwrap();
    let text = refused(program().arg("report").arg(&dataset));
    assert!(text.ends_with("has version 9 of the schema, and this heaptrack knows 1: a newer one is needed"), "{text}");
    fs::write(&newer, "{\n").unwrap();
    let text = refused(program().arg("report").arg(&dataset));
    assert!(text.contains("newer.json is damaged"), "{text}");
    fs::remove_file(&newer).unwrap();
    let data = names(&dataset.join("sites"), ".parquet").pop_first().unwrap();
    fs::write(&data, "PAR1").unwrap();
    let text = refused(program().arg("report").arg(&dataset));
    assert!(text.contains(".parquet is no Parquet file"), "{text}");
}
