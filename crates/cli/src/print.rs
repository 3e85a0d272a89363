//! `heaptrack print`: a trace as text for people or JSON for machines, on stdout.
//!
//! Works on what is there: a finished trace, one that is being written, one that was cut or damaged. What was lost is
//! said in the output; only a file that is no trace at all is an error (one sentence, exit code 2).
mod json;
mod text;

use analysis::{Lookup, Replay, Report};
use format::{Damage, Reader};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// Wrong usage or bad file.
const BAD_FILE: u8 = 2;

/// A replayed trace and how well its file could be read.
pub struct Trace {
    pub report: Report,
    pub damage: Vec<Damage>,
    pub damage_count: u64,
    /// The writer came to its end.
    pub finished: bool,
}

impl Trace {
    pub fn open(path: &Path) -> Result<Self, format::Error> {
        let mut reader = open(path)?;
        let mut replay = Replay::new();
        while let Some(block) = reader.next_block()? {
            replay.add(block);
        }
        Ok(Trace {
            report: replay.finish(),
            damage: reader.damage().to_vec(),
            damage_count: reader.damage_count(),
            finished: reader.finished(),
        })
    }

    /// All that happened is in the report.
    pub fn complete(&self) -> bool {
        let ended = self.report.summary.is_some_and(|summary| summary.complete);
        ended && self.finished && self.damage_count == 0 && self.report.faults.is_empty()
    }
}

/// `event`: only the n-th allocation of the trace, from 1.
pub fn run(path: &Path, as_json: bool, event: Option<u64>) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = match event {
        Some(number) => match find(path, number) {
            Ok(Some(allocation)) => json::allocation(&mut out, &allocation),
            Ok(None) => return Ok(refuse(path, &format!("it has no allocation number {number}"))),
            Err(error) => return Ok(refuse(path, &error.to_string())),
        },
        None => match Trace::open(path) {
            Ok(trace) if as_json => json::report(&mut out, &trace),
            Ok(trace) => text::report(&mut out, &trace),
            Err(error) => return Ok(refuse(path, &error.to_string())),
        },
    };
    match written.and_then(|()| out.flush()) {
        // `heaptrack print | head` is no mistake.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // What is left in the buffer has no reader.
            drop(out.into_parts());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error.into()),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn find(path: &Path, number: u64) -> Result<Option<analysis::Allocation>, format::Error> {
    let Some(sequence) = number.checked_sub(1) else { return Ok(None) };
    let mut reader = open(path)?;
    let mut lookup = Lookup::new(sequence);
    while let Some(block) = reader.next_block()? {
        // A malformed block is as good as a lost one here.
        lookup.add(block).ok();
    }
    Ok(lookup.finish())
}

/// A pipe or a terminal would be waited for without end, a folder says so only when it is read.
fn open(path: &Path) -> Result<Reader<File>, format::Error> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    Reader::new(file)
}

fn refuse(path: &Path, reason: &str) -> ExitCode {
    // Nobody can be told if stderr is closed.
    let reason = reason.split(" (os error").next().unwrap_or(reason);
    writeln!(io::stderr(), "heaptrack: cannot read {}: {reason}", path.display()).ok();
    ExitCode::from(BAD_FILE)
}
