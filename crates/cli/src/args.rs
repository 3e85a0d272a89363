//! The command line.
//!
//! Given: the words as the shell split them. Gives back: what to do. What must hold: the first word that is no option
//! is the program and everything behind it is the program's, verbatim; names of subcommands count only as the first
//! word, so `heaptrack ./print` and `heaptrack -- print` run programs.
use crate::diff;
use crate::print::Print;
use clap::{CommandFactory, Parser, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum Invocation {
    Record(Record),
    Print(Box<Print>),
    Symbolize(Symbolize),
    Completions(clap_complete::Shell),
    Man,
}

const SUBCOMMANDS: &str = "\
Subcommands (only as the first word):
  record [OPTIONS] PROGRAM   the same as without
  print [OPTIONS] FILE       text report of a trace; --json for machines
  diff [OPTIONS] BASE FILE   what changed between two traces
  symbolize [OPTIONS] FILE   adds function names, files and lines to a trace
  completions SHELL          completion script for bash, zsh, fish ...
  man                        manual page, as roff

Examples:
  heaptrack ls -l                      record to heaptrack.ls.<pid>.htz
  heaptrack -o /tmp/%h.%p -- ./server  name with host and pid
  heaptrack print heaptrack.ls.42.htz  read it

Exit code: the program's own (128+n for signal n); 127 not found; 126 cannot be run or recorded; 2 wrong usage.";

/// Records every allocation of a program, with its stack, and says where the memory went.
#[derive(Debug, Parser)]
#[command(name = "heaptrack", version, after_help = SUBCOMMANDS, disable_version_flag = true)]
#[command(override_usage = "heaptrack [OPTIONS] PROGRAM [ARGS...]\n       heaptrack print [OPTIONS] FILE")]
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
    /// Start the program under gdb.
    #[arg(short, long)]
    pub debug: bool,
    /// When events come faster than they can be written: slow the program down, or lose events and count them.
    #[arg(long, value_enum, default_value_t = OnFull::Wait, value_name = "POLICY")]
    pub on_full: OnFull,
    /// The longest that a thread may be held up before its events are dropped and counted.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub max_stall: u32,
    #[command(flatten)]
    pub search: SearchOptions,
    /// Print the version.
    #[arg(short = 'v', visible_short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// The program and its arguments.
    #[arg(required = true, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments, num_args = 1.., trailing_var_arg = true)]
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
}

impl SearchOptions {
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

/// Milliseconds of a number of seconds, `s` allowed.
fn seconds(text: &str) -> Result<u32, String> {
    let number: f64 =
        text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.0..=4_000_000.0).contains(&number) { Ok((number * 1000.0) as u32) } else { Err("out of range".to_owned()) }
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
    let mut words: Vec<OsString> = words.collect();
    let name = words.first().map(|word| Path::new(word).file_name().unwrap_or_default().to_owned());
    if name.as_deref() == Some(OsStr::new("heaptrack_print")) {
        return Invocation::Print(Box::new(Print::from_words(words)));
    }
    match words.get(1).and_then(|word| word.to_str()) {
        Some("print") => return Invocation::Print(Box::new(Print::from_words(words.split_off(1)))),
        Some("diff") => return Invocation::Print(Box::new(diff::Diff::from_words(words.split_off(1)))),
        Some("symbolize") => return Invocation::Symbolize(Symbolize::parse_from(words.split_off(1))),
        Some("completions") => return Invocation::Completions(Completions::parse_from(words.split_off(1)).shell),
        Some("man") if words.len() == 2 => return Invocation::Man,
        Some("record") => drop(words.remove(1)),
        _ => (),
    }
    Invocation::Record(Record::parse_from(fence_off(words)))
}

/// Puts `--` before the program, so that no option behind it is taken for ours.
fn fence_off(mut words: Vec<OsString>) -> Vec<OsString> {
    let command = Record::command();
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
        at += if takes_next(&command, bytes) { 2 } else { 1 };
    }
    words
}

/// True when an option's value is the next word: `-o`, `-qo`, `--output`, but not `-oNAME`, `--output=NAME`.
fn takes_next(command: &clap::Command, option: &[u8]) -> bool {
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
        Record::try_parse_from(fence_off(line.split(' ').map(OsString::from).collect()))
    }

    fn program(line: &str) -> Vec<String> {
        record(line).unwrap().command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
        Print::command().debug_assert();
        diff::Diff::command().debug_assert();
        Symbolize::command().debug_assert();
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
        let options = record("heaptrack --raw --on-full=drop --max-stall 1.5 -o %h.%p ls").unwrap();
        assert!(options.no_symbols);
        assert_eq!((options.on_full, options.max_stall), (OnFull::Drop, 1500));
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
    fn subcommands_count_only_as_the_first_word() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from));
        assert!(matches!(parse("heaptrack print x.htz"), Invocation::Print(_)));
        assert!(matches!(parse("/usr/bin/heaptrack_print x.htz"), Invocation::Print(_)));
        assert!(matches!(parse("heaptrack -- print"), Invocation::Record(r) if r.command == ["print"]));
        assert!(matches!(parse("heaptrack -q print x"), Invocation::Record(r) if r.command == ["print", "x"]));
        assert!(matches!(parse("heaptrack ./print"), Invocation::Record(r) if r.command == ["./print"]));
        assert!(matches!(parse("heaptrack record print"), Invocation::Record(r) if r.command == ["print"]));
    }
}
