//! `--follow`: a process that cuts itself off from the recorder works as it does alone, ends only its own part of the recording, and
//! the rest of the tree is exact.
use format::Exit;
use heaptrack_tests::processes::processes;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report};

const UNRECORDED: &str = "heaptrack: not recorded: 1 process ran unrecorded: 1 that found no shared memory, or started in a sandbox or \
                          in another pid namespace.\n";

/// A child has its shared memory before it cuts itself off, so all its calls are recorded. Its own child needs new shared memory,
/// which it gets only if it can still open it.
#[test]
fn a_child_that_cuts_itself_off_ends_only_its_own_part() {
    let folder = Folder::new();
    for (kind, is_reached, exit) in [
        ("plain", true, Exit::Code(7)),
        ("chroot", false, Exit::Code(7)),
        ("setuid", false, Exit::Code(7)),
        ("capset", false, Exit::Code(7)),
        ("unshare", false, Exit::Code(7)),
        ("seccomp", false, Exit::Code(7)),
        ("close", true, Exit::Code(7)),
        ("kill", true, Exit::Signal(9)),
    ] {
        let program = Program::target("family_faults").arg(kind).arg(folder.path());
        let outcome = program.option("--follow").same_output();
        assert_eq!(outcome.code, 0, "{kind}: {}", outcome.stderr);
        assert!(outcome.stdout.ends_with("parent: 200 allocations, right\n"), "{kind}: {}", outcome.stdout);
        let all = processes(&outcome.trace);
        let mut found: Vec<[u64; 4]> = Vec::new();
        for process in all.values() {
            let totals = process.end.expect("its end").totals;
            found.push([totals.allocations, totals.allocated_bytes, totals.deallocations, totals.leaked_allocations]);
        }
        let whole: [u64; 4] = [200, 200_000, 100, 100];
        // A process that was forked and could not be recorded may have an entry without calls.
        found.retain(|counts| is_reached || *counts != [0; 4]);
        let mut expected = vec![whole, whole];
        expected.extend(is_reached.then_some([100, 100_000, 50, 50]));
        assert_eq!(found, expected, "{kind}: the parent, the child and the child of the child");
        assert_eq!(outcome.stderr.contains(UNRECORDED), !is_reached, "{kind}: {}", outcome.stderr);
        let ended = all[&1].end.expect("its end").exit;
        assert!(ended == exit || ended == Exit::Unknown, "{kind}: {ended:?}, unknown if its parent was quicker");
        let inherited = [all[&1].inherited_allocations, all[&1].inherited_bytes];
        assert_eq!(inherited, [50, 50_000], "{kind}");
    }
}

/// A recorder that is stopped offers no shared memory. Children that have nothing to record do not wait for it: together they are held up for at
/// most a tenth of a second. Each of them would otherwise wait for 3 seconds.
#[test]
fn a_stopped_recorder_does_not_hold_up_the_ends_of_processes() {
    let program = Program::target("quick_ends").arg("20").arg(target("tiny_32"));
    let outcome = program.option("--follow").option("--no-symbols").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let (took, rest) = outcome.stdout.split_once(" ms, ").expect("how long it took");
    assert_eq!(rest, "0 wrong\n");
    let took: u64 = took.parse().expect("a number");
    assert!(took < 6_000, "20 children took {took} ms");
    assert!(outcome.stderr.contains("10 processes ran unrecorded: tiny_32 (10 times: "), "{}", outcome.stderr);
    let report = Report::of(&outcome.trace);
    assert_eq!((report.total("allocations"), report.total("lost_events")), (2, 0));
    assert_eq!(processes(&outcome.trace)[&0].end.expect("its end").exit, Exit::Code(0));
}
