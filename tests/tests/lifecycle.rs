//! How programs begin, fork, exec and end, and stacks of every unusual shape.
use heaptrack_tests::channel_memory::ChannelMemory;
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::report::{assert_modules_apart, sum};
use heaptrack_tests::symbols::Symbols;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report};

/// If a check fails, a capture library that checks itself stores the number of the check in the shared memory and ends
/// the program. Here the test does both.
#[test]
fn a_failed_check_of_the_library_is_reported() {
    let folder = Folder::new();
    let program = Program::target("counter").arg(folder.join("counted")).args(["1", "1000"]);
    let running = program.start();
    let target = running.target(&program);
    wait_for("the first call", || std::fs::metadata(folder.join("counted")).ok());
    wait_for("the shared memory", || ChannelMemory::of(running.pid())).fail_check(9);
    signal("KILL", &[target]);
    let outcome = running.finish();
    let sentence = "heaptrack stopped the program: its check 9 failed (a remembered stack was not the real stack). \
                    This build checks itself; please report this.";
    assert!(outcome.stderr.contains(&format!("heaptrack: {sentence}\n")), "{}", outcome.stderr);
    // Not 137, because the program may have handled the signal.
    assert_eq!(outcome.code, 70);
    let report = outcome.report();
    assert_eq!((report.complete(), report.note()), (false, Some(sentence)));
}

/// Asserts for each size how many blocks were allocated, and how many of them were never freed.
fn assert_counts(report: &Report, expected: &[(u64, (u64, u64))]) {
    let found: Vec<_> = expected.iter().map(|&(size, _)| (size, report.counts(size))).collect();
    assert_eq!(found, expected);
}

fn report_of(name: &str) -> Report {
    Program::target(name).same_output().whole_report()
}

/// The functions of the program on the stack of the blocks of `size` bytes.
fn names(report: &Report, module: &str, size: u64) -> Vec<String> {
    let symbols = Symbols::of(target(module));
    symbols.names(&report.of_size(size)).into_iter().map(str::to_owned).collect()
}

/// Only a comparison of frame pointers can distinguish these stacks.
#[test]
fn return_addresses_that_are_left_on_the_stack_are_no_frames() {
    let report = report_of("stale_frames");
    for (base, leaf) in [(1000, "saves"), (2000, "leaves")] {
        assert_eq!((report.counts(base + 1), report.counts(base + 2)), ((20, 0), (20, 0)), "{leaf}");
        assert_eq!(names(&report, "stale_frames", base + 1)[..5], [leaf, "direct", "detour", "go", "main"]);
        assert_eq!(names(&report, "stale_frames", base + 2)[..4], [leaf, "direct", "go", "main"]);
    }
}

#[test]
fn before_main_and_after_exit() {
    let report = report_of("before_and_after");
    let freed = [(102, "constructor"), (103, "main")];
    let left = [(101, ".preinit_array"), (104, "atexit"), (105, "destructor"), (106, "on_exit")];
    for (size, place) in freed {
        assert_eq!(report.counts(size), (1, 0), "{place}");
    }
    for (size, place) in left {
        assert_eq!(report.counts(size), (1, 1), "{place}");
    }
}

#[test]
fn children_run_unrecorded_and_see_nothing_of_us() {
    let report = report_of("children");
    assert_counts(&report, &[(1001, (1, 0)), (2002, (0, 0)), (3003, (1, 1)), (11, (1, 1))]);
}

/// Regression test: a child that was forked in a signal handler continued its parent's interrupted hook and wrote into
/// the parent's ring.
#[test]
fn forks_in_a_signal_handler_leave_the_recording_alone() {
    let report = report_of("fork_in_handler");
    assert_eq!(report.counts(1000), (2_000_000, 0));
    assert_eq!(report.counts(24), (0, 0), "blocks of the children");
}

#[test]
fn exec_in_place_goes_on_in_the_same_trace() {
    let report = report_of("exec_in_place");
    assert_counts(&report, &[(1001, (10, 0)), (1002, (20, 0)), (1003, (30, 25))]);
    for (size, name) in [(1001, "first"), (1002, "second"), (1003, "third")] {
        assert_eq!(names(&report, "exec_in_place", size)[..2], [name, "main"]);
    }
}

#[test]
fn exec_from_a_shell_is_followed() {
    let hello = target("hello");
    let program = Program::new("/bin/sh").arg("-c").arg(format!("exec '{}' word", hello.display()));
    let report = program.same_output().whole_report();
    assert_eq!(sum(&report.own(&hello)).allocations, 1);
}

#[test]
fn every_way_to_end_keeps_the_trace_whole() {
    let ways = [
        ("return", 5),
        ("exit", 6),
        ("_exit", 7),
        ("quick_exit", 8),
        ("abort", 134),
        ("segv", 139),
        ("term", 143),
        ("trap", 133),
        ("thread_exit", 0),
    ];
    for (way, code) in ways {
        let outcome = Program::target("ways_out").arg(way).same_output();
        assert_eq!(outcome.code, code, "{way}");
        let report = outcome.whole_report();
        assert_eq!(report.counts(123), (10, 6), "{way}");
        assert_eq!(report.of_size(123).leaked_bytes, 738, "{way}");
    }
}

fn handled(outcome: &heaptrack_tests::Outcome) -> (u64, u64, u64) {
    let mut numbers = outcome.stdout.split_whitespace().map(|word| word.split_once('=').unwrap().1.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_signal_handler_that_allocates() {
    let outcome = Program::target("signals").arg("2000000").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let (in_main, in_handler, _) = handled(&outcome);
    let report = outcome.report();
    assert_eq!(report.counts(64), (in_main, 0));
    // A hook that interrupts a nested hook may be counted as lost instead of recorded.
    let recorded = report.of_size(33).allocations;
    assert!(recorded <= in_handler && recorded + report.total("lost_events") >= in_handler);
}

/// The handler's events are in another ring than main's. While the thread is the only one that records, few of its
/// events are stamped by the clock.
#[test]
fn a_signal_handler_that_frees_blocks_of_main() {
    let outcome = Program::target("handler_frees").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let (in_main, in_handler, short_lived) = handled(&outcome);
    let report = outcome.whole_report();
    assert_eq!(report.counts(48), (in_main, 0), "{in_handler} were freed by the handler");
    assert_eq!(report.counts(33), (in_handler * 3, 0));
    assert_eq!(report.counts(32), (short_lived, 0));
    assert_eq!(report.total("unknown_frees"), 0);
}

#[test]
fn a_signal_handler_that_allocates_and_jumps_out() {
    let outcome = Program::target("signals").arg("2000000").arg("jump").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let (in_main, in_handler, jumped) = handled(&outcome);
    assert!(jumped > 0, "the precondition of this test does not hold: no jump");
    let report = outcome.report();
    let recorded = report.of_size(64).allocations;
    assert!(in_main <= recorded + report.total("lost_events"), "{recorded} of {in_main}, {jumped} jumps");
    assert!(recorded <= in_main + jumped, "{recorded} of {in_main}, {jumped} jumps");
    assert!(report.total("lost_events") <= jumped + in_handler);
    assert!(report.of_size(33).allocations <= in_handler);
}

#[test]
fn a_handler_on_its_own_stack() {
    let report = report_of("altstack");
    assert_eq!(report.counts(77), (5, 5));
    assert_eq!(report.counts(78), (5, 0));
    assert_eq!(names(&report, "altstack", 77)[..2], ["handle", "overflow"], "through the signal frame");
}

#[test]
fn coroutines_on_8_kb_stacks() {
    let report = report_of("coroutines");
    assert_eq!(report.counts(210), (1000, 100));
    let symbols = Symbols::of(target("coroutines"));
    for site in report.own(target("coroutines")) {
        let mut expected = vec!["level"; 10];
        expected.push("body");
        assert_eq!(symbols.names(&site), expected);
    }
}

#[test]
fn threads_on_the_smallest_stacks() {
    let report = report_of("small_stacks");
    assert_eq!(report.counts(300), (100, 0));
    assert_eq!(names(&report, "small_stacks", 300), ["deeper", "deeper", "deeper", "deeper", "work"]);
}

#[test]
fn recursion_of_100_000_levels() {
    let report = report_of("deep");
    assert_eq!(report.counts(40), (200, 0));
    assert_eq!(report.counts(41), (2, 2));
    let symbols = Symbols::of(target("deep"));
    for site in report.own(target("deep")) {
        let names = symbols.names(&site);
        assert_eq!(names.first(), Some(&"down"));
        assert!(names.contains(&"main"), "cut at the root: {} frames", site.frames.len());
    }
}

#[test]
fn longjmp_over_frames_that_allocated() {
    let report = report_of("jumps");
    assert_eq!(report.counts(10), (100, 100));
    assert_eq!(report.counts(20), (100, 100));
    assert_eq!(names(&report, "jumps", 10)[..3], ["bottom", "left", "main"]);
    assert_eq!(names(&report, "jumps", 20)[..3], ["bottom", "right", "main"]);
    assert_eq!(report.own(target("jumps")).len(), 2, "exactly two stacks");
}

#[test]
fn code_without_frame_pointers() {
    let report = report_of("no_frame_pointer");
    let chain = ["delta", "gamma_", "beta", "alpha", "main"];
    for (size, skip) in [(14, 0), (13, 1), (12, 2), (11, 3)] {
        assert_eq!(report.counts(size), (1000, 0));
        assert_eq!(names(&report, "no_frame_pointer", size)[..5 - skip], chain[skip..], "{size}");
    }
}

#[test]
fn jit_code_with_a_frame_pointer() {
    let report = report_of("jit");
    for size in [888, 889] {
        assert_eq!(report.counts(size), (10, 10));
        let site = report.of_size(size);
        assert_eq!(site.frames[0].module, None, "the code itself is in no file");
        assert_eq!(names(&report, "jit", size)[..2], ["before", "main"]);
    }
}

#[test]
fn a_reused_address_keeps_its_own_names() {
    let program = Program::target("reuse").arg(target("libred.so")).arg(target("libblue.so"));
    let outcome = program.same_output();
    assert_eq!(outcome.stdout, "same address: yes\n", "the precondition of this test does not hold");
    let report = outcome.whole_report();
    for (size, library, inner) in [(301, "libred.so", "red_inner"), (302, "libblue.so", "blue_inner")] {
        assert_eq!(report.counts(size), (50, 0));
        let symbols = Symbols::of(target(library));
        let all: Vec<_> = report.sites().into_iter().filter(|site| site.allocated_bytes % size == 0).collect();
        let its: Vec<_> = all.iter().filter(|site| symbols.names(site) == [inner, "work"]).collect();
        assert_eq!(its.iter().map(|site| site.allocations).sum::<u64>(), 50, "{library}");
    }
}

#[test]
fn a_plugin_finds_its_library_through_its_runpath() {
    let outcome = Program::target("runpath").arg(target("libplugin.so")).same_output();
    assert_eq!(outcome.stdout, "plugin ok\n");
    let report = outcome.whole_report();
    assert_eq!(report.counts(777), (1, 1));
    assert_eq!(names(&report, "deps/libinner.so", 777), ["inner"]);
}

#[test]
fn a_collector_of_garbage_that_stops_the_world() {
    let report = report_of("collected");
    assert_eq!(report.counts(55), (20000, 0));
}

#[test]
fn a_sandbox_that_kills_for_a_system_call() {
    let outcome = Program::target("sandboxed").same_output();
    assert_eq!(outcome.stdout, "sandboxed done\n");
    let report = outcome.report();
    // In the sandbox a thread may not wait while the ring is full. Events that are dropped are counted.
    let (recorded, lost) = (report.of_size(90).allocations, report.total("lost_events"));
    assert!(recorded + lost >= 1_000_000, "{recorded} recorded, {lost} lost");
    assert!(recorded <= 1_000_000);
}

#[test]
fn a_daemon_that_closes_every_descriptor() {
    let report = report_of("closes_all");
    assert_eq!(report.counts(67), (1, 1));
    assert_eq!(report.counts(66), (1000, 500));
}

/// The kernel refuses these calls, and the program continues. So the hook must not read or open their arguments before
/// the kernel has checked them.
#[test]
fn an_exec_that_the_kernel_refuses() {
    // Each run makes its own pipe in the folder and removes it.
    let folder = Folder::new();
    let outcome = Program::target("exec_refused").arg(folder.path()).same_output();
    assert_eq!(outcome.code, 3);
    assert_eq!(outcome.whole_report().counts(61), (7, 7));
}

/// When the unwinder guesses a frame, the word in the place of the return address may be any number, such as 1.
#[test]
fn a_guessed_return_address_of_one() {
    assert_eq!(report_of("low_return").counts(93), (3, 0));
}

/// Threads that collide in the thread table find their state by a slower lookup. What they remember of a library must
/// still become invalid when the library is closed.
#[test]
fn a_library_that_takes_the_place_of_another_one() {
    let libraries = [target("libplug_first.so"), target("libplug_second.so")];
    let program = Program::target("plugs").args(&libraries);
    let outcome = program.same_output();
    assert_eq!(outcome.stdout, "the same place\n", "the precondition of this test does not hold");
    let report = outcome.whole_report();
    for (bytes, library) in [(100, &libraries[0]), (200, &libraries[1])] {
        let sites = report.sites().into_iter().filter(|site| site.allocated_bytes == site.allocations * bytes);
        let sites: Vec<_> = sites.collect();
        assert_eq!(sites.iter().map(|site| site.allocations).sum::<u64>(), 2000);
        for site in sites {
            let modules: Vec<_> = site.frames.iter().take(2).map(|frame| frame.module.clone()).collect();
            assert_eq!(
                modules,
                vec![Some(library.canonicalize().unwrap()); 2],
                "{bytes} bytes: both frames are its own"
            );
        }
    }
}

/// If the loader is run as a command, the kernel starts the loader, which gets the program as an argument.
#[test]
fn a_loader_that_is_run_as_a_command() {
    for (loader, program) in [("/lib64/ld-linux-x86-64.so.2", "plain"), ("/lib/ld-musl-x86_64.so.1", "plain_musl")] {
        let outcome = Program::new(loader).arg(target(program)).same_output();
        let report = outcome.whole_report();
        assert_modules_apart(&outcome.trace);
        assert_eq!(report.counts(48), (100, 0), "{loader}");
        assert_eq!(report.counts(31), (50, 10), "{loader}");
        assert_eq!(report.counts(16), (2000, 0), "{loader}");
    }
}

/// The loader's list of modules contains the program's name with musl, but not with glibc.
#[test]
fn a_musl_program_that_is_not_position_independent_has_its_modules() {
    let outcome = Program::target("plain_musl_no_pie").same_output();
    let report = outcome.whole_report();
    assert_eq!(report.counts(48), (100, 0));
    assert_modules_apart(&outcome.trace);
    let program = Some(target("plain_musl_no_pie").canonicalize().unwrap());
    let site = report.of_size(48);
    assert!(site.frames.iter().take(2).all(|frame| frame.module == program), "records and main: {:?}", site.frames);
}
