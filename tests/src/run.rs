//! Runs a program, alone or under `heaptrack`, and keeps all its output.
use crate::folder::Folder;
use crate::process;
use crate::report::Report;
use crate::{view, watchdog};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program with its arguments and environment. The same value is run alone and recorded.
#[derive(Clone)]
pub struct Program {
    pub path: OsString,
    pub arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    options: Vec<OsString>,
}

/// How a run ended.
pub struct Outcome {
    /// The exit code as a shell shows it: 128 + n for a signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// The trace, for a recorded run.
    pub trace: PathBuf,
    _folder: Folder,
}

/// A recorded run that is still going on.
pub struct Running {
    pub recorder: Child,
    pub trace: PathBuf,
    folder: Folder,
}

/// The binary under test.
pub fn heaptrack() -> PathBuf {
    watchdog::start();
    let path = match std::env::var_os("HEAPTRACK_BIN") {
        Some(path) => PathBuf::from(path),
        None => crate::targets::workspace().join("target/release/heaptrack"),
    };
    assert!(path.exists(), "{} is not there: run `make`, or set HEAPTRACK_BIN", path.display());
    path
}

/// A command that runs `program` with default signal dispositions. If the tests run in the background, SIGINT and other
/// signals are ignored, and programs would inherit that. The started process executes `program`, so the pid is the
/// program's.
pub fn with_default_signals(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM,USR1,USR2").arg(program);
    command
}

impl Program {
    /// A program by name or path.
    pub fn new(path: impl AsRef<OsStr>) -> Self {
        Program {
            path: path.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            options: Vec::new(),
        }
    }

    /// One of `tests/targets`.
    pub fn target(name: &str) -> Self {
        Self::new(crate::targets::target(name))
    }

    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.into(), value.as_ref().to_owned()));
        self
    }

    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    /// Adds an option for `heaptrack` itself.
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// Applies the environment and the folder to a command.
    pub fn settings(&self, command: &mut Command) {
        command.env_remove("HEAPTRACK_BIN").env_remove("HEAPTRACK_SOAK").env_remove("HEAPTRACK_SEED");
        command.env_remove("LD_PRELOAD").envs(self.environment.iter().cloned());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
    }

    fn surroundings(&self, command: &mut Command) {
        self.settings(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }

    /// Runs it alone.
    pub fn alone(&self) -> Outcome {
        let folder = Folder::new();
        let mut command = with_default_signals(&self.path);
        command.args(&self.arguments);
        self.surroundings(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Outcome::of(child, PathBuf::new(), folder)
    }

    /// Runs it under `heaptrack` to its end.
    pub fn recorded(&self) -> Outcome {
        self.start().finish()
    }

    /// Starts it under `heaptrack` and does not wait.
    pub fn start(&self) -> Running {
        let folder = Folder::new();
        let trace = folder.join("trace.htz");
        self.start_into(folder, trace)
    }

    /// Like `start`, with a trace file that the caller chooses.
    pub fn start_into(&self, folder: Folder, trace: PathBuf) -> Running {
        let mut command = with_default_signals(heaptrack());
        command.args(&self.options).arg("-o").arg(&trace).arg("--").arg(&self.path).args(&self.arguments);
        self.surroundings(&mut command);
        let recorder = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running { recorder, trace, folder }
    }

    /// Runs the program alone and recorded, and asserts that output and exit code are the same.
    pub fn same_output(&self) -> Outcome {
        let alone = self.alone();
        let recorded = self.recorded();
        assert_eq!(recorded.stdout, alone.stdout, "stdout differs; stderr: {}", recorded.stderr);
        assert_eq!(recorded.code, alone.code, "exit code differs; stderr: {}", recorded.stderr);
        recorded
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.recorder.id()
    }

    /// Waits until the recorded process runs `program`, and returns its pid.
    pub fn target(&self, program: &Program) -> u32 {
        process::target_of(self.pid(), Path::new(&program.path))
    }

    /// Like `target`, but also waits until heaptrack's library is mapped in the process.
    pub fn target_with_library(&self, program: &Program) -> u32 {
        let pid = self.target(program);
        process::wait_for("the library", || {
            std::fs::read_to_string(format!("/proc/{pid}/maps")).ok().filter(|maps| maps.contains("memfd:heaptrack"))
        });
        pid
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    pub fn finish(self) -> Outcome {
        Outcome::of(self.recorder, self.trace, self.folder)
    }

    /// Like `finish`, but calls `work` repeatedly until the recorder has ended.
    pub fn finish_while(mut self, mut work: impl FnMut()) -> Outcome {
        process::wait_for("the end of the recording", || {
            work();
            self.recorder.try_wait().expect("the child can be waited for")
        });
        self.finish()
    }
}

impl Outcome {
    fn of(child: Child, trace: PathBuf, folder: Folder) -> Self {
        let output = child.wait_with_output().expect("the child can be waited for");
        Outcome {
            code: process::code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            trace,
            _folder: folder,
        }
    }

    /// The output of `heaptrack print --json` for the trace.
    pub fn report(&self) -> Report {
        assert!(self.trace.exists(), "no trace was written; exit code {}, stderr: {}", self.code, self.stderr);
        Report::of(&self.trace)
    }

    /// The report of a run in which nothing may be missing.
    pub fn whole_report(&self) -> Report {
        let report = self.report();
        assert!(report.complete(), "the trace is not complete; stderr: {}", self.stderr);
        assert_eq!(report.total("lost_events"), 0, "events were lost; stderr: {}", self.stderr);
        report
    }

    /// The number of recorded allocations in a run in which nothing may be missing. Reads only the summary, because the
    /// whole report of a large program is a gigabyte of JSON.
    pub fn whole_allocations(&self) -> u64 {
        let summary = view::view(&self.trace, "summary", &[]);
        assert_eq!(summary["complete"], true, "the trace is not complete; stderr: {}", self.stderr);
        assert_eq!(summary["lost_events"], 0, "events were lost; stderr: {}", self.stderr);
        view::total(&summary, "allocations")
    }
}
