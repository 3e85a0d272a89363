//! Folders that cause trouble. A folder cannot be written to, vanishes, is on another disk, or has the unfinished file
//! of another process with our pid. Also destinations with several names.
use super::writers::WRITERS;
use super::{command, run, said, succeed, with_traces};
use heaptrack_tests::process::{code, signal, state, wait_for};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Report};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a script in a mount namespace of its own. `$HT` is heaptrack, `$HELLO` a small program.
fn script(folder: &Folder, script: &str, words: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"]).args(words);
    command.env("HT", heaptrack().canonicalize().unwrap()).env("HELLO", target("hello"));
    command.env_remove("DEBUGINFOD_URLS").current_dir(folder.path()).output().expect("unshare")
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named_and_stays() {
    let folder = with_traces();
    fs::create_dir(folder.join("dir")).unwrap();
    let read_only = "mount -t tmpfs none dir; echo old > dir/out; echo old > dir/out.htz; mount -o remount,ro dir; \
         \"$HT\" \"$@\" || code=$?; test $(cat dir/out dir/out.htz | tr -d '\\n') = oldold; \
         test $(ls -A dir | wc -l) = 2; exit $code";
    for writer in &WRITERS {
        let output = script(&folder, read_only, &writer.words("dir/out"));
        let expected = format!("heaptrack: cannot write {}: Read-only file system\n", writer.file("dir/out"));
        assert_eq!((code(output.status), said(&output)), (2, expected), "{}", writer.name);
    }
    let output = script(&folder, read_only, &["lib", "--install", "dir"]);
    let expected = "heaptrack: cannot install to dir: Read-only file system\n";
    assert_eq!((code(output.status), said(&output).as_str()), (2, expected));
    let record = read_only.replace("\"$@\"", "\"$@\" \"$HELLO\"");
    let output = script(&folder, &record, &["-o", "dir/out"]);
    let expected = "heaptrack: cannot write to dir: Read-only file system; give another place with -o\n";
    assert_eq!((code(output.status), said(&output).as_str()), (126, expected));
    assert!(output.stdout.is_empty(), "the program did not run");
}

#[test]
fn another_disk_is_as_good_as_this_one() {
    let folder = with_traces();
    fs::create_dir(folder.join("dir")).unwrap();
    let other_disk = "mount -t tmpfs none dir; \"$HT\" \"$@\"; ls -A dir; cp dir/* .";
    for writer in &WRITERS {
        let (file, here) = (writer.file("out"), writer.file("here"));
        succeed(folder.path(), &writer.words("here"));
        let output = script(&folder, other_disk, &writer.words("dir/out"));
        assert_eq!(code(output.status), 0, "{}: {}", writer.name, said(&output));
        assert!(String::from_utf8_lossy(&output.stdout).ends_with(&format!("{file}\n")), "{}", writer.name);
        assert!(fs::read(folder.join(&file)).unwrap() == fs::read(folder.join(&here)).unwrap(), "{}", writer.name);
        [file, here].iter().for_each(|name| fs::remove_file(folder.join(name)).unwrap());
    }
    let record = "mount -t tmpfs none dir; touch dir/real.htz; ln -s dir/real.htz link.htz; \"$HT\" -q -o link \"$HELLO\"; \
         test -L link.htz; cp dir/* .";
    let output = script(&folder, record, &[]);
    assert_eq!((code(output.status), said(&output).as_str()), (0, ""));
    assert_eq!(Report::of(&folder.join("real.htz")).of_size(10).allocations, 1);
}

/// The folder is removed while the unfinished file is in it. The command is stopped meanwhile, so that it cannot finish
/// first.
#[test]
fn a_folder_that_vanishes_is_an_error() {
    let folder = with_traces();
    let dir = folder.join("dir");
    for writer in &WRITERS {
        let output = loop {
            fs::create_dir(&dir).unwrap();
            let mut child = command(folder.path(), &writer.words("dir/out"));
            let child = child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
            while fs::read_dir(&dir).unwrap().next().is_none() {}
            signal("STOP", &[child.id()]);
            // The signal takes a moment. Until then the command could still finish its file.
            wait_for("the stop", || matches!(state(child.id()), None | Some('T' | 'Z')).then_some(()));
            let is_too_late = dir.join(writer.file("out")).exists();
            fs::remove_dir_all(&dir).unwrap();
            signal("CONT", &[child.id()]);
            let output = child.wait_with_output().unwrap();
            if !is_too_late {
                break output;
            }
        };
        let expected = format!("heaptrack: cannot write {}: No such file or directory\n", writer.file("dir/out"));
        assert_eq!((code(output.status), said(&output)), (2, expected), "{}", writer.name);
        assert_eq!(folder.names(), ["t.htz", "u.htz"], "{}", writer.name);
    }
}

/// In containers pids are small and are reused, so an unfinished file with our pid in its name must not be an error.
#[test]
fn an_unfinished_file_of_an_equal_pid_is_removed_or_left_alone() {
    let folder = with_traces();
    let parts = [".heaptrack.1.0.part", ".heaptrack.1.1.part", ".heaptrack.4000000.0.part"];
    let as_process_1 = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-p", "-f", "--mount-proc"]).arg(heaptrack()).args(words).current_dir(folder.path());
        let output = command.output().expect("unshare");
        assert_eq!(code(output.status), 0, "{words:?}: {}", said(&output));
    };
    let part = |name: &str| folder.join(name);
    // The first one is being written by a process of another container.
    let lock = fs::File::create(part(parts[0])).unwrap();
    lock.try_lock().unwrap();
    for words in [&["trim", "t.htz", "-o", "out"][..], &["-q", "-o", "out", target("hello").to_str().unwrap()]] {
        parts[1..].iter().for_each(|name| fs::write(part(name), "left behind").unwrap());
        as_process_1(words);
        assert!(part(parts[0]).exists(), "{words:?}: it belongs to a running process");
        assert!(parts[1..].iter().all(|name| !part(name).exists()), "{words:?}");
        assert!(Report::of(&part("out.htz")).complete(), "{words:?}");
    }
    drop(lock);
    as_process_1(&["lib", "--install", "."]);
    assert!(!part(parts[0]).exists());
}

/// The new file is written under a temporary name and renamed, so a hard link to the old file keeps the old content.
#[test]
fn another_name_of_the_old_file_keeps_the_old_content() {
    let folder = with_traces();
    for writer in &WRITERS {
        let (file, other) = (folder.join(&writer.file("out")), folder.join("other"));
        fs::write(&file, "before").unwrap();
        fs::hard_link(&file, &other).unwrap();
        succeed(folder.path(), &writer.words("out"));
        assert_eq!(fs::read(&other).unwrap(), b"before", "{}", writer.name);
        assert_ne!(fs::read(&file).unwrap(), b"before", "{}", writer.name);
        [file, other].iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_recording_to_a_link_is_written_to_where_it_leads() {
    let folder = Folder::new();
    let record = |option: &str| {
        let output = command(folder.path(), &["-q", "-o", option]).arg(target("hello")).output().unwrap();
        assert_eq!((code(output.status), said(&output).as_str()), (0, ""), "{option}");
    };
    fs::create_dir(folder.join("dir")).unwrap();
    for (link, real) in [("one.htz", "real.htz"), ("two.htz", "dir/real.htz"), ("three.htz", "two.htz")] {
        std::os::unix::fs::symlink(real, folder.join(link)).unwrap();
        let _ = fs::remove_file(folder.join("dir/real.htz"));
        record(link);
        assert_eq!(fs::read_link(folder.join(link)).unwrap(), Path::new(real), "the link stays");
        assert!(fs::symlink_metadata(folder.join(link).canonicalize().unwrap()).unwrap().is_file());
        assert_eq!(Report::of(&folder.join(link)).of_size(10).allocations, 1, "{link}");
    }
    assert_eq!(folder.names(), ["dir", "one.htz", "real.htz", "three.htz", "two.htz"]);
}

/// With `ulimit -f` the command reports an error as on a full disk, and is not killed by the kernel's signal.
#[test]
fn a_limit_on_file_sizes_leaves_the_old_file() {
    let folder = with_traces();
    let limited = |words: &[&str]| script(&folder, "ulimit -f 1; exec \"$HT\" \"$@\"", words);
    for writer in &WRITERS {
        let file = folder.join(&writer.file("out"));
        succeed(folder.path(), &writer.words("out"));
        let is_small = fs::metadata(&file).unwrap().len() <= 512;
        fs::write(&file, "before").unwrap();
        let output = limited(&writer.words("out"));
        let left = fs::read(&file).unwrap();
        if is_small {
            assert!(code(output.status) == 0 && left != b"before", "{}: {}", writer.name, said(&output));
        } else {
            let expected = format!("heaptrack: cannot write {}: File too large\n", writer.file("out"));
            assert_eq!((code(output.status), said(&output)), (2, expected), "{}", writer.name);
            assert_eq!(left, b"before", "{}", writer.name);
        }
        fs::remove_file(file).unwrap();
    }
    let output = limited(&["lib", "--install", "."]);
    assert_eq!(said(&output), "heaptrack: cannot install to .: File too large\n");
    assert_eq!(code(run(folder.path(), &["print", "t.htz"]).status), 0);
    assert_eq!(folder.names(), ["t.htz", "u.htz"]);
}
