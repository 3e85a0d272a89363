//! `--follow`: processes of a tree, its recorder, or all of them are killed at random moments. If only a process is killed, every call that
//! had returned is in the file. If the recorder is killed, too, the file has every call that had returned 200 ms before.
use format::{Block, Event, Exit, Process, Reader};
use heaptrack_tests::chance::Chance;
use heaptrack_tests::folder::Folder;
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::{promised, scale, targets};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Four processes (`tests/targets/family_killed.c`) under a recorder.
struct Family {
    folder: Folder,
    recorder: Child,
    /// The first process is the parent of the others.
    pids: Vec<u32>,
}

/// What a process or the trace says of a process: allocations, bytes, frees.
type Counts = [u64; 3];

/// The pids and the counts of the processes, from the file that they map.
fn counted(file: &Path) -> Vec<(u32, Counts)> {
    let bytes = std::fs::read(file).unwrap_or_default();
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let rows = words.get(1..).unwrap_or_default().chunks_exact(4);
    rows.map(|row| (row[0] as u32, [row[1], row[2], row[3]])).filter(|(pid, _)| *pid != 0).collect()
}

impl Family {
    /// `pause`: how long each process sleeps after 64 calls, in microseconds. Without a pause, the recorder waits for a processor most of
    /// the time, which the promise does not cover.
    fn start(ms: u64, pause: u64) -> Self {
        let folder = Folder::new();
        let counts = folder.join("counts");
        let recorder = Command::new(heaptrack())
            .args(["--follow", "-q", "-o"])
            .arg(folder.join("trace.htz"))
            .arg(targets::target("family_killed"))
            .arg(&counts)
            .args([ms.to_string(), pause.to_string()])
            .stdout(File::create(folder.join("out")).expect("writable"))
            .stderr(Stdio::null())
            .spawn()
            .expect("heaptrack");
        let all = wait_for("the pids", || Some(counted(&counts)).filter(|all| all.len() == 4));
        Family { folder, recorder, pids: all.into_iter().map(|(pid, _)| pid).collect() }
    }

    /// Tells all processes to end.
    fn stop(&self) {
        let counts = File::options().write(true).open(self.folder.join("counts")).expect("the file that they map");
        counts.write_all_at(&1u64.to_le_bytes(), 0).expect("writable");
    }

    fn trace(&self) -> PathBuf {
        self.folder.join("trace.htz")
    }

    /// The allocations that each process has finished, by pid.
    fn finished(&self) -> BTreeMap<u32, u64> {
        counted(&self.folder.join("counts")).into_iter().map(|(pid, counts)| (pid, counts[0])).collect()
    }

    /// Watches the processes for `duration`. Returns the allocations that must be in the file if the recorder is killed now.
    fn due_after(&self, duration: Duration) -> BTreeMap<u32, u64> {
        promised::watch(self.recorder.id(), duration, || self.finished())
    }

    /// Asserts that the file has the allocations that were `due`, and none that was not made. A process that was killed may
    /// have been between a call and its count. Returns the number of processes of which something was due.
    fn assert_due(&self, due: &BTreeMap<u32, u64>) -> usize {
        let (found, finished) = (allocations(&self.trace()), self.finished());
        for (pid, due) in due {
            let (found, finished) = (found.get(pid).copied().unwrap_or(0), finished[pid]);
            assert!(
                (*due..=finished + 1).contains(&found),
                "process {pid}: {found} recorded, {due} were due, {finished} were made"
            );
        }
        assert!(found.keys().all(|pid| self.pids.contains(pid)), "{found:?}, {:?}", self.pids);
        due.values().filter(|due| **due > 0).count()
    }

    /// The counts that the first process printed, by pid, and whether the process was killed.
    fn told(&self) -> BTreeMap<u32, (Counts, bool)> {
        let text = std::fs::read_to_string(self.folder.join("out")).expect("its output");
        let mut told = BTreeMap::new();
        for line in text.lines() {
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

/// Compares the trace with the counts of the processes, and whether they were killed. A process that was killed may have been between a
/// call and its count.
fn compare(family: &Family, told: BTreeMap<u32, (Counts, bool)>) {
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
        let mut family = Family::start(150, 0);
        std::thread::sleep(Duration::from_micros(chance.between(0, 100_000)));
        // The first process tells the counts of all, so one of its children is killed.
        let victim = family.pids[chance.between(1, 4) as usize];
        signal("KILL", &[victim]);
        assert!(family.recorder.wait().expect("its end").success());
        compare(&family, family.told());
    }
}

/// The parent of all others dies. They go on until they are told to stop, and the recording ends with the last of them.
#[test]
fn the_first_process_is_killed_and_its_children_go_on() {
    let mut chance = Chance::new("kill the first process of a tree");
    for _ in 0..scale::count(200) {
        let mut family = Family::start(60_000, 0);
        std::thread::sleep(Duration::from_micros(chance.between(0, 100_000)));
        let first = family.pids[0];
        signal("KILL", &[first]);
        let before = family.finished();
        wait_for("calls of the children", || {
            family.finished().iter().all(|(pid, count)| *pid == first || *count > before[pid] + 100).then_some(())
        });
        family.stop();
        assert_eq!(family.recorder.wait().expect("its end").code(), Some(128 + 9), "the end of the first process");
        let all = counted(&family.folder.join("counts"));
        let told = all.into_iter().map(|(pid, counts)| (pid, (counts, pid == first))).collect();
        compare(&family, told);
        let ends: Vec<Exit> =
            processes(&family.trace()).values().map(|process| process.end.expect("its end").exit).collect();
        assert_eq!(ends.iter().filter(|exit| **exit == Exit::Signal(9)).count(), 1, "{ends:?}");
        assert_eq!(ends.iter().filter(|exit| **exit == Exit::Code(0)).count(), 3, "{ends:?}");
    }
}

/// The allocations in a file that may lack its end, by pid.
fn allocations(trace: &Path) -> BTreeMap<u32, u64> {
    let mut by_pid = BTreeMap::new();
    let Ok(mut reader) = Reader::open(trace) else { return by_pid };
    let (mut pids, mut process_of_thread) = (BTreeMap::new(), BTreeMap::new());
    while let Ok(Some(block)) = reader.next_block() {
        match block.decode() {
            Ok(Block::Processes(more)) => {
                pids.extend(more.processes.into_iter().map(|process| (process.index, process.pid)));
                process_of_thread.extend(more.threads);
            }
            Ok(Block::Events(mut events)) => {
                let mut thread = events.thread();
                while let Ok(Some(event)) = events.read() {
                    match event {
                        Event::Thread(other) => thread = other,
                        Event::Alloc { .. } => *by_pid.entry(pids[&process_of_thread[&thread]]).or_default() += 1,
                        _ => (),
                    }
                }
            }
            _ => (),
        }
    }
    by_pid
}

#[test]
fn the_recorder_is_killed_and_all_processes_go_on() {
    let mut chance = Chance::new("kill the recorder of a tree");
    let mut processes_due = 0;
    for round in 0..scale::count(200) {
        let mut family = Family::start(500, round % 4 * 100);
        let due = family.due_after(Duration::from_micros(chance.between(0, 450_000)));
        signal("KILL", &[family.recorder.id()]);
        let _ = family.recorder.wait();
        let told = wait_for("the end of all processes", || Some(family.told()).filter(|told| told.len() == 4));
        assert!(told.values().all(|(_, is_killed)| !is_killed), "{told:?}");
        processes_due += family.assert_due(&due);
    }
    assert!(processes_due > 0, "the precondition of this test does not hold");
}

#[test]
fn all_are_killed_at_once() {
    let mut chance = Chance::new("kill a tree");
    let mut processes_due = 0;
    for round in 0..scale::count(200) {
        let mut family = Family::start(60_000, round % 4 * 100);
        let due = family.due_after(Duration::from_micros(chance.between(0, 600_000)));
        signal("KILL", &[&[family.recorder.id()][..], &family.pids].concat());
        let _ = family.recorder.wait();
        processes_due += family.assert_due(&due);
    }
    assert!(processes_due > 0, "the precondition of this test does not hold");
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
