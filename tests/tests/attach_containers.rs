//! Programs in namespaces of their own, which contain no file of heaptrack's. They are attached to by the pid that they
//! have outside.
use heaptrack_tests::attach::{Session, Target, below};
use heaptrack_tests::process;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report};
use std::path::Path;
use std::process::Command;

const SIZES: [u64; 9] = [1001, 1002, 1003, 1004, 1005, 1006, 1088, 1008, 1010];

fn assert_rounds(report: &Report, calls: u64) {
    for size in SIZES {
        assert_eq!(report.of_size(size).allocations, calls, "blocks of {size} bytes");
    }
    assert_eq!((report.total("lost_events"), report.total("unknown_frees")), (0, 0));
}

/// Makes a root folder that contains one static program.
fn root_with_static(folder: &Folder) {
    std::fs::copy(target("attach_phases_static"), folder.join("program")).unwrap();
}

/// Makes a root folder that contains only the program and its libraries.
fn root_with_libraries(folder: &Folder) {
    std::fs::copy(target("attach_phases"), folder.join("program")).unwrap();
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"] {
        let copy = folder.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(path, copy).unwrap();
    }
}

/// Starts the program in new namespaces, where it is pid 1 and its root is the folder.
fn start(folder: &Folder, namespaces: &[&str]) -> Target {
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["--fork", "--kill-child", "--root"]).arg(folder.path()).args(["/program", "2"]);
    let mut inside = Target::spawn(&mut command);
    assert_eq!(inside.tell("1"), "done 1");
    inside.pid = below(inside.pid, "program");
    inside
}

fn recorded_from_outside(mut inside: Target) {
    let own = std::fs::read_to_string(format!("/proc/{}/status", inside.pid)).unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap().split_whitespace().last().unwrap();
    assert_eq!(own, "1", "it is the first process of its namespace");
    let session = Session::attach(inside.pid, &["--no-symbols"]);
    // Lasts longer than the interval at which the collector checks which threads are alive, so that a wrong answer
    // would show.
    for _ in 0..5 {
        assert_eq!(inside.tell("10"), "done 10");
        std::thread::sleep(std::time::Duration::from_millis(120));
    }
    let ended = session.detach();
    let report = ended.report();
    assert_rounds(&report, 100);
    assert_eq!(report.json()["threads"], 2, "a thread that continues counts as one thread");
    assert_eq!(inside.tell("1"), "done 1");
    assert!(!inside.maps().contains("memfd:heaptrack"));
    assert!(process::state(inside.pid).is_some());
}

#[test]
fn a_static_program_in_an_empty_root() {
    let folder = Folder::new();
    root_with_static(&folder);
    recorded_from_outside(start(&folder, &["--mount", "--pid", "--user", "--map-root-user"]));
    assert_eq!(folder.names(), ["program"], "nothing was written there");
}

#[test]
fn a_program_with_its_libraries_only() {
    let folder = Folder::new();
    root_with_libraries(&folder);
    recorded_from_outside(start(&folder, &["--mount", "--pid", "--user", "--map-root-user"]));
    recorded_from_outside(start(&folder, &["--mount", "--pid", "--net", "--ipc", "--uts"]));
    assert_eq!(folder.names(), ["lib", "lib64", "program"]);
}

#[test]
fn names_come_from_the_programs_own_root() {
    let folder = Folder::new();
    root_with_libraries(&folder);
    let mut inside = start(&folder, &["--mount", "--pid", "--user", "--map-root-user"]);
    let session = Session::attach(inside.pid, &[]);
    assert_eq!(inside.tell("5"), "done 5");
    let report = session.detach().report();
    let text = report.json()["allocations"].to_string();
    assert!(text.contains("\"function\":\"round_of_calls\""), "{text}");
    assert!(Path::new("/program").metadata().is_err(), "the precondition of this test does not hold");
}
