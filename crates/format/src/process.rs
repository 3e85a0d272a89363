//! The processes of a recording that follows a tree of processes (`--follow`).
//!
//! All processes share one order of events, one table of stacks, and one numbering of threads. A thread belongs to one
//! process. A trace of a single process has no such block.
use crate::wire::{Cursor, put, put_str, unzigzag, zigzag};
use crate::{BlockKind, Exit, Malformed, RawBlock, Totals};

/// One program that ran in one process. If a process replaces its program with `exec`, the new program is another entry
/// with the same pid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Numbered from 0 without gaps.
    pub index: u32,
    pub pid: u32,
    /// The index of the process that started it, or whose program it replaced.
    pub parent: Option<u32>,
    pub start: ProcessStart,
    pub command: Vec<String>,
    /// The path of the program's file. Empty if it is not known.
    pub exe: String,
    pub start_ns: u64,
    /// Allocations and frees of all kinds in malloc's domain before it started. If it was forked, it holds from there on
    /// what its parent held.
    pub events_before: u64,
    pub inherited_allocations: u64,
    pub inherited_bytes: u64,
    /// Why its part of the trace ends early or is missing, as a sentence. Empty if it is complete.
    pub note: String,
    /// `None` while it runs.
    pub end: Option<ProcessEnd>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessStart {
    /// We launched it.
    #[default]
    Launched,
    /// It was running already.
    Attached,
    /// Its parent forked, and it runs the same program.
    Forked,
    /// Its parent started a new process that runs another program.
    Spawned,
    /// It replaced the program of its parent with `exec`, in the same process.
    Executed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnd {
    pub at_ns: u64,
    /// True if it was replaced with `exec`. `exit` is then unknown.
    pub by_exec: bool,
    pub exit: Exit,
    /// Counts its own calls. What is leaked, and the peak, include only what it holds. A block that it inherited counts
    /// in its peak until it frees it, and is never leaked by it.
    pub totals: Totals,
}

/// Processes that are new or have changed, and threads that are new. A process written again with the same index
/// replaces the earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    pub processes: Vec<Process>,
    /// Pairs of a thread and its process, as indexes.
    pub threads: Vec<(u32, u32)>,
}

impl ProcessStart {
    const ALL: [ProcessStart; 5] = [
        ProcessStart::Launched,
        ProcessStart::Attached,
        ProcessStart::Forked,
        ProcessStart::Spawned,
        ProcessStart::Executed,
    ];

    fn from_number(number: u8) -> Result<Self, Malformed> {
        Self::ALL.into_iter().find(|start| *start as u8 == number).ok_or(Malformed::Tag)
    }
}

impl Process {
    /// The base name of the command's first word, or of the program's file. Empty if neither is known.
    pub fn name(&self) -> &str {
        let names = [self.command.first().map_or("", |word| base_name(word)), base_name(&self.exe)];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// Whether the program's file or the command's first word has this base name.
    pub fn is_called(&self, name: &str) -> bool {
        base_name(&self.exe) == name || self.command.first().is_some_and(|word| base_name(word) == name)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.index as u64);
        put(out, self.pid as u64);
        put(out, self.parent.map_or(0, |parent| parent as u64 + 1));
        out.push(self.start as u8);
        put(out, self.command.len() as u64);
        self.command.iter().for_each(|word| put_str(out, word));
        put_str(out, &self.exe);
        for value in [self.start_ns, self.events_before, self.inherited_allocations, self.inherited_bytes] {
            put(out, value);
        }
        put_str(out, &self.note);
        out.push(self.end.is_some() as u8);
        if let Some(end) = &self.end {
            put(out, end.at_ns);
            out.push(end.by_exec as u8);
            end.exit.put(out);
            end.totals.put(out);
        }
    }

    fn get(cursor: &mut Cursor) -> Result<Self, Malformed> {
        let (index, pid) = (cursor.u32()?, cursor.u32()?);
        let parent = cursor.u32()?.checked_sub(1);
        let start = ProcessStart::from_number(cursor.byte()?)?;
        let command = cursor.list(Cursor::str)?;
        let exe = cursor.str()?;
        let [start_ns, events_before, inherited_allocations, inherited_bytes] = cursor.numbers()?;
        let note = cursor.str()?;
        let end = match cursor.bool()? {
            false => None,
            true => Some(ProcessEnd {
                at_ns: cursor.u64()?,
                by_exec: cursor.bool()?,
                exit: Exit::get(cursor)?,
                totals: Totals::get(cursor)?,
            }),
        };
        Ok(Process {
            index,
            pid,
            parent,
            start,
            command,
            exe,
            start_ns,
            events_before,
            inherited_allocations,
            inherited_bytes,
            note,
            end,
        })
    }
}

/// The part of a path after its last slash.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Processes {
    pub const fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.threads.is_empty()
    }

    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.processes.len() as u64);
        self.processes.iter().for_each(|process| process.put(&mut out));
        put(&mut out, self.threads.len() as u64);
        let mut last = 0;
        for (thread, process) in &self.threads {
            put(&mut out, zigzag(*thread as i64 - last));
            put(&mut out, *process as u64);
            last = *thread as i64;
        }
        RawBlock { kind: BlockKind::Processes, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let processes = cursor.list(Process::get)?;
        let mut last = 0i64;
        let threads = cursor.list(|cursor| {
            last = last.wrapping_add(unzigzag(cursor.u64()?));
            Ok((u32::try_from(last).map_err(|_| Malformed::Overflow)?, cursor.u32()?))
        })?;
        cursor.end()?;
        Ok(Processes { processes, threads })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn processes() -> Processes {
        let totals = Totals { allocations: 3, leaked_bytes: 1 << 40, ..Totals::default() };
        let end = ProcessEnd { at_ns: 9, by_exec: false, exit: Exit::Signal(9), totals };
        let root = Process { pid: 100, command: vec!["make".into(), "-j2".into()], ..Process::default() };
        let child = Process {
            index: 1,
            pid: 101,
            parent: Some(0),
            start: ProcessStart::Forked,
            exe: "/bin/sh".into(),
            start_ns: 5,
            events_before: 77,
            inherited_allocations: 4,
            inherited_bytes: 400,
            note: "It entered a sandbox.".into(),
            end: Some(end),
            ..Process::default()
        };
        Processes { processes: vec![root, child], threads: vec![(7, 1), (2, 0), (u32::MAX, 1)] }
    }

    #[test]
    fn a_block_of_processes_is_read_as_it_was_written() {
        let block = processes().to_block();
        assert_eq!(Processes::decode(&block.payload).unwrap(), processes());
        for length in 0..block.payload.len() {
            assert!(Processes::decode(&block.payload[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_process_is_called_as_its_command_or_its_program() {
        let process = Process { command: vec!["./configure".into()], exe: "/bin/dash".into(), ..Process::default() };
        assert_eq!(process.name(), "configure");
        assert!(process.is_called("configure") && process.is_called("dash") && !process.is_called("bin"));
        let process = Process { exe: "/bin/dash".into(), ..Process::default() };
        assert_eq!((process.name(), Process::default().name()), ("dash", ""));
    }

    #[test]
    fn every_start_has_its_number() {
        for start in ProcessStart::ALL {
            assert_eq!(ProcessStart::from_number(start as u8), Ok(start));
        }
        assert_eq!(ProcessStart::from_number(5), Err(Malformed::Tag));
    }
}
