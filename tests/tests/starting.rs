//! The start of a recording: signals that arrive while the program is being started, several recordings with one name,
//! and programs with a sanitizer. Also a recording in KDE's format on a full disk.
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report, process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `sleep 20` under heaptrack. It exits with 0 only if no signal reached it.
fn start_sleep(folder: &Folder, front: &[&str]) -> Child {
    let mut command = with_default_signals(heaptrack());
    command.args(front).args(["sleep", "20"]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// At whatever step of the start a signal arrives, it ends the program or heaptrack.
#[test]
fn a_signal_during_the_start_is_not_lost() {
    let folder = Folder::new();
    for front in [&["-q", "-r", "-o", "t", "--"][..], &["heaptrace"]] {
        for step in 0..40 {
            let start = Instant::now();
            let mut child = start_sleep(&folder, front);
            while start.elapsed() < Duration::from_micros(500 * step) {
                std::hint::spin_loop();
            }
            process::signal("TERM", &[child.id()]);
            assert_eq!(process::code(child.wait().unwrap()), 143, "{front:?}, {} us after the start", 500 * step);
        }
    }
}

/// Types Ctrl-C into a terminal after each of many delays. Prints the exit codes that are not those of SIGINT.
const TYPING: &str = "
import os, pty, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
for step in range(30):
    ready, say = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.write(say, b'x')
        os.execv(sys.argv[1], [sys.argv[1], '-q', '-r', '-o', 't', '--', 'sleep', '20'])
    os.read(ready, 1)
    begin = time.monotonic()
    while time.monotonic() - begin < step * 0.0007: pass
    os.write(terminal, b'\\x03')
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    if status not in (130, -2): print(step, status)
";

#[test]
fn ctrl_c_during_the_start_is_not_lost() {
    let folder = Folder::new();
    let mut command = Command::new("python3");
    command.args(["-c", TYPING]).arg(heaptrack()).current_dir(folder.path());
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Records a shell that waits until the file `go` exists. Its last argument identifies its trace.
fn waiting_shell(folder: &Folder, number: usize, output: &Path) -> Child {
    let mut command = Command::new(heaptrack());
    let script = format!("until [ -e '{}' ]; do sleep 0.01; done", folder.join("go").display());
    command.args(["-r", "-o"]).arg(output).args(["--", "sh", "-c", &script, "sh", &number.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn number_of(trace: &Path) -> usize {
    let report = Report::of(trace);
    assert!(report.complete());
    report.json()["command"].as_array().unwrap().last().unwrap().as_str().unwrap().parse().unwrap()
}

#[test]
fn a_name_that_is_being_written_is_refused() {
    let folder = Folder::new();
    let trace = folder.join("trace.htz");
    let first = waiting_shell(&folder, 1, &trace);
    process::wait_for("the trace", || trace.exists().then_some(()));
    let does_not_wait = Folder::new();
    std::fs::write(does_not_wait.join("go"), "").unwrap();
    let second = waiting_shell(&does_not_wait, 2, &trace).wait_with_output().unwrap();
    std::fs::write(folder.join("go"), "").unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(process::code(second.status), 126, "{said}");
    assert!(said.contains("is being written by another recording"), "{said}");
    assert_eq!(process::code(first.wait_with_output().unwrap().status), 0);
    assert_eq!(number_of(&trace), 1);
    // A finished trace may be replaced.
    assert_eq!(process::code(waiting_shell(&folder, 3, &trace).wait().unwrap()), 0);
    assert_eq!(number_of(&trace), 3);
}

#[test]
fn recordings_that_start_at_once_with_one_name_are_all_there() {
    let folder = Folder::new();
    let trace = folder.join("trace.htz");
    let children: Vec<Child> = (0..6).map(|number| waiting_shell(&folder, number, &trace)).collect();
    let is_named = |name: &str| name.starts_with("trace");
    // Each recording has a name of its own, or was refused.
    let mut children: Vec<Option<Child>> = children.into_iter().map(Some).collect();
    let mut refused = 0;
    process::wait_for("all names", || {
        for child in &mut children {
            if child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some()) {
                let output = child.take().unwrap().wait_with_output().unwrap();
                assert_eq!(process::code(output.status), 126, "{}", String::from_utf8_lossy(&output.stderr));
                refused += 1;
            }
        }
        let named = folder.names().iter().filter(|name| is_named(name)).count();
        (named + refused == 6).then_some(())
    });
    std::fs::write(folder.join("go"), "").unwrap();
    for (number, child) in children.into_iter().enumerate() {
        let Some(child) = child else { continue };
        let said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
        let path =
            said.lines().find_map(|line| line.strip_prefix("heaptrack: ")?.split_once(" (").map(|(path, _)| path));
        let path = PathBuf::from(path.unwrap_or_else(|| panic!("{said}")));
        assert_eq!(number_of(&path), number, "{said}");
    }
}

/// GCC's AddressSanitizer is a shared library. Clang's sanitizers are linked into the program and are recognised by one
/// of their functions.
#[test]
fn programs_built_with_a_sanitizer_are_refused() {
    let folder = Folder::new();
    let source = folder.join("main.c");
    for (code, flag, name) in [
        ("", "-fsanitize=address", "AddressSanitizer"),
        ("void __asan_init(void) {}", "-O1", "AddressSanitizer"),
        ("void __hwasan_init(void) {}", "-O1", "HWAddressSanitizer"),
        ("void __msan_init(void) {}", "-rdynamic", "MemorySanitizer"),
    ] {
        let program = folder.join("program");
        std::fs::write(&source, format!("{code}\nint main(void) {{ return 0; }}\n")).unwrap();
        let built = Command::new("cc").arg(flag).arg(&source).arg("-o").arg(&program).output().unwrap();
        assert!(built.status.success(), "{flag}: {}", String::from_utf8_lossy(&built.stderr));
        let outcome = Program::new(&program).recorded();
        assert_eq!(outcome.code, 126, "{flag}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("is built with {name},")), "{}", outcome.stderr);
        assert_eq!((outcome.stderr.lines().count(), outcome.trace.exists()), (1, false), "{}", outcome.stderr);
    }
}

/// If the disk gets full, a trace that should be in KDE's format is not converted. The messages name the file that is
/// there, a trace in our format.
#[test]
fn a_full_disk_names_the_file_that_is_there() {
    let folder = Folder::new();
    let script = format!(
        "mount -t tmpfs -o size=64k none /mnt && cd /mnt && {} -r -o c.zst -- {} {} 300000 early; code=$?; ls > {}; exit $code",
        heaptrack().display(),
        target("renewal").display(),
        folder.join("counters").display(),
        folder.join("names").display()
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let names = std::fs::read_to_string(folder.join("names")).unwrap();
    assert_eq!(names.lines().collect::<Vec<_>>(), ["c.zst.htz"], "{said}");
    assert!(said.contains("c.zst.htz ends early"), "the precondition of this test does not hold: {said}");
    assert!(!said.replace("c.zst.htz", "").contains("c.zst"), "{said}");
    assert!(said.contains("events were dropped because the trace could not be written"), "{said}");
}
