//! Starting a program that is patched before its own code runs, because no library can be preloaded into it, or because
//! it has a malloc of its own that a preloaded library does not replace.
//!
//! Receives: a forked child of ours that waits for the word to go. Returns: the running program, which records. Must
//! hold: if the profiler is killed at any moment, the program runs on, unrecorded. If the program cannot be recorded,
//! none of its own instructions has run, and the child is ended. The child's exit code and its signals stay what they are
//! without us: signals that arrive meanwhile are delivered as soon as the program is released.
//!
//! ```text
//! child waits --seize, go--> execve --stops at once--> held: checked, prepared, patched --release--> first instruction
//!                                           |                   ^
//!                                           +-- loader runs ----+  (a dynamic program, `loader_stop.rs`)
//! ```
use crate::check::Checked;
use crate::error::Refusal;
use crate::hold::Hold;
use crate::image::Image;
use crate::late::Separate;
use crate::loader_stop;
use crate::prepare;
use crate::process::Process;
use crate::ptrace::{self, Event};
use crate::session;
use capture::core::PassedOn;
use channel::{Geometry, Region, Stamp};
use std::os::fd::RawFd;
use std::thread::sleep;
use std::time::Duration;

/// How often to look whether a process has executed its program: quickly at first.
const QUICK_LOOKS: u32 = 400;
const LOOK_QUICKLY: Duration = Duration::from_micros(50);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The shared memory that the program maps.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    pub from: SharedFrom<'a>,
    pub geometry: Geometry,
}

/// How the program finds the shared memory.
#[derive(Clone, Copy, Debug)]
pub enum SharedFrom<'a> {
    /// It has inherited it under this number. The program does not keep the descriptor.
    Descriptor(RawFd),
    /// It opens this path, which ends with a zero byte.
    Path(&'a [u8]),
}

/// How to record.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// The file of the capture library, which is written to the program.
    pub library: &'a [u8],
    /// Is asked about modules that have no symbol table.
    pub separate: Separate<'a>,
    pub shared: Shared<'a>,
    /// The profiler's own mapping of the shared memory.
    pub region: &'a Region<'a>,
    /// The current time stamp.
    pub stamp: Stamp,
    /// What the program passes on if it executes one into which the capture library can be preloaded. Without this, its
    /// exec function is not hooked.
    pub passed_on: Option<PassedOn<'a>>,
}

/// A program that was patched and runs.
#[derive(Debug)]
pub struct Started {
    /// What cannot be recorded, as sentences for the user.
    pub notes: Vec<String>,
}

/// Why a program does not run and record.
#[derive(Debug)]
pub enum NotStarted {
    /// The child has ended: its exec failed, or a signal has ended it. Its exit code was not taken.
    Ended,
    /// It cannot be recorded. The child was ended, or still waits for the word to go.
    Refused(Refusal),
}

/// Lets the child execute its program and patches it. `go` gives the child the word to go.
pub fn start(child: u32, means: Means<'_>, go: impl FnOnce() + Send) -> Result<Started, NotStarted> {
    let result = crate::on_own_thread(|| {
        let image = Image::parse(means.library)?;
        let process = Process::new(child).map_err(|_| Refusal::NoProc)?;
        ptrace::seize_until_exec(child).map_err(|error| Refusal::own_child(&process, &error))?;
        go();
        if !wait_for_exec(child) {
            return Ok(Err(NotStarted::Ended));
        }
        let is_ready = !loader_stop::has_loader(&process) || loader_stop::run(&process).inspect_err(|_| end(child))?;
        if !is_ready {
            return Ok(Err(NotStarted::Ended));
        }
        Ok(patch(child, &image, means))
    });
    result.unwrap_or_else(|refusal| Err(NotStarted::Refused(refusal)))
}

/// A process that we have not started, and that is about to execute a program.
#[derive(Clone, Copy)]
pub struct Executing<'a> {
    pub pid: u32,
    /// Is called when the process is traced. Returns false if the process does not wait for that any more.
    pub go: &'a (dyn Fn() -> bool + Sync),
    /// Returns true if the exec has failed.
    pub has_failed: &'a (dyn Fn() -> bool + Sync),
    /// Is called when the program is patched, before its first instruction.
    pub patched: &'a (dyn Fn() + Sync),
    /// Is called if the program cannot be recorded. If it was executed already, it has not run yet.
    pub refused: &'a (dyn Fn(&Refusal) + Sync),
}

/// Patches the program that a process executes. If that is not possible, the program runs unrecorded.
pub fn start_executed(executing: Executing<'_>, means: Means<'_>) -> Result<Started, NotStarted> {
    // When the thread ends, the kernel releases the process, whatever state it is in.
    let result = crate::on_own_thread(|| {
        let result = patch_executed(executing, means);
        if let Err(NotStarted::Refused(why)) = &result {
            (executing.refused)(why);
        }
        Ok(result)
    });
    result.unwrap_or_else(|refusal| Err(NotStarted::Refused(refusal)))
}

fn patch_executed(executing: Executing<'_>, means: Means<'_>) -> Result<Started, NotStarted> {
    let pid = executing.pid;
    let refused = NotStarted::Refused;
    let image = Image::parse(means.library).map_err(refused)?;
    let process = Process::new(pid).map_err(|_| NotStarted::Ended)?;
    ptrace::seize_until_exec(pid).map_err(|error| refused(Refusal::own_child(&process, &error)))?;
    if !(executing.go)() || !wait_for_exec_or_failure(pid, executing.has_failed) {
        return Err(NotStarted::Ended);
    }
    if loader_stop::has_loader(&process) && !loader_stop::run(&process).map_err(refused)? {
        return Err(NotStarted::Ended);
    }
    let hold = Hold::begin(means.passed_on.is_some());
    let begun = prepare_and_begin(pid, &hold, &image, means);
    hold.end();
    let notes = begun.map_err(refused)?;
    (executing.patched)();
    let _ = ptrace::detach(pid);
    Ok(Started { notes })
}

/// Ends a child whose program cannot be recorded.
fn end(child: u32) {
    ptrace::kill_child(child);
    let _ = ptrace::detach(child);
}

/// Returns true when the child has executed its program and is stopped before its first instruction. Returns false if
/// the child has ended.
fn wait_for_exec(child: u32) -> bool {
    loop {
        if let Some(is_there) = handle(child, ptrace::poll_child(child, true)) {
            return is_there;
        }
    }
}

/// As `wait_for_exec`, but returns false if the exec has failed.
fn wait_for_exec_or_failure(pid: u32, has_failed: &dyn Fn() -> bool) -> bool {
    let mut looks = 0;
    while !has_failed() {
        let event = ptrace::poll_child(pid, false);
        if event.is_none() {
            sleep(if looks < QUICK_LOOKS { LOOK_QUICKLY } else { LOOK_EVERY });
            looks += 1;
        } else if let Some(is_there) = handle(pid, event) {
            return is_there;
        }
    }
    false
}

/// Handles an event of a process that will execute a program. Returns true when it has, and false if the process has
/// ended.
fn handle(pid: u32, event: Option<Event>) -> Option<bool> {
    // A request fails only if the process has just been killed, and then the next event says so.
    let _ = match event {
        None => Ok(()),
        Some(Event::Gone) => return Some(false),
        // A signal has stopped the process, until another one continues it.
        Some(Event::Stopped) => ptrace::listen(pid),
        Some(Event::Signal(signal)) => ptrace::resume(pid, signal),
        Some(Event::SystemCall) => ptrace::resume(pid, 0),
        // In this stop the thread is still in its system call, whose result would replace a register that we set.
        Some(Event::Exec) => return Some(loader_stop::leave_call(pid)),
    };
    None
}

/// Patches the program that the child has executed, and releases it.
fn patch(child: u32, image: &Image, means: Means<'_>) -> Result<Started, NotStarted> {
    let hold = Hold::begin(means.passed_on.is_some());
    let begun = prepare_and_begin(child, &hold, image, means);
    hold.end();
    match begun {
        // Fails only if the child was killed.
        Ok(_) => drop(ptrace::detach(child)),
        Err(_) => end(child),
    }
    match begun {
        Err(Refusal::Exited { .. }) => Err(NotStarted::Ended),
        result => result.map(|notes| Started { notes }).map_err(NotStarted::Refused),
    }
}

fn prepare_and_begin(child: u32, hold: &Hold, image: &Image, means: Means<'_>) -> Result<Vec<String>, Refusal> {
    let process = Process::new(child).map_err(|_| Refusal::Exited { pid: child })?;
    let process = Process { hold: hold.clone(), ..process };
    let checked = Checked::of(&process)?;
    let memory = checked.memory.clone();
    let begin = || {
        let mut prepared = prepare::held(checked, image, means.separate, means.shared)?;
        let notes = std::mem::take(&mut prepared.notes);
        session::begin_held(prepared, means.region, means.stamp, means.passed_on)?;
        Ok(notes)
    };
    begin().map_err(|refusal: Refusal| refusal.checked(&process, Some(&memory)))
}
