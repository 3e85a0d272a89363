//! `heaptrace PROGRAM`: prints what is live in a program and in everything it starts, while it runs and at its end.
//! Writes no trace.
//!
//! Receives: the words of the command line, and what the program inherits. Returns: the program's own exit code, or 127
//! if it was not found, 126 if it cannot be run or watched, 64 on wrong usage. With `-p`: 0, or 3 if the process cannot
//! be attached to. Must hold: the program is started only if all options can be followed. Reports go to stderr or to
//! the files of `--outfile`, messages to stderr, and nothing to stdout but the answers to `--help` and `--version`.
mod attach;
mod flame;
mod frame_names;
mod live_report;
mod options;
mod output;
mod report_thread;
mod signals;
mod tree;
mod units;
mod watch;
mod watched_process;

use crate::patching_thread::{self, Patching};
use crate::program::{self, NOT_FOUND, NOT_POSSIBLE, Refusal, Way};
use crate::record::{cannot, code, refusal, wait_for};
use crate::recorder_limits::{NotPossible, RecorderLimits};
use crate::search_options::SearchOptions;
use crate::{launch, library, patched, say};
use capture::core::WRITER_MEMORY;
use channel::Geometry;
use collector::{Hub, Inherited, LivePlan, Recording, Setup, SetupError, spawn};
use options::Options;
pub use options::command;
#[cfg(fuzzing)]
pub use options::command_of;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use tree::Tree;

/// Wrong usage, as in LG's heaptrace.
const USAGE: u8 = 64;
/// The process of `-p` cannot be attached to.
const NO_ATTACH: u8 = 3;

pub fn run(words: Vec<OsString>, inherited: &Inherited) -> ExitCode {
    let options = match options::parse(words) {
        Ok(options) => options,
        Err(options::Stop::Answer(text)) => {
            return crate::print_out(text.as_bytes()).unwrap_or(ExitCode::FAILURE);
        }
        Err(options::Stop::Wrong(sentence)) => return refuse(&Refusal { code: USAGE, sentence }),
    };
    if let Some(pid) = options.pid {
        return match attach::run(options, pid) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let code = if error.is::<NotPossible>() { USAGE } else { NO_ATTACH };
                refuse(&Refusal { code, sentence: format!("{error:#}") })
            }
        };
    }
    try_run(options, inherited).unwrap_or_else(|refusal| refuse(&refusal))
}

fn refuse(refusal: &Refusal) -> ExitCode {
    say(format_args!("heaptrace: {}", refusal.sentence));
    ExitCode::from(refusal.code)
}

fn try_run(options: Options, inherited: &Inherited) -> Result<ExitCode, Refusal> {
    let word = options.command.first().ok_or_else(|| cannot("no program was given"))?;
    let program = program::find(word)?;
    let signals = signals::Signals::take().map_err(cannot)?;
    let limits =
        RecorderLimits::prepare(&options.recorder).map_err(|refused| Refusal { code: USAGE, sentence: refused.0 })?;
    let library = library::place(Path::new(".")).map_err(SetupError::Library);
    let exe = program.image.canonicalize().unwrap_or_else(|_| program.image.clone());
    let plan = LivePlan { exe: exe.to_string_lossy().into_owned(), ..plan(&options, inherited) };
    let hub = Hub::create(LivePlan { exe: String::new(), ..plan.clone() });
    // A program that is patched gets no signal handlers, and does not wait at its exit.
    let is_preloaded = program.way == Way::Preload;
    let plan = LivePlan { setup: Setup { watched: is_preloaded, ..plan.setup }, ..plan };
    let started = library.and_then(|library| Ok((library, hub?, Recording::live(plan)?)));
    let (library, mut hub, recording) = match started {
        Ok(all) => all,
        // The same limit holds for the program, which may never reach it. So the program runs without us.
        Err(error) if error.is_out_of_room() && inherited.limits_file_size() => {
            say(format_args!("heaptrace: not watched, the limit on file sizes (ulimit -f) leaves no room: {error}"));
            return unwatched(&options, &program.path, inherited, &signals);
        }
        Err(error) => return Err(cannot(error)),
    };
    // The processes that the program starts are not patched: they inherit the patches, or execute another program.
    let way = patching_thread::Way::Launched(library.path.clone());
    let _patching = Patching::start(recording.mapping(), way, symbols::Search::default(), false);
    hub.offer(1);
    let variable = recording.variable();
    let launch = if is_preloaded {
        launch::followed(&program.path, &options.command, &library.path, &variable, &hub.variable())
    } else {
        launch::patched(&program.path, &options.command)
    };
    let launch = launch.map_err(|error| refusal(&program.path, &error))?;
    let before_start = |pid| signals.pass_on_to(pid);
    let child = if is_preloaded {
        spawn(&launch, Some(recording.mapping()), inherited, before_start)
            .map_err(|error| refusal(&program.path, &error))?
    } else {
        let search = &SearchOptions::default();
        let program = &program.path;
        let (library, hub) = (library.path.as_path(), Some(hub.variable()));
        let start = patched::Start { tool: "heaptrace", program, library, hub, inherited, search, quiet: false };
        start.run(&launch, &recording, before_start)?
    };
    limits.apply("heaptrace");
    let end = Tree::new(options, hub, signals).watch(child, recording);
    Ok(code(end.exit))
}

fn plan(options: &Options, inherited: &Inherited) -> LivePlan {
    let geometry =
        if inherited.limits_address_space() { Geometry::tight(WRITER_MEMORY) } else { Geometry::roomy(WRITER_MEMORY) };
    LivePlan {
        setup: Setup {
            geometry,
            clock: collector::kernel_clock(),
            on_full: channel::OnFull::Wait,
            max_stall_ms: 30_000,
            lsan_symbol: 0,
            watched: true,
            reads_every_clock: false,
            records_maps: false,
            sampling: Default::default(),
        },
        folder: std::env::temp_dir(),
        exe: String::new(),
        depth: options.depth,
    }
}

fn unwatched(
    options: &Options,
    program: &Path,
    inherited: &Inherited,
    signals: &signals::Signals,
) -> Result<ExitCode, Refusal> {
    let child = launch::plain(program, &options.command)
        .and_then(|launch| spawn(&launch, None, inherited, |pid| signals.pass_on_to(pid)))
        .map_err(cannot)?;
    Ok(code(wait_for(child).exit))
}

const _: () = assert!(NOT_FOUND == 127 && NOT_POSSIBLE == 126);
