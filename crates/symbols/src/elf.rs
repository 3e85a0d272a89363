//! One ELF file: its sections, its build-id, and its links to other files.
use crate::packing::Packing;
use crate::part::Part;
use crate::section::{Extent, Section};
use crate::store::{Cache, Opened, Source, Store};
use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{
    CompressionHeader, FileHeader, Note, NoteIterator, ProgramHeader, SectionHeader, SectionTable,
};
use object::{LittleEndian, SectionIndex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::rc::Rc;

type Header = FileHeader64<LittleEndian>;
type OneSection = SectionHeader64<LittleEndian>;

/// Used instead of `object`'s own file type, which reads all symbol tables at once.
pub(crate) struct Elf<'f> {
    store: &'f Store,
    cache: &'f Cache,
    header: &'f Header,
    table: SectionTable<'f, Header, &'f Cache>,
    source: Rc<Source>,
    /// The sections that were asked for, so that each is made once.
    sections: RefCell<HashMap<String, Option<&'f Section>>>,
}

/// Where a symbol table lies, and what its names and numbers refer to.
pub(crate) struct SymbolSection {
    pub(crate) source: Rc<Source>,
    /// The offset and the length in bytes of the symbol table, and (below) of its strings.
    pub(crate) symbols: (u64, u64),
    pub(crate) strings: (u64, u64),
    /// Whether a section contains code, by the number of the section.
    pub(crate) is_code: Vec<bool>,
}

impl<'f> Elf<'f> {
    /// Returns `None` if this is not an ELF file for a 64-bit little-endian machine, such as x86-64, or if its table of
    /// sections cannot be read.
    pub(crate) fn parse(store: &'f Store, opened: Opened<'f>) -> Option<Self> {
        let Opened { cache, source } = opened;
        let header = Header::parse(cache).ok()?;
        header.endian().ok()?;
        let table = header.sections(LittleEndian, cache).ok()?;
        Some(Elf { store, cache, header, table, source, sections: RefCell::default() })
    }

    pub(crate) fn open(store: &'f Store, file: File) -> Option<Self> {
        Self::parse(store, store.file(file)?)
    }

    pub(crate) fn build_id(&self) -> &'f [u8] {
        let id = |mut notes: NoteIterator<'f, Header>| {
            let is_id = |note: &Note<'f, Header>| {
                note.name() == elf::ELF_NOTE_GNU && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID
            };
            std::iter::from_fn(move || notes.next().ok().flatten()).find(is_id).map(|note| note.desc())
        };
        let in_section = |section: &OneSection| section.notes(LittleEndian, self.cache).ok().flatten().and_then(id);
        if !self.table.is_empty() {
            return self.table.iter().find_map(in_section).unwrap_or_default();
        }
        let segments = self.header.program_headers(LittleEndian, self.cache).unwrap_or_default();
        let in_segment = |segment: &elf::ProgramHeader64<LittleEndian>| {
            segment.notes(LittleEndian, self.cache).ok().flatten().and_then(id)
        };
        segments.iter().find_map(in_segment).unwrap_or_default()
    }

    fn find(&self, name: &str) -> Option<&'f OneSection> {
        self.table.section_by_name(LittleEndian, name.as_bytes()).map(|(_, section)| section)
    }

    pub(crate) fn has_dwarf(&self) -> bool {
        [".debug_info", ".zdebug_info"].iter().any(|name| {
            let section = self.find(name).and_then(|section| section.file_range(LittleEndian));
            section.is_some_and(|(_, size)| size > 0)
        })
    }

    /// How much memory the packed sections take when they are unpacked. Counts only sections that are used.
    pub(crate) fn unpacked_size(&self) -> u64 {
        let name = |section: &OneSection| self.table.section_name(LittleEndian, section).unwrap_or_default();
        let sections = self.table.iter().filter(|section| is_looked_at(name(section)));
        let packed =
            sections.filter_map(|section| self.extent(section)).filter(|extent| extent.packing != Packing::Plain);
        packed.map(|extent| extent.size).fold(0, u64::saturating_add)
    }

    /// All bytes of a small section.
    fn bytes(&self, name: &str) -> Option<&'f [u8]> {
        self.find(name)?.data(LittleEndian, self.cache).ok()
    }

    /// Name and CRC of the file with the debug information.
    pub(crate) fn debug_link(&self) -> Option<(&'f [u8], u32)> {
        let (name, rest) = self.bytes(".gnu_debuglink").and_then(split_name)?;
        // The checksum is at the next multiple of four.
        let padding = (name.len() + 1).wrapping_neg() % 4;
        let sum = rest.get(padding..)?.first_chunk()?;
        Some((name, u32::from_le_bytes(*sum)))
    }

    /// Path and build-id of the file with the parts that several debug files share (dwz).
    pub(crate) fn alt_link(&self) -> Option<(&'f [u8], &'f [u8])> {
        self.bytes(".gnu_debugaltlink").and_then(split_name)
    }

    /// A section; `None` if there is no such section or its header is wrong.
    pub(crate) fn section(&self, name: &str) -> Option<&'f Section> {
        if let Some(known) = self.sections.borrow().get(name) {
            return *known;
        }
        let section = self.find_section(name);
        self.sections.borrow_mut().insert(name.to_owned(), section);
        section
    }

    fn find_section(&self, name: &str) -> Option<&'f Section> {
        self.store.section(&self.source, self.extent(self.find(name)?)?)
    }

    fn extent(&self, section: &OneSection) -> Option<Extent> {
        let Some((header, start, stored)) = section.compression(LittleEndian, self.cache).ok()? else {
            let (start, size) = section.file_range(LittleEndian)?;
            return Some(Extent { start, stored: size, size, packing: Packing::Plain });
        };
        let packing = match header.ch_type(LittleEndian) {
            elf::ELFCOMPRESS_ZLIB => Packing::Zlib,
            elf::ELFCOMPRESS_ZSTD => Packing::Zstd,
            _ => return None,
        };
        Some(Extent { start, stored, size: header.ch_size(LittleEndian), packing })
    }

    pub(crate) fn part(&self, name: Option<&str>) -> Part<'f> {
        Part::new(name.and_then(|name| self.section(name)))
    }

    /// The symbol tables of one kind: `.symtab` or `.dynsym`.
    pub(crate) fn symbols(&self, kind: elf::SectionType) -> Vec<SymbolSection> {
        let wanted = self.table.iter().filter(|section| section.sh_type(LittleEndian) == kind);
        let is_code = |section: &OneSection| section.sh_flags(LittleEndian).0 & elf::SHF_EXECINSTR.0 != 0;
        let found = wanted.filter_map(|section| {
            let strings = self.table.section(SectionIndex(section.sh_link(LittleEndian) as usize)).ok()?;
            Some(SymbolSection {
                source: Rc::clone(&self.source),
                symbols: section.file_range(LittleEndian)?,
                strings: strings.file_range(LittleEndian)?,
                is_code: self.table.iter().map(is_code).collect(),
            })
        });
        found.collect()
    }
}

/// The bytes before and after the first 0.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Whether lookups of names and lines read the section.
fn is_looked_at(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let name = name.trim_end_matches(".dwo").trim_start_matches('.').trim_start_matches('z');
    [
        "debug_abbrev",
        "debug_addr",
        "debug_aranges",
        "debug_info",
        "debug_line",
        "debug_line_str",
        "debug_ranges",
        "debug_rnglists",
        "debug_str",
        "debug_str_offsets",
    ]
    .contains(&name)
}
