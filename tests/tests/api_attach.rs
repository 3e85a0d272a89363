//! Blocks that a program reports itself, recorded from the middle of its life.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{sources, workspace};
use heaptrack_tests::{Folder, Report, scale};
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn compile(compiler: &str, flags: &[&str], folder: &Folder) -> PathBuf {
    let path = folder.join("pool");
    let mut command = Command::new(compiler);
    command.args(["-g", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"]).arg(workspace().join("include"));
    if compiler == "g++" {
        command.args(["-x", "c++"]);
    }
    command.arg(sources().join("pool_lines.c")).args(["-x", "none"]).args(flags).arg("-o").arg(&path);
    run(&mut command);
    path
}

fn totals(report: &Report) -> [u64; 5] {
    ["allocations", "deallocations", "allocated_bytes", "leaked_bytes", "unknown_frees"]
        .map(|name| report.json()["custom"]["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name}")))
}

/// Lets a program report blocks before, during and after a recording, twice. Each trace has exactly the blocks that the
/// program reported during that recording.
fn check(command: &mut Command) {
    let count = scale::count(1_000_000);
    let mut target = Target::spawn(command);
    assert_eq!(target.tell("1000"), "took 1000 left 100");
    for before in [100, 50] {
        let session = Session::attach(target.pid, &[]);
        assert_eq!(target.tell(&count.to_string()), format!("took {count} left {}", count / 10));
        let ended = session.detach();
        let report = ended.report();
        assert!(report.complete(), "{}", ended.text);
        assert_eq!(report.total("lost_events"), 0);
        let left = count / 10;
        assert_eq!(totals(&report), [count, count - left, count * 48, left * 48, before]);
        let leaf = &report.json()["custom"]["leaked"][0]["frames"][0]["function"];
        assert!(leaf.as_str().is_some_and(|name| name.contains("take")), "{leaf}");
        assert_eq!(target.tell("500"), "took 500 left 50", "the program continues without a recording");
    }
    assert_eq!(target.finish(), (0, String::new()));
}

#[test]
fn c_and_cpp_programs() {
    let forms: &[(&str, &[&str])] = &[
        ("gcc", &["-std=c89"]),
        ("gcc", &["-std=c2x", "-no-pie", "-fno-pie"]),
        ("g++", &["-std=c++98"]),
        ("g++", &["-std=c++20"]),
        ("gcc", &["-static"]),
    ];
    for (compiler, flags) in forms {
        println!("{compiler} {flags:?}");
        let folder = Folder::new();
        check(&mut Command::new(compile(compiler, flags, &folder)));
    }
}

#[test]
fn rust_programs() {
    let folder = Folder::new();
    let rustc = || {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").args(["--edition", "2024", "-g", "-O"]);
        command
    };
    let library = folder.join("libheaptrack_api.rlib");
    let source = workspace().join("crates/heaptrack-api/src/lib.rs");
    run(rustc().args(["--crate-type", "rlib", "--crate-name", "heaptrack_api"]).arg(source).arg("-o").arg(&library));
    let path = folder.join("pool");
    let with = format!("heaptrack_api={}", library.display());
    run(rustc().arg("--extern").arg(with).arg(sources().join("pool_lines.rs")).arg("-o").arg(&path));
    check(&mut Command::new(path));
}

#[test]
fn programs_linked_to_the_library() {
    for name in ["-lheaptrack_preload", "-lheaptrack_inject"] {
        let folder = Folder::new();
        let place = folder.join("lib");
        run(Command::new(heaptrack()).args(["lib", "--install"]).arg(&place));
        let search = format!("-L{}", place.display());
        let path = compile("gcc", &["-DLINKED", &search, name], &folder);
        check(Command::new(path).env("LD_LIBRARY_PATH", &place));
    }
}

/// The 7 pointers of `heaptrack_api_table` in the program's memory. They are zero while the program is not recorded.
fn table(pid: u32, program: &Path) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let symbols = Command::new("nm").arg(program).output().expect("nm");
    let text = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = text.lines().find(|line| line.ends_with(" heaptrack_api_table")).expect("the table");
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let base = u64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
    let mut bytes = vec![0; 56];
    std::fs::File::open(format!("/proc/{pid}/mem")).unwrap().read_exact_at(&mut bytes, base + address).unwrap();
    bytes
}

#[test]
fn nothing_is_left_in_the_table() {
    let folder = Folder::new();
    let path = compile("gcc", &["-pie", "-fPIE"], &folder);
    let mut target = Target::spawn(&mut Command::new(&path));
    assert_eq!(target.tell("10"), "took 10 left 1");
    assert_eq!(table(target.pid, &path), [0; 56]);
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert!(table(target.pid, &path).chunks(8).all(|word| word != [0; 8]), "seven pointers");
    session.detach();
    assert_eq!(table(target.pid, &path), [0; 56]);
    assert_eq!(target.tell("10"), "took 10 left 1");
}
