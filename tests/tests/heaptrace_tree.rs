//! `heaptrace` and the processes that a program starts. Each process gets its own report, and none is harmed.
use heaptrack_tests::heaptrace::{Dump, Heaptrace, Part, Traced, dumps, files, parse};
use heaptrack_tests::process::{signal, state, target_of, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program};
use std::collections::BTreeMap;
use std::process::Stdio;

/// Runs with one file per process. Returns the last report of each, with its name, in the order of pids.
fn reports(words: &[&str]) -> (Traced, Vec<(String, Option<Dump>)>) {
    let folder = Folder::new();
    let traced = Heaptrace::new(["--outfile"]).arg(folder.join("log")).args(words).run();
    let read = |(pid, name, text): (u32, String, String)| {
        let parts = parse(&text);
        let whose = |part: &Part| match part {
            Part::Initialized(pid, name) | Part::Finalized(pid, name) => Some((*pid, name.clone())),
            Part::Dump(dump) => Some((dump.pid, dump.name.clone())),
            // Python's pools are reported as not seen.
            Part::Sentence(text) => text.starts_with("not seen: ").then(|| (pid, name.clone())),
        };
        assert!(parts.iter().all(|part| whose(part) == Some((pid, name.clone()))), "{text}");
        (name, dumps(parts).pop())
    };
    let found = files(&folder, "log").into_iter().map(read).collect();
    (traced, found)
}

#[test]
fn children_of_every_kind_report_for_themselves() {
    let children = target("children");
    let (traced, reports) = reports(&[children.to_str().unwrap()]);
    assert_eq!(traced.code, 0);
    assert!(traced.stdout.ends_with("parent done\n"), "{}", traced.stdout);
    assert_eq!(traced.stderr, "", "no process was missed");
    let ours: Vec<(u64, u64)> = reports
        .iter()
        .filter(|(name, _)| name == "children")
        .map(|(_, dump)| dump.as_ref().map_or((0, 0), |dump| dump.of("child")))
        .collect();
    // One child each by fork, vfork, posix_spawn, fork and exec, system, and fork in a thread, and the parent.
    let mut expected = vec![(50, 100_100); 6];
    expected.push((0, 0));
    let mut sorted = ours.clone();
    sorted.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
    assert_eq!(sorted, expected, "{reports:?}");
    let parent = reports.iter().filter_map(|(_, dump)| dump.as_ref()).find(|dump| dump.of("main").1 > 0).unwrap();
    assert_eq!((parent.of("main"), parent.of("fork_in_thread")), ((1, 3003), (1, 11)));
    assert!(reports.iter().any(|(name, _)| name == "sh"), "the shell of system()");
}

/// The program changes its folder before it forks, and the new folder has another library of the same name. The child
/// must keep the library that the program had loaded. Paths of libraries that the child loads are relative to the
/// child's folder.
#[test]
fn a_child_elsewhere_keeps_its_libraries() {
    let (red, blue) = (target("libred.so"), target("libblue.so"));
    let elsewhere = Folder::new();
    std::fs::copy(&blue, elsewhere.join("libred.so")).unwrap();
    std::fs::copy(&blue, elsewhere.join("libown.so")).unwrap();
    let script = format!(
        "import ctypes, os, time
os.chdir('{}')
red = ctypes.CDLL('./libred.so')
os.chdir('{}')
if os.fork() == 0:
    red.work()
    own = ctypes.CDLL('./libown.so')
    os.chdir('/')
    own.work()
    time.sleep(1)
else:
    os.wait()",
        red.parent().unwrap().display(),
        elsewhere.join("").display(),
    );
    let (traced, reports) = reports(&["/usr/bin/python3", "-c", &script]);
    assert_eq!((traced.code, traced.stderr.as_str()), (0, ""));
    let dumps: Vec<&Dump> = reports.iter().filter_map(|(_, dump)| dump.as_ref()).collect();
    let [child] = dumps.iter().filter(|dump| dump.of("red_inner").0 > 0).collect::<Vec<_>>()[..] else {
        panic!("{dumps:?}")
    };
    assert_eq!((child.of("red_inner"), child.of("blue_inner")), ((1, 301), (1, 302)));
    assert_eq!(dumps.len(), 2, "the parent too");
}

#[test]
fn two_hundred_children_at_once_are_followed() {
    for late in ["at_once", "late"] {
        let tree = target("trace_tree");
        let (traced, reports) = reports(&[tree.to_str().unwrap(), "100", late]);
        assert_eq!((traced.code, traced.stderr.as_str()), (0, ""));
        let mut sizes: Vec<u64> =
            reports.iter().map(|(_, dump)| dump.as_ref().map_or(0, |dump| dump.of("keep").1)).collect();
        sizes.sort_unstable();
        let expected: Vec<u64> = std::iter::once(500).chain(1000..1100).chain(2000..2100).collect();
        assert_eq!(sizes, expected, "{late}");
    }
}

#[test]
fn an_executed_program_is_another_report() {
    let sites = target("trace_sites");
    let (traced, reports) = reports(&["sh", "-c", &format!("exec '{}'", sites.display())]);
    assert_eq!(traced.code, 9);
    let by_name: BTreeMap<_, _> = reports.iter().map(|(name, dump)| (name.as_str(), dump)).collect();
    assert_eq!(by_name["trace_sites"].as_ref().unwrap().bytes, 40_640);
    assert!(
        by_name.get("sh").is_none_or(|dump| dump.is_none()),
        "the blocks of the shell ended with the exec: {reports:?}"
    );
}

#[test]
fn an_empty_environment_hides_no_process() {
    let sites = target("trace_sites");
    let (traced, reports) = reports(&["env", "-i", sites.to_str().unwrap()]);
    assert_eq!(traced.code, 9);
    assert_eq!(reports.iter().find(|(name, _)| name == "trace_sites").unwrap().1.as_ref().unwrap().bytes, 40_640);
    // Python's subprocess calls vfork and execve with an environment of its own.
    let script = format!("import subprocess; subprocess.run(['{}'], env={{'A': 'b'}})", sites.display());
    let (traced, found) = self::reports(&["/usr/bin/python3", "-c", &script]);
    assert_eq!(traced.code, 0, "{}", traced.stderr);
    assert_eq!(found.iter().find(|(name, _)| name == "trace_sites").unwrap().1.as_ref().unwrap().bytes, 40_640);
}

#[test]
fn a_static_program_in_between_hides_no_process() {
    let (hello, sites) = (target("hello_static"), target("trace_sites"));
    let line = format!("'{}' word; '{}'; exit 0", hello.display(), sites.display());
    let (traced, reports) = reports(&["sh", "-c", &line]);
    assert_eq!(traced.code, 0);
    let names: Vec<&str> = reports.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"sh") && names.contains(&"trace_sites") && !names.contains(&"hello_static"), "{names:?}");
}

#[test]
fn a_child_in_a_sandbox_is_left_alone() {
    let program = Program::target("trace_sandbox");
    assert_eq!(program.alone().stdout, "child 0\n");
    let (traced, reports) = reports(&[program.path.to_str().unwrap()]);
    assert_eq!((traced.code, traced.stdout.as_str()), (0, "child 0\n"));
    assert_eq!(reports.len(), 1);
    let parts = traced.parts();
    assert!(matches!(&parts[..], [Part::Sentence(text)] if text.starts_with("1 more process")), "{}", traced.stderr);
}

#[test]
fn a_forked_child_joins_on_a_small_stack() {
    let bytes = |text: &str| text.trim().strip_prefix("bytes=").unwrap().parse::<u64>().unwrap();
    let program = Program::target("trace_stack");
    let alone = bytes(&program.alone().stdout);
    let (traced, reports) = reports(&[program.path.to_str().unwrap()]);
    assert_eq!(reports.len(), 2, "the child joined: {}", traced.stderr);
    let watched = bytes(&traced.stdout);
    assert!(watched <= alone + 1024, "{watched} bytes, alone {alone}");
}

#[test]
fn what_the_program_leaves_behind_is_waited_for() {
    let folder = Folder::new();
    for kill_us in [false, true] {
        let prefix = folder.join(if kill_us { "killed" } else { "ended" });
        let out = folder.join("stdout");
        let mut command = Heaptrace::new(["--outfile"]).arg(&prefix).target("trace_daemon").command();
        command.stdout(std::fs::File::create(&out).unwrap());
        let mut child = command.spawn().unwrap();
        let text = || std::fs::read_to_string(&out).ok().filter(|text| text.ends_with('\n'));
        let daemon: u32 = wait_for("the daemon", text).trim().parse().unwrap();
        // The sentence is printed when the program itself has ended.
        let mut sentence = String::new();
        let stderr = child.stderr.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut sentence).unwrap();
        assert!(sentence.contains(&format!("({daemon})")), "{sentence}");
        signal("TERM", &[if kill_us { child.id() } else { daemon }]);
        assert_eq!(Traced::of(child).code, 4, "the program's own code");
        if kill_us {
            assert_eq!(state(daemon), Some('S'), "it lives on");
            signal("KILL", &[daemon]);
        }
        let name = prefix.file_name().unwrap().to_str().unwrap();
        let found: Vec<u64> = files(&folder, name)
            .into_iter()
            .filter_map(|(_, _, text)| dumps(parse(&text)).pop().map(|dump| dump.of("keep").1))
            .collect();
        assert_eq!(found.iter().sum::<u64>(), 300, "{found:?}");
    }
}

#[test]
fn when_heaptrace_is_killed_the_tree_goes_on() {
    let folder = Folder::new();
    let out = folder.join("stdout");
    let sites = target("trace_sites");
    // Forks, executes and allocates before, while and after heaptrace dies.
    let line = format!(
        "for i in 1 2 3 4 5; do '{0}'; done; echo half; read x; for i in 1 2 3 4 5; do '{0}'; (true); done; echo whole",
        sites.display()
    );
    let mut command = Heaptrace::new(["sh", "-c", &line]).command();
    command.stdout(std::fs::File::create(&out).unwrap()).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let text = || std::fs::read_to_string(&out).unwrap_or_default();
    wait_for("the first half", || text().contains("half").then_some(()));
    let shell = target_of(child.id(), std::path::Path::new("/bin/sh"));
    signal("KILL", &[child.id()]);
    let stdin = child.stdin.take();
    assert!(!child.wait().unwrap().success());
    drop(stdin);
    wait_for("the end", || text().contains("whole").then_some(()));
    wait_for("the shell's end", || state(shell).is_none_or(|state| state == 'Z').then_some(()));
}

/// The child of vfork runs in the program's memory, and its exec never returns, so the child cannot free anything
/// there.
#[test]
fn a_vfork_and_an_exec_leave_nothing_in_the_program() {
    let traced = Heaptrace::new(["--outfile"]).arg(Folder::new().join("log")).target("trace_vforks").run();
    assert_eq!((traced.code, traced.stdout.as_str()), (0, "0 pages more\n"), "{}", traced.stderr);
}

/// A script starts background jobs with SIGQUIT ignored. Our handler replaces that disposition, and an exec would reset
/// it to the default.
#[test]
fn an_inherited_ignored_signal_stays_ignored_in_a_static_program() {
    let folder = Folder::new();
    let (log, out) = (folder.join("log"), folder.join("out"));
    let script = "trap '' QUIT; exec \"$@\"";
    for program in ["env", "child"] {
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(heaptrack_tests::run::heaptrack())
            .args(["heaptrace", "--outfile"])
            .arg(&log);
        match program {
            "env" => command.arg("env"),
            _ => command.arg(target("trace_vforks")).arg("exec"),
        };
        command.arg(target("surroundings_static")).arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
        assert_eq!(Traced::of(command.spawn().unwrap()).code, 9, "{program}");
        let text = std::fs::read_to_string(&out).unwrap();
        let line = text.lines().find(|line| line.starts_with("signal 3 ")).unwrap();
        assert!(line.starts_with("signal 3 ignored"), "{program}: {line}");
        std::fs::remove_file(&out).unwrap();
    }
}
