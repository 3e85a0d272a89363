//! Libraries that are loaded and unloaded while the loader cannot be watched, because none of its code can be changed.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::symbols::Symbols;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report};
use std::process::{Command, Output};

/// Records under `no_patches` and without /proc, so that no code can be changed.
fn recorded(folder: &Folder, program: &[&std::ffi::OsStr]) -> Output {
    let script = "cd \"$1\"; shift; mount -t tmpfs none /proc; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(folder.path());
    command
        .arg(target("no_patches"))
        .arg(heaptrack().canonicalize().unwrap())
        .args(["-o", "t.htz", "--"])
        .args(program);
    command.output().unwrap()
}

#[test]
fn libraries_by_turns_at_one_address_keep_their_own_names() {
    let folder = Folder::new();
    let (program, red, blue) = (target("reuse"), target("libred.so"), target("libblue.so"));
    let output = recorded(&folder, &[program.as_os_str(), red.as_os_str(), blue.as_os_str()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "same address: yes\n", "{said}");
    let report = Report::of(&folder.join("t.htz"));
    assert_eq!((report.complete(), report.total("lost_events")), (true, 0));
    for (size, library, inner) in [(301, red, "red_inner"), (302, blue, "blue_inner")] {
        assert_eq!(report.of_size(size).allocations, 50);
        let symbols = Symbols::of(&library);
        let its = report.sites().into_iter().filter(|site| site.allocated_bytes % size == 0);
        let named = its.filter(|site| symbols.names(site) == [inner, "work"]);
        assert_eq!(named.map(|site| site.allocations).sum::<u64>(), 50, "{}", library.display());
    }
}

#[test]
fn a_library_that_stays_loaded_has_its_names() {
    let folder = Folder::new();
    let (program, plugin) = (target("runpath"), target("libplugin.so"));
    let output = recorded(&folder, &[program.as_os_str(), plugin.as_os_str()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "plugin ok\n", "{said}");
    let report = Report::of(&folder.join("t.htz"));
    let site = report.of_size(777);
    assert_eq!(site.allocations, 1);
    assert_eq!(Symbols::of(target("deps/libinner.so")).names(&site), ["inner"]);
    assert_eq!(Symbols::of(plugin).names(&site).len(), 1, "{:?}", site.frames);
}
