//! `-o` with a folder, `.`, a device, a pipe, stdout or a link does what people expect.
use super::writers::WRITERS;
use super::{command, run, said, succeed, with_traces};
use heaptrack_tests::process::code;
use heaptrack_tests::replay::views::VIEWS;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.collect()
}

#[test]
fn in_a_folder_a_file_gets_a_name() {
    let folder = with_traces();
    for writer in &WRITERS {
        let expected = folder.join("expected");
        succeed(folder.path(), &writer.words("expected"));
        let expected = if writer.is_trace { expected.with_extension("htz") } else { expected };
        for (at, name) in ["dir", "dir/", "dir/.", "./dir"].iter().enumerate() {
            fs::create_dir(folder.join("dir")).unwrap();
            succeed(folder.path(), &writer.words(name));
            assert_eq!(names(&folder.join("dir")), [writer.in_folder], "{} to {name}", writer.name);
            let made = fs::read(folder.join("dir").join(writer.in_folder)).unwrap();
            // The name in the folder may ask for compression, and then the bytes differ.
            if at == 0 && !writer.in_folder.ends_with(".zst") {
                assert_eq!(made, fs::read(&expected).unwrap(), "{}", writer.name);
            }
            fs::remove_dir_all(folder.join("dir")).unwrap();
        }
        fs::remove_file(expected).unwrap();
        let output = run(folder.path(), &writer.words("missing/"));
        assert_eq!(code(output.status), 2, "{}", writer.name);
        assert!(said(&output).contains("cannot write to missing/: there is no such folder"), "{}", said(&output));
    }
}

#[test]
fn a_recording_in_a_folder_has_its_default_name() {
    for (name, place) in [("dir", "dir"), ("dir/", "dir"), (".", "."), ("new/deep/", "new/deep"), ("dir/.", "dir")] {
        let folder = Folder::new();
        fs::create_dir(folder.join("dir")).unwrap();
        let output = command(folder.path(), &["-q", "-o", name]).arg(target("hello")).output().unwrap();
        assert_eq!(said(&output), "", "{name}");
        let found = names(&folder.join(place));
        let trace = found.iter().find(|found| *found != "dir").unwrap_or_else(|| panic!("{name}: {found:?}"));
        assert!(trace.starts_with("heaptrack.hello.") && trace.ends_with(".htz"), "{name}: {trace}");
        assert_eq!(Report::of(&folder.join(place).join(trace)).of_size(10).allocations, 1);
    }
}

#[test]
fn a_device_takes_everything() {
    let folder = with_traces();
    let there = folder.names();
    for writer in &WRITERS {
        succeed(folder.path(), &writer.words("/dev/null"));
    }
    let output = command(folder.path(), &["-o", "/dev/null"]).arg(target("hello")).output().unwrap();
    assert_eq!((code(output.status), output.stdout.as_slice()), (0, &b"hello 1 \n"[..]), "{}", said(&output));
    let first = said(&output).lines().next().unwrap_or_default().to_owned();
    assert!(first.starts_with("heaptrack: /dev/null ("), "{first}");
    assert!(!said(&output).contains("heaptrack print"), "there is nothing to read: {}", said(&output));
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(!Path::new("/dev/null.htz").exists());
    assert_eq!(folder.names(), there);
}

#[test]
fn a_pipe_gets_the_whole_file() {
    let folder = with_traces();
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A report does not fit into the buffer of a pipe, so the test must read while it is written.
    let read = |pipe: PathBuf| std::thread::spawn(move || Command::new("cat").arg(&pipe).output().unwrap().stdout);
    for writer in WRITERS.iter().filter(|writer| !writer.name.contains("heaptrack")) {
        succeed(folder.path(), &writer.words("expected"));
        let expected = fs::read(folder.join(&writer.file("expected"))).unwrap();
        let reader = read(pipe.clone());
        succeed(folder.path(), &writer.words("pipe"));
        assert!(reader.join().unwrap() == expected, "{}", writer.name);
    }
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    // A recording does not wait for a reader of the pipe, because the program would have to wait as well.
    let record = |folder: &Folder| command(folder.path(), &["-q", "-o", "pipe"]).arg(target("hello")).output().unwrap();
    let output = record(&folder);
    assert_eq!((code(output.status), output.stdout.len()), (126, 0));
    assert_eq!(said(&output), "heaptrack: cannot write pipe: nothing reads this pipe yet\n");
    let trace = folder.join("read.htz");
    let mut reader = Command::new("cat").arg(&pipe).stdout(fs::File::create(&trace).unwrap()).spawn().unwrap();
    let output = heaptrack_tests::process::wait_for("the reader", || {
        let output = record(&folder);
        (code(output.status) == 0).then_some(output)
    });
    assert_eq!((said(&output).as_str(), output.stdout.as_slice()), ("", &b"hello 1 \n"[..]));
    assert!(reader.wait().unwrap().success());
    let report = Report::of(&trace);
    assert!(report.complete() && report.of_size(10).allocations == 1);
}

#[test]
fn a_file_can_be_written_to_stdout() {
    let folder = with_traces();
    for writer in WRITERS.iter().filter(|writer| !writer.name.contains("print") && !writer.name.contains("diff")) {
        succeed(folder.path(), &writer.words("expected"));
        let expected = fs::read(folder.join(&writer.file("expected"))).unwrap();
        for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let output = succeed(folder.path(), &writer.words(name));
            assert!(output.stdout == expected, "{} to {name}", writer.name);
        }
        // A file that is opened for appending keeps its content.
        let log = folder.join("log");
        fs::write(&log, "before\n").unwrap();
        let stdout = fs::File::options().append(true).open(&log).unwrap();
        let status = command(folder.path(), &writer.words("/dev/stdout")).stdout(stdout).stderr(Stdio::null()).status();
        assert!(status.unwrap().success());
        assert!(fs::read(&log).unwrap() == [b"before\n", expected.as_slice()].concat(), "{}", writer.name);
    }
    for name in ["-", "/dev/stdout"] {
        let output = command(folder.path(), &["-o", name]).arg(target("hello")).output().unwrap();
        assert_eq!((code(output.status), output.stdout.len()), (126, 0), "{}", said(&output));
    }
}

/// A file that is replaced keeps its owner and its mode. A link stays a link, even if it leads to a file that does not
/// exist yet.
#[test]
fn what_was_there_decides_about_owner_mode_and_link() {
    use std::os::unix::fs::MetadataExt;
    let folder = with_traces();
    for writer in &WRITERS {
        let file = folder.join(&writer.file("out"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&file, Some(1234), Some(4321)).unwrap();
        succeed(folder.path(), &writer.words("out"));
        let data = fs::metadata(&file).unwrap();
        assert_eq!((data.mode() & 0o7777, data.uid(), data.gid()), (0o640, 1234, 4321), "{}", writer.name);
        let made = fs::read(&file).unwrap();
        assert_ne!(made, b"before", "{}", writer.name);
        let (link, real) = (writer.file("link"), writer.file("real"));
        std::os::unix::fs::symlink(&real, folder.join(&link)).unwrap();
        succeed(folder.path(), &writer.words("link"));
        assert!(fs::symlink_metadata(folder.join(&link)).unwrap().is_symlink(), "{}", writer.name);
        assert_eq!(fs::read(folder.join(&real)).unwrap(), made, "{}", writer.name);
        for name in [&file, &folder.join(&link), &folder.join(&real)] {
            fs::remove_file(name).unwrap();
        }
    }
    assert_eq!(folder.names(), ["t.htz", "u.htz"]);
}

/// The read end is closed before anything is written.
#[test]
fn a_reader_that_has_seen_enough_ends_every_view_quietly() {
    let folder = with_traces();
    // `callers` and `diff` need more arguments, so they are listed below.
    let alone = |view: &&&str| !matches!(**view, "callers" | "diff");
    let views = VIEWS.iter().filter(alone).chain(&["stacks"]);
    let mut all: Vec<Vec<&str>> = views.map(|view| vec!["print", "--view", view, "t.htz"]).collect();
    all.extend([
        vec!["print", "t.htz"],
        vec!["print", "--json", "t.htz"],
        vec!["print", "--event", "1", "t.htz"],
        vec!["print", "--view", "callers", "--function", "main", "t.htz"],
        vec!["diff", "t.htz", "u.htz"],
        vec!["diff", "--json", "t.htz", "u.htz"],
        vec!["man"],
        vec!["completions", "bash"],
    ]);
    for format in ["svg", "folded", "massif", "heaptrack"] {
        all.push(vec!["export", "--to", format, "t.htz"]);
    }
    all.push(vec!["report", "--summary-only", "t.htz", "-o", "-"]);
    for words in &all {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(folder.path(), words).stdout(writer).output().unwrap();
        let said = said(&output);
        let said = if words[0] == "report" { "" } else { said.as_str() };
        assert_eq!((code(output.status), said), (0, ""), "{words:?}");
    }
    // Any other write error is reported.
    for words in &all {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), words).stdout(full).output().unwrap();
        let said = said(&output);
        assert_eq!(
            (code(output.status), said.as_str()),
            (2, "heaptrack: cannot write to stdout: No space left on device\n"),
            "{words:?}"
        );
    }
}
