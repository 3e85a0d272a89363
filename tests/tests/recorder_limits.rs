//! `--recorder-nice` and `--recorder-cpu`: the recorder stays within its limits, the program keeps what heaptrack was
//! started with, and the end of the recording says how long the program waited.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::heaptrace::{Heaptrace, Traced};
use heaptrack_tests::process::KilledOnFailure;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A thread as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    name: String,
    nice: i32,
    cpus: String,
}

/// The fields of /proc/PID/stat after the name: the state is the first.
fn stat(path: &Path) -> Option<Vec<i64>> {
    let text = fs::read_to_string(path.join("stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

fn status(path: &Path, key: &str) -> Option<String> {
    let text = fs::read_to_string(path.join("status")).ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
}

fn thread(path: &Path) -> Option<Thread> {
    const NICE: usize = 16;
    Some(Thread {
        name: status(path, "Name:")?,
        nice: stat(path)?[NICE] as i32,
        cpus: status(path, "Cpus_allowed_list:")?,
    })
}

fn threads(pid: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| thread(&task.path())).collect()
}

/// The CPU time that a process has used, without that of its children.
fn cpu_time(pid: u32) -> Duration {
    const USER: usize = 11;
    const SYSTEM: usize = 12;
    let fields = stat(Path::new(&format!("/proc/{pid}"))).expect("the process lives");
    Duration::from_millis((fields[USER] + fields[SYSTEM]) as u64 * 10)
}

/// The first and the last CPU that this process may use. A machine with one CPU has the same twice.
fn two_cpus() -> (String, String) {
    let list = status(Path::new("/proc/self"), "Cpus_allowed_list:").expect("a list");
    let numbers: Vec<&str> = list.split([',', '-']).collect();
    (numbers[0].to_owned(), numbers[numbers.len() - 1].to_owned())
}

fn cgroup(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

fn group_name(recorder: u32) -> String {
    format!("heaptrack-recorder.{recorder}")
}

/// The folders of cgroups in which a process of this machine could have made one of its own.
fn group_folders(recorder: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = at.pop() {
        let inside = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in inside.filter(|path| path.is_dir() && !path.is_symlink()) {
            if path.ends_with(group_name(recorder)) {
                found.push(path.clone());
            }
            at.push(path);
        }
    }
    found
}

/// The cgroup of a recorder that has joined it.
fn joined(recorder: u32) -> PathBuf {
    process::wait_for("the recorder to join its cgroup", || {
        cgroup(recorder).contains(&group_name(recorder)).then_some(())
    });
    group_folders(recorder).into_iter().find(|folder| folder.join("cpu.stat").exists()).expect("it is mounted")
}

/// Finds out whether a cgroup with a limit on CPU time can be made here, in the place where heaptrack makes one with
/// version 1, or for version 2 in the root.
fn can_have_a_share() -> bool {
    let own = cgroup(std::process::id());
    let one = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "cpu").then(|| (controllers.to_owned(), path.to_owned()))
    });
    let parent = match one {
        Some((controllers, path)) => PathBuf::from(format!("/sys/fs/cgroup/{controllers}{path}")),
        None => PathBuf::from("/sys/fs/cgroup"),
    };
    let trial = parent.join(format!("heaptrack-trial.{}", std::process::id()));
    let has_limit =
        fs::create_dir(&trial).is_ok() && ["cpu.cfs_quota_us", "cpu.max"].iter().any(|file| trial.join(file).exists());
    let _ = fs::remove_dir(trial);
    has_limit
}

/// Runs a program with a share if that is possible here. If not, checks that heaptrack says so and starts nothing.
fn with_share(share: &str, work: impl FnOnce()) {
    if can_have_a_share() {
        return work();
    }
    let outcome = Program::target("hello").option("--recorder-cpu").option(share).recorded();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with(&format!("heaptrack: --recorder-cpu {share} is not possible: ")));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

/// Checks that all threads of the recorder have these limits, from the moment that they have, until `is_over`.
fn assert_limited(recorder: u32, nice: i32, cpus: &str, names: &[&str], mut is_over: impl FnMut() -> bool) {
    let is_limited = |thread: &Thread| thread.nice == nice && thread.cpus == cpus;
    process::wait_for("the limits", || {
        let all = threads(recorder);
        (!all.is_empty() && all.iter().all(is_limited)).then_some(())
    });
    let mut seen = std::collections::BTreeSet::new();
    while !is_over() {
        for thread in threads(recorder) {
            assert!(is_limited(&thread), "nice {nice}, CPUs {cpus}: {thread:?}");
            seen.insert(thread.name);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for name in names {
        assert!(seen.contains(*name), "no thread {name}: {seen:?}");
    }
}

/// A process that started with nice 3 more than this test, on one CPU.
struct Started {
    child: Child,
    nice: i32,
    cpu: String,
    _folder: Folder,
}

fn start_niced(words: &[&str], program: &Path, argument: &str) -> Started {
    let own = thread(Path::new("/proc/self")).expect("this process").nice;
    let (cpu, _) = two_cpus();
    let folder = Folder::new();
    let mut command = with_default_signals("taskset");
    command.args(["-c", &cpu, "nice", "-n", "3"]).arg(heaptrack()).args(words);
    command.arg(program).arg(argument).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Started { child: command.spawn().expect("taskset"), nice: (own + 3).min(19), cpu, _folder: folder }
}

#[test]
fn every_thread_of_the_recorder_is_limited_and_the_program_is_not() {
    let program = target("churn_time");
    let (_, cpu) = two_cpus();
    let words = ["--recorder-nice", "19", "--recorder-cpu", &cpu, "-o", "t"];
    let Started { child, nice, cpu: own_cpu, _folder } = start_niced(&words, &program, "2");
    let recorder = child.id();
    let pid = process::target_of(recorder, &program);
    let names = ["heaptrack", "heaptrack-drain", "heaptrack-write", "heaptrack-names", "heaptrack-sig"];
    assert_limited(recorder, 19, &cpu, &names, || {
        let all = threads(pid);
        for thread in &all {
            assert_eq!((thread.nice, &thread.cpus), (nice, &own_cpu), "{thread:?}");
        }
        process::state(pid).is_none_or(|state| state == 'Z') || all.is_empty()
    });
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(process::code(output.status), 0, "{said}");
    let end = format!("; the recorder was limited by --recorder-nice 19 --recorder-cpu {cpu}");
    assert!(said.lines().any(|line| line.starts_with("  the program ") && line.ends_with(&end)), "{said}");
}

#[test]
fn a_program_under_heaptrace_is_not_limited_either() {
    let program = target("churn_time");
    let (_, cpu) = two_cpus();
    let words = ["heaptrace", "--recorder-nice", "19", "--recorder-cpu", &cpu];
    let Started { child, nice, cpu: own_cpu, _folder } = start_niced(&words, &program, "1.5");
    let recorder = child.id();
    let pid = process::target_of(recorder, &program);
    assert_limited(recorder, 19, &cpu, &["heaptrack", "heaptrack-drain", "heaptrace-wait"], || {
        let all = threads(pid);
        for thread in &all {
            assert_eq!((thread.nice, &thread.cpus), (nice, &own_cpu), "{thread:?}");
        }
        all.is_empty() || process::state(pid).is_none_or(|state| state == 'Z')
    });
    let traced = Traced::of(child);
    assert_eq!(traced.code, 0, "{}", traced.stderr);
    let end = format!("; the recorder was limited by --recorder-nice 19 --recorder-cpu {cpu}");
    let said = traced.stderr.lines().find(|line| line.starts_with("heaptrace: the program "));
    assert!(said.is_some_and(|line| line.ends_with(&end)), "{}", traced.stderr);
}

#[test]
fn a_program_that_is_attached_to_is_not_limited() {
    let own = thread(Path::new("/proc/self")).expect("this process");
    let target = Target::spawn(Command::new(target("churn_time")).arg("60"));
    let (cpu, _) = two_cpus();
    let session = Session::attach(target.pid, &["--recorder-nice", "19", "--recorder-cpu", &cpu]);
    let since = Instant::now();
    assert_limited(session.pid(), 19, &cpu, &["heaptrack", "heaptrack-drain", "heaptrack-write"], || {
        for thread in threads(target.pid) {
            assert_eq!((thread.nice, &thread.cpus), (own.nice, &own.cpus), "{thread:?}");
        }
        since.elapsed() > Duration::from_millis(500)
    });
    let ended = session.detach();
    let end = format!("; the recorder was limited by --recorder-nice 19 --recorder-cpu {cpu}");
    assert!(ended.text.lines().any(|line| line.ends_with(&end)), "{}", ended.text);
    assert!(target.is_alive());
}

/// The counter `name` of a cgroup.
fn counter(folder: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(folder.join("cpu.stat")).expect("readable");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {text}"))
}

/// Measures the CPU time of the recorder for as long as `is_over` returns false, and checks it against the share.
fn assert_share(recorder: u32, percent: u32, mut is_over: impl FnMut() -> bool) {
    let folder = joined(recorder);
    let (since, before) = (Instant::now(), cpu_time(recorder));
    let (mut took, mut used) = (Duration::ZERO, Duration::ZERO);
    while !is_over() {
        std::thread::sleep(Duration::from_millis(20));
        used = cpu_time(recorder).saturating_sub(before);
        took = since.elapsed();
    }
    assert!(counter(&folder, "nr_throttled ") > 10, "the recorder was never at its limit");
    // The kernel hands out time in periods of 20 ms, and in slices of 5 ms to each CPU, so that much can be used in
    // advance. The CPU time is counted in ticks of 10 ms.
    let cpus = std::thread::available_parallelism().expect("a number").get() as u32;
    let period = Duration::from_millis(20);
    let slack = period * percent / 100 + Duration::from_millis(5) * cpus + Duration::from_millis(20);
    let allowed = took * percent / 100 + slack;
    eprintln!("{percent} %: used {used:?} of {allowed:?} in {took:?}");
    assert!(took > Duration::from_millis(500), "{took:?} is too short to say anything");
    assert!(used <= allowed, "{used:?} in {took:?}, but {percent} % allow {allowed:?}");
}

fn seconds(text: &str) -> f64 {
    let mut words = text.split(' ');
    let number: f64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
    match words.next() {
        Some("s") => number,
        Some("ms") => number / 1e3,
        unit => panic!("{unit:?}"),
    }
}

#[test]
fn a_share_holds_and_costs_time_but_no_event() {
    with_share("5%", || {
        let program = Program::target("churn_time").arg("3").option("--recorder-cpu").option("5%").option("-r");
        let running = program.start();
        let (recorder, pid) = (running.pid(), running.target(&program));
        let before = cgroup(std::process::id());
        assert_share(recorder, 5, || {
            let now = cgroup(pid);
            let is_over = now.is_empty() || process::state(pid) == Some('Z');
            assert!(is_over || now == before, "the program stays where heaptrack was started: {now}");
            is_over
        });
        let outcome = running.finish();
        assert_eq!(group_folders(recorder), Vec::<PathBuf>::new());
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let counted: u64 = outcome.stdout.trim().parse().expect("a number");
        let report = outcome.whole_report();
        let own = report.of_size(40);
        assert_eq!((own.allocations, own.leaked_allocations), (counted, 0));
        // Two threads that do nothing but malloc and free, for three seconds.
        let waited_ns = report.json()["waited_for_recorder_ns"].as_u64().expect("a number");
        let (least, most) = (1_500_000_000, 2 * report.total("runtime_ns"));
        assert!((least..most).contains(&waited_ns), "{waited_ns} ns: {}", outcome.stderr);
        let line = outcome.stderr.lines().find_map(|line| line.strip_prefix("  the program waited "));
        let line = line.unwrap_or_else(|| panic!("{}", outcome.stderr));
        assert!((seconds(line) - waited_ns as f64 / 1e9).abs() < 0.06, "{waited_ns} ns: {line}");
        assert!(line.ends_with(" of run time; the recorder was limited by --recorder-cpu 5%"), "{line}");
    });
}

#[test]
fn a_limited_recorder_changes_nothing_but_time() {
    with_share("20%", || {
        let (_, cpu) = two_cpus();
        let program = Program::target("threads").args(["1", "300000"]);
        let words = ["--recorder-cpu", "20%", "--recorder-cpu", &cpu, "--recorder-nice", "19"];
        let program = words.iter().fold(program, |program, word| program.option(word));
        let outcome = program.same_output();
        let counted: u64 = outcome
            .stdout
            .split_once("allocations=")
            .and_then(|(_, text)| text.split(' ').next()?.parse().ok())
            .unwrap();
        assert!(outcome.whole_report().total("allocations") >= counted, "{}", outcome.stderr);
        let end = format!("--recorder-nice 19 --recorder-cpu 20% --recorder-cpu {cpu}");
        assert!(outcome.stderr.contains(&end), "{}", outcome.stderr);
    });
}

#[test]
fn a_share_holds_for_attach_and_heaptrace() {
    with_share("5%", || {
        let target = Target::spawn(Command::new(target("churn_time")).arg("60"));
        let session = Session::attach(target.pid, &["--recorder-cpu", "5%", "-r"]);
        let recorder = session.pid();
        let since = Instant::now();
        assert_share(recorder, 5, || since.elapsed() > Duration::from_secs(2));
        assert!(!cgroup(target.pid).contains("heaptrack-recorder"));
        let ended = session.detach();
        assert_eq!(group_folders(recorder), Vec::<PathBuf>::new());
        assert_eq!(ended.report().total("lost_events"), 0);
        assert!(ended.text.contains("; the recorder was limited by --recorder-cpu 5%"), "{}", ended.text);
        assert!(target.is_alive());
        drop(target);

        let child = Heaptrace::new(["--recorder-cpu", "5%"]).target("churn_time").arg("2").start();
        let recorder = child.id();
        let since = Instant::now();
        assert_share(recorder, 5, || since.elapsed() > Duration::from_millis(1500));
        let traced = Traced::of(child);
        assert_eq!((traced.code, group_folders(recorder)), (0, vec![]), "{}", traced.stderr);
        let line = traced.stderr.lines().find_map(|line| line.strip_prefix("heaptrace: the program waited "));
        let line = line.unwrap_or_else(|| panic!("{}", traced.stderr));
        assert!(seconds(line) > 1.0 && line.ends_with("; the recorder was limited by --recorder-cpu 5%"), "{line}");
    });
}

/// Under heaptrace, processes also wait for buffers of their own.
#[test]
fn processes_that_wait_for_a_limited_heaptrace_are_not_said_to_run_freely() {
    with_share("5%", || {
        let folder = Folder::new();
        let out = folder.join("out");
        let words = ["--recorder-cpu", "5%", "--outfile", out.to_str().unwrap()];
        let traced = Heaptrace::new(words).target("trace_tree").args(["30", "at_once"]).run();
        assert_eq!(traced.code, 0, "{}", traced.stderr);
        // Four buffers are ready at the start, and 61 processes want one.
        let line = traced.stderr.lines().find_map(|line| line.strip_prefix("heaptrace: the program waited "));
        let line = line.unwrap_or_else(|| panic!("{}", traced.stderr));
        assert!(seconds(line) > 0.05, "{line}");
    });
}

/// Ctrl-C removes the cgroup. SIGKILL leaves it, empty, and the next recorder removes it.
#[test]
fn no_cgroup_stays() {
    with_share("50%", || {
        let program = Program::target("churn_time").arg("60").option("--recorder-cpu").option("50%").option("-r");
        let running = program.start();
        let recorder = running.pid();
        let _guard = KilledOnFailure(running.target_with_library(&program));
        joined(recorder);
        process::signal("INT", &[recorder]);
        let outcome = running.finish();
        assert_eq!((outcome.code, group_folders(recorder)), (130, vec![]), "{}", outcome.stderr);

        let running = program.start();
        let killed = running.pid();
        let pid = running.target_with_library(&program);
        let _guard = KilledOnFailure(pid);
        let left = joined(killed);
        process::signal("KILL", &[killed]);
        running.finish();
        process::signal("KILL", &[pid]);
        process::wait_for("the cgroup to be empty", || {
            fs::read_to_string(left.join("cgroup.procs")).is_ok_and(|text| text.is_empty()).then_some(())
        });
        assert_eq!(group_folders(killed).len(), 1);

        let outcome = Program::target("hello").option("--recorder-cpu").option("50%").recorded();
        assert_eq!((outcome.code, group_folders(killed)), (0, vec![]), "{}", outcome.stderr);
    });
}

/// The browser that `--live` opens is not the recorder.
#[test]
fn the_browser_of_live_is_not_limited() {
    with_share("50%", || {
        let folder = Folder::new();
        let (browser, seen) = (folder.join("browser"), folder.join("seen"));
        let script = format!(
            "#!/bin/sh\n{{ cat /proc/self/cgroup; cut -d' ' -f19 /proc/self/stat; }} > {0}.part\nmv {0}.part {0}\n",
            seen.display()
        );
        heaptrack_tests::folder::write_program(&browser, script);
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
        let program = Program::target("churn_time").arg("1").env("BROWSER", &browser);
        let words = ["--live", "-r", "--recorder-cpu", "50%", "--recorder-nice", "19"];
        let program = words.iter().fold(program, |program, word| program.option(word));
        let running = program.start();
        let recorder = running.pid();
        let _guard = KilledOnFailure(recorder);
        let pid = running.target(&program);
        joined(recorder);
        let text = process::wait_for("the browser", || fs::read_to_string(&seen).ok());
        let own = thread(Path::new("/proc/self")).expect("this process").nice;
        assert_eq!(text, format!("{}{own}\n", cgroup(std::process::id())));
        process::wait_for("the program's end", || (process::state(pid).is_none_or(|state| state == 'Z')).then_some(()));
        // The page stays until Ctrl-C. A signal before the end of the recording would go to the program.
        let ended = running.finish_while(|| process::signal("INT", &[recorder]));
        assert_eq!(group_folders(recorder), Vec::<PathBuf>::new(), "{}", ended.stderr);
    });
}

/// Runs `heaptrack WORDS hello` in a shell, after `before`.
fn shell(before: &str, words: &[&str]) -> (i32, String, String) {
    let folder = Folder::new();
    let script = format!("{before}\nexec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", &script, "sh"]);
    command.arg(heaptrack().canonicalize().unwrap()).args(words).arg(target("hello")).current_dir(folder.path());
    let output = command.stdin(Stdio::null()).output().expect("unshare");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    (process::code(output.status), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_limit_that_is_not_possible_is_refused_before_the_program_starts() {
    let refused = |code: i32, before: &str, words: &[&str], begins: &str, ends: &str| {
        let (found, stdout, stderr) = shell(before, words);
        assert_eq!((found, stdout.as_str()), (code, ""), "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "one sentence: {stderr}");
        assert!(stderr.starts_with(begins) && stderr.trim_end().ends_with(ends), "{stderr}");
    };
    let no_cgroups = "umount -R /sys/fs/cgroup";
    let hint = "; --recorder-nice and a list of CPUs need no cgroup";
    let begins = "heaptrack: --recorder-cpu 50% is not possible: no cgroup with the cpu controller is mounted;";
    refused(2, no_cgroups, &["--recorder-cpu", "50%"], begins, hint);
    let begins = "heaptrace: --recorder-cpu 50% is not possible: no cgroup with the cpu controller is mounted;";
    refused(64, no_cgroups, &["heaptrace", "--recorder-cpu", "50%"], begins, hint);
    let read_only =
        "for point in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts); do mount -o remount,bind,ro $point; done";
    let begins = "heaptrack: --recorder-cpu 50% is not possible: ";
    refused(2, read_only, &["--recorder-cpu", "50%"], begins, &format!("Read-only file system{hint}"));
    let (_, cpu) = two_cpus();
    let begins = format!("heaptrack: --recorder-cpu {cpu},1023 is not possible: heaptrack may run on CPUs ");
    refused(2, "", &["--recorder-cpu", &format!("{cpu},1023")], &begins, "");
    let twice = ["--recorder-cpu", "0", "--recorder-cpu", "0"];
    refused(2, "", &twice, "heaptrack: --recorder-cpu was given twice with the same meaning: ", "or one of each");
}

#[test]
fn attach_refuses_a_limit_that_is_not_possible_before_it_touches_the_process() {
    let target = Target::spawn(Command::new(target("churn_time")).arg("60"));
    let ended = Session::start(target.pid, &["--recorder-cpu", "1023"]).wait();
    assert_eq!(ended.code, 2, "{}", ended.text);
    assert!(ended.text.starts_with("heaptrack: --recorder-cpu 1023 is not possible: "), "{}", ended.text);
    assert_eq!((ended.text.lines().count(), ended.trace.exists()), (1, false), "{}", ended.text);
    assert!(target.is_alive() && !target.maps().contains("heaptrack"));
}

/// Without privileges a nice value can only be raised.
#[test]
fn a_lower_nice_value_needs_root() {
    // Every user may write to this folder and run this copy.
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    heaptrack_tests::folder::copy_program(heaptrack(), folder.join("heaptrack"));
    let run = |nice: &str| {
        let mut command = Command::new("setpriv");
        // At nice 19, whatever this test has.
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "nice", "-n", "19", "./heaptrack"]);
        command.args(["--recorder-nice", nice, "-r", "-o", "t", "/bin/true"]).current_dir(folder.path());
        let output = command.stdin(Stdio::null()).output().expect("setpriv");
        (process::code(output.status), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let sentence =
        "heaptrack: --recorder-nice 5 is not possible: heaptrack runs at nice 19, and only root may lower that\n";
    assert_eq!(run("5"), (2, sentence.to_owned()));
    let (code, said) = run("19");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn values_without_a_meaning_are_wrong_usage() {
    for (option, value, sentence) in [
        ("--recorder-nice", "20", "not a nice value (0 to 19)"),
        ("--recorder-nice", "x", "not a nice value (0 to 19)"),
        ("--recorder-cpu", "1-0", "not a list of CPUs"),
        ("--recorder-cpu", "0.5%", "not a share of one CPU"),
    ] {
        let outcome = Program::target("hello").option(option).option(value).recorded();
        assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{}", outcome.stderr);
        let start = format!("error: invalid value '{value}' for '{option} <");
        assert!(outcome.stderr.starts_with(&start) && outcome.stderr.contains(sentence), "{}", outcome.stderr);
        let traced = Heaptrace::new([option, value]).target("hello").run();
        assert_eq!((traced.code, traced.stdout.as_str()), (64, ""), "{}", traced.stderr);
        assert!(traced.stderr.contains(sentence) && traced.stderr.lines().count() == 1, "{}", traced.stderr);
    }
}
