//! The kernel kills a recorded program and its recorder, because their cgroup has no memory left. What was recorded is
//! readable, and names the code that grew.
use heaptrack_tests::attach::{Target, below};
use heaptrack_tests::report::sum;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::view::view;
use heaptrack_tests::{Folder, Report, process, scale};
use std::path::{Path, PathBuf};
use std::process::Command;

const MB: u64 = 1_000_000;
/// The recorder needs some of it as well.
const LIMIT: u64 = 400 * MB;

/// A cgroup of version 1 or 2 with a memory limit. It is removed when the value is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Cgroup {
        let roots = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let name = format!("heaptrack-test-{name}-{}", std::process::id());
        for (root, limit) in roots {
            let folder = Path::new(root).join(&name);
            if std::fs::create_dir(&folder).is_ok() {
                let group = Cgroup(folder);
                if std::fs::write(group.0.join(limit), LIMIT.to_string()).is_ok() {
                    return group;
                }
            }
        }
        panic!("no cgroup with a memory limit can be made here");
    }

    /// Runs heaptrack in the cgroup.
    fn recorder(&self) -> Command {
        let mut shell = with_default_signals("sh");
        let script = format!("echo $$ >{}/cgroup.procs; exec \"$@\"", self.0.display());
        shell.args(["-ec", &script, "sh"]).arg(heaptrack());
        shell
    }

    fn is_empty(&self) -> bool {
        std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap().is_empty()
    }

    /// How often the kernel has killed a process of the cgroup.
    fn kills(&self) -> u64 {
        let texts = ["memory.oom_control", "memory.events"].map(|name| std::fs::read_to_string(self.0.join(name)));
        let text = texts.into_iter().flatten().next().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            process::wait_for("the cgroup to be removed", || std::fs::remove_dir(&self.0).ok());
        }
    }
}

/// The bytes of the place that grew, which is first in the lists of what is live, by its name.
fn held_by_the_first(trace: &Path, function: &str) -> u64 {
    let leaks = view(trace, "leaks", &[]);
    let first = &leaks["sites"][0];
    assert_eq!(first["function"], function, "{}: {first}", trace.display());
    let own = sum(&Report::of(trace).own(target(if function == "hold" { "ledger" } else { "keeps_growing" })));
    assert_eq!(first["live_bytes"], own.leaked_bytes, "{}", trace.display());
    own.leaked_bytes
}

/// What the program takes at once, in megabytes, and how long it waits for each further one. A snapshot needs up to 0.4 s from
/// the moment at which its condition begins to hold: 0.1 s until the recorder looks, and 0.3 s until the events are in the
/// file. So a program that takes the last 5 % of the limit faster than that is killed before, and only its trace is left.
/// This one takes a second for them.
const AT_ONCE: u64 = 330;
const PAUSE_US: u64 = 50_000;

/// The kernel kills the recorder first, then the program, which does not wait for anybody.
fn killed_both(group: &Cgroup, folder: &Folder) {
    let trace = folder.join("growing.htz");
    let mut command = group.recorder();
    command.args(["-q", "--keep-last", "10m", "--snapshot-when", "cgroup=95%", "-o"]).arg(&trace);
    command.arg(target("keeps_growing")).args([AT_ONCE.to_string(), PAUSE_US.to_string()]);
    let before = group.kills();
    let mut recorder = Target::spawn(&mut command);
    // When it says that, it has a quarter of the limit to go, which takes it some seconds.
    assert_eq!(recorder.line(), "ready");
    let program = below(recorder.pid, "keeps_growing");
    std::fs::write(format!("/proc/{}/oom_score_adj", recorder.pid), "1000").unwrap();
    process::wait_for("both to be killed", || (!recorder.is_alive() && group.is_empty()).then_some(()));
    assert_eq!(recorder.finish().0, 128 + 9);
    assert!(group.kills() >= before + 2, "{} kills", group.kills());
    assert!(process::state(program).is_none_or(|state| matches!(state, 'Z' | 'X')));
    let snapshot = folder.join("growing.snapshot-1.htz");
    assert!(snapshot.exists(), "there is no snapshot");
    let held = held_by_the_first(&snapshot, "keep_growing");
    assert!(held >= AT_ONCE * MB, "the snapshot has {held} bytes");
    let in_trace = held_by_the_first(&trace, "keep_growing");
    assert!(in_trace >= held, "the trace has {in_trace} bytes, the snapshot {held}");
}

/// The kernel kills the program only, and the recorder finishes the trace.
fn killed_program(group: &Cgroup, folder: &Folder) {
    let trace = folder.join("ledger.htz");
    let mut command = group.recorder();
    let mut recorder = Target::spawn(command.args(["-q", "-o"]).arg(&trace).arg(target("ledger")));
    assert_eq!(recorder.line(), "ready");
    std::fs::write(format!("/proc/{}/oom_score_adj", below(recorder.pid, "ledger")), "1000").unwrap();
    recorder.send("+1000 1000000");
    process::wait_for("the recorder's end", || (!recorder.is_alive() && group.is_empty()).then_some(()));
    assert_eq!(recorder.finish().0, 128 + 9, "the program's own end");
    let report = Report::of(&trace);
    assert_eq!(report.json()["complete"], true);
    assert!(held_by_the_first(&trace, "hold") >= 100 * MB);
}

#[test]
fn an_oom_kill_leaves_the_evidence() {
    let group = Cgroup::new("oom");
    for round in 0..scale::count(100) {
        let folder = Folder::new();
        killed_both(&group, &folder);
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["growing.htz", "growing.snapshot-1.htz"], "round {round}");
    }
}

#[test]
fn a_program_that_is_killed_alone_has_a_whole_trace() {
    let group = Cgroup::new("oom-alone");
    killed_program(&group, &Folder::new());
}
