//! `heaptrace` answers every signal once, in order, with the numbers of the moment of the signal.
use heaptrack_tests::heaptrace::{Heaptrace, Part, Traced, dumps, files, parse};
use heaptrack_tests::process::{KilledOnFailure, signal, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, process};
use std::process::{Child, Command, Stdio};

/// (key, blocks, bytes) of keep() in each report.
fn kept(traced: &Traced) -> Vec<(String, u64, u64)> {
    let dumps = traced.dumps();
    dumps.iter().map(|dump| (dump.lists[0].0.clone(), dump.of("keep").0, dump.of("keep").1)).collect()
}

#[test]
fn ten_signals_at_once_give_ten_reports() {
    for _ in 0..5 {
        let traced = Heaptrace::new([""; 0]).target("trace_ten").run();
        assert_eq!(traced.code, 0, "{}", traced.stderr);
        let mut expected: Vec<_> = (1..=10).map(|n| ("size".to_owned(), n, 1000 * n)).collect();
        expected.push(("count".to_owned(), 10, 10_000));
        expected.push(("size".to_owned(), 1, 5));
        assert_eq!(kept(&traced), expected, "{}", traced.stderr);
        assert!(!traced.parts().iter().any(|part| matches!(part, Part::Sentence(_))), "{}", traced.stderr);
    }
}

/// The queue is bounded. Signals that do not fit are counted, and the count is printed.
#[test]
fn more_signals_than_the_queue_holds_are_counted() {
    let traced = Heaptrace::new([""; 0]).target("trace_ten").arg("3000").run();
    let reports = kept(&traced);
    // The last report is the one at the program's end.
    let answered = reports.len() as u64 - 1;
    assert!(reports.is_sorted_by_key(|report| report.1), "in order");
    let missing = traced.parts().into_iter().find_map(|part| match part {
        Part::Sentence(text) => text.split_once(" report").and_then(|(count, _)| count.parse::<u64>().ok()),
        _ => None,
    });
    assert_eq!(answered + missing.unwrap_or(0), 3000, "{answered} answered");
}

/// A running `heaptrace trace_attach` that was started with some signals ignored. A background job of a script starts
/// with SIGQUIT ignored.
struct Watched {
    folder: Folder,
    child: Child,
    program: KilledOnFailure,
}

impl Watched {
    fn start(ignored: &str) -> Self {
        let mut command = Command::new("env");
        command.arg(format!("--ignore-signal={ignored}"));
        Self::start_with(command)
    }

    /// `command` is a tool that runs the program that follows, in the same process.
    fn start_with(mut command: Command) -> Self {
        let folder = Folder::new();
        command.arg(heaptrack_tests::run::heaptrack()).arg("heaptrace");
        command.arg("--outfile").arg(folder.join("log")).arg(target("trace_attach"));
        let stdout = std::fs::File::create(folder.join("stdout")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(stdout).spawn().unwrap();
        let program = process::target_of(child.id(), &target("trace_attach"));
        let watched = Watched { folder, child, program: KilledOnFailure(program) };
        watched.wait_until_it_says("ready");
        wait_for("the first line", || watched.log().contains("initialized").then_some(()));
        watched
    }

    fn wait_until_it_says(&self, word: &str) {
        wait_for(word, || std::fs::read_to_string(self.folder.join("stdout")).ok().filter(|text| text.contains(word)));
    }

    fn log(&self) -> String {
        files(&self.folder, "log").pop().map_or(String::new(), |(_, _, text)| text)
    }

    /// Lets the program keep ten more blocks and end. Returns (key, blocks, bytes) of keep() in each report.
    fn end(mut self) -> Vec<(String, (u64, u64))> {
        signal("USR1", &[self.program.0]);
        self.wait_until_it_says("kept");
        signal("TERM", &[self.program.0]);
        assert_eq!(self.child.wait().unwrap().code(), Some(6));
        dumps(parse(&self.log())).iter().map(|dump| (dump.lists[0].0.clone(), dump.of("keep"))).collect()
    }
}

#[test]
fn inherited_ignored_signals_are_answered() {
    let watched = Watched::start("QUIT,USR2");
    signal("USR2", &[watched.program.0]);
    wait_for("a report", || watched.log().contains("statm").then_some(()));
    signal("QUIT", &[watched.program.0]);
    let expected = [("count".to_owned(), (5, 555)), ("size".to_owned(), (10, 5550))];
    assert_eq!(watched.end(), expected, "the second window has the blocks that came after it");
}

/// SIGQUIT and SIGUSR1 are pending together, and the kernel hands out SIGQUIT first. The report must still be about the
/// old window.
#[test]
fn a_report_goes_before_a_new_window() {
    for _ in 0..3 {
        let watched = Watched::start("HUP");
        let heaptrace = watched.child.id();
        signal("STOP", &[heaptrace]);
        wait_for("the stop", || (process::state(heaptrace) == Some('T')).then_some(()));
        signal("QUIT", &[heaptrace]);
        signal("USR1", &[heaptrace]);
        signal("CONT", &[heaptrace]);
        wait_for("a report", || watched.log().contains("statm").then_some(()));
        assert_eq!(watched.end(), [("size".to_owned(), (5, 555)), ("size".to_owned(), (10, 5550))]);
    }
}

/// The thread that waits for the program is the last one that is started while the program runs. Without it, reports are
/// still written and signals are still answered.
#[test]
fn a_thread_that_cannot_be_started_delays_no_report() {
    let folder = Folder::new();
    let log = folder.join("calls");
    let strace = |inject: &str| {
        let mut command = Command::new("strace");
        // The program that strace runs is our child, and strace itself is not.
        command.args(["-D", "-qq", "-e", "trace=clone3", "-e", "signal=none"]).args(["-e", inject]).arg("-o");
        command.arg(&log);
        command
    };
    let mut plain = strace("status=successful");
    plain.arg(heaptrack_tests::run::heaptrack()).arg("heaptrace").arg(target("hello"));
    assert!(plain.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    // The last thread of that run wrote the report at the end.
    let calls = wait_for("strace", || std::fs::read_to_string(&log).ok().filter(|text| !text.is_empty()));
    let waiter = calls.lines().filter(|line| line.starts_with("clone3")).count() - 1;
    let watched = Watched::start_with(strace(&format!("inject=clone3:error=EAGAIN:when={waiter}+")));
    signal("USR2", &[watched.child.id()]);
    wait_for("a report", || watched.log().contains("statm").then_some(()));
    let calls = std::fs::read_to_string(&log).unwrap();
    assert_eq!(calls.lines().filter(|line| line.contains("INJECTED")).count(), 1, "{calls}");
    let expected = [("count".to_owned(), (5, 555)), ("size".to_owned(), (15, 6105))];
    assert_eq!(watched.end(), expected);
}
