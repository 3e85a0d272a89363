//! `heaptrack export`: a trace, or a part of it, in another tool's format.
//!
//! Receives: a trace, a format, a query, a name. Returns: a file, or bytes on stdout. Must hold: a file appears whole or
//! not at all.
mod format;
mod kde;
mod part;
mod segment;
mod selection;
mod write;

pub use self::format::Format;
pub use kde::convert;

use self::format::{To, ToParser};
use crate::destination::{Content, Destination, named_after};
use crate::known_leaks::KnownLeaks;
use crate::support;
use crate::wrong_usage::Wrong;
use analysis::Query;
use anyhow::anyhow;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use part::Part;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Times: 1.5s, 200ms, 2min, 50%, start, peak, end; a number without a unit is seconds.

Examples:
  heaptrack export --to pprof x.htz -o x.pb.gz          for go tool pprof, Pyroscope, Perfetto
  heaptrack export --to pprof --from 1min --to 2min x.htz -o x.pb.gz      one minute of it
  heaptrack export --to firefox x.htz -o x.json.gz      for profiler.firefox.com
  heaptrack export --to dhat x.htz -o dhat.out          for dh_view.html
  heaptrack export --to csv --rows events x.htz -o x.csv                  for DuckDB, pandas
  heaptrack export --to heaptrack x.htz -o x.zst        for KDE's heaptrack_gui and heaptrack_print
  heaptrack export --to folded --cost leaked x.htz      for flame graph tools, on stdout
  heaptrack export --to svg --at peak x.htz -o peak.svg a flame graph
  heaptrack export --to massif x.htz -o massif.out      for ms_print and massif-visualizer

Exit code: 0; 2 wrong usage, or a file that cannot be read or written; 130 interrupted by Ctrl-C.";

/// Writes a trace, or a part of it, in another tool's format.
#[derive(Debug, Parser)]
#[command(name = "heaptrack export", bin_name = "heaptrack export", version)]
#[command(after_help = format!("{}\n{HELP}", support::export_help()))]
pub struct Export {
    /// The format. Given a second time, with a time: only what happened up to T.
    #[arg(long, value_name = "FORMAT|T", required = true, value_parser = ToParser)]
    to: Vec<To>,
    /// The file to write; `-` is stdout. A name that ends in .gz or .zst is compressed.
    #[arg(short, long, value_name = "OUT", default_value = "-", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// Tables: a row for each stack, or for each allocation and each free.
    #[arg(long, value_enum, default_value_t = Rows::Sites, value_name = "ROWS")]
    pub rows: Rows,
    /// Massif: branches below this share of the total are summed up.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub massif_threshold: f64,
    /// Massif: every N-th snapshot has a tree; 0 = only the highest.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub massif_detailed_freq: usize,
    /// Leave out the command line, and folders outside of the project, which is the current folder, or DIR: of other paths only the file's name is left.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = ".")]
    pub redact: Option<PathBuf>,
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub known: KnownLeaks,
    /// The trace, ours or KDE's, or a heap profile of another tool.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// The rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// A row for each stack.
    Sites,
    /// A row for each allocation and each free.
    Events,
}

impl Export {
    /// Returns `Err` on wrong usage, `--help` and `--version`.
    pub fn from_words(words: Vec<OsString>) -> Result<Export, Wrong> {
        let mut command = Export::command();
        let matches = command.try_get_matches_from_mut(words).map_err(Wrong::Words)?;
        let export = Export::from_arg_matches(&matches).map_err(Wrong::Words)?;
        let mut given = support::given(&command, &matches);
        // Every export has a format. Only a time is an option that an output could ignore.
        given.retain(|option| option != "to" || export.time().is_some());
        match export.trouble(&given) {
            Some(sentence) => Err(Wrong::Option(sentence)),
            None => Ok(export),
        }
    }

    /// The format. `from_words` checks that there is exactly one.
    pub fn format(&self) -> Format {
        self.formats().next().unwrap_or(Format::Folded)
    }

    fn formats(&self) -> impl Iterator<Item = Format> {
        self.to.iter().filter_map(|to| match to {
            To::Format(format) => Some(*format),
            To::Time(_) => None,
        })
    }

    fn times(&self) -> impl Iterator<Item = &str> {
        self.to.iter().filter_map(|to| match to {
            To::Format(_) => None,
            To::Time(time) => Some(time.as_str()),
        })
    }

    /// The end of the range.
    fn time(&self) -> Option<&str> {
        self.times().next()
    }

    /// Returns a sentence if the options make no sense together, or if one of them would have no effect.
    fn trouble(&self, given: &[String]) -> Option<String> {
        let formats = self.formats().count();
        if formats != 1 {
            let names = Format::names(Format::value_variants());
            let problem = if formats == 0 { "the format is missing" } else { "there can be one format only" };
            return Some(format!("--to: {problem}; formats are {names}"));
        }
        if self.times().count() > 1 {
            return Some("--to: there can be one time only, the end of the range".into());
        }
        let format = self.format();
        if self.redact.is_some() && !support::REDACTED.contains(&format) {
            let others = Format::names(support::REDACTED);
            return Some(format!("--redact cannot be used with --to {}; it is for {others}", format.name()));
        }
        support::export_trouble(given, self.format()).or_else(|| self.useless(given))
    }

    /// Returns a sentence if an option would have no effect because of another one.
    fn useless(&self, given: &[String]) -> Option<String> {
        let has = |option: &str| given.iter().any(|given| given == option);
        let format = self.format();
        if has("at") && (has("from") || has("to")) {
            return Some("--at is one instant, --from and --to are a range: give one or the other".into());
        }
        if self.rows == Rows::Events {
            let sites = ["at", "rules", "redact"].into_iter().chain(support::SUPPRESSIONS);
            if let Some(option) = sites.into_iter().find(|option| has(option)) {
                return Some(format!("--{option} changes nothing in a table of events; it is for --rows sites"));
            }
        }
        let shows_classes = matches!(format, Format::Csv | Format::Jsonl | Format::Firefox);
        if has("rules") && !shows_classes && self.part.hide.is_none() {
            return Some(format!("--rules changes nothing in --to {} without --hide", format.name()));
        }
        None
    }

    fn query(&self) -> anyhow::Result<Query> {
        let query = self.part.query(self.time(), self.known.no_suppressions);
        query.map_err(|bad| anyhow!(crate::print::as_option(&bad)))
    }
}

pub fn run(options: &Export) -> anyhow::Result<ExitCode> {
    let query = options.query()?;
    write::check_cost(options, &query)?;
    let inputs: Vec<&Path> = [Some(&options.file), options.known.suppressions.as_ref(), options.part.rules.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| path.as_path())
        .collect();
    let name = named_after(&options.file, options.format().ending());
    let output = Destination::new(&options.output, &name, Content::Other, &inputs)?;
    let is_packed = output.is_packed();
    output.write(Content::Other, |out| write::write(options, &query, is_packed, out))?;
    Ok(ExitCode::SUCCESS)
}
