//! The object files that are mapped in the target, and their functions.
//!
//! Receives: the target's maps. Returns: each mapping of an object file, its addresses, and the wanted functions in it.
//! Must hold: the files are those that the target sees, in its own root folder and even if they were deleted. Their
//! contents are hostile; a broken file yields no functions.
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use crate::process::Process;
use crate::unwind::UnwindTable;
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The most program headers of a file that are read.
const MOST_HEADERS: u16 = 128;

/// A mapped object file.
#[derive(Debug)]
pub struct Object {
    pub path: String,
    /// The addresses of its mappings are in `[start, end)`.
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub is_program: bool,
    first: Mapping,
}

/// A function of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub at: u64,
    pub size: u64,
    pub is_local: bool,
}

impl Object {
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Returns all files from which code is mapped.
    pub fn all(process: &Process, maps: &Maps, memory: &Memory) -> Vec<Object> {
        let program = program_headers_at(process);
        let mut objects: Vec<Object> = Vec::new();
        for mapping in maps.0.iter().filter(|mapping| mapping.inode != 0 && mapping.name.starts_with('/')) {
            let same = objects.last_mut().filter(|last| {
                last.first.inode == mapping.inode && last.first.device == mapping.device && mapping.offset != 0
            });
            if let Some(last) = same {
                last.end = mapping.end;
                continue;
            }
            if mapping.offset == 0
                && let Some(bias) = bias_of(memory, mapping.start)
            {
                objects.push(Object {
                    path: mapping.name.clone(),
                    start: mapping.start,
                    end: mapping.end,
                    bias,
                    is_program: false,
                    first: mapping.clone(),
                });
            }
        }
        for object in &mut objects {
            object.is_program = program.is_some_and(|at| at >= object.start && at < object.end);
        }
        let has_code =
            |object: &Object| maps.0.iter().any(|m| m.execute && m.start >= object.start && m.end <= object.end);
        objects.retain(has_code);
        objects
    }

    fn open(&self, process: &Process) -> Option<File> {
        let is_it = |file: &File| file.metadata().is_ok_and(|metadata| metadata.ino() == self.first.inode);
        let exe = self.is_program.then(|| process.folder.join("exe"));
        let mapped = format!("/proc/{}/map_files/{:x}-{:x}", process.pid, self.first.start, self.first.end);
        let in_root = process.folder.join("root").join(self.path.trim_start_matches('/'));
        let candidates = exe.into_iter().chain([Path::new(&mapped).to_path_buf(), in_root]);
        candidates.filter_map(|path| File::open(path).ok()).find(is_it)
    }

    /// Returns the symbols that `wanted` selects, and what kinds of symbol tables the file has. Returns
    /// `Symbols::default()` if the file cannot be read.
    pub fn functions(&self, process: &Process, wanted: impl Fn(&[u8]) -> bool) -> Symbols {
        let Some(file) = self.open(process) else { return Symbols::default() };
        self.read(&ReadCache::new(file), wanted).unwrap_or_default()
    }

    /// Makes the search table of its unwind information, if it was linked without one.
    pub fn unwind_table(&self, process: &Process) -> Option<UnwindTable> {
        let data = ReadCache::new(self.open(process)?);
        let header = FileHeader64::<Endianness>::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        let has_table = |segment: &&elf::ProgramHeader64<Endianness>| segment.p_type(endian) == elf::PT_GNU_EH_FRAME;
        if header.program_headers(endian, &data).ok()?.iter().any(|segment| has_table(&segment)) {
            return None;
        }
        let sections = header.sections(endian, &data).ok()?;
        let (_, section) = sections.section_by_name(endian, b".eh_frame")?;
        UnwindTable::of(section.data(endian, &data).ok()?, self.bias.wrapping_add(section.sh_addr(endian)))
    }

    fn read(&self, data: &ReadCache<File>, wanted: impl Fn(&[u8]) -> bool) -> Option<Symbols> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let mut found = Symbols::default();
        for section in sections.iter() {
            let name = sections.section_name(endian, section).unwrap_or_default();
            found.is_go |= name == b".go.buildinfo" || name == b".gopclntab";
        }
        for section in sections.iter() {
            let kind = section.sh_type(endian);
            if !matches!(kind, elf::SHT_DYNSYM | elf::SHT_SYMTAB) {
                continue;
            }
            // Each table is read in one piece, because reading it name by name would take a hundred thousand reads.
            let strings = sections.section(object::SectionIndex(section.sh_link(endian) as usize)).ok();
            let strings = strings.and_then(|strings| strings.data(endian, data).ok()).unwrap_or_default();
            let symbols: &[elf::Sym64<Endianness>] = section.data_as_array(endian, data).unwrap_or_default();
            found.is_known |= !symbols.is_empty();
            found.has_table |= kind == elf::SHT_SYMTAB && !symbols.is_empty();
            for symbol in symbols {
                if symbol.st_shndx(endian) == elf::SHN_UNDEF {
                    continue;
                }
                let name = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                if !wanted(name) {
                    continue;
                }
                let function = Function {
                    name: String::from_utf8_lossy(name).into_owned(),
                    at: self.bias.wrapping_add(symbol.st_value(endian)),
                    size: symbol.st_size(endian),
                    is_local: symbol.st_bind() == elf::STB_LOCAL,
                };
                if symbol.st_type() != elf::STT_FUNC {
                    found.others.extend((!function.is_local).then_some(function));
                    continue;
                }
                if function.at >= self.start && function.at < self.end && !found.functions.contains(&function) {
                    found.functions.push(function);
                }
            }
        }
        Some(found)
    }
}

/// The wanted symbols of a file.
#[derive(Debug, Default)]
pub struct Symbols {
    pub functions: Vec<Function>,
    /// Exported symbols with a wanted name that are not plain functions.
    pub others: Vec<Function>,
    /// A symbol table could be read.
    pub is_known: bool,
    /// The file has a symbol table besides that of exported symbols.
    pub has_table: bool,
    pub is_go: bool,
}

impl Symbols {
    /// Adds functions that another file names.
    pub fn add(&mut self, functions: impl Iterator<Item = Function>) {
        for function in functions {
            if !self.functions.contains(&function) {
                self.functions.push(function);
            }
        }
    }

    /// Returns the names and addresses of the exported symbols, which the loader can bind other modules to.
    pub fn exports(&self) -> impl Iterator<Item = (String, u64)> {
        let all = self.functions.iter().chain(&self.others).filter(|function| !function.is_local);
        all.map(|function| (function.name.clone(), function.at))
    }

    pub fn find(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

/// Returns the address of the program's headers, according to the kernel.
pub fn program_headers_at(process: &Process) -> Option<u64> {
    const AT_PHDR: u64 = 3;
    process.auxiliary(AT_PHDR)
}

/// The fields of a program header that are needed here.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: elf::ProgramType,
    pub flags: u32,
    pub vaddr: u64,
    pub memsz: u64,
}

/// Reads program headers from the target's memory.
pub fn headers(memory: &Memory, at: u64, count: u16) -> Vec<Header> {
    let mut bytes = vec![0; count.min(MOST_HEADERS) as usize * 56];
    if memory.read(at, &mut bytes).is_err() {
        return Vec::new();
    }
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let header = |b: &[u8]| Header {
        kind: elf::ProgramType(word(b, 0) as u32),
        flags: (word(b, 0) >> 32) as u32,
        vaddr: word(b, 16),
        memsz: word(b, 40),
    };
    bytes.chunks_exact(56).map(header).collect()
}

/// Reads the program headers of the file that is mapped at `base`.
pub fn headers_of_file(memory: &Memory, base: u64) -> Option<Vec<Header>> {
    let mut bytes = [0; 64];
    memory.read(base, &mut bytes).ok()?;
    let header: &FileHeader64<Endianness> = object::from_bytes(&bytes).ok()?.0;
    if !header.is_supported() {
        return None;
    }
    let endian = header.endian().ok()?;
    Some(headers(memory, base.wrapping_add(header.e_phoff.get(endian)), header.e_phnum.get(endian)))
}

fn bias_of(memory: &Memory, base: u64) -> Option<u64> {
    let headers = headers_of_file(memory, base)?;
    let first = headers.iter().find(|header| header.kind == elf::PT_LOAD)?;
    Some(base.wrapping_sub(first.vaddr & !0xfff))
}
