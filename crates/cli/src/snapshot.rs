//! `heaptrack snapshot PID`: a copy of the trace of a recording that goes on.
//!
//! Receives: the pid of a recorded program, or of the heaptrack that records it. Returns: a finished trace with everything
//! that the recorder has written: it writes a block of events when that is 0.1 s old. Must hold: neither the program nor its recorder notices anything.
use crate::destination::{Content, Destination, named_after};
use crate::trouble::unreadable;
use anyhow::{anyhow, bail};
use clap::Parser;
use format::{Block, FileWriter, Reader};
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Examples:
  heaptrack snapshot 4711                  writes heaptrack.server.4711.snapshot.htz; the recording goes on
  heaptrack snapshot 4711 -o before.htz    and later another one: heaptrack diff before.htz after.htz

Exit code: 0; 2 wrong usage, no recording of that process, or a file that cannot be read or written.";

/// Copies the trace of a program that is being recorded. The recording goes on.
#[derive(Debug, Parser)]
#[command(name = "heaptrack snapshot", bin_name = "heaptrack snapshot", version, after_help = HELP)]
pub struct Snapshot {
    /// The new trace; .htz is added.
    #[arg(short, long, value_name = "OUT", default_value = ".", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The recorded program, or the heaptrack that records it.
    #[arg(value_name = "PID")]
    pub pid: u32,
}

/// The zstd level of the copy: the recorder that takes snapshots by itself shall not compute for long.
const LEVEL: i32 = 1;
const BUFFER: usize = 1 << 18;

/// A trace that is being written.
struct Written {
    /// Leads to the file, also if it has another name by now.
    descriptor: PathBuf,
    /// The name that the file has.
    name: PathBuf,
}

pub fn run(options: &Snapshot) -> anyhow::Result<ExitCode> {
    let written = find(options.pid)?;
    let source = named_after(&written.name, ".snapshot.htz");
    let output = Destination::new(&options.output, &source, Content::Trace, &[&written.name])?;
    let file = File::open(&written.descriptor)?;
    output.write(Content::Trace, |out| copy(file, out).map_err(|error| unreadable(&written.name, &error)))?;
    if !options.quiet {
        let path = output.path();
        crate::say(format_args!("heaptrack: {}", path.strip_prefix(".").unwrap_or(path).display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies all whole blocks of a trace that is being written, and adds an index.
pub fn copy(trace: File, out: &mut dyn Write) -> Result<(), format::Error> {
    let mut source = Reader::new(BufReader::with_capacity(BUFFER, trace))?;
    source.set_all_domains();
    let mut writer = FileWriter::new(out, LEVEL)?;
    while let Some(block) = source.next_block()? {
        writer.write(block)?;
    }
    writer.finish()?;
    Ok(())
}

/// Finds the trace of this process.
fn find(pid: u32) -> anyhow::Result<Written> {
    let proc = Path::new("/proc");
    if !proc.join(pid.to_string()).exists() {
        bail!("there is no process {pid}");
    }
    if let Some(written) = written_by(pid) {
        return Ok(written);
    }
    let entries = fs::read_dir(proc).map_err(|error| anyhow!("/proc cannot be read: {error}"))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut recorders = pids.filter(|other| *other != std::process::id()).filter_map(written_by);
    recorders
        .find(|written| has_process(&written.descriptor, pid))
        .ok_or_else(|| anyhow!("process {pid} is not being recorded into a file, or by another user"))
}

/// The trace that a process is writing, if it is a recorder.
fn written_by(pid: u32) -> Option<Written> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let is_heaptrack =
        fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim_end().starts_with("heaptrac"));
    if !is_heaptrack {
        return None;
    }
    let descriptors = fs::read_dir(folder.join("fd")).ok()?;
    descriptors.flatten().map(|entry| entry.path()).find_map(|descriptor| {
        let name = fs::read_link(&descriptor).ok()?;
        let is_trace = name.extension().is_some_and(|ending| ending == "htz") && is_locked(&descriptor);
        is_trace.then_some(Written { descriptor, name })
    })
}

/// A trace is locked while it is written.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

/// True if the trace is one of this process.
fn has_process(path: &Path, pid: u32) -> bool {
    let Ok(mut source) = Reader::open(path) else { return false };
    while let Ok(Some(block)) = source.next_block() {
        match block.decode() {
            Ok(Block::Session(session)) if session.pid == pid => return true,
            Ok(Block::Processes(processes)) if processes.processes.iter().any(|process| process.pid == pid) => {
                return true;
            }
            _ => (),
        }
    }
    false
}
