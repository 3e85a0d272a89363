//! A recording that runs beside the screen: `heaptrack tui -p PID` and `heaptrack --tui PROGRAM`.
//!
//! Receives: the words of a recording. Another heaptrack process makes it, so that nothing that happens to the screen
//! harms it, and nothing that it prints reaches the screen. Must hold: the program's stdout and stderr go to a file,
//! and its stdin is empty unless it was redirected. The recorder is in a process group of its own, so Ctrl-Z stops only
//! the screen.
use crate::say;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tui::{Ending, Quit, Recording};

/// The time between two looks at the recorder.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The most bytes of output that are shown.
const SHOWN: u64 = 64 << 10;

pub struct Recorder {
    child: Child,
    ended: Option<ExitStatus>,
    /// Where the program and the recorder print.
    output: PathBuf,
    /// The program that was started; `None` if the recorder attached to one.
    program: Option<String>,
    is_left: bool,
}

impl Recorder {
    /// Starts the recording. `words` are the options of `heaptrack` and the program, `program` is its name.
    pub fn start(words: &[OsString], program: Option<String>) -> anyhow::Result<Recorder> {
        let output = std::env::temp_dir().join(format!("heaptrack-output.{}.txt", std::process::id()));
        let cannot = || format!("cannot write {}", output.display());
        // An older file of this name may belong to another user.
        let _ = fs::remove_file(&output);
        let file = File::options().append(true).create_new(true).open(&output).with_context(cannot)?;
        let input = if std::io::stdin().is_terminal() { Stdio::null() } else { Stdio::inherit() };
        let child = Command::new("/proc/self/exe")
            .arg0("heaptrack")
            .args(words)
            .stdin(input)
            .stdout(file.try_clone().with_context(cannot)?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .context("cannot start the recorder")?;
        Ok(Recorder { child, ended: None, output, program, is_left: false })
    }

    /// Waits until the trace has its name. Returns `None` if the recorder has ended without one.
    pub fn trace(&mut self) -> Option<PathBuf> {
        loop {
            if let Some(path) = open_trace(self.child.id()) {
                return Some(path);
            }
            if self.has_ended() {
                return self.named_in_output();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// A recording can be over before its file was seen. Then its last lines name the file.
    fn named_in_output(&self) -> Option<PathBuf> {
        let text = self.printed();
        let line = text.lines().rev().find_map(|line| line.strip_prefix("heaptrack: ")?.split_once(".htz ("))?;
        Some(PathBuf::from(format!("{}.htz", line.0))).filter(|path| path.is_file())
    }

    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// The end of what the program and the recorder printed.
    fn printed(&self) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.output)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(SHOWN)))?;
            let mut bytes = Vec::new();
            file.take(SHOWN).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    fn send(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32).filter(|_| self.ended.is_none()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends the recording, unless the user leaves it running, and says what became of it. Returns its exit code.
    pub fn finish(mut self, ending: Option<Ending>) -> u8 {
        let is_attached = self.program.is_none();
        match ending {
            _ if self.has_ended() => {}
            Some(Ending::Signal(signal)) => {
                self.is_left = false;
                self.send(Signal::from_named_raw(signal).unwrap_or(Signal::TERM));
            }
            _ if is_attached => self.send(Signal::INT),
            _ => {}
        }
        if !self.is_left {
            self.wait();
        }
        self.tell();
        match self.ended {
            Some(status) => status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(0) as u8,
            None => 0,
        }
    }

    /// Waits for the end of the recording, or until the user does not want to wait any longer.
    fn wait(&mut self) {
        let stop = crate::signals::stop_flag(None);
        let mut looks = 0u32;
        while !self.has_ended() {
            if stop.as_ref().is_ok_and(|stop| stop.load(Ordering::Acquire)) {
                self.is_left = true;
                return;
            }
            looks += 1;
            if looks == 400 {
                say(format_args!("heaptrack: waiting for the end of the recording; Ctrl-C does not wait"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn tell(&self) {
        match &self.program {
            Some(program) if self.is_left => say(format_args!(
                "heaptrack: {program} runs on and is recorded; its output goes to {}",
                self.output.display()
            )),
            Some(_) => {
                let text = self.printed();
                let ours = text.lines().filter(|line| line.starts_with("heaptrack: "));
                ours.for_each(|line| say(format_args!("{line}")));
                say(format_args!("heaptrack: what the program printed is in {}", self.output.display()));
            }
            None => {
                self.printed().lines().for_each(|line| say(format_args!("{line}")));
                let _ = fs::remove_file(&self.output);
            }
        }
    }

    /// Prints why there is no trace, and returns the recorder's exit code.
    pub fn refuse(mut self) -> u8 {
        self.has_ended();
        self.printed().lines().for_each(|line| say(format_args!("{line}")));
        let _ = fs::remove_file(&self.output);
        self.ended.and_then(|status| status.code()).map_or(crate::USAGE, |code| code as u8)
    }
}

impl Recording for Recorder {
    fn output(&mut self) -> Vec<String> {
        self.printed().lines().map(|line| line.replace('\t', "    ")).collect()
    }

    fn question(&mut self) -> Option<String> {
        if self.has_ended() {
            return None;
        }
        let program = self.program.as_ref()?;
        Some(format!("{program} still runs: t terminates it, l leaves it running and recorded, Esc goes back"))
    }

    fn answer(&mut self, key: char) -> Quit {
        match key {
            't' => self.send(Signal::TERM),
            'l' => self.is_left = true,
            _ => return Quit::Stay,
        }
        Quit::Now
    }
}

/// The trace that a recorder has open, once it has its name. Before, its name begins with a dot.
fn open_trace(recorder: u32) -> Option<PathBuf> {
    let is_trace = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".htz") && !name.starts_with('.')
    };
    let files = fs::read_dir(format!("/proc/{recorder}/fd")).ok()?;
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.into_iter().find(|path| is_trace(path) && crate::output::is_being_written(path))
}
