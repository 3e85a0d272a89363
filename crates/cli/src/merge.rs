//! `heaptrack merge`: the traces of several processes in one. `format::merge` says what exactly it contains.
use crate::destination::{Content, Destination};
use crate::trim::LEVEL;
use crate::trouble::{counted, reason, unreadable};
use clap::Parser;
use format::{FileWriter, MergeError, Merged};
use heaptrack_trace::has_custom;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Example:
  heaptrack merge heaptrack.worker.*.htz -o workers.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read or written; 130 interrupted by Ctrl-C.";

/// Joins the traces of several processes into one, by the time of day.
#[derive(Debug, Parser)]
#[command(name = "heaptrack merge", bin_name = "heaptrack merge", version, after_help = HELP)]
pub struct Merge {
    /// The new trace; .htz is added.
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// The traces.
    #[arg(value_name = "FILES", required = true, num_args = 1.., value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

pub fn run(options: &Merge) -> anyhow::Result<ExitCode> {
    let files: Vec<&Path> = options.files.iter().map(|file| file.as_path()).collect();
    let output = Destination::new(&options.output, OsStr::new("merged.htz"), Content::Trace, &files)?;
    let mut sources = Vec::with_capacity(files.len());
    for file in &files {
        sources.push(heaptrack_trace::open_without_names(file).map_err(|error| unreadable(file, &error))?);
    }
    let mut merged = Merged::default();
    output.write(Content::Trace, |out| {
        let mut writer = FileWriter::new(out, LEVEL)?;
        let tool = concat!("heaptrack ", env!("CARGO_PKG_VERSION"), " merge");
        merged = format::merge(sources, tool, &mut writer).map_err(|error| of_file(&files, &error))?;
        writer.finish()?;
        Ok(())
    })?;
    for file in &files {
        if has_custom(file).map_err(|error| unreadable(file, &error))? {
            let file = file.display();
            crate::say(format_args!("heaptrack: the blocks of custom allocators in {file} are left out"));
        }
    }
    if merged.has_memory {
        crate::say(format_args!(
            "heaptrack: the parts of the resident memory and the mappings of the programs are left out, because each is about one process; print them with the single traces"
        ));
    }
    if let Some(until) = merged.folded_until_ns {
        let seconds = until as f64 / 1e9;
        crate::say(format_args!(
            "heaptrack: some traces have only sums for the first {seconds:.1} s (--max-size, --keep-last); in that time, all processes together may have had a higher peak"
        ));
    }
    let traces = counted(files.len() as u64, "trace", "traces");
    let allocations = counted(merged.summary.totals.allocations, "allocation", "allocations");
    crate::say(format_args!("heaptrack: {}: {traces}, {allocations}", output.path().display()));
    Ok(ExitCode::SUCCESS)
}

fn of_file(files: &[&Path], error: &MergeError) -> anyhow::Error {
    match error.source_number().and_then(|number| files.get(number)) {
        Some(file) if matches!(error, MergeError::Source(..)) => unreadable(file, error),
        Some(file) => anyhow::Error::msg(format!("cannot merge {}: {}", file.display(), reason(error))),
        None => anyhow::Error::msg(reason(error)),
    }
}
