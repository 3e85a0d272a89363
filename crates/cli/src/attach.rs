//! `heaptrack -p PID`: records a running program, from the first look at it to the detach.
//!
//! Receives: a pid. Returns: a trace and exit code 0, or 1 if the trace was cut or failed. If the process cannot be
//! attached to: one sentence and exit code 3. Wrong usage, also a wrong place for the trace or a
//! limit that is not possible: exit code 2. A build with
//! the feature `checks` returns 70 if a check failed. Must hold: the program keeps running, whatever happens to us. Its code is restored at Ctrl-C,
//! SIGTERM and the end of the given time. SIGUSR1 takes a snapshot. No trace is left unless recording began.
use crate::library::{self, Library};
use crate::naming_thread::Names;
use crate::output::Output;
use crate::patching_thread::{DebugSymbols, Patching, Way};
use crate::record::{self, Ending, FAILED_CHECK, NOTICED, Record, has_memory, patch_search};
use crate::recorder_limits::{NotPossible, RecorderLimits};
use crate::recording_options::RecordingOptions;
use crate::starting_thread::Starting;
use crate::status::{Bytes, Count, StatusLine};
use crate::triggers::Triggers;
use crate::values::duration;
use crate::{say, signals};
use attach::{Attached, Checked, Children, Interrupt, PassedOn, Prepared, Recorder, Refusal, Standing};
use clap::Parser;
use collector::{Attachment, Bound, End, Outcome, Plan, Recording, Setup, Stats};
use format::{Exit, HeapAtAttach};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use symbols::Target;

/// The exit code if the process cannot be attached to or detached from.
pub const REFUSED: u8 = 3;
/// The exit code if the trace ends before the recording did, because the disk was full or writing failed otherwise.
/// Also if the recording failed and there is no trace.
const CUT: u8 = 1;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a process may become another program while it is being attached to.
const MOST_EXECS: u32 = 5;

const HELP: &str = "\
Examples:
  heaptrack attach 4711                      until Ctrl-C, to heaptrack.<program>.4711.htz
  heaptrack attach --duration 30s -o x 4711  for half a minute, to x.htz
  heaptrack attach --follow 4711             also what the process starts from now on
  heaptrack attach --recorder-nice 19 4711   on a busy machine: the recorder takes only what others leave

Exit code: 0; 3 the process cannot be attached to, and a sentence says why; 1 the trace was cut, for example by a full disk;
2 wrong usage, a file that cannot be written, or a limit of the recorder that is not possible.";

/// Records a program that is already running, until it ends, Ctrl-C, or the given time is over.
#[derive(Debug, Parser)]
#[command(name = "heaptrack attach", bin_name = "heaptrack attach", version, after_help = HELP)]
pub struct Attach {
    /// Detach after this time, as 30s, 5m, 1h. Without it, detach at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Record everything that the process starts from now on, too, into the same trace. With names: only programs of these
    /// names, besides the process itself.
    #[arg(long, value_name = "NAME,...", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub follow: Option<String>,
    #[command(flatten)]
    pub recording: RecordingOptions,
    /// The process.
    #[arg(value_name = "PID")]
    pub pid: u32,
}

impl Attach {
    /// Returns the options of `heaptrack -p PID`, if the user typed that.
    pub fn of(record: &Record) -> Option<Attach> {
        let Record { duration, follow, recording, pid, .. } = record;
        Some(Attach { duration: *duration, follow: follow.clone(), recording: recording.clone(), pid: (*pid)? })
    }
}

/// What the user asked for is wrong, for example the place for the trace. The process could have been attached to.
#[derive(Debug)]
struct WrongUsage(String);

impl std::fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// Why the session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The user stopped us, or the time is over.
    Asked,
    /// Another heaptrack, the program itself or the capture library has ended the session.
    Detached,
    /// The program ended, or replaced itself by another one.
    Over,
    /// A tree was followed, and all of its processes have ended.
    AllOver,
}

impl Cause {
    /// How a session has ended without a request to end it.
    fn ending(self) -> &'static str {
        if self == Cause::AllOver { "all processes have ended" } else { "the program has ended, or become another one" }
    }

    /// What is said of blocks that were not freed.
    fn left(self) -> &'static str {
        if self == Cause::AllOver { "not freed at the end" } else { "still live at detach" }
    }
}

pub fn run(options: &Attach) -> ExitCode {
    if let Some(trouble) = options.recording.search.trouble(options.recording.no_symbols) {
        say(format_args!("heaptrack: {trouble}"));
        return ExitCode::from(crate::USAGE);
    }
    match try_run(options) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("heaptrack: {}", crate::trouble::sentence(&error)));
            let is_usage = error.is::<WrongUsage>() || error.is::<NotPossible>();
            ExitCode::from(if is_usage { crate::USAGE } else { REFUSED })
        }
    }
}

fn try_run(options: &Attach) -> anyhow::Result<ExitCode> {
    if let Err(refusal) = record::check_follow(options.follow.as_deref()) {
        let is_usage = refusal.code == crate::USAGE;
        return Err(if is_usage { WrongUsage(refusal.sentence).into() } else { anyhow::anyhow!(refusal.sentence) });
    }
    let asked = Arc::new(AtomicBool::new(false));
    let stop = signals::stop_flag(Some(&asked))?;
    let limits = RecorderLimits::prepare(&options.recording.recorder)?;
    let collectors = crate::scraping::bind_if_asked(&options.recording)
        .map_err(|error| WrongUsage(crate::trouble::sentence(&error)))?;
    let pushing = crate::pushing::prepare(&options.recording.push, options.recording.quiet)
        .map_err(|error| WrongUsage(crate::trouble::sentence(&error)))?;
    let pidfd = |pid: u32| pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok();
    let with_names = !options.recording.no_symbols && has_memory();
    let (target, begun) = again_after_exec(|| {
        let checked = Checked::interruptible(options.pid, Interrupt::new(Arc::clone(&stop)))?;
        let target = with_names.then(|| hold_files(options.pid));
        Ok((target, begin(options, checked)?))
    })?;
    let pidfd = pidfd(options.pid);
    let Begun { recording, attached, patching, tree, mut output, path, is_kde } = begun;
    let RecordingOptions { quiet, live, search, .. } = &options.recording;
    let store = crate::live::SharedStore::new(&path);
    let page = live.then(|| crate::live::start(&store)).flatten();
    let _scraping = collectors.and_then(|bound| bound.start(&store));
    let triggers = Triggers::start(&options.recording, output.place(), recording.stats(), options.pid, asked, false);
    let pushing = pushing.and_then(|prepared| prepared.start(&store));
    // Not earlier, because a limited recorder would pause the program for longer while it attaches.
    limits.apply("heaptrack");
    let line = StatusLine::start(recording.stats(), File::open(output.folder()).ok(), *quiet, *live, false);
    let names =
        target.and_then(|target| Names::start(output.place(), recording.blocks(), search.search(), Some(target)));
    let cause = wait(options, &attached, &recording, pidfd.as_ref(), &stop);
    line.end();
    if let Some(triggers) = triggers {
        triggers.stop();
    }
    for note in patching.map(Patching::stop).unwrap_or_default().iter().filter(|_| !quiet) {
        say(format_args!("heaptrack: {note}"));
    }
    // The next signal means that the user does not want to wait for the detach.
    stop.store(false, Ordering::Release);
    let outcome = finish(options, cause, attached, recording, tree, &names, &limits);
    let code = conclude(options, cause, outcome, names, &path, &mut output, is_kde);
    if let Some(pushing) = pushing {
        pushing.finish(&path);
    }
    if let Some(page) = page {
        page.wait(|| {
            while !stop.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    }
    Ok(code)
}

/// Calls `attach`, and calls it again if the process has become another program meanwhile: the exec has wiped out
/// whatever the attach did to the process. A program that a shell has just started (`./server & heaptrack -p $!`) is a
/// copy of the shell at first.
pub fn again_after_exec<T>(mut attach: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    for _ in 0..MOST_EXECS {
        match attach() {
            Err(error) if matches!(error.downcast_ref(), Some(Refusal::Replaced { .. })) => (),
            result => return result,
        }
    }
    attach()
}

/// A recording that has begun.
struct Begun {
    recording: Recording,
    attached: Attached,
    /// Patches the modules that the program loads from now on.
    patching: Option<Patching>,
    tree: Option<Tree>,
    output: Output,
    path: PathBuf,
    is_kde: bool,
}

/// What is needed to follow what the process starts.
struct Tree {
    /// New programs load it.
    _library: Library,
    /// Patches new programs that are static.
    starting: Option<Starting>,
}

/// Patches the program and starts to record it.
fn begin(options: &Attach, checked: Checked) -> anyhow::Result<Begun> {
    let heap = collector::heap_of(&checked.process.folder).unwrap_or_default();
    let exe = checked.process.exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe).to_owned();
    let (mut output, file, is_kde) = Output::create(options.recording.output.as_deref(), OsStr::new(&exe), false)
        .map_err(|error| WrongUsage(crate::trouble::sentence(&error)))?;
    let library = options.follow.is_some().then(|| library::place(&output.folder())).transpose()?;
    let checked = if library.is_some() { checked.following() } else { checked };
    let symbols = DebugSymbols::new(options.pid, patch_search(&options.recording.search));
    let mut prepared = Prepared::with_symbols(checked, library::CONTENT, &|module| symbols.of(module))?;
    let channel = prepared.channel.take().ok_or(Refusal::Gone)?;
    let plan = plan(options, &prepared, &output, file, exe);
    let own_ranges = prepared.own_ranges();
    let attachment = Attachment { pid: options.pid, channel, heap, own_ranges };
    let recording = Recording::start_attached(plan, attachment)?;
    let notes = std::mem::take(&mut prepared.notes);
    let search = &options.recording.search;
    let hub = recording.hub_variable();
    if let Some((path, inode)) = hub.as_ref().zip(recording.hub_inode()) {
        prepared.follow(path, inode)?;
    }
    let passed_on = library.as_ref().zip(hub.as_ref()).map(|(library, hub)| PassedOn {
        library: library.path.as_os_str().as_bytes(),
        to: Recorder::Hub(hub.as_bytes()),
    });
    let attached = prepared.begin(&recording.mapping().region(), recording.now(), passed_on)?;
    let tree = library.zip(recording.tree_hub()).zip(hub).map(|((library, tree_hub), hub)| {
        record::allow_more_files();
        let starting =
            Starting::start(tree_hub, hub, library.path.clone(), patch_search(search), search.asks_servers());
        Tree { _library: library, starting }
    });
    let patcher = Way::Attached(Box::new(attached.patcher()));
    let patching = Patching::start(recording.mapping(), patcher, patch_search(search), search.asks_servers());
    let path = output.name(options.pid)?;
    if !options.recording.quiet {
        tell_begin(options, &attached, &notes, heap);
    }
    Ok(Begun { recording, attached, patching, tree, output, path, is_kde })
}

/// Opens the program's files before it can end.
fn hold_files(pid: u32) -> Arc<Target> {
    let target = Target::new(pid);
    target.hold_mapped();
    Arc::new(target)
}

fn plan(options: &Attach, prepared: &Prepared, output: &Output, file: File, exe: String) -> Plan {
    Plan {
        setup: Setup {
            geometry: prepared.geometry(),
            clock: collector::kernel_clock(),
            on_full: options.recording.on_full.into(),
            max_stall_ms: options.recording.max_stall,
            lsan_symbol: 0,
            watched: false,
            reads_every_clock: options.follow.is_some(),
            records_maps: !options.recording.no_mmap && options.follow.is_none(),
            sampling: Default::default(),
        },
        file,
        bound: Bound::new(options.recording.max_size, options.recording.keep_last, output.place()),
        threads: options.recording.recorder_threads,
        follows: options.follow.clone(),
        memory_every: options.recording.memory_every(false),
        folder: output.folder(),
        command: prepared.command(),
        exe,
        tool: crate::TOOL.to_owned(),
    }
}

fn tell_begin(options: &Attach, attached: &Attached, notes: &[String], heap: HeapAtAttach) {
    let until = match options.duration {
        Some(duration) => format!("for {} s", duration.as_secs_f64()),
        None => "until Ctrl-C".to_owned(),
    };
    say(format_args!(
        "heaptrack: attached to {}, recording {until}; {} patched, paused the program for {:.2} ms",
        options.pid,
        functions(attached.functions as u64),
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

fn wait(
    options: &Attach,
    attached: &Attached,
    recording: &Recording,
    pidfd: Option<&OwnedFd>,
    stop: &AtomicBool,
) -> Cause {
    let end = options.duration.map(|duration| Instant::now() + duration);
    let is_asked = || stop.load(Ordering::Acquire) || end.is_some_and(|end| Instant::now() >= end);
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
        if is_asked() {
            return Cause::Asked;
        }
        match attached.standing() {
            Standing::Over => break,
            _ if is_over => break,
            Standing::Recording => (),
            Standing::Detached => return Cause::Detached,
        }
    }
    if options.follow.is_some() {
        let stats = recording.stats();
        let left = || Stats::get(&stats.processes);
        // The collecting thread notices an end, or a new program, within this time.
        std::thread::sleep(NOTICED);
        if !attached.is_alive() {
            record::tell_rest(left());
        }
        while left() > 0 && !is_asked() {
            std::thread::sleep(NOTICED);
        }
        if left() == 0 {
            return Cause::AllOver;
        }
    }
    Cause::Over
}

/// Detaches from the program, then ends the recording.
fn finish(
    options: &Attach,
    cause: Cause,
    attached: Attached,
    recording: Recording,
    tree: Option<Tree>,
    names: &Option<Names>,
    limits: &RecorderLimits,
) -> Option<Outcome> {
    let mut exit = Exit::Detached;
    let detached = match cause {
        Cause::Over | Cause::AllOver => {
            exit = Exit::Unknown;
            Err(attached.end_children())
        }
        Cause::Asked | Cause::Detached => Ok(limits.without_share(|| attached.end())),
    };
    if let Some(names) = names {
        names.stop();
    }
    let (not_patched, notes) = tree.and_then(|tree| tree.starting).map(Starting::stop).unwrap_or_default();
    for note in notes.iter().filter(|_| !options.recording.quiet) {
        say(format_args!("heaptrack: {note}"));
    }
    let outcome = recording.finish_inspected(End::from(exit), crate::unseen::inspect(not_patched));
    match detached {
        Ok(Ok(restored)) => {
            if !options.recording.quiet {
                let pause = restored.pause.as_secs_f64() * 1e3;
                say(format_args!("heaptrack: detached from {}, paused the program for {pause:.2} ms", options.pid));
            }
            tell_left("heaptrack", options.pid, restored.shared_bytes);
            tell_children("heaptrack", &restored.children, options.recording.quiet);
        }
        Ok(Err(refusal)) => say(format_args!(
            "heaptrack: recording has ended, but not everything could be put back: {refusal}; `heaptrack detach {}` tries again",
            options.pid
        )),
        Err(children) => {
            if !options.recording.quiet {
                say(format_args!("heaptrack: {}", cause.ending()));
            }
            tell_children("heaptrack", &children, options.recording.quiet);
        }
    }
    outcome
}

/// Reports shared memory that could not be unmapped. `tool` is the name under which we were started.
pub fn tell_left(tool: &str, pid: u32, bytes: u64) {
    if bytes > 0 {
        say(format_args!(
            "{tool}: {} of shared memory stay mapped in process {pid}, because a thread of it may still be in a hook; the next attach \
             or `heaptrack detach {pid}` frees them",
            Bytes(bytes)
        ));
    }
}

/// Reports children that were forked while the program was recorded.
pub fn tell_children(tool: &str, children: &Children, quiet: bool) {
    if children.restored > 0 && !quiet {
        say(format_args!("{tool}: {} forked meanwhile, put back as well", children_in_words(children.restored)));
    }
    for (pid, recorder) in children.recorded.iter().filter(|_| !quiet) {
        say(format_args!(
            "{tool}: child {pid}, forked meanwhile, is being recorded by heaptrack (pid {recorder}), which puts it back at its end"
        ));
    }
    for (pid, why) in &children.left {
        say(format_args!(
            "{tool}: child {pid}, forked meanwhile, still has hooks that do nothing: {why}; `heaptrack detach {pid}` tries again"
        ));
    }
    for (pid, why) in &children.hidden {
        say(format_args!(
            "{tool}: child {pid} may have been forked meanwhile, and may still have hooks that do nothing: {why}; then \
             `heaptrack detach {pid}` puts it back"
        ));
    }
}

/// "1 function", "12 functions".
pub fn functions(count: u64) -> String {
    format!("{} {}", Count(count), if count == 1 { "function" } else { "functions" })
}

fn children_in_words(count: usize) -> String {
    if count == 1 { "1 child was".to_owned() } else { format!("{count} children were") }
}

/// Adds the last names, converts the file if its name asks for that, and reports what was recorded.
fn conclude(
    options: &Attach,
    cause: Cause,
    outcome: Option<Outcome>,
    names: Option<Names>,
    path: &Path,
    output: &mut Output,
    is_kde: bool,
) -> ExitCode {
    let Some(outcome) = outcome else {
        say(format_args!("heaptrack: recording failed, there is no trace"));
        return ExitCode::from(CUT);
    };
    let is_cut = outcome.write_error.is_some();
    let (search, quiet, max_size, with_names) =
        (&options.recording.search, options.recording.quiet, options.recording.max_size, names.is_some());
    let left = cause.left();
    let limits = options.recording.recorder.words();
    Ending { search, quiet, max_size, with_names, names, is_kde, is_sampled: false, left, limits }
        .conclude(&outcome, path, output);
    match outcome.failed_check {
        Some(_) => ExitCode::from(FAILED_CHECK),
        None if is_cut => ExitCode::from(CUT),
        None => ExitCode::SUCCESS,
    }
}
