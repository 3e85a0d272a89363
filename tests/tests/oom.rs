//! The kernel kills a recorded program and its recorder, because their cgroup has no memory left. What was recorded is
//! readable, and names the code that grew.
use heaptrack_tests::attach::{Target, below};
use heaptrack_tests::report::sum;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report, process, scale};
use std::path::{Path, PathBuf};
use std::process::Command;

const MB: u64 = 1_000_000;
/// The recorder needs some of it as well.
const LIMIT: u64 = 200 * MB;

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

/// The bytes that the function `hold` has, which is first in the list of what was not freed.
fn held_by_the_first(trace: &Path) -> u64 {
    let report = Report::of(trace);
    let own = sum(&report.own(target("ledger")));
    assert!(own.leaked_bytes > 0, "{}", trace.display());
    let text = heaptrack_tests::view::text(trace, &["--full", "-l"]);
    let first =
        text.lines().skip_while(|line| !line.contains("MEMORY LEAKS")).find(|line| line.contains("leaked over"));
    assert!(first.is_some(), "{text}");
    own.leaked_bytes
}

/// The kernel kills the recorder first, then the program.
fn killed_both(group: &Cgroup, folder: &Folder) {
    let trace = folder.join("ledger.htz");
    let mut command = group.recorder();
    command.args(["-q", "--keep-last", "10m", "--snapshot-when", "cgroup=45%"]);
    let mut recorder = Target::spawn(command.arg("-o").arg(&trace).arg(target("ledger")));
    assert_eq!(recorder.line(), "ready");
    let program = below(recorder.pid, "ledger");
    std::fs::write(format!("/proc/{}/oom_score_adj", recorder.pid), "1000").unwrap();
    let before = group.kills();
    assert_eq!(recorder.tell("+95 1000000"), "95 95000000");
    let snapshot = folder.join("ledger.snapshot-1.htz");
    process::wait_for("the snapshot", || snapshot.exists().then_some(()));
    recorder.send("+1000 1000000");
    process::wait_for("both to be killed", || (!recorder.is_alive() && group.is_empty()).then_some(()));
    assert_eq!(recorder.finish().0, 128 + 9);
    assert!(group.kills() >= before + 2, "{} kills", group.kills());
    assert!(process::state(program).is_none_or(|state| matches!(state, 'Z' | 'X')));
    assert!(held_by_the_first(&snapshot) >= 80 * MB);
    assert!(held_by_the_first(&trace) >= 95 * MB);
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
    assert!(held_by_the_first(&trace) >= 100 * MB);
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
        assert_eq!(names, ["ledger.htz", "ledger.snapshot-1.htz"], "round {round}");
    }
}

#[test]
fn a_program_that_is_killed_alone_has_a_whole_trace() {
    let group = Cgroup::new("oom-alone");
    killed_program(&group, &Folder::new());
}
