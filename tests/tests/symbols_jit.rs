//! Code that a program makes while it runs: its frames are stepped over, and have the names that its maker tells.
use heaptrack_tests::report::Site;
use heaptrack_tests::symbols::Symbols;
use heaptrack_tests::{Program, targets};

#[test]
fn trampolines_without_a_frame_pointer() {
    let outcome = Program::target("trampoline").same_output();
    let report = outcome.whole_report();
    let symbols = Symbols::of(targets::target("trampoline"));
    // 890 and 891 differ in nothing but how far it is to the caller's frame.
    for (calls, bytes) in [(20, 8900 + 8910), (10, 8920), (10, 8930)] {
        let is_it = |site: &Site| (site.allocations, site.allocated_bytes) == (calls, bytes);
        let sites: Vec<_> = report.sites().into_iter().filter(is_it).collect();
        let [site] = &sites[..] else { panic!("{bytes}: {sites:?}") };
        assert_eq!(site.leaked_allocations, calls);
        assert_eq!(site.frames[1].module, None, "the code itself is in no file");
        assert_eq!(symbols.names(site)[..3], ["inside", "before", "main"], "{bytes}: {:?}", site.frames);
    }
}
