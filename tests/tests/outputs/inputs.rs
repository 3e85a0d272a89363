//! No command overwrites its input, by whatever name the file is reached. Another trace is replaced only by a new
//! trace.
use super::writers::WRITERS;
use super::{command, run, said, with_traces};
use heaptrack_tests::process::{code, signal, wait_for};
use heaptrack_tests::targets::target;
use std::fs;
use std::process::Stdio;

/// Paths that lead to the file `name` in `folder`, including links that this function makes.
fn aliases(folder: &heaptrack_tests::Folder, name: &str) -> Vec<String> {
    let path = |name: &str| folder.join(name);
    fs::create_dir_all(path("sub")).unwrap();
    let (soft, hard) = (format!("soft.{name}"), format!("hard.{name}"));
    std::os::unix::fs::symlink(name, path(&soft)).unwrap();
    fs::hard_link(path(name), path(&hard)).unwrap();
    let absolute = path(name).to_str().unwrap().to_owned();
    vec![name.into(), format!("./{name}"), absolute, format!("sub/../{name}"), soft, hard]
}

#[test]
fn an_input_is_never_overwritten() {
    let folder = with_traces();
    let before = [fs::read(folder.join("t.htz")).unwrap(), fs::read(folder.join("u.htz")).unwrap()];
    let names: Vec<String> = ["t.htz", "u.htz"].iter().flat_map(|name| aliases(&folder, name)).collect();
    let there = folder.names();
    for writer in &WRITERS {
        for name in &names {
            let is_input =
                name.contains("t.htz") || writer.before.contains(&"u.htz") || writer.after.contains(&"u.htz");
            // A trace may be replaced by a new trace, but by no other file.
            if !is_input && writer.is_trace {
                continue;
            }
            let output = run(folder.path(), &writer.words(name));
            let reason = if is_input { "it is an input of this command" } else { "it is a trace, which would be lost" };
            assert_eq!(code(output.status), 2, "{} to {name}: {}", writer.name, said(&output));
            assert!(said(&output).contains(reason), "{} to {name}: {}", writer.name, said(&output));
            assert!(output.stdout.is_empty(), "{}: nothing is done before", writer.name);
            assert_eq!(fs::read(folder.join("t.htz")).unwrap(), before[0], "{} to {name}", writer.name);
            assert_eq!(fs::read(folder.join("u.htz")).unwrap(), before[1], "{} to {name}", writer.name);
        }
    }
    assert_eq!(folder.names(), there, "no other file was written");
}

#[test]
fn other_inputs_are_not_overwritten_either() {
    let folder = with_traces();
    fs::write(folder.join("known"), "leak:nothing\n").unwrap();
    fs::write(folder.join("rules"), "program name main\n").unwrap();
    for words in [
        &["export", "--to", "svg", "--suppressions", "known", "t.htz", "-o", "known"][..],
        &["report", "t.htz", "--suppressions", "known", "-o", "known"],
        &["report", "t.htz", "--rules", "rules", "-o", "rules"],
        &["print", "--suppressions", "known", "-F", "known", "t.htz"],
        &["print", "--rules", "rules", "-H", "rules", "t.htz"],
    ] {
        let output = run(folder.path(), words);
        assert_eq!(code(output.status), 2, "{words:?}: {}", said(&output));
        assert!(said(&output).contains("it is an input of this command"), "{words:?}: {}", said(&output));
    }
    assert_eq!(fs::read_to_string(folder.join("known")).unwrap(), "leak:nothing\n");
    assert_eq!(fs::read_to_string(folder.join("rules")).unwrap(), "program name main\n");
}

#[test]
fn no_report_is_written_with_invalid_rules_or_suppressions() {
    let folder = with_traces();
    fs::write(folder.join("known"), "leak:nothing\nno suppression\n").unwrap();
    fs::write(folder.join("rules"), "program name main\nmine name main\n").unwrap();
    let there = folder.names();
    for (option, file) in [("--suppressions", "known"), ("--rules", "rules")] {
        let output = run(folder.path(), &["report", "t.htz", option, file, "-o", "out.html"]);
        assert_eq!(code(output.status), 2, "{option}: {}", said(&output));
        assert!(said(&output).contains("line 2: "), "{option}: {}", said(&output));
    }
    assert_eq!(folder.names(), there, "no file was written");
}

/// `heaptrack export x.htz >> x.htz`: with `>>` the shell does not empty the file first.
#[test]
fn an_input_is_not_appended_to() {
    let folder = with_traces();
    let before = fs::read(folder.join("t.htz")).unwrap();
    for option in [&["-o", "-"][..], &["-o", "/dev/stdout"], &[]] {
        let stdout = fs::File::options().append(true).open(folder.join("t.htz")).unwrap();
        let words = [&["export", "--to", "svg", "t.htz"], option].concat();
        let output = command(folder.path(), &words).stdout(stdout).output().unwrap();
        assert_eq!(code(output.status), 2, "{}", said(&output));
        assert_eq!(fs::read(folder.join("t.htz")).unwrap(), before);
    }
}

#[test]
fn a_recording_that_goes_on_is_not_overwritten() {
    let folder = with_traces();
    let mut recorder = command(folder.path(), &["-q", "-o", "live.htz"])
        .arg(target("stops"))
        .arg("60000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the trace", || folder.join("live.htz").exists().then_some(()));
    for writer in &WRITERS {
        let output = run(folder.path(), &writer.words("live.htz"));
        assert_eq!(code(output.status), 2, "{}: {}", writer.name, said(&output));
        assert!(said(&output).contains("live.htz: it is still being recorded"), "{}: {}", writer.name, said(&output));
    }
    signal("TERM", &[recorder.id()]);
    assert_eq!(code(recorder.wait().unwrap()), 9);
    let report = heaptrack_tests::Report::of(&folder.join("live.htz"));
    assert!(report.complete() && report.of_size(128).allocations > 0);
}
