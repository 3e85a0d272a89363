//! `heaptrack snapshot PID`: a copy of a trace whose recording goes on.
use heaptrack_tests::attach::{Session, Target, below};
use heaptrack_tests::report::sum;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report, process};
use std::path::Path;
use std::process::Command;

/// The program `ledger`, which is being recorded with these options.
fn recorded(trace: &Path, options: &[&str]) -> Target {
    let mut command = with_default_signals(heaptrack());
    command.arg("-q").args(options).arg("-o").arg(trace).arg(target("ledger"));
    let mut program = Target::spawn(&mut command);
    assert_eq!(program.line(), "ready");
    program
}

/// Takes a snapshot. Returns the exit code and stderr.
fn snapshot(folder: &Folder, pid: u32, options: &[&str]) -> (i32, String) {
    let mut command = Command::new(heaptrack());
    let done = command.arg("snapshot").arg(pid.to_string()).args(options).current_dir(folder.path()).output().unwrap();
    (process::code(done.status), String::from_utf8(done.stderr).unwrap())
}

/// The blocks that `ledger` has allocated and freed, by the trace.
fn counted(trace: &Path) -> (u64, u64) {
    let own = sum(&Report::of(trace).own(target("ledger")));
    (own.allocations, own.freed())
}

#[test]
fn a_snapshot_has_everything_up_to_now_and_the_recording_goes_on() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &[]);
    let pid = below(program.pid, "ledger");
    program.tell("+1000 48");
    program.tell("-400");
    // The events are in the file soon after the program has gone to sleep.
    process::wait_for("the events in the trace", || {
        assert_eq!(snapshot(&folder, pid, &[]), (0, "heaptrack: ledger.snapshot.htz\n".to_owned()));
        (counted(&folder.join("ledger.snapshot.htz")) == (1000, 400)).then_some(())
    });
    program.tell("+50 48");
    process::wait_for("more events in the trace", || {
        // By the pid of the recorder.
        assert_eq!(snapshot(&folder, program.pid, &["-q", "-o", "later"]), (0, String::new()));
        (counted(&folder.join("later.htz")) == (1050, 400)).then_some(())
    });
    assert_eq!(program.finish().0, 0);
    assert_eq!(counted(&trace), (1050, 400));
    assert_eq!(Report::of(&trace).json()["complete"], true);
    assert_eq!(Report::of(&folder.join("later.htz")).json()["complete"], false);
}

#[test]
fn an_attached_program_has_snapshots_too() {
    let mut program = Target::start("ledger", &[]);
    assert_eq!(program.line(), "ready");
    program.tell("+10 48");
    let mut session = Session::start(program.pid, &[]);
    assert!(session.wait_until_attached());
    program.tell("+20 48");
    let folder = Folder::new();
    process::wait_for("the events in the trace", || {
        assert_eq!(snapshot(&folder, program.pid, &["-q", "-o", "x.htz"]), (0, String::new()));
        (counted(&folder.join("x.htz")) == (20, 0)).then_some(())
    });
    assert_eq!(session.detach().code, 0);
    let (code, text) = snapshot(&folder, program.pid, &[]);
    let sentence =
        format!("heaptrack: process {} is not being recorded into a file, or by another user\n", program.pid);
    assert_eq!((code, text), (2, sentence));
    let pid = program.pid;
    assert_eq!(program.finish().0, 0);
    assert_eq!(snapshot(&folder, pid, &[]), (2, format!("heaptrack: there is no process {pid}\n")));
}

/// The trace itself cannot be the snapshot.
#[test]
fn the_trace_is_not_overwritten() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &[]);
    program.tell("+7 48");
    let (code, text) = snapshot(&folder, program.pid, &["-o", "ledger.htz"]);
    assert_eq!((code, text.lines().count()), (2, 1), "{text}");
    assert_eq!(program.finish().0, 0);
    assert_eq!(counted(&trace), (7, 0));
}

/// The recorder takes a snapshot by itself when the heap reaches a size, and names what grew.
#[test]
fn a_condition_takes_a_snapshot() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--snapshot-when", "cgroup=100%,heap=1M"]);
    program.tell("+500 1000");
    let snapshot = folder.join("ledger.snapshot-1.htz");
    assert!(!snapshot.exists());
    program.tell("+600 1000");
    process::wait_for("the snapshot", || snapshot.exists().then_some(()));
    let own = sum(&Report::of(&snapshot).own(target("ledger")));
    assert!(own.leaked_bytes >= 500_000, "{own:?}");
    // It holds on, so there is no other one.
    program.tell("+100 1000");
    assert_eq!(program.finish().0, 0);
    assert_eq!(counted(&trace), (1200, 0));
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["ledger.htz", "ledger.snapshot-1.htz"]);
}

/// A program that is killed together with its recorder leaves the snapshot and the trace.
#[test]
fn a_killed_recorder_leaves_its_snapshots() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--snapshot-when", "growth=200k"]);
    let ledger = below(program.pid, "ledger");
    program.tell("+10 100");
    // A minute is not waited for: the growth is that of the time since the start.
    program.tell("+30 10000");
    let snapshot = folder.join("ledger.snapshot-1.htz");
    process::wait_for("the snapshot", || snapshot.exists().then_some(()));
    process::signal("KILL", &[program.pid, ledger]);
    drop(program);
    for file in [&snapshot, &trace] {
        let own = sum(&Report::of(file).own(target("ledger")));
        assert!(own.leaked_bytes >= 200_000, "{}: {own:?}", file.display());
    }
}

/// SIGUSR1 would end `ledger`, so it was not passed on.
#[test]
fn a_signal_takes_a_snapshot_each_time() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--snapshot-when", "sigusr1,heap=100G"]);
    for (number, blocks) in [(1, 10), (2, 25)] {
        program.tell(&format!("+{} 48", blocks - (number - 1) * 10));
        process::signal("USR1", &[program.pid]);
        let snapshot = folder.join(&format!("ledger.snapshot-{number}.htz"));
        process::wait_for("the snapshot", || snapshot.exists().then_some(()));
        assert_eq!(counted(&snapshot), (blocks, 0));
    }
    assert_eq!(program.tell("+5 48"), "30 1440");
    assert_eq!(program.finish().0, 0);
    assert_eq!(counted(&trace), (30, 0));
}

/// A container that was killed starts again with the same name: what it has left stays.
#[test]
fn a_recording_with_the_same_name_keeps_the_snapshots_of_the_one_before() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    for (number, blocks) in [(1, 10), (2, 25)] {
        let mut program = recorded(&trace, &["--snapshot-when", "sigusr1"]);
        program.tell(&format!("+{blocks} 48"));
        process::signal("USR1", &[program.pid]);
        let snapshot = folder.join(&format!("ledger.snapshot-{number}.htz"));
        process::wait_for("the snapshot", || snapshot.exists().then_some(()));
        assert_eq!(counted(&snapshot), (blocks, 0));
        assert_eq!(program.finish().0, 0);
    }
    assert_eq!(counted(&folder.join("ledger.snapshot-1.htz")), (10, 0));
    // All of them together have a budget, and the newest one stays.
    let mut program = recorded(&trace, &["--snapshot-when", "sigusr1", "--snapshots-size", "1k"]);
    program.tell("+3 48");
    process::signal("USR1", &[program.pid]);
    process::wait_for("one snapshot", || (folder.names() == ["ledger.htz", "ledger.snapshot-3.htz"]).then_some(()));
    assert_eq!(program.finish().0, 0);
}

/// Without that condition, it is passed on like all signals.
#[test]
fn a_signal_is_the_programs_own_if_nobody_asked_for_snapshots() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--snapshot-when", "heap=100G"]);
    program.tell("+3 48");
    process::signal("USR1", &[program.pid]);
    // Its stdin stays open until the signal has ended it.
    assert_eq!(program.wait(), 128 + 10);
    assert_eq!(counted(&trace), (3, 0));
}

#[test]
fn a_signal_to_an_attached_recorder_takes_a_snapshot() {
    let mut program = Target::start("ledger", &[]);
    assert_eq!(program.line(), "ready");
    let folder = Folder::new();
    let mut command = with_default_signals(heaptrack());
    command.args(["attach", "-q", "-o"]).arg(folder.join("x.htz")).arg(program.pid.to_string());
    let mut recorder = command.spawn().unwrap();
    process::wait_for("the trace", || folder.join("x.htz").exists().then_some(()));
    program.tell("+20 48");
    process::signal("USR1", &[recorder.id()]);
    let snapshot = folder.join("x.snapshot-1.htz");
    process::wait_for("the snapshot", || snapshot.exists().then_some(()));
    assert_eq!(counted(&snapshot), (20, 0));
    program.tell("+1 48");
    process::signal("INT", &[recorder.id()]);
    assert_eq!(process::code(recorder.wait().unwrap()), 0);
    assert_eq!(counted(&folder.join("x.htz")), (21, 0));
    assert_eq!(program.finish().0, 0);
}

/// Where no cgroup can be seen, the conditions about it are named.
#[test]
fn a_condition_that_cannot_hold_is_named() {
    let folder = Folder::new();
    let script = "mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(heaptrack());
    command.args(["-q", "--snapshot-when", "cgroup=95%,heap=1G,pressure=10%", "-o"]).arg(folder.join("x")).arg("true");
    let done = command.output().unwrap();
    let text = String::from_utf8(done.stderr).unwrap();
    let first =
        "heaptrack: --snapshot-when cgroup=95% does not hold, because the program has no cgroup with a memory limit";
    assert_eq!(text.lines().next(), Some(first));
    let second = "heaptrack: --snapshot-when pressure=10% does not hold, because no memory pressure is known of the program's cgroup";
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), [second], "{text}");
}

#[test]
fn a_condition_that_is_none_is_refused() {
    for (options, words) in [
        (["--snapshot-when", "swap=1G"], "not a condition (examples: rss=2G"),
        (["--snapshots-size", "1G"], "--snapshot-when"),
    ] {
        let done = Command::new(heaptrack()).args(options).arg("true").output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
}
