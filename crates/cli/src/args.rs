//! The command line.
//!
//! Given: the words as the shell split them. Gives back: what to do. What must hold: the first word that is no option
//! is the program and everything behind it is the program's, verbatim; names of subcommands count only as the first
//! word, so `heaptrack ./print` and `heaptrack -- print` run programs.
use crate::analyze::Analyze;
use crate::diff;
use crate::known_leaks::KnownLeaks;
use crate::print::{Print, Wrong};
use crate::report::Report;
use crate::support;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub enum Invocation {
    Record(Record),
    Attach(Attach),
    Detach(Detach),
    Print(Box<Print>),
    Symbolize(Symbolize),
    /// Its own words, the name first.
    Heaptrace(Vec<OsString>),
    Lib(Lib),
    Export(Export),
    Trim(Trim),
    Merge(Merge),
    Analyze(Analyze),
    Report(Report),
    Completions(clap_complete::Shell),
    Man,
}

const SUBCOMMANDS: &str = "\
Subcommands (only as the first word):
  record [OPTIONS] PROGRAM   the same as without
  attach [OPTIONS] PID       record a program that runs already; the same as -p PID
  detach PID                 end that, also when its heaptrack is gone
  print [OPTIONS] FILE       text report of a trace; --json for machines
  diff [OPTIONS] BASE FILE   what changed between two traces
  heaptrace [OPTIONS] PROGRAM  what lives, while it runs and at its end; no file
  analyze [OPTIONS] FILE...  the page: timeline, trees, flame graph, leaks (also -a)
  report [OPTIONS] FILE      the page as one file to share
  symbolize [OPTIONS] FILE   adds function names, files and lines to a trace
  lib --install FOLDER       the library and header that custom allocators build against
  export --to FORMAT FILE    a trace in another tool's format
  trim FILE -o OUT           a shorter trace: what happened within a time
  merge FILES -o OUT         one trace out of those of several processes
  completions SHELL          completion script for bash, zsh, fish ...
  man                        manual page, as roff

Examples:
  heaptrack ls -l                      record to heaptrack.ls.<pid>.htz
  heaptrack -o /tmp/%h.%p -- ./server  name with host and pid
  heaptrack -p $(pidof redis-server)   record a running program until Ctrl-C
  heaptrack print heaptrack.ls.42.htz  read it
  heaptrack -a heaptrack.ls.42.htz     look at it in the browser

Exit code: the program's own (128+n for signal n); 127 not found; 126 cannot be run or recorded; 2 wrong usage;
3 cannot be attached to; attached and detached again: 0; `export`, `trim` and `merge` interrupted by Ctrl-C: 130.";

/// Records every allocation of a program, with its stack, and says where the memory went.
#[derive(Debug, Parser)]
#[command(name = "heaptrack", version, after_help = SUBCOMMANDS, disable_version_flag = true)]
#[command(
    override_usage = "heaptrack [OPTIONS] PROGRAM [ARGS...]\n       heaptrack [OPTIONS] -p PID\n       heaptrack print [OPTIONS] FILE"
)]
pub struct Record {
    /// Where to write the trace; %h = host, %p = pid of the program; .htz is added.
    #[arg(short, long, value_name = "NAME")]
    pub output: Option<PathBuf>,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Do not look up function names while recording.
    #[arg(short = 'r', long = "no-symbols", visible_alias = "raw")]
    pub no_symbols: bool,
    /// Only record (we never open a window at the end; for old scripts).
    #[arg(long)]
    pub record_only: bool,
    /// Open the page while the program runs; it stays until Ctrl-C.
    #[arg(long, conflicts_with = "debug")]
    pub live: bool,
    /// Start the program under gdb.
    #[arg(short, long)]
    pub debug: bool,
    /// When events come faster than they can be written: slow the program down, or lose events and count them.
    #[arg(long, value_enum, default_value_t = OnFull::Wait, value_name = "POLICY")]
    pub on_full: OnFull,
    /// How long a thread waits for a recorder that does nothing (stopped, frozen) before its events are dropped and counted.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = milliseconds)]
    pub max_stall: u32,
    /// Keep the trace below this size, as 500M or 2G: the oldest events are folded into their sums and what they left.
    #[arg(long, value_name = "SIZE", value_parser = trace_size)]
    pub max_size: Option<u64>,
    #[command(flatten)]
    pub search: SearchOptions,
    /// Print the version.
    #[arg(short = 'v', visible_short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// Attach to a process that runs already.
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["command", "debug"])]
    pub pid: Option<u32>,
    /// With -p: detach after so long, as 30s, 5m, 1h; else at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "command")]
    pub duration: Option<Duration>,
    /// The program and its arguments.
    #[arg(required_unless_present = "pid", value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments, num_args = 1.., trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Where files with names may be.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SearchOptions {
    /// A folder with debug files; may be given several times.
    #[arg(long = "debug-path", value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    debug_paths: Vec<PathBuf>,
    /// A copy of the file system in which the program ran.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    sysroot: Option<PathBuf>,
    /// Fetch debug files that are not here from the servers in DEBUGINFOD_URLS, after the program's end.
    #[arg(long)]
    debuginfod: bool,
}

impl SearchOptions {
    /// What is wrong with them. `no_symbols`: no names are looked up.
    pub fn trouble(&self, no_symbols: bool) -> Option<String> {
        let folders = self.debug_paths.iter().map(|path| ("debug-path", path));
        let folders: Vec<(&str, &PathBuf)> = folders.chain(self.sysroot.iter().map(|path| ("sysroot", path))).collect();
        if let Some((option, path)) = folders.iter().find(|(_, path)| !path.is_dir()) {
            return Some(format!("--{option} {}: there is no such folder", path.display()));
        }
        if no_symbols && (self.debuginfod || !folders.is_empty()) {
            let option = folders.first().map_or("debuginfod", |(option, _)| option);
            return Some(format!("--{option} changes nothing with --no-symbols: no names are looked up"));
        }
        let has_servers = std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty());
        (self.debuginfod && !has_servers).then(|| {
            "--debuginfod needs the address of a server in the environment variable DEBUGINFOD_URLS".to_owned()
        })
    }

    /// As `search`, and with servers. Not while a program runs: a network may take its time.
    pub fn search_everywhere(&self) -> symbols::Search {
        let servers = self.debuginfod.then(symbols::Debuginfod::from_environment).flatten();
        symbols::Search { debuginfod: servers.map(Arc::new), ..self.search() }
    }

    pub const fn asks_servers(&self) -> bool {
        self.debuginfod
    }

    pub fn search(&self) -> symbols::Search {
        let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        symbols::Search {
            debug_paths: self.debug_paths.iter().map(whole).collect(),
            sysroot: self.sysroot.as_ref().map(whole),
            ..symbols::Search::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    Wait,
    Drop,
}

/// A time in milliseconds.
fn milliseconds(text: &str) -> Result<u32, String> {
    u32::try_from(duration(text)?.as_millis()).map_err(|_| "out of range".to_owned())
}

/// A number of bytes with its unit, decimal as in what we print, or binary (`MiB`).
fn trace_size(text: &str) -> Result<u64, String> {
    let wrong = || "not a valid size (examples: 500M, 2G, 1.5GiB)".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1024f64.powi(2),
        "gi" | "gib" => 1024f64.powi(3),
        "ti" | "tib" => 1024f64.powi(4),
        _ => return Err(wrong()),
    };
    let bytes = digits.trim_end().parse::<f64>().map_err(|_| wrong())? * unit;
    match bytes {
        bytes if bytes < collector::Bound::LEAST as f64 => Err("must be at least 1M".to_owned()),
        bytes if bytes < u64::MAX as f64 => Ok(bytes as u64),
        _ => Err(wrong()),
    }
}

/// A time with its unit; seconds without.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = found.unwrap_or((text, 1.0));
    let number: f64 = number.parse().map_err(|_| "not a valid duration (examples: 30s, 5m, 1h)".to_owned())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| "out of range".to_owned())
}

/// Records a program that runs already, until it ends, Ctrl-C, or the given time is over.
#[derive(Debug, Parser)]
#[command(name = "heaptrack attach", bin_name = "heaptrack attach", version, after_help = ATTACH_EXAMPLES)]
pub struct Attach {
    /// Detach after so long, as 30s, 5m, 1h; else at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Where to write the trace; %h = host, %p = pid of the program; .htz is added.
    #[arg(short, long, value_name = "NAME")]
    pub output: Option<PathBuf>,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Do not look up function names while recording.
    #[arg(short = 'r', long = "no-symbols", visible_alias = "raw")]
    pub no_symbols: bool,
    /// Open the page while the program runs; it stays until Ctrl-C.
    #[arg(long)]
    pub live: bool,
    /// When events come faster than they can be written: slow the program down, or lose events and count them.
    #[arg(long, value_enum, default_value_t = OnFull::Wait, value_name = "POLICY")]
    pub on_full: OnFull,
    /// How long a thread waits for a recorder that does nothing (stopped, frozen) before its events are dropped and counted.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = milliseconds)]
    pub max_stall: u32,
    /// Keep the trace below this size, as 500M or 2G: the oldest events are folded into their sums and what they left.
    #[arg(long, value_name = "SIZE", value_parser = trace_size)]
    pub max_size: Option<u64>,
    #[command(flatten)]
    pub search: SearchOptions,
    /// The process.
    #[arg(value_name = "PID")]
    pub pid: u32,
}

const ATTACH_EXAMPLES: &str = "\
Examples:
  heaptrack attach 4711                      until Ctrl-C, to heaptrack.<program>.4711.htz
  heaptrack attach --duration 30s -o x 4711  for half a minute, to x.htz
Exit code: 0; 3 it cannot be attached to, and why; 1 the trace was cut, for example by a full disk; 2 wrong usage.";

impl Attach {
    /// `heaptrack -p PID`, if that is meant.
    fn of(record: &Record) -> Option<Attach> {
        Some(Attach {
            duration: record.duration,
            output: record.output.clone(),
            quiet: record.quiet,
            no_symbols: record.no_symbols,
            live: record.live,
            on_full: record.on_full,
            max_stall: record.max_stall,
            max_size: record.max_size,
            search: record.search.clone(),
            pid: record.pid?,
        })
    }
}

/// Ends the recording of a program that was attached to, and puts everything back as it was.
#[derive(Debug, Parser)]
#[command(name = "heaptrack detach", bin_name = "heaptrack detach", version)]
#[command(after_help = "Example:\n  heaptrack detach 4711   also after the heaptrack that recorded it was killed")]
pub struct Detach {
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// The process.
    #[arg(value_name = "PID")]
    pub pid: u32,
}

/// Adds function names, files and lines to a trace that was recorded without, or that has not all of them.
#[derive(Debug, Parser)]
#[command(name = "heaptrack symbolize", bin_name = "heaptrack symbolize", version)]
pub struct Symbolize {
    #[command(flatten)]
    pub search: SearchOptions,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// The trace; nobody may be recording to it any more.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// The library that runs inside programs, and the header for custom allocators, as files.
#[derive(Debug, Parser)]
#[command(
    name = "heaptrack lib",
    bin_name = "heaptrack lib",
    version,
    after_help = "\
Examples:
  heaptrack lib --install ./ht            ./ht/heaptrack_api.h, ./ht/libheaptrack_preload.so, ./ht/libheaptrack_inject.so
  cc -I$(pwd)/ht pool.c                   nothing to link: the header alone will do
  heaptrack lib --path                    a copy that stays, for LD_LIBRARY_PATH and the like"
)]
pub struct Lib {
    /// Write them here; the folder is made if need be.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath, conflicts_with = "path", required_unless_present = "path")]
    pub install: Option<PathBuf>,
    /// Print where the library is that recordings of this user take.
    #[arg(long)]
    pub path: bool,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  heaptrack export --to heaptrack x.htz -o x.zst        for KDE's heaptrack_gui and heaptrack_print
  heaptrack export --to folded --cost leaked x.htz      for flame graph tools, on stdout
  heaptrack export --to svg x.htz -o peak.svg           a flame graph
  heaptrack export --to massif x.htz -o massif.out      for ms_print and massif-visualizer";

/// A trace, of ours or of KDE's, in another tool's format.
#[derive(Debug, Parser)]
#[command(name = "heaptrack export", bin_name = "heaptrack export", version)]
#[command(after_help = format!("{}\n{EXPORT_EXAMPLES}", support::export_help()))]
pub struct Export {
    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Format,
    /// Where to; `-` is stdout. A name that ends in .gz or .zst is packed.
    #[arg(short, long, value_name = "OUT", default_value = "-", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// What folded stacks and flame graphs count.
    #[arg(long, visible_alias = "flamegraph-cost-type", value_enum, default_value_t = Cost::Peak, value_name = "COST")]
    pub cost: Cost,
    /// Massif: branches below so many per cent are summed up.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub massif_threshold: f64,
    /// Massif: every which snapshot has a tree; 0 = only the highest.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub massif_detailed_freq: usize,
    /// The blocks of custom allocators instead of malloc's.
    #[arg(long)]
    pub custom: bool,
    #[command(flatten)]
    pub known: KnownLeaks,
    /// The trace.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

impl Export {
    /// `Err` on wrong usage, `--help` and `--version`.
    pub fn from_words(words: Vec<OsString>) -> Result<Export, Wrong> {
        let mut command = Export::command();
        let matches = command.try_get_matches_from_mut(words).map_err(Wrong::Words)?;
        let export = Export::from_arg_matches(&matches).map_err(Wrong::Words)?;
        match support::export_trouble(&support::given(&command, &matches), export.to) {
            Some(sentence) => Err(Wrong::Option(sentence)),
            None => Ok(export),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// KDE's own.
    Heaptrack,
    /// A line per stack, for flame graph tools.
    Folded,
    /// A flame graph.
    Svg,
    /// Valgrind's massif.
    Massif,
}

impl Format {
    /// As `--to` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Heaptrack => "heaptrack",
            Format::Folded => "folded",
            Format::Svg => "svg",
            Format::Massif => "massif",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cost {
    /// Bytes at the highest moment.
    Peak,
    /// Bytes that were not freed.
    Leaked,
    /// Calls.
    Allocations,
    /// Blocks that were freed again at once.
    Temporary,
    /// Bytes of all calls.
    Allocated,
}

/// Cuts a trace to a time: what happened after --from, up to and with --to. Blocks that were live at --from stay, with
/// their own stack, thread and time; nothing else of the time before does.
#[derive(Debug, Parser)]
#[command(name = "heaptrack trim", bin_name = "heaptrack trim", version)]
#[command(after_help = "\
Times: 1.5s, 200ms, 2min, nanoseconds, 50% of the runtime, start, peak, end.

Example:
  heaptrack trim server.htz --from 2min --to 3min -o minute.htz")]
pub struct Trim {
    /// Since when.
    #[arg(long, value_name = "TIME", default_value = "start")]
    pub from: String,
    /// Until when.
    #[arg(long, value_name = "TIME", default_value = "end")]
    pub to: String,
    /// The new trace; .htz is added.
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// The trace.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Joins the traces of several processes into one, by the time of day.
#[derive(Debug, Parser)]
#[command(name = "heaptrack merge", bin_name = "heaptrack merge", version)]
#[command(after_help = "\
Example:
  heaptrack merge heaptrack.worker.*.htz -o workers.htz")]
pub struct Merge {
    /// The new trace; .htz is added.
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// The traces.
    #[arg(value_name = "FILES", required = true, num_args = 1.., value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Parser)]
#[command(name = "heaptrack completions", bin_name = "heaptrack completions")]
struct Completions {
    shell: clap_complete::Shell,
}

/// The whole command, for the manual page and for completion.
pub fn command() -> clap::Command {
    Record::command()
}

/// Ends the process on wrong usage (2), `--help` and `--version` (0).
pub fn parse(words: impl Iterator<Item = OsString>) -> Invocation {
    try_parse(words).unwrap_or_else(|wrong| wrong.exit())
}

/// `Err` on wrong usage, `--help` and `--version`.
pub fn try_parse(words: impl Iterator<Item = OsString>) -> Result<Invocation, Wrong> {
    let mut words: Vec<OsString> = words.collect();
    let name = words.first().map(|word| Path::new(word).file_name().unwrap_or_default().to_owned());
    if name.as_deref() == Some(OsStr::new("heaptrack_print")) {
        return Ok(Invocation::Print(Box::new(Print::from_words(words)?)));
    }
    if name.as_deref() == Some(OsStr::new("heaptrace")) {
        return Ok(Invocation::Heaptrace(words));
    }
    if name.as_deref() == Some(OsStr::new("heaptrack_gui")) {
        return Ok(Invocation::Analyze(Analyze::try_parse_from(words)?));
    }
    match words.get(1).and_then(|word| word.to_str()) {
        Some("attach") => return Ok(Invocation::Attach(recording(words.split_off(1))?)),
        Some("detach") => return Ok(Invocation::Detach(Detach::try_parse_from(words.split_off(1))?)),
        Some("print") => return Ok(Invocation::Print(Box::new(Print::from_words(words.split_off(1))?))),
        Some("diff") => return Ok(Invocation::Print(Box::new(diff::Diff::from_words(words.split_off(1))?))),
        Some("heaptrace") => return Ok(Invocation::Heaptrace(words.split_off(1))),
        Some("analyze" | "-a" | "--analyze") => {
            return Ok(Invocation::Analyze(Analyze::try_parse_from(words.split_off(1))?));
        }
        Some("report") => return Ok(Invocation::Report(Report::try_parse_from(words.split_off(1))?)),
        Some("symbolize") => return Ok(Invocation::Symbolize(Symbolize::try_parse_from(words.split_off(1))?)),
        Some("lib") => return Ok(Invocation::Lib(Lib::try_parse_from(words.split_off(1))?)),
        Some("export") => return Ok(Invocation::Export(Export::from_words(words.split_off(1))?)),
        Some("trim") => return Ok(Invocation::Trim(Trim::try_parse_from(words.split_off(1))?)),
        Some("merge") => return Ok(Invocation::Merge(Merge::try_parse_from(words.split_off(1))?)),
        Some("completions") => {
            return Ok(Invocation::Completions(Completions::try_parse_from(words.split_off(1))?.shell));
        }
        Some("man") if words.len() == 2 => return Ok(Invocation::Man),
        Some("record") => drop(words.remove(1)),
        _ => (),
    }
    let record: Record = recording(fence_off(words, &Record::command()))?;
    Ok(match Attach::of(&record) {
        Some(attach) => Invocation::Attach(attach),
        None => Invocation::Record(record),
    })
}

/// The options of a recording. Refuses `--max-stall` where no thread ever waits.
fn recording<T: CommandFactory + FromArgMatches>(words: Vec<OsString>) -> Result<T, Wrong> {
    let mut command = T::command();
    let matches = command.try_get_matches_from_mut(words).map_err(Wrong::Words)?;
    let never_waits = matches.get_one::<OnFull>("on_full") == Some(&OnFull::Drop);
    if never_waits && support::given(&command, &matches).iter().any(|given| given == "max-stall") {
        let sentence = "--max-stall changes nothing with --on-full drop: then no thread ever waits";
        return Err(Wrong::Option(sentence.into()));
    }
    T::from_arg_matches(&matches).map_err(Wrong::Words)
}

/// Puts `--` before the program, so that no option behind it is taken for ours.
pub fn fence_off(mut words: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let bytes = word.as_encoded_bytes();
        if bytes == b"--" {
            return words;
        }
        if bytes.first() != Some(&b'-') || bytes.len() == 1 {
            words.insert(at, "--".into());
            return words;
        }
        at += if takes_next(command, bytes) { 2 } else { 1 };
    }
    words
}

/// True when an option's value is the next word: `-o`, `-qo`, `--output`, but not `-oNAME`, `--output=NAME`.
pub fn takes_next(command: &clap::Command, option: &[u8]) -> bool {
    let takes_value = |found: Option<&clap::Arg>| found.is_some_and(|arg| arg.get_action().takes_values());
    if let Some(long) = option.strip_prefix(b"--") {
        let named = |arg: &&clap::Arg| {
            let names = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
            names.into_iter().any(|name| name.as_bytes() == long)
        };
        return takes_value(command.get_arguments().find(named));
    }
    for (position, letter) in option.iter().enumerate().skip(1) {
        let named = |arg: &&clap::Arg| arg.get_short() == Some(*letter as char);
        if takes_value(command.get_arguments().find(named)) {
            return position + 1 == option.len();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &str) -> Result<Record, clap::Error> {
        Record::try_parse_from(fence_off(line.split(' ').map(OsString::from).collect(), &command()))
    }

    fn program(line: &str) -> Vec<String> {
        record(line).unwrap().command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn sizes_have_units() {
        let size = |text: &str| record(&format!("heaptrack --max-size {text} ls")).map(|record| record.max_size);
        assert_eq!(size("2G").unwrap(), Some(2_000_000_000));
        assert_eq!(size("1.5MiB").unwrap(), Some(1_572_864));
        assert_eq!(size("1000000").unwrap(), Some(1_000_000));
        for wrong in ["999999", "1", "M", "2Q", "x", "1e400G", "-3G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
        Print::command().debug_assert();
        diff::Diff::command().debug_assert();
        Symbolize::command().debug_assert();
        Export::command().debug_assert();
        Trim::command().debug_assert();
        Merge::command().debug_assert();
        Attach::command().debug_assert();
        Detach::command().debug_assert();
        Analyze::command().debug_assert();
        Report::command().debug_assert();
    }

    #[test]
    fn the_first_plain_word_ends_our_options() {
        assert_eq!(program("heaptrack ls -o x --help"), ["ls", "-o", "x", "--help"]);
        assert_eq!(program("heaptrack -q -o name ls -q -- -x"), ["ls", "-q", "--", "-x"]);
        assert_eq!(program("heaptrack -qo name ls -d"), ["ls", "-d"]);
        assert_eq!(program("heaptrack -oname --on-full drop ls"), ["ls"]);
        assert_eq!(program("heaptrack --max-stall=5 --output=a -- -ls --"), ["-ls", "--"]);
    }

    #[test]
    fn options_have_their_values() {
        let options = record("heaptrack --raw --max-stall 1.5 -o %h.%p ls").unwrap();
        assert!(options.no_symbols);
        assert_eq!((options.on_full, options.max_stall), (OnFull::Wait, 1500));
        assert_eq!(record("heaptrack --on-full=drop ls").unwrap().on_full, OnFull::Drop);
        assert_eq!(options.output.unwrap(), PathBuf::from("%h.%p"));
    }

    #[test]
    fn wrong_usage_is_an_error() {
        for line in
            ["heaptrack", "heaptrack -o", "heaptrack --no-such ls", "heaptrack -q", "heaptrack --max-stall=x ls"]
        {
            assert_eq!(record(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn options_of_a_recording_that_change_nothing_are_refused() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["attach --on-full drop --max-stall 1s 7", "attach --max-stall=1s --on-full=drop 7"] {
            let refused = recording::<Attach>(words(line));
            assert!(matches!(refused, Err(Wrong::Option(sentence)) if sentence.starts_with("--max-stall")), "{line}");
        }
        assert!(recording::<Attach>(words("attach --on-full drop 7")).is_ok());
        let search = |line: &str| recording::<Attach>(words(line)).unwrap().search;
        let trouble = search("attach --debug-path /no/such/folder 7").trouble(false);
        assert_eq!(trouble.as_deref(), Some("--debug-path /no/such/folder: there is no such folder"));
        let trouble = search("attach --sysroot /etc/passwd 7").trouble(false);
        assert_eq!(trouble.as_deref(), Some("--sysroot /etc/passwd: there is no such folder"));
        assert_eq!(search("attach --sysroot / 7").trouble(false), None);
        assert!(search("attach --sysroot / 7").trouble(true).is_some_and(|trouble| trouble.contains("--no-symbols")));
        assert!(record("heaptrack --live --debug ls").is_err());
    }

    #[test]
    fn attaching_is_an_option_or_a_subcommand() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from));
        let Invocation::Attach(options) = parse("heaptrack --duration 1.5m -qp 42 -o x") else { panic!("attach") };
        assert_eq!((options.pid, options.duration, options.quiet), (42, Some(Duration::from_secs(90)), true));
        let Invocation::Attach(options) = parse("heaptrack attach 42 --duration=30s") else { panic!("attach") };
        assert_eq!((options.pid, options.duration), (42, Some(Duration::from_secs(30))));
        assert!(matches!(parse("heaptrack detach 42"), Invocation::Detach(d) if d.pid == 42));
        for line in ["heaptrack -p x", "heaptrack -p 1 ls", "heaptrack --duration 1 ls", "heaptrack -p 1 --duration x"]
        {
            assert_eq!(record(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn subcommands_count_only_as_the_first_word() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from));
        assert!(matches!(parse("heaptrack print x.htz"), Invocation::Print(_)));
        assert!(matches!(parse("/usr/bin/heaptrack_print x.htz"), Invocation::Print(_)));
        assert!(matches!(parse("heaptrack -a x.htz y.htz"), Invocation::Analyze(a) if a.files.len() == 2));
        assert!(matches!(parse("heaptrack_gui -d base.htz x.htz"), Invocation::Analyze(a) if a.compare.is_some()));
        assert!(matches!(parse("heaptrack report x.htz -o y.html"), Invocation::Report(_)));
        assert!(
            matches!(parse("heaptrack --live ./analyze x"), Invocation::Record(r) if r.live && r.command.len() == 2)
        );
        assert!(matches!(parse("heaptrack -- print"), Invocation::Record(r) if r.command == ["print"]));
        assert!(matches!(parse("heaptrack -q print x"), Invocation::Record(r) if r.command == ["print", "x"]));
        assert!(matches!(parse("heaptrack ./print"), Invocation::Record(r) if r.command == ["./print"]));
        assert!(matches!(parse("heaptrack record print"), Invocation::Record(r) if r.command == ["print"]));
    }
}
