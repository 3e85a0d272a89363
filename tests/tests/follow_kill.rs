//! `--follow`: processes of a tree, its recorder, or all of them are killed at random moments.
use format::{Block, Event, Process, Reader};
use heaptrack_tests::chance::Chance;
use heaptrack_tests::folder::Folder;
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::{scale, targets};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Four processes (`tests/targets/family_killed.c`) under a recorder.
struct Family {
    folder: Folder,
    recorder: Child,
    pids: Vec<u32>,
}

/// What a process or the trace says of a process: allocations, bytes, frees.
type Counts = [u64; 3];

impl Family {
    fn start(ms: u64) -> Self {
        let folder = Folder::new();
        let out = folder.join("out");
        let recorder = Command::new(heaptrack())
            .args(["--follow", "-q", "-o"])
            .arg(folder.join("trace.htz"))
            .arg(targets::target("family_killed"))
            .arg(ms.to_string())
            .stdout(File::create(&out).expect("writable"))
            .stderr(Stdio::null())
            .spawn()
            .expect("heaptrack");
        let first = wait_for("the pids", || {
            let text = std::fs::read_to_string(&out).ok()?;
            text.contains('\n').then_some(text)
        });
        let line = first.lines().next().unwrap_or_default();
        let pids = line.split_whitespace().map(|word| word.parse().expect("a pid")).collect();
        Family { folder, recorder, pids }
    }

    fn trace(&self) -> PathBuf {
        self.folder.join("trace.htz")
    }

    /// The counts that the first process printed, by pid, and whether the process was killed.
    fn told(&self) -> BTreeMap<u32, (Counts, bool)> {
        let text = std::fs::read_to_string(self.folder.join("out")).expect("its output");
        let mut told = BTreeMap::new();
        for line in text.lines().skip(1) {
            let word = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)).expect("a word");
            let number = |name: &str| word(name).parse::<u64>().expect("a number");
            let counts = [number("allocations="), number("bytes="), number("frees=")];
            told.insert(number("pid=") as u32, (counts, word("end=") == "killed"));
        }
        told
    }
}

fn processes(trace: &Path) -> BTreeMap<u32, Process> {
    let mut reader = Reader::open(trace).expect("a trace");
    let mut all = BTreeMap::new();
    while let Some(block) = reader.next_block().expect("readable") {
        if let Ok(Block::Processes(processes)) = block.decode() {
            all.extend(processes.processes.into_iter().map(|process| (process.pid, process)));
        }
    }
    all
}

/// Compares the trace with the counts of the processes. A process that was killed may have been between a call and its count.
fn compare(family: &Family) {
    let told = family.told();
    let recorded = processes(&family.trace());
    assert_eq!(told.len(), 4);
    for (pid, (counts, is_killed)) in told {
        let totals = recorded[&pid].end.expect("its end").totals;
        let found = [totals.allocations, totals.allocated_bytes, totals.deallocations];
        let calls = |counts: Counts| counts[0] + counts[2];
        let more = calls(found).wrapping_sub(calls(counts));
        if is_killed {
            assert!(more <= 1, "process {pid} was killed after {counts:?}, recorded {found:?}");
        } else {
            assert_eq!(found, counts, "process {pid}");
        }
    }
}

#[test]
fn a_process_is_killed_and_the_others_go_on() {
    let mut chance = Chance::new("kill one of a tree");
    for _ in 0..scale::count(200) {
        let mut family = Family::start(150);
        std::thread::sleep(Duration::from_micros(chance.between(0, 100_000)));
        // The first process tells the counts of all, so one of its children is killed.
        let victim = family.pids[chance.between(1, 4) as usize];
        signal("KILL", &[victim]);
        assert!(family.recorder.wait().expect("its end").success());
        compare(&family);
    }
}

#[test]
fn the_recorder_is_killed_and_all_processes_go_on() {
    let mut chance = Chance::new("kill the recorder of a tree");
    for _ in 0..scale::count(200) {
        let mut family = Family::start(200);
        std::thread::sleep(Duration::from_micros(chance.between(0, 150_000)));
        signal("KILL", &[family.recorder.id()]);
        let _ = family.recorder.wait();
        let told = wait_for("the end of all processes", || Some(family.told()).filter(|told| told.len() == 4));
        assert!(told.values().all(|(_, is_killed)| !is_killed), "{told:?}");
        for process in processes(&family.trace()).values() {
            let (counts, _) = told[&process.pid];
            let found = process.end.map_or(0, |end| end.totals.allocations);
            assert!(found <= counts[0], "{process:?}");
        }
    }
}

/// Reads a trace that may still grow: its processes, and the number of its allocations.
fn grown(trace: &Path) -> Option<(BTreeMap<u32, Process>, u64)> {
    let mut reader = Reader::open(trace).ok()?;
    let (mut all, mut allocations) = (BTreeMap::new(), 0);
    while let Ok(Some(block)) = reader.next_block() {
        match block.decode() {
            Ok(Block::Processes(more)) => all.extend(more.processes.into_iter().map(|process| (process.pid, process))),
            Ok(Block::Events(mut events)) => {
                while let Ok(Some(event)) = events.read() {
                    allocations += matches!(event, Event::Alloc { .. }) as u64;
                }
            }
            _ => (),
        }
    }
    Some((all, allocations))
}

/// The processes are killed when the file has all of them. A fixed time would not do: on a busy machine a process may have waited for a
/// processor since its fork.
#[test]
fn all_are_killed_at_once() {
    let mut chance = Chance::new("kill a tree");
    for _ in 0..scale::count(200) {
        let mut family = Family::start(60_000);
        let is_whole = |(all, allocations): &(BTreeMap<u32, Process>, u64)| all.len() == 4 && *allocations > 0;
        let (_, before) = wait_for("all processes in the file", || grown(&family.trace()).filter(is_whole));
        std::thread::sleep(Duration::from_micros(chance.between(0, 200_000)));
        signal("KILL", &[&[family.recorder.id()][..], &family.pids].concat());
        let _ = family.recorder.wait();
        let (all, after) = grown(&family.trace()).expect("a trace");
        let mut pids = family.pids.clone();
        pids.sort_unstable();
        assert_eq!(all.keys().copied().collect::<Vec<u32>>(), pids);
        assert!(after >= before, "{after} allocations are left of {before}");
    }
}

/// A thread that loads a library asks the recorder to patch it. If the recorder is dead, the thread must not wait for an answer, which
/// would take up to five seconds for each library.
#[test]
fn a_program_whose_recorder_is_dead_loads_libraries_at_once() {
    for options in [&["-q"][..], &["-q", "--follow"]] {
        let folder = Folder::new();
        let mut recorder = Command::new(heaptrack())
            .args(options)
            .arg("-o")
            .arg(folder.join("trace.htz"))
            .arg(targets::target("late_loads"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("heaptrack");
        let mut output = BufReader::new(recorder.stdout.take().expect("piped"));
        let mut said = String::new();
        output.read_line(&mut said).expect("ready");
        let mut input = recorder.stdin.take().expect("piped");
        signal("KILL", &[recorder.id()]);
        let _ = recorder.wait();
        let start = Instant::now();
        input.write_all(b"go\n").expect("the program reads");
        output.read_line(&mut said).expect("done");
        assert_eq!(said, "ready\ndone\n", "{options:?}");
        assert!(start.elapsed() < Duration::from_secs(4), "{options:?}: {:?}", start.elapsed());
    }
}
