//! `heaptrack report`: the page as one self-contained file.
//!
//! The file has the trace and the engine, which is the viewer beside this binary (`viewer.rs`). Where that is not possible,
//! it has prepared answers, as with `--summary-only`, and a line on stderr says so
//! (docs/decisions/0097-a-report-is-the-viewer-with-a-trace.md).
use crate::analyze::{look, named_text};
use crate::check::all_rules;
use crate::destination::{Content, Destination, named_after};
use crate::say;
use crate::status::Bytes;
use crate::viewer::find_page;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use web::{Options, Page, ReportError, report, summary};

const HELP: &str = "\
Examples:
  heaptrack report heaptrack.ls.42.htz -o ls.html   then open ls.html in any browser, on any machine
  heaptrack report --max-size 100M big.htz          also if the trace is large
  heaptrack report --summary-only big.htz           without the trace: smaller, but without most filters

The report has the trace and the engine, and answers everything that `heaptrack analyze` answers. The engine is
heaptrack-viewer.html, which is installed with heaptrack. Without it, or if the trace does not fit, the report is
that of --summary-only.

Exit code: 0; 2 wrong usage, or a file that cannot be read or written.";

/// Writes the page with a trace into one file, which opens from disk without a server or a network.
#[derive(Debug, Parser)]
#[command(name = "heaptrack report", bin_name = "heaptrack report", version, after_help = HELP)]
pub struct Report {
    /// The file to write. Without it, the trace's name with .html.
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The largest size of the file. What does not fit is left out, and the report says what that is.
    #[arg(long, default_value = "24M", value_name = "SIZE", value_parser = crate::values::size)]
    pub max_size: u64,
    /// Write prepared answers instead of the trace: for the whole session, for moments and for ranges of 256 slices of
    /// time, filtered only by names.
    #[arg(long)]
    pub summary_only: bool,
    /// Known leaks, in LSan's format: lines of leak:NAME.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub suppressions: Option<PathBuf>,
    /// Rules that tell which code is yours, as for `heaptrack print`.
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
    let settings = Options {
        rules: all_rules(options.rules.as_deref())?,
        suppressions: options.suppressions.iter().map(|file| named_text(file)).collect::<anyhow::Result<_>>()?,
        builtin: true,
        embedded: true,
        tool: crate::TOOL.to_owned(),
    };
    look(&options.file)?;
    let page = made(options, &settings)?;
    output.write(Content::Other, |out| Ok(out.write_all(&page.html)?))?;
    for note in &page.notes {
        say(format_args!("heaptrack: {note}"));
    }
    say(format_args!("heaptrack: {} ({})", output.path().display(), Bytes(page.html.len() as u64)));
    Ok(ExitCode::SUCCESS)
}

fn made(options: &Report, settings: &Options) -> Result<Page, ReportError> {
    if options.summary_only {
        return summary(&options.file, settings, options.max_size, &[]);
    }
    report(&options.file, settings, options.max_size, find_page)
}
