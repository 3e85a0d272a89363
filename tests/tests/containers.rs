//! heaptrack as the first process of a container, and in a container that holds almost no files. No container engine
//! runs here. The tests use namespaces and a chroot, as an engine does.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::process::{self, children, state, wait_for};
use heaptrack_tests::report::sum;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, Program, Report, scale};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

/// A service under heaptrack, which is pid 1 of a new namespace.
struct Container {
    unshare: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The pid of heaptrack, seen from outside.
    first: u32,
    /// True if the container has a user namespace of its own.
    rootless: bool,
}

/// Kills the container when the value is dropped, also if a test fails.
impl Drop for Container {
    fn drop(&mut self) {
        process::signal("KILL", &[self.first]);
        let _ = self.unshare.wait();
    }
}

impl Container {
    fn start(namespaces: &[&str], command: &[&std::ffi::OsStr], folder: &Path) -> Self {
        let mut unshare = Command::new("env");
        unshare.arg("--default-signal").arg("unshare").args(namespaces).args(["--fork", "--mount-proc"]);
        unshare.args(command).current_dir(folder);
        let mut unshare = unshare.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare");
        let lines = BufReader::new(unshare.stdout.take().unwrap()).lines();
        // `unshare` forks once, so its only child is pid 1.
        let first = wait_for("pid 1", || children(unshare.id()).first().copied());
        Container { unshare, lines, first, rootless: namespaces.contains(&"--user") }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("readable")
    }

    /// Runs a shell command in the container.
    fn inside(&self, script: &str) {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["-t", &self.first.to_string(), "-p", "-m"]);
        if self.rootless {
            nsenter.args(["-U", "--preserve-credentials"]);
        }
        let status = nsenter.args(["sh", "-c", script]).status();
        assert!(status.expect("nsenter").success(), "{script}");
    }

    /// Stops the container from the host, as `docker stop` does. A shell inside could not do it, because all processes
    /// inside end with process 1.
    fn stop(&self) {
        process::signal("TERM", &[self.first]);
    }

    fn end(mut self) -> (i32, String) {
        let mut said = String::new();
        self.unshare.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (process::code(self.unshare.wait().unwrap()), said)
    }
}

fn check_pid_1(namespaces: &[&str]) {
    let folder = Folder::new();
    let (ht, service) = (heaptrack().canonicalize().unwrap(), target("service"));
    let command = [ht.as_os_str(), "-o".as_ref(), "t.htz".as_ref(), service.as_os_str()];
    let mut container = Container::start(namespaces, &command, folder.path());
    let ready = container.line();
    let daemon = ready.strip_prefix("ready ").unwrap().to_owned();
    // Every signal that users send must reach the program. The test sends one at a time.
    for (name, number) in
        [("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("ALRM", 14), ("CONT", 18), ("WINCH", 28)]
    {
        container.inside(&format!("kill -{name} 1"));
        assert_eq!(container.line(), format!("got {number}"), "SIG{name}");
    }
    // By now the daemon is a child of pid 1, which must reap it when it ends.
    let orphans: Vec<u32> = children(container.first).into_iter().filter(|pid| children(*pid).is_empty()).collect();
    assert_eq!(orphans.len(), 2, "the service and its daemon");
    container.inside(&format!("kill -KILL {daemon}"));
    let left = wait_for("the daemon to be reaped", || {
        let left = children(container.first);
        (left.len() == 1).then_some(left)
    });
    assert!(state(left[0]).is_some_and(|state| state != 'Z'));
    container.stop();
    assert_eq!(container.line(), "got 15");
    let (code, said) = container.end();
    assert_eq!(code, 42, "{said}");
    let report = Report::of(&folder.join("t.htz"));
    assert!(report.complete(), "{said}");
    assert_eq!(report.total("lost_events"), 0);
    let site = report.of_size(500);
    assert_eq!((site.allocations, site.leaked_allocations), (100, 10));
    let json = report.json();
    assert!(json["pid"].as_u64().unwrap() < 10, "the pid in the container");
    assert!(json["leaked"][0]["frames"].to_string().contains("main"), "named");
}

#[test]
fn pid_1_of_a_container() {
    check_pid_1(&["--pid", "--mount"]);
}

#[test]
fn pid_1_of_a_rootless_container() {
    check_pid_1(&["--user", "--map-root-user", "--pid", "--mount"]);
}

#[test]
fn the_trace_is_in_the_working_folder() {
    let folder = Folder::new();
    let ht = heaptrack().canonicalize().unwrap();
    let hello = target("hello");
    let container =
        Container::start(&["--pid", "--mount"], &[ht.as_os_str(), hello.as_os_str(), "x".as_ref()], folder.path());
    let (code, said) = container.end();
    assert_eq!(code, 11, "{said}");
    let names = folder.names();
    let [name] = &names[..] else { panic!("{names:?}") };
    let pid = name.strip_prefix("heaptrack.hello.").and_then(|rest| rest.strip_suffix(".htz")).unwrap();
    assert!(pid.parse::<u32>().unwrap() < 10, "the pid in the container: {name}");
    assert_eq!(Report::of(&folder.join(name)).of_size(10).allocations, 1);
}

#[test]
fn a_copy_can_be_taken_at_any_moment() {
    let program = Program::target("endless");
    let running = program.start();
    let mut last = [0u64; 4];
    for _ in 0..scale::count(400) {
        // The pace of a user who copies files. No result depends on it.
        std::thread::sleep(Duration::from_millis(50));
        let copy = running.folder().join("copy.htz");
        if std::fs::copy(&running.trace, &copy).is_err() {
            continue;
        }
        let Ok(report) = Report::try_of(&copy) else {
            assert_eq!(last, [0; 4], "an earlier copy could be read, and this one cannot");
            continue;
        };
        let now = ["allocations", "deallocations", "allocated_bytes", "peak_bytes"].map(|name| report.total(name));
        assert!(now.iter().zip(last).all(|(now, last)| *now >= last), "{now:?} after {last:?}");
        assert!(!report.complete() && report.json()["damage"].as_array().unwrap().is_empty());
        last = now;
    }
    assert!(last[0] > 0, "no copy contained events");
    process::signal("TERM", &[running.pid()]);
    let outcome = running.finish();
    assert_eq!(outcome.code, 7, "{}", outcome.stderr);
    let report = outcome.whole_report();
    assert!(report.total("allocations") >= last[0]);
    let kept = format!("kept {}\n", report.left_by_main());
    assert_eq!(outcome.stdout, kept);
}

/// The libraries that a dynamic program needs, from `ldd`.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Makes a root folder with busybox, the program, its libraries and our binary.
fn root(folder: &Folder, program: &str) {
    let put = |from: &Path, to: &str| {
        let to = folder.join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    put(Path::new("/bin/busybox"), "bin/busybox");
    put(&heaptrack(), "usr/bin/heaptrack");
    let program = target(program);
    put(&program, &format!("app/{}", program.file_name().unwrap().to_string_lossy()));
    for library in libraries(&program) {
        put(&library, &library.to_string_lossy());
    }
    for applet in ["sh", "kill", "cat"] {
        std::os::unix::fs::symlink("busybox", folder.join("bin").join(applet)).unwrap();
    }
}

fn in_root(folder: &Folder, with_proc: bool, command: &str) -> Output {
    let proc = if with_proc { "mkdir -p proc && mount -t proc none proc && " } else { "" };
    let script = format!("{proc}exec chroot . /bin/sh -c '{command}'");
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--mount", "--fork", "--propagation", "private", "sh", "-ec", &script]);
    unshare
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .output()
        .expect("unshare")
}

fn check_bare_root(with_proc: bool) {
    let folder = Folder::new();
    root(&folder, "grow");
    let output = in_root(
        &folder,
        with_proc,
        "cd /app && heaptrack -o t.htz ./grow && heaptrack print --json t.htz > t.json && heaptrack print t.htz",
    );
    let (stdout, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(process::code(output.status), 0, "{said}");
    assert!(stdout.starts_with("grow done\n") && stdout.contains("./grow"), "{stdout}");
    assert!(stdout.contains("the program ended with code 0"), "printed: {stdout}");
    let inside: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("app/t.json")).unwrap()).unwrap();
    let alone = Program::target("grow").recorded().whole_report();
    for name in ["allocations", "deallocations", "allocated_bytes", "leaked_bytes", "peak_bytes", "temporary"] {
        assert_eq!(inside["totals"][name], alone.total(name), "{name}");
    }
    assert_eq!(inside["complete"], true);
    // The file can be read outside of the container, too, and has its names.
    let report = Report::of(&folder.join("app/t.htz"));
    assert!(report.json()["allocations"].to_string().contains("\"main\""));
}

#[test]
fn a_root_folder_that_holds_next_to_nothing() {
    check_bare_root(true);
}

#[test]
fn a_root_without_proc() {
    check_bare_root(false);
}

/// A root as in Alpine: nothing but musl's loader, busybox, the programs and our binary, which was linked against glibc.
#[test]
fn a_root_with_musl_alone() {
    const ATTACHING: &str = "busybox mkfifo in; ./counting_musl wait < in > out & pid=$!; exec 3> in
        for i in $(busybox seq 500); do busybox grep -q ready out && break; busybox sleep 0.02; done
        heaptrack -o attached -p $pid 2> said & recorder=$!
        for i in $(busybox seq 500); do busybox grep -q recording said && break; busybox sleep 0.02; done
        echo go >&3; wait $recorder";
    let folder = Folder::new();
    root(&folder, "counting_musl_static");
    for (from, to) in [(target("counting_musl"), "app/counting_musl"), (MUSL.into(), MUSL.trim_start_matches('/'))] {
        std::fs::create_dir_all(folder.join(to).parent().unwrap()).unwrap();
        std::fs::copy(from, folder.join(to)).unwrap();
    }
    // The shell opens it for a job in the background.
    std::fs::create_dir(folder.join("dev")).unwrap();
    std::fs::write(folder.join("dev/null"), "").unwrap();
    let expected = Program::target("counting").recorded();
    let numbers: Vec<u64> = expected.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    for (command, trace) in [
        ("heaptrack -q -o dynamic ./counting_musl; [ $? = 7 ]", "dynamic.htz"),
        ("heaptrack -q -o static ./counting_musl_static; [ $? = 7 ]", "static.htz"),
        (ATTACHING, "attached.htz"),
    ] {
        let output = in_root(&folder, true, &format!("cd /app && {command}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(process::code(output.status), 0, "{trace}: {said}");
        let report = Report::of(&folder.join("app").join(trace));
        let own = sum(report.sites().iter().filter(|site| {
            site.leaf_module().is_some_and(|module| module.to_string_lossy().contains("counting_musl"))
        }));
        let found = [own.allocations, own.allocated_bytes, own.leaked_allocations, own.leaked_bytes];
        assert_eq!(found[2..], numbers[2..], "{trace}");
        assert!(report.json()["allocations"].to_string().contains("\"leave\""), "{trace}: names");
        // In the static program, libc's own blocks are in the same module.
        if trace != "static.htz" {
            assert_eq!(found[..], numbers[..], "{trace}");
        }
    }
    let output = in_root(&folder, false, "cd /app && umount /proc; heaptrack -o no ./counting_musl_static");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(process::code(output.status), 126, "{said}");
    assert!(said.contains("/proc is not mounted"), "{said}");
}

const MUSL: &str = "/lib/ld-musl-x86_64.so.1";

/// The words of an instruction that has the form of a JSON list.
fn words(dockerfile: &str, instruction: &str) -> Vec<String> {
    let line = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix(instruction))
        .unwrap_or_else(|| panic!("no {instruction}"));
    serde_json::from_str(line.trim()).unwrap_or_else(|_| vec![line.trim().to_owned()])
}

/// The Dockerfile of `docs/containers.md` without an engine. The test applies its one COPY, its folder, its entry point
/// and its command.
#[test]
fn the_dockerfile_of_the_page() {
    let page = std::fs::read_to_string(workspace().join("docs/containers.md")).unwrap();
    let dockerfile = page.split("```dockerfile\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(dockerfile.matches("COPY heaptrack").count(), 1, "one file");
    let copied = words(dockerfile, "COPY heaptrack ").remove(0);
    assert_eq!(copied, "/usr/bin/heaptrack");
    let folder = Folder::new();
    root(&folder, "service");
    let work = words(dockerfile, "WORKDIR").remove(0);
    std::fs::create_dir_all(folder.join(work.trim_start_matches('/'))).unwrap();
    let command = [words(dockerfile, "ENTRYPOINT"), words(dockerfile, "CMD")].concat().join(" ");
    assert_eq!(command, "heaptrack /app/service");
    let script =
        format!("mkdir -p proc && mount -t proc none proc && exec chroot . /bin/sh -c 'cd {work} && exec {command}'");
    let shell: [&std::ffi::OsStr; 3] = ["sh".as_ref(), "-ec".as_ref(), script.as_ref()];
    let mut container = Container::start(&["--pid", "--mount"], &shell, folder.path());
    assert!(container.line().starts_with("ready "));
    // `docker cp` before the end of the program: the file is already in the folder and can be opened.
    let place = folder.join(work.trim_start_matches('/'));
    let trace = wait_for("a trace in the working folder", || {
        let names = std::fs::read_dir(&place).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        names.into_iter().find(|path| path.extension().is_some_and(|end| end == "htz"))
    });
    let copy = folder.join("copy.htz");
    wait_for("something in it", || {
        std::fs::copy(&trace, &copy).ok()?;
        Report::try_of(&copy).ok().filter(|report| report.of_size(500).allocations == 100)
    });
    container.stop();
    let (code, said) = container.end();
    assert_eq!(code, 42, "{said}");
    let name = trace.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with("heaptrack.service."), "{name}");
    assert!(Report::of(&trace).complete());
}

/// Asserts that 50 rounds of `attach_phases` with one thread were recorded, by their blocks of 1001 bytes.
fn assert_rounds(report: &Report) {
    let site = report.of_size(1001);
    assert_eq!((site.allocations, site.leaked_allocations), (50, 0));
    assert!(report.complete() && report.total("lost_events") == 0);
    assert_eq!(report.json()["attached"], true);
}

#[test]
fn process_1_is_attached_to_from_inside_and_from_the_host() {
    let folder = Folder::new();
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--mount", "--fork", "--mount-proc"]).arg(target("attach_phases")).arg("1");
    let mut service = Target::spawn(&mut unshare);
    let first = wait_for("pid 1", || children(service.pid).first().copied());
    assert_eq!(service.tell("5"), "done 5");
    // From the host, by the pid that the service has there. The container holds no file of ours.
    let session = Session::attach(first, &["--no-symbols"]);
    assert_eq!(service.tell("50"), "done 50");
    assert_rounds(&session.detach().report());
    // From inside, where its pid is 1.
    let trace = folder.join("inside.htz");
    let mut inside = Command::new("nsenter");
    inside.args(["-t", &first.to_string(), "-p", "-m"]).arg(heaptrack().canonicalize().unwrap());
    let mut inside = inside.args(["-p", "1", "-o"]).arg(&trace).stderr(Stdio::piped()).spawn().expect("nsenter");
    let mut said = BufReader::new(inside.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("heaptrack: attached to "), "{line}");
    assert_eq!(service.tell("50"), "done 50");
    let recorder = wait_for("heaptrack", || children(inside.id()).first().copied());
    process::signal("TERM", &[recorder]);
    said.read_to_string(&mut line).unwrap();
    assert_eq!(process::code(inside.wait().unwrap()), 0, "{line}");
    assert_rounds(&Report::of(&trace));
    assert_eq!(service.finish(), (0, String::new()));
}
