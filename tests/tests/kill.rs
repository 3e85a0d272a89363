//! SIGKILL of the target, of the recorder, and of both, and a recorder that is stopped. If only the target is killed,
//! every call that had returned is in the file. If both are killed, the file has every call that had returned 200 ms
//! before.
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::run::{Running, heaptrack};
use heaptrack_tests::{Chance, Folder, Program, Report, process, promised, scale};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Reads one thread's line of `counter`'s file: the finished (allocations, frees).
fn counted(file: &Path, thread: usize) -> (u64, u64) {
    let bytes = std::fs::read(file).unwrap_or_default();
    let word = |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
    (word(thread * 64), word(thread * 64 + 8))
}

/// A recorded `counter`.
struct Counting {
    /// The file in which it counts.
    file: PathBuf,
    running: Running,
    target: u32,
    _folder: Folder,
}

fn start_counter(arguments: &[&str]) -> Counting {
    start_build("counter", arguments)
}

/// Starts another build of `counter`.
fn start_build(name: &str, arguments: &[&str]) -> Counting {
    let folder = Folder::new();
    let file = folder.join("counted");
    // One to three threads of the recorder, in turns: nothing may depend on their number.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let threads = (NEXT.fetch_add(1, Ordering::Relaxed) % 3 + 1).to_string();
    let program = Program::target(name).arg(&file).args(arguments).option("--recorder-threads").option(threads);
    let running = program.start();
    Counting { file, target: running.target(&program), running, _folder: folder }
}

fn started(file: &Path) {
    wait_for("the first calls", || (counted(file, 0).0 > 0).then_some(()));
}

/// Asserts that no finished call is missing and that no call was invented. The last call may be recorded and not yet
/// counted by the program.
fn assert_every_call(report: &Report, file: &Path, threads: usize) {
    for thread in 0..threads {
        let (allocations, frees) = counted(file, thread);
        let site = report.of_size(1000 + thread as u64);
        let (recorded, freed) = (site.allocations, site.freed());
        assert!(allocations <= recorded && recorded <= allocations + 1, "thread {thread}: {recorded} of {allocations}");
        assert!(frees <= freed && freed <= frees + 1, "thread {thread}: {freed} of {frees} frees");
    }
    assert_eq!(report.total("lost_events"), 0);
    assert_eq!(report.total("unknown_frees"), 0);
}

#[test]
fn the_target_is_killed_at_any_moment() {
    let mut chance = Chance::new("kill the target");
    for round in 0..scale::count(200) {
        let pause = ["0", "100"][(round % 2) as usize];
        // Every fourth program is static, and patched while it is stopped.
        let name = if round % 4 == 3 { "counter_static" } else { "counter" };
        let Counting { file, running, target, _folder } = start_build(name, &["2", pause]);
        // Every fifth program is killed in its first moments, at any stage of its start.
        if round % 5 != 0 {
            started(&file);
        }
        std::thread::sleep(Duration::from_micros(chance.between(0, 150_000)));
        signal("KILL", &[target]);
        let outcome = running.finish();
        assert_eq!(outcome.code, 137, "{}", outcome.stderr);
        if counted(&file, 0).0 > 0 {
            assert_every_call(&outcome.report(), &file, 2);
        }
    }
}

#[test]
fn both_are_killed_at_once() {
    let mut chance = Chance::new("kill both");
    for _ in 0..scale::count(50) {
        let Counting { file, running, target, _folder } = start_counter(&["1", "1000"]);
        started(&file);
        let duration = Duration::from_millis(chance.between(400, 1200));
        let due = promised::watch(running.pid(), duration, || counted(&file, 0).0);
        signal("KILL", &[running.pid(), target]);
        let outcome = running.finish();
        assert_eq!(outcome.code, 137);
        let report = outcome.report();
        let recorded = report.of_size(1000).allocations;
        assert!(recorded >= due, "{recorded} recorded, {due} were due");
        assert!(recorded <= counted(&file, 0).0 + 1);
        assert!(!report.complete(), "the file says that its end is missing");
    }
}

#[test]
fn the_recorder_is_killed_and_the_program_goes_on() {
    for moment in [0, 20, 100] {
        let folder = Folder::new();
        let (file, ends) = (folder.join("counted"), folder.join("ends"));
        let program = Program::target("counter").arg(&file).arg("2").arg("200").arg("200000");
        let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("orphans.py");
        let child = Command::new("/usr/bin/python3")
            .arg(helper)
            .arg(&ends)
            .arg(heaptrack())
            .arg("-o")
            .arg(folder.join("trace.htz"))
            .arg(&program.path)
            .args(&program.arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3");
        started(&file);
        // The file gets its name right after the program has started. Before that, it has no content to keep.
        wait_for("the trace", || folder.join("trace.htz").exists().then_some(()));
        std::thread::sleep(Duration::from_millis(moment));
        let first = std::fs::read_to_string(&ends).unwrap();
        let recorder: u32 = first.split_whitespace().nth(1).unwrap().parse().unwrap();
        signal("KILL", &[recorder]);
        let output = child.wait_with_output().unwrap();
        let (a, b) = (counted(&file, 0).0, counted(&file, 1).0);
        assert_eq!((a, b), (200_000, 200_000));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "counted 400000\n");
        let ends = std::fs::read_to_string(&ends).unwrap();
        let codes: Vec<&str> = ends.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
        assert_eq!(codes, ["137", "3"], "the recorder's end, then the program's own: {ends}");
        let report = Report::of(&folder.join("trace.htz"));
        assert!(!report.complete());
    }
}

#[test]
fn the_recorder_is_stopped_for_five_seconds() {
    let Counting { file, running, _folder, .. } = start_counter(&["2", "0", "1000000"]);
    started(&file);
    signal("STOP", &[running.pid()]);
    wait_for("the recorder to stop", || (process::state(running.pid()) == Some('T')).then_some(()));
    std::thread::sleep(Duration::from_secs(5));
    signal("CONT", &[running.pid()]);
    let outcome = running.finish();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "counted 2000000\n"));
    let report = outcome.whole_report();
    for size in [1000, 1001] {
        assert_eq!(report.counts(size), (1_000_000, 100));
    }
}

#[test]
fn with_on_full_drop_a_stopped_recorder_costs_events_not_time() {
    let folder = Folder::new();
    let file = folder.join("counted");
    let program = Program::target("counter").arg(&file).args(["1", "100", "100000"]).option("--on-full=drop");
    let running = program.start();
    let target = running.target(&program);
    started(&file);
    signal("STOP", &[running.pid()]);
    wait_for("the program to end by itself", || (process::state(target) == Some('Z')).then_some(()));
    signal("CONT", &[running.pid()]);
    let outcome = running.finish();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "counted 100000\n"));
    let report = outcome.report();
    let (seen, lost) = report.seen_and_lost();
    // The program itself makes 100000 allocations and 99900 frees. libc and the loader add a few.
    assert!((199_900..199_900 + 100).contains(&(seen + lost)), "{seen} seen, {lost} lost");
    assert!(lost > 0, "the precondition of this test does not hold");
}
