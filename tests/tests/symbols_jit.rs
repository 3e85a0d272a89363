//! Code that a program generates while it runs. Its frames are unwound, and have the names that the program's runtime
//! publishes.
use heaptrack_tests::report::Site;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::symbols::{Symbols, assert_script_is_named};
use heaptrack_tests::view::view;
use heaptrack_tests::{Folder, Program, Report, targets};
use std::path::Path;
use std::process::Command;

#[test]
fn trampolines_without_a_frame_pointer() {
    let outcome = Program::target("trampoline").same_output();
    let report = outcome.whole_report();
    let symbols = Symbols::of(targets::target("trampoline"));
    // 890 and 891 differ only in the distance to the caller's frame.
    for (calls, bytes) in [(20, 8900 + 8910), (10, 8920), (10, 8930)] {
        let is_it = |site: &Site| (site.allocations, site.allocated_bytes) == (calls, bytes);
        let sites: Vec<_> = report.sites().into_iter().filter(is_it).collect();
        let [site] = &sites[..] else { panic!("{bytes}: {sites:?}") };
        assert_eq!(site.leaked_allocations, calls);
        assert_eq!(site.frames[1].module, None, "the code itself is in no file");
        assert_eq!(symbols.names(site)[..3], ["inside", "before", "main"], "{bytes}: {:?}", site.frames);
    }
}

const SCRIPT: &str = "
def inner(n):
    return bytearray(n)

def outer():
    return [inner(7777) for _ in range(50)]

kept = outer()
";

/// Debian 13's Python, with its own libc in its own root folder. The whole stack is there, with the names of both
/// languages.
#[test]
fn python_functions_stand_between_native_frames() {
    let root = targets::workspace().join("target/newer-python");
    assert!(root.join("usr/bin/python3.13").exists(), "tests/setup.sh makes it");
    let folder = Folder::new();
    std::fs::copy(heaptrack(), folder.join("heaptrack")).unwrap();
    std::fs::write(folder.join("script.py"), SCRIPT).unwrap();
    let line = "mount --bind \"$1\" \"$2/tmp\" && mount --bind /proc \"$2/proc\" && \
                exec chroot \"$2\" /tmp/heaptrack -o /tmp/trace.htz /usr/bin/python3.13 -I -S -X perf /tmp/script.py";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", line, "sh"]).arg(folder.path()).arg(&root);
    let output = command.env("PYTHONMALLOC", "malloc").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = Report::of(&folder.join("trace.htz"));
    assert_eq!(report.total("lost_events"), 0);
    // Python adds a terminating zero.
    let sites = report.entries_of_size(7778);
    let [site] = &sites[..] else { panic!("{} sites", sites.len()) };
    assert_eq!(site["allocations"], 50);
    let frames = site["frames"].as_array().unwrap();
    let scripted: Vec<_> = frames.iter().filter(|frame| frame["file"] == "/tmp/script.py").collect();
    let names: Vec<_> = scripted.iter().map(|frame| frame["function"].as_str().unwrap()).collect();
    assert_eq!(names, ["inner", "outer", "<module>"]);
    assert!(scripted.iter().all(|frame| frame["module"].is_null() && frame["class"] == "program"));
    let last = frames.last().unwrap();
    assert_eq!(last["module"], "/usr/bin/python3.13", "the stack goes to the program's entry");
}

/// jitdump, the other format in which V8 publishes its functions.
#[test]
fn node_tells_its_functions_by_jitdump() {
    let (addon, source) = (targets::target("addon.node"), targets::sources().join("addon.js"));
    // Node leaves the dump and a log in its folder.
    let folder = Folder::new();
    let node = Program::new("node").arg("--perf-prof").arg(&source).arg(&addon).current_dir(folder.path());
    let report = node.recorded().whole_report();
    assert_script_is_named(&report.entries_of_size(12345));
}

/// Two workers, each with a function of its own name, at addresses that may be the same.
const CLUSTER: &str = "const cluster = require('cluster');\n\
    if (cluster.isPrimary) for (const name of ['first', 'second']) cluster.fork({ NAME: name });\n\
    else {\n\
      const make = new Function('n', `return (function ${process.env.NAME}_worker(n) {\n\
        const kept = []; for (let i = 0; i < n; i++) kept.push(Buffer.allocUnsafeSlow(70001)); return kept.length; })(n)`);\n\
      for (let i = 0; i < 100; i++) make(20);\n\
      process.exit(0);\n\
    }\n";

/// While the processes run, and afterwards from the files that they leave.
#[test]
fn each_process_of_a_tree_has_names_of_its_own() {
    let folder = Folder::new();
    std::fs::write(folder.join("cluster.js"), CLUSTER).unwrap();
    let node = ["--perf-basic-prof", "--interpreted-frames-native-stack", "cluster.js"];
    let blocks = |trace: &Path, options: &[&str]| -> Vec<u64> {
        let rows = view(trace, "processes", &[&["--size", "70001..70001"], options].concat());
        let rows = rows["processes"].as_array().unwrap().iter();
        let mut counts: Vec<u64> = rows.map(|row| row["costs"]["allocations"].as_u64().unwrap()).collect();
        counts.sort_unstable();
        counts
    };
    for options in [&["--follow"][..], &["--follow", "--no-symbols"]] {
        let program = Program::new("node").args(node).current_dir(folder.path());
        let program = options.iter().fold(program, |program, option| program.option(option));
        let outcome = program.recorded();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        if options.len() > 1 {
            let status = Command::new(heaptrack()).args(["symbolize", "-q"]).arg(&outcome.trace).status().unwrap();
            assert!(status.success());
        }
        assert_eq!(blocks(&outcome.trace, &[]), [0, 2000, 2000], "the primary and two workers");
        for name in ["first_worker", "second_worker"] {
            assert_eq!(blocks(&outcome.trace, &["--include", name]), [0, 0, 2000], "{name}, {options:?}");
        }
    }
}
