//! Owns the bytes of opened files while they are in use.
use crate::kept::{Identity, Kept};
use crate::section::{Extent, Section};
use object::read::ReadCache;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use typed_arena::Arena;

/// A file on disk, or one that was unpacked into memory.
pub(crate) enum Source {
    File(File, Identity),
    Memory(Vec<u8>),
}

impl Source {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Source::File(_, identity) => identity.size,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    pub(crate) const fn identity(&self) -> Option<Identity> {
        match self {
            Source::File(_, identity) => Some(*identity),
            Source::Memory(_) => None,
        }
    }

    pub(crate) fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Source::File(file, _) => file.read_at(out, at),
            Source::Memory(bytes) => {
                bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default().read(out)
            }
        }
    }

    /// `len` bytes. Empty if not all of them can be read.
    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        if at.saturating_add(len as u64) > self.len() {
            return Vec::new();
        }
        match self {
            Source::File(file, _) => {
                let mut bytes = vec![0; len];
                if file.read_exact_at(&mut bytes, at).is_err() {
                    bytes.clear();
                }
                bytes
            }
            Source::Memory(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                bytes.get(at..at.saturating_add(len)).unwrap_or_default().to_vec()
            }
        }
    }
}

/// A file with a current position, as `object` needs it.
pub(crate) enum Seeking {
    File(File),
    Memory(Cursor<Vec<u8>>),
}

impl Read for Seeking {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Seeking::File(file) => file.read(out),
            Seeking::Memory(bytes) => bytes.read(out),
        }
    }
}

impl Seek for Seeking {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Seeking::File(file) => file.seek(to),
            Seeking::Memory(bytes) => bytes.seek(to),
        }
    }
}

pub(crate) type Cache = ReadCache<Seeking>;

/// Reads only what is needed: `object` reads headers and small sections. Sections with debug information are read in
/// pages or, if they are compressed, unpacked as far as they are used (`section.rs`).
#[derive(Default)]
pub struct Store {
    caches: Arena<Cache>,
    sections: Arena<Section>,
    /// See `size`.
    bytes: Rc<Cell<u64>>,
    limit: Option<u64>,
    kept: Arc<Kept>,
}

/// One file of the store, for `object` and for our own reads.
#[derive(Clone)]
pub(crate) struct Opened<'f> {
    pub(crate) cache: &'f Cache,
    pub(crate) source: Rc<Source>,
}

impl Store {
    pub fn new() -> Self {
        Self::default()
    }

    /// Debug information is not read from a file if unpacking it would take more than `limit` bytes of memory
    /// (`has_room`).
    pub(crate) fn bounded(limit: Option<u64>, kept: Arc<Kept>) -> Self {
        Store { limit, kept, ..Self::default() }
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| bytes <= limit)
    }

    /// Bytes that were read from plain sections, and bytes of tables made of all sections. Symbol tables and unpacked
    /// sections do not count, because a new store would have to read them again.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn file(&self, file: File) -> Option<Opened<'_>> {
        let identity = Identity::of(&file.metadata().ok()?);
        let cache = self.caches.alloc(ReadCache::new(Seeking::File(file.try_clone().ok()?)));
        Some(Opened { cache, source: Rc::new(Source::File(file, identity)) })
    }

    pub(crate) fn memory(&self, bytes: Vec<u8>) -> Opened<'_> {
        let cache = self.caches.alloc(ReadCache::new(Seeking::Memory(Cursor::new(bytes.clone()))));
        Opened { cache, source: Rc::new(Source::Memory(bytes)) }
    }

    /// Returns `None` if the size cannot be true.
    pub(crate) fn section(&self, source: &Rc<Source>, extent: Extent) -> Option<&Section> {
        let section = Section::new(Rc::clone(source), extent, Rc::clone(&self.bytes), Arc::clone(&self.kept))?;
        Some(self.sections.alloc(section))
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}
