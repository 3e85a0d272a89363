//! `heaptrack export`: a trace in another tool's format.
//!
//! Receives: a trace, a format, a name. Returns: a file, or bytes on stdout. Must hold: a file appears whole or not at
//! all.
use crate::destination::{Content, Destination, named_after};
use crate::known_leaks::KnownLeaks;
use crate::memory;
use crate::support;
use crate::trouble::{counted, unreadable};
use crate::wrong_usage::Wrong;
use analysis::{Costs, Report};
use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use export::{folded, heaptrack, massif, svg};
use format::{Domain, Source};
use heaptrack_trace::{OpenOptions, Reading, TraceFile, has_custom};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Examples:
  heaptrack export --to heaptrack x.htz -o x.zst        for KDE's heaptrack_gui and heaptrack_print
  heaptrack export --to folded --cost leaked x.htz      for flame graph tools, on stdout
  heaptrack export --to svg x.htz -o peak.svg           a flame graph
  heaptrack export --to massif x.htz -o massif.out      for ms_print and massif-visualizer

Exit code: 0; 2 wrong usage, or a file that cannot be read or written; 130 interrupted by Ctrl-C.";

/// Writes a trace, ours or KDE's, in another tool's format.
#[derive(Debug, Parser)]
#[command(name = "heaptrack export", bin_name = "heaptrack export", version)]
#[command(after_help = format!("{}\n{HELP}", support::export_help()))]
pub struct Export {
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Format,
    /// The file to write; `-` is stdout. A name that ends in .gz or .zst is compressed.
    #[arg(short, long, value_name = "OUT", default_value = "-", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// What folded stacks and flame graphs count.
    #[arg(long, visible_alias = "flamegraph-cost-type", value_enum, default_value_t = Cost::Peak, value_name = "COST")]
    pub cost: Cost,
    /// Massif: branches below this share of the total are summed up.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub massif_threshold: f64,
    /// Massif: every N-th snapshot has a tree; 0 = only the highest.
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
    /// Returns `Err` on wrong usage, `--help` and `--version`.
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
    /// The format of KDE's heaptrack.
    Heaptrack,
    /// A line for each stack, for flame graph tools.
    Folded,
    /// A flame graph.
    Svg,
    /// The format of Valgrind's massif.
    Massif,
}

impl Format {
    /// The value of `--to`.
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
    /// Bytes at the peak.
    Peak,
    /// Bytes that were not freed.
    Leaked,
    /// Calls.
    Allocations,
    /// Blocks that were freed again immediately.
    Temporary,
    /// Bytes of all calls.
    Allocated,
}

pub fn run(options: &Export) -> anyhow::Result<ExitCode> {
    let inputs: Vec<&Path> = [Some(&options.file), options.known.suppressions.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| path.as_path())
        .collect();
    let name = named_after(&options.file, ending(options.to));
    let output = Destination::new(&options.output, &name, Content::Other, &inputs)?;
    output.write(Content::Other, |out| write(options, out))?;
    Ok(ExitCode::SUCCESS)
}

/// The ending of a file that is written into a folder.
const fn ending(format: Format) -> &'static str {
    match format {
        Format::Heaptrack => ".zst",
        Format::Folded => ".folded",
        Format::Svg => ".svg",
        Format::Massif => ".massif",
    }
}

fn write(options: &Export, out: &mut dyn Write) -> anyhow::Result<()> {
    let read = |error: format::Error| unreadable(&options.file, &error);
    let read_again = |error: export::Error| match error {
        export::Error::Read(error) => read(error),
        write => write.into(),
    };
    let file = trace_file(options)?;
    match options.to {
        Format::Heaptrack => say_changes(&heaptrack::write(&|| file.source(), out).map_err(read_again)?),
        Format::Folded => folded::write(&folded::rows(&without_known(options, file)?.0, cost(options.cost)), out)?,
        Format::Svg => {
            let (report, _) = without_known(options, file)?;
            let (title, unit) = caption(options.cost);
            let title = format!("{title}: {}", report.session.command.join(" "));
            svg::write(&folded::rows(&report, cost(options.cost)), svg::Caption { title: &title, unit }, out)?;
        }
        Format::Massif => {
            let (report, file) = without_known(options, file)?;
            if report.folded_until_ns().is_some() {
                crate::say(format_args!(
                    "heaptrack: the trace has only sums of its oldest events (--max-size); snapshots of that time show only the blocks that stayed"
                ));
            }
            let (threshold, detailed_every) = (options.massif_threshold, options.massif_detailed_freq);
            let options = massif::Options { threshold, detailed_every, ..massif::Options::default() };
            massif::write(&|| file.source(), &report, &options, out).map_err(read_again)?;
        }
    }
    Ok(())
}

/// Opens the trace. Only the domain that was asked for will be read.
fn trace_file(options: &Export) -> anyhow::Result<TraceFile> {
    let read = |error: format::Error| unreadable(&options.file, &error);
    memory::check(&[&options.file], domain(options), Reading::Session)?;
    let file = TraceFile::open(&options.file).map_err(read)?;
    if options.custom && !has_custom(&options.file).map_err(read)? {
        let file = options.file.display();
        anyhow::bail!("the program of {file} reported no blocks of custom allocators: leave out --custom");
    }
    Ok(file.with_domain(domain(options)))
}

const fn domain(options: &Export) -> Domain {
    if options.custom { Domain::Custom } else { Domain::Malloc }
}

/// Counts the trace. Known leaks do not count as leaked, as in `print`.
fn without_known(options: &Export, file: TraceFile) -> anyhow::Result<(Report, TraceFile)> {
    let trace = OpenOptions::new().domain(domain(options)).open_file(file, |_, _| ());
    let trace = trace.map_err(|error| unreadable(&options.file, &error))?;
    let (mut report, file) = trace.into_report().context("the trace was opened with an index")?;
    if !options.known.no_suppressions {
        let known = options.known.load(&report.suppressions)?;
        report.suppress(known);
    }
    Ok((report, file))
}

fn cost(cost: Cost) -> fn(&Costs) -> u64 {
    match cost {
        Cost::Peak => |costs| costs.peak_bytes,
        Cost::Leaked => |costs| costs.live_bytes,
        Cost::Allocations => |costs| costs.allocations,
        Cost::Temporary => |costs| costs.temporary,
        Cost::Allocated => |costs| costs.allocated_bytes,
    }
}

const fn caption(cost: Cost) -> (&'static str, &'static str) {
    match cost {
        Cost::Peak => ("Memory at its peak", "bytes"),
        Cost::Leaked => ("Memory that was not freed", "bytes"),
        Cost::Allocations => ("Allocations", "allocations"),
        Cost::Temporary => ("Temporary allocations", "allocations"),
        Cost::Allocated => ("All memory that was allocated", "bytes"),
    }
}

/// Converts a recording whose name asks for KDE's format: makes `name.zst` from `name.zst.htz`. The latter is then
/// removed, unless it has blocks of custom allocators.
pub fn convert(trace: &Path) -> anyhow::Result<PathBuf> {
    let target = trace.with_extension("");
    let output = Destination::new(&target, OsStr::new("trace.zst"), Content::Other, &[trace])?;
    output.write(Content::Other, |out| {
        heaptrack::write(&|| Source::open(trace), out)?;
        Ok(())
    })?;
    // KDE's format has only one domain. The blocks of the other one must not be lost.
    if has_custom(trace)? {
        let (kept, target) = (trace.display(), target.display());
        crate::say(format_args!("heaptrack: {kept} stays: {target} cannot hold its blocks of custom allocators"));
    } else {
        let _ = fs::remove_file(trace);
    }
    Ok(target)
}

fn say_changes(written: &heaptrack::Written) {
    let counts = [
        (
            written.ended_by_exec,
            "block that went when the program replaced itself is freed there in KDE's file",
            "blocks that went when the program replaced itself are freed there in KDE's file",
        ),
        (
            written.ended_with_process,
            "block that was not freed when its process ended is freed there in KDE's file, which has one process: its leaks are those of the processes that ended last",
            "blocks that were not freed when their process ended are freed there in KDE's file, which has one process: its leaks are those of the processes that ended last",
        ),
        (
            written.unknown_frees,
            "free of a block whose allocation was not recorded is not in KDE's file",
            "frees of blocks whose allocation was not recorded are not in KDE's file",
        ),
        (
            written.folded,
            "event of which the trace has a sum only (--max-size) is not in KDE's file",
            "events of which the trace has sums only (--max-size) are not in KDE's file",
        ),
        (
            written.damaged,
            "event that needs a lost part of the trace is not in KDE's file",
            "events that need lost parts of the trace are not in KDE's file",
        ),
    ];
    for (count, one, several) in counts.into_iter().filter(|(count, ..)| *count > 0) {
        crate::say(format_args!("heaptrack: {}", counted(count, one, several)));
    }
}
