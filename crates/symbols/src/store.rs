//! The bytes of opened files, kept in one place for as long as anything looks at them.
use object::read::ReadCache;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use typed_arena::Arena;

/// A file on disk, or one that was unpacked into memory.
pub(crate) enum Source {
    File(File),
    Memory(Cursor<Vec<u8>>),
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read(out),
            Source::Memory(bytes) => bytes.read(out),
        }
    }
}

impl Seek for Source {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Source::File(file) => file.seek(to),
            Source::Memory(bytes) => bytes.seek(to),
        }
    }
}

pub(crate) type Cache = ReadCache<Source>;

/// Only what is asked for is read: the sections with names and lines, not the code.
#[derive(Default)]
pub struct Store {
    caches: Arena<Cache>,
    unpacked: Arena<Vec<u8>>,
    bytes: Cell<u64>,
    limit: Option<u64>,
}

impl Store {
    pub fn new() -> Self {
        Self::default()
    }

    /// No file with more debug information than that is read.
    pub fn bounded(limit: Option<u64>) -> Self {
        Store { limit, ..Self::default() }
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| bytes <= limit)
    }

    pub(crate) fn file(&self, file: File) -> &Cache {
        self.caches.alloc(ReadCache::new(Source::File(file)))
    }

    pub(crate) fn memory(&self, bytes: Vec<u8>) -> &Cache {
        self.count(bytes.len());
        self.caches.alloc(ReadCache::new(Source::Memory(Cursor::new(bytes))))
    }

    pub(crate) fn bytes(&self, bytes: Vec<u8>) -> &[u8] {
        self.count(bytes.len());
        self.unpacked.alloc(bytes)
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// About how much memory the sections take.
    pub fn size(&self) -> u64 {
        self.bytes.get()
    }
}
