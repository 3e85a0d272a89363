//! The blocks of events of a file once more, for questions that walk them again.
use analysis::Blocks;
use format::{BlockKind, Domain, RawBlock, Reader, Source};
use std::fs::File;
use std::path::{Path, PathBuf};

pub enum EventBlockReader {
    /// Ours: every block can be gone to.
    Places { reader: Box<Reader<File>>, places: Vec<u64> },
    /// KDE's: from the start, each time.
    Stream { path: PathBuf, source: Option<Source>, next: usize },
}

impl EventBlockReader {
    /// `places`: where each block of events begins in one of our files.
    pub fn new(path: &Path, domain: Domain, places: Option<Vec<u64>>) -> Result<Self, format::Error> {
        Ok(match places {
            Some(places) => {
                let mut reader = Box::new(Reader::open(path)?);
                reader.set_domain(domain);
                EventBlockReader::Places { reader, places }
            }
            None => EventBlockReader::Stream { path: path.to_owned(), source: None, next: 0 },
        })
    }
}

impl Blocks for EventBlockReader {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        match self {
            EventBlockReader::Places { reader, places } => {
                let place = *places.get(number)?;
                if reader.offset() != place {
                    reader.seek(place).ok()?;
                }
                reader.next_block().ok()?.filter(|block| block.kind == BlockKind::Events)
            }
            EventBlockReader::Stream { path, source, next } => {
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
    source.skip(EVERYTHING_ELSE);
    source.next_block().ok()?
}

const EVERYTHING_ELSE: &[BlockKind] = &[
    BlockKind::Session,
    BlockKind::Suppressions,
    BlockKind::Modules,
    BlockKind::Threads,
    BlockKind::Stacks,
    BlockKind::AllocClasses,
    BlockKind::Samples,
    BlockKind::Losses,
    BlockKind::Unseen,
    BlockKind::Gone,
    BlockKind::Checkpoint,
    BlockKind::Symbols,
    BlockKind::Summary,
    BlockKind::Index,
];
