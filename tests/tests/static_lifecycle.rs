//! The life of a program that heaptrack patches at its start: signals, forks, a recorder that is killed, and a kernel that
//! does not allow to trace.
use heaptrack_tests::attach::{detach, refusal};
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::process::{self, signal};
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Programs that heaptrack patches at their start: before the first instruction, and before the first constructor.
const PATCHED: [&str; 3] = ["counting_static", "counting_musl_static", "counting_jemalloc"];
/// How many moments of the start are tried. They are half a millisecond apart.
const STEPS: u64 = 30;

/// Starts a program that waits for a line, under heaptrack.
fn start_waiting(folder: &Folder, front: &[&str], name: &str) -> Child {
    let mut command = with_default_signals(heaptrack());
    command.args(front).arg(target(name)).arg("wait").current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn spin(since: Instant, time: Duration) {
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn a_signal_during_the_start_is_not_lost() {
    let folder = Folder::new();
    for name in PATCHED {
        for front in [&["-q", "-o", "t", "--"][..], &["heaptrace"]] {
            for step in 0..STEPS {
                let start = Instant::now();
                let mut child = start_waiting(&folder, front, name);
                // `wait` would close it, and a program that reads the end of its input before the signal comes ends by itself.
                let _input = child.stdin.take();
                spin(start, Duration::from_micros(500 * step));
                signal("TERM", &[child.id()]);
                assert_eq!(process::code(child.wait().unwrap()), 143, "{name} {front:?}, {} us", 500 * step);
            }
        }
    }
}

/// At whatever step of the start the recorder is killed, the program runs to its end, or has not begun.
#[test]
fn a_recorder_that_is_killed_during_the_start_leaves_the_program_alone() {
    let folder = Folder::new();
    for name in PATCHED {
        let whole = format!("ready\n{}", Program::target(name).alone().stdout);
        let mut endings = [0; 2];
        for step in 0..2 * STEPS {
            let start = Instant::now();
            let mut child = start_waiting(&folder, &["-q", "-o", "t", "--"], name);
            let mut input = child.stdin.take().unwrap();
            spin(start, Duration::from_micros(500 * step));
            signal("KILL", &[child.id()]);
            assert_eq!(process::code(child.wait().unwrap()), 137);
            // If the program has not begun, the pipe is closed, or the line is never read.
            let _ = input.write_all(b"go\n");
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            assert!(said.is_empty() || said == whole, "{name}, {} us: {said}", 500 * step);
            endings[usize::from(said.is_empty())] += 1;
        }
        assert!(endings[0] > 0, "{name}: no program had begun");
    }
}

#[test]
fn forked_children_run_unrecorded_and_forks_in_a_handler_do_no_harm() {
    let report = Program::target("children_static").same_output().whole_report();
    let counts = [1001, 2002, 3003, 11].map(|size| report.counts(size));
    assert_eq!(counts, [(1, 0), (0, 0), (1, 1), (1, 1)]);
    let report = Program::target("fork_in_handler_static").same_output().whole_report();
    assert_eq!(report.counts(1000), (2_000_000, 0));
    assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0));
}

#[test]
fn a_malloc_before_there_is_a_thread_pointer_is_counted_as_lost() {
    let outcome = Program::target("early_malloc").same_output();
    assert_eq!(outcome.code, 6);
    let report = outcome.report();
    assert_eq!((report.counts(31), report.counts(32)), ((0, 0), (5, 3)));
    assert_eq!(report.total("lost_events"), 3);
    let losses = &report.json()["losses"];
    assert!(losses.to_string().contains("no_thread_pointer"), "{losses}");
    assert!(outcome.stderr.contains("the program had not set up its thread pointer yet"), "{}", outcome.stderr);
}

#[test]
fn a_launched_program_is_neither_attached_to_nor_detached_from() {
    let program = Program::target("attach_phases_static");
    let folder = Folder::new();
    let mut command = with_default_signals(heaptrack());
    command.args(["-q", "-o", "t", "--"]).arg(&program.path).current_dir(folder.path());
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = process::target_of(recorder.id(), program.path.as_ref());
    process::wait_for("a program that reads", || (process::state(pid) == Some('S')).then_some(()));
    let (code, said) = refusal(pid);
    assert!(code == 3 && said.contains("was started by heaptrack"), "{said}");
    let (code, said) = detach(pid);
    assert!(code == 3 && said.contains(&format!("is recorded by process {}", recorder.id())), "{said}");
    drop(recorder.stdin.take());
    assert_eq!(process::code(recorder.wait().unwrap()), 0);
    assert!(folder.join("t.htz").exists());
}

/// A filter that answers ptrace with EPERM, as some containers have one, and then a command.
const WITHOUT_PTRACE: &str = "
import ctypes, os, struct, sys
def bpf(code, jt, jf, k): return struct.pack('HBBI', code, jt, jf, k)
rules = bpf(0x20, 0, 0, 0) + bpf(0x15, 0, 1, 101) + bpf(6, 0, 0, 0x00050001) + bpf(6, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(rules)
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_kernel_that_refuses_to_trace_is_named() {
    let folder = Folder::new();
    let run = |front: &[&str], name: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", WITHOUT_PTRACE]).arg(heaptrack()).args(front).arg(target(name));
        let output = command.current_dir(folder.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (process::code(output.status), text(&output.stdout), text(&output.stderr))
    };
    for front in [&["-o", "t", "--"][..], &["heaptrace"]] {
        let (code, out, said) = run(front, "hello_static");
        assert_eq!((code, out.as_str(), said.lines().count()), (126, "", 1), "{said}");
        let sentence = "the kernel does not allow heaptrack to trace a program that it starts";
        assert!(said.contains(sentence) && said.contains("Operation not permitted"), "{said}");
    }
    assert_eq!(folder.names(), Vec::<String>::new());
    let (code, out, said) = run(&["-q", "-o", "t", "--"], "hello");
    assert_eq!((code, out.as_str(), said.as_str()), (0, "hello 1 \n", ""), "a dynamic program needs no ptrace");
}

#[test]
fn a_program_that_another_tool_traces_is_refused() {
    let folder = Folder::new();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]).arg(heaptrack()).args(["-o", "t", "--"]).arg(target("hello_static"));
    let output = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((process::code(output.status), output.stdout.len()), (126, 0), "{said}");
    assert!(said.contains("is traced already by strace"), "{said}");
}

#[test]
fn heaptrace_watches_static_programs_and_the_dynamic_ones_that_they_become() {
    for name in PATCHED {
        let traced = Heaptrace::new([target(name).to_str().unwrap()]).run();
        assert_eq!(traced.code, 7, "{}", traced.stderr);
        // 10 blocks of main and 40 of the threads.
        assert!(
            traced.stderr.contains("[count/peak: 10/10]") && traced.stderr.contains("[count/peak: 40/40]"),
            "{}",
            traced.stderr
        );
    }
    let (execs, counting) = (target("execs_static"), target("counting"));
    let traced = Heaptrace::new([execs.to_str().unwrap(), counting.to_str().unwrap()]).run();
    assert_eq!(traced.code, 7, "{}", traced.stderr);
    assert!(traced.stderr.contains("[count/peak: 40/40]"), "{}", traced.stderr);
}
