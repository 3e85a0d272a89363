//! `heaptrack detach PID`: ends the recording of a program that was attached to, from another process or after the
//! recorder was killed.
//!
//! Receives: a pid. Returns: exit code 0 when no recording is in force in the process any more, one sentence and exit
//! code 3 if that is not possible, or exit code 2 on wrong usage.
use crate::attach::REFUSED;
use crate::attach::{functions, tell_children, tell_left};
use crate::{library, say, signals};
use attach::{Detached, Interrupt, Refusal};
use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HELP: &str = "\
Example:
  heaptrack detach 4711   also after the heaptrack that recorded it was killed

Exit code: 0 when the process is not recorded any more; 3 that is not possible, and a sentence says why; 2 wrong usage.";

/// Ends the recording of a program that was attached to, and restores its code.
#[derive(Debug, Parser)]
#[command(name = "heaptrack detach", bin_name = "heaptrack detach", version, after_help = HELP)]
pub struct Detach {
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The process.
    #[arg(value_name = "PID")]
    pub pid: u32,
}

/// How long a recorder has to end its session.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for the recorder before the process is looked at again. A recorder needs less to restore a program.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

pub fn run(options: &Detach) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            say(format_args!("heaptrack: {sentence}"));
            ExitCode::from(REFUSED)
        }
    }
}

fn try_run(options: &Detach) -> Result<(), String> {
    let stop = signals::stop_flag(None).map_err(|error| error.to_string())?;
    let started = Instant::now();
    let mut asked: Option<Recorder> = None;
    loop {
        match attach::detach(options.pid, library::CONTENT, Interrupt::new(Arc::clone(&stop))) {
            Ok(Detached::Restored(restored)) => {
                if !options.quiet {
                    let how = match &asked {
                        Some(recorder) => recorder.in_words(),
                        None => format!("{} put back", functions(restored.functions as u64)),
                    };
                    say(format_args!("heaptrack: detached from {}, {how}", options.pid));
                }
                tell_left("heaptrack", options.pid, restored.shared_bytes);
                tell_children("heaptrack", &restored.children, options.quiet);
                return Ok(());
            }
            // The recorder restores the program, finishes its trace if it writes one, and ends.
            Ok(Detached::Recorder(pid)) if started.elapsed() < PATIENCE => {
                if asked.as_ref().is_none_or(|recorder| recorder.pid != pid) {
                    let told = Recorder::end(pid);
                    asked =
                        Some(told.map_err(|error| format!("the recorder (pid {pid}) cannot be told to end: {error}"))?);
                }
            }
            Ok(Detached::Recorder(recorder)) => {
                return Err(format!("the recorder (pid {recorder}) does not end; kill it and try again"));
            }
            // The recorder has stopped the program in order to restore it.
            Err(Refusal::Traced { .. }) if asked.is_some() && started.elapsed() < PATIENCE => (),
            Err(refusal) => return Err(refusal.to_string()),
        }
        // Each attempt stops the program for a moment, and only one process at a time can do that. So we wait for the
        // recorder first.
        if let Some(recorder) = &mut asked {
            recorder.wait(LOOK_EVERY, &stop);
        }
        std::thread::sleep(Duration::from_millis(10));
        if stop.load(Ordering::Acquire) {
            return Err(Refusal::Interrupted.to_string());
        }
    }
}

/// A recorder that was told to end.
struct Recorder {
    pid: u32,
    /// `None` when it has ended.
    process: Option<OwnedFd>,
}

impl Recorder {
    fn end(pid: u32) -> rustix::io::Result<Self> {
        let number = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
        let told = pidfd_open(number, PidfdFlags::empty())
            .and_then(|process| pidfd_send_signal(&process, Signal::TERM).map(|()| process));
        match told {
            Err(Errno::SRCH) => Ok(Recorder { pid, process: None }),
            told => told.map(|process| Recorder { pid, process: Some(process) }),
        }
    }

    /// Waits until the recorder has ended, `most` has passed, or `stop` is set.
    fn wait(&mut self, most: Duration, stop: &AtomicBool) {
        let until = Instant::now() + most;
        while let Some(process) = &self.process
            && Instant::now() < until
            && !stop.load(Ordering::Acquire)
        {
            // The descriptor is readable once the recorder has ended, also while it is still a zombie.
            let mut ended = [PollFd::new(process, PollFlags::IN)];
            if poll(&mut ended, Some(&STEP)) == Ok(1) {
                self.process = None;
            }
        }
    }

    fn in_words(&self) -> String {
        let done = if self.process.is_none() { "has ended" } else { "has not ended yet" };
        format!("its recorder (pid {}) {done}", self.pid)
    }
}
