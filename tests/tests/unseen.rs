//! Allocations that cannot be recorded are reported with the reason, at the end of the recording, in text and in JSON.
//! Programs without such allocations get no such message.
use heaptrack_tests::heaptrace::{Heaptrace, Part};
use heaptrack_tests::report::modules;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Outcome, Program, Report};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn unseen(report: &Report) -> Vec<Value> {
    report.json()["unseen"].as_array().cloned().unwrap_or_default()
}

/// Expects exactly one reason for unseen allocations. Asserts its kind, the end of its subject, and that stderr, the
/// text and the summary have it. Returns its sentence.
fn assert_said(outcome: &Outcome, kind: &str, subject: &str) -> String {
    let report = outcome.report();
    let all = unseen(&report);
    let [one] = &all[..] else { panic!("one reason, not {all:?}") };
    assert_eq!(one["kind"], kind);
    assert!(one["subject"].as_str().unwrap().ends_with(subject), "{one}");
    let sentence = one["sentence"].as_str().unwrap().to_owned();
    assert!(outcome.stderr.contains(&format!("heaptrack: not recorded: {sentence}\n")), "{}", outcome.stderr);
    assert!(print(&["--full"], &outcome.trace).contains(&format!("\nnot recorded: {sentence}\n")));
    assert_eq!(summary_unseen(&outcome.trace), all);
    sentence
}

/// The list as the page gets it.
fn summary_unseen(trace: &Path) -> Vec<Value> {
    let summary: Value = serde_json::from_str(&print(&["--json", "--view", "summary"], trace)).unwrap();
    summary["unseen"].as_array().cloned().unwrap_or_else(|| panic!("no `unseen`: {summary}"))
}

fn assert_nothing_unseen(report: &Report) {
    assert_eq!(report.json()["unseen"].as_array().map(Vec::len), Some(0), "{}", report.json()["unseen"]);
}

fn print(options: &[&str], trace: &Path) -> String {
    let output = Command::new(heaptrack()).arg("print").args(options).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn opens(program: &str, library: &str, how: &str) -> Program {
    Program::target(program).arg(target(library)).arg(how)
}

#[test]
fn a_library_with_deepbind_is_seen() {
    for how in ["deep", "deep-now"] {
        let report = opens("opens", "libwork.so", how).same_output().whole_report();
        for (size, count) in [(6001, 10), (6002, 1000), (6003, 1000)] {
            let site = report.of_size(size);
            assert_eq!((site.allocations, site.leaked_allocations), (count, 0), "{how}, {size} bytes");
        }
        assert_eq!(report.total("unknown_frees"), 0);
        assert_nothing_unseen(&report);
    }
}

/// The library is bound to libc's malloc and the program to jemalloc's. heaptrack cannot change that without changing
/// the program.
#[test]
fn a_library_with_deepbind_and_another_malloc_is_reported() {
    let outcome = opens("opens_jemalloc", "libwork.so", "deep").same_output();
    let report = outcome.report();
    let told = unseen(&report);
    assert!(told.iter().all(|one| one["kind"] == "deepbind"), "{told:?}");
    assert!(told.iter().any(|one| one["subject"].as_str().unwrap().ends_with("libwork.so")), "{told:?}");
}

#[test]
fn a_dlmopen_namespace_is_reported() {
    let outcome = opens("opens", "libwork.so", "namespace").same_output();
    let sentence = assert_said(&outcome, "namespace", "libwork.so");
    assert!(
        sentence.ends_with("libwork.so was loaded into a namespace of its own (dlmopen), which has another malloc.")
    );
    assert_eq!(outcome.report().of_size(6002).allocations, 0, "if these are recorded, the reported sentence is wrong");
    // The loader is mapped once, although it lists itself in both namespaces.
    let is_loader = |module: &&format::Module| module.path.contains("/ld-linux");
    assert_eq!(modules(&outcome.trace).iter().filter(is_loader).count(), 1);
}

#[test]
fn an_allocator_in_the_program_is_reported() {
    let outcome = Program::target("foreign").same_output();
    let sentence = assert_said(&outcome, "foreign_allocator", "foreign");
    assert!(sentence.ends_with("has an allocator of its own (mimalloc, mi_malloc_aligned), which is not hooked."));
    assert_eq!(outcome.report().of_size(7001).allocations, 10);
}

#[test]
fn an_allocator_that_a_library_hides_is_reported() {
    let outcome = opens("opens", "libhidden.so", "now").same_output();
    assert_said(&outcome, "foreign_allocator", "libhidden.so");
}

#[test]
fn an_allocator_that_is_hooked_is_not_reported() {
    for name in ["families_jemalloc", "families_tcmalloc", "families_mimalloc", "operators"] {
        let program = Program::target(name);
        let program = if name == "operators" { program.args(["1", "calm"]) } else { program };
        assert_nothing_unseen(&program.recorded().report());
    }
}

#[test]
fn the_pools_of_python_are_reported() {
    let python =
        Program::new("/usr/bin/python3").option("--no-symbols").args(["-c", "x = [object() for _ in range(1000)]"]);
    let sentence = assert_said(&python.same_output(), "pymalloc", "");
    assert!(sentence.contains("PYTHONMALLOC=malloc"));
    // Every object is in this trace, so only its summary is read.
    let every_object = python.env("PYTHONMALLOC", "malloc").same_output();
    assert_eq!(summary_unseen(&every_object.trace), [] as [Value; 0]);
}

#[test]
fn a_sandbox_is_reported() {
    let outcome = Program::target("sandboxed").same_output();
    assert_said(&outcome, "sandbox", "");
}

/// Blocks that ended with the exec are neither freed nor leaked, and the recording says at which exec it ends.
#[test]
fn an_exec_into_a_static_program_is_reported() {
    let outcome = Program::target("execs").arg(target("hello_static")).same_output();
    assert_eq!(outcome.stdout, "hello 1 \n");
    let sentence = assert_said(&outcome, "exec", "hello_static");
    assert!(sentence.contains("linked statically"), "{sentence}");
    let report = outcome.report();
    let site = report.of_size(7002);
    assert_eq!((site.allocations, site.leaked_allocations), (100, 0));
    assert_eq!(report.total("leaked_allocations"), 0);
    assert_eq!(report.total("deallocations"), 0);
    assert!(!report.complete());
}

/// The new user namespace removes the right to open the collector's memory.
#[test]
fn an_exec_with_other_rights_is_reported() {
    let outcome = Program::new("unshare").args(["-U", "/bin/true"]).same_output();
    assert_said(&outcome, "exec", "/bin/true");
    let report = outcome.report();
    assert_eq!(report.total("leaked_allocations"), 0);
    assert!(!report.complete());
}

#[test]
fn an_exec_that_is_recorded_or_fails_is_not_reported() {
    let recorded = Program::target("execs").arg(target("hello")).same_output().whole_report();
    assert_nothing_unseen(&recorded);
    assert_eq!(recorded.of_size(7002).allocations, 100);
    let failed = Program::target("execs").arg("/no/such").same_output();
    assert_eq!(failed.code, 5);
    let report = failed.whole_report();
    assert_nothing_unseen(&report);
    assert_eq!(report.of_size(7002).leaked_allocations, 100);
}

#[test]
fn what_was_not_seen_stays_in_trimmed_and_merged_traces() {
    let outcome = Program::target("foreign").recorded();
    let all = unseen(&outcome.report());
    let folder = Folder::new();
    let (trimmed, merged) = (folder.join("trimmed.htz"), folder.join("merged.htz"));
    let run = |words: &[&std::ffi::OsStr]| assert!(Command::new(heaptrack()).args(words).status().unwrap().success());
    let trace = outcome.trace.as_os_str();
    run(&["trim".as_ref(), trace, "--to".as_ref(), "1h".as_ref(), "-o".as_ref(), trimmed.as_os_str()]);
    run(&["merge".as_ref(), trace, trace, "-o".as_ref(), merged.as_os_str()]);
    for file in [trimmed, merged] {
        assert_eq!(unseen(&Report::of(&file)), all, "{}", file.display());
    }
}

#[test]
fn heaptrace_reports_unseen_allocations_too() {
    let library = target("libwork.so");
    let traced = Heaptrace::new(Vec::<&str>::new()).target("opens").arg(library).arg("namespace").run();
    let said =
        |part: &Part| matches!(part, Part::Sentence(text) if text.contains("not seen: ") && text.contains("dlmopen"));
    assert_eq!(traced.parts().iter().filter(|part| said(part)).count(), 1, "{}", traced.stderr);
}
