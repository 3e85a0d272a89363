//! A trace as a file: its blocks, from the first to the last, as often as the caller wants them.
//!
//! Receives: a path, or bytes. Returns: [`Source`]s, which return the same kinds of blocks for every kind of file. Must hold:
//! every source of one [`TraceFile`] reads the same file, although a recording with `--max-size` may put a shorter file
//! in its place.
use crate::heap_profile;
#[cfg(unix)]
use crate::raw_names;
use crate::shared_bytes::{ReadAt, SharedBytes};
use format::{BlockKind, Domain, Error, RawBlock, Source};
use import::Kind;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that stays the same one, however often it is read.
pub struct TraceFile {
    path: PathBuf,
    bytes: Arc<dyn ReadAt>,
    /// `None` if the bytes are not in a file of this machine.
    opened: Option<OpenFile>,
    /// Function names for a raw file of KDE's heaptrack, which has none. They are looked up once.
    names: Vec<RawBlock>,
    domain: Domain,
    is_kde: bool,
    profile: Option<Kind>,
}

struct OpenFile {
    file: Arc<File>,
    /// Leads to the open file, whatever its name is now.
    pinned: PathBuf,
}

#[cfg(unix)]
impl OpenFile {
    fn new(file: File, path: &Path) -> Self {
        use std::os::fd::AsRawFd;
        let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Without /proc, the file can only be reached by its name.
        let pinned = if link.exists() { link } else { path.to_owned() };
        OpenFile { file: Arc::new(file), pinned }
    }
}

#[cfg(unix)]
impl TraceFile {
    /// Opens a file and reads its header. A raw file of KDE's heaptrack is read to its end, to look up its function
    /// names.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        check_kind(&std::fs::metadata(path)?)?;
        Self::of(File::open(path)?, path)
    }

    /// As [`TraceFile::open`], for a file that is open already. `path` is its name in messages.
    pub fn of(file: File, path: &Path) -> Result<Self, Error> {
        check_kind(&file.metadata()?)?;
        let opened = OpenFile::new(file, path);
        let (mut trace, is_raw) = Self::recognised(Arc::clone(&opened.file) as Arc<dyn ReadAt>, path)?;
        if is_raw {
            trace.names = raw_names::look_up(path, open_without_names(&opened.pinned)?)?;
        }
        Ok(TraceFile { opened: Some(opened), ..trace })
    }
}

impl TraceFile {
    /// Reads the header of bytes that are not in a file of this machine. `name` is their name in messages. Function names
    /// that the bytes do not have are not looked up.
    pub fn of_bytes(bytes: Arc<dyn ReadAt>, name: &Path) -> Result<Self, Error> {
        Ok(Self::recognised(bytes, name)?.0)
    }

    /// Also returns whether it is a raw file of KDE's heaptrack, which has no function names.
    fn recognised(bytes: Arc<dyn ReadAt>, path: &Path) -> Result<(Self, bool), Error> {
        let profile = heap_profile::recognise(SharedBytes::new(Arc::clone(&bytes)))?;
        let (mut is_kde, mut is_raw) = (false, false);
        if profile.is_none() {
            // Without threads that work ahead, because usually only the first bytes are needed.
            let source = Source::new(SharedBytes::new(Arc::clone(&bytes)))?;
            (is_kde, is_raw) = (source.is_kde(), source.is_raw());
        }
        let (path, names, domain) = (path.to_owned(), Vec::new(), Domain::Malloc);
        Ok((TraceFile { path, bytes, opened: None, names, domain, is_kde, profile }, is_raw))
    }

    /// Selects the blocks of malloc, which is the default, or those that the program reported itself.
    #[must_use]
    pub fn with_domain(self, domain: Domain) -> Self {
        TraceFile { domain, ..self }
    }

    /// All blocks of the selected domain, from the beginning.
    pub fn source(&self) -> Result<Source, Error> {
        if let Some(kind) = self.profile {
            return Err(Error::HeapProfile(format!("{}, which has no events", kind.name())));
        }
        let mut source = open_without_names(self.pinned()?)?;
        source.set_domain(self.domain);
        source.append(self.names.iter().cloned());
        Ok(source)
    }

    /// As `source`. If possible, a file of KDE's heaptrack has counts instead of events: see [`Source::open_counted`].
    pub(crate) fn counted_source(&self) -> Result<Source, Error> {
        let mut source = Source::open_counted(self.pinned()?, demangle::shorten)?;
        source.append(self.names.iter().cloned());
        Ok(source)
    }

    /// All blocks of a file of KDE's heaptrack, translated by the caller's thread.
    pub(crate) fn kde_source_here(&self) -> Result<Source<SharedBytes>, Error> {
        let mut source = Source::shortened(self.reader(), demangle::shorten)?;
        source.append(self.names.iter().cloned());
        Ok(source)
    }

    /// The path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose blocks its sources return.
    pub const fn domain(&self) -> Domain {
        self.domain
    }

    /// True for a file of KDE's heaptrack. Such a file can only be read from its beginning.
    pub const fn is_kde(&self) -> bool {
        self.is_kde
    }

    /// What kind of heap profile of another tool it is; `None` for a trace.
    pub const fn profile(&self) -> Option<Kind> {
        self.profile
    }

    /// A reader at the beginning of the bytes.
    pub(crate) fn reader(&self) -> SharedBytes {
        SharedBytes::new(Arc::clone(&self.bytes))
    }

    pub(crate) fn length(&self) -> Result<u64, Error> {
        Ok(self.bytes.length()?)
    }

    /// The open file of this machine; `None` for other bytes.
    pub(crate) fn file(&self) -> Option<&File> {
        self.opened.as_ref().map(|opened| &*opened.file)
    }

    /// A path that leads to the open file. Returns an error for bytes that are not in a file of this machine.
    pub(crate) fn pinned(&self) -> Result<&Path, Error> {
        self.opened.as_ref().map(|opened| opened.pinned.as_path()).ok_or(Error::NotAFile)
    }
}

/// Refuses everything but a regular file, before it is opened. A pipe or a device could block for ever.
fn check_kind(metadata: &Metadata) -> Result<(), Error> {
    if metadata.is_dir() {
        return Err(Error::Folder);
    }
    if metadata.is_file() { Ok(()) } else { Err(Error::NotAFile) }
}

/// What kind of heap profile of another tool a file is; `None` for anything else.
pub fn heap_profile_kind(path: impl AsRef<Path>) -> Result<Option<Kind>, Error> {
    let path = path.as_ref();
    check_kind(&std::fs::metadata(path)?)?;
    heap_profile::recognise(File::open(path)?)
}

/// Opens a file without looking up names that it does not have. Functions get short names, also in files that have only
/// long ones.
pub fn open_without_names(path: impl AsRef<Path>) -> Result<Source, Error> {
    Source::open_shortened(path, demangle::shorten)
}

/// Opens a file for a single pass over its blocks.
#[cfg(unix)]
pub fn open_source(path: impl AsRef<Path>) -> Result<Source, Error> {
    TraceFile::open(path)?.source()
}

/// True if the trace has blocks that the program reported itself. Reads the whole file.
pub fn has_custom(path: impl AsRef<Path>) -> Result<bool, Error> {
    has_domain(path, Domain::Custom)
}

/// True if the trace has blocks of a domain. Reads the whole file.
pub fn has_domain(path: impl AsRef<Path>, domain: Domain) -> Result<bool, Error> {
    let mut source = open_without_names(path)?;
    // With every kind skipped, one call reads to the end of the file.
    source.skip(&BlockKind::ALL);
    while source.next_block()?.is_some() {}
    Ok(source.has(domain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Block;

    #[test]
    fn names_of_kdes_files_have_a_short_form() {
        let path = std::env::temp_dir().join(format!("heaptrack-short.{}", std::process::id()));
        let text = "v 10300 2\nX ./a\ns /bin/a\ns Shelf::put(std::string const&)\ni 1000 1 2\nt 1 0\na 10 1\n+ 0\n";
        std::fs::write(&path, text).unwrap();
        let mut source = open_source(&path).unwrap();
        let mut names = Vec::new();
        while let Some(block) = source.next_block().unwrap() {
            if let Ok(Block::Symbols(symbols)) = block.decode() {
                let text = |at: u32| symbols.strings[at as usize].clone();
                names.extend(symbols.functions.iter().map(|function| (text(function.full), text(function.short))));
            }
        }
        std::fs::remove_file(path).unwrap();
        assert_eq!(names, [("Shelf::put(std::string const&)".into(), "Shelf::put".into())]);
    }

    #[test]
    fn a_folder_and_a_device_are_refused_without_being_opened() {
        assert!(matches!(TraceFile::open("/tmp").err(), Some(Error::Folder)));
        assert!(matches!(TraceFile::open("/dev/null").err(), Some(Error::NotAFile)));
    }
}
