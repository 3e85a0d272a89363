//! Symbol tables: addresses to the names that the linker knows.
//!
//! What must hold: only the order of the addresses is made in advance; a name is read when somebody asks for it.
use crate::elf::{Elf, SymbolSection};
use crate::part::Part;
use gimli::Reader;
use object::LittleEndian;
use object::elf;
use object::read::elf::Sym;
use std::borrow::Cow;
use std::cell::OnceCell;

/// Symbols that begin before the one found may still cover the address; so many are looked at.
const LOOK_BACK: usize = 16;

#[derive(Default)]
pub(crate) struct Table<'f> {
    sections: Vec<SymbolSection<'f>>,
    /// By address.
    entries: Vec<Entry>,
    is_nim: OnceCell<bool>,
}

/// Where a symbol stands: address, and section and number in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    address: u64,
    section: u32,
    number: u32,
}

/// An entry of a symbol table that can name code.
pub(crate) struct Symbol<'f> {
    entry: Entry,
    size: u64,
    pub(crate) name: Cow<'f, [u8]>,
    /// Written in assembler: without a type, or a table among the code.
    untyped: bool,
    is_local: bool,
}

impl Symbol<'_> {
    pub(crate) const fn start(&self) -> u64 {
        self.entry.address
    }
}

impl<'f> Table<'f> {
    pub(crate) fn add(&mut self, file: &Elf<'f>) {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            for section in file.symbols(kind) {
                let place = self.sections.len() as u32;
                let code = section.symbols.iter().enumerate().filter(|(_, symbol)| is_code(symbol, &section));
                self.entries.extend(code.map(|(number, symbol)| Entry {
                    address: symbol.st_value(LittleEndian),
                    section: place,
                    number: number as u32,
                }));
                self.sections.push(section);
            }
        }
    }

    /// To be called when all files were added.
    pub(crate) fn sort(&mut self) {
        self.entries.sort_unstable();
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn find(&self, address: u64) -> Option<Symbol<'f>> {
        let mut behind = self.entries.partition_point(|entry| entry.address <= address);
        let mut nearest = None;
        for _ in 0..LOOK_BACK {
            let Some(last) = behind.checked_sub(1).and_then(|at| self.entries.get(at)) else { break };
            let first = self.entries.partition_point(|entry| entry.address < last.address);
            if let Some(best) = self.best(self.entries.get(first..behind)?) {
                if address - best.entry.address < best.size {
                    return Some(best);
                }
                nearest = nearest.or(Some(best));
            }
            behind = first;
        }
        // Assembler functions often have no size: they reach to the next symbol.
        nearest.filter(|symbol| symbol.size == 0)
    }

    /// Of several names for one address.
    fn best(&self, entries: &[Entry]) -> Option<Symbol<'f>> {
        let symbols = entries.iter().filter_map(|entry| self.symbol(*entry)).filter(|symbol| !symbol.name.is_empty());
        symbols.min_by(|a, b| rank(a).cmp(&rank(b)))
    }

    fn symbol(&self, entry: Entry) -> Option<Symbol<'f>> {
        let section = self.sections.get(entry.section as usize)?;
        let symbol = section.symbols.get(entry.number as usize)?;
        Some(Symbol {
            entry,
            size: symbol.st_size(LittleEndian),
            name: name(section, symbol.st_name(LittleEndian))?,
            untyped: !matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC),
            is_local: symbol.st_bind() == elf::STB_LOCAL,
        })
    }

    /// A local symbol's source file, by its bare name: all that is known without debug information.
    pub(crate) fn file(&self, symbol: &Symbol<'_>) -> Option<Cow<'f, [u8]>> {
        let section = self.sections.get(symbol.entry.section as usize).filter(|_| symbol.is_local)?;
        let before = section.symbols.get(..symbol.entry.number as usize)?;
        let file = before.iter().rev().find(|symbol| symbol.st_type() == elf::STT_FILE)?;
        // The linker's own local symbols follow an empty name.
        name(section, file.st_name(LittleEndian)).filter(|name| !name.is_empty())
    }

    /// Looked up only for names that may be Nim's: it reads all of them.
    pub(crate) fn is_nim(&self) -> bool {
        *self.is_nim.get_or_init(|| {
            let symbols = self.entries.iter().filter_map(|entry| self.symbol(*entry));
            symbols.into_iter().any(|symbol| *symbol.name == *b"NimMain")
        })
    }
}

fn is_code(symbol: &crate::elf::Sym64, section: &SymbolSection<'_>) -> bool {
    let index = symbol.st_shndx(LittleEndian);
    let in_code = || section.is_code.get(index.0 as usize).copied().unwrap_or(false);
    let fits = match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
        elf::STT_NOTYPE | elf::STT_OBJECT => in_code(),
        _ => false,
    };
    fits && index != elf::SHN_UNDEF && symbol.st_name(LittleEndian) != 0
}

fn name<'f>(section: &SymbolSection<'f>, at: u32) -> Option<Cow<'f, [u8]>> {
    let mut strings = Part::new(Some(section.strings));
    strings.skip(at as usize).ok()?;
    strings.read_null_terminated_slice().ok()?.bytes().ok()
}

/// Lower is better: a known size, a type, the name with the fewest underscores, then a fixed order.
fn rank<'a>(symbol: &'a Symbol<'_>) -> (bool, bool, usize, &'a [u8]) {
    let underscores = symbol.name.iter().take_while(|byte| **byte == b'_').count();
    let mangled = symbol.name.starts_with(b"_Z") || symbol.name.starts_with(b"_R");
    (symbol.size == 0, symbol.untyped, if mangled { 0 } else { underscores }, &symbol.name)
}
