//! The image: the capture library as it is written to the target. The profiler lays it out and relocates it, because no
//! loader does that there.
//!
//! Receives: the file that is embedded in the binary. Returns: its segments for any base address, and the addresses of
//! the core, the shims and the function for the loader's notification. Must hold: the file needs nothing that only a
//! loader could provide. The build (`crates/cli/build.rs`) and `tests/tests/library.rs` check that.
use crate::error::Refusal;
use capture::api::ENTRIES;
use capture::entry::{CoreTable, Shim};
use object::Endianness;
use object::elf::{self, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym};

const PAGE: u64 = 4096;
const TABLE: &[u8] = b"heaptrack_core_table";

#[derive(Debug)]
pub struct Segment {
    /// The offset in the image. This and the length are multiples of a page.
    pub at: u64,
    pub length: u64,
    pub flags: u32,
}

#[derive(Debug)]
pub struct Image {
    /// A hash of the file, which tells one build from another.
    pub id: u64,
    pub segments: Vec<Segment>,
    pub length: u64,
    content: Vec<u8>,
    relocations: Vec<(u64, u64)>,
    table: u64,
}

/// Addresses in the target.
#[derive(Clone, Copy, Debug)]
pub struct CoreAddresses {
    /// `CoreTable::version` of the image. No address.
    pub version: u64,
    pub core: u64,
    pub loader: u64,
    /// `capture::follow::FOLLOWING` and `capture::left_lists::LEFT`.
    pub following: u64,
    pub left_lists: u64,
    pub shims: [u64; Shim::COUNT],
    /// The functions that programs call to report blocks of their own.
    pub reports: [u64; ENTRIES],
}

impl Image {
    pub fn parse(file: &[u8]) -> Result<Image, Refusal> {
        read(file).ok_or(Refusal::Image("the embedded capture library cannot be laid out"))
    }

    /// Returns the image relocated to `base`, and the addresses in it.
    pub fn at(&self, base: u64) -> Option<(Vec<u8>, CoreAddresses)> {
        let mut content = self.content.clone();
        for (at, addend) in &self.relocations {
            let place = content.get_mut(*at as usize..*at as usize + 8)?;
            place.copy_from_slice(&(base + addend).to_le_bytes());
        }
        let word = |index: usize| {
            let at = self.table as usize + index * 8;
            Some(u64::from_le_bytes(content.get(at..at + 8)?.try_into().ok()?))
        };
        let mut shims = [0; Shim::COUNT];
        for (index, shim) in shims.iter_mut().enumerate() {
            *shim = word(SHIMS_AT + index)?;
        }
        let mut reports = [0; ENTRIES];
        for (index, report) in reports.iter_mut().enumerate() {
            *report = word(SHIMS_AT + Shim::COUNT + index)?;
        }
        let [version, core, loader, following, left_lists] = [word(0)?, word(1)?, word(2)?, word(3)?, word(4)?];
        let places = CoreAddresses { version, core, loader, following, left_lists, shims, reports };
        Some((content, places))
    }
}

/// The words before the shims.
const SHIMS_AT: usize = 5;
const _: () = assert!(size_of::<CoreTable>() == (SHIMS_AT + Shim::COUNT + ENTRIES) * 8);

fn read(file: &[u8]) -> Option<Image> {
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let mut content = Vec::new();
    let mut segments = Vec::new();
    for segment in header.program_headers(endian, file).ok()? {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let (at, size) = (segment.p_vaddr(endian), segment.p_memsz(endian));
        let bytes = segment.data(endian, file).ok()?;
        let end = (at + size).next_multiple_of(PAGE);
        content.resize((end as usize).max(content.len()), 0);
        content.get_mut(at as usize..at as usize + bytes.len())?.copy_from_slice(bytes);
        let start = at & !(PAGE - 1);
        segments.push(Segment { at: start, length: end - start, flags: segment.p_flags(endian).0 });
    }
    let sections = header.sections(endian, file).ok()?;
    let mut relocations = Vec::new();
    for section in sections.iter() {
        let Ok(Some((entries, _))) = section.rela(endian, file) else { continue };
        for entry in entries {
            match entry.r_type(endian, false) {
                elf::R_X86_64_RELATIVE => relocations.push((entry.r_offset(endian), entry.r_addend(endian) as u64)),
                // The only such word is for a weak symbol, which stays null here.
                elf::R_X86_64_GLOB_DAT => (),
                _ => return None,
            }
        }
    }
    let symbols = sections.symbols(endian, file, elf::SHT_DYNSYM).ok()?;
    let table = symbols.iter().find(|symbol| symbol.name(endian, symbols.strings()) == Ok(TABLE))?;
    Some(Image {
        id: xxhash_rust::xxh3::xxh3_64(file),
        length: content.len() as u64,
        segments,
        content,
        relocations,
        table: table.st_value(endian),
    })
}
