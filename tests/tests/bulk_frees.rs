//! Allocators that free a whole heap or arena in one call: its blocks end then, exactly. Blocks of which it is not known
//! that they were in the heap are stated.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::{Program, Report};

/// mimalloc's and jemalloc's libraries, and a program that has jemalloc in it and is patched at its start.
const TARGETS: [&str; 3] = ["bulk_frees_mimalloc", "bulk_frees_jemalloc", "bulk_frees_own"];

/// Size, allocations and blocks that are not freed, as the comment of the target says.
fn expected(name: &str) -> Vec<(u64, u64, u64)> {
    let of_both = [(7001, 1000, 0), (7002, 200, 0), (7003, 20, 0), (7004, 20, 0), (7007, 7, 7)];
    let of_one = if name.ends_with("mimalloc") { (7005, 15, 7) } else { (7006, 50, 0) };
    of_both.into_iter().chain([of_one]).collect()
}

fn assert_exact(name: &str, report: &Report) {
    for (size, allocations, leaked) in expected(name) {
        let site = report.of_size(size);
        assert_eq!(
            (site.allocations, site.leaked_allocations),
            (allocations, leaked),
            "{name}: blocks of {size} bytes"
        );
    }
}

fn assert_whole(name: &str, report: &Report) {
    assert_exact(name, report);
    assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0), "{name}");
}

fn unseen(report: &Report) -> Vec<String> {
    let unseen = report.json()["unseen"].as_array().cloned().unwrap_or_default();
    unseen.iter().map(|one| one["kind"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn in_a_launched_program() {
    for name in TARGETS {
        let report = Program::target(name).same_output().whole_report();
        assert_whole(name, &report);
        assert_eq!(unseen(&report), [""; 0], "{name}");
    }
}

/// The function that ends an arena is the one that starts jemalloc's background thread. What others allocate in such a
/// call is recorded, with a stack that goes on below our own frames.
#[test]
fn a_stack_goes_through_the_function_that_ends_heaps() {
    let report = Program::target("background_thread").same_output().whole_report();
    let list = report.json()["allocations"].as_array().expect("a list");
    let functions = |row: &serde_json::Value| -> Vec<String> {
        let frames = row["frames"].as_array().expect("frames");
        frames.iter().map(|frame| frame["function"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let of_thread: Vec<_> = list.iter().map(functions).filter(|all| all.iter().any(|name| name == "start")).collect();
    assert_eq!(of_thread.len(), 1, "{list:#?}");
    let place = |name: &str| of_thread[0].iter().position(|one| one == name);
    let (ours, start, main) = (place("capture_so::entries::heap_entry"), place("start"), place("main"));
    assert_eq!((start, main), (ours.map(|at| at + 1), ours.map(|at| at + 2)), "{of_thread:#?}");
    assert!(ours.is_some(), "{of_thread:#?}");
}

#[test]
fn in_a_program_that_runs_already() {
    for name in TARGETS {
        let mut program = Target::start(name, &["wait"]);
        assert_eq!(program.line(), "ready");
        let session = Session::attach(program.pid, &["--no-symbols"]);
        assert_eq!(program.tell("go"), "done");
        let report = session.detach().report();
        assert_whole(name, &report);
        assert_eq!(unseen(&report), [""; 0], "{name}");
        program.send("end");
        assert_eq!(program.finish().0, 0);
    }
}

#[test]
fn with_several_threads_of_the_recorder_and_in_a_followed_tree() {
    for option in ["--recorder-threads=3", "--follow"] {
        let report = Program::target("bulk_frees_jemalloc").option(option).same_output().whole_report();
        assert_whole("bulk_frees_jemalloc", &report);
    }
}

/// With `--exact-above 1` a sample has every block, so it has the numbers of an exact recording. The addresses of the blocks that ended with their
/// heap are not among the live ones any more: there are 1000 blocks at 10 addresses, and no place has room for more than 16.
#[test]
fn in_a_sample_heaps_end_too() {
    let sampled = |name: &str| {
        let program = Program::target(name).option("--sample").option("16M").option("--exact-above").option("1");
        program.same_output().whole_report()
    };
    let report = sampled("sampled_heaps");
    for (size, allocations) in [(6001, 1000), (6002, 100)] {
        let site = report.of_size(size);
        assert_eq!((site.allocations, site.leaked_allocations), (allocations, 0), "blocks of {size} bytes");
    }
    assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0));
    for name in TARGETS {
        assert_whole(name, &sampled(name));
    }
}

#[test]
fn blocks_that_do_not_name_their_heap_are_stated() {
    for name in TARGETS {
        let report = Program::target(name).args(["mixed"]).same_output().report();
        assert_exact(name, &report);
        assert_eq!(unseen(&report), ["bulk_free"], "{name}");
        // mimalloc gives the address of this block to the next heap, which implies its free.
        let site = report.of_size(7008);
        let leaked = !name.ends_with("mimalloc") as u64;
        assert_eq!((site.allocations, site.leaked_allocations), (1, leaked), "{name}");
    }
}

#[test]
fn heaptrace_sees_them_end_too() {
    let traced = Heaptrace::new(["--top", "9"]).target("bulk_frees_jemalloc").run();
    let [dump] = &traced.dumps()[..] else { panic!("{}", traced.stderr) };
    let live: Vec<(u64, u64)> = dump.lists[0].1.iter().map(|site| (site.count, site.bytes)).collect();
    assert!(live.contains(&(7, 7 * 7007)) && live.iter().all(|(count, _)| *count <= 7), "{live:?}");
}
