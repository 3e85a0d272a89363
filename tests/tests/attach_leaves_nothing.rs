//! In whatever state a program is, attach and detach succeed or report why not. They leave no patch, shared memory or
//! descriptor in any process; only dormant code stays mapped.
use heaptrack_tests::attach::{Session, Target, assert_detaches, cycle};
use heaptrack_tests::folder::copy_program;
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, scale};
use std::process::{Command, Stdio};

/// The number of mappings of heaptrack's shared memory.
fn shared(target: &Target) -> usize {
    target.maps().lines().filter(|line| line.contains("memfd:heaptrack")).count()
}

/// The mappings of the process, without its heap and the arenas of the C library.
fn mappings(target: &Target) -> Vec<String> {
    let maps = target.maps();
    let is_fixed =
        |line: &&str| !line.contains("[heap]") && !line.contains("rw-p 00000000 00:00 0") && !line.contains("---p");
    maps.lines().filter(is_fixed).map(str::to_owned).collect()
}

/// Attaches repeatedly. No cycle leaves shared memory, and no cycle after the first adds a mapping of code.
fn cycles_leave_nothing(target: &Target, count: u64, moment: &str) {
    let (code, descriptors) = (target.code(), target.descriptors());
    let mut first = None;
    for number in 0..count {
        let ended = cycle(target.pid, moment);
        assert_eq!(ended.code, 0, "cycle {number}: {}", ended.text);
        let detached = format!("heaptrack: detached from {}, paused the program for ", target.pid);
        assert!(ended.text.contains(&detached), "cycle {number}: {}", ended.text);
        assert_eq!(shared(target), 0, "cycle {number}: {}", ended.text);
        let ours: Vec<String> =
            mappings(target).into_iter().filter(|line| line.contains("r-xp 00000000 00:00 0")).collect();
        assert_eq!(*first.get_or_insert_with(|| ours.clone()), ours, "cycle {number}: dormant code is used again");
    }
    assert_eq!(target.code(), code, "the original code is restored");
    assert_eq!(target.descriptors(), descriptors);
}

fn right(target: Target) {
    let (code, text) = target.finish();
    assert!(code == 0 && text.ends_with("right\n"), "{code} {text}");
}

#[test]
fn a_program_that_waits_for_its_disk() {
    let folder = Folder::new();
    let mut target = Target::start("attach_sleeps", &[folder.join("file").to_str().unwrap()]);
    assert_eq!(target.line(), "ready");
    cycles_leave_nothing(&target, scale::count(150), "2ms");
    right(target);
}

/// Nearly all the time the program is in a sleep that no signal can interrupt.
#[test]
fn a_program_that_waits_for_children_of_vfork() {
    let mut target = Target::start("attach_sleeps", &[]);
    assert_eq!(target.line(), "ready");
    cycles_leave_nothing(&target, scale::count(150), "2ms");
    // The same with `heaptrack detach` from another process.
    for _ in 0..scale::count(30) {
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_detaches(target.pid);
        assert_eq!(session.wait().code, 0);
        assert_eq!(shared(&target), 0);
    }
    right(target);
}

/// Old addresses of hooks stay in the large stack frames of the loader. They must not be taken for a thread that is in
/// a hook, because then the shared memory would stay mapped.
#[test]
fn threads_that_load_and_unload_libraries() {
    let (red, blue) = (target("libred.so"), target("libblue.so"));
    let mut target = Target::start("attach_storm", &[red.to_str().unwrap(), blue.to_str().unwrap()]);
    assert_eq!(target.line(), "ready");
    let maps = mappings(&target).len();
    let mut most = 0;
    for number in 0..scale::count(500) {
        let ended = cycle(target.pid, "5ms");
        assert_eq!(ended.code, 0, "cycle {number}: {}", ended.text);
        assert_eq!(shared(&target), 0, "cycle {number}: {}", ended.text);
        most = most.max(mappings(&target).len());
    }
    // The mappings from before, our dormant code, and at most two libraries of five mappings each that are loaded at
    // that moment.
    assert!(most <= maps + 10 + 12, "{maps} mappings became {most}");
    assert_eq!(target.descriptors_of("memfd:heaptrack"), 0);
    right(target);
}

/// A coroutine that was suspended inside a hook is on no thread's stack, and still needs the shared memory.
#[test]
fn a_coroutine_that_was_left_inside_of_malloc() {
    let mut target = Target::start("attach_switch", &[]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("begin"), "inside");
    let ended = session.detach();
    assert!(shared(&target) > 0, "{}", ended.text);
    let sentence = format!("stay mapped in process {}, because a thread of it may still be in a hook", target.pid);
    assert!(ended.text.contains(&sentence), "{}", ended.text);
    assert_eq!(target.tell("end"), "done", "the suspended hook returns normally");
    let text = assert_detaches(target.pid);
    assert_eq!(shared(&target), 0, "{text}");
    assert_eq!(target.finish().0, 0);
}

/// The pids in a line.
fn pids(line: &str) -> Vec<u32> {
    line.split_whitespace().map(|word| word.parse().expect("a pid")).collect()
}

#[test]
fn workers_that_were_forked_meanwhile() {
    let mut server = Target::start("attach_prefork", &[]);
    let before: Vec<Target> = pids(&server.tell("2")).into_iter().map(Target::of).collect();
    let code = server.code();
    assert_eq!(before[0].code(), code, "the precondition of this test does not hold");
    let session = Session::attach(server.pid, &["--no-symbols"]);
    let workers: Vec<Target> = pids(&server.tell("6")).into_iter().map(Target::of).collect();
    assert_eq!(workers.len(), 9, "with children of children");
    assert!(
        workers.iter().all(|worker| worker.code() != code && shared(worker) > 0),
        "the precondition of this test does not hold"
    );
    let ended = session.detach();
    for process in workers.iter().chain(&before).chain([&server]) {
        assert_eq!(process.code(), code, "the original code of {} is restored: {}", process.pid, ended.text);
        assert_eq!(shared(process), 0, "in {}: {}", process.pid, ended.text);
        assert!(process.is_alive());
    }
    assert!(ended.text.contains("9 children were forked meanwhile, put back as well"), "{}", ended.text);
    assert_eq!(mappings(&workers[0]), mappings(&server), "a child has the mappings of its parent");
    // Once more, after the recorder has been killed.
    let session = Session::attach(server.pid, &["--no-symbols"]);
    let orphans: Vec<Target> = pids(&server.tell("2")).into_iter().map(Target::of).collect();
    session.kill();
    let text = assert_detaches(server.pid);
    for process in orphans.iter().chain([&server]) {
        assert_eq!((process.code(), shared(process)), (code.clone(), 0), "{}: {text}", process.pid);
    }
}

/// The server ends while it is attached to, and its children live on.
#[test]
fn workers_whose_parent_has_ended() {
    let mut server = Target::start("attach_prefork", &["orphans"]);
    assert_eq!(server.tell("0"), "");
    let code = server.code();
    let session = Session::attach(server.pid, &["--no-symbols"]);
    let workers: Vec<Target> = pids(&server.tell("2")).into_iter().map(Target::of).collect();
    server.finish();
    let ended = session.wait();
    assert_eq!(ended.code, 0, "{}", ended.text);
    for worker in &workers {
        assert_eq!(worker.code().len(), code.len());
        assert_eq!(worker.code(), code, "{}: {}", worker.pid, ended.text);
        assert_eq!(shared(worker), 0);
    }
}

/// A recorder that fails after the target has made the shared memory.
#[test]
fn an_attach_that_fails_late() {
    let mut target = Target::start("attach_phases", &["1"]);
    assert_eq!(target.tell("1"), "done 1");
    let code = target.code();
    let pid = target.pid.to_string();
    let folder = Folder::new();
    // heaptrace cannot make its own shared memory.
    let mut heaptrace = Command::new("strace");
    heaptrace.args(["-qq", "-e", "trace=memfd_create", "-e", "inject=memfd_create:error=ENFILE", "-o"]);
    heaptrace.arg(folder.join("calls")).arg(heaptrack_tests::run::heaptrack()).args(["heaptrace", "-p", &pid]);
    // heaptrack has patched the program, and then finds a file where the folder of its trace should be.
    std::fs::write(folder.join(&pid), "").unwrap();
    let mut heaptrack = heaptrack_tests::attach::command(&["attach", &pid, "--duration", "1s", "-o"]);
    heaptrack.arg(folder.join("%p/trace"));
    for (mut command, sentence) in [(heaptrace, "Too many open files"), (heaptrack, "exists")] {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(sentence), "{text}");
        assert_eq!(shared(&target), 0, "{text}");
        assert_eq!(target.code(), code, "{text}");
        assert_eq!(target.tell("1"), "done 1");
    }
    assert_eq!(target.finish().0, 0);
}

/// After a fork, these children make their memory unreadable for a recorder without root. The detach names them, and root
/// can restore them.
#[test]
fn workers_that_hide_their_memory() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (own, program) = (folder.join("heaptrack"), folder.join("attach_prefork"));
    copy_program(heaptrack_tests::run::heaptrack(), &own);
    copy_program(heaptrack_tests::targets::target("attach_prefork"), &program);
    let nobody = |path: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(path);
        command
    };
    let mut server = Target::spawn(nobody(&program).arg("orphans").arg("hidden"));
    assert_eq!(server.tell("0"), "");
    let code = server.code();
    let pid = server.pid.to_string();
    let text = folder.join("text");
    let mut command = nobody(&own);
    command.args(["attach", &pid, "--no-symbols", "-o"]).arg(folder.join("trace"));
    let mut recorder = command.stderr(std::fs::File::create(&text).unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(&text).unwrap();
    wait_for("the attach", || said().contains("attached to").then_some(()));
    let workers: Vec<Target> = pids(&server.tell("2")).into_iter().map(Target::of).collect();
    assert_eq!(workers.len(), 3);
    signal("INT", &[recorder.id()]);
    assert!(recorder.wait().unwrap().success());
    for worker in &workers {
        let pid = worker.pid;
        let sentence = format!(
            "heaptrack: child {pid} may have been forked meanwhile, and may still have hooks that do nothing: no permission to trace \
             process {pid}: run heaptrack as root"
        );
        assert!(said().contains(&sentence), "{}", said());
        assert!(said().contains(&format!("then `heaptrack detach {pid}` puts it back")), "{}", said());
        assert_ne!(worker.code(), code, "the precondition of this test does not hold");
    }
    for worker in &workers {
        assert_detaches(worker.pid);
        assert_eq!((worker.code(), shared(worker)), (code.clone(), 0));
    }
}
