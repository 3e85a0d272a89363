//! Totals, peak and leaks equal those of Valgrind's DHAT. So do sites, if the program makes no realloc.
use heaptrack_tests::dhat::{self, Counts};
use heaptrack_tests::{Program, Report};

fn agree(name: &str) -> (dhat::Dhat, Report) {
    let program = Program::target(name);
    let dhat = dhat::run(&program);
    let outcome = program.same_output();
    let report = outcome.whole_report();
    assert_eq!(Counts::of_report(&report), dhat.total, "{name}: left is ours, right is DHAT's");
    assert_eq!(
        report.total("deallocations"),
        report.total("allocations") - report.total("leaked_allocations"),
        "{name}: every block is freed once or left"
    );
    assert_eq!(report.total("unknown_frees"), 0, "{name}");
    (dhat, report)
}

fn agree_by_site(name: &str) -> Report {
    let (dhat, report) = agree(name);
    let mut ours: Vec<Counts> = report.sites().iter().map(Counts::of_site).collect();
    ours.sort();
    assert_eq!(ours, dhat.sites, "{name}: sites; left is ours, right is DHAT's");
    report
}

#[test]
fn c_without_realloc() {
    let report = agree_by_site("plain");
    assert_eq!(report.total("allocations"), 2154);
    assert_eq!(report.total("allocated_bytes"), 72350);
    assert_eq!(report.total("leaked_allocations"), 11);
    assert_eq!(report.total("leaked_bytes"), 4310);
    assert_eq!(report.total("peak_bytes"), 40350);
    assert_eq!(report.total("peak_allocations"), 154);
    // 2 * 1000 in `scratch`, and the last block of `summit`, because no other allocation came before its free.
    assert_eq!(report.total("temporary"), 2001);
}

#[test]
fn c_with_realloc() {
    let (_, report) = agree("grow");
    assert_eq!(report.total("allocations"), 19);
    assert_eq!(report.total("deallocations"), 18);
    assert_eq!(report.total("allocated_bytes"), 2_097_736);
    assert_eq!(report.total("peak_bytes"), 1 << 20);
}

#[test]
fn every_way_to_allocate() {
    agree_by_site("kinds");
}

#[test]
fn the_peak_is_the_first_strict_maximum() {
    let report = agree_by_site("peak");
    assert_eq!((report.total("peak_bytes"), report.total("peak_allocations")), (125, 2));
    let at_peak: Vec<u64> = report.list("peak").iter().map(|site| site.peak_bytes).filter(|&bytes| bytes > 0).collect();
    assert_eq!(at_peak, [100, 25]);
}

#[test]
fn cpp_containers() {
    let report = agree_by_site("containers");
    assert_eq!(report.of_size(1000).leaked_bytes, 1000);
}

#[test]
fn cpp_exceptions() {
    agree_by_site("throwing");
}

#[test]
fn rust_boxes() {
    assert_eq!(agree_by_site("boxes").counts(1000), (10, 1));
}

#[test]
fn rust_collections_with_realloc() {
    agree("growth");
}
