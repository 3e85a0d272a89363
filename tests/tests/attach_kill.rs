//! `kill -9` of heaptrack at any moment of attach, recording and detach. The program lives on, computes the right
//! results, and can be attached to again.
use heaptrack_tests::attach::{Session, Target, cycle, detach};
use heaptrack_tests::{Chance, scale};
use std::time::Duration;

/// heaptrack is killed 150 times here and 150 times in `at_any_moment_while_threads_come_and_go`; a tenth of that
/// without a soak.
#[test]
fn at_any_moment_while_allocating() {
    at_any_moment("attach_throw", scale::count(150), |target| {
        let (code, text) = target.finish();
        assert!(code == 0 && text.ends_with("\n") && text.contains("right"), "{code} {text}");
    });
}

/// heaptrack is killed another 100 times, while the functions are hooked in the modules' import tables.
#[test]
fn at_any_moment_while_tables_are_changed() {
    at_any_moment("attach_throw_short", scale::count(100), |target| {
        assert_eq!(target.redirected(), 0);
        let (code, text) = target.finish();
        assert!(code == 0 && text.contains("right"), "{code} {text}");
    });
}

#[test]
fn at_any_moment_while_threads_come_and_go() {
    at_any_moment("attach_churn", scale::count(150), |target| {
        let (code, text) = target.finish();
        assert!(code == 0 && text.contains("right"), "{code} {text}");
    });
}

fn at_any_moment(name: &str, count: u64, end: impl FnOnce(Target)) {
    let mut chance = Chance::new("kill heaptrack");
    let mut target = Target::start(name, &[]);
    assert_eq!(target.line(), "ready");
    let (code, descriptors) = (target.code(), target.descriptors());
    let mut attached = 0;
    for number in 0..count {
        let mut session = Session::start(target.pid, &["--no-symbols", "--duration", "20ms"]);
        let killed = match number % 3 {
            // Kill heaptrack while it attaches.
            0 => {
                std::thread::sleep(Duration::from_micros(chance.between(0, 40_000)));
                false
            }
            // Kill heaptrack while it records or detaches.
            _ => {
                let is_attached = session.wait_until_attached();
                assert!(is_attached, "cycle {number}: {}", session.wait().text);
                std::thread::sleep(Duration::from_micros(chance.between(0, 60_000)));
                true
            }
        };
        attached += killed as u64;
        session.kill();
        assert!(target.is_alive(), "cycle {number}");
        if number % 4 == 0 {
            let (status, text) = detach(target.pid);
            // There is nothing to restore if heaptrack died before it had changed anything.
            assert!(status == 0 || text.contains("nothing of heaptrack is in process"), "cycle {number}: {text}");
        }
        if number % 5 == 0 {
            let ended = cycle(target.pid, "5ms");
            assert_eq!(ended.code, 0, "cycle {number}: {}", ended.text);
        }
    }
    assert!(attached > 0);
    assert_eq!(cycle(target.pid, "5ms").code, 0);
    assert_eq!(target.code(), code, "the original code is restored");
    assert_eq!(target.descriptors(), descriptors);
    end(target);
}
