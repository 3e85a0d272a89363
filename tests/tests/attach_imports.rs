//! `libshort.so`, an allocator whose entry points cannot be patched. Its functions are hooked in the import tables of
//! the modules that call them.
use heaptrack_tests::attach::{Session, Target, assert_detaches, cycle};
use heaptrack_tests::phases::{self, assert_rounds, counts_are_exact, finishes};

#[test]
fn counts_are_exact_when_only_imports_are_hooked() {
    for name in ["attach_phases_short", "attach_phases_short_now"] {
        let target = counts_are_exact(Target::start(name, &["2"]));
        assert_eq!(target.redirected(), 0, "{name}: every import is restored");
        finishes(target);
    }
}

/// When heaptrack attaches, most functions have not been called, so the loader has not bound them yet.
#[test]
fn before_the_first_call() {
    let mut target = Target::start("attach_phases_short", &["2"]);
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("50"), "done 50");
    let ended = session.detach();
    assert_rounds(&ended.report(), 100);
    assert_eq!(target.redirected(), 0);
    assert_eq!(target.tell("10"), "done 10", "functions that were not bound before are bound now");
    finishes(counts_are_exact(target));
}

#[test]
fn functions_that_cannot_be_patched_are_named() {
    let target = Target::start("attach_phases_short", &["1"]);
    let session = Session::attach(target.pid, &["--no-symbols"]);
    // At least malloc, free and calloc in the program's tables, and malloc and free in those of libc and the loader.
    assert!(target.redirected() >= 5, "{}", target.redirected());
    let ended = session.detach();
    let told = ended.text.lines().find(|line| line.starts_with("heaptrack: of libshort.so, ")).expect("a note");
    for part in [
        "malloc (it jumps into its own first instructions)",
        "free (it is too short)",
        "calloc (it begins with a call)",
        "cannot be patched in place and are hooked where modules import them",
        "direct calls inside libshort.so",
        "are not seen",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("realloc"), "its entry is patched: {told}");
}

/// The allocator that cannot be patched is part of the program here. A program calls its own functions directly, so
/// hooks in import tables would see almost no call. heaptrack does not hook the allocator, and says so.
#[test]
fn a_program_with_such_entries_of_its_own() {
    let mut target = Target::start("attach_short_program", &[]);
    assert_eq!(target.line(), "ready");
    let ended = cycle(target.pid, "0s");
    assert_eq!(ended.code, 0, "{}", ended.text);
    let told = "attach_short_program cannot be patched: it jumps into its own first instructions, and no module imports \
                it: a call of it is recorded only if it reaches another allocator\n";
    assert!(ended.text.contains(told), "{}", ended.text);
}

#[test]
fn detach_puts_right_what_a_killed_recorder_left() {
    let mut target = Target::start("attach_phases_short", &["2"]);
    assert_eq!(target.tell("1"), "done 1");
    let code = target.code();
    for _ in 0..2 {
        assert_eq!(Session::attach(target.pid, &["--no-symbols"]).kill().code, 137);
        assert!(target.redirected() >= 5, "the imports are redirected");
        assert_eq!(target.tell("1000"), "done 1000", "the program does not wait for a dead recorder");
        assert_detaches(target.pid);
        assert_eq!((target.redirected(), target.code() == code), (0, true));
        assert_eq!(target.tell("10"), "done 10");
    }
    // The next attach repairs it as well.
    Session::attach(target.pid, &["--no-symbols"]).kill();
    let target = counts_are_exact_after(target, &code);
    finishes(target);
}

/// Asserts that the counts are exact and that the code is again what it was before any attach.
fn counts_are_exact_after(mut target: Target, code: &[(String, u64)]) -> Target {
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("50"), "done 50");
    assert_rounds(&session.detach().report(), 100);
    assert_eq!((target.redirected(), target.code() == code), (0, true));
    target
}

#[test]
fn again_and_again_uses_the_same_memory() {
    phases::again_and_again(Target::start("attach_phases_short", &["2"]));
}

/// Code that takes a function's address during a recording gets the address of our hook. That address must work after
/// the detach and after the next attach.
#[test]
fn a_function_address_that_the_program_keeps_works_after_the_detach() {
    let mut target = Target::start("attach_pointers", &[]);
    assert_eq!(target.tell("go"), "done");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done");
    assert_eq!(target.tell("take"), "done");
    assert_eq!(target.tell("go"), "done");
    let report = session.detach().report();
    assert_eq!(report.of_size(3001).allocations, 100, "an address from before is not ours");
    assert_eq!(target.tell("go"), "done");
    assert_eq!(cycle(target.pid, "0s").code, 0);
    assert_eq!(target.tell("go"), "done");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done");
    let site = session.detach().report().of_size(3001);
    assert_eq!((site.allocations, site.leaked_allocations), (100, 0));
    finishes(target);
}
