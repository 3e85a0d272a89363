//! `heaptrack -p PID --follow`: what a process starts after the attach is in the same trace, and a detach leaves nothing in it
//! and in what it has forked.
use format::{Exit, ProcessStart};
use heaptrack_tests::attach::{Session, Target, assert_detaches, detach, refusal_of};
use heaptrack_tests::process::wait_for;
use heaptrack_tests::processes::{counts, processes};
use heaptrack_tests::{Report, scale, view};
use std::process::Command;

const FOLLOWING: [&str; 2] = ["--follow", "--no-symbols"];

/// The number of mappings of heaptrack's shared memory.
fn shared(target: &Target) -> usize {
    target.maps().lines().filter(|line| line.contains("memfd:heaptrack")).count()
}

#[test]
fn every_process_that_starts_after_the_attach_has_its_own_counts() {
    for (seed, name) in [("1", "family"), ("2", "family"), ("4", "family_static")] {
        let mut target = Target::start(name, &[seed, "2", "3", "wait"]);
        target.settle();
        let pid = target.pid;
        let session = Session::attach(pid, &FOLLOWING);
        target.send("");
        let (code, output) = target.finish();
        let ended = session.wait();
        assert_eq!((code, ended.code), (0, 0), "{}", ended.text);
        let all = processes(&ended.trace);
        let mut told: Vec<String> = output.lines().map(str::to_owned).collect();
        let mut recorded: Vec<String> =
            all.values().filter_map(|process| Some(counts(process, process.end.as_ref()?))).collect();
        told.sort();
        recorded.sort();
        assert_eq!(recorded, told, "seed {seed}: {}", ended.text);
        assert!(all.len() >= 13, "a root, three children, nine grandchildren");
        let first = &all[&0];
        assert_eq!((first.pid, first.start, first.parent), (pid, ProcessStart::Attached, None));
        assert_eq!(first.end.expect("its end").exit, Exit::Code(0));
        let text = view::text(&ended.trace, &[]);
        assert!(text.contains("; the program ended with code 0\n") && text.contains("\nnot freed  "), "{name}: {text}");
        let said = ["heaptrack: all processes have ended\n", " not freed at the end\n"];
        assert!(said.iter().all(|sentence| ended.text.contains(sentence)), "{name}: {}", ended.text);
    }
}

/// Whichever function of libc executes a program, the program is recorded, and sees nothing of it.
#[test]
fn programs_that_are_started_in_every_way_after_the_attach_are_recorded() {
    for name in ["starts", "starts_musl"] {
        let mut alone = Target::start(name, &["wait"]);
        alone.send("");
        let expected = alone.finish();
        let mut target = Target::start(name, &["wait"]);
        target.settle();
        let session = Session::attach(target.pid, &FOLLOWING);
        target.send("");
        assert_eq!(target.finish(), expected, "{name}");
        let ended = session.wait();
        assert_eq!(ended.code, 0, "{}", ended.text);
        let all = processes(&ended.trace);
        let mut numbers: Vec<u32> = all.values().filter_map(|one| one.command.get(2)?.parse().ok()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(0..13), "{name}: {}", ended.text);
        assert_eq!(Report::of(&ended.trace).of_size(4321).allocations, 13, "{name}");
    }
}

/// The pids in a line.
fn pids(line: &str) -> Vec<u32> {
    line.split_whitespace().map(|word| word.parse().expect("a pid")).collect()
}

#[test]
fn a_detach_leaves_nothing_in_the_process_and_in_those_that_it_has_forked() {
    let mut server = Target::start("attach_prefork", &[]);
    server.settle();
    let (code, descriptors) = (server.code(), server.descriptors());
    for round in 0..2 {
        let session = Session::attach(server.pid, &FOLLOWING);
        let workers: Vec<Target> = pids(&server.tell("6")).into_iter().map(Target::of).collect();
        assert_eq!(workers.len(), 9, "with children of children");
        for worker in &workers {
            wait_for("shared memory of its own", || worker.maps().contains("heaptrack-attach-tree").then_some(()));
        }
        let ended = session.detach();
        for process in workers.iter().chain([&server]) {
            assert_eq!(process.code(), code, "the original code of {} is restored: {}", process.pid, ended.text);
            assert_eq!(shared(process), 0, "in {}: {}", process.pid, ended.text);
            assert_eq!(process.redirected(), 0, "in {}", process.pid);
            assert!(process.is_alive());
        }
        assert_eq!(server.descriptors(), descriptors);
        let sentence = "9 children were forked meanwhile, put back as well";
        assert!(ended.text.contains(sentence), "round {round}: {}", ended.text);
        let all = processes(&ended.trace);
        assert_eq!(all.len(), 10);
        for worker in workers.iter().map(|worker| worker.pid) {
            let process = all.values().find(|process| process.pid == worker).expect("an entry");
            let end = process.end.expect("an end");
            assert_eq!((process.start, end.exit), (ProcessStart::Forked, Exit::Detached));
            assert!(end.totals.allocations > 0 && end.totals.allocated_bytes == 7001 * end.totals.allocations);
        }
    }
    // Once more, after the recorder has been killed.
    let session = Session::attach(server.pid, &FOLLOWING);
    let orphans: Vec<Target> = pids(&server.tell("2")).into_iter().map(Target::of).collect();
    for orphan in &orphans {
        wait_for("shared memory of its own", || orphan.maps().contains("heaptrack-attach-tree").then_some(()));
    }
    session.kill();
    let text = assert_detaches(server.pid);
    for process in orphans.iter().chain([&server]) {
        assert_eq!((process.code(), shared(process)), (code.clone(), 0), "{}: {text}", process.pid);
        assert!(process.is_alive());
    }
}

/// A program that was executed in the tree keeps the library, which does nothing any more. What is started after the detach
/// sees nothing of heaptrack.
#[test]
fn programs_that_run_on_after_the_detach() {
    let script = "read line; sleep 100 >/dev/null 2>&1 & echo $!; read line; env; kill $!; exec env";
    let run = |is_recorded: bool| {
        let mut shell = Target::spawn(Command::new("/bin/sh").arg("-c").arg(script));
        shell.settle();
        let session = is_recorded.then(|| Session::attach(shell.pid, &FOLLOWING));
        let code = shell.code();
        let sleep: u32 = shell.tell("go").parse().expect("a pid");
        if let Some(session) = session {
            let executed = Target::of(sleep);
            wait_for("a recorded program", || {
                let maps = executed.maps();
                (maps.contains("/sleep\n") && maps.contains("heaptrack-attach-tree")).then_some(())
            });
            let (refused, text) = detach(sleep);
            assert!(refused == 3 && text.contains("was launched by heaptrack"), "{text}");
            let ended = session.detach();
            assert_eq!((shared(&shell), shell.redirected()), (0, 0), "{}", ended.text);
            assert_ne!(shell.code(), code, "the code that was patched is restored");
            assert!(executed.is_alive());
            let all = processes(&ended.trace);
            let names: Vec<&str> = all.values().map(|one| one.command[0].as_str()).collect();
            assert!(names.contains(&"sleep"), "{names:?}");
            std::mem::forget(executed);
        }
        shell.send("go");
        shell.finish()
    };
    assert_eq!(run(true), run(false));
}

/// The process replaces itself. The new program is in the trace, and a detach ends the recording.
#[test]
fn an_attached_process_that_executes_another_program() {
    let mut shell = Target::spawn(Command::new("/bin/sh").args(["-c", "read line; exec cat"]));
    shell.settle();
    let session = Session::attach(shell.pid, &FOLLOWING);
    shell.send("first");
    assert_eq!(shell.tell("second"), "second");
    let ended = session.detach();
    let all = processes(&ended.trace);
    let found: Vec<(u32, ProcessStart)> = all.values().map(|one| (one.pid, one.start)).collect();
    assert_eq!(found, [(shell.pid, ProcessStart::Attached), (shell.pid, ProcessStart::Executed)], "{}", ended.text);
    assert_eq!((all[&0].end.expect("its end").by_exec, all[&1].command.as_slice()), (true, &["cat".to_owned()][..]));
    assert_eq!(shell.tell("third"), "third");
    assert_eq!(shell.finish().0, 0);
}

/// Many short recordings. The process starts programs all the time, with vfork among others.
#[test]
fn cycles_leave_nothing() {
    let python = "import subprocess, sys, os\n\
                  print('ready', flush=True)\n\
                  while not os.path.exists(sys.argv[1]):\n\
                  \x20   assert subprocess.run(['/bin/echo', 'x'], capture_output=True).stdout == b'x\\n'\n\
                  \x20   assert os.system('exit 3') == 3 << 8\n\
                  print('right')\n";
    let folder = heaptrack_tests::Folder::new();
    let stop = folder.join("stop");
    let mut target = Target::spawn(Command::new("/usr/bin/python3").arg("-c").arg(python).arg(&stop));
    assert_eq!(target.line(), "ready");
    let (code, descriptors) = (target.code(), target.descriptors_of("memfd"));
    for number in 0..scale::count(100) {
        let session = Session::start(target.pid, &["--follow", "--no-symbols", "--duration", "50ms"]);
        let ended = session.wait();
        assert_eq!(ended.code, 0, "cycle {number}: {}", ended.text);
        assert_eq!(shared(&target), 0, "cycle {number}: {}", ended.text);
        assert_eq!(target.code(), code, "cycle {number}: {}", ended.text);
    }
    assert_eq!(target.descriptors_of("memfd"), descriptors);
    std::fs::write(&stop, "").expect("writable");
    let (code, output) = target.finish();
    assert_eq!((code, output.as_str()), (0, "right\n"));
}

/// A process of another user cannot open the memory of a recorder that root has started.
#[test]
fn a_process_that_cannot_reach_the_recorder_is_refused() {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"]);
    let mut target = Target::spawn(&mut command);
    assert_eq!(target.tell("x"), "x");
    let code = target.code();
    let (refused, text) = refusal_of(target.pid, &["--follow"]);
    let expected =
        format!("heaptrack: --follow is not possible: process {} cannot open heaptrack's memory (", target.pid);
    assert!(refused == 3 && text.starts_with(&expected), "{text}");
    assert_eq!((target.code(), shared(&target)), (code, 0));
    let session = Session::attach(target.pid, &["--no-symbols"]);
    session.detach();
    assert_eq!(target.tell("y"), "y");
}
