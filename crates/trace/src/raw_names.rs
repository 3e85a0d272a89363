//! Function names for files that have none: raw files of KDE's heaptrack, and heap profiles with addresses only. They
//! usually have no build-ids either.
//!
//! Receives: the blocks of such a file. Returns: blocks with symbols, from the object files that its modules name. Must
//! hold: a file that was changed after the trace was written is not taken for the file that ran.
use format::{Error, Module, RawBlock, Source};
use object::elf::{FileHeader64, PF_X, PT_LOAD, ProgramHeader64};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use symbols::{Budget, SKIPPED, Search, Wanted};

const THREADS: usize = 2;

/// Returns the symbols for all frames of a raw file. `path` is the trace.
pub(crate) fn look_up(path: &Path, mut source: Source) -> Result<Vec<RawBlock>, Error> {
    let mut wanted = Wanted::new();
    source.skip(SKIPPED);
    while let Some(block) = source.next_block()? {
        wanted.add(block);
    }
    Ok(resolve(path, wanted))
}

/// The same for blocks that are in memory.
pub(crate) fn look_up_blocks(path: &Path, blocks: &[RawBlock]) -> Vec<RawBlock> {
    let mut wanted = Wanted::new();
    blocks.iter().for_each(|block| wanted.add(block));
    resolve(path, wanted)
}

fn resolve(path: &Path, mut wanted: Wanted) -> Vec<RawBlock> {
    let mut works = wanted.take();
    let mut files = ModuleFiles::new(path, Search::default());
    for module in works.iter_mut().filter_map(|work| work.module.as_mut()) {
        files.identify(module);
    }
    let mut blocks = Vec::new();
    let budget = Budget { threads: THREADS, time: None, memory: None };
    symbols::resolve_all(works, files.search, None, None, budget, |piece, _| {
        blocks.extend(piece.map(|piece| piece.to_block()))
    });
    blocks
}

/// Returns the virtual address of a byte in the executable segment of an object file, minus its offset in the file. `None`
/// if there is no such file, or if it is newer than the file `trace`.
pub(crate) fn code_shift(path: &Path, trace: &Path) -> Option<u64> {
    let written = std::fs::metadata(trace).ok().map(|metadata| modified_unix_ns(&metadata))?;
    let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    if modified_unix_ns(&metadata) > written {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let is_code = |segment: &&ProgramHeader64<Endianness>| {
        segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).0 & PF_X.0 != 0
    };
    let segments = header.program_headers(endian, &cache).ok()?;
    let code = segments.iter().find(is_code)?;
    Some(code.p_vaddr(endian).wrapping_sub(code.p_offset(endian)))
}

/// The object files that are now at the paths of a raw trace's modules.
pub struct ModuleFiles {
    search: Search,
    build_ids: HashMap<PathBuf, Vec<u8>>,
}

impl ModuleFiles {
    /// Object files that are newer than the file `trace` are not used.
    pub fn new(trace: &Path, search: Search) -> Self {
        let written = std::fs::metadata(trace).map_or(0, |metadata| modified_unix_ns(&metadata));
        ModuleFiles { search: Search { started_unix_ns: written, ..search }, build_ids: HashMap::new() }
    }

    /// Sets the build-id of a module that has none to the build-id of its file, unless the file is newer than the
    /// trace.
    pub fn identify(&mut self, module: &mut Module) {
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

fn modified_unix_ns(metadata: &Metadata) -> u64 {
    metadata.mtime() as u64 * 1_000_000_000 + metadata.mtime_nsec() as u64
}

fn build_id(path: &Path, written_unix_ns: u64) -> Option<Vec<u8>> {
    // A trace can contain any path. Opening a pipe or a device could block, so only regular files are opened.
    let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    if modified_unix_ns(&metadata) > written_unix_ns {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let elf: ElfFile64<'_, Endianness, _> = ElfFile64::parse(&cache).ok()?;
    elf.build_id().ok().flatten().map(<[u8]>::to_vec)
}
