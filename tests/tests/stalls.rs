//! A recorder that is stopped. The program loses a bounded time, its lost events are counted, and it ends as it would
//! alone. While a recorder works, no event is lost.
use heaptrack_tests::run::Running;
use heaptrack_tests::{Program, process, report::Report, scale};
use std::time::{Duration, Instant};

const THREADS: usize = 2;

fn program() -> Program {
    Program::target("stalled").arg(THREADS.to_string()).arg(scale::count(10_000_000).to_string())
}

/// Waits until all threads of the target have started.
fn ready(running: &Running, program: &Program) -> u32 {
    let target = running.target(program);
    process::wait_for("the threads", || {
        (std::fs::read_dir(format!("/proc/{target}/task")).ok()?.count() == THREADS + 1).then_some(())
    });
    process::wait_for("the target to wait", || (process::state(target) == Some('S')).then_some(()));
    target
}

/// The program closes its standard input when its threads are done.
fn wait_for_threads(target: u32) {
    let input = format!("/proc/{target}/fd/0");
    process::wait_for("the threads to be done", || std::fs::symlink_metadata(&input).is_err().then_some(()));
}

/// The number of all events of the program, from a run without a stalled recorder.
fn all_events() -> u64 {
    let program = program();
    let running = program.start();
    let target = ready(&running, &program);
    process::signal("USR1", &[target]);
    wait_for_threads(target);
    process::signal("USR1", &[target]);
    running.finish().whole_report().seen_and_lost().0
}

/// Stops the recorder while the threads work. Returns how long they took, and the report.
fn with_stopped_recorder(program: &Program) -> (Duration, Report) {
    let running = program.start();
    let target = ready(&running, program);
    process::signal("STOP", &[running.pid()]);
    let since = Instant::now();
    process::signal("USR1", &[target]);
    wait_for_threads(target);
    let took = since.elapsed();
    if scale::soak() {
        std::thread::sleep(Duration::from_secs(60).saturating_sub(took));
    }
    process::signal("CONT", &[running.pid()]);
    // Each thread had filled its ring. When this many events are in the file, the recorder has emptied both rings.
    process::wait_for("the recorder to go on", || {
        let (seen, _) = Report::try_of(&running.trace).ok()?.seen_and_lost();
        (seen > THREADS as u64 * (1 << 16) / 5 * 2 - 1000).then_some(())
    });
    process::signal("USR1", &[target]);
    let outcome = running.finish();
    assert_eq!(outcome.code, 7, "{}", outcome.stderr);
    (took, outcome.report())
}

#[test]
fn a_stopped_recorder_costs_each_thread_its_budget_and_no_more() {
    let (took, report) = with_stopped_recorder(&program().option("--max-stall").option("1s"));
    // Both threads wait at the same time, so they take one budget together. The rest of the limit is for a slow
    // machine.
    assert!(took > Duration::from_millis(900), "the budget was not used: {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let (seen, lost) = report.seen_and_lost();
    assert!(lost > 0);
    assert_eq!(seen + lost, all_events());
    assert!(!report.complete(), "events are missing");
    // Each thread waited for its second, and not for longer than the threads took.
    let waited = Duration::from_nanos(report.json()["waited_for_recorder_ns"].as_u64().expect("a number"));
    assert!(waited > Duration::from_millis(900) * THREADS as u32, "{waited:?}");
    assert!(waited < took * THREADS as u32, "{waited:?} in {took:?}");
    assert_eq!(report.of_size(77).allocations, 100, "recording continues when the recorder does");
}

#[test]
fn on_full_drop_never_waits() {
    // If a thread waited, it would wait for 30 s, which is the default of `--max-stall`.
    let (took, report) = with_stopped_recorder(&program().option("--on-full").option("drop"));
    assert!(took < Duration::from_secs(20), "{took:?}");
    let (seen, lost) = report.seen_and_lost();
    assert!(lost > 0);
    assert_eq!(seen + lost, all_events());
    assert_eq!(report.json()["waited_for_recorder_ns"], 0);
}

/// Backpressure: the recorder works all the time, so no event may be dropped, however long the run takes.
#[test]
fn a_working_recorder_drops_nothing() {
    let seconds = if scale::soak() { 60 } else { 3 };
    let outcome =
        Program::target("churn_time").arg(seconds.to_string()).option("--max-stall").option("100ms").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let counted: u64 = outcome.stdout.trim().parse().expect("a number");
    let report = outcome.whole_report();
    let own = report.of_size(40);
    assert_eq!((own.allocations, own.leaked_allocations), (counted, 0));
}
