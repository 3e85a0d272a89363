//! `heaptrack merge`: the traces of several processes in one. What exactly is in it: `format::merge`.
use crate::args::Merge;
use crate::trim::{LEVEL, refuse_same, with_extension};
use anyhow::Context;
use format::{FileWriter, MergeError, Merged};
use std::process::ExitCode;

pub fn run(options: &Merge) -> anyhow::Result<ExitCode> {
    let files = &options.files;
    let output = with_extension(&options.output);
    let mut sources = Vec::with_capacity(files.len());
    for file in files {
        refuse_same(file, &output)?;
        sources.push(crate::source::open_file(file).with_context(|| format!("{}", file.display()))?);
    }
    let of = |error: MergeError| match error.source_number().and_then(|number| files.get(number)) {
        Some(file) => anyhow::Error::new(error).context(format!("{} cannot be merged", file.display())),
        None => error.into(),
    };
    let mut merged = Merged::default();
    crate::export::to_file(&output, |out| {
        let mut writer = FileWriter::new(out, LEVEL)?;
        let tool = concat!("heaptrack ", env!("CARGO_PKG_VERSION"), " merge");
        merged = format::merge(sources, tool, &mut writer).map_err(of)?;
        writer.finish()?;
        Ok(())
    })?;
    for file in files {
        crate::source::say_custom_is_left_out(file).with_context(|| file.display().to_string())?;
    }
    if merged.ended_by_exec > 0 {
        let count = merged.ended_by_exec;
        crate::say(format_args!("heaptrack: {count} blocks that went when a program replaced itself count as freed"));
    }
    let allocations = merged.summary.totals.allocations;
    crate::say(format_args!("heaptrack: {}: {} traces, {allocations} allocations", output.display(), files.len()));
    Ok(ExitCode::SUCCESS)
}
