//! `heaptrack symbolize FILE`: adds names to a trace that has none, or not all of them.
//!
//! Receives: a trace that is no longer being written, and the places of debug files. Returns: the same file with
//! Symbols blocks after its end, or for a raw file of KDE's a new trace (`kde_copy.rs`). Must hold: whatever happens,
//! the old content of the file stays readable. If there is a time limit, it is kept.
use crate::search_options::SearchOptions;
use crate::trouble::{counted, reason, unreadable};
use clap::Parser;
use format::{Appender, Exit, RawBlock, Reader, Session, SymbolState, Symbols};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use symbols::{Budget, Finder, Jit, ModuleWork, Progress, SKIPPED, Search, Target, Wanted};

const THREADS: usize = 2;
const DRAW_EVERY: Duration = Duration::from_millis(100);

const HELP: &str = "\
Examples:
  heaptrack symbolize server.htz                            looks in the usual places
  heaptrack symbolize --debug-path ./debug server.htz       also in a folder with debug files
  heaptrack symbolize --sysroot /mnt/board server.htz       for a program that ran on another system
  DEBUGINFOD_URLS=https://debuginfod.debian.net heaptrack symbolize --debuginfod server.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read or written.";

/// Adds function names, files and lines to a trace that has none, or not all of them.
#[derive(Debug, Parser)]
#[command(name = "heaptrack symbolize", bin_name = "heaptrack symbolize", version, after_help = HELP)]
pub struct Symbolize {
    #[command(flatten)]
    pub search: SearchOptions,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The trace. It must not be one that is still being recorded.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// What the caller knows about the program besides the file, and the limits that it sets.
#[derive(Default)]
pub struct Help {
    pub search: Search,
    /// The files of the process, if they were opened while it ran. They may have been deleted since.
    pub target: Option<Arc<Target>>,
    pub jit: Option<Jit>,
    pub time: Option<Duration>,
    /// The most bytes of debug information for a file.
    pub memory: Option<u64>,
    /// The most bytes that the trace may have with its names.
    pub max_size: Option<u64>,
    pub quiet: bool,
}

/// The result of `add_names`.
#[derive(Debug, Default)]
pub struct Named {
    pub frames: usize,
    /// Frames that got no name.
    pub unknown: usize,
    /// Every frame was looked up, and all names fit into the trace.
    pub all: bool,
    /// Sentences about modules whose file is not the one that ran, or cannot be read.
    pub notes: Vec<String>,
}

pub fn run(options: &Symbolize) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    if let Some(trouble) = options.search.trouble(false) {
        anyhow::bail!(trouble);
    }
    let (path, quiet, search) = (options.file.as_path(), options.quiet, options.search.search_everywhere());
    // Nothing can be appended to KDE's files.
    let own = crate::kde_copy::as_own(path, &search)?;
    let path = own.as_deref().unwrap_or(path);
    let named = add_names(path, Help { search, quiet, ..Help::default() })?;
    if !quiet {
        let (frames, unknown) = (named.frames, named.unknown);
        if own.is_some() {
            crate::say(format_args!("heaptrack: {}", path.display()));
        }
        crate::say(format_args!(
            "heaptrack: found the names of {} of {} in {:.1} s",
            frames - unknown,
            counted(frames as u64, "frame", "frames"),
            started.elapsed().as_secs_f64()
        ));
    }
    for note in &named.notes {
        crate::say(format_args!("heaptrack: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn cannot_add(path: &Path, error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow::Error::msg(format!("cannot add names to {}: {}", path.display(), reason(error)))
}

/// Resolves the frames that have no name yet, and appends the names.
pub fn add_names(path: &Path, help: Help) -> anyhow::Result<Named> {
    let file = File::options().read(true).write(true).open(path).map_err(|error| cannot_add(path, &error))?;
    // The recorder holds a lock while it writes.
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    if locked == Err(rustix::io::Errno::WOULDBLOCK) {
        return Err(cannot_add(path, &"it is still being recorded, or another `heaptrack symbolize` is at work"));
    }
    let mut wanted = wanted_names(path, &help)?;
    if let Some(target) = &help.target {
        for module in wanted.new_modules() {
            target.hold(module.instance, module.start, Path::new(&module.path));
        }
    }
    let works = wanted.take();
    if works.iter().all(|work| work.frames.is_empty()) {
        return Ok(Named { all: true, ..Named::default() });
    }
    let session = wanted.session.unwrap_or_default();
    // The recorder wrote the end of the trace after the process's end, unless it had detached before.
    let is_over = wanted.exit.is_some_and(|exit| exit != Exit::Detached);
    let ended = file.metadata().and_then(|data| data.modified()).ok().filter(|_| is_over);
    resolve(works, session, ended, file, help).map_err(|error| cannot_add(path, &error))
}

/// Reads the trace and returns the frames that have no name.
fn wanted_names(path: &Path, help: &Help) -> anyhow::Result<Wanted> {
    let has_more_places = !help.search.debug_paths.is_empty() || help.search.debuginfod.is_some();
    let mut wanted = if has_more_places { Wanted::hopeful() } else { Wanted::new() };
    let read = |error: format::Error| unreadable(path, &error);
    let mut reader = Reader::open(path).map_err(read)?;
    reader.skip(SKIPPED);
    while let Some(block) = reader.next_block().map_err(read)? {
        wanted.add(block);
    }
    Ok(wanted)
}

/// Looks up names and appends them to the file.
/// `ended` is a time after the process's end, if the process has not outlived the recording.
fn resolve(
    works: Vec<ModuleWork>,
    session: Session,
    ended: Option<SystemTime>,
    file: File,
    help: Help,
) -> Result<Named, format::Error> {
    let Help { mut search, target, jit, time, memory, max_size, quiet } = help;
    (search.started_unix_ns, search.ended) = (session.started_unix_ns, ended);
    let jit = jit.or_else(|| Some(Jit::after(session.pid, ended, &Finder { search: &search, target: None })));
    let servers = search.debuginfod.clone();
    let mut appender = Appender::new(file)?;
    let (mut tally, mut bar) = (Tally::default(), Bar::new(quiet));
    let mut failed: Option<io::Error> = None;
    let mut is_full = false;
    let budget = Budget { threads: THREADS, time, memory };
    let all = symbols::resolve_all(works, search, target, jit, budget, |piece, progress| {
        bar.draw(progress);
        let Some(piece) = piece else { return };
        let block: RawBlock = piece.to_block();
        is_full = is_full || max_size.is_some_and(|most| appender.len_with(&block) > most);
        if is_full {
            return;
        }
        tally.count(&piece);
        if failed.is_none() {
            failed = appender.write(&block).err();
        }
    });
    bar.end();
    if let Some(error) = failed {
        return Err(error.into());
    }
    appender.finish()?;
    let mut named = tally.named(all && !is_full);
    named.notes.extend(servers.iter().flat_map(|servers| servers.troubles()));
    Ok(named)
}

#[derive(Default)]
struct Tally {
    frames: usize,
    unknown: usize,
    notes: BTreeMap<String, ()>,
}

impl Tally {
    fn count(&mut self, piece: &Symbols) {
        for module in &piece.modules {
            self.frames += module.frames.len();
            self.unknown += module.frames.iter().filter(|(_, places)| places.is_empty()).count();
            if matches!(module.state, SymbolState::Mismatch | SymbolState::Unreadable) {
                self.notes.insert(module.note.clone(), ());
            }
        }
    }

    fn named(self, all: bool) -> Named {
        Named { frames: self.frames, unknown: self.unknown, all, notes: self.notes.into_keys().collect() }
    }
}

/// A progress bar on the terminal, which is erased at the end.
struct Bar {
    shown: bool,
    next: Instant,
    drawn: bool,
}

impl Bar {
    fn new(quiet: bool) -> Self {
        // Short work shows no bar.
        Bar { shown: !quiet && io::stderr().is_terminal(), next: Instant::now() + 3 * DRAW_EVERY, drawn: false }
    }

    fn draw(&mut self, progress: Progress) {
        if !self.shown || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + DRAW_EVERY;
        self.drawn = true;
        const WIDTH: usize = 30;
        let Progress { done, total, left_modules, download } = progress;
        if let Some(download) = download {
            let of = download.total.map_or_else(String::new, |total| format!(" of {}", megabytes(total)));
            let _ = write!(io::stderr(), "\r\x1b[Kdebug information: {}{of} fetched", megabytes(download.bytes));
            return;
        }
        let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH);
        let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
        let _ = write!(io::stderr(), "\r\x1b[Knames [{bar}] {done} of {total}, {left_modules} files left");
    }

    fn end(&self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
