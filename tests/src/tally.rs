//! A preloaded library that counts the calls of every process of a tree (`tests/targets/libtally.c`), as the oracle for processes that fork.
use crate::processes::processes;
use crate::targets::target;
use crate::{Folder, Program};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The calls of one program in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calls {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
}

/// The calls of all programs that made any, by pid, sorted.
pub type ByPid = BTreeMap<u32, Vec<Calls>>;

/// The number of rows, and the bytes of each, as the library has them. The first row is the head of the table.
const ROWS: usize = 8191;
const ROW: usize = 32;

pub struct Tally {
    folder: Folder,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    pub fn new() -> Self {
        let folder = Folder::new();
        std::fs::write(folder.join("tally"), vec![0; ROW * (ROWS + 1)]).expect("writable");
        Tally { folder }
    }

    /// The file that all processes map.
    pub fn file(&self) -> PathBuf {
        self.folder.join("tally")
    }

    /// The words of a command that runs another command with the library, which is at `library`.
    pub fn words(&self, library: &Path) -> [String; 3] {
        [
            "/usr/bin/env".into(),
            format!("TALLY_FILE={}", self.file().display()),
            format!("LD_PRELOAD={}", library.display()),
        ]
    }

    /// A program whose calls are counted. heaptrack itself runs without the library.
    pub fn program(&self, path: impl AsRef<OsStr>) -> Program {
        let [env, file, preload] = self.words(&target("libtally.so"));
        Program::new(env).arg(file).arg(preload).arg(path)
    }

    /// What was counted so far.
    pub fn counted(&self) -> ByPid {
        let bytes = std::fs::read(self.file()).expect("the table");
        let mut numbers = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let used = numbers.next().expect("the head") as usize;
        assert!(used <= ROWS, "{used} programs are more than the table has rows");
        let numbers: Vec<u64> = numbers.skip(3).take(4 * used).collect();
        by_pid(
            numbers
                .chunks_exact(4)
                .map(|row| (row[0] as u32, Calls { allocations: row[1], allocated_bytes: row[2], frees: row[3] })),
        )
    }

    /// What the trace has for the same processes. The first program of the tree is `env`, which runs without the library.
    pub fn recorded(trace: &Path) -> ByPid {
        by_pid(processes(trace).into_values().filter(|process| process.index != 0).map(|process| {
            let totals = process.end.expect("its end").totals;
            let calls = Calls {
                allocations: totals.allocations,
                allocated_bytes: totals.allocated_bytes,
                frees: totals.deallocations,
            };
            (process.pid, calls)
        }))
    }
}

fn by_pid(all: impl Iterator<Item = (u32, Calls)>) -> ByPid {
    let mut by_pid = ByPid::new();
    for (pid, calls) in all.filter(|(_, calls)| calls.allocations + calls.frees > 0) {
        by_pid.entry(pid).or_default().push(calls);
    }
    by_pid.values_mut().for_each(|list| list.sort());
    by_pid
}
