//! The tables of addresses through which modules call functions of other modules, and often their own.
//!
//! Receives: functions whose first instructions cannot be patched. Returns: the words of those tables that lead to one
//! of them. Must hold: a word is returned only if it holds the function's address, or would hold it after the first
//! call through it. The tables of a module are hostile; only memory that can be read is used.
use crate::files::Object;
use crate::loader::{Listed, Loader};
use crate::memory::Memory;
use capture::elf::{DT_STRTAB, DT_SYMTAB, RELOCATION_TABLES, Relocation, Symbol};
use object::elf;

const MOST_TAGS: u64 = 256;
/// The most bytes of relocations that are read at a time, and the most that are read of one table. The tables of the
/// largest browsers are shorter.
const PIECE: usize = 1 << 20;
const MOST_RELOCATIONS: u64 = 64 << 20;
const RELOCATION: usize = size_of::<Relocation>();
const SYMBOL: u64 = size_of::<Symbol>() as u64;
const LONGEST_NAME: usize = 64;
const PAGE: u64 = 4096;

/// A word that leads to one of the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    pub at: u64,
    pub function: u64,
    /// The word's present value: the function's address or, before the first call, the address of code that lets the
    /// loader look the function up.
    pub value: u64,
}

/// A name that a module exports, and its address. The bias identifies the module.
#[derive(Clone, Debug)]
pub struct Export {
    pub bias: u64,
    pub name: String,
    pub at: u64,
}

/// The addresses of one module's tables.
#[derive(Clone, Copy, Debug, Default)]
struct Dynamic {
    /// Address and length of each of `RELOCATION_TABLES`.
    tables: [(u64, u64); 2],
    symbols: u64,
    strings: u64,
}

/// Returns the export of that name that the loader finds first, in the order of its list.
pub fn first_of<'a>(name: &[u8], list: &[Listed], exports: &'a [Export]) -> Option<&'a Export> {
    let place = |export: &Export| list.iter().position(|listed| listed.bias == export.bias);
    let known = exports.iter().filter(|export| export.name.as_bytes() == name);
    known.filter_map(|export| Some((place(export)?, export))).min_by_key(|(place, _)| *place).map(|(_, export)| export)
}

/// Returns all words that lead to one of `functions`.
pub fn find(
    memory: &Memory,
    objects: &[Object],
    loader: &Loader,
    list: &[Listed],
    exports: &[Export],
    functions: &[u64],
) -> Vec<Import> {
    let object_of = |listed: &Listed| objects.iter().find(|object| object.bias == listed.bias);
    // The loader looks up names for modules that were loaded at the start in the order of the list. Modules that were
    // loaded later may have another order. The loader itself is there from the start, so all modules up to it on the
    // list are.
    let loader_at = list.iter().position(|listed| {
        object_of(listed).is_some_and(|object| (object.start..object.end).contains(&loader.changed))
    });
    let first_of = |name: &[u8]| first_of(name, list, exports).map(|export| export.at);
    let mut found = Vec::new();
    for (place, listed) in list.iter().enumerate() {
        let Some(object) = object_of(listed) else { continue };
        let is_first = loader_at.is_some_and(|at| place <= at);
        let module = Module { memory, object, dynamic: Dynamic::of(memory, listed) };
        module.find(functions, |name| first_of(name).filter(|_| is_first), &mut found);
    }
    found.sort_unstable_by_key(|import| import.at);
    found.dedup_by_key(|import| import.at);
    found
}

impl Dynamic {
    fn of(memory: &Memory, listed: &Listed) -> Dynamic {
        let mut dynamic = Dynamic::default();
        // Some loaders relocate the addresses in this table, others leave them as in the file.
        let address = |value: u64| if value < listed.bias { value + listed.bias } else { value };
        for index in 0..MOST_TAGS {
            let Ok([tag, value]) = memory.words::<2>(listed.dynamic.wrapping_add(index * 16)) else { break };
            for ((table, size), found) in RELOCATION_TABLES.into_iter().zip(&mut dynamic.tables) {
                if tag == table {
                    found.0 = address(value);
                } else if tag == size {
                    found.1 = value;
                }
            }
            match tag {
                0 => break,
                DT_SYMTAB => dynamic.symbols = address(value),
                DT_STRTAB => dynamic.strings = address(value),
                _ => (),
            }
        }
        dynamic
    }
}

struct Module<'a> {
    memory: &'a Memory,
    object: &'a Object,
    dynamic: Dynamic,
}

impl Module<'_> {
    fn find(&self, functions: &[u64], first_of: impl Fn(&[u8]) -> Option<u64>, found: &mut Vec<Import>) {
        let mut words = Words::new(self.memory);
        for (at, kind, symbol) in self.relocations() {
            let Some(value) = words.at(at) else { continue };
            if functions.contains(&value) {
                found.push(Import { at, function: value, value });
            } else if kind == elf::R_X86_64_JUMP_SLOT.0
                && self.is_unbound(value, symbol)
                && let Some(function) = first_of(&self.name_of(symbol)).filter(|at| functions.contains(at))
            {
                found.push(Import { at, function, value });
            }
        }
    }

    /// Returns the address, kind and symbol of each relocation whose word may hold a function's address.
    fn relocations(&self) -> impl Iterator<Item = (u64, u32, u64)> {
        let tables = self.dynamic.tables.into_iter().filter(|(at, _)| self.holds(*at));
        let pieces = tables.flat_map(|(at, length)| {
            let end = at + length.min(MOST_RELOCATIONS);
            let step = PIECE - PIECE % RELOCATION;
            (at..end).step_by(step).map(move |from| (from, (end - from).min(step as u64) as usize))
        });
        let entries = pieces.flat_map(|(from, length)| {
            let mut bytes = vec![0; length];
            let length = self.memory.read_some(from, &mut bytes);
            bytes.truncate(length);
            let entries = bytes.chunks_exact(RELOCATION).filter_map(|bytes| {
                let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
                let (offset, info) = (word(0)?, word(8)?);
                Some((self.object.bias.wrapping_add(offset), info as u32, info >> 32))
            });
            entries.collect::<Vec<_>>()
        });
        let kinds = [elf::R_X86_64_64.0, elf::R_X86_64_GLOB_DAT.0, elf::R_X86_64_JUMP_SLOT.0];
        entries.filter(move |(at, kind, _)| kinds.contains(kind) && at % 8 == 0 && self.holds(*at))
    }

    fn holds(&self, address: u64) -> bool {
        (self.object.start..self.object.end).contains(&address)
    }

    /// Returns true if no call was made through the word yet. Such a word holds an address in its own module, but not
    /// that of a function of the symbol's name in that module.
    fn is_unbound(&self, value: u64, symbol: u64) -> bool {
        let Some([first, own]) = self.symbol(symbol) else { return false };
        let is_function = first >> 32 & 0xf == u64::from(elf::STT_FUNC.0);
        self.holds(value) && (own == 0 || is_function && value != self.object.bias.wrapping_add(own))
    }

    fn name_of(&self, symbol: u64) -> Vec<u8> {
        let first = self.symbol(symbol).map_or(0, |[first, _]| first);
        self.memory.string(self.dynamic.strings.wrapping_add(first & 0xffff_ffff), LONGEST_NAME)
    }

    /// Returns the two words of a symbol: name and kind, and the value.
    fn symbol(&self, number: u64) -> Option<[u64; 2]> {
        self.memory.words(self.dynamic.symbols.wrapping_add(number * SYMBOL)).ok()
    }
}

/// Reads words of the target. It keeps the last page, because many of them are on one page.
struct Words<'a> {
    memory: &'a Memory,
    page: u64,
    bytes: Vec<u8>,
}

impl Words<'_> {
    fn new(memory: &Memory) -> Words<'_> {
        Words { memory, page: 0, bytes: Vec::new() }
    }

    fn at(&mut self, address: u64) -> Option<u64> {
        let page = address & !(PAGE - 1);
        if page != self.page || self.bytes.is_empty() {
            self.bytes.resize(PAGE as usize, 0);
            let length = self.memory.read_some(page, &mut self.bytes);
            self.bytes.truncate(length);
            self.page = page;
        }
        let place = (address - page) as usize;
        self.bytes.get(place..place + 8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::Maps;
    use crate::process::Process;

    fn of_ourselves(exports: &[Export], functions: &[u64]) -> Vec<Import> {
        let process = Process::new(std::process::id()).unwrap();
        let memory = Memory::open(&process.folder).unwrap();
        let maps = Maps::of(&process.folder).unwrap();
        let loader = Loader::find(&process, &memory).unwrap();
        let objects = Object::all(&process, &maps, &memory);
        find(&memory, &objects, &loader, &loader.list(&memory), exports, functions)
    }

    #[test]
    fn words_that_lead_to_a_function_are_found() {
        let malloc = libc::malloc as unsafe extern "C" fn(usize) -> *mut libc::c_void as usize as u64;
        let found = of_ourselves(&[], &[malloc]);
        assert!(!found.is_empty());
        for import in found {
            assert_eq!((import.function, import.value), (malloc, malloc));
            // SAFETY: `relocations` returns aligned addresses inside of a module of this process; the loader has
            // written this one (it holds `malloc`), does not write it again, and no module is unloaded during the test.
            assert_eq!(unsafe { *(import.at as *const u64) }, malloc);
        }
        assert_eq!(of_ourselves(&[], &[malloc + 1]), []);
    }

    #[test]
    fn a_word_that_is_bound_elsewhere_is_not_taken_for_its_name() {
        let malloc = libc::malloc as unsafe extern "C" fn(usize) -> *mut libc::c_void as usize as u64;
        let export = Export { bias: 0, name: "malloc".to_owned(), at: malloc + 1 };
        assert_eq!(of_ourselves(&[export], &[malloc + 1]), []);
    }
}
