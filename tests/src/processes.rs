//! The processes of a trace, as the recorder has written them.
use format::{Block, Process, ProcessEnd, Reader};
use std::collections::BTreeMap;
use std::path::Path;

/// The processes of a trace, by index.
pub fn processes(trace: &Path) -> BTreeMap<u32, Process> {
    let mut reader = Reader::open(trace).expect("a trace");
    let mut all = BTreeMap::new();
    while let Some(block) = reader.next_block().expect("a whole trace") {
        if let Ok(Block::Processes(processes)) = block.decode() {
            all.extend(processes.processes.into_iter().map(|process| (process.index, process)));
        }
    }
    all
}

/// What a program says about itself, in the words of `tests/targets/family.c`.
pub fn counts(process: &Process, end: &ProcessEnd) -> String {
    let totals = &end.totals;
    format!(
        "pid={} end={} allocations={} bytes={} frees={} left={} left_bytes={} peak={} inherited={} inherited_bytes={}",
        process.pid,
        if end.by_exec { "exec" } else { "exit" },
        totals.allocations,
        totals.allocated_bytes,
        totals.deallocations,
        totals.leaked_allocations,
        totals.leaked_bytes,
        totals.peak_bytes,
        process.inherited_allocations,
        process.inherited_bytes
    )
}
