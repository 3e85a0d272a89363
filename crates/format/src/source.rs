//! A trace of any sort that can be read: ours, or KDE's.
//!
//! Given: a file. Gives back: blocks. What must hold: the sort is told by the first bytes, never by the name; who reads
//! blocks from here needs to know of no sort.
use crate::kde::{KdeAhead, KdeReader, Shorten, is_packed, is_text};
use crate::{BlockKind, Damage, Domain, Error, RawBlock, Reader};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

pub struct Source<R: Read = File> {
    file: AnyReader<R>,
    /// Blocks that are given out behind those of the file.
    more: VecDeque<RawBlock>,
    block: RawBlock,
    skipped: &'static [BlockKind],
}

enum AnyReader<R: Read> {
    Own(Box<Reader<R>>),
    Kde(Box<KdeReader<R>>),
    /// By threads of its own: a text is large for what it says.
    KdeAhead(KdeAhead),
}

impl Source {
    /// A pipe or a terminal would be waited for without end, a folder says so only when it is read: both are refused.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_as(path.as_ref(), None)
    }

    /// The same; a file of KDE's, which has none, gets short names.
    pub fn open_shortened(path: impl AsRef<Path>, shorten: Shorten) -> Result<Self, Error> {
        Self::open_as(path.as_ref(), Some(shorten))
    }

    fn open_as(path: &Path, shorten: Option<Shorten>) -> Result<Self, Error> {
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
            return Ok(Self::of(match KdeAhead::open(path, &first, shorten)? {
                Ok(ahead) => AnyReader::KdeAhead(ahead),
                Err(here) => AnyReader::Kde(Box::new(here)),
            }));
        }
        Self::new(file)
    }
}

impl<R: Read + Seek> Source<R> {
    /// `file`: at its beginning.
    pub fn new(mut file: R) -> Result<Self, Error> {
        let first = first_bytes(&mut file)?;
        if is_packed(&first) || is_text(&first) {
            return Ok(Self::of(AnyReader::Kde(Box::new(KdeReader::new(file, &first)?))));
        }
        Ok(Self::of(AnyReader::Own(Box::new(Reader::new(file)?))))
    }
}

/// At most eight; the place in the file is its beginning again.
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

    /// The next block; `None` at the present end.
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

    /// These come behind the blocks of the file.
    pub fn append(&mut self, blocks: impl IntoIterator<Item = RawBlock>) {
        self.more.extend(blocks);
    }

    /// Blocks of these kinds are not given out.
    pub const fn skip(&mut self, kinds: &'static [BlockKind]) {
        self.skipped = kinds;
        match &mut self.file {
            AnyReader::Own(reader) => reader.skip(kinds),
            AnyReader::Kde(reader) => reader.skip(kinds),
            AnyReader::KdeAhead(reader) => reader.skip(kinds),
        }
    }

    /// A file of KDE's, which cannot be added to.
    pub const fn is_kde(&self) -> bool {
        !matches!(self.file, AnyReader::Own(_))
    }

    /// Blocks of another domain than malloc's are read. KDE's files have none.
    pub const fn set_domain(&mut self, domain: Domain) {
        if let AnyReader::Own(reader) = &mut self.file {
            reader.set_domain(domain);
        }
    }

    /// Blocks of the custom domain were seen.
    pub const fn has_custom(&self) -> bool {
        match &self.file {
            AnyReader::Own(reader) => reader.has_custom(),
            AnyReader::Kde(_) | AnyReader::KdeAhead(_) => false,
        }
    }

    /// A raw file of KDE's: it has no names, they are to be looked for.
    pub const fn is_raw(&self) -> bool {
        match &self.file {
            AnyReader::Own(_) => false,
            AnyReader::Kde(reader) => reader.is_raw(),
            AnyReader::KdeAhead(reader) => reader.is_raw(),
        }
    }

    /// Where the next block begins in a file of ours; 0 in others.
    pub const fn offset(&self) -> u64 {
        match &self.file {
            AnyReader::Own(reader) => reader.offset(),
            AnyReader::Kde(_) | AnyReader::KdeAhead(_) => 0,
        }
    }

    /// The writer came to its end.
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

    /// Our own sort of file, where one can go from place to place.
    pub fn into_own(self) -> Option<Reader<R>> {
        match self.file {
            AnyReader::Own(reader) => Some(*reader),
            AnyReader::Kde(_) | AnyReader::KdeAhead(_) => None,
        }
    }
}
