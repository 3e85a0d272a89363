//! `--follow`: all processes that a program starts are in one trace, each with its own counts.
use format::{Block, Exit, Process, ProcessStart, Reader, Totals};
use heaptrack_tests::dhat::{self, Counts};
use heaptrack_tests::processes::{counts, processes};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report, scale};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The combined totals that the recorder counted.
fn summary(trace: &Path) -> Totals {
    let mut reader = Reader::open(trace).expect("a trace");
    let mut totals = None;
    while let Some(block) = reader.next_block().expect("a whole trace") {
        if let Ok(Block::Summary(summary)) = block.decode() {
            totals = Some(summary.totals);
        }
    }
    totals.expect("a summary")
}

/// The words of a line `name=value ...`.
fn words(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace().filter_map(|word| word.split_once('=')).collect()
}

/// Also in a static program, whose own execs are patched anew each time.
#[test]
fn every_process_of_a_tree_has_its_own_counts() {
    for (seed, name) in [(1, "family"), (2, "family"), (3, "family"), (4, "family_static"), (5, "family_static")] {
        let program = Program::target(name).arg(seed.to_string()).arg("2").arg("3").option("--follow");
        let outcome = program.recorded();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let mut told: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
        let all = processes(&outcome.trace);
        let mut recorded: Vec<String> =
            all.values().filter_map(|process| Some(counts(process, process.end.as_ref()?))).collect();
        told.sort();
        recorded.sort();
        assert_eq!(recorded, told, "seed {seed}");
        assert!(all.len() >= 13, "a root, three children, nine grandchildren");
        assert_eq!(all[&0].end.map(|end| end.exit), Some(Exit::Code(0)), "the one that heaptrack waited for");
        for process in all.values() {
            assert!(process.command.iter().any(|word| word.contains("family")), "{process:?}");
            let parent = process.parent.map(|parent| &all[&parent]);
            assert!(parent.is_none_or(|parent| parent.start_ns <= process.start_ns), "{process:?}");
        }
        let own: u64 = told.iter().map(|line| words(line)["allocations"].parse::<u64>().expect("a number")).sum();
        assert_eq!(outcome.whole_report().total("allocations"), own, "seed {seed}");
    }
}

/// A child that forks before it allocates anything is a process of its own, and so is its child.
#[test]
fn a_child_that_forks_at_once_is_not_mixed_up_with_its_child() {
    let outcome = Program::target("double_fork").option("--follow").recorded();
    let told: Vec<u32> = outcome.stdout.split_whitespace().map(|word| word.parse().expect("a pid")).collect();
    let all = processes(&outcome.trace);
    let mut found: Vec<(u32, u64, u64)> = all
        .values()
        .map(|process| (process.pid, process.end.expect("its end").totals))
        .map(|(pid, totals)| (pid, totals.allocations, totals.allocated_bytes))
        .collect();
    found.sort_by_key(|(_, allocations, _)| *allocations);
    let expected: Vec<(u32, u64, u64)> =
        told.iter().zip(1..).map(|(pid, count)| (*pid, count, 100 * count * count)).collect();
    assert_eq!(found, expected);
    let parent = |pid: u32| all.values().find(|process| process.pid == pid)?.parent.map(|parent| all[&parent].pid);
    let parents: Vec<Option<u32>> = told.iter().map(|pid| parent(*pid)).collect();
    assert_eq!(parents, [None, Some(told[2]), Some(told[0]), Some(told[0]), Some(told[0])]);
}

/// The last component of a command's first word.
fn name(command: &[String]) -> String {
    command.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default().to_owned()
}

#[test]
fn programs_that_a_shell_starts_have_the_totals_of_dhat() {
    let script = "ls -l /usr/share > /dev/null; wc -l /etc/passwd; cat /etc/hostname; expr 3 + 4; \
                  mawk 'BEGIN { for (i = 0; i < 1000; i++) a[i] = i \"x\"; print length(a) }'; true";
    let program = Program::new("/bin/sh").arg("-c").arg(script);
    let mut expected: Vec<(String, Counts)> =
        dhat::run_tree(&program).into_iter().map(|(command, counts)| (name(&command), counts)).collect();
    let outcome = program.option("--follow").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let mut recorded: Vec<(String, Counts)> = Vec::new();
    for process in processes(&outcome.trace).values() {
        let totals = process.end.expect("its end").totals;
        recorded.push((name(&process.command), Counts::of_totals(&totals)));
    }
    // The shell copies its environment, which is another one under Valgrind. (So does gawk.)
    expected.retain(|(name, _)| name != "sh");
    recorded.retain(|(name, _)| name != "sh");
    expected.sort();
    recorded.sort();
    assert_eq!(recorded, expected, "left is ours, right is DHAT's");
    assert_eq!(recorded.len(), 5);
}

/// Whichever function of libc executes a program, the program is recorded, and its environment and descriptors are those
/// of a run alone.
#[test]
fn programs_that_are_started_in_every_way_are_recorded_and_see_nothing_of_it() {
    for name in ["starts", "starts_musl"] {
        let outcome = Program::target(name).option("--follow").same_output();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        assert!(outcome.stdout.ends_with("done\n"), "{}", outcome.stdout);
        let all = processes(&outcome.trace);
        let mut numbers: Vec<u32> = all.values().filter_map(|one| one.command.get(2)?.parse().ok()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(0..13), "{name}");
        assert_eq!(Report::of(&outcome.trace).of_size(4321).allocations, 13, "{name}");
    }
}

/// A static program that a process of the tree executes is patched before its first instruction, and what it forks and
/// executes is recorded, too. Its environment and descriptors are those of a run alone.
#[test]
fn static_programs_in_a_tree_are_recorded() {
    for (name, seed) in
        [("family_static", 7), ("family_static", 8), ("counting_static_pie", 1), ("counting_musl_static", 1)]
    {
        let path = target(name);
        let script = format!("{} {seed} 1 2; /bin/true", path.display());
        let outcome = Program::new("/bin/sh").arg("-c").arg(script).option("--follow").recorded();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let ours = |process: &&Process| process.exe.ends_with(name);
        let all = processes(&outcome.trace);
        if name != "family_static" {
            let alone = Program::target(name).arg("1").recorded();
            let totals = all.values().find(ours).and_then(|process| process.end).expect("its end").totals;
            assert_eq!(totals.allocations, summary(&alone.trace).allocations, "{name}");
            assert_eq!(totals.allocated_bytes, summary(&alone.trace).allocated_bytes, "{name}");
            continue;
        }
        let mut told: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
        let mut recorded: Vec<String> =
            all.values().filter(ours).filter_map(|process| Some(counts(process, process.end.as_ref()?))).collect();
        told.sort();
        recorded.sort();
        assert_eq!(recorded, told, "seed {seed}");
        assert!(told.len() >= 3 && all.values().any(|process| process.command == ["/bin/true"]), "{all:?}");
    }
    let shell = format!(
        "{} launch twice,bare {} out",
        target("surroundings").display(),
        target("surroundings_static").display()
    );
    let folder = Folder::new();
    let run = |prefix: &str| {
        let _ = std::fs::remove_file(folder.join("out"));
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{prefix} {shell} </dev/null >/dev/null 2>&1")).current_dir(folder.join("."));
        assert_eq!(command.status().expect("sh").code(), Some(9), "{command:?}");
        std::fs::read_to_string(folder.join("out")).expect("what the program wrote down")
    };
    assert_eq!(run(&format!("{} -q --follow -o trace.htz", heaptrack().display())), run(""));
}

/// It takes a while to patch a static program. Meanwhile the process has neither the old program nor the new one.
#[test]
fn a_static_program_is_below_the_program_that_it_replaces() {
    let python = "import os, sys\n\
                  def child(work):\n\
                  \x20   pid = os.fork()\n\
                  \x20   if pid == 0:\n\
                  \x20       kept = bytearray(100000)\n\
                  \x20       work()\n\
                  \x20   os.waitpid(pid, 0)\n\
                  def middle():\n\
                  \x20   for _ in range(3): child(lambda: os.execv(sys.argv[1], [sys.argv[1], '1']))\n\
                  \x20   os._exit(0)\n\
                  child(middle)\n";
    let path = target("counting_static");
    let outcome = Program::new("/usr/bin/python3").arg("-c").arg(python).arg(&path).option("--follow").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let all = processes(&outcome.trace);
    let replaced: Vec<_> = all.values().filter(|process| process.start == ProcessStart::Executed).collect();
    assert_eq!((all.len(), replaced.len()), (8, 3), "{all:?}");
    for process in replaced {
        let old = &all[&process.parent.expect("a parent")];
        assert_eq!(
            (old.pid, old.start, process.exe.as_str()),
            (process.pid, ProcessStart::Forked, path.to_str().expect("a path"))
        );
        assert_eq!((old.exe.contains("python"), old.end.expect("its end").by_exec), (true, true), "{old:?}");
    }
}

/// A program that cannot be recorded runs, and the end of the recording names it.
#[test]
fn programs_that_ran_unrecorded_are_named() {
    let path = target("attach_phases_stripped");
    let script =
        format!("for i in 1 2; do {0} < /dev/null > /dev/null; done; ls / > /dev/null; echo end", path.display());
    let outcome = Program::new("/bin/sh").arg("-c").arg(script).option("--follow").recorded();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "end\n"), "{}", outcome.stderr);
    let expected = "not recorded: 2 processes ran unrecorded: attach_phases_stripped (2 times: ";
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    let recorded: Vec<String> = processes(&outcome.trace).values().map(|process| name(&process.command)).collect();
    assert_eq!(recorded, ["sh", "ls"], "children of the shell that made no call before their exec are no processes");
}

/// What a program held is gone when its process executes another program, also if that one is not recorded. A child without an
/// event of its own has no entry then.
#[test]
fn a_program_that_is_not_recorded_holds_nothing() {
    // The one is stopped at its start and found to have no symbols, the other one is not stopped.
    for name in ["attach_phases_stripped", "attach_phases_asan"] {
        let path = target(name).canonicalize().expect("a path");
        let alone = Program::new(&path).alone();
        let program = Program::target("unrecorded_execs").arg(&path);
        let outcome = program.option("--follow").option("--no-symbols").recorded();
        let expected = (alone.code, &alone.stdout.repeat(3));
        assert_eq!((outcome.code, &outcome.stdout), expected, "{name}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("3 processes ran unrecorded: "), "{name}: {}", outcome.stderr);
        let report = Report::of(&outcome.trace);
        // If the children held what they inherited, it would be 16 MB.
        assert_eq!((report.total("peak_bytes"), report.total("leaked_bytes")), (9_000_000, 0), "{name}");
        let rows = report.json()["processes"].as_array().expect("processes");
        let found: Vec<_> =
            rows.iter().map(|row| (row["exit"].as_str(), row["totals"]["leaked_bytes"].as_u64())).collect();
        assert_eq!(found, [(Some("exec"), Some(0)); 2], "{name}: the first process and the second child");
    }
}

/// How every process ended is in the trace, unless it was gone before the recorder saw it.
#[test]
fn the_exit_status_of_every_process_is_known() {
    let python = "import os, sys, time\n\
                  for kind in range(3):\n\
                  \x20   if os.fork() == 0:\n\
                  \x20       kept = bytearray(100000 + kind)\n\
                  \x20       time.sleep(0.2)\n\
                  \x20       if kind == 2: os.kill(os.getpid(), 9)\n\
                  \x20       os._exit(kind * 7)\n\
                  for kind in range(3): os.wait()\n";
    let outcome = Program::new("/usr/bin/python3").arg("-c").arg(python).option("--follow").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let all = processes(&outcome.trace);
    let mut exits: Vec<String> =
        all.values().map(|process| format!("{:?}", process.end.expect("its end").exit)).collect();
    exits.sort();
    assert_eq!(exits, ["Code(0)", "Code(0)", "Code(7)", "Signal(9)"], "{all:?}");
}

#[test]
fn only_programs_with_these_names_are_recorded() {
    let script = target("starts");
    let line =
        format!("ls / > /dev/null; sh -c 'ls /usr; true' > /dev/null; '{}' > /dev/null; echo end", script.display());
    for (names, expected) in [("ls", &["ls", "ls", "sh"][..]), ("starts,no-such", &["sh", "starts"])] {
        let program = Program::new("/bin/sh").arg("-c").arg(&line).option(format!("--follow={names}"));
        let outcome = program.recorded();
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "end\n"), "{}", outcome.stderr);
        let all = processes(&outcome.trace);
        let mut found: Vec<String> = all.values().map(|process| name(&process.command)).collect();
        found.sort();
        found.dedup_by(|a, b| a == b && a.as_str() == "starts");
        assert_eq!(found, expected, "{names}");
        let first = all.values().find(|process| name(&process.command) == "sh").expect("the first process");
        assert_eq!(first.end.expect("its end").totals.allocations, 0, "it is in the trace, but was not recorded");
    }
    let long = format!("--follow={}", "x".repeat(300));
    let refused = Program::new("/bin/true").option(&long).recorded();
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

/// Python's pools of processes, whose tasks make a known number of blocks.
#[test]
fn tasks_of_python_s_multiprocessing_are_counted() {
    let python = "import multiprocessing as mp\n\
                  def work(count): return sum(len(bytearray(54320)) for _ in range(count))\n\
                  if __name__ == '__main__':\n\
                  \x20   for method in ('fork', 'spawn', 'forkserver'):\n\
                  \x20       with mp.get_context(method).Pool(3) as pool: print(method, sum(pool.map(work, [10] * 20)))\n";
    let folder = Folder::new();
    std::fs::write(folder.join("pools.py"), python).expect("writable");
    let outcome = Program::new("/usr/bin/python3").arg(folder.join("pools.py")).option("--follow").same_output();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    // Each of them has a byte more, for a zero at its end.
    assert_eq!(Report::of(&outcome.trace).of_size(54321).allocations, 3 * 200, "{}", outcome.stdout);
    let all = processes(&outcome.trace);
    let forked = all.values().filter(|one| one.start == ProcessStart::Forked).count();
    assert_eq!((all.len(), forked), (12, 6), "the first, a tracker, a server, three pools of three");
}

/// Commands of a shell script: each allocates the same in every run.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("/bin/true", &[]),
    ("/usr/bin/expr", &["3", "+", "4"]),
    ("/bin/cat", &["/etc/hostname"]),
    ("/usr/bin/wc", &["-l", "/etc/passwd"]),
    ("/usr/bin/basename", &["/usr/share/doc"]),
];

/// As many processes as a soak has time for, one after another. Each has the counts that its command has when it runs alone, which are
/// DHAT's.
#[test]
fn every_command_of_a_long_script_has_the_counts_of_a_run_alone() {
    let rounds: usize = if scale::soak() { 20_000 } else { 200 };
    let lines: String = COMMANDS.iter().map(|(path, words)| format!("{path} {}; ", words.join(" "))).collect();
    let script = format!("i=0; while [ $i -lt {rounds} ]; do {lines} i=$((i + 1)); done; echo $i");
    let outcome = Program::new("/bin/sh").arg("-c").arg(script).option("--follow").option("--no-symbols").recorded();
    let all = processes(&outcome.trace);
    assert_eq!(all.len(), COMMANDS.len() * rounds + 1);
    assert!(all.values().filter(|process| process.index != 0).all(|process| {
        process.end.is_some_and(|end| end.exit == Exit::Code(0)) && process.start == ProcessStart::Spawned
    }));
    let mut said = String::new();
    for (path, words) in COMMANDS {
        let program = Program::new(path).args(words);
        let alone = program.option("--no-symbols").recorded();
        said += &alone.stdout;
        let totals = summary(&alone.trace);
        assert_eq!(
            Counts::of_totals(&totals),
            dhat::run(&Program::new(path).args(words)).total,
            "{path}: left is ours"
        );
        let expected = (Counts::of_totals(&totals), totals.deallocations, totals.temporary);
        let command: Vec<&str> = [path].into_iter().chain(words.iter().copied()).collect();
        let found: Vec<Totals> = all
            .values()
            .filter(|process| process.command == command)
            .map(|process| process.end.expect("its end").totals)
            .collect();
        assert_eq!(found.len(), rounds, "{path}");
        for one in found {
            assert_eq!((Counts::of_totals(&one), one.deallocations, one.temporary), expected, "{path}");
        }
    }
    assert!(outcome.stdout == said.repeat(rounds) + &format!("{rounds}\n"), "{}", outcome.stderr);
    let size = std::fs::metadata(&outcome.trace).expect("a file").len();
    let most = 100_000 + 100 * all.len() as u64;
    assert!(size < most, "{size} bytes for {} processes", all.len());
}

/// All of them run at the same time. Half of them execute a program.
#[test]
fn five_hundred_processes_at_once() {
    const COUNT: u64 = 500;
    let program = Program::target("family_many").arg(COUNT.to_string());
    let outcome = program.option("--follow").option("--no-symbols").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("unrecorded"), "{}", outcome.stderr);
    let all = processes(&outcome.trace);
    let mut found: Vec<(u32, [u64; 5], Exit)> = all
        .values()
        .filter(|process| process.index != 0)
        .map(|process| {
            let end = process.end.expect("its end");
            let totals = end.totals;
            let counts = [totals.allocations, totals.allocated_bytes, totals.deallocations, totals.leaked_bytes];
            (process.pid, [counts[0], counts[1], counts[2], counts[3], process.inherited_bytes], end.exit)
        })
        .collect();
    let expected = outcome.stdout.lines().zip(0u64..).map(|(pid, number)| {
        let kept = 10_000 + number;
        (pid.parse().expect("a pid"), [11, 10_000 + kept, 10, kept, number % 2 * 5000], Exit::Code(0))
    });
    let mut expected: Vec<(u32, [u64; 5], Exit)> = expected.collect();
    found.sort_by_key(|one| one.0);
    expected.sort_by_key(|one| one.0);
    assert_eq!(expected.len() as u64, COUNT);
    assert_eq!(found, expected, "pid, allocations, bytes, frees, leaked bytes, inherited bytes");
    let kept: u64 = (0..COUNT).map(|number| 10_000 + number).sum();
    let summary = summary(&outcome.trace);
    assert_eq!((summary.peak_bytes, summary.peak_allocations), (5000 + kept, 1 + COUNT), "of all together");
    assert_eq!(summary.lost_events, 0);
}

/// Without `--follow`, the end of a recording says how many children ran unrecorded.
#[test]
fn children_that_are_not_recorded_are_counted() {
    let outcome = Program::target("starts").recorded();
    // 9 forks and vforks, 2 of posix_spawn, `system`, `popen`.
    assert!(
        outcome.stderr.contains("  13 child processes were not recorded; --follow records them\n"),
        "{}",
        outcome.stderr
    );
    assert!(!Program::target("starts").option("--follow").recorded().stderr.contains("child process"));
}

/// Children that have ended are not said to run on, although their ends are noticed after that of the program.
#[test]
fn processes_that_ended_are_not_said_to_run_on() {
    let outcome = Program::target("busy_ends").option("--follow").recorded();
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("run on"), "{}", outcome.stderr);
    assert_eq!(Report::of(&outcome.trace).of_size(99).allocations, 10);
}
