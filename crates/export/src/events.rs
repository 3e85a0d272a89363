//! A table of events: a row for each allocation and each free.
//!
//! Receives: events, in the order of the file. Must hold: the columns are a contract with scripts, as in `sites.rs`. The
//! column `site` refers to the table of stacks of the same trace.
use crate::table::{Cell, TableFormat, TableWriter};
use analysis::{BlockEvent, BlockEventKind, Definitions};
use std::io::{self, Write};

const COLUMNS: [&str; 11] =
    ["time_ns", "event", "block", "size", "site", "thread", "tid", "lifetime_ns", "temporary", "process", "allocator"];

pub struct EventTable<'a> {
    definitions: &'a Definitions,
    /// The names of the allocators; empty if the program reported the blocks itself.
    allocators: Vec<&'a str>,
    table: TableWriter<'a>,
    /// The first error. Nothing is written after it.
    failed: Option<io::Error>,
}

impl<'a> EventTable<'a> {
    /// `is_malloc`: the blocks are of an allocator, and not reported by the program.
    pub fn new(
        definitions: &'a Definitions,
        is_malloc: bool,
        format: TableFormat,
        out: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let allocators = definitions.allocators().filter(|_| is_malloc).collect();
        Ok(EventTable { definitions, allocators, table: TableWriter::new(format, &COLUMNS, out)?, failed: None })
    }

    pub fn add(&mut self, event: &BlockEvent) {
        if self.failed.is_some() {
            return;
        }
        let tid = self.definitions.threads.get(&event.thread).map(|thread| thread.tid as u64);
        let lifetime = (event.kind != BlockEventKind::Alloc).then(|| event.time_ns.saturating_sub(event.born_ns));
        let cells = [
            Cell::Number(event.time_ns),
            Cell::Text(event.kind.name()),
            Cell::Number(event.sequence),
            Cell::Number(event.size),
            Cell::Number(event.site as u64),
            Cell::Number(event.thread as u64),
            Cell::number(tid),
            Cell::number(lifetime),
            match event.kind {
                BlockEventKind::Free { temporary } => Cell::Bool(temporary),
                _ => Cell::Unknown,
            },
            Cell::number(self.definitions.process_of(event.thread).map(|(pid, _)| pid.into())),
            Cell::text(self.allocators.get(event.allocator).copied()),
        ];
        self.failed = self.table.row(&cells).err();
    }

    pub fn finish(self) -> io::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}
