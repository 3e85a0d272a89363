//! Adds blocks to an existing trace.
//!
//! Receives: a file that no other process writes to. Returns: the same file, longer. Must hold: every byte that could
//! be read before can be read at every moment after; a finished file stays finished.
use crate::{
    BlockHeader, BlockKind, Error, FILE_HEADER_LEN, FileWriter, HEADER_LEN, Index, IndexEntry, RawBlock, Reader,
    TRAILER_LEN,
};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

const LEVEL: i32 = 1;
/// The length of an index entry in bytes, for an estimate. Entries are rarely longer.
const ENTRY_LEN: u64 = 24;

/// The end of a file, where more blocks can be added.
pub(crate) struct End {
    pub(crate) offset: u64,
    pub(crate) ordinal: u32,
    pub(crate) index: Index,
    /// True if a trailer was written at any time.
    finished: bool,
}

pub struct Appender {
    writer: FileWriter<File>,
    finished: bool,
}

impl Appender {
    /// `file` must be open for reading and writing.
    pub fn new(mut file: File) -> Result<Self, Error> {
        let end = match by_footer(&file)? {
            Some(end) => end,
            None => by_walk(&file)?,
        };
        // This drops only bytes that no reader could use: the beginning of a block whose writer was killed.
        file.set_len(end.offset)?;
        file.seek(SeekFrom::Start(end.offset))?;
        let finished = end.finished;
        Ok(Appender { writer: FileWriter::behind(file, LEVEL, end)?, finished })
    }

    pub fn write(&mut self, block: &RawBlock) -> io::Result<u64> {
        let whole = self.writer.len();
        let written = self.writer.write(block);
        if written.is_err() {
            // The write failed, for example because the disk is full. Cut off what was written, so that the file ends
            // as it did before.
            let _ = self.writer.get_ref().set_len(whole);
        }
        written
    }

    /// Estimates the length of the finished file if this block were its last. The estimate is too low only if index
    /// entries are longer than `ENTRY_LEN`.
    pub fn len_with(&mut self, block: &RawBlock) -> u64 {
        let footer = (self.writer.entries().len() as u64 + 2) * ENTRY_LEN + (HEADER_LEN + TRAILER_LEN) as u64;
        self.writer.len() + self.writer.packed_len(block).unwrap_or(block.payload.len() as u64) + footer
    }

    /// Writes a new index and trailer, if the file ever had a trailer.
    pub fn finish(self) -> io::Result<()> {
        let whole = self.writer.len();
        let file = self.writer.get_ref().try_clone()?;
        if self.finished {
            self.writer.finish().inspect_err(|_| drop(file.set_len(whole)))?;
        }
        Ok(())
    }
}

fn again(file: &File) -> Result<Reader<File>, Error> {
    let mut again = file.try_clone()?;
    again.seek(SeekFrom::Start(0))?;
    Reader::new(again)
}

fn by_footer(file: &File) -> Result<Option<End>, Error> {
    let mut reader = again(file)?;
    let Some(index) = reader.index()? else { return Ok(None) };
    let Some((_, BlockHeader { ordinal, .. })) = reader.latest() else { return Ok(None) };
    let offset = file.metadata()?.len();
    Ok(Some(End { offset, ordinal: ordinal.wrapping_add(1), index, finished: true }))
}

fn by_walk(file: &File) -> Result<End, Error> {
    let mut reader = again(file)?;
    reader.set_all_domains();
    let mut index = Index::default();
    let mut ordinal = 0;
    while let Some(block) = reader.next_block()? {
        let kind = block.kind;
        let (sequence, time_ns) = block.first_event();
        let Some((offset, header)) = reader.latest() else { continue };
        ordinal = header.ordinal.wrapping_add(1);
        if kind != BlockKind::Index {
            let BlockHeader { raw_len, stored_len, .. } = header;
            index.entries.push(IndexEntry { kind: kind as u8, offset, raw_len, stored_len, sequence, time_ns });
        }
    }
    let offset = reader.offset().max(FILE_HEADER_LEN as u64);
    Ok(End { offset, ordinal, index, finished: reader.finished() })
}
