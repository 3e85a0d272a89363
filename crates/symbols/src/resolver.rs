//! Resolves the offsets of one module to frames.
//!
//! Receives: what was recorded about the module, and where files may be. Returns: frames for offsets, and how well the
//! module is known. Must hold: only files with the recorded build-id are used.
use crate::dwarf::{DebugInfo, Level};
use crate::elf::Elf;
use crate::finder::{Finder, hex};
use crate::store::Store;
use crate::symbol_table::{Symbol, SymbolTable, each_function};
use crate::target_files::own_vdso;
use demangle::{Hint, Name, demangle, may_be_nim};
use foldhash::HashMap;
use format::{IntMap, Module, SymbolState};
use lzma_rust2::XzReader;
use object::LittleEndian;
use object::read::elf::Sym;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

const EXACT: u64 = 1 << 47;
/// At most this many bytes of `.gnu_debugdata` are unpacked. It contains names only.
const MAX_DEBUG_DATA: u64 = 256 << 20;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub name: Option<Arc<Name>>,
    pub file: Option<Arc<str>>,
    pub line: Option<u32>,
    /// Inlined into the next frame of the list.
    pub inlined: bool,
}

/// How well a module is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub state: SymbolState,
    /// A sentence for people about what did not work, or empty.
    pub note: String,
}

pub struct Resolver<'f> {
    finder: Finder<'f>,
    debug: Option<DebugInfo<'f>>,
    table: SymbolTable,
    names: HashMap<String, Arc<Name>>,
    /// By symbol, so that the name of a function is looked up once.
    named: IntMap<u64, Arc<Name>>,
    files: HashMap<String, Arc<str>>,
    state: State,
}

/// A module's own file, found and checked.
struct Found<'f> {
    elf: Elf<'f>,
    path: PathBuf,
}

impl<'f> Resolver<'f> {
    /// Never fails. If the module cannot be named, `state` gives the reason. `expected`: the keys that will be asked
    /// for; others take longer.
    pub fn open(store: &'f Store, module: &Module, finder: Finder<'f>, expected: &[u64]) -> Self {
        let expected: Vec<u64> = expected.iter().map(|key| address(*key)).collect();
        let mut resolver = Resolver {
            finder,
            debug: None,
            table: SymbolTable::default(),
            names: HashMap::default(),
            named: IntMap::default(),
            files: HashMap::default(),
            state: State { state: SymbolState::Missing, note: String::new() },
        };
        match find_module(store, module, &finder) {
            Ok(found) => resolver.load(store, found, &expected),
            // The debug file alone is sufficient, if its build-id is right.
            Err(state) => match by_build_id(store, &module.build_id, &finder)
                .or_else(|| remote(store, &module.build_id, &finder, &mut String::new()))
            {
                Some(found) => resolver.load(store, found, &expected),
                None => resolver.state = state,
            },
        }
        resolver.table.expect(expected);
        resolver
    }

    pub const fn state(&self) -> &State {
        &self.state
    }

    fn load(&mut self, store: &'f Store, found: Found<'f>, expected: &[u64]) {
        let mut trouble = String::new();
        let has_dwarf = found.elf.has_dwarf();
        let separate = if has_dwarf { None } else { debug_file(store, &found, &self.finder, &mut trouble) };
        let Found { elf, path } = found;
        self.table.add(&elf);
        if let Some(separate) = &separate {
            self.table.add(&separate.elf);
        } else if let Some(mini) = mini_debug_info(store, &elf) {
            self.table.add(&mini);
        }
        let (file, at) = separate.as_ref().map_or((&elf, &path), |found| (&found.elf, &found.path));
        let mut state = if self.table.is_empty() { SymbolState::Stripped } else { SymbolState::Symbols };
        if file.has_dwarf() && !store.has_room(file.unpacked_size()) {
            // Not `Symbols`, so that a later run with more memory asks again.
            state = SymbolState::Unreadable;
            trouble = format!("{} has much debug information: `heaptrack symbolize` reads it", at.display());
        } else if file.has_dwarf() {
            let debug = DebugInfo::new(store, file, at, &path, &self.finder);
            debug.expect(file, expected);
            if debug.is_readable() {
                self.debug = Some(debug);
                state = SymbolState::Debug;
            } else {
                state = SymbolState::Unreadable;
                trouble = format!("the debug information of {} is damaged", at.display());
            }
        }
        self.state = State { state, note: trouble };
    }

    /// The functions at an address, innermost first. Empty if nothing is known. `key`: the low 48 bits of a
    /// `format::Frame`.
    pub fn frames(&mut self, key: u64) -> Vec<Frame> {
        let address = address(key);
        let mut frames = self.by_dwarf(address).unwrap_or_default();
        self.name_outermost(address, &mut frames);
        frames
    }

    /// The start of the function that contains the frame, in the file's addresses. `key`: as for `frames`.
    pub fn start(&mut self, key: u64) -> Option<u64> {
        self.table.find(address(key)).map(|symbol| symbol.start())
    }

    fn by_dwarf(&mut self, address: u64) -> Option<Vec<Frame>> {
        let levels = self.debug.as_ref()?.levels(address, &self.finder);
        let frame = |level: Level| Frame {
            name: level.name.filter(|name| !name.is_empty()).map(|name| self.name(&name)),
            file: level.file.map(|file| self.file(&file)),
            line: level.line,
            inlined: true,
        };
        let mut frames: Vec<Frame> = levels.into_iter().map(frame).collect();
        if let Some(last) = frames.last_mut() {
            last.inlined = false;
        }
        Some(frames)
    }

    /// Completes the outermost function from the symbol table. The table may have a more complete name for it than
    /// DWARF. If DWARF has no source file, the table may have one, but the line stays unknown.
    fn name_outermost(&mut self, address: u64, frames: &mut Vec<Frame>) {
        let is_whole = |frame: &Frame| frame.file.is_some() && frame.name.as_ref().is_some_and(|n| is_mangled(&n.raw));
        if frames.last().is_some_and(is_whole) {
            return;
        }
        let Some(symbol) = self.table.find(address) else { return };
        let needs_file = frames.last().is_none_or(|frame| frame.file.is_none());
        let file = if needs_file { self.table.file(&symbol) } else { None };
        let file = file.map(|file| String::from_utf8_lossy(file).into_owned());
        let file = file.map(|file| self.file(&file));
        let name = self.name_of(&symbol);
        match frames.last_mut() {
            None => frames.push(Frame { name: Some(name), file, line: None, inlined: false }),
            Some(last) => {
                last.file = last.file.take().or(file);
                let is_better = |known: &Arc<Name>| {
                    !is_mangled(&known.raw) && (is_mangled(&name.raw) || is_alias(&known.raw, &name.raw))
                };
                if last.name.as_ref().is_none_or(is_better) {
                    last.name = Some(name);
                }
            }
        }
    }

    fn name_of(&mut self, symbol: &Symbol) -> Arc<Name> {
        if let Some(name) = self.named.get(&symbol.key()) {
            return Arc::clone(name);
        }
        let raw = String::from_utf8_lossy(self.table.name_of(symbol)).into_owned();
        let name = self.name(&raw);
        self.named.insert(symbol.key(), Arc::clone(&name));
        name
    }

    fn name(&mut self, raw: &str) -> Arc<Name> {
        if let Some(name) = self.names.get(raw) {
            return Arc::clone(name);
        }
        let hint = if !is_mangled(raw) && may_be_nim(raw) && self.table.is_nim() { Hint::Nim } else { Hint::None };
        let name = Arc::new(demangle(raw, hint));
        self.names.insert(raw.to_owned(), Arc::clone(&name));
        name
    }

    fn file(&mut self, path: &str) -> Arc<str> {
        if let Some(file) = self.files.get(path) {
            return Arc::clone(file);
        }
        let file: Arc<str> = tidy(path).into();
        self.files.insert(path.to_owned(), Arc::clone(&file));
        file
    }
}

const fn address(key: u64) -> u64 {
    let offset = key & (EXACT - 1);
    // A return address belongs to the call before it.
    if key & EXACT != 0 { offset } else { offset.saturating_sub(1) }
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R") || name.starts_with("_D")
}

/// True if `known`, a name from DWARF, is an internal alias of the symbol. For example, libc calls its `realpath`
/// `__GI___realpath` in DWARF. People know the public name.
fn is_alias(known: &str, symbol: &str) -> bool {
    let plain = known.trim_start_matches("__GI_").trim_start_matches('_');
    known.starts_with("__") && plain == symbol.split('@').next().unwrap_or(symbol)
}

/// A function of a symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// In the file's addresses.
    pub address: u64,
    pub size: u64,
    pub is_local: bool,
}

/// The functions that only the separate debug file of a module has, or its small symbol table in `.gnu_debugdata`, and
/// whose names are `wanted`.
pub(crate) fn separate_functions(
    store: &Store,
    module: &Module,
    finder: &Finder<'_>,
    wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Function> {
    let Ok(found) = find_module(store, module, finder) else { return Vec::new() };
    let separate = debug_file(store, &found, finder, &mut String::new()).map(|separate| separate.elf);
    let Some(elf) = separate.or_else(|| mini_debug_info(store, &found.elf)) else { return Vec::new() };
    let mut functions = Vec::new();
    for section in elf.symbols(object::elf::SHT_SYMTAB) {
        each_function(&section, |name, symbol| {
            if wanted(name) {
                functions.push(Function {
                    name: String::from_utf8_lossy(name).into_owned(),
                    address: symbol.st_value(LittleEndian),
                    size: symbol.st_size(LittleEndian),
                    is_local: symbol.st_bind() == object::elf::STB_LOCAL,
                });
            }
        });
    }
    functions
}

/// The file of the module that has the recorded build-id.
fn find_module<'f>(store: &'f Store, module: &Module, finder: &Finder<'_>) -> Result<Found<'f>, State> {
    let path = Path::new(&module.path);
    if module.path.contains("vdso") && !module.path.starts_with('/') {
        return vdso(store, module);
    }
    if !path.is_absolute() {
        return Err(State { state: SymbolState::Missing, note: format!("{} is no file", module.path) });
    }
    let mut candidates = Vec::new();
    let held = finder.target.and_then(|target| target.held(module.instance));
    candidates.extend(held.map(|file| (path.to_owned(), file)));
    candidates.extend(finder.at(path));
    let mut wrong = None;
    for (path, file) in candidates {
        let changed = changed_since(&file, finder.search.started_unix_ns);
        let Some(elf) = Elf::open(store, file) else {
            let note = format!("{} is not an ELF file that can be read", path.display());
            wrong = wrong.or(Some(State { state: SymbolState::Unreadable, note }));
            continue;
        };
        let found = elf.build_id();
        if found != module.build_id {
            let note = format!(
                "{} is not the file that ran: its build-id is {}, recorded was {}",
                path.display(),
                or_none(found),
                or_none(&module.build_id)
            );
            wrong = Some(State { state: SymbolState::Mismatch, note });
        } else if found.is_empty() && changed {
            let note = format!("{} has no build-id and was changed since the recording began", path.display());
            wrong = Some(State { state: SymbolState::Mismatch, note });
        } else {
            return Ok(Found { elf, path });
        }
    }
    Err(wrong.unwrap_or_else(|| State { state: SymbolState::Missing, note: format!("{} is not there", module.path) }))
}

fn or_none(build_id: &[u8]) -> String {
    if build_id.is_empty() { "none".into() } else { hex(build_id) }
}

fn changed_since(file: &File, unix_ns: u64) -> bool {
    let Ok(data) = file.metadata() else { return true };
    unix_ns != 0 && data.mtime() as i128 * 1_000_000_000 + data.mtime_nsec() as i128 > unix_ns as i128
}

fn vdso<'f>(store: &'f Store, module: &Module) -> Result<Found<'f>, State> {
    let ours = own_vdso().and_then(|bytes| Elf::parse(store, store.memory(bytes)));
    match ours {
        Some(elf) if elf.build_id() == module.build_id => Ok(Found { elf, path: PathBuf::from(&module.path) }),
        Some(_) => Err(State { state: SymbolState::Mismatch, note: "another kernel's vdso".into() }),
        None => Err(State { state: SymbolState::Missing, note: "there is no vdso here".into() }),
    }
}

fn by_build_id<'f>(store: &'f Store, build_id: &[u8], finder: &Finder<'_>) -> Option<Found<'f>> {
    finder.by_build_id(build_id).into_iter().find_map(|(path, file)| {
        let elf = Elf::open(store, file)?;
        (elf.build_id() == build_id).then_some(Found { elf, path })
    })
}

/// Returns the file that holds the debug information of a stripped file.
fn debug_file<'f>(store: &'f Store, of: &Found<'f>, finder: &Finder<'_>, trouble: &mut String) -> Option<Found<'f>> {
    let build_id = of.elf.build_id();
    if let Some(found) = by_build_id(store, build_id, finder) {
        return Some(found);
    }
    by_link(store, of, finder, trouble).or_else(|| remote(store, build_id, finder, trouble))
}

fn by_link<'f>(store: &'f Store, of: &Found<'f>, finder: &Finder<'_>, trouble: &mut String) -> Option<Found<'f>> {
    let build_id = of.elf.build_id();
    let (name, sum) = of.elf.debug_link()?;
    let name = std::str::from_utf8(name).ok()?;
    for (path, mut file) in finder.by_link(&of.path, name) {
        let crc = if build_id.is_empty() { crc(&mut file) } else { None };
        let Some(elf) = Elf::open(store, file) else { continue };
        let fits = if build_id.is_empty() { crc == Some(sum) } else { elf.build_id() == build_id };
        if fits {
            return Some(Found { elf, path });
        }
        *trouble = format!("{} belongs to another build and was not used", path.display());
    }
    None
}

/// The debug file from a server, if the user allows that.
fn remote<'f>(store: &'f Store, build_id: &[u8], finder: &Finder<'_>, trouble: &mut String) -> Option<Found<'f>> {
    let (path, file) = finder.remote(build_id)?;
    let found = Elf::open(store, file).filter(|elf| elf.build_id() == build_id);
    if found.is_none() {
        *trouble = format!("{} is not what was asked for and was not used", path.display());
    }
    found.map(|elf| Found { elf, path })
}

fn crc(file: &mut File) -> Option<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            count => hasher.update(buffer.get(..count)?),
        }
    }
    file.seek(SeekFrom::Start(0)).ok()?;
    Some(hasher.finalize())
}

/// The small symbol table that Fedora puts into stripped files.
fn mini_debug_info<'f>(store: &'f Store, elf: &Elf<'f>) -> Option<Elf<'f>> {
    let packed = elf.part(Some(".gnu_debugdata")).bytes().ok().filter(|bytes| !bytes.is_empty())?;
    let mut bytes = Vec::new();
    XzReader::new(&packed[..], false).take(MAX_DEBUG_DATA).read_to_end(&mut bytes).ok()?;
    Elf::parse(store, store.memory(bytes))
}

/// Removes each `.`, and each `..` together with the folder before it.
fn tidy(path: &str) -> String {
    let mut out = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                let can = matches!(out.components().next_back(), Some(Component::Normal(_)));
                if can {
                    out.pop();
                } else {
                    out.push("..");
                }
            }
            part => out.push(part),
        }
    }
    out.to_string_lossy().into_owned()
}
