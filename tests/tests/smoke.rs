//! Three tests for `make check`: recording a launched program, attaching, and the outputs. They take a few seconds. The
//! other suites check the details.
use heaptrack_tests::attach::Target;
use heaptrack_tests::phases::{counts_are_exact, finishes};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::{Folder, Program, Report, process};
use std::process::Command;

#[test]
fn a_launched_program_is_recorded_exactly() {
    let outcome = Program::target("hooks").same_output();
    let report = outcome.whole_report();
    assert_eq!(report.of_size(1001).allocations, 3);
    assert_eq!((report.total("leaked_allocations"), report.total("unknown_frees")), (0, 0));
}

#[test]
fn a_running_program_is_recorded_exactly_and_left_unchanged() {
    finishes(counts_are_exact(Target::start("attach_phases", &["2"])));
}

#[test]
fn a_trace_becomes_a_text_a_page_and_other_formats_with_the_same_totals() {
    let outcome = Program::target("hooks").recorded();
    let folder = Folder::new();
    let total = outcome.report().total("allocations");
    let run = |words: &[&str]| {
        let done = Command::new(heaptrack()).args(words).current_dir(folder.path()).output().expect("heaptrack");
        assert_eq!(process::code(done.status), 0, "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let trace = outcome.trace.to_str().expect("a path of text");
    assert!(run(&["print", trace]).contains("\nAT THE PEAK, BY YOUR CODE\n"));
    assert!(run(&["print", "--full", trace]).contains("calls to allocation functions"));
    run(&["report", trace, "-o", "page.html"]);
    assert!(std::fs::read_to_string(folder.join("page.html")).unwrap().contains("</html>"));
    run(&["export", "--to", "heaptrack", trace, "-o", "kde.zst"]);
    assert_eq!(Report::of(&folder.join("kde.zst")).total("allocations"), total);
}
