//! `tests/targets/attach_phases.c`, which allocates on command, and what a recording of it must contain.
use crate::attach::{Session, Target};
use crate::report::{Report, assert_modules_apart};

/// The sizes of the blocks that one round of `attach_phases` allocates.
const SIZES: [u64; 9] = [1001, 1002, 1003, 1004, 1005, 1006, 1088, 1008, 1010];

/// Asserts that every allocation and free of `calls` rounds, of all threads together, was recorded, and nothing else.
pub fn assert_rounds(report: &Report, calls: u64) {
    for size in SIZES {
        assert_eq!(report.counts(size), (calls, 0), "blocks of {size} bytes");
    }
    assert_eq!(report.total("allocations"), calls * SIZES.len() as u64);
    assert_eq!(report.total("deallocations"), calls * SIZES.len() as u64);
    assert_eq!((report.total("lost_events"), report.total("implied_frees")), (0, 0));
    assert!(report.complete());
}

/// Asserts that a recording is exact, and that no patch, descriptor, thread or shared memory is left in the target.
/// The target's two threads do 10 rounds each before the recording, 50 during it and 10 after it. The block of 2001
/// bytes is freed during the recording.
pub fn counts_are_exact(mut target: Target) -> Target {
    assert_eq!(target.tell("10"), "done 10");
    let (code, descriptors, threads) = (target.code(), target.descriptors(), target.threads());
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("50"), "done 50");
    assert_eq!(target.tell("0"), "done 0");
    let ended = session.detach();
    assert_eq!(target.code(), code, "the original code is restored");
    assert_eq!((target.descriptors(), target.threads()), (descriptors, threads), "no descriptor and no thread is left");
    assert!(!target.maps().contains("memfd:heaptrack"), "no shared memory is left");
    assert_eq!(target.tell("10"), "done 10");
    let report = ended.report();
    assert_rounds(&report, 100);
    assert_modules_apart(&ended.trace);
    assert_eq!(report.total("unknown_frees"), 1, "the block of 2001 bytes");
    assert_eq!(report.json()["attached"], true);
    target
}

/// Asserts that the program ends as it would have alone.
pub fn finishes(target: Target) {
    assert_eq!(target.finish(), (0, String::new()));
}

/// Ten sessions of one target with two threads. Each must be exact. The first session leaves memory mapped, and the
/// later ones use it again, so the number of mappings stays the same.
pub fn again_and_again(mut target: Target) {
    let mut first = 0;
    for round in 0..10 {
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("5"), "done 5");
        assert_rounds(&session.detach().report(), 10);
        let maps = target.maps().lines().count();
        if round == 0 {
            first = maps;
        }
        assert_eq!(maps, first, "mappings after round {round}");
    }
    finishes(target);
}
