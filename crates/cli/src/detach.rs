//! `heaptrack detach PID`: ends the recording of a program that was attached to, from elsewhere or after the recorder's death.
//!
//! Given: a pid. Gives back: 0 when nothing of a recording is in force any more, else one sentence and 3.
use crate::args::Detach;
use crate::attach::REFUSED;
use crate::attach::{tell_children, tell_left};
use crate::{library, say, signals};
use attach::{Detached, Interrupt, Refusal};
use rustix::process::{Pid, Signal, kill_process};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a recorder has to end its session.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);

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
    let stop = signals::stop_flag().map_err(|error| error.to_string())?;
    let started = Instant::now();
    let mut asked = None;
    loop {
        match attach::detach(options.pid, library::CONTENT, Interrupt::new(Arc::clone(&stop))) {
            Ok(Detached::Restored(restored)) => {
                if !options.quiet {
                    let functions = restored.functions;
                    say(format_args!("heaptrack: detached from {}, {functions} functions put back", options.pid));
                }
                tell_left(options.pid, restored.shared_bytes);
                tell_children(&restored.children, options.quiet);
                return Ok(());
            }
            // It writes its trace to the end.
            Ok(Detached::Recorder(recorder)) if started.elapsed() < PATIENCE => {
                if asked != Some(recorder) {
                    asked = Some(recorder);
                    let pid = Pid::from_raw(recorder as i32).ok_or("the recorder has no pid")?;
                    kill_process(pid, Signal::TERM)
                        .map_err(|error| format!("the recorder (pid {recorder}) cannot be told to end: {error}"))?;
                }
            }
            Ok(Detached::Recorder(recorder)) => {
                return Err(format!("the recorder (pid {recorder}) does not end; kill it and try again"));
            }
            // The recorder is at it.
            Err(Refusal::Traced { .. }) if asked.is_some() && started.elapsed() < PATIENCE => (),
            Err(refusal) => return Err(refusal.to_string()),
        }
        if stop.load(Ordering::Acquire) {
            return Err(Refusal::Interrupted.to_string());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
