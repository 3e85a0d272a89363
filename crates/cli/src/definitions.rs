//! Which functions of interest a program file defines itself.
//!
//! Given: an ELF file and names. Gives back: those that are functions defined in it, exported or not, and their addresses. What must
//! hold: one pass over the names, one over the symbols, in pieces: a program may have 100 MB, and waits for us to start.
use object::Endianness;
use object::elf;
use object::pod;
use object::read::elf::{SectionHeader, Sym};
use std::fs::File;
use std::os::unix::fs::FileExt;

type Section = elf::SectionHeader64<Endianness>;
type Symbol = elf::Sym64<Endianness>;

/// A multiple of a symbol's size.
const PIECE: usize = 24 << 13;

/// A function of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defined {
    pub name: &'static [u8],
    pub address: u64,
}

/// Those of `names` that the file defines, without order.
pub fn find(file: &File, sections: &[Section], endian: Endianness, names: &[&'static [u8]]) -> Vec<Defined> {
    let mut found = Vec::new();
    for symbols in sections {
        if !matches!(symbols.sh_type(endian), elf::SHT_SYMTAB | elf::SHT_DYNSYM) {
            continue;
        }
        let Some(strings) = sections.get(symbols.sh_link(endian) as usize) else { continue };
        let wanted = occurrences(file, strings, endian, names);
        if !wanted.is_empty() {
            definitions(file, symbols, endian, &wanted, &mut found);
        }
    }
    found
}

/// Where a symbol's name may begin.
#[derive(Clone, Copy)]
struct Occurrence {
    offset: u64,
    name: &'static [u8],
}

/// Everywhere that one of `names` stands in the strings, also as the end of a longer one: linkers share those.
fn occurrences(file: &File, strings: &Section, endian: Endianness, names: &[&'static [u8]]) -> Vec<Occurrence> {
    let longest = names.iter().map(|name| name.len() + 1).max().unwrap_or(0);
    let ended: Vec<(&'static [u8], Vec<u8>)> = names.iter().map(|name| (*name, [name, &b"\0"[..]].concat())).collect();
    // Names with the same ending are looked for once, by that ending.
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

fn definitions(file: &File, symbols: &Section, endian: Endianness, wanted: &[Occurrence], found: &mut Vec<Defined>) {
    in_pieces(file, symbols, endian, 0, |_, bytes| {
        let count = bytes.len() / size_of::<Symbol>();
        let Ok((symbols, _)) = pod::slice_from_bytes::<Symbol>(bytes, count) else { return };
        for symbol in symbols {
            let offset = symbol.st_name(endian) as u64;
            let Ok(at) = wanted.binary_search_by_key(&offset, |occurrence| occurrence.offset) else { continue };
            let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if is_function && symbol.st_shndx(endian) != elf::SHN_UNDEF && symbol.st_bind() != elf::STB_LOCAL {
                let name = wanted.get(at).map_or(&b""[..], |occurrence| occurrence.name);
                found.push(Defined { name, address: symbol.st_value(endian) });
            }
        }
    });
}

/// Hands out a section's bytes in pieces that overlap by `overlap`, each with its place in the section. Ends early where the file does.
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
    use object::read::elf::{ElfFile64, FileHeader};
    use std::path::Path;

    fn defined(path: &Path, names: &[&'static [u8]]) -> Vec<Defined> {
        let bytes = std::fs::read(path).unwrap();
        let elf_file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let sections = elf_file.elf_header().section_headers(elf_file.endian(), &*bytes).unwrap();
        find(&File::open(path).unwrap(), sections, elf_file.endian(), names)
    }

    /// The test's own binary has symbols enough for several pieces.
    #[test]
    fn what_a_file_defines_is_found_with_its_address() {
        let own = std::env::current_exe().unwrap();
        let found = defined(&own, &[b"main", b"ain", b"malloc", b"no_such_name"]);
        // Neither the end of a name, nor what is called and not defined.
        assert!(found.iter().all(|one| one.name == b"main" && one.address != 0), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn exported_functions_of_a_library_are_found() {
        let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        for name in [&b"malloc"[..], b"free", b"qsort", b"strlen"] {
            assert!(defined(libc, &[name]).iter().any(|one| one.name == name && one.address != 0));
        }
    }
}
