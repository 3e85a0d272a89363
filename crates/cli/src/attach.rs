//! `heaptrack -p PID`: a program that runs already, from the first look at it to the detach.
//!
//! Given: a pid. Gives back: a trace, and exit code 0; or one sentence and 3. What must hold: the program runs on, whatever
//! happens to us; it is let go as it was, at Ctrl-C, SIGTERM, the end of the time, its own end; nothing is written unless
//! recording began.
use crate::args::{Attach, OnFull};
use crate::library;
use crate::names::Names;
use crate::output::Output;
use crate::record::{convert, has_memory, name_the_rest};
use crate::say;
use crate::status::{self, Bytes, Count, StatusLine};
use attach::{Attached, Checked, Prepared, Refusal, Standing, heap_of};
use collector::{Attachment, Bound, End, Outcome, Plan, Recording, Setup};
use format::{Exit, HeapAtAttach};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// DESIGN section 7.
pub const REFUSED: u8 = 3;
/// The trace ends before the recording did: the disk was full, or writing failed otherwise.
const CUT: u8 = 1;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why the session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// We were told to, or the time is over.
    Asked,
    /// Somebody else has detached.
    Detached,
    /// The program ended, or became another one.
    Over,
}

pub fn run(options: &Attach) -> ExitCode {
    match try_run(options) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("heaptrack: {error:#}"));
            ExitCode::from(REFUSED)
        }
    }
}

fn try_run(options: &Attach) -> anyhow::Result<ExitCode> {
    let stop = stop_signals()?;
    let checked = Checked::new(options.pid)?;
    let heap = heap_of(&checked.process).unwrap_or_default();
    let heap = HeapAtAttach { size_bytes: heap.size_bytes, rss_bytes: heap.rss_bytes };
    let pidfd = Pid::from_raw(options.pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let exe = checked.process.exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe).to_owned();
    let (mut output, file, is_kde) = Output::create(options.output.as_deref(), OsStr::new(&exe))?;
    let mut prepared = Prepared::new(checked, library::CONTENT)?;
    let channel = prepared.channel.take().ok_or(Refusal::Gone)?;
    let plan = plan(options, &prepared, &output, file, exe);
    let recording = match Recording::start_attached(plan, Attachment { pid: options.pid, channel, heap }) {
        Ok(recording) => recording,
        Err(error) => {
            prepared.give_up();
            return Err(error.into());
        }
    };
    let notes = std::mem::take(&mut prepared.notes);
    let attached = prepared.begin(&recording.mapping().region(), recording.now())?;
    let path = output.name(options.pid)?;
    if !options.quiet {
        tell_begin(options, &attached, &notes, heap);
    }
    let line = StatusLine::start(recording.stats(), File::open(output.folder()).ok(), options.quiet, false);
    let with_names = !options.no_symbols && has_memory();
    let names = with_names.then(|| Names::start(output.place(), recording.blocks(), options.search.search())).flatten();
    let cause = wait(options, &attached, pidfd.as_ref(), &stop);
    line.end();
    let outcome = finish(options, cause, attached, recording, &names);
    Ok(conclude(options, outcome, names, &path, is_kde))
}

/// SIGINT and its kin mean: detach.
fn stop_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn plan(options: &Attach, prepared: &Prepared, output: &Output, file: File, exe: String) -> Plan {
    Plan {
        setup: Setup {
            geometry: prepared.geometry(),
            clock: collector::kernel_clock(),
            on_full: match options.on_full {
                OnFull::Wait => channel::OnFull::Wait,
                OnFull::Drop => channel::OnFull::Drop,
            },
            max_stall_ms: options.max_stall,
            lsan_symbol: 0,
            watched: false,
        },
        file,
        bound: options.max_size.map(|bytes| Bound { bytes, place: output.place() }),
        folder: output.folder(),
        command: prepared.command(),
        exe,
        tool: concat!("heaptrack ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

fn tell_begin(options: &Attach, attached: &Attached, notes: &[String], heap: HeapAtAttach) {
    let until = match options.duration {
        Some(duration) => format!("for {} s", duration.as_secs_f64()),
        None => "until Ctrl-C".to_owned(),
    };
    say(format_args!(
        "heaptrack: attached to {}, recording {until}; {} functions patched, all threads stood still for {:.2} ms",
        options.pid,
        Count(attached.functions as u64),
        attached.pause.as_secs_f64() * 1e3,
    ));
    say(format_args!(
        "  its heap has {} already, {} of it resident: what is in there is not recorded",
        Bytes(heap.size_bytes),
        Bytes(heap.rss_bytes)
    ));
    for note in notes {
        say(format_args!("heaptrack: {note}"));
    }
}

fn wait(options: &Attach, attached: &Attached, pidfd: Option<&OwnedFd>, stop: &AtomicBool) -> Cause {
    let end = options.duration.map(|duration| Instant::now() + duration);
    loop {
        let left = end.map_or(LOOK_EVERY, |end| end.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
        let is_over = match pidfd {
            Some(pidfd) => {
                let timeout = Timespec::try_from(left).ok();
                let mut waited = [PollFd::new(pidfd, PollFlags::IN)];
                matches!(poll(&mut waited, timeout.as_ref()), Ok(1..))
            }
            None => {
                std::thread::sleep(left);
                false
            }
        };
        if stop.load(Ordering::Acquire) || end.is_some_and(|end| Instant::now() >= end) {
            return Cause::Asked;
        }
        match attached.standing() {
            _ if is_over => return Cause::Over,
            Standing::Recording => (),
            Standing::Detached => return Cause::Detached,
            Standing::Over => return Cause::Over,
        }
    }
}

/// Lets the program go, then ends the recording.
fn finish(
    options: &Attach,
    cause: Cause,
    attached: Attached,
    recording: Recording,
    names: &Option<Names>,
) -> Option<Outcome> {
    let mut exit = Exit::Detached;
    let detached = match cause {
        Cause::Over => {
            exit = Exit::Unknown;
            Ok(None)
        }
        Cause::Asked | Cause::Detached => attached.end().map(Some),
    };
    if let Some(names) = names {
        names.stop();
    }
    let outcome = recording.finish(End::from(exit));
    match detached {
        Ok(Some(restored)) if !options.quiet => say(format_args!(
            "heaptrack: detached from {}, all threads stood still for {:.2} ms",
            options.pid,
            restored.pause.as_secs_f64() * 1e3
        )),
        Ok(None) if !options.quiet => say(format_args!("heaptrack: the program has ended, or become another one")),
        Err(refusal) => say(format_args!(
            "heaptrack: not everything could be put back: {refusal}; `heaptrack detach {}` tries again",
            options.pid
        )),
        Ok(_) => (),
    }
    outcome
}

/// What was recorded; its last names, and the format that its name asks for.
fn conclude(options: &Attach, outcome: Option<Outcome>, names: Option<Names>, path: &Path, is_kde: bool) -> ExitCode {
    let Some(outcome) = outcome else {
        say(format_args!("heaptrack: recording failed, there is no trace"));
        return ExitCode::from(CUT);
    };
    status::report_losses(&outcome, path);
    if !options.quiet {
        // What it will be called when it has been converted.
        let target = path.with_extension("");
        let is_converted = is_kde && outcome.write_error.is_none();
        status::report(&outcome, if is_converted { &target } else { path }, "still live at detach");
    }
    if outcome.write_error.is_some() {
        return ExitCode::from(CUT);
    }
    if names.is_some() {
        name_the_rest(&options.search, options.quiet, options.max_size, names, path);
    }
    if is_kde {
        convert(options.quiet, path);
    }
    ExitCode::SUCCESS
}
