//! Blocks of events a second time, for questions that need them.
//!
//! Given: an open trace and where its blocks stand. Gives back: any of them. What must hold: many questions may read at once; a file that was
//! deleted or renamed since is still the one that was opened.
use analysis::Blocks;
use format::{BlockKind, Domain, RawBlock, Reader};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file with a place of its own, although the file is shared.
pub struct Shared {
    file: Arc<File>,
    at: u64,
}

impl Shared {
    pub const fn new(file: Arc<File>) -> Self {
        Shared { file, at: 0 }
    }
}

impl Read for Shared {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Shared {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let length = || self.file.metadata().map(|metadata| metadata.len());
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => length()?.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Where blocks of events are had again.
pub enum EventBlocks {
    /// Ours: they stand in the file, at these places.
    Places(Vec<u64>),
    /// KDE's, which are translated while they are read.
    Memory(Arc<Vec<RawBlock>>),
}

/// Blocks that are kept.
pub struct MemoryBlocks(pub Arc<Vec<RawBlock>>);

impl Blocks for MemoryBlocks {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        self.0.get(number)
    }
}

/// Reads blocks of events by their number.
pub struct FileBlocks {
    reader: Reader<Shared>,
    places: Arc<[u64]>,
}

impl FileBlocks {
    /// `places`: where to start reading for each block of events.
    pub fn new(file: Arc<File>, domain: Domain, places: Arc<[u64]>) -> Result<Self, format::Error> {
        let mut reader = Reader::new(Shared::new(file))?;
        reader.set_domain(domain);
        Ok(FileBlocks { reader, places })
    }
}

impl Blocks for FileBlocks {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        let place = *self.places.get(number)?;
        if self.reader.offset() != place {
            self.reader.seek(place).ok()?;
        }
        self.reader.next_block().ok()?.filter(|block| block.kind == BlockKind::Events)
    }
}
