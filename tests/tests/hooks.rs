//! The hooked functions of libc behave as they do without heaptrack, and blocks are in the trace with the requested
//! size.
use capture::hooks::{FAMILY_HOOKS, NAMES};
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

/// Programs look for functions that not every libc has by weak references and by dlsym. Our definitions must not make an
/// absent function look present.
#[test]
fn a_program_finds_the_functions_that_it_finds_without_heaptrack() {
    let names = NAMES.iter().copied().chain(FAMILY_HOOKS.iter().map(|hook| hook.name));
    let names: Vec<&str> = names.map(|name| std::str::from_utf8(name).unwrap()).collect();
    for program in ["names", "names_musl"] {
        let found = Program::target(program).args(&names).same_output().stdout;
        let is_found = |name: &str| found.lines().any(|line| line == format!("{name} 1"));
        let is_absent = |name: &str| found.lines().any(|line| line == format!("{name} 0"));
        assert!(is_found("malloc") && is_found("weak malloc") && is_absent("cfree") && is_absent("mallocx"), "{found}");
        let lacks_pvalloc = is_absent("pvalloc") && is_absent("weak pvalloc");
        assert_eq!(lacks_pvalloc, program == "names_musl", "{found}");
    }
}

#[test]
fn the_frees_of_c23_are_recorded_where_a_library_has_them() {
    let report = Program::target("sized_frees").same_output().whole_report();
    for size in [9001, 9024] {
        let site = report.of_size(size);
        assert_eq!((site.allocations, site.leaked_allocations), (1000, 0), "blocks of {size} bytes");
    }
    assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0));
}

/// glibc has cfree only for programs that were linked long ago, so dlsym does not find it.
#[test]
fn cfree_of_old_programs_is_recorded() {
    for program in ["old_cfree_lazy", "old_cfree_now"] {
        let report = Program::target(program).same_output().whole_report();
        let site = report.of_size(8001);
        assert_eq!((site.allocations, site.leaked_allocations), (1000, 0), "{program}");
        assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0), "{program}");
    }
}
