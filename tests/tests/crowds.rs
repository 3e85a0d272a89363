//! Many threads at once. Each has its own slot, no event of any thread is lost, and the memory per thread is small.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::{Program, Report, scale};

/// 20 times in a soak, once otherwise.
fn times() -> u64 {
    if scale::soak() { 20 } else { 1 }
}

/// Asserts that the threads together allocated and freed `each` blocks of 40 bytes per thread and kept one of 24 bytes
/// per thread, and that no free was implied.
fn assert_exact(report: &Report, threads: u64, each: u64) {
    let of_size = |size| (report.of_size(size).allocations, report.of_size(size).leaked_allocations);
    assert_eq!(of_size(40), (threads * each, 0));
    assert_eq!(of_size(24), (threads, threads));
    assert_eq!(report.json()["totals"]["implied_frees"].as_u64(), Some(0));
}

fn launched(threads: u64, each: u64) {
    for _ in 0..times() {
        let outcome = Program::target("crowd").arg(threads.to_string()).arg(each.to_string()).recorded();
        assert_eq!(outcome.stdout, format!("done {threads} {each}\n"), "{}", outcome.stderr);
        let report = outcome.whole_report();
        assert_exact(&report, threads, each);
        assert_eq!(report.total("unknown_frees"), 0);
        if threads >= 20_000 {
            let per_thread = report.total("overhead_bytes") / threads;
            assert!(per_thread <= 128_000, "{per_thread} bytes a thread");
        }
    }
}

fn attached(threads: u64, each: u64) {
    for _ in 0..times() {
        let mut target = Target::start("crowd", &[&threads.to_string(), &each.to_string(), "attach"]);
        assert_eq!(target.line(), "ready");
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("go"), format!("done {threads} {each}"));
        let report = session.wait().report();
        assert!(report.complete());
        assert_exact(&report, threads, each);
        assert_eq!(target.finish().0, 0);
    }
}

#[test]
fn fifteen_hundred_threads() {
    launched(1500, 2000);
    attached(1500, 2000);
}

#[test]
fn five_thousand_threads() {
    launched(5000, 200);
    attached(5000, 200);
}

#[test]
fn twenty_thousand_threads() {
    launched(20_000, 20);
    attached(20_000, 20);
}
