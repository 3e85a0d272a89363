//! `heaptrack merge`: the traces of several processes in one. What exactly is in it: `format::merge`.
use crate::args::Merge;
use crate::destination::{Content, Destination};
use crate::trim::{LEVEL, say_custom_is_left_out};
use crate::trouble::{counted, reason, unreadable};
use format::{FileWriter, MergeError, Merged};
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

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
        say_custom_is_left_out(file).map_err(|error| unreadable(file, &error))?;
    }
    if let Some(until) = merged.folded_until_ns {
        let seconds = until as f64 / 1e9;
        crate::say(format_args!(
            "heaptrack: some traces have only sums of the first {seconds:.1} s (--max-size): all processes together may have had a higher peak there"
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
