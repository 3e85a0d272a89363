//! The `heaptrack` command: the only place that composes the other crates.
//!
//! Receives: a command line. Returns: an exit code that scripts can rely on. Must hold: nothing of ours goes to the
//! stdout of a recorded program, and every error is one sentence. Only a command line that clap cannot parse is
//! explained in several lines.
#![cfg_attr(not(fuzzing), forbid(unsafe_code))]
#![cfg_attr(test, allow(clippy::unwrap_used))]
// `fuzz/` builds this file as the fuzzer of the command line: `fuzzing.rs` is then called instead of `main`.
#![cfg_attr(fuzzing, no_main, allow(dead_code, unsafe_code))]

mod allocator_messages;
mod analyze;
mod args;
mod attach;
mod cargo_heaptrack;
mod check;
mod completions;
#[cfg(test)]
mod cross_product;
mod dataset;
mod definitions;
mod destination;
mod detach;
mod diff;
mod disk;
mod export;
#[cfg(fuzzing)]
mod fuzzing;
mod heaptrace;
mod kde_copy;
mod known_leaks;
mod launch;
mod lib_install;
mod library;
mod live;
mod man;
mod mcp;
mod memory;
mod memory_lines;
mod merge;
mod naming_thread;
mod output;
mod patched;
mod patching_thread;
mod print;
mod program;
mod pushing;
mod record;
mod recorder_limits;
mod recording_options;
mod report;
mod sampled;
mod scraping;
mod search_options;
mod signals;
mod snapshot;
mod starting_thread;
mod status;
mod support;
mod symbolize;
mod temporary_folder;
mod test_sections;
mod triggers;
mod trim;
mod trouble;
mod tui;
mod unfinished;
mod unseen;
mod values;
mod viewer;
mod wrong_usage;

use args::Invocation;
use std::io::Write;
use std::process::ExitCode;

/// The exit code for wrong usage, or for a file that cannot be read or written.
/// The name and version of this program, as traces and reports have it.
const TOOL: &str = concat!("heaptrack ", env!("CARGO_PKG_VERSION"));
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // A library that reads debug files may panic on a hostile file. The panic is caught and costs only the names of
    // that file.
    std::panic::set_hook(Box::new(|_| ()));
    // This comes first, because the program must inherit everything as we found it.
    let inherited = collector::Inherited::take();
    match args::parse(std::env::args_os()) {
        Invocation::Record(options) => record::run(&options, &inherited),
        Invocation::Attach(options) => attach::run(&options),
        Invocation::Detach(options) => detach::run(&options),
        Invocation::Snapshot(options) => answer(snapshot::run(&options)),
        Invocation::Heaptrace(words) => heaptrace::run(words, &inherited),
        Invocation::Print(options) => answer(print::run(&options)),
        Invocation::Check(options) => answer(check::run(&options)),
        Invocation::TestSections(options) => answer(test_sections::run(&options)),
        Invocation::Cargo(options) => answer(cargo_heaptrack::run(&options)),
        Invocation::Symbolize(options) => answer(symbolize::run(&options)),
        Invocation::Lib(options) => answer(lib_install::run(&options)),
        Invocation::Export(options) => answer(export::run(&options)),
        Invocation::Trim(options) => answer(trim::run(&options)),
        Invocation::Merge(options) => answer(merge::run(&options)),
        Invocation::Analyze(options) => answer(analyze::run(&options)),
        Invocation::Tui(options) => answer(tui::run(&options)),
        Invocation::RecordedTui(recorded) => answer(tui::run_recorded(recorded)),
        Invocation::Report(options) => answer(report::run(&options)),
        Invocation::Completions(options) => answer(completions::run(&options)),
        Invocation::Man(options) => answer(man::run(&options)),
        Invocation::Mcp(options) => answer(mcp::run(&options)),
        Invocation::Viewer(options) => answer(viewer::run(&options)),
        Invocation::Dataset(options) => answer(dataset::run(&options)),
    }
}

/// Prints a text to stdout.
fn print_out(text: &[u8]) -> anyhow::Result<ExitCode> {
    destination::to_stdout(|out| Ok(out.write_all(text)?))?;
    Ok(ExitCode::SUCCESS)
}

fn answer(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        say(format_args!("heaptrack: {}", trouble::sentence(&error)));
        ExitCode::from(USAGE)
    })
}

/// Prints a line for people on stderr. A closed stderr must not end a recording, so the write error is ignored.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{}", trouble::without_numbers(&line.to_string()));
}
