//! One ELF file: its sections, its build-id, what it says about other files.
use crate::store::{Cache, Store};
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile, ElfFile64, FileHeader, Sym};
use object::{CompressionFormat, LittleEndian, Object, ObjectSection, ReadRef, SectionIndex};

pub(crate) type Slice<'f> = gimli::EndianSlice<'f, gimli::LittleEndian>;
type Header = FileHeader64<LittleEndian>;

/// No honest section is larger.
const MAX_SECTION: u64 = 8 << 30;
/// The most that deflate can make of a byte, and far more than what zstd makes of debug information.
const MAX_RATIO: u64 = 1100;

pub(crate) struct Elf<'f> {
    store: &'f Store,
    file: ElfFile64<'f, LittleEndian, &'f Cache>,
}

/// An entry of a symbol table that can name code.
pub(crate) struct RawSymbol<'f> {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: &'f [u8],
    /// Written in assembler: without a type, or a table among the code.
    pub(crate) untyped: bool,
    /// A local symbol's source file, by its bare name: all that is known without debug information.
    pub(crate) file: Option<&'f [u8]>,
}

impl<'f> Elf<'f> {
    /// `None`: this is no ELF file for x86-64 or another 64-bit little-endian machine.
    pub(crate) fn parse(store: &'f Store, cache: &'f Cache) -> Option<Self> {
        let file = ElfFile::<Header, _>::parse(cache).ok()?;
        Some(Elf { store, file })
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

    /// Bytes of debug information, unpacked, of the sections that are read.
    pub(crate) fn debug_size(&self) -> u64 {
        let sections =
            self.file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
        sections
            .map(|section| section.compressed_data().map_or(0, |data| data.uncompressed_size))
            .fold(0, u64::saturating_add)
    }

    /// Name and CRC of the file with the debug information.
    pub(crate) fn debug_link(&self) -> Option<(&'f [u8], u32)> {
        self.file.gnu_debuglink().ok().flatten()
    }

    /// Path and build-id of the file with what several debug files share (dwz).
    pub(crate) fn alt_link(&self) -> Option<(&'f [u8], &'f [u8])> {
        self.file.gnu_debugaltlink().ok().flatten()
    }

    /// A section's bytes, unpacked; empty if it is not there or lies.
    pub(crate) fn section(&self, name: &str) -> &'f [u8] {
        let Some(section) = self.file.section_by_name(name) else { return &[] };
        let Ok(data) = section.compressed_data() else { return &[] };
        self.store.count(data.data.len());
        if data.format == CompressionFormat::None {
            return data.data;
        }
        let limit = (data.data.len() as u64).saturating_mul(MAX_RATIO).min(MAX_SECTION);
        if data.uncompressed_size > limit {
            return &[];
        }
        match data.decompress() {
            Ok(bytes) => self.store.bytes(bytes.into_owned()),
            Err(_) => &[],
        }
    }

    pub(crate) fn reader(&self, name: Option<&str>) -> Slice<'f> {
        gimli::EndianSlice::new(name.map_or(&[][..], |name| self.section(name)), gimli::LittleEndian)
    }

    /// Symbols of `.symtab` or `.dynsym` that stand for code.
    pub(crate) fn symbols(&self, kind: elf::SectionType) -> Vec<RawSymbol<'f>> {
        let mut found = Vec::new();
        let header = self.file.elf_header();
        let (endian, data) = (LittleEndian, self.file.data());
        let Ok(sections) = header.sections(endian, data) else { return found };
        for section in sections.iter() {
            if section.sh_type.get(endian) != kind {
                continue;
            }
            let link = SectionIndex(section.sh_link.get(endian) as usize);
            let Ok(strings) = sections.section(link) else { continue };
            let range = (strings.sh_offset.get(endian), strings.sh_size.get(endian));
            let Ok(strings) = data.read_bytes_at(range.0, range.1) else { continue };
            let range = (section.sh_offset.get(endian), section.sh_size.get(endian));
            let Ok(bytes) = data.read_bytes_at(range.0, range.1) else { continue };
            self.store.count(strings.len() + bytes.len());
            let size = size_of::<elf::Sym64<LittleEndian>>();
            let Ok((table, _)) = object::pod::slice_from_bytes::<elf::Sym64<LittleEndian>>(bytes, bytes.len() / size)
            else {
                continue;
            };
            let is_code = |index: elf::SymbolSection| {
                let section = sections.section(SectionIndex(index.0 as usize));
                section.is_ok_and(|section| section.sh_flags.get(endian).0 & elf::SHF_EXECINSTR.0 != 0)
            };
            let mut file = None;
            found.extend(table.iter().filter_map(|symbol| {
                let rest = strings.get(symbol.st_name(endian) as usize..)?;
                let name = rest.split(|byte| *byte == 0).next()?;
                if symbol.st_type() == elf::STT_FILE {
                    // The linker's own local symbols follow an empty name.
                    file = Some(name).filter(|name| !name.is_empty());
                }
                let untyped = match symbol.st_type() {
                    elf::STT_FUNC | elf::STT_GNU_IFUNC => false,
                    elf::STT_NOTYPE | elf::STT_OBJECT if is_code(symbol.st_shndx(endian)) => true,
                    _ => return None,
                };
                let is_local = symbol.st_bind() == elf::STB_LOCAL;
                let defined = symbol.st_shndx(endian) != elf::SHN_UNDEF;
                (defined && !name.is_empty()).then(|| RawSymbol {
                    address: symbol.st_value(endian),
                    size: symbol.st_size(endian),
                    name,
                    untyped,
                    file: file.filter(|_| is_local),
                })
            }));
        }
        found
    }
}
