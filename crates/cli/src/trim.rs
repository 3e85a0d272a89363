//! `heaptrack trim`: a trace of a part of the time. `format::trim` says what exactly it contains.
use crate::destination::{Content, Destination, named_after};
use crate::memory;
use crate::trouble::{counted, unreadable};
use analysis::{NOT_A_TIME, When};
use anyhow::Context;
use clap::Parser;
use format::{FileWriter, Trimmed};
use heaptrack_trace::{OpenTrace, open_source};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Times: 1.5s, 200ms, 2min, 50% of the runtime, start, peak, end; a number without a unit is seconds.

Example:
  heaptrack trim server.htz --from 2min --to 3min -o minute.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read or written; 130 interrupted by Ctrl-C.";

/// Cuts a trace to a range of time: what happened after --from, up to and including --to. Blocks that were live at
/// --from stay, with their own stack, thread and time. Nothing else from the time before stays.
#[derive(Debug, Parser)]
#[command(name = "heaptrack trim", bin_name = "heaptrack trim", version, after_help = HELP)]
pub struct Trim {
    /// The start of the range.
    #[arg(long, value_name = "TIME", default_value = "start")]
    pub from: String,
    /// The end of the range.
    #[arg(long, value_name = "TIME", default_value = "end")]
    pub to: String,
    /// The new trace; .htz is added.
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// The trace.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// The zstd level of files that are written once and read often.
pub const LEVEL: i32 = 9;

pub fn run(options: &Trim) -> anyhow::Result<ExitCode> {
    let file = options.file.as_path();
    let (from, to) = (point("from", &options.from)?, point("to", &options.to)?);
    let (from, to) = times(file, from, to).map_err(|error| unreadable(file, &error))?;
    if from.is_some_and(|from| from >= to) {
        anyhow::bail!("--from {} is not before --to {}: nothing would be left", options.from, options.to);
    }
    memory::check_trim(file, from.is_some(), to)?;
    let output = Destination::new(&options.output, &named_after(file, ".trimmed.htz"), Content::Trace, &[file])?;
    let mut source = open_source(file).map_err(|error| unreadable(file, &error))?;
    let mut trimmed = Trimmed::default();
    output.write(Content::Trace, |out| {
        let mut writer = FileWriter::new(out, LEVEL)?;
        let again = || open_source(file).map(Some);
        trimmed = format::trim_domains(&mut source, again, from, to, &mut writer)
            .map_err(|error| unreadable(file, &error))?;
        writer.finish()?;
        Ok(())
    })?;
    if let Some(until) = trimmed.folded_until_ns {
        let (file, seconds) = (file.display(), until as f64 / 1e9);
        crate::say(format_args!(
            "heaptrack: {file} has only sums for its first {seconds:.1} s (--max-size, --keep-last), which cannot be cut; of that part, the new trace has only the blocks that outlived it"
        ));
    }
    let allocations = counted(trimmed.summary.totals.allocations, "allocation", "allocations");
    crate::say(format_args!("heaptrack: {}: {allocations}", output.path().display()));
    Ok(ExitCode::SUCCESS)
}

fn point(option: &str, text: &str) -> anyhow::Result<When> {
    When::parse(text).with_context(|| format!("--{option} {text}: {NOT_A_TIME}"))
}

/// Returns the range in nanoseconds. A start of `None` means from the first event on.
fn times(file: &Path, from: When, to: When) -> Result<(Option<u64>, u64), format::Error> {
    let needs_totals = |when| matches!(when, When::Peak | When::Percent(_));
    let totals = match needs_totals(from) || needs_totals(to) {
        true => OpenTrace::open(file)?.engine().totals(),
        false => format::Totals::default(),
    };
    let ns = |when| match when {
        When::Start => Some(0),
        When::End => None,
        When::Ns(ns) | When::Event { time_ns: ns, .. } => Some(ns),
        When::Peak => Some(totals.peak_time_ns),
        When::Percent(share) => Some((totals.runtime_ns as f64 * share / 100.0) as u64),
    };
    let from = match from {
        When::Start => None,
        other => Some(ns(other).unwrap_or(u64::MAX)),
    };
    Ok((from, ns(to).unwrap_or(u64::MAX)))
}
