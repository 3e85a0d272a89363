//! The command line, the name of the trace, the printed messages, and the reading of a file that is still growing, cut
//! or damaged.
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Chance, Folder, Program, Report, Site, process, scale};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

#[test]
fn a_program_cannot_tell_that_it_is_recorded() {
    // Both runs use one folder. The trace goes elsewhere.
    let folder = Folder::new();
    let facts = Program::target("facts").args(["with space", "", "--option", "-o"]).current_dir(folder.path());
    let outcome = facts.same_output();
    assert_eq!(outcome.code, 42);
    assert_eq!(folder.names(), Vec::<String>::new());
}

#[test]
fn nothing_is_left_in_the_temporary_folder() {
    let folder = Folder::new();
    Program::target("hello").env("TMPDIR", folder.path()).env("XDG_RUNTIME_DIR", folder.path()).recorded();
    // The library may stay for the next run, in a folder that other users can enter but not change.
    for name in folder.names() {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o711, "{name}");
    }
}

#[test]
fn the_default_name_has_the_pid_of_the_target() {
    let folder = Folder::new();
    let output = Command::new(heaptrack()).args(["sh", "-c", "echo $$"]).current_dir(folder.path()).output().unwrap();
    let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(folder.names(), [format!("heaptrack.sh.{pid}.htz")]);
    let report = Report::of(&folder.join(&folder.names()[0]));
    assert_eq!(report.json()["pid"].as_u64(), pid.parse().ok());
    assert_eq!(report.json()["attached"].as_bool(), Some(false));
    let command: Vec<&str> = report.json()["command"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert_eq!(command, ["sh", "-c", "echo $$"]);
}

#[test]
fn the_option_o_names_the_file() {
    let folder = Folder::new();
    let hello = target("hello");
    let run = |arguments: &[&str]| {
        let output = Command::new(heaptrack()).args(arguments).arg(&hello).current_dir(folder.path()).output().unwrap();
        assert_eq!(process::code(output.status), 0, "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    run(&["-o", "plain"]);
    assert!(folder.join("plain.htz").exists());
    run(&["--output", "named.htz"]);
    assert!(folder.join("named.htz").exists());
    run(&["--output=new/folder/trace"]);
    assert!(folder.join("new/folder/trace.htz").exists());
    run(&["record", "-o", "long-form"]);
    assert!(folder.join("long-form.htz").exists());
    run(&["-o", "%h-%p", "--record-only", "-r"]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = folder.names().into_iter().find(|name| name.starts_with(&format!("{}-", host.trim()))).unwrap();
    assert!(name.trim_end_matches(".htz").rsplit_once('-').unwrap().1.parse::<u32>().is_ok(), "{name}");
    assert_eq!(run(&["-q", "-o", "quiet"]), "", "-q prints nothing");
    let said = run(&["-o", "said"]);
    assert!(said.contains("said.htz"), "the last message names the file: {said}");
}

#[test]
fn a_path_with_spaces_and_the_search_in_path() {
    let folder = Folder::new();
    let program = folder.join("my binary");
    heaptrack_tests::folder::copy_program(target("hello"), &program);
    let recorded = Program::new(&program).arg("two words").recorded();
    assert_eq!((recorded.code, recorded.stdout.as_str()), (11, "hello 2 two words\n"));
    assert_eq!(recorded.whole_report().of_size(10).allocations, 1);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let found = Program::new("my binary").env("PATH", path).recorded();
    assert_eq!(found.stdout, "hello 1 \n");
}

#[test]
fn wrong_usage_has_exit_code_2() {
    let code = |arguments: &[&str]| {
        let output = Command::new(heaptrack()).args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.is_empty() && !said.contains("panicked"), "{arguments:?}: {said}");
        process::code(output.status)
    };
    assert_eq!(code(&["--no-such-option", "ls"]), 2);
    assert_eq!(code(&["print"]), 2);
    assert_eq!(code(&["print", "/no/such/file.htz"]), 2);
    assert_eq!(code(&["print", "--json", "/etc/passwd"]), 2);
    assert_eq!(code(&["-o"]), 2);
}

/// Runs a command that reads `input` from a pipe.
fn output_with_input(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn input_passes_through() {
    let folder = Folder::new();
    let mut command = Command::new(heaptrack());
    let output = output_with_input(command.arg("-o").arg(folder.join("t.htz")).arg("cat"), "through and through\n");
    assert_eq!(output.stdout, b"through and through\n");
}

#[test]
fn signals_are_passed_on() {
    let program = Program::target("stops").arg("60000");
    let mut running = program.start();
    let target = running.target(&program);
    let mut lines = BufReader::new(running.recorder.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    signal("USR1", &[running.pid()]);
    assert_eq!(lines.next().unwrap().unwrap(), "usr1");
    signal("TERM", &[running.pid()]);
    let last = lines.next().unwrap().unwrap();
    assert!(last.starts_with("terminated rounds="), "{last}");
    let rounds: u64 = last.split_once('=').unwrap().1.parse().unwrap();
    let outcome = running.finish();
    assert_eq!(outcome.code, 9, "{}", outcome.stderr);
    assert_eq!(outcome.whole_report().of_size(128).allocations, rounds);
    assert_eq!(process::state(target), None);
}

#[test]
fn print_reads_a_file_that_grows() {
    let program = Program::target("stops").arg("2500");
    let running = program.start();
    let mut last = 0;
    let mut seen = 0;
    wait_for("three growing reports", || {
        if let Ok(report) = Report::try_of(&running.trace) {
            let now = report.of_size(128).allocations;
            assert!(now >= last, "{now} after {last}");
            assert!(!report.complete(), "a running session is not complete");
            seen += u32::from(now > last);
            last = now;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        (seen >= 3).then_some(())
    });
    let outcome = running.finish();
    let rounds: u64 = outcome.stdout.trim().rsplit_once('=').unwrap().1.parse().unwrap();
    assert_eq!(outcome.whole_report().of_size(128).allocations, rounds);
}

#[test]
fn print_reads_a_file_that_was_cut_or_damaged() {
    let folder = Folder::new();
    let outcome = Program::target("threads").arg("4").arg("400000").recorded();
    let whole = std::fs::read(&outcome.trace).unwrap();
    let total = outcome.report().total("allocations");
    let mut chance = Chance::new("cut");
    let file = folder.join("cut.htz");
    for round in 0..scale::count(200) {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(chance.between(0, whole.len() as u64) as usize);
        } else {
            let at = chance.between(0, whole.len() as u64 - 64) as usize;
            for byte in &mut bytes[at..at + 64] {
                *byte = chance.draw() as u8;
            }
        }
        std::fs::write(&file, &bytes).unwrap();
        let output = Command::new(heaptrack()).args(["print", "--json"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{said}");
        match process::code(output.status) {
            0 => {
                let report = Report::of(&file);
                assert!(report.total("allocations") <= total);
                assert!(!report.complete(), "round {round}");
            }
            // Only a file without even its first block cannot be opened.
            code => assert_eq!(code, 2, "{said}"),
        }
    }
}

#[test]
fn a_trace_has_suppressions_rss_overhead_and_run_time() {
    let outcome = Program::target("suppressed").recorded();
    let report = outcome.whole_report();
    assert_eq!((report.of_size(1).leaked_allocations, report.of_size(2).leaked_allocations), (1, 1));
    let text = report.json().to_string();
    assert!(text.contains("leak:known") && text.contains("leak:libfoo.so"), "the program's suppressions");
    assert!(report.total("peak_rss_bytes") > 100_000);
    assert!(report.total("overhead_bytes") > 0 && report.total("overhead_bytes") < report.total("peak_rss_bytes"));
    assert!(report.total("runtime_ns") > 0);
}

#[test]
fn every_list_has_every_stack_that_has_its_cost() {
    let report = Program::target("plain").recorded().whole_report();
    let all = report.sites();
    type Cost = fn(&Site) -> u64;
    let costs: [(&str, Cost); 4] = [
        ("peak", |site| site.peak_bytes),
        ("leaked", |site| site.leaked_bytes),
        ("allocations", |site| site.allocations),
        ("temporary", |site| site.temporary),
    ];
    for (list, cost) in costs {
        let numbers: Vec<u64> = report.list(list).iter().map(cost).filter(|&number| number > 0).collect();
        let mut expected: Vec<u64> = all.iter().map(cost).filter(|&number| number > 0).collect();
        expected.sort_by_key(|&number| std::cmp::Reverse(number));
        assert_eq!(numbers, expected, "{list}");
    }
}

#[test]
fn a_program_started_in_gdb_is_recorded() {
    let folder = Folder::new();
    let mut command = Command::new(heaptrack());
    command.args(["-d", "-o"]).arg(folder.join("t.htz")).arg(target("hello"));
    let output = output_with_input(&mut command, "run\nquit\n");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("hello 1 \n"), "{stdout} {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(Report::of(&folder.join("t.htz")).of_size(10).allocations, 1);
}

#[test]
fn as_the_first_process_of_a_container() {
    let folder = Folder::new();
    let mut child = Command::new("unshare")
        .args(["--fork", "--pid", "--mount-proc"])
        .arg(heaptrack())
        .arg("-o")
        .arg(folder.join("t.htz"))
        // The shell leaves an orphan for heaptrack to reap, and itself runs longer.
        .args(["sh", "-c", "(sleep 0.1 &); sleep 0.4; ps -e -o stat= | grep -c Z; exit 4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let code = process::code(child.wait().unwrap());
    let mut zombies = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut zombies).unwrap();
    assert_eq!((code, zombies.trim()), (4, "0"));
    assert!(Report::of(&folder.join("t.htz")).complete());
}

#[test]
fn the_links_with_the_old_names_work() {
    let folder = Folder::new();
    let outcome = Program::target("hello").recorded();
    std::os::unix::fs::symlink(heaptrack(), folder.join("heaptrack_print")).unwrap();
    let output = Command::new(folder.join("heaptrack_print")).arg(&outcome.trace).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("allocations"));
}

/// A device is written to and not replaced. A link stays, and the file that it leads to is replaced.
#[test]
fn devices_and_links_stay_what_they_are() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::new();
    let outcome = Program::target("hello").recorded();
    let device = folder.join("device");
    assert!(Command::new("mknod").arg(&device).args(["c", "1", "3"]).status().expect("mknod").success());
    let (real, link) = (folder.join("real"), folder.join("link"));
    std::fs::write(&real, "before").expect("a file");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    for format in ["massif", "folded", "heaptrack"] {
        for out in [&device, &link] {
            let mut export = Command::new(heaptrack());
            export.args(["export", "--to", format]).arg(&outcome.trace).arg("-o").arg(out);
            assert!(export.status().expect("export").success());
        }
        assert!(std::fs::metadata(&device).expect("a device").file_type().is_char_device(), "{format}");
        assert!(std::fs::symlink_metadata(&link).expect("a link").is_symlink(), "{format}");
        assert_ne!(std::fs::read(&real).expect("a file"), b"before", "{format}");
    }
    assert_eq!(folder.names().len(), 3, "{:?}", folder.names());
}
