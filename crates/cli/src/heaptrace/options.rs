//! The command line of `heaptrace`, and the environment variables of the original, LG's heaptrace.
//!
//! Receives: words and variables. Returns: checked options. Must hold: every mistake is reported in one sentence before
//! a program is started, and an option takes precedence over its variable.
use crate::recorder_limits::RecorderOptions;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of frames by which backtraces are distinguished. The original has 8, of which the first is its own
/// malloc.
const DEPTH: usize = 7;
const TOP: usize = 10;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

const HELP: &str = "\
While it runs: SIGUSR1 (by size) and SIGUSR2 (by count) print what is live, SIGQUIT starts a new measuring window. Send them
to heaptrace or to the program. A program that handles such a signal itself still receives it.

Times: 10s, 500ms, 2m (or 2min), 1h; a number without a unit is seconds.

Examples:
  heaptrace ./server                                 what is left at its end
  heaptrace --top 3 --sort count node app.js         the three places with the most blocks
  heaptrace -p 1234                                  what a running process takes from now on
  heaptrace --recorder-cpu 20% ./server              takes at most a fifth of a CPU itself
  heaptrace --interval 10s --outfile log ./server    every ten seconds, to log.<pid>.<name>
  heaptrace --flame-graph --outfile f ./server       folded stacks; then inferno-flamegraph f.* > flame.svg

Environment: HEAPTRACE_NUM_TOP_BACKTRACE (--top), HEAPTRACE_SORT_KEYS (--sort), HEAPTRACE_FLAME_GRAPH (0 or 1),
HEAPTRACE_OUTFILE and HEAPTRACE_IGNORE are used where the option is not given.

Exit code: the program's own (128+n for signal n); 127 not found; 126 cannot be run or watched;
64 wrong usage, or a limit of the recorder that is not possible; 3 the process of -p cannot be attached to.";

/// Prints which memory of a program is still in use, by the place that allocated it, while it runs and at its end.
#[derive(Debug, Parser)]
#[command(name = "heaptrace", bin_name = "heaptrace", version, after_help = HELP, disable_help_flag = true)]
#[command(override_usage = "heaptrace [OPTIONS] PROGRAM [ARGS...]")]
struct Words {
    /// The number of backtraces to show [default: 10; with --flame-graph: all].
    #[arg(long, value_name = "NUM")]
    top: Option<String>,
    /// Sort backtraces by size, by count, or by both (size,count), with a list for each.
    #[arg(short, long, value_name = "KEYS")]
    sort: Option<String>,
    /// Print folded stacks for a flame graph instead of the report.
    #[arg(long)]
    flame_graph: bool,
    #[allow(rustdoc::invalid_html_tags, reason = "this is the text of --help")]
    /// Write to FILE.<pid>.<name> instead of stderr, a file for each process.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    outfile: Option<PathBuf>,
    /// Leave out backtraces that contain a line of this file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    ignore: Option<PathBuf>,
    /// The number of frames by which backtraces are distinguished, 0 for all [default: 7; with --flame-graph: all].
    #[arg(long, value_name = "N")]
    depth: Option<String>,
    /// Report at this interval, as 10s, 500ms, 2m.
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// Show a live table in the terminal.
    #[arg(long)]
    watch: bool,
    /// Watch a process that is already running, until Ctrl-C. Its children are not followed.
    #[arg(short, long, value_name = "PID")]
    pid: Option<String>,
    #[command(flatten)]
    recorder: RecorderOptions,
    /// Print help.
    #[arg(short, long, visible_short_alias = '?', visible_alias = "usage", action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments, num_args = 1.., trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The value by which backtraces are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Size,
    Count,
}

impl Key {
    pub const fn name(self) -> &'static str {
        match self {
            Key::Size => "size",
            Key::Count => "count",
        }
    }
}

#[derive(Debug)]
pub struct Options {
    pub top: usize,
    pub sort: Vec<Key>,
    pub flame_graph: bool,
    pub outfile: Option<PathBuf>,
    /// A backtrace that contains one of these texts is not shown.
    pub ignore: Vec<String>,
    pub depth: usize,
    pub interval: Option<Duration>,
    pub watch: bool,
    pub pid: Option<u32>,
    pub recorder: RecorderOptions,
    pub command: Vec<OsString>,
}

/// Why no program is started.
#[derive(Debug)]
pub enum Stop {
    /// The user asked for help or the version. The text is for stdout.
    Answer(String),
    /// Wrong usage, in one sentence.
    Wrong(String),
}

/// The command, for its manual page.
pub fn command() -> clap::Command {
    Words::command()
}

pub fn parse(words: Vec<OsString>) -> Result<Options, Stop> {
    parse_with(words, |name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn parse_with(words: Vec<OsString>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Options, Stop> {
    check(split(words)?, variable).map_err(Stop::Wrong)
}

/// Splits the words into options, the program and its arguments, without checking values.
fn split(words: Vec<OsString>) -> Result<Words, Stop> {
    let words = whole_names(words, &Words::command()).map_err(Stop::Wrong)?;
    Words::try_parse_from(crate::args::fence_off(words, &Words::command())).map_err(stop)
}

/// Returns the program and its arguments.
#[cfg(fuzzing)]
pub fn command_of(words: Vec<OsString>) -> Option<Vec<OsString>> {
    split(words).ok().map(|words| words.command)
}

/// Replaces abbreviated long options by their whole names. As in the original, an option may be abbreviated if no other
/// option begins with the same letters.
fn whole_names(mut words: Vec<OsString>, command: &clap::Command) -> Result<Vec<OsString>, String> {
    let mut command = command.clone();
    command.build();
    let mut at = 1;
    while let Some(word) = words.get_mut(at) {
        let Some(text) = word.to_str().filter(|text| text.starts_with('-') && *text != "-" && *text != "--") else {
            break;
        };
        if let Some(option) = text.strip_prefix("--") {
            *word = whole_name(option, &command)?.into();
        }
        at += if crate::args::takes_next(&command, word.as_encoded_bytes()) { 2 } else { 1 };
    }
    Ok(words)
}

/// Returns the full option, including its value. An unknown option stays as it is.
fn whole_name(option: &str, command: &clap::Command) -> Result<String, String> {
    let (short, value) = option.split_at(option.find('=').unwrap_or(option.len()));
    let names = |arg: &clap::Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut candidates: Vec<String> = Vec::new();
    for arg in command.get_arguments() {
        let names = names(arg);
        if names.iter().any(|name| name == short) {
            return Ok(format!("--{option}"));
        }
        candidates.extend(names.into_iter().find(|name| name.starts_with(short)));
    }
    match &candidates[..] {
        [] => Ok(format!("--{option}")),
        [one] => Ok(format!("--{one}{value}")),
        several => Err(format!("--{short} could be --{} (see heaptrace --help)", several.join(" or --"))),
    }
}

fn stop(error: clap::Error) -> Stop {
    use clap::error::ErrorKind;
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Stop::Answer(error.to_string());
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    Stop::Wrong(format!("{line} (see heaptrace --help)"))
}

fn check(words: Words, variable: impl Fn(&str) -> Option<OsString>) -> Result<Options, String> {
    let text = |option: Option<String>, long: &str, name: &str| match option {
        Some(value) => Some((value, format!("--{long}"))),
        None => variable(name).map(|value| (value.to_string_lossy().into_owned(), name.to_owned())),
    };
    let flame_graph = words.flame_graph || flag(variable("HEAPTRACE_FLAME_GRAPH"))?;
    let top = text(words.top, "top", "HEAPTRACE_NUM_TOP_BACKTRACE");
    let top = top.map(|(value, from)| number(&value, &from)).transpose()?;
    let sort = text(words.sort, "sort", "HEAPTRACE_SORT_KEYS");
    let sort = sort.map_or_else(|| Ok(vec![Key::Size]), |(value, from)| keys(&value, &from))?;
    let depth = words.depth.map(|value| number(&value, "--depth")).transpose()?;
    let path = |option: Option<PathBuf>, name: &str| option.or_else(|| variable(name).map(PathBuf::from));
    let ignore = path(words.ignore, "HEAPTRACE_IGNORE").map(|path| rules(&path)).transpose()?.unwrap_or_default();
    let outfile = path(words.outfile, "HEAPTRACE_OUTFILE").map(|path| writable(&path)).transpose()?;
    let interval = words.interval.map(|value| interval(&value)).transpose()?;
    let pid = words.pid.map(|value| number(&value, "--pid").map(|pid| pid as u32)).transpose()?;
    if words.watch && (flame_graph || interval.is_some()) {
        return Err("--watch shows a table: leave --flame-graph and --interval out".to_owned());
    }
    if words.watch && !std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        return Err("--watch needs a terminal; --interval 1s writes reports to anything".to_owned());
    }
    if words.command.is_empty() == pid.is_none() {
        return Err("one program is needed: heaptrace [OPTIONS] PROGRAM [ARGS...]".to_owned());
    }
    Ok(Options {
        top: top.unwrap_or(if flame_graph { usize::MAX } else { TOP }),
        sort,
        flame_graph,
        outfile,
        ignore,
        depth: match depth {
            None if flame_graph => usize::MAX,
            None => DEPTH,
            Some(0) => usize::MAX,
            Some(depth) => depth,
        },
        interval,
        watch: words.watch,
        pid,
        recorder: words.recorder,
        command: words.command,
    })
}

fn number(value: &str, from: &str) -> Result<usize, String> {
    value.parse::<u32>().map(|number| number as usize).map_err(|_| format!("{from} wants a number, not '{value}'"))
}

fn flag(value: Option<OsString>) -> Result<bool, String> {
    match value.as_ref().map(|value| value.to_string_lossy()).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("HEAPTRACE_FLAME_GRAPH wants 0 or 1, not '{other}'")),
    }
}

fn keys(value: &str, from: &str) -> Result<Vec<Key>, String> {
    let key = |word: &str| match word {
        "size" => Ok(Key::Size),
        "count" => Ok(Key::Count),
        other => Err(format!("{from} wants size or count, not '{other}'")),
    };
    value.split(',').map(key).collect()
}

/// Returns the lines of the file that are not empty.
fn rules(path: &Path) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("--ignore: {} cannot be read: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Checks that files with this prefix can be written, by creating one and removing it.
fn writable(prefix: &Path) -> Result<PathBuf, String> {
    let whole = std::path::absolute(prefix).unwrap_or_else(|_| prefix.to_owned());
    let mut name = whole.clone().into_os_string();
    name.push(format!(".{}.heaptrace", std::process::id()));
    let trial = PathBuf::from(name);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&trial)
        .map_err(|error| format!("--outfile: {} cannot be written: {error}", trial.display()))?;
    let _ = std::fs::remove_file(trial);
    Ok(whole)
}

/// Parses the time between two reports.
fn interval(text: &str) -> Result<Duration, String> {
    match crate::values::duration(text) {
        Ok(interval) if interval >= SHORTEST_INTERVAL => Ok(interval),
        Ok(_) => Err(format!("--interval: '{text}' must be at least 10ms")),
        Err(reason) => Err(format!("--interval: '{text}' is {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, variables: &[(&str, &str)]) -> Result<Options, Stop> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        parse_with(line.split(' ').map(OsString::from).collect(), find)
    }

    fn sentence(line: &str, variables: &[(&str, &str)]) -> String {
        match parsed(line, variables) {
            Err(Stop::Wrong(sentence)) => sentence,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_command_is_consistent() {
        Words::command().debug_assert();
    }

    #[test]
    fn options_go_before_variables() {
        let variables = [("HEAPTRACE_NUM_TOP_BACKTRACE", "5"), ("HEAPTRACE_SORT_KEYS", "count,size")];
        let options = parsed("heaptrace --top 3 ls --top 4", &variables).unwrap();
        assert_eq!((options.top, options.sort, options.depth), (3, vec![Key::Count, Key::Size], 7));
        assert_eq!(options.command, ["ls", "--top", "4"]);
        let options = parsed("heaptrace -s count ls", &[("HEAPTRACE_FLAME_GRAPH", "1")]).unwrap();
        assert_eq!((options.top, options.sort, options.depth), (usize::MAX, vec![Key::Count], usize::MAX));
        assert_eq!(parsed("heaptrace --depth=0 --interval 1.5s ls", &[]).unwrap().depth, usize::MAX);
    }

    #[test]
    fn whatever_is_wrong_is_one_sentence() {
        for line in [
            "heaptrace",
            "heaptrace --top x ls",
            "heaptrace --top",
            "heaptrace --top -1 ls",
            "heaptrace --sort weight ls",
            "heaptrace -s size,weight ls",
            "heaptrace --ignore /no/such/file ls",
            "heaptrace --outfile /no/such/folder/x ls",
            "heaptrace --depth deep ls",
            "heaptrace --interval 0 ls",
            "heaptrace --interval 10x ls",
            "heaptrace --no-such ls",
            "heaptrace -p 1 ls",
            "heaptrace -p x",
            "heaptrace --watch --interval 1s ls",
        ] {
            let sentence = sentence(line, &[]);
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{line}: {sentence}");
        }
        assert!(sentence("heaptrace ls", &[("HEAPTRACE_SORT_KEYS", "age")]).contains("HEAPTRACE_SORT_KEYS"));
        assert!(sentence("heaptrace ls", &[("HEAPTRACE_FLAME_GRAPH", "yes")]).contains("0 or 1"));
    }

    #[test]
    fn long_options_may_be_abbreviated() {
        let options = parsed("heaptrace --to 3 --so=count --dep 2 ls --to 4", &[]).unwrap();
        assert_eq!((options.top, options.sort, options.depth), (3, vec![Key::Count], 2));
        assert_eq!(options.command, ["ls", "--to", "4"]);
        assert_eq!(sentence("heaptrace --i 1s ls", &[]), "--i could be --ignore or --interval (see heaptrace --help)");
        assert!(sentence("heaptrace --x ls", &[]).contains("--x"));
        assert!(matches!(parsed("heaptrace --vers", &[]), Err(Stop::Answer(_))));
        assert!(matches!(parsed("heaptrace --us", &[]), Err(Stop::Answer(_))));
    }

    #[test]
    fn help_is_an_answer() {
        for line in ["heaptrace --help", "heaptrace -?", "heaptrace --usage", "heaptrace -V"] {
            assert!(matches!(parsed(line, &[]), Err(Stop::Answer(_))), "{line}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(interval("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("2m"), Ok(Duration::from_secs(120)));
        assert!(interval("1ms").is_err());
        assert!(interval("-1s").is_err() && interval("s").is_err() && interval("1d").is_err());
    }
}
