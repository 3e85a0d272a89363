//! Threads that wait in system calls. Stopping a thread must not end its wait.
use heaptrack_tests::attach::{Target, cycle};
use heaptrack_tests::process::wait_for;
use heaptrack_tests::scale;

#[test]
fn forty_six_kinds_of_blocked_system_calls_stay_blocked() {
    let mut target = Target::start("attach_blocked", &[]);
    let kinds: usize = target.line().strip_prefix("ready ").unwrap().parse().unwrap();
    assert_eq!(kinds, 46);
    wait_for("all threads to wait", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid)).ok()?;
        let waits = |task: &std::path::Path| {
            std::fs::read_to_string(task.join("syscall")).is_ok_and(|text| !text.starts_with("running"))
        };
        tasks.filter_map(Result::ok).all(|task| waits(&task.path())).then_some(())
    });
    for number in 0..scale::count(200) {
        let ended = cycle(target.pid, "1ms");
        assert_eq!(ended.code, 0, "{}", ended.text);
        assert_eq!(target.tell(""), "none", "cycle {number}: these calls have returned, with errno");
    }
}
