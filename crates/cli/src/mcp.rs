//! `heaptrack mcp`: answers the questions of coding agents about traces, over stdin and stdout.
//!
//! Must hold: stdout has nothing but messages of the protocol. Without `--allow-record`, no program is started.
use ::mcp::{Folders, Options, Recorder, serve};
use anyhow::Context;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Examples:
  heaptrack mcp                              for the traces of the current folder
  heaptrack mcp ~/traces ~/project           also reads the sources of the project
  heaptrack mcp --allow-record ~/project     the agent may record commands and attach to processes
  claude mcp add heaptrack -- heaptrack mcp ~/project

The agent starts this command by itself. docs/mcp.md has the settings of several agents.

Exit code: 0 when the agent closes the connection; 2 wrong usage, or a folder that cannot be read.";

/// Lets a coding agent ask about traces: a server of the Model Context Protocol on stdin and stdout.
#[derive(Debug, Parser)]
#[command(name = "heaptrack mcp", bin_name = "heaptrack mcp", version, after_help = HELP)]
pub struct Mcp {
    /// Also offer tools that run a command under the recorder, and that attach to a process.
    #[arg(long)]
    pub allow_record: bool,
    /// Only files below these folders are read. Without any: the current folder.
    #[arg(value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
}

pub fn run(options: &Mcp) -> anyhow::Result<ExitCode> {
    let given = if options.folders.is_empty() { &[PathBuf::from(".")][..] } else { &options.folders };
    for folder in given {
        let name = folder.display();
        let metadata = std::fs::metadata(folder).with_context(|| format!("{name} cannot be read"))?;
        anyhow::ensure!(metadata.is_dir(), "{name} is no folder");
    }
    let recorder = match options.allow_record {
        true => Some(Recorder::new(std::env::current_exe().context("heaptrack cannot find its own program")?)),
        false => None,
    };
    let options = Options {
        folders: Folders::new(given).context("a folder cannot be read")?,
        recorder,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    serve(std::io::stdin().lock(), std::io::stdout(), &options).context("the connection to the agent broke")?;
    Ok(ExitCode::SUCCESS)
}
