//! A table of events: a row for each allocation and each free.
//!
//! Receives: events, in the order of the file. Must hold: the columns are a contract with scripts, as in `sites.rs`. The
//! column `site` refers to the table of stacks of the same trace.
use crate::table::{Cell, TableFormat, TableWriter};
use analysis::{BlockEvent, BlockEventKind, Definitions};
use std::io::{self, Write};

const COLUMNS: [&str; 9] = ["time_ns", "event", "block", "size", "site", "thread", "tid", "lifetime_ns", "temporary"];

pub struct EventTable<'a> {
    definitions: &'a Definitions,
    table: TableWriter<'a>,
    /// The first error. Nothing is written after it.
    failed: Option<io::Error>,
}

impl<'a> EventTable<'a> {
    pub fn new(definitions: &'a Definitions, format: TableFormat, out: &'a mut dyn Write) -> io::Result<Self> {
        Ok(EventTable { definitions, table: TableWriter::new(format, &COLUMNS, out)?, failed: None })
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
        ];
        self.failed = self.table.row(&cells).err();
    }

    pub fn finish(self) -> io::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}
