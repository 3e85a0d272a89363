//! Runs the recorder, if the user allowed it.
//!
//! Must hold: the recorder and its program get no input, and their output does not reach our stdout, which belongs to the
//! protocol. They are stopped after their time, when the request is cancelled, and when the client has gone.
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much of the output is kept, from its end.
const KEPT: usize = 4 << 10;
const LOOK: Duration = Duration::from_millis(20);
/// How long a program that was told to end may take.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Recorder {
    /// The program `heaptrack`.
    program: PathBuf,
    /// Set to stop the recording that runs now.
    pub(crate) stop: AtomicBool,
    /// Set when the client has gone, for good.
    pub(crate) is_closed: AtomicBool,
}

/// How a recording ended.
pub struct Recorded {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Why it was stopped.
    pub stopped: Option<&'static str>,
    pub output: String,
}

impl Recorder {
    pub const fn new(program: PathBuf) -> Self {
        Recorder { program, stop: AtomicBool::new(false), is_closed: AtomicBool::new(false) }
    }

    /// Runs the recorder with these words, in `folder`, for at most `longest`. The error is a sentence.
    pub fn run(&self, words: &[&OsStr], folder: &Path, longest: Duration) -> Result<Recorded, String> {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(folder).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("the recorder cannot be started: {error}"))?;
        let tails = [child.stdout.take().map(keep_tail), child.stderr.take().map(keep_tail)];
        let (code, stopped) = self.wait(&mut child, longest)?;
        // A process that the program left behind may still hold the pipes, so it is not waited for.
        let deadline = Instant::now() + GRACE;
        let finished = |tail: &std::thread::JoinHandle<String>| {
            while !tail.is_finished() && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
            tail.is_finished()
        };
        let texts = tails.into_iter().flatten().filter(finished).filter_map(|tail| tail.join().ok());
        Ok(Recorded { code, stopped, output: texts.collect::<Vec<_>>().join("\n") })
    }

    fn wait(&self, child: &mut Child, longest: Duration) -> Result<(Option<i32>, Option<&'static str>), String> {
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or("the recorder has no process id")?;
        let start = Instant::now();
        let mut stopped: Option<(&'static str, Instant)> = None;
        loop {
            let status = child.try_wait().map_err(|error| format!("the recorder cannot be waited for: {error}"))?;
            if let Some(status) = status {
                return Ok((status.code(), stopped.map(|(reason, _)| reason)));
            }
            let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
            let reason = match () {
                () if is_set(&self.is_closed) => Some("the client has gone"),
                () if is_set(&self.stop) => Some("the request was cancelled"),
                () => (start.elapsed() > longest).then_some("its time was over"),
            };
            match (stopped, reason) {
                (None, Some(reason)) => {
                    // The recorder passes the signal on to its program, and detaches from one that it did not start.
                    let _ = kill_process(pid, Signal::TERM);
                    stopped = Some((reason, Instant::now()));
                }
                (Some((_, since)), _) if since.elapsed() > GRACE => {
                    let _ = kill_process_group(pid, Signal::KILL);
                }
                _ => {}
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Reads to the end and keeps the last bytes.
fn keep_tail(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept: Vec<u8> = Vec::new();
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut part) {
            kept.extend_from_slice(&part[..count]);
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
        String::from_utf8_lossy(&kept).trim().to_owned()
    })
}
