//! C++'s operators and all other functions that an allocator exports. Each block is counted once, whichever allocator
//! the program uses, and programs run as they do without heaptrack.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Outcome, Program, Report};

const ROUNDS: u64 = 1001;
/// The sizes that one round of the target `operators` requests, with their counts.
const SIZES: [(u64, u64); 8] = [(4001, 2), (4002, 2), (4003, 1), (4004, 1), (4096, 2), (4160, 2), (4224, 1), (4288, 1)];

/// A target that links the allocator, and the plain one with the allocator in LD_PRELOAD.
fn linked_and_preloaded(allocator: &str) -> [Program; 2] {
    let library = format!("/usr/lib/x86_64-linux-gnu/lib{allocator}.so");
    [Program::target(&format!("operators_{allocator}")), Program::target("operators").env("LD_PRELOAD", library)]
}

fn assert_every_block_is_there(outcome: &Outcome) -> Report {
    let report = outcome.whole_report();
    for (size, each) in SIZES {
        let site = report.of_size(size);
        assert_eq!((site.allocations, site.leaked_allocations), (each * ROUNDS, 0), "blocks of {size} bytes");
    }
    let early = report.of_size(4005);
    assert_eq!((early.allocations, early.leaked_allocations), (500, 0), "blocks from before main");
    assert_eq!(report.total("unknown_frees"), 0);
    assert_eq!(report.total("implied_frees"), 0);
    report
}

/// mimalloc's realloc calls its own `mi_malloc` if it moves a block, and both are hooked.
#[test]
fn a_realloc_is_one_block_with_every_preloaded_allocator() {
    for library in ["libmimalloc.so.2", "libjemalloc.so.2", "libtcmalloc.so.4"] {
        let path = format!("/usr/lib/x86_64-linux-gnu/{library}");
        let report = Program::target("realloc_null").env("LD_PRELOAD", path).same_output().whole_report();
        let counts =
            [5001, 5002].map(|size| (report.of_size(size).allocations, report.of_size(size).leaked_allocations));
        assert_eq!(counts, [(1000, 0), (1000, 0)], "{library}");
        assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0), "{library}");
    }
}

#[test]
fn jemalloc_and_tcmalloc_linked_and_preloaded() {
    for allocator in ["jemalloc", "tcmalloc"] {
        for program in linked_and_preloaded(allocator) {
            // The output contains the exceptions and how often a new handler was called.
            assert_every_block_is_there(&program.same_output());
        }
    }
}

#[test]
fn mimalloc_linked_and_preloaded() {
    for program in linked_and_preloaded("mimalloc") {
        assert_every_block_is_there(&program.args(["1000", "calm"]).same_output());
    }
}

#[test]
fn a_thousand_rounds_more_are_as_many_blocks_more() {
    let count = |rounds: &str| {
        let program = Program::target("operators_jemalloc").args([rounds, "calm"]);
        program.recorded().whole_report().total("allocations")
    };
    assert_eq!(count("1000") - count("0"), 12_000);
}

#[test]
fn the_operators_of_libstdcxx_are_counted_as_before() {
    assert_every_block_is_there(&Program::target("operators").same_output());
    // A program finds libstdc++'s own operator, not ours.
    let found = Program::target("weak_names_cpp").same_output().stdout;
    assert!(found.ends_with("operator new is in libstdc++.so.6\n"), "{found}");
}

#[test]
fn words_that_are_bound_at_the_start_and_read_only_are_found() {
    assert_every_block_is_there(&Program::target("operators_now").same_output());
}

#[test]
fn operators_that_come_down_to_malloc_are_counted_once() {
    assert_every_block_is_there(&Program::target("operators_nested").args(["1000", "calm"]).same_output());
}

#[test]
fn an_allocator_that_shares_nothing_with_libc_is_seen() {
    assert_every_block_is_there(&Program::target("operators_own").args(["1000", "calm"]).same_output());
}

#[test]
fn sanitizers_with_operators_of_their_own_are_seen() {
    for sanitizer in ["leak", "thread"] {
        let program = Program::target(&format!("operators_{sanitizer}")).args(["1000", "calm"]);
        assert_every_block_is_there(&program.same_output());
    }
}

#[test]
fn a_program_with_operators_of_its_own_keeps_them() {
    let program = Program::target("new_left_own");
    let report = program.same_output().whole_report();
    assert_eq!(report.of_size(40).leaked_allocations, 1000);
    assert_eq!(report.of_size(40).allocations, 1000);
}

#[test]
fn what_jemalloc_exports_besides_malloc() {
    let report = Program::target("families_jemalloc").same_output().whole_report();
    assert_counts(&report, &[5001, 5002, 5003, 5004]);
}

#[test]
fn what_tcmalloc_exports_besides_malloc() {
    let report = Program::target("families_tcmalloc").same_output().whole_report();
    assert_counts(&report, &[5001, 5002, 9003, 5004, 5005, 5120]);
}

#[test]
fn what_mimalloc_exports_besides_malloc() {
    let report = Program::target("families_mimalloc").same_output().whole_report();
    assert_counts(&report, &[5001, 5002, 9003, 5004, 5120, 5006, 17, 5007, 5008]);
}

fn assert_counts(report: &Report, sizes: &[u64]) {
    for size in sizes {
        let site = report.of_size(*size);
        assert_eq!((site.allocations, site.leaked_allocations), (1000, 0), "blocks of {size} bytes");
    }
    assert_eq!(report.total("unknown_frees"), 0);
}

/// A hook inside another one is left by an exception or a jump. The outer function then frees the block that it resizes,
/// which must not be counted as a second free.
#[test]
fn an_inner_operator_that_is_left_does_not_disturb_the_outer_one() {
    for how in ["throw", "jump"] {
        let report = Program::target("left_operators").arg(how).same_output().report();
        let site = report.of_size(5001);
        assert_eq!((site.allocations, site.leaked_allocations), (1000, 0), "{how}");
        assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0), "{how}");
        // The next hook counts the event of a hook that a jump has left as lost.
        assert_eq!(report.total("lost_events"), if how == "jump" { 999 } else { 0 });
    }
}

fn assert_interrupted_counts(how: &str, report: &Report) {
    for size in [5001, 5002, 5003, 5004, 5005] {
        let site = report.of_size(size);
        assert_eq!((site.allocations, site.leaked_allocations), (1000, 0), "{how}: blocks of {size} bytes");
    }
    let losses = ["unknown_frees", "implied_frees", "lost_events"].map(|name| report.total(name));
    assert_eq!(losses, [0; 3], "{how}: unknown frees, implied frees, lost events");
}

/// A hook that interrupts a realloc calls the allocator, too. After that, what the outer realloc does by hooked functions is still not the
/// program's: neither the malloc of the new block nor the free of the old one.
#[test]
fn a_realloc_that_interrupts_a_realloc_does_not_disturb_it() {
    let outcome = Program::target("interrupted").same_output();
    assert_eq!(outcome.stdout, "1000 calls\n");
    assert_interrupted_counts("launched", &outcome.report());
    let sampled = Program::target("interrupted").option("--sample").option("16M").option("--exact-above").option("1");
    assert_interrupted_counts("sampled", &sampled.recorded().report());
    let mut target = Target::start("interrupted", &["wait"]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "1000 calls");
    assert_interrupted_counts("attached", &session.detach().report());
    target.send("end");
    assert_eq!(target.finish().0, 0);
}

#[test]
fn a_library_that_comes_later_is_bound_to_the_hooks() {
    for how in ["lazy", "now"] {
        let program = Program::target("opens_jemalloc").arg(target("libwork.so")).arg(how);
        let report = program.same_output().whole_report();
        for (size, count) in [(6001, 10), (6002, 1000), (6003, 1000)] {
            let site = report.of_size(size);
            assert_eq!((site.allocations, site.leaked_allocations), (count, 0), "{how}, {size} bytes");
        }
    }
}

/// Programs look for an allocator through weak references. Our definitions must not make an absent allocator look
/// present.
#[test]
fn names_of_allocators_are_defined_only_where_an_allocator_is() {
    let outcome = Program::target("weak_names").same_output();
    assert!(outcome.stdout.starts_with("weak 0 0 0 0 0\n"), "{}", outcome.stdout);
    let jemalloc = Program::target("weak_names").env("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libjemalloc.so");
    assert!(jemalloc.same_output().stdout.starts_with("weak 1 1 0 0 1\n"));
}

#[test]
fn heaptrace_sees_the_operators_too() {
    for name in ["new_left", "new_left_jemalloc", "new_left_own"] {
        let traced = Heaptrace::new(["--top", "1", "--sort", "count"]).target(name).run();
        let [dump] = &traced.dumps()[..] else { panic!("{}", traced.stderr) };
        let first = &dump.lists[0].1[0];
        assert_eq!((first.count, first.bytes), (1000, 40_000), "{name}");
    }
}
