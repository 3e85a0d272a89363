//! Running programs, and `heaptrack attach` to them.
//!
//! Must hold: heaptrack cannot find gdb, because its PATH leads nowhere.
use crate::folder::Folder;
use crate::process::{self, wait_for};
use crate::report::Report;
use crate::run::{heaptrack, with_default_signals};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A program that is not recorded yet. It is killed when this value goes out of scope.
pub struct Target {
    /// `None` for a process that the harness did not start itself.
    child: Option<Child>,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    /// The process to attach to: the child itself, or one of its descendants.
    pub pid: u32,
}

impl Target {
    /// One of `tests/targets`.
    pub fn start(name: &str, arguments: &[&str]) -> Target {
        Self::spawn(Command::new(crate::targets::target(name)).args(arguments))
    }

    pub fn spawn(command: &mut Command) -> Target {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take();
        let output = Some(BufReader::new(child.stdout.take().expect("piped")));
        let pid = child.id();
        Target { child: Some(child), input, output, pid }
    }

    /// A process that a target has forked. It can be examined, and is killed when the value goes out of scope.
    pub fn of(pid: u32) -> Target {
        Target { child: None, input: None, output: None, pid }
    }

    /// Waits until the program sleeps, because then it waits for input. Before that, its libraries may not be loaded
    /// yet.
    pub fn settle(&self) {
        process::wait_for("a target that reads", || (process::state(self.pid) == Some('S')).then_some(()));
    }

    pub fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open");
        // In one write, because some targets end after the first byte.
        input.write_all(format!("{line}\n").as_bytes()).expect("the target reads");
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().expect("ours").read_line(&mut line).expect("the target writes");
        line.trim_end().to_owned()
    }

    /// Writes a line to the program's stdin and returns its answer.
    pub fn tell(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    pub fn is_alive(&self) -> bool {
        process::state(self.pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Closes the program's stdin and waits for its end. Returns the exit code and the rest of its output.
    pub fn finish(mut self) -> (i32, String) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.as_mut().expect("ours").read_to_string(&mut rest).expect("text");
        (process::code(self.child.as_mut().expect("ours").wait().expect("can be waited for")), rest)
    }

    /// Waits for the end of a program that a signal ends. Its stdin stays open, because a closed one could end it first.
    pub fn wait(mut self) -> i32 {
        process::code(self.child.as_mut().expect("ours").wait().expect("can be waited for"))
    }

    pub fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("the target lives")
    }

    pub fn descriptors(&self) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("the target lives");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The number of open files whose name contains `name`.
    pub fn descriptors_of(&self, name: &str) -> usize {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("the target lives");
        let is_it = |path: PathBuf| path.to_string_lossy().contains(name);
        entries
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|path| is_it(path.clone()))
            .count()
    }

    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the target lives").count()
    }

    /// For each mapping of code from a file, its line in /proc/PID/maps and a hash of the bytes that are in memory now.
    pub fn code(&self) -> Vec<(String, u64)> {
        let maps = self.maps();
        let code = maps.lines().filter(|line| line.contains(" r-xp ") && line.contains('/'));
        let hash = |bytes: &[u8]| {
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            hasher.finish()
        };
        code.map(|line| (line.to_owned(), hash(&self.content(line)))).collect()
    }

    /// The number of words in the data of mapped files that point to code outside of any file. Only heaptrack's code is
    /// outside of files.
    pub fn redirected(&self) -> usize {
        let maps = self.maps();
        let is_ours = |line: &&str| line.contains(" r-xp ") && line.split_whitespace().count() == 5;
        let ours: Vec<_> = maps.lines().filter(is_ours).map(range).collect();
        let data = maps.lines().filter(|line| line.contains('/') && !line.contains("xp ") && line.contains(" r"));
        let words = data.flat_map(|line| {
            let bytes = self.content(line);
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
        });
        words.filter(|word| ours.iter().any(|(start, end)| (*start..*end).contains(word))).count()
    }

    /// The bytes in memory of the mapping that a line of /proc/PID/maps describes.
    fn content(&self, line: &str) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid)).expect("readable");
        let (start, end) = range(line);
        let mut bytes = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut bytes, start).expect("readable");
        bytes
    }
}

/// The address range of a line of /proc/PID/maps.
fn range(line: &str) -> (u64, u64) {
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap())
}

impl Drop for Target {
    fn drop(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            None => process::signal("KILL", &[self.pid]),
        }
    }
}

/// A running `heaptrack attach`.
pub struct Session {
    recorder: Child,
    text: BufReader<std::process::ChildStderr>,
    said: String,
    pub trace: PathBuf,
    folder: Folder,
}

/// A session that has ended.
pub struct Ended {
    pub code: i32,
    pub text: String,
    pub trace: PathBuf,
    pub folder: Folder,
}

/// `heaptrack` with the environment that tests use.
pub fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = with_default_signals(heaptrack());
    command.args(arguments).env("PATH", "/nowhere").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Session {
    /// Starts `heaptrack attach` without waiting for anything.
    pub fn start(pid: u32, options: &[&str]) -> Session {
        Self::to("trace.htz", pid, options)
    }

    /// Like `start`, but the trace file has this name.
    pub fn to(name: &str, pid: u32, options: &[&str]) -> Session {
        let folder = Folder::new();
        let trace = folder.join(name);
        let mut command = command(&["attach"]);
        command.arg(pid.to_string()).arg("-o").arg(&trace).args(options);
        let mut recorder = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = BufReader::new(recorder.stderr.take().expect("piped"));
        Session { recorder, text, said: String::new(), trace, folder }
    }

    /// Returns once the program is being recorded.
    pub fn attach(pid: u32, options: &[&str]) -> Session {
        let mut session = Self::start(pid, options);
        assert!(session.wait_until_attached(), "not attached: {}", session.said);
        session
    }

    /// Returns false if the attach was refused.
    pub fn wait_until_attached(&mut self) -> bool {
        self.text.read_line(&mut self.said).expect("text");
        self.said.starts_with("heaptrack: attached to ")
    }

    pub fn pid(&self) -> u32 {
        self.recorder.id()
    }

    /// Ends the recording as Ctrl-C does.
    pub fn detach(self) -> Ended {
        process::signal("INT", &[self.pid()]);
        let ended = self.wait();
        assert_eq!(ended.code, 0, "{}", ended.text);
        ended
    }

    /// Kills the recorder, so that it cannot restore the target.
    pub fn kill(self) -> Ended {
        process::signal("KILL", &[self.pid()]);
        self.wait()
    }

    pub fn wait(mut self) -> Ended {
        self.text.read_to_string(&mut self.said).expect("text");
        let code = process::code(self.recorder.wait().expect("can be waited for"));
        Ended { code, text: self.said, trace: self.trace, folder: self.folder }
    }
}

impl Ended {
    pub fn report(&self) -> Report {
        Report::of(&self.trace)
    }

    /// The pauses of the program as heaptrack printed them, in milliseconds.
    pub fn pauses(&self) -> Vec<f64> {
        let after = self.text.split("paused the program for ").skip(1);
        after.map(|text| text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")).collect()
    }
}

/// Attaches for the duration `moment`.
pub fn cycle(pid: u32, moment: &str) -> Ended {
    let session = Session::start(pid, &["--duration", moment, "--no-symbols"]);
    session.wait()
}

/// The exit code and the message of a refused `heaptrack attach PID`.
pub fn refusal(pid: u32) -> (i32, String) {
    refusal_of(pid, &[])
}

/// The same with further options.
pub fn refusal_of(pid: u32, options: &[&str]) -> (i32, String) {
    let ended = Session::start(pid, &[&["--duration", "0s", "--no-symbols"], options].concat()).wait();
    assert!(!ended.trace.exists(), "nothing is written");
    (ended.code, ended.text)
}

pub fn detach(pid: u32) -> (i32, String) {
    let output = command(&["detach".to_owned(), pid.to_string()]).output().expect("heaptrack can be run");
    (process::code(output.status), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asserts that `heaptrack detach PID` succeeds, and returns its message.
pub fn assert_detaches(pid: u32) -> String {
    let (code, text) = detach(pid);
    assert_eq!(code, 0, "{text}");
    text
}

/// The descendant of `parent` that runs `program`.
pub fn below(parent: u32, program: &str) -> u32 {
    wait_for(program, || {
        let mut at = vec![parent];
        while let Some(pid) = at.pop() {
            let is_it = process::executable(pid).is_some_and(|exe| exe.file_name() == Some(OsStr::new(program)));
            if is_it && pid != parent {
                return Some(pid);
            }
            at.extend(process::children(pid));
        }
        None
    })
}
