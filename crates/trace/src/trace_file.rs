//! A trace as a file: its blocks, from the first to the last, as often as the caller wants them.
//!
//! Receives: a path. Returns: [`Source`]s, which return the same kinds of blocks for every kind of file. Must hold:
//! every source of one [`TraceFile`] reads the same file, although a recording with `--max-size` may put a shorter file
//! in its place.
use crate::heap_profile;
use crate::raw_names;
use format::{BlockKind, Domain, Error, RawBlock, Source};
use import::Kind;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that stays the same one, however often it is read.
pub struct TraceFile {
    path: PathBuf,
    /// Leads to the open file, whatever its name is now.
    pinned: PathBuf,
    file: Arc<File>,
    /// Function names for a raw file of KDE's heaptrack, which has none. They are looked up once.
    names: Vec<RawBlock>,
    domain: Domain,
    is_kde: bool,
    profile: Option<Kind>,
}

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
        let file = Arc::new(file);
        let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Without /proc, the file can only be reached by its name.
        let pinned = if link.exists() { link } else { path.to_owned() };
        if let Some(kind) = heap_profile::recognise(&pinned)? {
            let (path, names) = (path.to_owned(), Vec::new());
            return Ok(TraceFile {
                path,
                pinned,
                file,
                names,
                domain: Domain::Malloc,
                is_kde: false,
                profile: Some(kind),
            });
        }
        // Without threads that work ahead, because usually only the first bytes are needed.
        let source = Source::new(File::open(&pinned)?)?;
        let is_kde = source.is_kde();
        let is_raw = source.is_raw();
        drop(source);
        let names = if is_raw { raw_names::look_up(path, open_without_names(&pinned)?)? } else { Vec::new() };
        Ok(TraceFile { path: path.to_owned(), pinned, file, names, domain: Domain::Malloc, is_kde, profile: None })
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
        let mut source = open_without_names(&self.pinned)?;
        source.set_domain(self.domain);
        source.append(self.names.iter().cloned());
        Ok(source)
    }

    /// As `source`. If possible, a file of KDE's heaptrack has counts instead of events: see [`Source::open_counted`].
    pub(crate) fn counted_source(&self) -> Result<Source, Error> {
        let mut source = Source::open_counted(&self.pinned, symbols::shorten)?;
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

    pub(crate) const fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn pinned(&self) -> &Path {
        &self.pinned
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
    heap_profile::recognise(path)
}

/// Opens a file without looking up names that it does not have. Functions get short names, also in files that have only
/// long ones.
pub fn open_without_names(path: impl AsRef<Path>) -> Result<Source, Error> {
    Source::open_shortened(path, symbols::shorten)
}

/// Opens a file for a single pass over its blocks.
pub fn open_source(path: impl AsRef<Path>) -> Result<Source, Error> {
    TraceFile::open(path)?.source()
}

/// True if the trace has blocks that the program reported itself. Reads the whole file.
pub fn has_custom(path: impl AsRef<Path>) -> Result<bool, Error> {
    let mut source = open_without_names(path)?;
    // With every kind skipped, one call reads to the end of the file.
    source.skip(&BlockKind::ALL);
    while source.next_block()?.is_some() {}
    Ok(source.has_custom())
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
