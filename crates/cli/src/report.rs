//! `heaptrack report`: one self-contained page.
use crate::destination::{Content, Destination, named_after};
use crate::say;
use crate::status::Bytes;
use crate::trouble::unreadable;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use web::{Options, report};

/// Writes the page with all its data into one file: no server, no network, opens from disk.
#[derive(Debug, Parser)]
#[command(
    name = "heaptrack report",
    bin_name = "heaptrack report",
    version,
    after_help = "Example:
  heaptrack report heaptrack.ls.42.htz -o ls.html   then open ls.html in any browser, on any machine"
)]
pub struct Report {
    /// Where to write it; the trace's name with .html if not given.
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The most megabytes; what does not fit is left out, and said.
    #[arg(long, default_value_t = 24.0, value_name = "MB")]
    pub max_size: f64,
    /// Known leaks, in LSan's format: lines of leak:NAME.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub suppressions: Option<PathBuf>,
    /// Rules that tell whose code is whose, as for `heaptrack print`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
    /// The trace.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

pub fn run(options: &Report) -> anyhow::Result<ExitCode> {
    let inputs = [Some(&options.file), options.rules.as_ref(), options.suppressions.as_ref()];
    let inputs: Vec<&Path> = inputs.into_iter().flatten().map(|path| path.as_path()).collect();
    let page = options.output.clone().unwrap_or_else(|| options.file.with_extension("html"));
    let output = Destination::new(&page, &named_after(&options.file, ".html"), Content::Other, &inputs)?;
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| unreadable(path, &error));
    let settings = Options {
        rules: options.rules.as_ref().map(read).transpose()?.unwrap_or_default(),
        suppressions: options.suppressions.as_ref().map(read).transpose()?.unwrap_or_default(),
        builtin: true,
        embedded: true,
        tool: concat!("heaptrack ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    // What cannot be read is told as for every other command.
    heaptrack_trace::open_without_names(&options.file).map_err(|error| unreadable(&options.file, &error))?;
    let page = report(&options.file, settings, (options.max_size.max(0.0) * 1e6) as u64)?;
    output.write(Content::Other, |out| Ok(out.write_all(&page.html)?))?;
    for note in &page.notes {
        say(format_args!("heaptrack: {note}"));
    }
    say(format_args!("heaptrack: {} ({})", output.path().display(), Bytes(page.html.len() as u64)));
    Ok(ExitCode::SUCCESS)
}
