//! Reads blocks of events a second time, for questions that need them.
//!
//! Receives: an open file and what the first pass remembered about its blocks. Returns: any block of events, by its
//! number. Must hold: many readers can read the same file at once.
use crate::shared_bytes::SharedBytes;
use crate::trace_file::TraceFile;
use analysis::Blocks;
use format::{BlockKind, Error, RawBlock, Reader, Source};
use std::path::PathBuf;
use std::sync::Arc;

/// How blocks of events are found again.
pub(crate) enum EventBlocks {
    /// Our files: the position of each block of events.
    Places(Vec<u64>),
    /// KDE's files, when many questions are expected: the translated blocks.
    Memory(Arc<[RawBlock]>),
    /// KDE's files, when few questions are expected: the file is translated again for each question.
    Stream,
}

/// Reads blocks of events by their number.
pub struct EventBlockReader(Kind);

enum Kind {
    Places { reader: Box<Reader<SharedBytes>>, places: Vec<u64> },
    Memory(Arc<[RawBlock]>),
    Stream { path: PathBuf, source: Option<Source>, next: usize },
}

impl EventBlockReader {
    pub(crate) fn new(file: &TraceFile, blocks: &EventBlocks) -> Result<Self, Error> {
        Ok(EventBlockReader(match blocks {
            EventBlocks::Places(places) => {
                let mut reader = Box::new(Reader::new(file.reader())?);
                reader.set_domain(file.domain());
                Kind::Places { reader, places: places.clone() }
            }
            EventBlocks::Memory(blocks) => Kind::Memory(Arc::clone(blocks)),
            EventBlocks::Stream => Kind::Stream { path: file.pinned()?.to_owned(), source: None, next: 0 },
        }))
    }
}

impl EventBlockReader {
    /// The number of blocks of events. `None` if it is not known, because the file is translated again.
    pub fn count(&self) -> Option<usize> {
        match &self.0 {
            Kind::Places { places, .. } => Some(places.len()),
            Kind::Memory(blocks) => Some(blocks.len()),
            Kind::Stream { .. } => None,
        }
    }
}

impl Blocks for EventBlockReader {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        match &mut self.0 {
            Kind::Places { reader, places } => {
                let place = *places.get(number)?;
                if reader.offset() != place {
                    reader.seek(place).ok()?;
                }
                reader.next_block().ok()?.filter(|block| block.kind == BlockKind::Events)
            }
            Kind::Memory(blocks) => blocks.get(number),
            Kind::Stream { path, source, next } => {
                if source.is_none() || number < *next {
                    *source = Some(Source::open(path).ok()?);
                    *next = 0;
                }
                let source = source.as_mut()?;
                while *next < number {
                    next_events(source)?;
                    *next += 1;
                }
                *next += 1;
                next_events(source)
            }
        }
    }
}

fn next_events(source: &mut Source) -> Option<&RawBlock> {
    source.skip(&BlockKind::NOT_EVENTS);
    source.next_block().ok()?
}
