//! Opening a trace: the one way for everything that reads one.
//!
//! Given: a path. Gives back: its blocks, whatever sort of file it is. A raw file of KDE's has no names and no build-ids: both are looked
//! for here, in the files that its modules name. What must hold: a file that was changed after the trace was written is
//! not taken for the one that ran.
use crate::destination::{Content, Destination, with_htz};
use crate::trouble::unreadable;
use format::{Block, BlockKind, Domain, FileWriter, Module, RawBlock, Source};
use object::Object;
use object::read::ReadCache;
use object::read::elf::ElfFile64;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use symbols::{Budget, SKIPPED, Search, Wanted};

const THREADS: usize = 2;

/// A trace that is read several times; its names are looked for once.
pub struct Trace {
    held: PinnedFile,
    names: Vec<RawBlock>,
    domain: Domain,
}

impl Trace {
    pub fn new(path: &Path) -> Result<Self, format::Error> {
        let held = PinnedFile::new(path);
        let source = open_file(held.path())?;
        let names = if source.is_raw() { names(path, source)? } else { Vec::new() };
        Ok(Trace { held, names, domain: Domain::Malloc })
    }

    /// Only the blocks of custom allocators.
    pub const fn set_domain(&mut self, domain: Domain) {
        self.domain = domain;
    }

    pub fn open(&self) -> Result<Source, format::Error> {
        let mut source = open_file(self.held.path())?;
        source.set_domain(self.domain);
        source.append(self.names.iter().cloned());
        Ok(source)
    }
}

/// A file that is read more than once: the same one each time, although a recording with `--max-size` may put a shorter one in its place.
pub struct PinnedFile {
    path: PathBuf,
    _file: Option<File>,
}

impl PinnedFile {
    pub fn new(path: &Path) -> Self {
        // Anything else could block; who reads it says what is wrong with it.
        let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        let file = if is_file { File::open(path).ok() } else { None };
        let way = file.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        // Without /proc there is no other way than its name.
        let way = way.filter(|way| way.exists()).unwrap_or_else(|| path.to_owned());
        PinnedFile { path: way, _file: file }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// With short names, also where the file has none.
pub fn open_file(path: &Path) -> Result<Source, format::Error> {
    Source::open_shortened(path, symbols::shorten)
}

/// For those who read it once.
pub fn open(path: &Path) -> Result<Source, format::Error> {
    let source = open_file(path)?;
    if !source.is_raw() {
        return Ok(source);
    }
    let names = names(path, source)?;
    let mut source = open_file(path)?;
    source.append(names);
    Ok(source)
}

/// True when a trace has blocks of custom allocators.
pub fn has_custom(path: &Path) -> Result<bool, format::Error> {
    let mut source = open_file(path)?;
    source.skip(&BlockKind::ALL);
    // Nothing is given out; what is there is met on the way.
    while source.next_block()?.is_some() {}
    Ok(source.has_custom())
}

/// For those who write only malloc's blocks of a trace.
pub fn say_custom_is_left_out(path: &Path) -> Result<(), format::Error> {
    if has_custom(path)? {
        let path = path.display();
        crate::say(format_args!("heaptrack: the blocks of custom allocators in {path} are left out"));
    }
    Ok(())
}

/// Symbols for the frames of a raw file.
fn names(path: &Path, mut source: Source) -> Result<Vec<RawBlock>, format::Error> {
    let mut wanted = Wanted::new();
    source.skip(SKIPPED);
    while let Some(block) = source.next_block()? {
        wanted.add(block);
    }
    let mut works = wanted.take();
    let mut files = Files::new(path, Search::default());
    for module in works.iter_mut().filter_map(|work| work.module.as_mut()) {
        files.identify(module);
    }
    let mut blocks = Vec::new();
    let budget = Budget { threads: THREADS, time: None, memory: None };
    symbols::resolve_all(works, files.search, None, None, budget, |piece, _| {
        blocks.extend(piece.map(|piece| piece.to_block()))
    });
    Ok(blocks)
}

/// What is in the place of the files that ran.
struct Files {
    search: Search,
    build_ids: HashMap<PathBuf, Vec<u8>>,
}

impl Files {
    /// `trace`: files that changed after it was written are others.
    fn new(trace: &Path, search: Search) -> Self {
        let written =
            std::fs::metadata(trace).map_or(0, |data| data.mtime() as u64 * 1_000_000_000 + data.mtime_nsec() as u64);
        Files { search: Search { started_unix_ns: written, ..search }, build_ids: HashMap::new() }
    }

    /// Gives the module the build-id of its file.
    fn identify(&mut self, module: &mut Module) {
        let path = Path::new(&module.path);
        if !module.build_id.is_empty() || !path.is_absolute() {
            return;
        }
        let at = match &self.search.sysroot {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        };
        let written = self.search.started_unix_ns;
        module.build_id =
            self.build_ids.entry(at).or_insert_with_key(|at| build_id(at, written).unwrap_or_default()).clone();
    }
}

fn build_id(path: &Path, written_unix_ns: u64) -> Option<Vec<u8>> {
    // A trace may name anything: only a regular file is opened, nothing else may be waited for.
    let data = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if data.mtime() as u64 * 1_000_000_000 + data.mtime_nsec() as u64 > written_unix_ns {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let elf: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
    elf.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// A raw file of KDE's as a trace of ours, beside it, with the build-ids of its modules: names can be added to that. `None`: it is no
/// file of KDE's.
pub fn as_own(path: &Path, search: &Search) -> anyhow::Result<Option<PathBuf>> {
    let mut source = open_file(path).map_err(|error| unreadable(path, &error))?;
    if !source.is_kde() {
        return Ok(None);
    }
    if !source.is_raw() {
        let path = path.display();
        anyhow::bail!(
            "{path} has its names from KDE's interpreter, which left out the addresses that finding them again would need"
        );
    }
    let target = own_name(path);
    if target.exists() {
        anyhow::bail!("cannot write {}: it exists already", target.display());
    }
    let mut files = Files::new(path, search.clone());
    let output = Destination::new(&target, OsStr::new("trace.htz"), Content::Trace, &[path])?;
    output.write(Content::Trace, |out| {
        let mut writer = FileWriter::new(out, crate::trim::LEVEL)?;
        while let Some(block) = source.next_block().map_err(|error| unreadable(path, &error))? {
            match block.decode() {
                Ok(Block::Modules(mut modules)) => {
                    modules.iter_mut().for_each(|module| files.identify(module));
                    writer.write(&Module::to_block(&modules))?
                }
                _ => writer.write(block)?,
            };
        }
        writer.finish()?;
        Ok(())
    })?;
    Ok(Some(target))
}

/// `x.htz` for `x.raw.zst`.
fn own_name(path: &Path) -> PathBuf {
    let mut name = path.to_owned();
    for extension in ["zst", "gz", "raw"] {
        if name.extension().is_some_and(|found| found == extension) {
            name.set_extension("");
        }
    }
    with_htz(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kdes_files_have_a_short_form() {
        let path = std::env::temp_dir().join(format!("heaptrack-short.{}", std::process::id()));
        let text = "v 10300 2\nX ./a\ns /bin/a\ns Shelf::put(std::string const&)\ni 1000 1 2\nt 1 0\na 10 1\n+ 0\n";
        std::fs::write(&path, text).unwrap();
        let mut source = open(&path).unwrap();
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
    fn the_new_name_has_no_trace_of_the_old_packing() {
        for (old, new) in [("a.raw.zst", "a.htz"), ("b/c.raw.gz", "b/c.htz"), ("d", "d.htz"), ("e.1.raw", "e.1.htz")] {
            assert_eq!(own_name(Path::new(old)), Path::new(new));
        }
    }
}
