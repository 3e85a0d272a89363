//! Reads a trace block by block: finished, growing, truncated or damaged.
//!
//! Bytes that are not a block are skipped up to the next trailer or header with a valid sum, and reported as `Damage`.
//! Memory is bounded by one block; work is bounded by a constant plus a constant times the file's length, whatever its
//! bytes are.
use crate::block::{FLAG_ZSTD, checksum};
use crate::index::{TRAILER_MAGIC, parse_trailer};
use crate::{
    Block, BlockHeader, BlockKind, Domain, Error, FILE_HEADER_LEN, FILE_MAGIC, HEADER_LEN, Index, IndexEntry, RawBlock,
    TRAILER_LEN, VERSION,
};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use zstd::bulk::Decompressor;

/// A place in the file that could not be read, or where blocks are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The offset in the file.
    pub offset: u64,
    /// The number of bytes; 0 if whole blocks are missing between two others.
    pub length: u64,
    pub reason: &'static str,
}

/// The number of damaged places whose offset, length and reason are kept. Further ones are only counted.
const DAMAGE_KEPT: usize = 256;
const READ_STEP: usize = 256 << 10;
const FIRST_STEP: usize = 32 << 10;
/// If the file's header is wrong, a block is searched up to this offset.
const LOST_HEADER: usize = 64 << 10;
/// The reader may hash this many bytes in vain, plus four times the bytes before its position. The limit is needed
/// because one byte may belong to many false blocks.
const WASTE: u64 = 256 << 20;

pub struct Reader<R: Read> {
    input: R,
    /// Bytes that were read but not consumed: `buffer[start..end]`. The first of them is at `offset` in the file.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    wasted: u64,
    version: u32,
    /// The ordinal that the next block should have. `None` if it is not known, after a seek or after damage.
    next_ordinal: Option<u32>,
    decompressor: Decompressor<'static>,
    block: RawBlock,
    finished: bool,
    skipped: &'static [BlockKind],
    /// If this is `None`, blocks of all domains are returned, under their own kinds.
    domain: Option<Domain>,
    /// In the order of `Domain`: whether blocks of it were seen.
    domains: [bool; Domain::ALL.len()],
    /// The offset and the header of the latest block, returned or skipped.
    latest: Option<(u64, BlockHeader)>,
    unknown_blocks: u64,
    damage: Vec<Damage>,
    damage_count: u64,
}

/// What is at the reader's position.
enum Found {
    Block(BlockHeader),
    Trailer,
    /// The file ends here for now, perhaps inside a block.
    End,
    Damaged {
        length: usize,
        reason: &'static str,
    },
}

impl Reader<File> {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Reader::new(File::open(path)?)
    }
}

impl<R: Read> Reader<R> {
    /// Checks the file's header. Returns `Error::Empty` if the file is empty or ends inside an intact header.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut reader = Reader {
            input,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            wasted: 0,
            version: VERSION,
            next_ordinal: Some(0),
            decompressor: Decompressor::new()?,
            block: RawBlock { kind: BlockKind::Session, payload: Vec::new() },
            finished: false,
            skipped: &[],
            domain: Some(Domain::Malloc),
            domains: [false; Domain::ALL.len()],
            latest: None,
            unknown_blocks: 0,
            damage: Vec::new(),
            damage_count: 0,
        };
        reader.file_header()?;
        Ok(reader)
    }

    fn file_header(&mut self) -> Result<(), Error> {
        let whole = self.fill(FILE_HEADER_LEN)?;
        let seen = self.rest().len().min(FILE_MAGIC.len());
        if self.rest()[..seen] != FILE_MAGIC[..seen] {
            return self.lost_header();
        }
        let Some(&[v0, v1, v2, v3]) = self.rest().get(8..12).and_then(|bytes| bytes.first_chunk()).filter(|_| whole)
        else {
            return Err(Error::Empty);
        };
        self.version = u32::from_le_bytes([v0, v1, v2, v3]);
        if self.version > VERSION {
            return Err(Error::Newer(self.version));
        }
        self.consume(FILE_HEADER_LEN);
        Ok(())
    }

    /// The first bytes are wrong. If blocks follow, the file is a trace nevertheless.
    fn lost_header(&mut self) -> Result<(), Error> {
        self.fill(LOST_HEADER)?;
        let limit = self.rest().len().min(LOST_HEADER);
        match self.candidate(0, limit) {
            Some(at) => {
                self.note(at, "the file's header is damaged");
                Ok(())
            }
            None => Err(Error::NotATrace),
        }
    }

    /// Returns the next block, or `None` at the current end. A growing file may have more later.
    pub fn next_block(&mut self) -> Result<Option<&RawBlock>, Error> {
        loop {
            match self.look()? {
                Found::End => return Ok(None),
                Found::Trailer => {
                    self.consume(TRAILER_LEN);
                    self.finished = true;
                }
                Found::Damaged { length, reason } => self.note(length, reason),
                Found::Block(header) => {
                    if self.accept(&header) {
                        return Ok(Some(&self.block));
                    }
                }
            }
        }
    }

    /// Makes the reader only check blocks of these kinds. It neither unpacks nor returns them.
    pub const fn skip(&mut self, kinds: &'static [BlockKind]) {
        self.skipped = kinds;
    }

    /// Makes the reader return only the blocks of this domain and those that all domains share, as if the trace had
    /// nothing else. The default is malloc's domain.
    pub const fn set_domain(&mut self, domain: Domain) {
        self.domain = Some(domain);
    }

    /// Makes the reader return the blocks of all domains. This is for callers that copy blocks.
    pub const fn set_all_domains(&mut self) {
        self.domain = None;
    }

    /// True if blocks of a domain were seen, returned or not.
    pub const fn has(&self, domain: Domain) -> bool {
        self.domains[domain as usize]
    }

    pub(crate) const fn latest(&self) -> Option<(u64, BlockHeader)> {
        self.latest
    }

    /// The version of the format in which the file was written.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// True if the trailer was read, so the writer finished the file.
    pub const fn finished(&self) -> bool {
        self.finished
    }

    /// After `next_block` returned `None`: the number of bytes at the end that are not (yet) a whole block.
    pub const fn unfinished_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The offset of the next block.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Places that could not be read, at most the first 256.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The number of all places that could not be read.
    pub const fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// The number of blocks of kinds that only a later version knows.
    pub const fn unknown_blocks(&self) -> u64 {
        self.unknown_blocks
    }

    fn look(&mut self) -> Result<Found, Error> {
        self.fill(HEADER_LEN)?;
        if self.trailer_at(0) {
            return Ok(Found::Trailer);
        }
        if self.rest().is_empty() {
            return Ok(Found::End);
        }
        let Some(bytes) = self.rest().first_chunk::<HEADER_LEN>() else {
            // Less than a header is left. A growing file may complete it, unless it begins like no block or trailer.
            return Ok(if could_begin_a_block(self.rest()) {
                Found::End
            } else {
                Found::Damaged { length: self.rest().len(), reason: "bytes that are no block" }
            });
        };
        let Some(header) = BlockHeader::decode(bytes) else {
            return self.skip_to_candidate("bytes that are no block");
        };
        if !self.fill(HEADER_LEN + header.stored_len as usize)? {
            return Ok(self.look_inside_tail());
        }
        if !self.sum_is_right(0, &header) {
            if self.may_waste(header.stored_len) {
                return self.skip_to_candidate("a block whose checksum is wrong");
            }
            let length = HEADER_LEN + header.stored_len as usize;
            return Ok(Found::Damaged { length, reason: "a block whose checksum is wrong" });
        }
        Ok(Found::Block(header))
    }

    /// Called if the header claims more bytes than the file has. Returns `Damaged` if a whole block or a trailer is
    /// found in these bytes. Otherwise returns `End`: the file was truncated or is still growing.
    fn look_inside_tail(&mut self) -> Found {
        let mut from = 1;
        while let Some(at) = self.candidate(from, self.rest().len()) {
            if self.trailer_at(at) {
                return Found::Damaged { length: at, reason: "a block that is not whole" };
            }
            let Some(header) = self.header_at(at) else { return Found::End };
            let whole = at + HEADER_LEN + header.stored_len as usize <= self.rest().len();
            if whole && self.sum_is_right(at, &header) {
                return Found::Damaged { length: at, reason: "a block that is not whole" };
            }
            if !self.may_waste(if whole { header.stored_len } else { HEADER_LEN as u32 }) {
                return Found::End;
            }
            from = at + 1;
        }
        Found::End
    }

    /// Returns the damage up to the next place that looks like a block or a trailer, or up to the end of the bytes that
    /// were searched. Reads no further than necessary.
    fn skip_to_candidate(&mut self, reason: &'static str) -> Result<Found, Error> {
        let mut from = 1;
        loop {
            if let Some(at) = self.candidate(from, self.rest().len()) {
                return Ok(Found::Damaged { length: at, reason });
            }
            let have = self.rest().len();
            // A header may begin in the searched bytes and end in the next ones.
            let keep = have.saturating_sub(HEADER_LEN - 1).max(1);
            if have >= READ_STEP {
                return Ok(Found::Damaged { length: keep, reason });
            }
            from = keep;
            if !self.fill(have + 1)? {
                let tail = (1..have).find(|at| could_begin_a_block(&self.rest()[*at..]));
                return Ok(Found::Damaged { length: tail.unwrap_or(have), reason });
            }
        }
    }

    /// Takes a whole block off the buffer. Returns false if the caller must not see it.
    fn accept(&mut self, header: &BlockHeader) -> bool {
        let length = HEADER_LEN + header.stored_len as usize;
        if self.next_ordinal.is_some_and(|expected| expected != header.ordinal) {
            self.note(0, "blocks are missing");
        }
        self.next_ordinal = Some(header.ordinal.wrapping_add(1));
        self.latest = Some((self.offset, *header));
        let Some(kind) = BlockKind::from_number(header.kind) else {
            self.unknown_blocks += 1;
            self.consume(length);
            return false;
        };
        if let Some(domain) = kind.domain() {
            self.domains[domain as usize] = true;
        }
        let seen = match self.domain {
            Some(domain) => kind.in_domain(domain),
            None => Some(kind),
        };
        let Some(kind) = seen.filter(|kind| !self.skipped.contains(kind)) else {
            self.consume(length);
            return false;
        };
        self.block.kind = kind;
        if !self.unpack(header) {
            self.note(length, "a block that cannot be unpacked");
            return false;
        }
        self.consume(length);
        true
    }

    fn unpack(&mut self, header: &BlockHeader) -> bool {
        let from = self.start + HEADER_LEN;
        let stored = &self.buffer[from..from + header.stored_len as usize];
        let raw_len = header.raw_len as usize;
        let payload = &mut self.block.payload;
        payload.clear();
        if header.flags & FLAG_ZSTD == 0 {
            payload.extend_from_slice(stored);
            return payload.len() == raw_len;
        }
        // If the packed data announces the length of its content, the header must agree before memory is reserved.
        let promised = zstd::zstd_safe::get_frame_content_size(stored).ok().flatten();
        if promised.is_some_and(|promised| promised != raw_len as u64) {
            return false;
        }
        payload.reserve(raw_len);
        self.decompressor.decompress_to_buffer(stored, payload).is_ok_and(|len| len == raw_len)
    }

    /// Returns the first position from `from` on, before `limit`, at which there is a trailer or a header with a valid
    /// sum.
    fn candidate(&self, from: usize, limit: usize) -> Option<usize> {
        let rest = self.rest();
        let mut at = from;
        while at < limit {
            at += rest[at..limit].iter().position(|byte| *byte == TRAILER_MAGIC[0])?;
            if self.trailer_at(at) || self.header_at(at).is_some() {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    fn header_at(&self, at: usize) -> Option<BlockHeader> {
        BlockHeader::decode(self.rest().get(at..)?.first_chunk()?)
    }

    fn trailer_at(&self, at: usize) -> bool {
        self.rest().get(at..).and_then(|rest| rest.first_chunk()).is_some_and(|bytes| parse_trailer(bytes).is_some())
    }

    fn sum_is_right(&self, at: usize, header: &BlockHeader) -> bool {
        let Some(rest) = self.rest().get(at..) else { return false };
        let Some((head, rest)) = rest.split_first_chunk() else { return false };
        rest.get(..header.stored_len as usize).is_some_and(|stored| checksum(head, stored) == header.checksum)
    }

    fn may_waste(&mut self, bytes: u32) -> bool {
        self.wasted += bytes as u64;
        self.wasted < WASTE + 4 * self.offset
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
        if self.start == self.end {
            self.end = 0;
            self.start = 0;
        }
    }

    /// Skips `length` bytes and notes the damage; adjacent places become one.
    fn note(&mut self, length: usize, reason: &'static str) {
        let offset = self.offset;
        self.consume(length);
        if length > 0 {
            // The skipped bytes are reported already, so the gap in the ordinals must not be reported again.
            self.next_ordinal = None;
        }
        if let Some(last) = self.damage.last_mut()
            && last.offset + last.length == offset
        {
            last.length += length as u64;
            return;
        }
        self.damage_count += 1;
        if self.damage.len() < DAMAGE_KEPT {
            self.damage.push(Damage { offset, length: length as u64, reason });
        }
    }

    /// Reads until `wanted` bytes are there. Returns false if the input ends before that.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.rest().len() < wanted {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            // Files can be small, so the first step is small too.
            let step = self.buffer.len().clamp(FIRST_STEP, READ_STEP);
            if self.buffer.len() < self.end + step {
                self.buffer.resize(self.end + step, 0);
            }
            let read = loop {
                match self.input.read(&mut self.buffer[self.end..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            self.end += read;
            if read == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Goes to the header of a block, for instance of an `IndexEntry`.
    pub fn seek(&mut self, offset: u64) -> Result<(), Error> {
        self.input.seek(SeekFrom::Start(offset))?;
        (self.start, self.end) = (0, 0);
        self.offset = offset;
        self.next_ordinal = None;
        Ok(())
    }

    /// Returns the index of a finished file, or `None` if there is none that can be trusted. The reader's position
    /// stays.
    pub fn index(&mut self) -> Result<Option<Index>, Error> {
        let place = self.offset;
        let index = self.read_index();
        self.seek(place)?;
        index
    }

    /// Returns where each block is, as far as the headers are valid: an index of a file that has none. Reads only the
    /// headers, so sequence numbers and times are 0, and the blocks themselves may be damaged. The reader's position
    /// stays.
    pub fn headers(&mut self) -> Result<Index, Error> {
        let place = self.offset;
        let mut index = Index::default();
        let mut offset = FILE_HEADER_LEN as u64;
        loop {
            self.seek(offset)?;
            if !self.fill(HEADER_LEN)? {
                break;
            }
            if self.trailer_at(0) {
                offset += TRAILER_LEN as u64;
                continue;
            }
            let Some(BlockHeader { kind, raw_len, stored_len, .. }) = self.header_at(0) else { break };
            index.entries.push(IndexEntry { kind, offset, raw_len, stored_len, ..IndexEntry::default() });
            offset += HEADER_LEN as u64 + stored_len as u64;
        }
        self.seek(place)?;
        Ok(index)
    }

    fn read_index(&mut self) -> Result<Option<Index>, Error> {
        let length = self.input.seek(SeekFrom::End(0))?;
        let Some(at) = length.checked_sub(TRAILER_LEN as u64) else { return Ok(None) };
        self.seek(at)?;
        if !self.fill(TRAILER_LEN)? {
            return Ok(None);
        }
        let Some(offset) = self.rest().first_chunk().and_then(parse_trailer).filter(|offset| *offset < at) else {
            return Ok(None);
        };
        self.seek(offset)?;
        let Found::Block(header) = self.look()? else { return Ok(None) };
        if header.kind != BlockKind::Index as u8 || !self.unpack(&header) {
            return Ok(None);
        }
        self.latest = Some((offset, header));
        self.block.kind = BlockKind::Index;
        match self.block.decode() {
            Ok(Block::Index(index)) => Ok(Some(index)),
            _ => Ok(None),
        }
    }
}

/// True if the bytes can be the beginning of a block or of the trailer in a truncated file.
fn could_begin_a_block(bytes: &[u8]) -> bool {
    let magics: [&[u8]; 2] = [&crate::block::MAGIC, &TRAILER_MAGIC];
    magics.iter().any(|magic| {
        let length = bytes.len().min(magic.len());
        bytes[..length] == magic[..length]
    })
}
