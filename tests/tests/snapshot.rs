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

/// The resident memory of the program itself: `ledger` writes to its blocks.
#[test]
fn resident_memory_takes_a_snapshot() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--snapshot-when", "rss=60M"]);
    program.tell("+10 1000000");
    let snapshot = folder.join("ledger.snapshot-1.htz");
    assert!(!snapshot.exists());
    program.tell("+60 1000000");
    process::wait_for("the snapshot", || snapshot.exists().then_some(()));
    // A block has a megabyte, and the program alone less than five.
    assert!(counted(&snapshot).0 >= 55, "{:?}", counted(&snapshot));
    assert_eq!(program.finish().0, 0);
}

/// The pressure and the use of memory of a cgroup. The kernel's files are covered by ours, so that the test does not have to
/// make a machine slow.
#[test]
fn pressure_and_limit_of_a_cgroup_take_snapshots() {
    for (condition, file, before, after, said) in [
        (
            "pressure=10%",
            "memory.pressure",
            "some avg10=9.99 avg60=50.00 avg300=50.00 total=1\nfull avg10=50.00 avg60=0.00 avg300=0.00 total=1\n",
            "some avg10=10.00 avg60=0.00 avg300=0.00 total=1\n",
            "heaptrack: the memory pressure of the cgroup has reached 10 %: ",
        ),
        (
            "cgroup=95%",
            "memory.current",
            "949\n",
            "950\n",
            "heaptrack: the cgroup has reached 95 % of its memory limit: ",
        ),
    ] {
        let folder = Folder::new();
        let cgroup = folder.join("cgroup");
        std::fs::create_dir(&cgroup).unwrap();
        for (name, text) in
            [("memory.current", "10\n"), ("memory.max", "1000\n"), ("memory.pressure", ""), (file, before)]
        {
            std::fs::write(cgroup.join(name), text).unwrap();
        }
        let trace = folder.join("ledger.htz");
        let script = "mount --bind \"$1\" /sys/fs/cgroup; shift; exec \"$@\"";
        let mut command = with_default_signals("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(&cgroup).arg(heaptrack());
        command.args(["--snapshot-when", condition, "-o"]).arg(&trace).arg(target("ledger"));
        let (mut read, write) = std::io::pipe().unwrap();
        let mut program = Target::spawn(command.stderr(write));
        drop(command);
        assert_eq!(program.line(), "ready");
        program.tell("+20 48");
        let snapshot = folder.join("ledger.snapshot-1.htz");
        assert!(!snapshot.exists(), "{condition}");
        std::fs::write(cgroup.join(file), after).unwrap();
        process::wait_for("the snapshot", || snapshot.exists().then_some(()));
        assert_eq!(counted(&snapshot), (20, 0), "{condition}");
        assert_eq!(program.finish().0, 0);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut read, &mut text).unwrap();
        assert!(text.contains(said), "{condition}: {text}");
    }
}

/// All snapshots together stay within their budget. The oldest are removed, and no more of them than necessary.
#[test]
fn old_snapshots_are_removed_within_their_budget() {
    const BUDGET: u64 = 15_000;
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--snapshot-when", "sigusr1", "--snapshots-size", &BUDGET.to_string()]);
    let path = |number: usize| folder.join(&format!("ledger.snapshot-{number}.htz"));
    let mut kept: Vec<(usize, u64)> = Vec::new();
    let mut removed = 0;
    for number in 1..=8 {
        program.tell(&format!("+{} 48", 500 * number));
        process::signal("USR1", &[program.pid]);
        let bytes = process::wait_for("the snapshot", || Some(std::fs::metadata(path(number)).ok()?.len()));
        kept.push((number, bytes));
        while kept.len() > 1 && kept.iter().map(|(_, bytes)| bytes).sum::<u64>() > BUDGET {
            kept.remove(0);
            removed += 1;
        }
        let expected: Vec<usize> = kept.iter().map(|(number, _)| *number).collect();
        process::wait_for("the old ones to be removed", || {
            let there: Vec<usize> = (1..=number).filter(|number| path(*number).exists()).collect();
            (there == expected).then_some(())
        });
    }
    assert!(removed > 1 && kept.len() > 1, "{removed} were removed, {kept:?} are left");
    assert_eq!(program.finish().0, 0);
    for (number, _) in kept {
        let blocks = (1..=number as u64).map(|step| 500 * step).sum();
        assert_eq!(counted(&path(number)), (blocks, 0));
    }
}

/// In a recording that samples, conditions are compared with the estimate. The blocks that are taken have about a fifth of
/// the bytes, so without weights no condition would hold.
#[test]
fn conditions_of_a_sample_use_its_estimate() {
    for condition in ["heap=1M", "growth=1M"] {
        let folder = Folder::new();
        let trace = folder.join("ledger.htz");
        let mut program = recorded(&trace, &["--sample", "4k", "--snapshot-when", condition]);
        program.tell("+400 1000");
        let snapshot = folder.join("ledger.snapshot-1.htz");
        assert!(!snapshot.exists(), "{condition}");
        program.tell("+1600 1000");
        process::wait_for("the snapshot", || snapshot.exists().then_some(()));
        let report = Report::of(&snapshot);
        assert_eq!(report.json()["sampling"]["rate_bytes"], 4000, "{condition}");
        assert!(report.total("leaked_bytes") >= 1_000_000, "{condition}: {}", report.total("leaked_bytes"));
        assert_eq!(program.finish().0, 0);
    }
}

/// SIGUSR1 takes a snapshot of a sample, too.
#[test]
fn a_signal_takes_a_snapshot_of_a_sample() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut program = recorded(&trace, &["--sample", "1k", "--snapshot-when", "sigusr1"]);
    program.tell("+1000 100");
    process::signal("USR1", &[program.pid]);
    let snapshot = folder.join("ledger.snapshot-1.htz");
    process::wait_for("the snapshot", || snapshot.exists().then_some(()));
    assert_eq!(program.finish().0, 0);
    let (early, late) = (Report::of(&snapshot), Report::of(&trace));
    for total in ["allocations", "allocated_bytes", "leaked_bytes", "leaked_bytes_error"] {
        assert_eq!(early.total(total), late.total(total), "{total}");
    }
    assert!(early.total("leaked_bytes_error") > 0);
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
