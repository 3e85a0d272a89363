//! Counts the whole session of a trace.
use crate::engine::Engine;
use crate::session_report::Report;
use format::RawBlock;

#[derive(Default)]
pub struct Replay(Engine);

impl Replay {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next block of the file.
    pub fn add(&mut self, block: &RawBlock) {
        self.0.add(block);
    }

    pub fn finish(self) -> Report {
        self.0.report_without_index()
    }
}
