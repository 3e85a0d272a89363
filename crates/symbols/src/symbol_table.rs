//! Symbol tables: map addresses to the linker's names.
//!
//! Receives: files, and the addresses that will be asked for. Returns: the symbol at an address. Must hold: the tables
//! are read once, in order, and again only for an address that was not announced. Only symbols that can name one of the
//! addresses are kept. Names that are close together in the file are read with the table, others at their first use.
use crate::elf::{Elf, SymbolSection};
use crate::near::{Entry, Near};
use object::LittleEndian;
use object::elf;
use object::read::elf::Sym;
use std::cell::OnceCell;

type Sym64 = elf::Sym64<LittleEndian>;

/// Symbols that begin before the nearest one may still cover the address. A search looks at this many addresses.
const LOOK_BACK: usize = 16;
/// How many bytes of a table are read at a time; a multiple of a symbol's size.
const STRETCH: usize = size_of::<Sym64>() << 12;
/// If a stretch of the strings has at least this many names, it is read as a whole.
const MANY: usize = 16;
/// How many bytes of a single name are read at a time. Most names are shorter.
const NAME: usize = 256;

#[derive(Default)]
pub(crate) struct SymbolTable {
    sections: Vec<SymbolSection>,
    /// The addresses that will be asked for.
    expected: Vec<u64>,
    near: Option<Near>,
    /// The names of the entries of `near`, as far as they were used. An empty name means that there is none.
    names: Vec<OnceCell<Vec<u8>>>,
    /// By section, the symbols that are source files.
    files: Vec<Vec<File>>,
    is_nim: OnceCell<bool>,
}

struct File {
    number: u32,
    at: u32,
    name: OnceCell<Vec<u8>>,
}

/// An entry of a symbol table that can name code.
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    entry: Entry,
    /// The index of its name in `SymbolTable::names`.
    at: usize,
}

impl Symbol {
    pub(crate) const fn start(&self) -> u64 {
        self.entry.address
    }

    /// Section and index, which identify it in its table.
    pub(crate) const fn key(&self) -> u64 {
        (self.entry.section as u64) << 32 | self.entry.number as u64
    }
}

impl SymbolTable {
    pub(crate) fn add(&mut self, file: &Elf<'_>) {
        let (all, exported) = (file.symbols(elf::SHT_SYMTAB), file.symbols(elf::SHT_DYNSYM));
        let size =
            |sections: &[SymbolSection]| sections.iter().fold(0, |sum: u64, it| sum.saturating_add(it.symbols.1));
        // A linker puts all symbols into `.symtab`, and exported ones also into `.dynsym`. So `.symtab` is smaller only
        // if symbols were removed from it.
        let has_all = size(&all) >= size(&exported);
        self.sections.extend(all);
        if !has_all {
            self.sections.extend(exported);
        }
    }

    /// Whether no symbol names code.
    pub(crate) fn is_empty(&self) -> bool {
        !self.sections.iter().any(|section| each(section, |_, symbol| !is_code(symbol, section)).is_none())
    }

    pub(crate) fn expect(&mut self, addresses: Vec<u64>) {
        self.expected = addresses;
        self.near = None;
    }

    /// The symbol at an address. Fast if the address was announced with `expect`.
    pub(crate) fn find(&mut self, address: u64) -> Option<Symbol> {
        if !self.near.as_ref().is_some_and(|near| near.knows(address)) {
            let mut expected = std::mem::take(&mut self.expected);
            expected.push(address);
            self.read(expected);
        }
        let entries = self.near.as_ref().map(Near::entries)?;
        let mut after = entries.partition_point(|entry| entry.address <= address);
        let mut nearest = None;
        for look in 0..LOOK_BACK {
            let Some(last) = after.checked_sub(1).and_then(|at| entries.get(at)) else { break };
            let first = entries.partition_point(|entry| entry.address < last.address);
            let here = entries.get(first..after)?;
            if here.iter().any(|entry| entry.covers(address)) {
                let best = self.best(first, here, |entry| entry.covers(address));
                if best.is_some() {
                    return best;
                }
            } else if look == 0 && here.iter().all(|entry| entry.size == 0) {
                // Assembler functions often have no size. They extend to the next symbol.
                nearest = self.best(first, here, |_| true);
            }
            after = first;
        }
        nearest
    }

    /// Reads all tables.
    fn read(&mut self, expected: Vec<u64>) {
        let mut near = Near::new(expected);
        self.files.clear();
        for (place, section) in self.sections.iter().enumerate() {
            let mut files = Vec::new();
            let _ = each(section, |number, symbol| {
                if symbol.st_type() == elf::STT_FILE {
                    files.push(File { number, at: symbol.st_name(LittleEndian), name: OnceCell::new() });
                } else if is_code(symbol, section) {
                    near.add(entry(symbol, place as u32, number));
                }
                true
            });
            self.files.push(files);
        }
        near.finish();
        self.names = vec![OnceCell::new(); near.entries().len()];
        for (place, section) in (0..).zip(&self.sections) {
            let entries = near.entries().iter().zip(&self.names).filter(|(entry, _)| entry.section == place);
            let mut names: Vec<(u32, &OnceCell<Vec<u8>>)> = entries.map(|(entry, name)| (entry.name, name)).collect();
            names.sort_unstable_by_key(|(at, _)| *at);
            read_together(section, &names);
        }
        self.near = Some(near);
    }

    /// Of several names for one address, the best one that fits. `first`: the index of the first entry.
    fn best(&self, first: usize, entries: &[Entry], fits: impl Fn(&Entry) -> bool) -> Option<Symbol> {
        let symbols = entries.iter().zip(first..).map(|(entry, at)| Symbol { entry: *entry, at });
        let named = symbols.filter(|symbol| fits(&symbol.entry) && !self.name_of(symbol).is_empty());
        let rank = |symbol: &Symbol| rank(&(symbol.entry, self.name_of(symbol)));
        named.min_by(|a, b| rank(a).cmp(&rank(b)))
    }

    pub(crate) fn name_of(&self, symbol: &Symbol) -> &[u8] {
        let Some(known) = self.names.get(symbol.at) else { return &[] };
        let name = known.get_or_init(|| self.name(symbol.entry.section, symbol.entry.name).unwrap_or_default());
        // `.symtab` appends the version, as in `memcpy@@GLIBC_2.14`.
        match name.iter().position(|byte| *byte == b'@') {
            Some(version @ 1..) => &name[..version],
            _ => name,
        }
    }

    fn name(&self, section: u32, at: u32) -> Option<Vec<u8>> {
        self.sections.get(section as usize).and_then(|section| name(section, at))
    }

    /// The source file of a local symbol, without its folder. More is not known without debug information.
    pub(crate) fn file(&self, symbol: &Symbol) -> Option<&[u8]> {
        let Entry { section, number, is_local, .. } = symbol.entry;
        let files = self.files.get(section as usize).filter(|_| is_local)?;
        let before = files.partition_point(|file| file.number < number);
        let file = files.get(before.checked_sub(1)?)?;
        let name = file.name.get_or_init(|| self.name(section, file.at).unwrap_or_default());
        // The linker's own local symbols follow a file with an empty name.
        Some(name.as_slice()).filter(|name| !name.is_empty())
    }

    /// Whether the module was written in Nim. Reads all names, so it is called only for names that look like Nim's.
    pub(crate) fn is_nim(&self) -> bool {
        *self.is_nim.get_or_init(|| self.sections.iter().any(|section| has(section, b"NimMain\0")))
    }
}

/// Calls `take` with every symbol and its index, until it returns false. Returns `None` if `take` returned false.
fn each(section: &SymbolSection, mut take: impl FnMut(u32, &Sym64) -> bool) -> Option<()> {
    let (mut at, mut left) = section.symbols;
    let mut buffer = vec![0; STRETCH.min(usize::try_from(left).unwrap_or(STRETCH))];
    let mut number = 0;
    while left >= size_of::<Sym64>() as u64 {
        let bytes = buffer.get_mut(..usize::try_from(left).unwrap_or(STRETCH).min(STRETCH)).unwrap_or_default();
        // A truncated file still has the symbols before the cut.
        let Ok(count @ 1..) = section.source.read_at(bytes, at) else { break };
        let whole = count / size_of::<Sym64>();
        let Ok((symbols, _)) = object::pod::slice_from_bytes::<Sym64>(bytes, whole) else { break };
        for symbol in symbols {
            if !take(number, symbol) {
                return None;
            }
            number += 1;
        }
        let read = (whole * size_of::<Sym64>()) as u64;
        if read == 0 {
            break;
        }
        at += read;
        left -= read;
    }
    Some(())
}

/// Calls `take` with every defined function and its name. The strings are read as a whole.
pub(crate) fn each_function(section: &SymbolSection, mut take: impl FnMut(&[u8], &Sym64)) {
    let (start, size) = section.strings;
    let strings = usize::try_from(size).map(|size| section.source.read(start, size)).unwrap_or_default();
    let _ = each(section, |_, symbol| {
        if symbol.st_type() == elf::STT_FUNC && symbol.st_shndx(LittleEndian) != elf::SHN_UNDEF {
            let name = strings.get(symbol.st_name(LittleEndian) as usize..).unwrap_or_default();
            take(name.split(|byte| *byte == 0).next().unwrap_or_default(), symbol);
        }
        true
    });
}

fn entry(symbol: &Sym64, section: u32, number: u32) -> Entry {
    Entry {
        address: symbol.st_value(LittleEndian),
        section,
        number,
        size: symbol.st_size(LittleEndian),
        name: symbol.st_name(LittleEndian),
        untyped: !matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC),
        is_local: symbol.st_bind() == elf::STB_LOCAL,
    }
}

fn is_code(symbol: &Sym64, section: &SymbolSection) -> bool {
    let index = symbol.st_shndx(LittleEndian);
    let in_code = || section.is_code.get(index.0 as usize).copied().unwrap_or(false);
    let fits = match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
        elf::STT_NOTYPE | elf::STT_OBJECT => in_code(),
        _ => false,
    };
    fits && index != elf::SHN_UNDEF && symbol.st_name(LittleEndian) != 0
}

/// The name at this offset of the strings. Returns `None` if it is not terminated.
fn name(section: &SymbolSection, at: u32) -> Option<Vec<u8>> {
    let (start, size) = section.strings;
    let mut left = usize::try_from(size.checked_sub(at as u64)?).ok()?;
    let mut at = start.checked_add(at as u64)?;
    let mut name = Vec::new();
    while left > 0 {
        let mut bytes = [0; NAME];
        let count = section.source.read_at(bytes.get_mut(..left.min(NAME))?, at).ok().filter(|count| *count > 0)?;
        let bytes = bytes.get(..count)?;
        match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => {
                name.extend_from_slice(bytes.get(..end)?);
                return Some(name);
            }
            None => name.extend_from_slice(bytes),
        }
        at += count as u64;
        left -= count;
    }
    None
}

/// Reads the names that have many others near them, a whole stretch at once. `names`: sorted by offset.
fn read_together(section: &SymbolSection, mut names: &[(u32, &OnceCell<Vec<u8>>)]) {
    let (start, size) = section.strings;
    let mut buffer = Vec::new();
    while let Some((first, _)) = names.first() {
        let from = *first as u64;
        let (here, later) = names.split_at(names.partition_point(|(at, _)| (*at as u64) < from + STRETCH as u64));
        names = later;
        if here.len() < MANY {
            continue;
        }
        buffer.resize(STRETCH.min(usize::try_from(size.saturating_sub(from)).unwrap_or(STRETCH)), 0);
        let Some(place) = start.checked_add(from) else { return };
        let count = section.source.read_at(&mut buffer, place).unwrap_or(0);
        let bytes = buffer.get(..count).unwrap_or_default();
        for (at, name) in here {
            let rest = bytes.get((*at as u64 - from) as usize..).unwrap_or_default();
            // A name that continues after the stretch is read separately.
            if let Some(end) = rest.iter().position(|byte| *byte == 0) {
                let _ = name.set(rest[..end].to_vec());
            }
        }
    }
}

/// Whether a symbol that names code has this name, which is given with its terminating 0.
fn has(section: &SymbolSection, wanted: &[u8]) -> bool {
    let (start, size) = section.strings;
    let strings = usize::try_from(size).map(|size| section.source.read(start, size)).unwrap_or_default();
    let places = strings.windows(wanted.len()).enumerate().filter(|(_, bytes)| *bytes == wanted);
    let places: Vec<u32> = places.filter_map(|(at, _)| u32::try_from(at).ok()).collect();
    if places.is_empty() {
        return false;
    }
    let is_other =
        |symbol: &Sym64| !is_code(symbol, section) || places.binary_search(&symbol.st_name(LittleEndian)).is_err();
    each(section, |_, symbol| is_other(symbol)).is_none()
}

/// Lower is better: a known size, a type, the fewest leading underscores (0 for a mangled name), then alphabetical
/// order.
fn rank<'a>((entry, name): &(Entry, &'a [u8])) -> (bool, bool, usize, &'a [u8]) {
    let underscores = name.iter().take_while(|byte| **byte == b'_').count();
    let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    (entry.size == 0, entry.untyped, if mangled { 0 } else { underscores }, name)
}
