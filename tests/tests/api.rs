//! Blocks that a program reports itself. Their numbers are exact and separate from malloc's. Without heaptrack the
//! calls do nothing.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{sources, workspace};
use heaptrack_tests::{Folder, Outcome, Program, Report, scale};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const STRICT: &[&str] = &["-Wall", "-Wextra", "-pedantic", "-Werror"];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Compiles a target against our header. Any output of the compiler counts as a warning and fails the test.
fn compile(compiler: &str, source: &str, flags: &[&str], folder: &Folder, name: &str) -> PathBuf {
    let path = folder.join(name);
    let mut command = Command::new(compiler);
    command.current_dir(folder.path()).args(["-g", "-pthread"]).args(STRICT).args(flags);
    command.arg("-I").arg(workspace().join("include"));
    if compiler.ends_with("++") {
        command.args(["-x", "c++"]);
    }
    command.arg(sources().join(source)).args(["-x", "none"]).arg("-o").arg(&path);
    command.args(flags.iter().filter(|flag| flag.starts_with("-l") || flag.starts_with("-L")));
    assert_eq!(run(&mut command), "", "{command:?}");
    path
}

/// Compiles a Rust target that uses the crate `heaptrack_api`.
fn compile_rust(source: &str, folder: &Folder) -> PathBuf {
    let rustc = || {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.args(["--edition", "2024", "-g", "-O", "-Dwarnings"]);
        command
    };
    let library = folder.join("libheaptrack_api.rlib");
    let crate_root = workspace().join("crates/heaptrack-api/src/lib.rs");
    run(rustc()
        .args(["--crate-type", "rlib", "--crate-name", "heaptrack_api"])
        .arg(crate_root)
        .arg("-o")
        .arg(&library));
    let path = folder.join(source.trim_end_matches(".rs"));
    let with = format!("heaptrack_api={}", library.display());
    run(rustc().arg("--extern").arg(with).arg(sources().join(source)).arg("-o").arg(&path));
    path
}

/// The `name=number` words of the last line.
fn numbers(stdout: &str) -> BTreeMap<String, u64> {
    let words = stdout.lines().last().unwrap_or_default().split_whitespace();
    words
        .map(|word| word.split_once('=').unwrap())
        .map(|(name, number)| (name.into(), number.parse().unwrap()))
        .collect()
}

fn custom(report: &Report) -> &Value {
    let custom = &report.json()["custom"];
    assert!(custom.is_object(), "no custom allocators in the report");
    custom
}

fn custom_total(report: &Report, name: &str) -> u64 {
    custom(report)["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name}"))
}

/// Asserts that the trace holds exactly what the program counted.
fn assert_counted(outcome: &Outcome) -> Report {
    let report = outcome.whole_report();
    for (name, number) in numbers(&outcome.stdout) {
        let total = match name.as_str() {
            "bytes" => "allocated_bytes",
            "live" => "leaked_allocations",
            "live_bytes" => "leaked_bytes",
            other => other,
        };
        assert_eq!(custom_total(&report, total), number, "{name}: {}", outcome.stdout);
    }
    assert_eq!(custom_total(&report, "unknown_frees") + custom_total(&report, "implied_frees"), 0);
    report
}

/// Names of the functions of a list's first stack.
fn functions(list: &Value) -> Vec<&str> {
    let frames = list[0]["frames"].as_array().unwrap_or_else(|| panic!("no stack in {list}"));
    frames.iter().filter_map(|frame| frame["short"].as_str()).collect()
}

fn check_pool(path: &Path) {
    let count = scale::count(1_000_000);
    let outcome = Program::new(path).arg(count.to_string()).same_output();
    assert_eq!(numbers(&outcome.stdout)["allocations"], count);
    let report = assert_counted(&outcome);
    assert_eq!(report.of_size(64000).allocations, 1, "the pool's memory is one block of malloc's");
    assert_eq!(report.total("peak_bytes"), report.total("allocated_bytes"), "malloc's totals are malloc's");
    assert!(report.total("allocations") < 10, "{}", report.total("allocations"));
    assert_eq!(functions(&custom(&report)["leaked"])[..2], ["take", "main"]);
}

#[test]
fn the_header_works_in_every_c_standard() {
    for standard in ["c89", "c99", "c11", "c17", "c2x"] {
        let folder = Folder::new();
        check_pool(&compile("gcc", "pool.c", &["-O1", &format!("-std={standard}")], &folder, standard));
    }
}

#[test]
fn the_header_works_in_every_cpp_standard() {
    for standard in ["c++98", "c++11", "c++14", "c++17", "c++20"] {
        let folder = Folder::new();
        check_pool(&compile("g++", "pool.c", &["-O1", &format!("-std={standard}")], &folder, standard));
    }
}

#[test]
fn a_rust_program_reports_its_blocks() {
    let folder = Folder::new();
    let path = compile_rust("pool_rust.rs", &folder);
    let outcome = Program::new(&path).arg(scale::count(1_000_000).to_string()).same_output();
    let report = assert_counted(&outcome);
    assert_eq!(functions(&custom(&report)["leaked"])[..2], ["Pool::take", "pool_rust::main"]);
}

#[test]
fn a_global_allocator_of_rust() {
    let folder = Folder::new();
    let outcome = Program::new(compile_rust("pool_global.rs", &folder)).same_output();
    let report = assert_counted(&outcome);
    assert!(custom_total(&report, "allocations") > 20_000);
}

/// With other compilers, linker options and forms of the header, the program compiles without a warning, prints the
/// same alone and recorded, and the trace has the numbers that it counted.
#[test]
fn every_form_of_the_header() {
    let forms: &[(&str, &[&str])] = &[
        ("clang", &["-std=c89"]),
        ("clang", &["-std=c2x", "-O2"]),
        ("clang++", &["-std=c++98"]),
        ("clang++", &["-std=c++20", "-O2"]),
        ("gcc", &["-std=c89", "-DHEAPTRACK_API_DLSYM"]),
        ("g++", &["-std=c++98", "-DHEAPTRACK_API_DLSYM", "-O2"]),
        ("clang", &["-std=c99", "-DHEAPTRACK_API_DLSYM", "-O2"]),
        ("gcc", &["-O2", "-DHEAPTRACK_DEFINE_VALGRIND_MACROS"]),
        ("gcc", &["-no-pie", "-fno-pie", "-O2"]),
        ("gcc", &["-O2", "-flto"]),
        ("gcc", &["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]),
        ("gcc", &["-O3", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer", "-Wl,-z,now"]),
        ("gcc", &["-Wshadow", "-Wundef", "-Wcast-qual", "-Wstrict-prototypes", "-Wmissing-declarations"]),
    ];
    let folder = Folder::new();
    for (number, (compiler, flags)) in forms.iter().enumerate() {
        let path = compile(compiler, "pool.c", flags, &folder, &format!("form{number}"));
        let outcome = Program::new(&path).arg("5000").same_output();
        println!("{compiler} {flags:?}");
        assert_counted(&outcome);
    }
}

#[test]
fn threads_that_share_a_pool() {
    let folder = Folder::new();
    let path = compile("gcc", "pool_threads.c", &["-O2"], &folder, "threads");
    let count = scale::count(500_000);
    let outcome = Program::new(path).args(["4", &count.to_string()]).same_output();
    assert_eq!(outcome.stdout, format!("reported={}\n", 4 * count));
    let report = outcome.whole_report();
    let totals = ["allocations", "deallocations", "allocated_bytes", "leaked_bytes", "unknown_frees", "implied_frees"];
    let found = totals.map(|name| custom_total(&report, name));
    assert_eq!(found, [4 * count, 4 * count, 4 * count * 24, 0, 0, 0]);
}

#[test]
fn libraries_that_are_loaded_later_report_too() {
    // One library reports through weak names, as KDE's header does. The other one uses our table. The program opens
    // both with dlopen.
    let folder = Folder::new();
    let shared = ["-shared", "-fPIC", "-std=c11"];
    let by_name = compile("gcc", "libpool.c", &shared, &folder, "libpool.so");
    let by_table = compile("gcc", "libpool_own.c", &shared, &folder, "libpool_own.so");
    let user = compile("gcc", "pool_user.c", &["-std=gnu11", "-Wno-pedantic"], &folder, "user");
    let report = Program::new(user).arg(by_name).arg(by_table).same_output().whole_report();
    let sizes = [(33, "libpool.so"), (34, "libpool_own.so")];
    assert_eq!(custom_total(&report, "allocations"), 100);
    assert_eq!(custom_total(&report, "allocated_bytes"), 50 * 33 + 50 * 34);
    assert_eq!(custom_total(&report, "leaked_bytes"), 30 * 33 + 30 * 34);
    for (size, library) in sizes {
        let list = custom(&report)["allocations"].as_array().unwrap();
        let site = list.iter().find(|site| site["allocated_bytes"] == 50 * size).unwrap();
        let module = site["frames"][0]["module"].as_str().unwrap();
        assert!(module.ends_with(library), "{module}");
    }
}

/// Runs `heaptrack lib --install` into a folder.
fn install(folder: &Folder) -> PathBuf {
    let place = folder.join("lib");
    let said = run(Command::new(heaptrack()).args(["lib", "--install"]).arg(&place));
    let names: Vec<String> =
        said.lines().map(|line| Path::new(line).file_name().unwrap().to_string_lossy().into()).collect();
    assert_eq!(names, ["libheaptrack_preload.so", "libheaptrack_inject.so", "heaptrack_api.h"]);
    assert!(names.iter().all(|name| place.join(name).exists()));
    place
}

#[test]
fn the_library_and_the_header_are_installed() {
    let folder = Folder::new();
    let place = install(&folder);
    let ours = std::fs::read(workspace().join("include/heaptrack_api.h")).unwrap();
    assert_eq!(std::fs::read(place.join("heaptrack_api.h")).unwrap(), ours);
    // Install once more, over the existing files.
    install(&folder);
    let path = run(Command::new(heaptrack()).args(["lib", "--path"]));
    let library = std::fs::read(path.trim()).unwrap();
    assert!(library == std::fs::read(place.join("libheaptrack_preload.so")).unwrap());
    let refused = Command::new(heaptrack()).args(["lib", "--install", "/proc/no"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&refused.stderr).lines().count(), 1, "the message is one sentence");
    let neither = Command::new(heaptrack()).arg("lib").output().unwrap();
    assert_eq!(neither.status.code(), Some(2));
}

/// Records a program, from its launch, that is linked to the library under one of its names.
fn check_linked(name: &str, second_copy: bool) {
    let folder = Folder::new();
    let place = install(&folder);
    if second_copy {
        // With another soname the loader takes it for another library and maps both.
        let library = place.join("libheaptrack_preload.so");
        let bytes = std::fs::read(&library).unwrap();
        let text = b"libheaptrack_preload.so";
        let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
        let mut other = bytes;
        other[at..at + text.len()].copy_from_slice(b"libheaptrack_another.so");
        std::fs::write(place.join("libheaptrack_another.so"), other).unwrap();
    }
    let search = format!("-L{}", place.display());
    let path = compile("gcc", "pool_linked.c", &["-std=c11", &search, name], &folder, "linked");
    let program = Program::new(path).env("LD_LIBRARY_PATH", &place);
    let report = program.same_output().whole_report();
    let totals = ["allocations", "deallocations", "allocated_bytes", "leaked_bytes"];
    assert_eq!(totals.map(|name| custom_total(&report, name)), [12, 6, 500, 260], "{name}");
    let malloc = report.of_size(123);
    assert_eq!((malloc.allocations, malloc.leaked_allocations), (7, 4), "each block is counted once");
    let stopped = program.clone().arg("stop").recorded();
    assert_eq!(stopped.stdout, "linked done\n");
    // If there is a second copy, the calls about callbacks reach the copy that the program is linked to.
    assert!(stopped.stderr.contains("begun 1, ended 1, warned 1"), "{}", stopped.stderr);
    let report = stopped.whole_report();
    assert_eq!(totals.map(|name| custom_total(&report, name)), [12, 6, 500, 260], "{name}");
    assert_eq!(report.of_size(123).leaked_allocations, 4);
    let note = report.json()["losses"]["note"].as_str().unwrap();
    assert!(note.contains("heaptrack_stop"), "{note}");
    let alone = program.arg("stop").alone();
    assert!(alone.stderr.contains("begun 0, ended 0, warned 0"), "{}", alone.stderr);
}

#[test]
fn linked_to_the_preload_name() {
    check_linked("-lheaptrack_preload", false);
}

#[test]
fn linked_to_the_inject_name() {
    check_linked("-lheaptrack_inject", false);
}

#[test]
fn linked_to_another_copy() {
    check_linked("-lheaptrack_another", true);
}

#[test]
fn a_pause_loses_no_free() {
    let folder = Folder::new();
    let path = compile("gcc", "pool_pause.c", &["-std=c89"], &folder, "pause");
    let report = Program::new(path).same_output().whole_report();
    let counts = |bytes| {
        let site = report.of_size(bytes);
        (site.allocations, site.leaked_allocations, site.temporary)
    };
    assert_eq!(counts(201), (10, 4, 0), "5 freed, 1 reallocated");
    assert_eq!(counts(202), (0, 0, 0));
    assert_eq!(counts(301), (0, 0, 0));
    assert_eq!(counts(203), (2, 2, 0));
    assert_eq!(report.total("unknown_frees"), 3);
    let totals = ["allocations", "deallocations", "allocated_bytes", "leaked_bytes", "unknown_frees"];
    assert_eq!(totals.map(|name| custom_total(&report, name)), [12, 6, 496, 4 * 41 + 2 * 43, 3]);
    let note = report.json()["losses"]["note"].as_str().unwrap();
    assert!(note.contains("paused recording once"), "{note}");
}

#[test]
fn a_program_that_reports_nothing_has_no_such_section() {
    let outcome = Program::target("plain").recorded();
    assert_eq!(outcome.whole_report().json()["custom"], Value::Null);
    let text = run(Command::new(heaptrack()).arg("print").arg(&outcome.trace));
    assert!(!text.contains("custom"), "{text}");
}

/// Runs `heaptrack` and returns what it prints on stderr.
fn said(arguments: &[&std::ffi::OsStr]) -> String {
    let output = Command::new(heaptrack()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_export_holds_one_domain() {
    let folder = Folder::new();
    let path = compile("gcc", "pool.c", &["-O1"], &folder, "pool");
    let outcome = Program::new(&path).arg("5000").recorded();
    let allocations = |custom: &[&str]| {
        let mut command = Command::new(heaptrack());
        command.args(["export", "--to", "folded", "--cost", "allocations"]).args(custom).arg(&outcome.trace);
        let lines = run(&mut command);
        lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
    };
    assert_eq!(allocations(&[]), outcome.report().total("allocations"));
    assert_eq!(allocations(&["--custom"]), 5000);
    let short = folder.join("short.htz");
    let trim = ["trim".as_ref(), outcome.trace.as_os_str(), "-o".as_ref(), short.as_os_str()];
    assert!(!said(&trim).contains("left out"), "a part of a trace has the blocks of custom allocators");
    assert_eq!(custom_total(&Report::of(&short), "allocations"), 5000);
    // A name that asks for KDE's format. That format cannot hold custom allocators, so the trace stays as well.
    let zst = folder.join("kde.zst");
    let said = said(&["-o".as_ref(), zst.as_os_str(), path.as_os_str(), "5000".as_ref()]);
    assert!(said.contains("kde.zst.htz stays"), "{said}");
    assert!(zst.exists());
    assert_eq!(custom_total(&Report::of(&folder.join("kde.zst.htz")), "allocations"), 5000);
    let none = Program::target("plain").recorded();
    let refused =
        Command::new(heaptrack()).args(["export", "--to", "folded", "--custom"]).arg(&none.trace).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}
