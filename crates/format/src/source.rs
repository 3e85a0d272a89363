//! A trace of any sort that can be read: ours, or KDE's.
//!
//! Given: a file. Gives back: blocks. What must hold: the sort is told by the first bytes, never by the name; who reads
//! blocks from here needs to know of no sort.
use crate::kde::{KdeAhead, KdeReader, is_packed, is_text};
use crate::{BlockKind, Damage, Error, RawBlock, Reader};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

pub enum Source<R: Read = File> {
    Own(Box<Reader<R>>),
    Kde(Box<KdeReader<R>>),
    /// By threads of its own: a text is large for what it says.
    KdeAhead(KdeAhead),
}

impl Source {
    /// A pipe or a terminal would be waited for without end, a folder says so only when it is read: both are refused.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let metadata = std::fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
        }
        if !metadata.is_file() {
            return Err(Error::NotAFile);
        }
        let mut file = File::open(path)?;
        let first = first_bytes(&mut file)?;
        if is_packed(&first) || is_text(&first) {
            return Ok(match KdeAhead::open(path, &first)? {
                Ok(ahead) => Source::KdeAhead(ahead),
                Err(here) => Source::Kde(Box::new(here)),
            });
        }
        Self::new(file)
    }
}

impl<R: Read + Seek> Source<R> {
    /// `file`: at its beginning.
    pub fn new(mut file: R) -> Result<Self, Error> {
        let first = first_bytes(&mut file)?;
        if is_packed(&first) || is_text(&first) {
            return Ok(Source::Kde(Box::new(KdeReader::new(file, &first)?)));
        }
        Ok(Source::Own(Box::new(Reader::new(file)?)))
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
    /// The next block; `None` at the present end.
    pub fn next_block(&mut self) -> Result<Option<&RawBlock>, Error> {
        match self {
            Source::Own(reader) => reader.next_block(),
            Source::Kde(reader) => reader.next_block(),
            Source::KdeAhead(reader) => reader.next_block(),
        }
    }

    /// Blocks of these kinds are not given out.
    pub const fn skip(&mut self, kinds: &'static [BlockKind]) {
        match self {
            Source::Own(reader) => reader.skip(kinds),
            Source::Kde(reader) => reader.skip(kinds),
            Source::KdeAhead(reader) => reader.skip(kinds),
        }
    }

    /// The writer came to its end.
    pub const fn finished(&self) -> bool {
        match self {
            Source::Own(reader) => reader.finished(),
            Source::Kde(reader) => reader.finished(),
            Source::KdeAhead(reader) => reader.finished(),
        }
    }

    /// Places that could not be read, at most the first 256.
    pub fn damage(&self) -> &[Damage] {
        match self {
            Source::Own(reader) => reader.damage(),
            Source::Kde(reader) => reader.damage(),
            Source::KdeAhead(reader) => reader.damage(),
        }
    }

    pub const fn damage_count(&self) -> u64 {
        match self {
            Source::Own(reader) => reader.damage_count(),
            Source::Kde(reader) => reader.damage_count(),
            Source::KdeAhead(reader) => reader.damage_count(),
        }
    }
}
