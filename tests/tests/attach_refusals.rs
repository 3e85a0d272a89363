//! Processes that cannot be attached to. heaptrack prints one sentence that names the reason, exits with code 3, and
//! leaves the process unchanged.
use heaptrack_tests::attach::{Session, Target, below, cycle, detach, refusal};
use heaptrack_tests::process::{self, signal, wait_for};
use heaptrack_tests::{Folder, Program};
use std::process::{Command, Stdio};

fn assert_refused(pid: u32, sentence: &str) {
    let (code, text) = refusal(pid);
    assert_eq!(code, 3, "{text}");
    assert!(text.starts_with("heaptrack: ") && text.contains(sentence), "{text}");
    assert_eq!(text.lines().count(), 1, "one sentence: {text}");
}

/// Asserts that the command ends with code 3, and returns its message.
fn said_by_refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(process::code(output.status), 3, "{text}");
    text
}

/// Asserts that `heaptrack`, a command without arguments, may not attach to a process, and that the process goes on.
fn assert_attach_refused(heaptrack: &mut Command, sentence: &str) {
    let mut target = Target::start("attach_phases", &["1"]);
    let text = said_by_refusal(heaptrack.args(["attach", &target.pid.to_string()]));
    assert!(text.contains(sentence), "{text}");
    assert_eq!(target.tell("1"), "done 1");
}

#[test]
fn no_such_process() {
    let pid = 0x7fff_fff0;
    assert_refused(pid, &format!("there is no process {pid}"));
    assert_eq!(detach(pid).0, 3);
}

#[test]
fn heaptrack_itself() {
    let words = ["-c", "exec \"$0\" attach $$", heaptrack_tests::run::heaptrack().to_str().unwrap()].map(str::to_owned);
    let folder = Folder::new();
    let text = said_by_refusal(Command::new("/bin/sh").args(words).current_dir(folder.path()));
    assert!(text.ends_with(" is heaptrack itself\n"), "{text}");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn detaching_from_a_process_that_is_not_recorded() {
    let target = Target::start("attach_phases", &["1"]);
    let expected = format!("heaptrack: nothing of heaptrack is in process {}\n", target.pid);
    assert_eq!(detach(target.pid), (3, expected));
}

#[test]
fn a_thread_of_the_kernel() {
    // Containers do not show kernel threads. There the answer is that there is no such process.
    let is_kernel = std::fs::read_to_string("/proc/2/status").is_ok_and(|status| status.contains("kthreadd"));
    assert_refused(
        if is_kernel { 2 } else { 0x7fff_fff0 },
        if is_kernel { "is a kernel thread" } else { "no process" },
    );
}

#[test]
fn a_process_that_has_ended() {
    let mut child = Command::new("true").spawn().unwrap();
    wait_for("its end", || (process::state(child.id()) == Some('Z')).then_some(()));
    assert_refused(child.id(), "has already exited (zombie)");
    child.wait().unwrap();
}

#[test]
fn another_architecture() {
    let target = Target::start("attach_phases_32", &[]);
    wait_for("it to run", || process::executable(target.pid).filter(|exe| exe.ends_with("attach_phases_32")));
    assert_refused(target.pid, "is not a 64-bit x86 program");
    assert!(target.is_alive());
}

#[test]
fn a_process_that_is_traced() {
    let mut target = Target::start("attach_phases", &["1"]);
    let mut strace = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-p", &target.pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("strace");
    let traced = || std::fs::read_to_string(format!("/proc/{}/status", target.pid)).ok();
    wait_for("strace", || traced().filter(|text| !text.contains("TracerPid:\t0")));
    assert_refused(target.pid, "is traced already by strace");
    signal("INT", &[strace.id()]);
    strace.wait().unwrap();
    assert_eq!(target.tell("1"), "done 1");
}

#[test]
fn a_process_that_is_recorded() {
    let mut target = Target::start("attach_phases", &["1"]);
    let session = Session::attach(target.pid, &[]);
    let recorder = session.pid();
    assert_refused(
        target.pid,
        &format!("is being recorded by heaptrack (pid {recorder}): `heaptrack detach {}`", target.pid),
    );
    assert_eq!(target.tell("4"), "done 4");
    assert_eq!(session.detach().report().of_size(1001).allocations, 4, "the first session continues");
}

#[test]
fn a_program_that_heaptrack_started() {
    let program = Program::target("stops").arg("60000");
    let running = program.start();
    let target = running.target_with_library(&program);
    assert_refused(target, "was started by heaptrack");
    signal("TERM", &[target]);
    running.finish();
}

#[test]
fn sanitizers_and_valgrind() {
    let target = Target::start("attach_phases_asan", &["1"]);
    wait_for("it to run", || target.maps().contains("libasan").then_some(()));
    assert_refused(target.pid, "runs under AddressSanitizer");
    let phases = heaptrack_tests::targets::target("attach_phases");
    let mut valgrind = Target::spawn(Command::new("valgrind").arg("-q").arg(phases).arg("1"));
    assert_eq!(valgrind.tell("1"), "done 1");
    assert_refused(valgrind.pid, "runs under Valgrind");
}

#[test]
fn a_static_program_without_symbols() {
    let target = Target::start("attach_phases_stripped", &["1"]);
    wait_for("it to run", || process::executable(target.pid).filter(|exe| exe.ends_with("attach_phases_stripped")));
    assert_refused(target.pid, "is linked statically and has no symbols");
}

#[test]
fn an_allocator_that_cannot_be_patched() {
    let mut target = Target::start("attach_short_static", &[]);
    assert_eq!(target.line(), "ready");
    let sentence =
        "attach_short_static cannot be patched: it jumps into its own first instructions, and no module imports it";
    assert_refused(target.pid, sentence);
    assert!(target.is_alive());
}

/// Without free, every block would look leaked. That another function of the file frees too does not help.
#[test]
fn an_allocator_of_which_only_a_second_name_can_be_patched() {
    let refusals = [
        ("attach_sized_static", "free", "it is too short"),
        ("attach_alias_static", "malloc", "it jumps into its own first instructions"),
    ];
    for (name, function, why) in refusals {
        let mut target = Target::start(name, &[]);
        assert_eq!(target.line(), "ready");
        let path = process::executable(target.pid).unwrap();
        let sentence = format!("{function} of {} cannot be patched: {why}, and no module imports it", path.display());
        assert_refused(target.pid, &sentence);
        assert!(target.is_alive());
    }
}

#[test]
fn pure_go() {
    let folder = Folder::new();
    let source = folder.join("main.go");
    std::fs::write(&source, "package main\nimport \"os\"\nfunc main() { var b [1]byte; os.Stdin.Read(b[:]) }\n")
        .unwrap();
    let built = Command::new("go")
        .args(["build", "-o", "program", "main.go"])
        .env("CGO_ENABLED", "0")
        .env("HOME", folder.path())
        .env("GOFLAGS", "-mod=mod")
        .current_dir(folder.path())
        .status()
        .expect("go");
    assert!(built.success());
    let target = Target::spawn(&mut Command::new(folder.join("program")));
    wait_for("it to run", || process::executable(target.pid).filter(|exe| exe.ends_with("program")));
    assert_refused(target.pid, "Go does not use malloc: use Go's own heap profile");
    assert!(target.is_alive());
}

#[test]
fn filters_are_read_before_anything_is_called() {
    let start = |what: &str| {
        let mut target = Target::start("attach_filter", &[what]);
        assert_eq!(target.line(), "ready");
        wait_for("the filter", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid)).ok()?;
            (!status.contains("Seccomp:\t0")).then_some(())
        });
        target
    };
    for call in ["mremap", "getpid", "sched_yield"] {
        let mut killing = start(call);
        assert_refused(killing.pid, "a seccomp filter of process");
        assert_refused(killing.pid, &format!("forbids {call}"));
        assert_eq!(killing.tell("go"), "done");
    }
    let mut strict = start("strict");
    assert_refused(strict.pid, "strict mode");
    assert_eq!(strict.tell("go"), "done");
    let mut harmless = start("nothing");
    let session = Session::attach(harmless.pid, &["--no-symbols"]);
    assert_eq!(harmless.tell("go"), "done");
    let report = session.detach().report();
    assert_eq!((report.of_size(6001).allocations, report.total("lost_events")), (10, 0));
    assert_eq!(harmless.tell("go"), "done");
}

#[test]
fn a_filter_that_only_root_may_read() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (heaptrack, program) = (folder.join("heaptrack"), folder.join("program"));
    heaptrack_tests::folder::copy_program(heaptrack_tests::run::heaptrack(), &heaptrack);
    heaptrack_tests::folder::copy_program(heaptrack_tests::targets::target("attach_filter"), &program);
    let nobody = |path: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(path);
        command
    };
    let mut target = Target::spawn(nobody(&program).arg("nothing"));
    assert_eq!(target.line(), "ready");
    wait_for("the filter", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid)).ok()?;
        status.contains("Seccomp:\t2").then_some(())
    });
    let output =
        nobody(&heaptrack).args(["attach", &target.pid.to_string()]).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(process::code(output.status), 3, "{text}");
    assert!(text.contains("has a seccomp filter that only root may look at"), "{text}");
    assert_eq!(target.tell("go"), "done");
}

#[test]
fn a_thread_that_cannot_be_stopped() {
    let mut target = Target::start("attach_vfork", &[]);
    assert_eq!(target.tell("begin"), "ready");
    assert_refused(target.pid, &format!("thread {} cannot be stopped: it has been in an uninterruptible", target.pid));
    assert_eq!(target.tell("end"), "done");
    assert_eq!(cycle(target.pid, "0s").code, 0);
}

#[test]
fn a_thread_without_a_usable_stack() {
    let mut target = Target::start("attach_coroutine", &[]);
    assert_eq!(target.line(), "ready");
    assert_refused(
        target.pid,
        &format!("thread {} has no stack that heaptrack could use for system calls", target.pid),
    );
    assert_eq!(target.tell("go"), "done");
}

#[test]
fn a_thread_that_will_return_into_what_would_be_displaced() {
    let mut target = Target::start("attach_fault", &[]);
    assert_eq!(target.line(), "ready");
    assert_refused(target.pid, "the process keeps changing what is to be patched; try again");
    assert_eq!(target.tell("on"), "done");
    let ended = cycle(target.pid, "0s");
    assert_eq!(ended.code, 0, "{}", ended.text);
    assert_eq!(target.tell("on"), "done");
}

#[test]
fn programs_with_nothing_to_call_and_nothing_to_record() {
    for (name, sentence) in [
        ("attach_bare", "no usable `syscall` instruction was found in the program"),
        ("attach_bare_calls", "there is nothing to record"),
    ] {
        let target = Target::start(name, &[]);
        wait_for("it to run", || (!target.maps().contains("[vdso]") && target.maps().contains(name)).then_some(()));
        assert_refused(target.pid, sentence);
        assert!(target.is_alive());
    }
}

#[test]
fn a_process_without_room_for_the_shared_memory() {
    let mut target = Target::start("attach_phases", &["1"]);
    assert_eq!(target.tell("1"), "done 1");
    let limit = Command::new("prlimit").args(["--pid", &target.pid.to_string(), "--as=4096"]).status().unwrap();
    assert!(limit.success());
    assert_refused(target.pid, "the process refused memory for the recorder: Cannot allocate memory");
    assert_eq!(target.tell("1"), "done 1");
}

#[test]
fn a_sandbox_that_is_entered_while_recording() {
    let mut target = Target::start("attach_filter", &["later"]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    // Registering a new thread would need system calls for which the filter kills the program.
    assert_eq!(target.tell("go"), "done");
    let ended = session.detach();
    assert!(target.is_alive());
    let report = ended.report();
    assert_eq!(report.of_size(6001).allocations, 0);
    assert!(report.total("lost_events") >= 20, "what was not recorded is counted: {}", ended.text);
}

#[test]
fn a_process_of_another_user() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let heaptrack = folder.join("heaptrack");
    heaptrack_tests::folder::copy_program(heaptrack_tests::run::heaptrack(), &heaptrack);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&heaptrack).current_dir(folder.path());
    assert_attach_refused(&mut command, "belongs to user 0: run heaptrack as that user or as root");
}

#[test]
fn without_the_capability() {
    // Root without SYS_PTRACE, as in a container, may not trace a process that has more capabilities than itself.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--"]).arg(heaptrack_tests::run::heaptrack());
    assert_attach_refused(command.current_dir(std::env::temp_dir()), "give it the capability SYS_PTRACE");
}

#[test]
fn a_place_that_cannot_be_written() {
    let target = Target::start("attach_phases", &["1"]);
    let words = ["attach", &target.pid.to_string(), "-o", "/proc/nothing"];
    let output = heaptrack_tests::attach::command(&words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    // Only the command line is wrong, so the exit code is not that of a refused process.
    assert_eq!(process::code(output.status), 2, "{text}");
    assert!(text.contains("cannot write to /proc: ") && text.contains("; give another place with -o"), "{text}");
    assert!(cycle(target.pid, "0s").code == 0);
}

#[test]
fn a_child_of_a_recorded_process_is_a_process_of_its_own() {
    let mut target =
        Target::spawn(Command::new("/bin/sh").args(["-c", "echo up; read a; (read b; echo $b) ; echo end"]));
    assert_eq!(target.line(), "up");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    target.send("go");
    let child = below(target.pid, "dash");
    // The child has its parent's patches and a closed gate. Attaching to the child repairs both and records it.
    let inner = cycle(child, "50ms");
    assert_eq!(inner.code, 0, "{}", inner.text);
    target.send("word");
    assert_eq!((target.line(), target.line()), ("word".to_owned(), "end".to_owned()));
    let ended = session.wait();
    assert_eq!(ended.code, 0, "{}", ended.text);
}
