//! Attaching to running programs. Every call is counted, no patch, shared memory or descriptor stays, and the program
//! does not notice.
use heaptrack_tests::attach::{Session, Target, assert_detaches, cycle};
use heaptrack_tests::phases::{self, assert_rounds, counts_are_exact, finishes};
use heaptrack_tests::process::{self, signal, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report, kde};
use std::process::Command;

/// Asserts that the recording of each program is exact and that the program ends as it would have alone.
fn all_are_exact<const N: usize>(names: [&str; N]) {
    for name in names {
        finishes(counts_are_exact(Target::start(name, &["2"])));
    }
}

#[test]
fn a_dynamic_program() {
    all_are_exact(["attach_phases"]);
}

#[test]
fn static_programs() {
    all_are_exact(["attach_phases_static", "attach_phases_static_pie", "attach_phases_no_pie"]);
}

#[test]
fn musl_programs() {
    all_are_exact(["attach_phases_musl", "attach_phases_musl_static"]);
}

#[test]
fn other_allocators() {
    all_are_exact(["attach_phases_jemalloc", "attach_phases_tcmalloc", "attach_phases_mimalloc"]);
}

/// The library's functions call libc's, which are patched as well. Each call must still be counted once.
#[test]
fn a_library_before_the_allocator() {
    all_are_exact(["attach_phases_wrap"]);
}

#[test]
fn a_block_that_goes_from_thread_to_thread() {
    for name in ["attach_handover", "attach_handover_wrap", "attach_handover_musl", "attach_handover_musl_static"] {
        let mut target = Target::start(name, &[]);
        assert_eq!(target.tell("go"), "done");
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("go"), "done");
        let report = session.detach().report();
        let total = |what| report.total(what);
        assert_eq!((total("allocations"), total("deallocations")), (1000, 1000), "{name}");
        assert_eq!((total("implied_frees"), total("unknown_frees"), total("lost_events")), (0, 0, 0), "{name}");
        finishes(target);
    }
}

#[test]
fn the_stack_is_whole_in_every_kind_of_program() {
    for name in ["attach_phases", "attach_phases_static", "attach_phases_static_pie", "attach_phases_musl_static"] {
        let mut target = Target::start(name, &["1"]);
        target.settle();
        let session = Session::attach(target.pid, &[]);
        assert_eq!(target.tell("3"), "done 3");
        let report = session.detach().report();
        let sites = report.json()["allocations"].as_array().unwrap().clone();
        let site = sites.iter().find(|site| site["allocated_bytes"] == 3 * 1001).unwrap();
        let names: Vec<&str> =
            site["frames"].as_array().unwrap().iter().filter_map(|frame| frame["function"].as_str()).collect();
        assert!(names.starts_with(&["round_of_calls", "work"]) && names.len() >= 3, "{name}: {names:?}");
    }
}

#[test]
fn again_and_again_uses_the_same_memory() {
    phases::again_and_again(Target::start("attach_phases", &["2"]));
}

#[test]
fn the_size_of_the_heap_before_the_attach_is_printed() {
    let mut target = Target::start("attach_phases", &["1"]);
    assert_eq!(target.tell("1"), "done 1");
    let ended = cycle(target.pid, "0s");
    let heap = ended.report().json()["heap_at_attach"].clone();
    let (size, rss) = (heap["size_bytes"].as_u64().unwrap(), heap["rss_bytes"].as_u64().unwrap());
    // The first piece of glibc's heap from brk, and the first arena of the thread.
    assert_eq!(size, (2 * 132) << 10, "{heap}");
    assert!(rss > 0 && rss <= size);
    let text =
        Command::new(heaptrack_tests::run::heaptrack()).args(["print", "--full"]).arg(&ended.trace).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("\nattached while it ran; the program ran on\n"), "{text}");
    assert!(text.contains("\ntotal memory still live at detach: 0B\n"), "{text}");
    assert!(text.contains("\nheap at attach: 270.34K, "), "{text}");
}

#[test]
fn a_name_that_ends_in_zst_is_written_in_kdes_format() {
    let mut target = Target::start("attach_phases", &["1"]);
    for name in ["trace.zst", "trace.gz"] {
        let mut session = Session::to(name, target.pid, &[]);
        assert!(session.wait_until_attached());
        assert_eq!(target.tell("50"), "done 50");
        let ended = session.detach();
        assert_eq!(ended.folder.names(), [name], "there is no other file: {}", ended.text);
        assert!(ended.text.contains(&format!("Next: heaptrack print {}\n", ended.trace.display())), "{}", ended.text);
        assert!(ended.text.contains(&format!("{} is in KDE's format\n", ended.trace.display())), "{}", ended.text);
        assert_eq!(ended.report().total("allocations"), 50 * 9);
        kde::assert_agree(&ended.trace);
    }
    // If heaptrack is killed, the part that was recorded stays.
    let mut session = Session::to("trace.zst", target.pid, &[]);
    assert!(session.wait_until_attached());
    assert_eq!(session.kill().folder.names(), ["trace.zst.htz"]);
    finishes(target);
}

#[test]
fn detach_tells_the_recorder_to_end() {
    let mut target = Target::start("attach_phases", &["1"]);
    // Repeatedly, because the two processes must not get in each other's way.
    for _ in 0..5 {
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("7"), "done 7");
        assert_detaches(target.pid);
        let ended = session.wait();
        assert_eq!(ended.code, 0, "{}", ended.text);
        assert!(!ended.text.contains("could be put back"), "{}", ended.text);
        assert_rounds(&ended.report(), 7);
    }
    finishes(target);
}

#[test]
fn detach_puts_right_what_a_killed_recorder_left() {
    let mut target = Target::start("attach_phases", &["2"]);
    assert_eq!(target.tell("1"), "done 1");
    let code = target.code();
    assert_eq!(Session::attach(target.pid, &["--no-symbols"]).kill().code, 137);
    assert_ne!(target.code(), code, "the patches are there");
    assert_eq!(target.tell("20000"), "done 20000", "the program does not wait for a dead recorder");
    assert_detaches(target.pid);
    assert_eq!(target.code(), code);
    assert!(!target.maps().contains("memfd:heaptrack"));
    let expected = format!("heaptrack: detached from {}, 0 functions put back\n", target.pid);
    assert_eq!(assert_detaches(target.pid), expected);
    finishes(counts_are_exact(target));
}

#[test]
fn the_program_ends_while_it_is_recorded() {
    let mut target = Target::start("attach_phases", &["1"]);
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("9"), "done 9");
    finishes(target);
    let ended = session.wait();
    assert_eq!(ended.code, 0, "{}", ended.text);
    assert_rounds(&ended.report(), 9);
}

#[test]
fn the_program_becomes_another_one() {
    let target = Target::spawn(Command::new("/bin/sh").args(["-c", "echo up; read go; exec cat"]));
    let mut target = target;
    assert_eq!(target.line(), "up");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    target.send("go");
    let ended = session.wait();
    assert_eq!(ended.code, 0, "{}", ended.text);
    assert!(ended.text.contains("or become another one"), "{}", ended.text);
    assert_eq!(target.tell("still here"), "still here");
    finishes(target);
}

#[test]
fn a_stopped_program_stays_stopped() {
    let mut target = Target::start("attach_phases", &["2"]);
    assert_eq!(target.tell("1"), "done 1");
    signal("STOP", &[target.pid]);
    wait_for("the stop", || (process::state(target.pid) == Some('T')).then_some(()));
    let session = Session::attach(target.pid, &["--no-symbols"]);
    // The kernel puts a thread back into its group stop a moment after heaptrack has released it.
    wait_for("the stop", || (process::state(target.pid) == Some('T')).then_some(()));
    signal("CONT", &[target.pid]);
    assert_eq!(target.tell("50"), "done 50");
    signal("STOP", &[target.pid]);
    wait_for("the stop", || (process::state(target.pid) == Some('T')).then_some(()));
    let ended = session.detach();
    wait_for("the stop", || (process::state(target.pid) == Some('T')).then_some(()));
    signal("CONT", &[target.pid]);
    assert_rounds(&ended.report(), 100);
    finishes(target);
}

#[test]
fn a_program_whose_first_thread_has_ended() {
    let mut target = Target::start("attach_leaderless", &[]);
    assert_eq!(target.line(), "ready");
    wait_for("the first thread to end", || (process::state(target.pid) == Some('Z')).then_some(()));
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done");
    let report = session.detach().report();
    assert_eq!(report.of_size(7001).allocations, 100);
    assert_eq!(target.finish().0, 0);
}

#[test]
fn a_library_that_is_loaded_while_attached_has_its_name() {
    let libraries = [target("libred.so"), target("libblue.so")];
    let mut program = Target::start("attach_loads", &[libraries[0].to_str().unwrap(), libraries[1].to_str().unwrap()]);
    assert_eq!(program.line(), "ready");
    let session = Session::attach(program.pid, &["--no-symbols"]);
    assert_eq!(program.tell("go"), "done");
    let report = session.detach().report();
    for library in &libraries {
        let own = report.own(library);
        assert!(own.iter().map(|site| site.allocations).sum::<u64>() >= 1, "{}", library.display());
    }
    finishes(program);
}

#[test]
fn as_another_user_and_of_another_user() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let program = folder.join("program");
    std::fs::copy(target("attach_phases"), &program).unwrap();
    let nobody = |path: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(path);
        command
    };
    // Root attaches to a process of the user nobody.
    let target = counts_are_exact(Target::spawn(nobody(&program).arg("2")));
    // A heaptrack of the same user, without any capability, attaches to it too.
    let heaptrack = folder.join("heaptrack");
    std::fs::copy(heaptrack_tests::run::heaptrack(), &heaptrack).unwrap();
    let trace = folder.join("trace.htz");
    let output = nobody(&heaptrack)
        .args(["attach", &target.pid.to_string(), "--duration", "50ms", "-o"])
        .arg(&trace)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(process::code(output.status), 0, "{text}");
    assert_eq!(Report::of(&trace).total("allocations"), 0);
    assert!(!target.maps().contains("memfd:heaptrack"));
    finishes(target);
}

#[test]
fn ending_by_time_and_by_sigterm() {
    let mut target = Target::start("attach_phases", &["1"]);
    let ended = cycle(target.pid, "100ms");
    assert_eq!(ended.code, 0, "{}", ended.text);
    assert!(ended.text.contains("recording for 0.1 s;"), "{}", ended.text);
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("3"), "done 3");
    signal("TERM", &[session.pid()]);
    let ended = session.wait();
    assert_eq!(ended.code, 0);
    assert_rounds(&ended.report(), 3);
    finishes(target);
}

#[test]
fn a_hook_takes_no_more_stack_than_promised() {
    let number = |text: &str| text.trim().strip_prefix("bytes=").and_then(|text| text.parse::<u64>().ok()).unwrap();
    let mut alone = Target::start("stack_use", &["wait"]);
    assert_eq!(alone.line(), "ready");
    let alone = number(&alone.tell("go"));
    let mut target = Target::start("stack_use", &["wait"]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    let attached = number(&target.tell("go"));
    session.wait();
    assert!(attached > alone && attached <= alone + 1024, "{attached} bytes, alone {alone}");
}

/// Attaching runs no other program, such as gdb. The only exec is that of heaptrack itself.
#[test]
fn attaching_runs_no_other_program() {
    let mut target = Target::start("attach_phases", &["1"]);
    assert_eq!(target.tell("1"), "done 1");
    let folder = Folder::new();
    let calls = folder.join("calls");
    let status = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=execve,execveat", "-e", "signal=none", "-o"])
        .arg(&calls)
        .arg(heaptrack_tests::run::heaptrack())
        .args(["attach", &target.pid.to_string(), "--duration", "50ms", "-q", "-o"])
        .arg(folder.join("trace.htz"))
        .status()
        .expect("strace");
    assert!(status.success());
    let calls = std::fs::read_to_string(calls).unwrap();
    assert_eq!(calls.matches("exec").count(), 1, "{calls}");
    assert_eq!(target.tell("1"), "done 1");
}

/// Threads that begin while heaptrack is attached, on the smallest stacks that are allowed.
#[test]
fn small_stacks() {
    let number = |text: &str| text.strip_prefix("bytes=").and_then(|text| text.parse::<u64>().ok()).unwrap();
    // The loader's symbol lookup at a first call uses more stack than heaptrack does. So does libc when it creates an
    // arena, which happens only in some runs.
    let environment = [("LD_BIND_NOW", "1"), ("MALLOC_ARENA_MAX", "1")];
    let start = || Target::spawn(Command::new(target("small_stacks")).arg("wait").envs(environment));
    let mut alone = start();
    assert_eq!(alone.line(), "ready");
    let alone = number(&alone.tell("go"));
    let mut target = start();
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    let attached = number(&target.tell("go"));
    assert_eq!(target.finish(), (0, "small stacks done\n".to_owned()));
    let report = session.wait().report();
    let site = report.of_size(300);
    assert_eq!((site.allocations, site.leaked_allocations), (100, 0));
    assert_eq!(report.total("lost_events"), 0);
    assert!(attached > alone && attached <= alone + 1024, "{attached} bytes, alone {alone}");
}

#[test]
fn operators_of_allocators_that_bring_their_own() {
    let names = [
        "attach_new",
        "attach_new_jemalloc",
        "attach_new_tcmalloc",
        // Its symbols are in another order.
        "attach_new_tcmalloc_minimal",
        "attach_new_mimalloc",
        "attach_new_own",
        "attach_new_alias",
    ];
    for name in names {
        let mut target = Target::start(name, &[]);
        assert_eq!(target.tell("go"), "done");
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("go"), "done");
        let report = session.detach().report();
        for size in [4001, 4002, 4003, 4004, 4096, 4160] {
            let site = report.of_size(size);
            assert_eq!((site.allocations, site.leaked_allocations), (100, 0), "{name}: blocks of {size} bytes");
        }
        assert_eq!((report.total("allocations"), report.total("deallocations")), (600, 600), "{name}");
        assert_eq!((report.total("unknown_frees"), report.total("implied_frees")), (0, 0), "{name}");
        assert_eq!(report.total("lost_events"), 0, "{name}");
        assert_eq!(target.tell("go"), "done");
        finishes(target);
    }
}

#[test]
fn a_reallocarray_that_fails_frees_nothing() {
    let mut target = Target::start("attach_overflow", &[]);
    assert_eq!(target.tell("go"), "done");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!((target.tell("go"), target.tell("go")), ("done".to_owned(), "done".to_owned()));
    let report = session.detach().report();
    let site = report.of_size(9001);
    assert_eq!((site.allocations, site.leaked_allocations), (2, 2));
    assert_eq!((report.total("deallocations"), report.total("lost_events")), (0, 0));
    finishes(target);
}

#[test]
fn the_c_code_of_a_go_program_is_recorded() {
    let folder = Folder::new();
    let source = "package main\n/*\n#include <stdlib.h>\nstatic void *make(void) { return malloc(8001); }\n*/\nimport \"C\"\n\
        import (\"bufio\"; \"fmt\"; \"os\")\nfunc main() {\n  in := bufio.NewScanner(os.Stdin)\n  for in.Scan() {\n\
        for i := 0; i < 100; i++ { C.free(C.make()) }\n    fmt.Println(\"done\")\n  }\n}\n";
    std::fs::write(folder.join("main.go"), source).unwrap();
    let built = Command::new("go")
        .args(["build", "-o", "program", "main.go"])
        .env("CGO_ENABLED", "1")
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .output()
        .expect("go");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut target = Target::spawn(&mut Command::new(folder.join("program")));
    assert_eq!(target.tell("go"), "done");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done");
    let report = session.detach().report();
    assert_eq!(report.of_size(8001).allocations, 100);
    assert_eq!(target.tell("go"), "done");
    finishes(target);
}
