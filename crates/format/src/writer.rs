//! Writes blocks to a file, one after the other, and the index at the end.
use crate::append::End;
use crate::block::FLAG_ZSTD;
use crate::index::trailer;
use crate::{
    BlockHeader, FILE_HEADER_LEN, FILE_MAGIC, HEADER_LEN, Index, IndexEntry, MAX_RAW, RawBlock, TRAILER_LEN, VERSION,
};
use std::io::{self, Write};
use zstd::bulk::Compressor;

/// Each block is written with one `write_all`, so that a reader of the growing file rarely sees half of one.
pub struct FileWriter<W: Write> {
    out: W,
    compressor: Compressor<'static>,
    buffer: Vec<u8>,
    offset: u64,
    ordinal: u32,
    index: Index,
}

impl<W: Write> FileWriter<W> {
    /// Writes the file's header. `level` is zstd's compression level, 1 while recording.
    pub fn new(mut out: W, level: i32) -> io::Result<Self> {
        let mut header = [0; FILE_HEADER_LEN];
        header[..8].copy_from_slice(&FILE_MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out.write_all(&header)?;
        Ok(FileWriter {
            out,
            compressor: Compressor::new(level)?,
            buffer: Vec::new(),
            offset: FILE_HEADER_LEN as u64,
            ordinal: 0,
            index: Index::default(),
        })
    }

    /// Continues after a writer that ended or was killed. Nothing in the file changes: its old index and trailer stay.
    /// Until `finish` has written new ones, a reader goes from block to block and finds the old blocks and the new
    /// ones. The caller has cut off an incomplete block at the end of the file.
    pub(crate) fn behind(out: W, level: i32, end: End) -> io::Result<Self> {
        let End { offset, ordinal, index, .. } = end;
        Ok(FileWriter { out, compressor: Compressor::new(level)?, buffer: Vec::new(), offset, ordinal, index })
    }

    /// Returns the number of bytes that the block takes in the file. After an error the file may end in half a block,
    /// so nothing more may be written.
    pub fn write(&mut self, block: &RawBlock) -> io::Result<u64> {
        if block.payload.len() > MAX_RAW {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a block of more than 64 MiB"));
        }
        let stored_len = self.compress(block)?;
        let entry = self.entry(block, stored_len);
        self.index.entries.push(entry);
        self.out.write_all(&self.buffer)?;
        self.ordinal = self.ordinal.wrapping_add(1);
        let written = self.buffer.len() as u64;
        self.offset += written;
        Ok(written)
    }

    /// The number of bytes that the block would take in the file.
    pub fn packed_len(&mut self, block: &RawBlock) -> io::Result<u64> {
        self.compress(block)?;
        Ok(self.buffer.len() as u64)
    }

    /// The places of all blocks so far.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.index.entries
    }

    /// The length of the file so far.
    pub const fn len(&self) -> u64 {
        self.offset
    }

    pub const fn is_empty(&self) -> bool {
        self.ordinal == 0
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub fn get_ref(&self) -> &W {
        &self.out
    }

    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the index and the trailer: the file is finished. If the index is larger than `MAX_RAW`, both are left
    /// out.
    pub fn finish(mut self) -> io::Result<W> {
        let offset = self.offset;
        let index = self.index.to_block();
        if index.payload.len() <= MAX_RAW {
            self.write(&index)?;
            self.out.write_all(&trailer(offset))?;
            self.offset += TRAILER_LEN as u64;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Fills `buffer` with the header and the stored bytes. Bytes that do not shrink are stored uncompressed. Returns
    /// the number of stored bytes.
    fn compress(&mut self, block: &RawBlock) -> io::Result<u32> {
        let raw = &block.payload;
        self.buffer.clear();
        self.buffer.resize(HEADER_LEN + zstd::zstd_safe::compress_bound(raw.len()), 0);
        let packed = self.compressor.compress_to_buffer(raw, &mut self.buffer[HEADER_LEN..])?;
        let shrinks = packed < raw.len();
        if shrinks {
            self.buffer.truncate(HEADER_LEN + packed);
        } else {
            self.buffer.truncate(HEADER_LEN);
            self.buffer.extend_from_slice(raw);
        }
        let (header, stored) = self.buffer.split_at_mut(HEADER_LEN);
        let fields = BlockHeader {
            kind: block.kind as u8,
            flags: if shrinks { FLAG_ZSTD } else { 0 },
            raw_len: raw.len() as u32,
            stored_len: stored.len() as u32,
            ordinal: self.ordinal,
            checksum: 0,
        };
        header.copy_from_slice(&fields.encode(stored));
        Ok(fields.stored_len)
    }

    fn entry(&self, block: &RawBlock, stored_len: u32) -> IndexEntry {
        let (sequence, time_ns) = block.first_event();
        IndexEntry {
            kind: block.kind as u8,
            offset: self.offset,
            raw_len: block.payload.len() as u32,
            stored_len,
            sequence,
            time_ns,
        }
    }
}
