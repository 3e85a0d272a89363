//! A heaptrack that is built with the feature `checks` ends the program at the first event for which a check fails.
//!
//! The tests corrupt the shared memory from outside, so they run the checks exactly as that build ships them.
use heaptrack_tests::channel_memory::ChannelMemory;
use heaptrack_tests::process::wait_for;
use heaptrack_tests::{Folder, Program};

/// Corrupts the slots of a running program until it has ended, and expects the failure of this check.
fn expect(check: u32, finding: &str, spoil: impl Fn(&ChannelMemory, usize)) {
    let folder = Folder::new();
    // The program sleeps nearly all of the time, so its next event rarely overwrites the corruption before the check
    // sees it.
    let program = Program::target("counter").arg(folder.join("counted")).args(["1", "20000"]);
    let running = program.start();
    running.target(&program);
    let memory = wait_for("the shared memory", || ChannelMemory::of(running.pid()));
    let outcome = running.finish_while(|| {
        (0..2).for_each(|slot| spoil(&memory, slot));
        std::thread::sleep(std::time::Duration::from_millis(5));
    });
    let sentence = format!("heaptrack stopped the program: its check {check} failed ({finding}).");
    assert!(outcome.stderr.contains(&sentence), "{}", outcome.stderr);
    assert_eq!(outcome.code, 70);
    assert!(!outcome.report().complete());
}

#[test]
fn a_head_that_its_writer_did_not_move() {
    expect(2, "the head of a ring was not where its writer had left it", ChannelMemory::move_head);
}

#[test]
fn an_event_that_was_counted_and_not_written() {
    expect(3, "the events that were written were not those that were begun", ChannelMemory::count_event);
}
