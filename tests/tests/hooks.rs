//! The hooked functions of libc behave as they do without heaptrack, and blocks are in the trace with the requested
//! size.
use heaptrack_tests::Program;

#[test]
fn every_hook_keeps_its_promises() {
    let report = Program::target("hooks").same_output().whole_report();
    for size in [1003, 2003, 3003, 4001, 8192, 5001, 6001, 7001, 11, 119] {
        let site = report.of_size(size);
        assert_eq!((site.allocations, site.leaked_allocations), (1, 0), "blocks of {size} bytes");
    }
    assert_eq!(report.of_size(1001).allocations, 3);
    let nothing = report.of_size(0);
    assert_eq!((nothing.allocations, nothing.leaked_allocations), (3, 0));
    assert_eq!(report.total("leaked_allocations"), 0, "all blocks are freed: {}", report.json()["leaked"]);
    assert_eq!(report.total("unknown_frees"), 0);
}

#[test]
fn another_allocator_below_us_is_used() {
    // libbump.so replaces libc's malloc, as jemalloc does. Our hooks come before it in the lookup order and must call
    // it, not libc's functions.
    let report = Program::target("signals").arg("1000").recorded().report();
    assert!(report.of_size(64).allocations >= 1000);
}
