//! Programs that end, change or are stopped during an attach, and signals to heaptrack. The messages are true, no
//! process hangs, and no shared memory of heaptrack stays in the program.
use heaptrack_tests::attach::{Session, Target, assert_detaches, command, cycle, detach};
use heaptrack_tests::phases::{assert_rounds, finishes};
use heaptrack_tests::process::{self, signal, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Chance, Folder, Program, scale};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cgroup of version 1 or 2 that can be frozen. It is thawed and removed when the value is dropped.
struct Freezer {
    folder: PathBuf,
    file: &'static str,
    states: [&'static str; 2],
}

impl Freezer {
    const ALL: [(&'static str, &'static str, [&'static str; 2]); 2] =
        [("cgroup", "freezer.state", ["THAWED", "FROZEN"]), ("cgroup2", "cgroup.freeze", ["0", "1"])];

    /// Makes a cgroup in each kind of freezer that this machine has. Fails if it has none.
    fn all(name: &str) -> Vec<Freezer> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let found = Self::ALL.iter().filter_map(|(kind, file, states)| {
            let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let is_it = |words: &Vec<&str>| {
                words[2] == *kind && (*kind == "cgroup2" || words[3].split(',').any(|o| o == "freezer"))
            };
            let mount = lines.find(is_it)?[1].to_owned();
            let folder = Path::new(&mount).join(format!("heaptrack-test-{name}-{}", std::process::id()));
            std::fs::create_dir(&folder).ok()?;
            Some(Freezer { folder, file, states: *states }).filter(|freezer| freezer.folder.join(file).exists())
        });
        let found: Vec<Freezer> = found.collect();
        assert!(!found.is_empty(), "no cgroup file system with a freezer is mounted here");
        found
    }

    fn add(&self, pid: u32) {
        std::fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn freeze(&self) {
        std::fs::write(self.folder.join(self.file), self.states[1]).unwrap();
        wait_for("the freezer", || self.is_frozen().then_some(()));
    }

    fn is_frozen(&self) -> bool {
        let read = |name| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("cgroup.events").contains("frozen 1") || read("freezer.state").trim() == "FROZEN"
    }

    fn thaw(&self) {
        std::fs::write(self.folder.join(self.file), self.states[0]).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let root = self.folder.parent().unwrap().join("cgroup.procs");
        for pid in std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = std::fs::write(&root, pid);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn shared(target: &Target) -> usize {
    target.maps().lines().filter(|line| line.contains("memfd:heaptrack")).count()
}

/// Waits for the end of the session. Fails if it does not end in time.
fn ends(session: Session) -> heaptrack_tests::attach::Ended {
    let pid = session.pid();
    wait_for("heaptrack to end", || matches!(process::state(pid), None | Some('Z')).then_some(()));
    session.wait()
}

#[test]
fn a_frozen_process_is_not_attached_to() {
    for freezer in Freezer::all("attach") {
        let mut target = Target::start("attach_phases", &["1"]);
        assert_eq!(target.tell("1"), "done 1");
        // Dropped before the target, because a frozen target could not be killed.
        let freezer = freezer;
        freezer.add(target.pid);
        freezer.freeze();
        let ended = ends(Session::start(target.pid, &["--no-symbols", "--duration", "0s"]));
        assert_eq!(ended.code, 3, "{}", ended.text);
        let sentence = format!("heaptrack: process {} is frozen (cgroup /heaptrack-test-attach-", target.pid);
        assert!(ended.text.starts_with(&sentence), "{}", ended.text);
        freezer.thaw();
        assert_eq!(target.tell("1"), "done 1");
        assert_eq!(cycle(target.pid, "0s").code, 0);
        assert_eq!(shared(&target), 0);
    }
}

#[test]
fn a_process_that_is_frozen_while_it_is_recorded() {
    for freezer in Freezer::all("detach") {
        let mut target = Target::start("attach_phases", &["1"]);
        assert_eq!(target.tell("1"), "done 1");
        let code = target.code();
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("5"), "done 5");
        // Dropped before the target, because a frozen target could not be killed.
        let freezer = freezer;
        freezer.add(target.pid);
        freezer.freeze();
        signal("INT", &[session.pid()]);
        let ended = ends(session);
        assert_eq!(ended.code, 0, "{}", ended.text);
        let sentence = format!(
            "not everything could be put back: process {} is frozen (cgroup /heaptrack-test-detach-",
            target.pid
        );
        assert!(ended.text.contains(&sentence), "{}", ended.text);
        assert!(ended.text.contains(&format!("`heaptrack detach {}`", target.pid)), "{}", ended.text);
        assert_eq!(ended.report().of_size(1001).allocations, 5);
        let (status, text) = detach(target.pid);
        assert!(status == 3 && text.contains("is frozen (cgroup "), "{status} {text}");
        freezer.thaw();
        assert_eq!(target.tell("1"), "done 1");
        assert_detaches(target.pid);
        assert_eq!((target.code(), shared(&target)), (code, 0));
        assert_eq!(target.tell("1"), "done 1");
    }
}

/// A child of vfork that does not end stands for a disk that hangs.
#[test]
fn an_attach_that_waits_can_be_interrupted() {
    let mut target = Target::start("attach_vfork", &[]);
    assert_eq!(target.tell("begin"), "ready");
    let session = Session::start(target.pid, &["--no-symbols"]);
    let pid = session.pid();
    let traced = || std::fs::read_to_string(format!("/proc/{}/status", target.pid)).ok();
    wait_for("heaptrack to wait for it", || traced().filter(|text| !text.contains("TracerPid:\t0")));
    signal("TERM", &[pid]);
    let ended = ends(session);
    assert_eq!((ended.code, ended.text.as_str()), (3, "heaptrack: interrupted\n"));
    assert_eq!(target.tell("end"), "done");
    assert_eq!(shared(&target), 0);
}

/// The messages that are true of a process that ends or becomes another program during the attach.
const TRUE: [&str; 4] = [
    "there is no process",
    "has exited meanwhile",
    "has already exited (zombie)",
    "has become another program (exec) meanwhile",
];

/// Starts many short-lived processes and attaches to each at a random moment.
fn short_lives(what: &str, mut start: impl FnMut(u64) -> std::process::Child) {
    let mut chance = Chance::new(what);
    for number in 0..scale::count(400) {
        let mut child = start(chance.between(0, 40));
        std::thread::sleep(Duration::from_micros(chance.between(0, 20_000)));
        let ended = cycle(child.id(), "0s");
        let is_true = match ended.code {
            0 => true,
            3 => TRUE.iter().any(|sentence| ended.text.contains(sentence)) && ended.text.lines().count() == 1,
            _ => false,
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_true, "life {number}: {} {}", ended.code, ended.text);
    }
}

#[test]
fn processes_that_end_meanwhile() {
    short_lives("ends", |life| Command::new("/bin/sleep").arg(format!("0.0{life:02}")).spawn().unwrap());
}

#[test]
fn processes_that_become_other_programs_meanwhile() {
    let program = target("attach_execs");
    short_lives("execs", |life| Command::new(&program).arg(life.to_string()).spawn().unwrap());
}

#[test]
fn signals_that_would_end_heaptrack_end_the_recording() {
    let mut target = Target::start("attach_phases", &["1"]);
    assert_eq!(target.tell("1"), "done 1");
    let code = target.code();
    for name in ["USR2", "ALRM", "HUP", "VTALRM", "PROF", "XCPU", "PWR", "34", "64"] {
        let session = Session::attach(target.pid, &["--no-symbols"]);
        assert_eq!(target.tell("3"), "done 3");
        signal(name, &[session.pid()]);
        let ended = ends(session);
        assert_eq!(ended.code, 0, "{name}: {}", ended.text);
        assert_eq!(ended.report().of_size(1001).allocations, 3, "{name}");
        assert_eq!((target.code() == code, shared(&target)), (true, 0), "{name}: {}", ended.text);
    }
}

#[test]
fn a_deleted_program_keeps_its_names() {
    let folder = Folder::new();
    let program = folder.join("program");
    heaptrack_tests::folder::copy_program(target("attach_phases"), &program);
    let mut target = Target::spawn(Command::new(&program).arg("1"));
    assert_eq!(target.tell("1"), "done 1");
    std::fs::remove_file(&program).unwrap();
    let session = Session::attach(target.pid, &[]);
    assert_eq!(target.tell("5"), "done 5");
    let ended = session.detach();
    let text = ended.report().json()["allocations"].to_string();
    assert!(text.contains("\"function\":\"round_of_calls\""), "{text}");
    // The same if the program ends while it is recorded.
    let session = Session::attach(target.pid, &[]);
    assert_eq!(target.tell("5"), "done 5");
    assert_eq!(target.finish().0, 0);
    let text = ends(session).report().json()["allocations"].to_string();
    assert!(text.contains("\"function\":\"round_of_calls\""), "{text}");
}

#[test]
fn the_page_of_a_program_that_is_attached_to() {
    use std::io::{BufRead, BufReader, Read, Write};
    let mut target = Target::start("attach_phases", &["1"]);
    assert_eq!(target.tell("1"), "done 1");
    let folder = Folder::new();
    let mut heaptrack =
        command(&["--live", "-p", &target.pid.to_string(), "-o"]).arg(folder.join("trace")).spawn().unwrap();
    let mut lines = BufReader::new(heaptrack.stderr.take().unwrap()).lines();
    let address = lines.by_ref().map(Result::unwrap).find_map(|line| Some(line.split_once("http://")?.1.to_owned()));
    let address = address.expect("the page has an address");
    let (host, path) = address.split_once('/').unwrap();
    let mut page = std::net::TcpStream::connect(host).unwrap();
    write!(page, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    signal("INT", &[heaptrack.id()]);
    let stays = lines.by_ref().map(Result::unwrap).find(|line| line.contains("the page stays at"));
    assert!(stays.is_some());
    assert_eq!(shared(&target), 0, "heaptrack has detached, and the page stays");
    signal("INT", &[heaptrack.id()]);
    assert_eq!(process::code(heaptrack.wait().unwrap()), 0);
}

#[test]
fn detaching_from_a_program_that_heaptrack_launched() {
    let program = Program::target("stops").arg("60000");
    let running = program.start();
    let pid = running.target_with_library(&program);
    let recorder = running.pid();
    let (status, text) = detach(pid);
    let sentence = format!("process {pid} was launched by heaptrack and is recorded by process {recorder}; ");
    assert!(status == 3 && text.contains(&sentence), "{status} {text}");
    signal("TERM", &[pid]);
    running.finish();
}

/// With `./server & heaptrack -p $!`, the process is a copy of the shell at first. Here it is a program without an
/// allocator at first. Attach waits half a second for such a process, and meanwhile it becomes another program.
#[test]
fn a_process_that_becomes_another_program_during_the_attach_is_attached_to() {
    let mut program = Target::spawn(Command::new(target("attach_late_exec")).arg(target("attach_phases")).arg("1"));
    let session = Session::attach(program.pid, &["--no-symbols"]);
    assert_eq!(process::executable(program.pid), target("attach_phases").canonicalize().ok());
    assert_eq!(program.tell("3"), "done 3");
    assert_rounds(&session.detach().report(), 3);
    finishes(program);
}
