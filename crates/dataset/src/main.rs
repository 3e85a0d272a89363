//! `heaptrack-dataset`: thousands of recordings as one dataset of Parquet files, and questions about them.
//!
//! Receives: a command line; `heaptrack dataset` passes its words on to this program. Returns: an exit code. Must hold:
//! every error is one sentence on stderr. It is a binary of its own, because Parquet would take a megabyte of the main
//! one (docs/decisions/0105-datasets-have-a-binary-of-their-own.md).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod add;
mod compact;
mod data_file;
mod diff;
mod extract;
mod filter;
mod manifest;
mod parquet_file;
mod partition_name;
mod passes;
mod profile;
mod publish;
mod questions;
mod rank_sum;
mod report;
mod rows;
mod schema;
mod statistics;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

const HELP: &str = "\
Examples:
  heaptrack dataset add /data/heap *.htz --service shop --version 1.5 --label team=web
  heaptrack dataset report /data/heap
  heaptrack dataset diff /data/heap --before version=1.4 --after version=1.5
  heaptrack dataset compact /data/heap

docs/fleet.md describes the tables, and how Spark, ClickHouse and DuckDB read them.

Exit code: 0; 2 wrong usage, or a file that cannot be read or written.";

/// Many recordings as one dataset of Parquet files: adds traces, reports, and compares versions.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset", bin_name = "heaptrack dataset", version, after_help = HELP)]
enum Command {
    Add(add::Add),
    Report(report::Report),
    Diff(diff::Diff),
    Compact(compact::Compact),
    Retain(compact::Retain),
    Profile(profile::Profile),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Add(options) => add::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Diff(options) => diff::run(&options),
        Command::Compact(options) => compact::compact(&options),
        Command::Retain(options) => compact::retain(&options),
        Command::Profile(options) => profile::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::from(2)
        }
    }
}

/// Prints text on stdout.
fn out(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| anyhow::anyhow!("stdout: {error}"))
}

/// Prints a sentence on stderr. A closed stderr is no reason to fail.
fn say(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "heaptrack: {error:#}");
}
