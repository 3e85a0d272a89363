//! A trace of any format that can be read: ours, or KDE's.
//!
//! Receives: a file. Returns: blocks. Must hold: the format is recognised by the first bytes, never by the name; the
//! blocks of all formats are of the same kinds.
use crate::kde::{KdeAhead, KdeCounts, KdeReader, Shorten, Wanted, is_packed, is_text};
use crate::{BlockKind, Damage, Domain, Error, RawBlock, Reader};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

pub struct Source<R: Read = File> {
    file: AnyReader<R>,
    /// Blocks that are returned after those of the file.
    more: VecDeque<RawBlock>,
    block: RawBlock,
    skipped: &'static [BlockKind],
}

enum AnyReader<R: Read> {
    Own(Box<Reader<R>>),
    Kde(Box<KdeReader<R>>),
    /// Translated by threads of its own, because the text is large compared with its content.
    KdeAhead(KdeAhead),
}

impl Source {
    /// Refuses anything but a regular file: a pipe or a terminal could block for ever, and a folder fails only when it
    /// is read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_as(path.as_ref(), Wanted { shorten: None, is_counted: false })
    }

    /// Like `open`. A KDE file has no short names of functions, so `shorten` makes them from the full names.
    pub fn open_shortened(path: impl AsRef<Path>, shorten: Shorten) -> Result<Self, Error> {
        Self::open_as(path.as_ref(), Wanted { shorten: Some(shorten), is_counted: false })
    }

    /// The same. If possible, the events of a KDE file are not returned as blocks but counted, which is much faster.
    /// `take_counts` has the result.
    pub fn open_counted(path: impl AsRef<Path>, shorten: Shorten) -> Result<Self, Error> {
        Self::open_as(path.as_ref(), Wanted { shorten: Some(shorten), is_counted: true })
    }

    fn open_as(path: &Path, wanted: Wanted) -> Result<Self, Error> {
        let metadata = std::fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(Error::Folder);
        }
        if !metadata.is_file() {
            return Err(Error::NotAFile);
        }
        let mut file = File::open(path)?;
        let first = first_bytes(&mut file)?;
        if is_packed(&first) || is_text(&first) {
            return Ok(Self::of(match KdeAhead::open(path, &first, wanted)? {
                Ok(ahead) => AnyReader::KdeAhead(ahead),
                Err(here) => AnyReader::Kde(Box::new(here)),
            }));
        }
        Self::new(file)
    }
}

impl<R: Read + Seek> Source<R> {
    /// `file` must be at its beginning.
    pub fn new(mut file: R) -> Result<Self, Error> {
        let first = first_bytes(&mut file)?;
        if is_packed(&first) || is_text(&first) {
            return Ok(Self::of(AnyReader::Kde(Box::new(KdeReader::new(file, &first)?))));
        }
        Ok(Self::of(AnyReader::Own(Box::new(Reader::new(file)?))))
    }

    /// Like `new`, with short names as `open_shortened` has them.
    pub fn shortened(file: R, shorten: Shorten) -> Result<Self, Error> {
        let mut source = Self::new(file)?;
        if let AnyReader::Kde(reader) = &mut source.file {
            reader.set_shorten(Some(shorten));
        }
        Ok(source)
    }
}

/// Returns the first eight bytes, or fewer if the file is shorter, and seeks back to the beginning.
fn first_bytes(file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    file.by_ref().take(8).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(first)
}

impl<R: Read> Source<R> {
    const fn of(file: AnyReader<R>) -> Self {
        let block = RawBlock { kind: BlockKind::Session, payload: Vec::new() };
        Source { file, more: VecDeque::new(), block, skipped: &[] }
    }

    /// Returns the next block, or `None` at the current end.
    pub fn next_block(&mut self) -> Result<Option<&RawBlock>, Error> {
        let found = match &mut self.file {
            AnyReader::Own(reader) => reader.next_block()?,
            AnyReader::Kde(reader) => reader.next_block()?,
            AnyReader::KdeAhead(reader) => reader.next_block()?,
        };
        if found.is_some() {
            return Ok(found);
        }
        while let Some(block) = self.more.pop_front() {
            if !self.skipped.contains(&block.kind) {
                self.block = block;
                return Ok(Some(&self.block));
            }
        }
        Ok(None)
    }

    /// After the last block: the counts of a file that was opened by `open_counted`, if its events were counted.
    pub fn take_counts(&mut self) -> Option<Box<KdeCounts>> {
        match &mut self.file {
            AnyReader::Own(_) => None,
            AnyReader::Kde(reader) => reader.take_counts(),
            AnyReader::KdeAhead(reader) => reader.take_counts(),
        }
    }

    /// Adds blocks that are returned after those of the file.
    pub fn append(&mut self, blocks: impl IntoIterator<Item = RawBlock>) {
        self.more.extend(blocks);
    }

    /// Blocks of these kinds are not returned.
    pub const fn skip(&mut self, kinds: &'static [BlockKind]) {
        self.skipped = kinds;
        match &mut self.file {
            AnyReader::Own(reader) => reader.skip(kinds),
            AnyReader::Kde(reader) => reader.skip(kinds),
            AnyReader::KdeAhead(reader) => reader.skip(kinds),
        }
    }

    /// True for a file of KDE's, to which nothing can be appended.
    pub const fn is_kde(&self) -> bool {
        !matches!(self.file, AnyReader::Own(_))
    }

    /// Sets the domain whose blocks are returned. The default is malloc's. This has no effect on KDE's files, which
    /// have no other domain.
    pub const fn set_domain(&mut self, domain: Domain) {
        if let AnyReader::Own(reader) = &mut self.file {
            reader.set_domain(domain);
        }
    }

    /// True if blocks of a domain were seen.
    pub const fn has(&self, domain: Domain) -> bool {
        match &self.file {
            AnyReader::Own(reader) => reader.has(domain),
            AnyReader::Kde(_) | AnyReader::KdeAhead(_) => matches!(domain, Domain::Malloc),
        }
    }

    /// True for a raw file of KDE's, which has no names, so that they must be looked up.
    pub const fn is_raw(&self) -> bool {
        match &self.file {
            AnyReader::Own(_) => false,
            AnyReader::Kde(reader) => reader.is_raw(),
            AnyReader::KdeAhead(reader) => reader.is_raw(),
        }
    }

    /// The offset of the next block in a file of ours; 0 in others.
    pub const fn offset(&self) -> u64 {
        match &self.file {
            AnyReader::Own(reader) => reader.offset(),
            AnyReader::Kde(_) | AnyReader::KdeAhead(_) => 0,
        }
    }

    /// True if the writer finished the file.
    pub const fn finished(&self) -> bool {
        match &self.file {
            AnyReader::Own(reader) => reader.finished(),
            AnyReader::Kde(reader) => reader.finished(),
            AnyReader::KdeAhead(reader) => reader.finished(),
        }
    }

    /// Places that could not be read, at most the first 256.
    pub fn damage(&self) -> &[Damage] {
        match &self.file {
            AnyReader::Own(reader) => reader.damage(),
            AnyReader::Kde(reader) => reader.damage(),
            AnyReader::KdeAhead(reader) => reader.damage(),
        }
    }

    pub const fn damage_count(&self) -> u64 {
        match &self.file {
            AnyReader::Own(reader) => reader.damage_count(),
            AnyReader::Kde(reader) => reader.damage_count(),
            AnyReader::KdeAhead(reader) => reader.damage_count(),
        }
    }

    /// Returns the reader of a file of ours, which can seek, or `None` for KDE's files.
    pub fn into_own(self) -> Option<Reader<R>> {
        match self.file {
            AnyReader::Own(reader) => Some(*reader),
            AnyReader::Kde(_) | AnyReader::KdeAhead(_) => None,
        }
    }
}
