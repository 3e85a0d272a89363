//! Programs that deny themselves the time stamp counter or system calls. They end as they would alone, and what they
//! allocate afterwards is recorded.
use heaptrack_tests::attach::{Session, Target, refusal};
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::process;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Program, Report};

/// The ways to give up the counter through libc, by the first argument of `forbidden`.
const WAYS: [&str; 5] = ["tsc", "tsc_syscall", "strict", "strict_syscall", "strict_seccomp"];
const NOTE: &str = "may not read the time stamp counter";

/// Asserts that totals and pairs are exact: no event was lost, and no free was missed or out of order.
fn assert_exact(report: &Report, allocations: u64) {
    assert_eq!(report.counts(70), (allocations, 0));
    assert_eq!(["lost_events", "implied_frees", "unknown_frees"].map(|name| report.total(name)), [0; 3]);
}

/// The number of calls for blocks of `bytes`, recorded or lost, in a program where only these can be lost.
fn calls_of_size(report: &Report, bytes: u64) -> u64 {
    let blocks = report.of_size(bytes);
    let matched = blocks.allocations + blocks.freed() - report.total("implied_frees");
    matched + report.total("unknown_frees") + report.total("lost_events")
}

fn note(report: &Report) -> &str {
    report.json()["losses"]["note"].as_str().unwrap_or("")
}

/// Attaches to a waiting `forbidden`. If `order` is "before", it waits before it gives up the counter, and if it is
/// "after", after that. Asserts that it ends as it would alone and that every block is recorded.
fn assert_recorded_when_attached(way: &str, order: &str) {
    let mut target = Target::start("forbidden", &[way, order]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done", "{way}");
    let ended = session.wait();
    assert_eq!((ended.code, target.finish()), (0, (5, String::new())), "{way}: {}", ended.text);
    let report = ended.report();
    assert_eq!((report.of_size(90).allocations, report.total("lost_events")), (5000, 0), "{way}");
    assert!(note(&report).contains(NOTE), "{way}: {}", note(&report));
}

/// Records `forbidden_threads` from its start.
fn report_of_threads(what: &str, stdout: &str) -> Report {
    let outcome = Program::target("forbidden_threads").arg(what).same_output();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, stdout));
    outcome.whole_report()
}

/// Attaches to a waiting `forbidden_threads`, and asserts that what it does afterwards is recorded exactly.
fn assert_exact_when_attached(what: &str, said: &str, allocations: u64) {
    let mut target = Target::start("forbidden_threads", &[what, "wait"]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), said);
    assert_exact(&session.wait().report(), allocations);
}

#[test]
fn a_program_that_switches_the_time_stamp_counter_off() {
    for way in WAYS {
        let outcome = Program::target("forbidden").arg(way).same_output();
        assert_eq!((outcome.code, outcome.stdout.as_str()), (5, "done\n"), "{way}");
        let report = outcome.whole_report();
        assert_eq!(report.counts(90), (5000, 0), "{way}");
        assert!(note(&report).contains(NOTE), "{way}: {}", note(&report));
    }
    let outcome = Program::target("forbidden").arg("nothing").same_output();
    assert_eq!((outcome.code, note(&outcome.whole_report())), (5, ""));
}

#[test]
fn the_text_report_says_that_the_counter_was_switched_off() {
    let outcome = Program::target("forbidden").arg("tsc").recorded();
    let text = std::process::Command::new(heaptrack_tests::run::heaptrack())
        .args(["print", "--full"])
        .arg(&outcome.trace)
        .output();
    assert!(String::from_utf8_lossy(&text.unwrap().stdout).contains(NOTE));
}

#[test]
fn heaptrace_without_the_time_stamp_counter() {
    for way in WAYS {
        let traced = Heaptrace::new([target("forbidden").to_str().unwrap(), way]).run();
        assert_eq!((traced.code, traced.stdout.as_str()), (5, "done\n"), "{way}: {}", traced.stderr);
    }
    let traced = Heaptrace::new([target("forbidden_threads").to_str().unwrap(), "starts"]).run();
    assert_eq!((traced.code, traced.stdout.as_str()), (0, "started 4\n"), "{}", traced.stderr);
}

#[test]
fn a_program_that_switches_the_counter_off_while_attached() {
    for way in WAYS {
        assert_recorded_when_attached(way, "before");
    }
}

/// At the first event of a thread, the library asks the kernel whether the thread may read the counter. Here the
/// program gave up the counter before the attach, so no hook saw it.
#[test]
fn attached_to_a_program_without_the_counter() {
    for way in ["tsc", "tsc_raw"] {
        assert_recorded_when_attached(way, "after");
    }
}

#[test]
fn every_thread_is_looked_at_before_attaching() {
    for (what, sentence) in [("strict", "runs in seccomp's strict mode"), ("filtered", "a seccomp filter of process")] {
        let mut target = Target::start("forbidden_threads", &[what, "wait"]);
        assert_eq!(target.line(), "ready");
        let (code, text) = refusal(target.pid);
        assert!(code == 3 && text.contains(sentence), "{code} {text}");
        assert_eq!(target.tell("go"), "beside 100");
        assert_eq!(target.finish().0, 0);
    }
}

#[test]
fn blocks_that_are_handed_over_stay_in_order() {
    assert_exact_when_attached("handover", "passed 20000", 20_000);
    assert_exact(&report_of_threads("handover", "passed 20000\n"), 20_001);
}

#[test]
fn threads_that_start_without_the_counter() {
    assert_exact(&report_of_threads("starts", "started 4\n"), 4001);
}

/// The hook announces before the call that system calls will be forbidden. If the kernel refuses the call, the hook
/// withdraws the announcement at once, so the next thread is recorded.
#[test]
fn a_filter_that_is_refused_or_of_a_child() {
    for (what, said) in [("refused", "refused 4\n"), ("vfork", "forked\n")] {
        let report = report_of_threads(what, said);
        assert_exact(&report, 101);
        assert_eq!(note(&report), "", "{what}");
    }
    assert_exact_when_attached("refused", "refused 4", 100);
}

/// A thread needs system calls to get a slot, so it gets its slot before it enters the filter.
#[test]
fn a_thread_that_enters_a_filter_before_its_first_block() {
    assert_exact(&report_of_threads("slotless", "slotless done\n"), 1001);
}

/// A thread that installs a filter for all threads first waits for threads that are in the middle of a hook.
#[test]
fn a_filter_for_all_threads() {
    for _ in 0..3 {
        let outcome = Program::target("forbidden_threads").arg("tsync").same_output();
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "synced\n"));
        let report = outcome.report();
        assert_eq!(calls_of_size(&report, 70), 800_002, "{}", outcome.stderr);
    }
}

/// A thread that may not sleep spins while the ring is full. So a busy program in a sandbox loses no event while the
/// recorder works.
#[test]
fn a_sandbox_does_not_cost_events() {
    assert_eq!(Program::target("sandboxed").same_output().whole_report().counts(90), (1_000_000, 0));
}

/// The filter would kill the new program for the system calls with which a recording starts.
#[test]
fn a_program_that_is_executed_in_a_sandbox() {
    let outcome = Program::target("forbidden_exec").arg(target("plain")).same_output();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "plain done\n"));
    assert_eq!(outcome.report().of_size(10).allocations, 1, "calls before the exec are recorded");
    let traced = Heaptrace::new([target("forbidden_exec"), target("plain")]).run();
    assert_eq!((traced.code, traced.stdout.as_str()), (0, "plain done\n"), "{}", traced.stderr);
}

/// The recorder is stopped, so the ring stays full, and the thread may not sleep. The thread spins once, for the time
/// of `--max-stall`, then drops events.
#[test]
fn a_recorder_that_is_stopped_while_the_program_may_not_sleep() {
    let mut target = Target::start("forbidden", &["strict", "before", "1000000"]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols", "--max-stall", "0.05"]);
    process::signal("STOP", &[session.pid()]);
    assert_eq!(target.tell("go"), "done");
    assert_eq!(target.finish(), (5, String::new()));
    process::signal("CONT", &[session.pid()]);
    let ended = session.wait();
    let report = ended.report();
    let (seen, lost) = report.seen_and_lost();
    assert!(lost > 0 && seen > 0, "{}", ended.text);
    assert_eq!(calls_of_size(&report, 90), 2_000_000);
}

/// A sandboxed thread cannot ask the kernel whether it is on an alternate stack. An interrupted hook must still not be
/// taken for one that was left by a jump.
#[test]
fn a_handler_on_an_alternate_stack_in_a_sandbox() {
    for arguments in [&[][..], &["free"]] {
        let outcome = Program::target("sandboxed_handler").args(arguments).recorded();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let reported: u64 = outcome.stdout.trim().parse().expect("a number");
        let report = outcome.report();
        let totals = &report.json()["custom"]["totals"];
        let seen = totals["allocations"].as_u64().unwrap() + totals["deallocations"].as_u64().unwrap();
        assert!(reported > 1_000_100, "the handler ran: {reported}");
        assert_eq!(seen + report.total("lost_events"), 2 * reported, "{arguments:?}: {totals}");
        assert_eq!(report.total("lost_events"), 0, "{arguments:?}");
    }
}
