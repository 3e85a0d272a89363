//! `heaptrack report`: one self-contained page.
use crate::args::Report;
use crate::say;
use crate::status::Bytes;
use anyhow::Context;
use std::process::ExitCode;
use web::{Options, report};

pub fn run(options: &Report) -> anyhow::Result<ExitCode> {
    let read = |path: &std::path::PathBuf| std::fs::read_to_string(path).with_context(|| format!("{}", path.display()));
    let settings = Options {
        rules: options.rules.as_ref().map(read).transpose()?.unwrap_or_default(),
        suppressions: options.suppressions.as_ref().map(read).transpose()?.unwrap_or_default(),
        builtin: true,
        embedded: true,
        tool: concat!("heaptrack ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let page = report(&options.file, settings, options.max_size)?;
    let output = options.output.clone().unwrap_or_else(|| options.file.with_extension("html"));
    std::fs::write(&output, &page.html).with_context(|| format!("cannot write {}", output.display()))?;
    for note in &page.notes {
        say(format_args!("heaptrack: {note}"));
    }
    say(format_args!("heaptrack: {} ({})", output.display(), Bytes(page.html.len() as u64)));
    Ok(ExitCode::SUCCESS)
}
