//! No stray signal ends a recorder while a launched program runs. What is sent to the recorder reaches the program, and the end of
//! the recorder's own CPU time ends only the recording.
use heaptrack_tests::Folder;
use heaptrack_tests::attach::Target;
use heaptrack_tests::process::{self, KilledOnFailure, signal, wait_for};
use heaptrack_tests::report::Report;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use std::fs::{File, read_to_string};
use std::process::{Child, Command, Stdio};

/// The target `signal_log` under a recorder.
struct Recorded {
    folder: Folder,
    recorder: Child,
    _program: KilledOnFailure,
}

impl Recorded {
    /// Returns when the program is ready.
    fn start(words: &[&str], arguments: &[&str]) -> Recorded {
        let folder = Folder::new();
        let mut command = Command::new(heaptrack());
        command.args(words).arg(target("signal_log")).args(arguments).current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(File::create(folder.join("stdout")).unwrap());
        command.stderr(File::create(folder.join("stderr")).unwrap());
        let recorder = command.spawn().unwrap();
        let program = process::target_of(recorder.id(), &target("signal_log"));
        let recorded = Recorded { folder, recorder, _program: KilledOnFailure(program) };
        recorded.wait_until_it_says("ready");
        recorded
    }

    fn is_alive(&self) -> bool {
        process::state(self.recorder.id()).is_some_and(|state| state != 'Z')
    }

    /// Waits until this is the last line of the program. Fails if the recorder ends before.
    fn wait_until_it_says(&self, line: &str) {
        wait_for(line, || {
            assert!(self.is_alive(), "the recorder has ended before {line}");
            let text = read_to_string(self.folder.join("stdout")).unwrap();
            (text.ends_with('\n') && text.lines().last() == Some(line)).then_some(())
        });
    }

    /// Waits until the recorder has written `words`, and returns all that it wrote.
    fn wait_for_message(&self, words: &str) -> String {
        wait_for(words, || {
            assert!(self.is_alive(), "the recorder has ended before {words}");
            Some(self.messages()).filter(|text| text.contains(words))
        })
    }

    fn messages(&self) -> String {
        read_to_string(self.folder.join("stderr")).unwrap()
    }

    fn kill(&self, words: &[&str]) {
        let killed = Command::new("kill").args(words).arg(self.recorder.id().to_string()).status().unwrap();
        assert!(killed.success());
    }

    /// Ends the program through the recorder, and returns the recorder's exit code.
    fn end(mut self) -> i32 {
        signal("TERM", &[self.recorder.id()]);
        process::code(self.recorder.wait().unwrap())
    }

    /// Limits the CPU time of the recorder, which runs already.
    fn limit_cpu_time(&self) {
        let pid = self.recorder.id().to_string();
        assert!(Command::new("prlimit").args(["--pid", &pid, "--cpu=1:60"]).status().unwrap().success());
    }
}

/// Asserts that the program receives all these signals when they are sent to the recorder.
fn are_passed_on(words: &[&str], numbers: &[i32]) {
    let recorded = Recorded::start(words, &[]);
    for number in numbers {
        recorded.kill(&[&format!("-{number}")]);
        recorded.wait_until_it_says(&number.to_string());
    }
    recorded.kill(&["-s", "36", "-q", "77"]);
    recorded.wait_until_it_says("36 77");
    assert_eq!(recorded.end(), 5);
}

const STKFLT: i32 = 16;
const PWR: i32 = 30;
const XCPU: i32 = 24;

#[test]
fn every_signal_reaches_the_program() {
    let all = [1, 2, 3, 10, 12, 14, STKFLT, 18, 23, XCPU, 26, 27, 28, 29, PWR];
    let numbers: Vec<i32> = all.into_iter().chain(34..=64).collect();
    are_passed_on(&["-o", "trace"], &numbers);
}

/// SIGQUIT, SIGUSR1 and SIGUSR2 are for heaptrace itself.
#[test]
fn heaptrace_passes_on_what_is_not_for_itself() {
    let all = [1, 2, 14, STKFLT, 18, 23, XCPU, 26, 27, 28, 29, PWR];
    let numbers: Vec<i32> = all.into_iter().chain(34..=64).collect();
    are_passed_on(&["heaptrace"], &numbers);
}

#[test]
fn a_recorder_without_cpu_time_ends_its_trace() {
    let recorded = Recorded::start(&["-o", "trace"], &["busy"]);
    recorded.limit_cpu_time();
    let text = recorded.wait_for_message("Next: ");
    let sentence = "heaptrack: the CPU time that heaptrack may use (ulimit -t) is over: the recording ends here, the program continues";
    assert!(text.contains(sentence), "{text}");
    let report = Report::of(&recorded.folder.join("trace.htz"));
    assert!(report.of_size(100).allocations > 1000);
    assert!(recorded.is_alive(), "it waits for the program");
    assert_eq!(recorded.end(), 7, "the program ran on");
}

#[test]
fn a_heaptrace_without_cpu_time_reports() {
    let recorded = Recorded::start(&["heaptrace"], &["busy"]);
    recorded.limit_cpu_time();
    let text = recorded.wait_for_message("finalized");
    let sentence = "heaptrace: the CPU time that heaptrace may use (ulimit -t) is over: the watching ends here, all programs continue";
    assert!(text.contains(sentence), "{text}");
    assert!(recorded.is_alive(), "it waits for the program");
    assert_eq!(recorded.end(), 7, "the program ran on");
}

/// Without root, a process cannot raise its hard limit. The recorder lowers its own soft limit, so that the kernel sends it
/// SIGXCPU a second before SIGKILL. The program keeps both limits as they were.
#[test]
fn a_limit_of_cpu_time_is_the_programs_own() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let own = folder.join("heaptrack");
    heaptrack_tests::folder::copy_program(heaptrack(), &own);
    let shell = "echo $(ulimit -St) $(ulimit -Ht); read a; exit 4";
    let mut command = Command::new("prlimit");
    command.args(["--cpu=20:20", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&own);
    command.args(["-o", "trace", "/bin/sh", "-c", shell]).current_dir(folder.path()).stderr(Stdio::null());
    let mut recorder = Target::spawn(&mut command);
    assert_eq!(recorder.line(), "20 20");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", recorder.pid)).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max cpu time")).unwrap();
    assert_eq!(line.split_whitespace().skip(3).collect::<Vec<_>>(), ["19", "20", "seconds"]);
    assert_eq!(recorder.finish().0, 4);
}
