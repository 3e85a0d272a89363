//! `heaptrack PROGRAM`: from the command line to the exit code.
//!
//! Receives: options, and what the program inherits. Returns: the program's own exit code, or 127, 126 or 2 if it was
//! not started. A build with the feature `checks` returns 70 if a check failed. Must hold: no trace is left unless the
//! program starts. Whatever goes wrong with the recording afterwards, the program runs to its end.
mod options;

pub use options::Record;

use crate::launch;
use crate::library;
use crate::live::SharedStore;
use crate::naming_thread::Names;
use crate::output::Output;
use crate::patched;
use crate::patching_thread::{self, Patching};
use crate::program::{self, NOT_FOUND, NOT_POSSIBLE, Program, Refusal, Way};
use crate::pushing;
use crate::recorder_limits::RecorderLimits;
use crate::recording_options::RecordingOptions;
use crate::sampled;
use crate::say;
use crate::scraping;
use crate::search_options::SearchOptions;
use crate::signals::{Signals, Waited};
use crate::starting_thread::Starting;
use crate::status::{self, StatusLine};
use crate::symbolize::{self, Help};
use crate::triggers::{Condition, Triggers};
use capture::core::WRITER_MEMORY;
use channel::Geometry;
use collector::{Bound, End, Inherited, Launch, Outcome, Plan, Recording, Setup, SetupError, children_peak_rss, spawn};
use format::Exit;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Why a recording that samples is not converted.
const KDE_IS_EXACT: &str = "--sample: KDE's format has no weights, so choose a name that ends with .htz";

/// The most time that we take for names after the program's end.
const NAMES_AT_THE_END: Duration = Duration::from_secs(5);
/// The most time that we take for names after the program's end if the user asked for files from servers.
const SERVERS_AT_THE_END: Duration = Duration::from_secs(60);
/// The most bytes of debug information for a file. Two files are read at a time. Larger files are left to `heaptrack
/// symbolize`.
pub(crate) const MEMORY_FOR_NAMES: u64 = 400 << 20;

/// The time in which the collecting thread notices that a process has ended.
pub(crate) const NOTICED: Duration = Duration::from_millis(50);

/// The time in which it notices the ends of all processes that ended together.
const ALL_NOTICED: Duration = Duration::from_millis(500);

/// The exit code if a check failed, in a build with the feature `checks`. The program's own exit code may hide that,
/// because the program may handle SIGILL.
pub(crate) const FAILED_CHECK: u8 = 70;

pub fn run(options: &Record, inherited: &Inherited) -> ExitCode {
    try_run(options, inherited).unwrap_or_else(|refusal| {
        say(format_args!("heaptrack: {}", refusal.sentence));
        ExitCode::from(refusal.code)
    })
}

pub(crate) fn cannot(sentence: impl std::fmt::Display) -> Refusal {
    Refusal { code: NOT_POSSIBLE, sentence: sentence.to_string() }
}

fn try_run(options: &Record, inherited: &Inherited) -> Result<ExitCode, Refusal> {
    let RecordingOptions { search, no_symbols, .. } = &options.recording;
    if let Some(trouble) = search.trouble(*no_symbols) {
        return Err(Refusal { code: crate::USAGE, sentence: trouble });
    }
    let word = options.command.first().ok_or_else(|| cannot("no program was given"))?;
    check_follow(options.follow.as_deref())?;
    let program = program::find(word)?;
    let asked = Arc::new(AtomicBool::new(false));
    let takes_signal = options.recording.snapshot_when.contains(&Condition::Signal);
    let signals = Signals::take(takes_signal.then(|| Arc::clone(&asked))).map_err(cannot)?;
    let limits = RecorderLimits::prepare(&options.recording.recorder)
        .map_err(|refused| Refusal { code: crate::USAGE, sentence: refused.0 })?;
    let collectors = scraping::bind_if_asked(&options.recording)
        .map_err(|error| Refusal { code: crate::USAGE, sentence: crate::trouble::sentence(&error) })?;
    let pushing = pushing::prepare(&options.recording.push, options.recording.quiet)
        .map_err(|error| Refusal { code: crate::USAGE, sentence: crate::trouble::sentence(&error) })?;
    let (output, file, is_kde) = Output::create(options.recording.output.as_deref(), word, options.debug)
        .map_err(|error| cannot(crate::trouble::sentence(&error)))?;
    if is_kde && options.sample.is_some() {
        return Err(Refusal { code: crate::USAGE, sentence: KDE_IS_EXACT.into() });
    }
    let library = library::place(&output.folder()).map_err(SetupError::Library);
    let started = library.and_then(|library| {
        let recording = Recording::start(plan(options, inherited, &program, &output, file))?;
        Ok((library, recording))
    });
    let (library, recording) = match started {
        Ok(both) => both,
        // The same limit holds for the program, which may never reach it. So the program runs unrecorded.
        Err(error) if error.is_out_of_room() && inherited.limits_file_size() => {
            say(format_args!("heaptrack: not recorded, the limit on file sizes (ulimit -f) leaves no room: {error}"));
            drop(output);
            return unrecorded(launch::plain(&program.path, &options.command), inherited, &signals);
        }
        Err(error) => return Err(cannot(error)),
    };
    let way = patching_thread::Way::Launched(library.path.clone());
    let patching = Patching::start(recording.mapping(), way, patch_search(search), search.asks_servers());
    let starting = recording.tree_hub().zip(recording.hub_variable()).and_then(|(hub, variable)| {
        Starting::start(hub, variable, library.path.clone(), patch_search(search), search.asks_servers())
    });
    let child = start(options, inherited, &program, &library.path, &recording, &signals)?;
    Ok(follow(
        options, child, recording, patching, starting, &signals, &limits, output, is_kde, collectors, pushing, asked,
    ))
}

/// Refuses a tree that cannot be followed.
pub(crate) fn check_follow(names: Option<&str>) -> Result<(), Refusal> {
    let Some(names) = names else { return Ok(()) };
    if names.len() >= channel::NAMES {
        let sentence = format!("--follow takes at most {} bytes of names", channel::NAMES - 1);
        return Err(Refusal { code: crate::USAGE, sentence });
    }
    if collector::kernel_clock() != channel::Clock::Tsc {
        return Err(cannot(
            "--follow needs the processor's time stamp counter to order the events of several processes, and this kernel does not trust it (see /sys/devices/system/clocksource/clocksource0/current_clocksource); each program can be recorded alone",
        ));
    }
    Ok(())
}

/// Returns where to look for the symbols of allocators while the program waits.
pub(crate) fn patch_search(search: &SearchOptions) -> symbols::Search {
    if search.asks_servers() { search.search_everywhere() } else { search.search() }
}

/// Records the running program to its end, and returns its exit code.
#[allow(clippy::too_many_arguments, reason = "each is used once")]
fn follow(
    options: &Record,
    child: u32,
    recording: Recording,
    patching: Option<Patching>,
    starting: Option<Starting>,
    signals: &Signals,
    limits: &RecorderLimits,
    mut output: Output,
    is_kde: bool,
    collectors: Option<scraping::Bound>,
    pushing: Option<pushing::Prepared>,
    asked: Arc<AtomicBool>,
) -> ExitCode {
    let RecordingOptions { search, no_symbols, quiet, live, max_size, .. } = &options.recording;
    if options.follow.is_some() {
        allow_more_files();
    }
    let place = output.place();
    let folder = File::open(output.folder()).ok();
    let mut name = |pid| output.name(pid).map_err(|error| say_unnamed(&error)).ok();
    // gdb starts the program when the user says so, so the pid is known only at the end.
    let mut path = if options.debug { None } else { name(child) };
    let store = path.as_deref().map(SharedStore::new);
    let page = store.as_ref().filter(|_| *live).and_then(crate::live::start);
    let _scraping = store.as_ref().zip(collectors).and_then(|(store, bound)| bound.start(store));
    let pushing = store.as_ref().zip(pushing).and_then(|(store, prepared)| prepared.start(store));
    let has_conditions = path.is_some() && !options.recording.snapshot_when.is_empty();
    let triggers = has_conditions
        .then(|| {
            Triggers::start(
                &options.recording,
                place.clone(),
                recording.stats(),
                child,
                asked,
                options.sample.is_some(),
            )
        })
        .flatten();
    limits.apply("heaptrack");
    let line = StatusLine::start(recording.stats(), folder, *quiet, *live, options.sample.is_some());
    let with_names = !no_symbols && has_memory();
    let names = with_names.then(|| Names::start(place, recording.blocks(), search.search(), None)).flatten();
    signals.wait_for(child);
    let (mut end, is_limited) = match signals.next() {
        Waited::Ended(end) => (end, false),
        Waited::CpuLimit => (End::from(Exit::Detached), true),
    };
    if options.follow.is_some() && !is_limited {
        signals.keep();
        wait_for_the_rest(&recording, signals);
    }
    line.end();
    if let Some(triggers) = triggers {
        triggers.stop();
    }
    if is_limited {
        say(format_args!(
            "heaptrack: the CPU time that heaptrack may use (ulimit -t) is over: the recording ends here, the program continues"
        ));
    } else {
        signals.keep();
    }
    if options.debug {
        end.peak_rss = None;
        path = name(recording.target_pid().unwrap_or(child));
    }
    if let Some(names) = &names {
        names.stop();
    }
    // Names take more CPU time than is left then. `heaptrack symbolize` finds them later.
    let (with_names, names) = if is_limited { (false, None) } else { (with_names, names) };
    let (not_patched, of_children) = starting.map(Starting::stop).unwrap_or_default();
    let mut notes = patching.map(Patching::stop).unwrap_or_default();
    notes.extend(of_children);
    notes.dedup();
    for note in notes.iter().filter(|_| !quiet) {
        say(format_args!("heaptrack: {note}"));
    }
    let outcome = recording.finish_inspected(end, crate::unseen::inspect(not_patched));
    let has_failed_check = outcome.as_ref().is_some_and(|outcome| outcome.failed_check.is_some());
    let left = if is_limited { "still live when the recording ended" } else { "not freed at the end" };
    let limits = options.recording.recorder.words();
    let is_sampled = options.sample.is_some();
    let ending =
        Ending { search, quiet: *quiet, max_size: *max_size, with_names, names, is_kde, is_sampled, left, limits };
    let finished = path.clone();
    conclude(outcome.zip(path), ending, &mut output);
    if let Some((pushing, path)) = pushing.zip(finished) {
        pushing.finish(&path);
    }
    if is_limited {
        end = signals.end();
        signals.keep();
    }
    if let Some(page) = page {
        page.wait(|| signals.wait_for_interrupt());
    }
    if has_failed_check { ExitCode::from(FAILED_CHECK) } else { code(end.exit) }
}

/// Raises our own limit on open files: each process of a tree takes some. The program has its own limit already.
pub(crate) fn allow_more_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, ..limit },
    );
}

/// Waits until all processes that the program started have ended, or until a signal asks us to end.
fn wait_for_the_rest(recording: &Recording, signals: &Signals) {
    let stats = recording.stats();
    let left = || collector::Stats::get(&stats.processes);
    // The collecting thread notices the end of the first process within this time.
    std::thread::sleep(NOTICED);
    // Processes that ended before it are noticed one after the other.
    let start = Instant::now();
    while start.elapsed() < ALL_NOTICED && left() > 0 && !signals.is_interrupted() {
        std::thread::sleep(NOTICED);
    }
    tell_rest(left());
    while left() > 0 && !signals.is_interrupted() {
        std::thread::sleep(NOTICED);
    }
}

/// Says that `left` processes of a tree are still recorded, if there are any.
pub(crate) fn tell_rest(left: u64) {
    let processes = match left {
        0 => return,
        1 => "1 process that it started runs".to_owned(),
        left => format!("{left} processes that it started run"),
    };
    say(format_args!("heaptrack: the program has ended, but {processes} on; Ctrl-C ends the recording"));
}

/// Reports what was recorded, or why there is no trace.
fn conclude(recorded: Option<(Outcome, PathBuf)>, ending: Ending<'_>, output: &mut Output) {
    match recorded {
        None => say(format_args!("heaptrack: recording failed, there is no trace")),
        Some((outcome, path)) if !outcome.started => {
            let _ = std::fs::remove_file(path);
            say(format_args!("heaptrack: nothing was recorded, {}", why_not(outcome.refusal)));
        }
        Some((outcome, path)) => ending.conclude(&outcome, &path, output),
    }
}

/// The work that is left when everything was recorded.
pub(crate) struct Ending<'a> {
    pub search: &'a SearchOptions,
    pub quiet: bool,
    pub max_size: Option<u64>,
    pub with_names: bool,
    pub names: Option<Names>,
    pub is_kde: bool,
    /// The numbers are estimates.
    pub is_sampled: bool,
    /// The words for blocks that were not freed.
    pub left: &'static str,
    /// The options that limited the recorder.
    pub limits: String,
}

impl Ending<'_> {
    /// Adds the last names, converts the file if its name asks for KDE's format, and reports what was recorded. A trace
    /// that could not be written to its end gets neither names nor a conversion.
    pub fn conclude(self, outcome: &Outcome, path: &Path, output: &mut Output) {
        status::report_losses(outcome, path);
        let mut file = path.to_owned();
        if outcome.write_error.is_none() {
            if self.with_names {
                name_the_rest(self.search, self.quiet, self.max_size, self.names, path);
            }
            if self.is_kde {
                file = convert(self.quiet, path).unwrap_or(file);
            }
        }
        // Measured only now, because names are a large part of the file.
        let bytes = std::fs::metadata(&file).map_or(outcome.file_bytes, |data| data.len());
        let sink = output.deliver().unwrap_or_else(|error| {
            say(format_args!("heaptrack: {}", crate::trouble::sentence(&error)));
            None
        });
        if !self.quiet {
            let file = sink.as_deref().unwrap_or(&file);
            status::report(outcome, file, bytes, self.left, &self.limits, sink.is_none(), self.is_sampled);
        }
    }
}

/// Converts the trace to KDE's format. The trace is removed only when the new file exists and has all its blocks.
/// Returns the new file, or `None` if that failed.
fn convert(quiet: bool, path: &Path) -> Option<PathBuf> {
    match crate::export::convert(path) {
        Ok(target) => {
            if !quiet {
                say(format_args!("heaptrack: {} is in KDE's format", target.display()));
            }
            Some(target)
        }
        Err(error) => {
            let (path, error) = (path.display(), crate::trouble::sentence(&error));
            say(format_args!("heaptrack: {path} was not converted to KDE's format: {error}"));
            None
        }
    }
}

fn say_unnamed(error: &io::Error) {
    say(format_args!("heaptrack: the trace cannot get its name and is lost: {error}"));
}

fn plan(options: &Record, inherited: &Inherited, program: &Program, output: &Output, file: File) -> Plan {
    let geometry =
        if inherited.limits_address_space() { Geometry::tight(WRITER_MEMORY) } else { Geometry::roomy(WRITER_MEMORY) };
    let exe = program.image.canonicalize().unwrap_or_else(|_| program.image.clone());
    Plan {
        setup: Setup {
            geometry,
            clock: collector::kernel_clock(),
            on_full: options.recording.on_full.into(),
            max_stall_ms: options.recording.max_stall,
            lsan_symbol: program.suppressions,
            watched: false,
            reads_every_clock: options.follow.is_some() || options.sample.is_some(),
            records_maps: !options.recording.no_mmap && options.follow.is_none(),
            sampling: sampled::setup(options.sample, options.exact_above),
        },
        file,
        bound: Bound::new(options.recording.max_size, options.recording.keep_last, output.place()),
        threads: options.recording.recorder_threads,
        follows: options.follow.clone(),
        memory_every: options.recording.memory_every(options.sample.is_some()),
        folder: output.folder(),
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        exe: exe.to_string_lossy().into_owned(),
        tool: crate::TOOL.to_owned(),
    }
}

/// Starts the program, or gdb. Returns the pid of our child.
fn start(
    options: &Record,
    inherited: &Inherited,
    program: &Program,
    library: &Path,
    recording: &Recording,
    signals: &Signals,
) -> Result<u32, Refusal> {
    let words = &options.command;
    let ready = |pid| signals.pass_on_to(pid);
    if options.debug && program.way != Way::Preload {
        return Err(cannot(format_args!(
            "{} is static or defines its own malloc, and gdb cannot start such a program so that it is recorded: leave out -d",
            program.image.display()
        )));
    }
    if options.debug {
        let gdb = program::look_up_in_path("gdb")?;
        // The first process that has the variables is the target, which gdb starts when the user says so.
        return launch::under_gdb(&gdb, &program.path, words, library, &recording.variable_by_path())
            .and_then(|launch| spawn(&launch, None, inherited, ready))
            .map_err(|error| cannot(format_args!("cannot start gdb: {error}")));
    }
    if program.way != Way::Preload {
        let RecordingOptions { search, quiet, .. } = &options.recording;
        let launch = launch::patched(&program.path, words).map_err(|error| refusal(&program.path, &error))?;
        let start = patched::Start {
            tool: "heaptrack",
            program: &program.path,
            library,
            hub: recording.hub_variable(),
            inherited,
            search,
            quiet: *quiet,
        };
        return start.run(&launch, recording, ready);
    }
    let launch = match recording.hub_variable() {
        Some(hub) => launch::followed(&program.path, words, library, &recording.variable(), &hub),
        None => launch::recorded(&program.path, words, library, &recording.variable()),
    };
    launch
        .and_then(|launch| spawn(&launch, Some(recording.mapping()), inherited, ready))
        .map_err(|error| refusal(&program.path, &error))
}

pub(crate) fn refusal(path: &Path, error: &io::Error) -> Refusal {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_POSSIBLE };
    Refusal { code, sentence: format!("{} cannot be started: {error}", path.display()) }
}

fn unrecorded(launch: io::Result<Launch>, inherited: &Inherited, signals: &Signals) -> Result<ExitCode, Refusal> {
    let start = |launch: Launch| spawn(&launch, None, inherited, |pid| signals.pass_on_to(pid));
    let child = launch.and_then(start).map_err(cannot)?;
    Ok(code(wait_for(child).exit))
}

/// Returns true if orphans become children of ours, as those of the first process of a container do.
pub(crate) fn inherits_orphans() -> bool {
    std::process::id() == 1 || rustix::process::child_subreaper().ok().flatten().is_some()
}

/// Waits for one child. A wait alone would also take the events of a process that another thread traces, even of our child if
/// that executes a program which is patched (`starting_thread.rs`). So the kernel is asked for its end first.
fn wait_for_end(child: Pid, options: WaitOptions) -> rustix::io::Result<Option<(Pid, WaitStatus)>> {
    let Ok(end) = rustix::process::pidfd_open(child, PidfdFlags::empty()) else {
        return rustix::process::waitpid(Some(child), options);
    };
    let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
    let time = options.contains(WaitOptions::NOHANG).then_some(&no_time);
    let mut ends = [PollFd::new(&end, PollFlags::IN)];
    match rustix::event::poll(&mut ends, time)? {
        0 => Ok(None),
        _ => rustix::process::waitpid(Some(child), options),
    }
}

/// Waits for our child. As the first process of a container we also inherit orphans, which are reaped here.
pub(crate) fn wait_for(child: u32) -> End {
    loop {
        if let Some(end) = wait_with(child, WaitOptions::empty()) {
            return end;
        }
    }
}

/// Returns how our child ended, or `None` if it still runs. Reaps orphans, too.
pub(crate) fn has_ended(child: u32) -> Option<End> {
    wait_with(child, WaitOptions::NOHANG)
}

/// Returns `None` if a wait with `NOHANG` finds that the child still runs.
fn wait_with(child: u32, options: WaitOptions) -> Option<End> {
    // A call with `NOHANG` does not know of orphans that an earlier call has reaped.
    let mut is_only_child = !options.contains(WaitOptions::NOHANG);
    loop {
        let waited = match (inherits_orphans(), Pid::from_raw(child as i32)) {
            (false, Some(child)) => wait_for_end(child, options),
            _ => rustix::process::wait(options),
        };
        match waited {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() as u32 == child => {
                let peak_rss = is_only_child.then(children_peak_rss);
                return Some(End { exit: exit(status), peak_rss });
            }
            Ok(Some(_)) => is_only_child = false,
            Err(rustix::io::Errno::INTR) => (),
            Ok(None) => return None,
            Err(_) => return Some(End::default()),
        }
    }
}

fn exit(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (_, Some(signal)) => Exit::Signal(signal),
        _ => Exit::Unknown,
    }
}

pub(crate) fn code(exit: Exit) -> ExitCode {
    ExitCode::from(match exit {
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => 128u8.wrapping_add(signal as u8),
        Exit::Unknown | Exit::Detached => 1,
    })
}

/// Returns false if our memory is limited (`ulimit -v`). Reading debug information takes memory, and recording is more
/// important.
pub fn has_memory() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::As).current.is_none()
}

/// Adds the names that were not found while recording. Names that take too long are left to `heaptrack symbolize`.
fn name_the_rest(search: &SearchOptions, quiet: bool, max_size: Option<u64>, names: Option<Names>, path: &Path) {
    let known = names.map(Names::known).unwrap_or_default();
    let help = Help {
        search: search.search_everywhere(),
        target: known.target,
        jit: known.jit,
        time: Some(if search.asks_servers() { SERVERS_AT_THE_END } else { NAMES_AT_THE_END }),
        memory: Some(MEMORY_FOR_NAMES),
        max_size,
        quiet,
    };
    match symbolize::add_names(path, help) {
        Ok(named) if quiet => drop(named),
        Ok(named) => {
            named.notes.iter().for_each(|note| say(format_args!("heaptrack: {note}")));
            if !named.all {
                say(format_args!(
                    "heaptrack: some names are missing, because finding them took too much time or memory{}; `heaptrack symbolize {}` finds the rest",
                    if max_size.is_some() { ", or because they did not fit below --max-size" } else { "" },
                    path.display()
                ));
            }
        }
        Err(error) => say(format_args!("heaptrack: {}", crate::trouble::sentence(&error))),
    }
}

/// Returns the reason that a refusal code of the capture library stands for.
pub(crate) fn why_not(refusal: u32) -> &'static str {
    match refusal {
        1 => "the library in the program is of another version",
        2 => "the shared memory could not be mapped in the program (is its address space limited?)",
        3 => "no malloc or no free was found in the program",
        4 => "the program may not make a system call that recording needs",
        _ => "the program never loaded our library",
    }
}
