//! Finds out which functions of a list a program file defines itself.
//!
//! Receives: an ELF file and names. Returns: the names that are functions defined in the file, exported or not, and
//! their addresses. Must hold: exported functions are found as the loader finds them. Local ones take one pass over the
//! strings and one over the symbols, piece by piece, because a program may have 100 MB of symbols and its start waits
//! for us.
use object::Endianness;
use object::elf;
use object::pod;
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

type Section = elf::SectionHeader64<Endianness>;
type Symbol = elf::Sym64<Endianness>;

/// The bytes of a section that are read at a time. Must be a multiple of a symbol's size.
const PIECE: usize = 24 << 13;

/// A function that the file defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defined {
    pub name: &'static [u8],
    pub address: u64,
    pub is_local: bool,
}

/// Which symbols count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only symbols that other files can be linked to.
    Global,
    /// Also local symbols, which a library does not export.
    All,
}

/// Returns those of `names` that the file at `path` defines. Returns nothing if the file cannot be read or is not an
/// ELF file.
pub fn of_file(path: &Path, names: &[&'static [u8]], scope: Scope) -> Vec<Defined> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let data = ReadCache::new(&file);
    let headers = || {
        let header = elf::FileHeader64::<Endianness>::parse(&data)?;
        let endian = header.endian()?;
        Ok::<_, object::Error>((endian, header.section_headers(endian, &data)?))
    };
    headers().map_or_else(|_| Vec::new(), |(endian, sections)| find(&file, sections, endian, names, scope))
}

/// Returns those of `names` that the file defines, in no particular order.
pub fn find(
    file: &File,
    sections: &[Section],
    endian: Endianness,
    names: &[&'static [u8]],
    scope: Scope,
) -> Vec<Defined> {
    let mut found = Vec::new();
    let is_dynamic = |section: &Section| section.sh_type(endian) == elf::SHT_DYNSYM;
    let mut tables: Vec<(usize, &Section)> = sections.iter().enumerate().collect();
    tables.retain(|(_, section)| is_dynamic(section) || section.sh_type(endian) == elf::SHT_SYMTAB);
    tables.sort_by_key(|(_, section)| !is_dynamic(section));
    let mut exported = 0;
    for (number, symbols) in tables {
        // An exported symbol is in both tables. If this table has no more global symbols, all were found already.
        if scope == Scope::Global && !is_dynamic(symbols) && globals(symbols, endian) <= exported {
            continue;
        }
        let Some(strings) = sections.get(symbols.sh_link(endian) as usize) else { continue };
        let is_hash =
            |other: &&Section| other.sh_type(endian) == elf::SHT_GNU_HASH && other.sh_link(endian) as usize == number;
        if let Some(hash) = sections.iter().find(is_hash) {
            let exports = Exports { file, endian, hash, symbols, strings };
            if let Some(defined) = exports.find_all(names) {
                found.extend(defined);
                exported = globals(symbols, endian);
                continue;
            }
        }
        let wanted = occurrences(file, strings, endian, names);
        if !wanted.is_empty() {
            definitions(file, symbols, endian, &wanted, scope, &mut found);
        }
    }
    found
}

/// Returns how many symbols of a table other files can see. In a table, local symbols come first.
fn globals(symbols: &Section, endian: Endianness) -> u64 {
    (symbols.sh_size(endian) / size_of::<Symbol>() as u64).saturating_sub(symbols.sh_info(endian) as u64)
}

/// The hash table in which the loader looks up symbols.
///
/// ```text
/// .gnu.hash:  buckets u32, first symbol u32, filter words u32, shift u32 | filter u64 ... | buckets u32 ... | chains u32 ...
/// ```
/// A bucket has the number of its first symbol; the chains have, from the first symbol on, each symbol's hash, whose
/// lowest bit says that it is the last of its bucket.
struct Exports<'a> {
    file: &'a File,
    endian: Endianness,
    hash: &'a Section,
    symbols: &'a Section,
    strings: &'a Section,
}

impl Exports<'_> {
    /// Returns `None` if the table is malformed.
    fn find_all(&self, names: &[&'static [u8]]) -> Option<Vec<Defined>> {
        let [buckets, first, filters, _] = self.words(self.hash, 0)?;
        if buckets == 0 {
            return None;
        }
        let buckets_at = 16 + filters as u64 * 8;
        let chains_at = buckets_at + buckets as u64 * 4;
        let mut found = Vec::new();
        for name in names {
            let wanted = elf::gnu_hash(name);
            let [mut symbol] = self.words(self.hash, buckets_at + (wanted % buckets) as u64 * 4)?;
            if symbol != 0 && symbol < first {
                return None;
            }
            while symbol != 0 {
                let [hash] = self.words(self.hash, chains_at + (symbol - first) as u64 * 4)?;
                if hash | 1 == wanted | 1 {
                    found.extend(self.defined(symbol, name)?);
                }
                symbol = if hash & 1 == 0 { symbol.checked_add(1)? } else { 0 };
            }
        }
        Some(found)
    }

    /// Returns `Some(None)` if the symbol is no function with that name, and `None` if the tables are malformed.
    fn defined(&self, symbol: u32, name: &'static [u8]) -> Option<Option<Defined>> {
        let mut bytes = [0; size_of::<Symbol>()];
        self.read(self.symbols, symbol as u64 * bytes.len() as u64, &mut bytes)?;
        let (symbol, _) = pod::from_bytes::<Symbol>(&bytes).ok()?;
        let mut stands = vec![0; name.len() + 1];
        self.read(self.strings, symbol.st_name(self.endian) as u64, &mut stands)?;
        let is_it = stands.strip_suffix(b"\0") == Some(name) && is_defined_function(symbol, self.endian, Scope::Global);
        Some(is_it.then(|| Defined { name, address: symbol.st_value(self.endian), is_local: false }))
    }

    fn words<const COUNT: usize>(&self, section: &Section, at: u64) -> Option<[u32; COUNT]> {
        let mut words = [[0; 4]; COUNT];
        self.read(section, at, words.as_flattened_mut())?;
        Some(words.map(u32::from_le_bytes))
    }

    fn read(&self, section: &Section, at: u64, out: &mut [u8]) -> Option<()> {
        let end = at.checked_add(out.len() as u64)?;
        let start = section.sh_offset(self.endian).checked_add(at)?;
        if end > section.sh_size(self.endian) {
            return None;
        }
        self.file.read_exact_at(out, start).ok()
    }
}

fn is_defined_function(symbol: &Symbol, endian: Endianness, scope: Scope) -> bool {
    let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
    let counts = scope == Scope::All || symbol.st_bind() != elf::STB_LOCAL;
    is_function && symbol.st_shndx(endian) != elf::SHN_UNDEF && counts
}

/// A position in the strings at which a symbol's name may begin.
#[derive(Clone, Copy)]
struct Occurrence {
    offset: u64,
    name: &'static [u8],
}

/// Finds every occurrence of `names` in the strings, also at the end of a longer string, because linkers share endings.
fn occurrences(file: &File, strings: &Section, endian: Endianness, names: &[&'static [u8]]) -> Vec<Occurrence> {
    let longest = names.iter().map(|name| name.len() + 1).max().unwrap_or(0);
    let ended: Vec<(&'static [u8], Vec<u8>)> = names.iter().map(|name| (*name, [name, &b"\0"[..]].concat())).collect();
    // Names with the same ending are searched once, by that ending.
    let mut needles: Vec<&[u8]> = Vec::new();
    for (_, name) in &ended {
        if !ended.iter().any(|(_, other)| other.len() < name.len() && name.ends_with(other)) {
            needles.push(name);
        }
    }
    let mut found = Vec::new();
    in_pieces(file, strings, endian, longest, |before, bytes| {
        for needle in &needles {
            for at in memchr::memmem::find_iter(bytes, needle) {
                let end = at + needle.len();
                let those = ended.iter().filter(|(_, name)| bytes.get(..end).is_some_and(|text| text.ends_with(name)));
                found.extend(
                    those.map(|(name, ended)| Occurrence { offset: before + (end - ended.len()) as u64, name }),
                );
            }
        }
    });
    found.sort_unstable_by_key(|occurrence| occurrence.offset);
    found
}

fn definitions(
    file: &File,
    symbols: &Section,
    endian: Endianness,
    wanted: &[Occurrence],
    scope: Scope,
    found: &mut Vec<Defined>,
) {
    in_pieces(file, symbols, endian, 0, |_, bytes| {
        let count = bytes.len() / size_of::<Symbol>();
        let Ok((symbols, _)) = pod::slice_from_bytes::<Symbol>(bytes, count) else { return };
        for symbol in symbols {
            let offset = symbol.st_name(endian) as u64;
            let Ok(at) = wanted.binary_search_by_key(&offset, |occurrence| occurrence.offset) else { continue };
            if is_defined_function(symbol, endian, scope) {
                let name = wanted.get(at).map_or(&b""[..], |occurrence| occurrence.name);
                let is_local = symbol.st_bind() == elf::STB_LOCAL;
                found.push(Defined { name, address: symbol.st_value(endian), is_local });
            }
        }
    });
}

/// Calls `take` with the bytes of a section in pieces that overlap by `overlap`, each with its position in the section.
/// Stops where the file ends.
fn in_pieces(file: &File, section: &Section, endian: Endianness, overlap: usize, mut take: impl FnMut(u64, &[u8])) {
    let (start, size) = (section.sh_offset(endian), section.sh_size(endian));
    let mut buffer = vec![0u8; (PIECE as u64).min(size) as usize];
    let mut at = 0u64;
    while at < size {
        let length = (size - at).min(buffer.len() as u64) as usize;
        let Some(piece) = buffer.get_mut(..length) else { return };
        let Some(place) = start.checked_add(at) else { return };
        if file.read_exact_at(piece, place).is_err() {
            return;
        }
        take(at, piece);
        if at + length as u64 >= size || length <= overlap {
            return;
        }
        at += (length - overlap) as u64;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use object::read::elf::ElfFile64;

    fn defined(path: &Path, names: &[&'static [u8]]) -> Vec<Defined> {
        let bytes = std::fs::read(path).unwrap();
        let elf_file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let sections = elf_file.elf_header().section_headers(elf_file.endian(), &*bytes).unwrap();
        find(&File::open(path).unwrap(), sections, elf_file.endian(), names, Scope::Global)
    }

    /// The test's own binary has enough symbols for several pieces.
    #[test]
    fn what_a_file_defines_is_found_with_its_address() {
        let own = std::env::current_exe().unwrap();
        let found = defined(&own, &[b"main", b"ain", b"malloc", b"no_such_name"]);
        // Neither the end of a longer name, nor a function that is called but not defined.
        assert!(found.iter().all(|one| one.name == b"main" && one.address != 0), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    /// Compares both ways of searching, on files that most systems have.
    #[test]
    fn the_table_of_exports_says_what_the_symbols_say() {
        let names: [&'static [u8]; 8] =
            [b"malloc", b"free", b"qsort", b"main", b"_Znwm", b"no_such_name", b"pthread_create", b"cos"];
        let mut exported = 0;
        for file in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"] {
            let path = Path::new("/lib/x86_64-linux-gnu").join(file);
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let elf_file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
            let endian = elf_file.endian();
            let sections = elf_file.elf_header().section_headers(endian, &*bytes).unwrap();
            let section = |kind| sections.iter().find(|section| section.sh_type(endian) == kind).unwrap();
            let (hash, symbols) = (section(elf::SHT_GNU_HASH), section(elf::SHT_DYNSYM));
            let strings = &sections[symbols.sh_link(endian) as usize];
            let file = File::open(&path).unwrap();
            let mut quick = Exports { file: &file, endian, hash, symbols, strings }.find_all(&names).unwrap();
            let mut slow = Vec::new();
            definitions(&file, symbols, endian, &occurrences(&file, strings, endian, &names), Scope::Global, &mut slow);
            for list in [&mut quick, &mut slow] {
                list.sort_by_key(|one| (one.name, one.address));
            }
            assert_eq!(quick, slow, "{}", path.display());
            exported += quick.len();
        }
        assert!(exported >= 5, "{exported}");
    }

    #[test]
    fn exported_functions_of_a_library_are_found() {
        let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        for name in [&b"malloc"[..], b"free", b"qsort", b"strlen"] {
            assert!(defined(libc, &[name]).iter().any(|one| one.name == name && one.address != 0));
        }
        assert_eq!(defined(libc, &[b"lloc", b"mallo", b"no_such_name", b""]), []);
    }
}
