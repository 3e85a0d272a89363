//! `heaptrack tui`: a trace in the terminal, also while it is recorded.
//!
//! Receives: a file, or what is to be recorded. Returns: 0 when the user quits, 128 + n if signal n ends us, and the exit
//! code of a recording that has ended. Must hold: what cannot be shown is refused with one sentence and exit code 2,
//! before the screen is taken over or after it was given back.
mod recorder;

use crate::analyze::named_text;
use crate::check::all_rules;
use crate::trouble::unreadable;
use analysis::{Source, Suppressions};
use clap::Parser;
use format::Domain;
use recorder::Recorder;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tui::{Ending, Options, Recording, Settings};

const HELP: &str = "\
Examples:
  heaptrack tui heaptrack.ls.42.htz         look at it in this terminal; ? shows the keys
  heaptrack tui new.htz --compare old.htz   what changed
  heaptrack tui -p 4711                     record a running program and look at it; quitting detaches
  heaptrack --tui ./server --port 80        start a program, record it and look at it
  NO_COLOR=1 heaptrack tui x.htz            without colours

A trace that is still being recorded is followed.

Exit code: 0; 2 wrong usage, a file that cannot be read, or no terminal; 128+n ended by signal n; with -p, that of
`heaptrack attach`.";

/// Shows a trace in the terminal, also over ssh: timeline, trees, flame graph, leaks and more.
#[derive(Debug, Parser)]
#[command(name = "heaptrack tui", bin_name = "heaptrack tui", version, after_help = HELP)]
pub struct Tui {
    /// Another trace to compare with, or @ and a time of this one.
    #[arg(short = 'd', long, visible_alias = "diff", value_name = "BASE", value_hint = clap::ValueHint::FilePath)]
    pub compare: Option<String>,
    /// Whose blocks: malloc's, those that the program reported itself (custom), or its own mappings (mapped).
    #[arg(long, value_name = "DOMAIN", value_parser = ["malloc", "custom", "mapped"], default_value = "malloc")]
    pub domain: String,
    #[command(flatten)]
    pub looks: TuiLooks,
    /// Record this process, which is already running, and show its trace. Quitting detaches.
    #[arg(short, long, value_name = "PID", conflicts_with = "file")]
    pub pid: Option<u32>,
    /// The trace.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath, required_unless_present = "pid")]
    pub file: Option<PathBuf>,
}

/// A recording that is shown while it is made: `heaptrack --tui`.
#[derive(Debug)]
pub struct RecordedTui {
    /// All words after `heaptrack`, without `--tui`.
    pub words: Vec<OsString>,
    /// The program; `None` if the recorder attaches to one.
    pub program: Option<String>,
}

/// The options that decide how a trace is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TuiLooks {
    /// Known leaks, in LSan's format: lines of leak:NAME.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub suppressions: Vec<PathBuf>,
    /// Do not use the suppressions that are built into the program.
    #[arg(long)]
    pub disable_embedded_suppressions: bool,
    /// Do not use our own list of known leaks.
    #[arg(long)]
    pub disable_builtin_suppressions: bool,
    /// Rules that tell which code is yours, as for `heaptrack print`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
    /// Leave the mouse to the terminal, so that text can be selected with it.
    #[arg(long)]
    pub no_mouse: bool,
}

pub fn run(options: &Tui) -> anyhow::Result<ExitCode> {
    refuse_terminal()?;
    let base = options.compare.as_deref().filter(|base| !base.starts_with('@')).map(PathBuf::from);
    for file in options.file.iter().chain(&base) {
        refuse_profile(file)?;
        heaptrack_trace::open_without_names(file).map_err(|error| unreadable(file, &error))?;
    }
    let domain = Domain::ALL.into_iter().find(|domain| domain.name() == options.domain).unwrap_or_default();
    let settings = Settings { path: options.file.clone().unwrap_or_default(), domain, ..options.looks.settings()? };
    let has_mouse = !options.looks.no_mouse;
    let shown = Options { settings, compare: options.compare.clone(), has_mouse };
    match options.pid {
        Some(pid) => record(&["-p".into(), pid.to_string().into()], None, shown),
        None => Ok(code(show(shown, None)?)),
    }
}

/// Records and shows at the same time.
pub fn run_recorded(recorded: RecordedTui) -> anyhow::Result<ExitCode> {
    refuse_terminal()?;
    let looks = TuiLooks::default();
    let shown = Options { settings: looks.settings()?, compare: None, has_mouse: true };
    record(&recorded.words, recorded.program, shown)
}

fn record(words: &[OsString], program: Option<String>, mut shown: Options) -> anyhow::Result<ExitCode> {
    let mut recorder = Recorder::start(words, program)?;
    let Some(trace) = recorder.trace() else { return Ok(ExitCode::from(recorder.refuse())) };
    shown.settings.path = trace;
    let ending = show(shown, Some(&mut recorder));
    let code = recorder.finish(ending.as_ref().ok().copied());
    match ending? {
        Ending::Quit => Ok(ExitCode::from(code)),
        ending => Ok(self::code(ending)),
    }
}

/// Fails for a heap profile of another tool, because most views need events.
fn refuse_profile(file: &Path) -> anyhow::Result<()> {
    // A file that cannot be read gets its error later.
    match heaptrack_trace::heap_profile_kind(file).ok().flatten() {
        None => Ok(()),
        Some(kind) => {
            let (kind, file) = (kind.name(), file.display());
            anyhow::bail!("{file} is {kind}, and this display needs events: `heaptrack print {file}` shows it")
        }
    }
}

/// Fails if the terminal cannot show anything.
fn refuse_terminal() -> anyhow::Result<()> {
    match tui::refusal() {
        Some(sentence) => anyhow::bail!(sentence),
        None => Ok(()),
    }
}

/// The exit code for the way in which the screen was closed.
fn code(ending: Ending) -> ExitCode {
    match ending {
        Ending::Quit => ExitCode::SUCCESS,
        Ending::Signal(signal) => ExitCode::from(128u8.wrapping_add(signal as u8)),
    }
}

/// Shows the trace until the user quits.
fn show(options: Options, recording: Option<&mut dyn Recording>) -> anyhow::Result<Ending> {
    let shown = std::panic::AssertUnwindSafe(|| tui::run(options, recording));
    match std::panic::catch_unwind(shown) {
        Ok(Ok(ending)) => Ok(ending),
        Ok(Err(sentence)) => anyhow::bail!(sentence),
        Err(_) => anyhow::bail!("an internal error ended the display; the trace is not changed"),
    }
}

impl TuiLooks {
    /// Reads the files that the options name, and refuses invalid ones.
    fn settings(&self) -> anyhow::Result<Settings> {
        let rules = all_rules(self.rules.as_deref())?;
        let mut suppressions = Vec::new();
        for file in &self.suppressions {
            let file = named_text(file)?;
            if let Some(bad) = Suppressions::new().add(&file.text, Source::File).first() {
                anyhow::bail!("{}, {bad}", file.name);
            }
            suppressions.push(file.text);
        }
        Ok(Settings {
            rules: rules.map(|rules| rules.text),
            suppressions,
            has_builtin_suppressions: !self.disable_builtin_suppressions,
            has_embedded_suppressions: !self.disable_embedded_suppressions,
            ..Settings::default()
        })
    }
}
