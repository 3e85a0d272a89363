//! One ELF file: its sections, its build-id, what it says about other files.
use crate::part::Part;
use crate::section::{Extent, Packing, Section};
use crate::store::{Cache, Opened, Source, Store};
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile, ElfFile64, FileHeader};
use object::{CompressionFormat, LittleEndian, Object, ObjectSection, ReadRef, SectionIndex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::rc::Rc;

type Header = FileHeader64<LittleEndian>;
pub(crate) type Sym64 = elf::Sym64<LittleEndian>;

pub(crate) struct Elf<'f> {
    store: &'f Store,
    file: ElfFile64<'f, LittleEndian, &'f Cache>,
    source: Rc<Source>,
    /// Sections that were asked for: whoever asks again gets the same one.
    sections: RefCell<HashMap<String, Option<&'f Section>>>,
}

/// A symbol table, and what its names and numbers refer to.
pub(crate) struct SymbolSection<'f> {
    pub(crate) symbols: &'f [Sym64],
    pub(crate) strings: &'f Section,
    /// By number of the section.
    pub(crate) is_code: Vec<bool>,
}

impl<'f> Elf<'f> {
    /// `None`: this is no ELF file for x86-64 or another 64-bit little-endian machine.
    pub(crate) fn parse(store: &'f Store, opened: Opened<'f>) -> Option<Self> {
        let file = ElfFile::<Header, _>::parse(opened.cache).ok()?;
        Some(Elf { store, file, source: opened.source, sections: RefCell::default() })
    }

    pub(crate) fn open(store: &'f Store, file: File) -> Option<Self> {
        Self::parse(store, store.file(file)?)
    }

    pub(crate) fn build_id(&self) -> &'f [u8] {
        self.file.build_id().ok().flatten().unwrap_or_default()
    }

    pub(crate) fn has_dwarf(&self) -> bool {
        [".debug_info", ".zdebug_info"].iter().any(|name| {
            let section = self.file.section_by_name(name);
            section.is_some_and(|section| section.size() > 0 && section.file_range().is_some())
        })
    }

    /// Bytes of memory that the sections which are read take because they are packed.
    pub(crate) fn unpacked_size(&self) -> u64 {
        let sections = self.file.sections().filter(|section| section.name().is_ok_and(is_looked_at));
        let ranges = sections.filter_map(|section| section.compressed_file_range().ok());
        let packed = ranges.filter(|range| range.format != CompressionFormat::None);
        packed.map(|range| range.uncompressed_size).fold(0, u64::saturating_add)
    }

    /// Name and CRC of the file with the debug information.
    pub(crate) fn debug_link(&self) -> Option<(&'f [u8], u32)> {
        self.file.gnu_debuglink().ok().flatten()
    }

    /// Path and build-id of the file with what several debug files share (dwz).
    pub(crate) fn alt_link(&self) -> Option<(&'f [u8], &'f [u8])> {
        self.file.gnu_debugaltlink().ok().flatten()
    }

    /// A section; `None` if it is not there or lies.
    pub(crate) fn section(&self, name: &str) -> Option<&'f Section> {
        if let Some(known) = self.sections.borrow().get(name) {
            return *known;
        }
        let section = self.find_section(name);
        self.sections.borrow_mut().insert(name.to_owned(), section);
        section
    }

    fn find_section(&self, name: &str) -> Option<&'f Section> {
        let range = self.file.section_by_name(name)?.compressed_file_range().ok()?;
        let packing = match range.format {
            CompressionFormat::None => Packing::Plain,
            CompressionFormat::Zlib => Packing::Zlib,
            CompressionFormat::Zstandard => Packing::Zstd,
            _ => return None,
        };
        let (start, stored, size) = (range.offset, range.compressed_size, range.uncompressed_size);
        self.store.section(&self.source, Extent { start, stored, size, packing })
    }

    pub(crate) fn part(&self, name: Option<&str>) -> Part<'f> {
        Part::new(name.and_then(|name| self.section(name)))
    }

    /// `.symtab` or `.dynsym`.
    pub(crate) fn symbols(&self, kind: elf::SectionType) -> Vec<SymbolSection<'f>> {
        let header = self.file.elf_header();
        let data = self.file.data();
        let Ok(sections) = header.sections(LittleEndian, data) else { return Vec::new() };
        let wanted = sections.iter().filter(|section| section.sh_type.get(LittleEndian) == kind);
        wanted
            .filter_map(|section| {
                let link = SectionIndex(section.sh_link.get(LittleEndian) as usize);
                let strings = sections.section(link).ok()?;
                let size = strings.sh_size.get(LittleEndian);
                let start = strings.sh_offset.get(LittleEndian);
                let extent = Extent { start, stored: size, size, packing: Packing::Plain };
                let (at, size) = (section.sh_offset.get(LittleEndian), section.sh_size.get(LittleEndian));
                let bytes = data.read_bytes_at(at, size).ok()?;
                let count = bytes.len() / size_of::<Sym64>();
                let (symbols, _) = object::pod::slice_from_bytes(bytes, count).ok()?;
                let is_code =
                    sections.iter().map(|section| section.sh_flags.get(LittleEndian).0 & elf::SHF_EXECINSTR.0 != 0);
                let strings = self.store.section(&self.source, extent)?;
                Some(SymbolSection { symbols, strings, is_code: is_code.collect() })
            })
            .collect()
    }
}

/// Sections that lookups of names and lines read.
fn is_looked_at(name: &str) -> bool {
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
