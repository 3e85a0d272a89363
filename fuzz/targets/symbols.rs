//! ELF and DWARF of files that a trace names.
//!
//! The input is four addresses of 32 bits, then a file. Must hold: no panic, no long computation, and no large
//! allocation. An address has frames or none, and only the outermost frame is not inlined. Repeated queries return the
//! same answer. An address that a symbol covers has a frame, and in a file without debug information it has the name of
//! such a symbol. After any input, known files still have their known answers.
#![no_main]
use format::{Module, SymbolState};
use heaptrack_fuzz::Input;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use symbols::{Finder, Frame, Resolver, Search, Store};

const EXACT: u64 = 1 << 47;
const MOST_FRAMES: usize = 100_000;
/// The bytes of the addresses, before the file.
const ADDRESSES: usize = 16;
/// If there are symbols at more addresses than this, the reader does not compare all of them with an address.
const MOST_PLACES: usize = 16;

type Header = FileHeader64<LittleEndian>;

/// Files that were made by a linker, with the functions, files and lines of some addresses as `addr2line` prints them.
const KNOWN: [(&[u8], &[(u64, &str)]); 2] = [
    (include_bytes!("../known/plain.elf"), &[(0x225, "leaf"), (0x239, "_start_here"), (0x500, "")]),
    (
        include_bytes!("../known/two.elf"),
        &[
            (0x3d0, "deep /tmp/fz/a.c:2, leaf /tmp/fz/a.c:3"),
            (0x3e0, "_start_here /tmp/fz/a.c:4"),
            (0x420, "_ZN4shop4Base1fEv /tmp/fz/b.cpp:2"),
            (0x430, "entry /tmp/fz/b.cpp:3"),
        ],
    ),
];

/// A file in memory that has a path.
fn place() -> &'static OwnedFd {
    static PLACE: OnceLock<OwnedFd> = OnceLock::new();
    PLACE.get_or_init(|| memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory"))
}

/// Makes this the content of the file in memory, and returns a module with its path.
fn module_of(content: &[u8]) -> Module {
    let file = place();
    ftruncate(file, 0).expect("memory");
    pwrite(file, content, 0).expect("memory");
    Module { instance: 1, path: format!("/proc/self/fd/{}", file.as_raw_fd()), ..Module::default() }
}

/// The files of the corpus have this build-id, or none.
const BUILD_ID: [u8; 2] = [1, 2];

fn answers(module: &mut Module, asked: &[u64], expected: &[u64]) -> (Vec<Vec<Frame>>, SymbolState) {
    // The recording claims to have started at the end of time, so no file is newer.
    let search = Search { started_unix_ns: u64::MAX, ..Search::default() };
    let (store, finder) = (Store::new(), Finder { search: &search, target: None });
    let mut resolver = Resolver::open(&store, module, finder, expected);
    if resolver.state().state == SymbolState::Mismatch {
        module.build_id = BUILD_ID.into();
        resolver = Resolver::open(&store, module, finder, expected);
    }
    (asked.iter().map(|key| resolver.frames(*key)).collect(), resolver.state().state)
}

/// Checks that no earlier input changes the answers about a known file.
fn check_known((content, answers_of): (&[u8], &[(u64, &str)])) {
    let mut module = module_of(content);
    let asked: Vec<u64> = answers_of.iter().map(|(address, _)| address | EXACT).collect();
    for (frames, (address, expected)) in answers(&mut module, &asked, &asked).0.iter().zip(answers_of) {
        let text = |frame: &Frame| {
            let name = frame.name.as_ref().map_or("", |name| &name.raw);
            let place = frame.file.as_ref().map(|file| format!(" {file}:{}", frame.line.unwrap_or(0)));
            format!("{name}{}", place.unwrap_or_default())
        };
        let found: Vec<String> = frames.iter().map(text).collect();
        assert_eq!(found.join(", "), *expected, "a known file at {address:#x}");
    }
}

/// A symbol: its start, its size, its name, and whether it is a function of the complete table.
type Symbol<'a> = (u64, u64, &'a [u8], bool);

/// Returns the symbols of a file, read in the simplest way, and true if nothing but symbols can name an address,
/// because the file has no debug information. Returns `None` if the file cannot be parsed, does not have exactly one
/// complete table, has more than one dynamic table, or has symbols at more than `MOST_PLACES` addresses.
fn symbols_of(file: &[u8]) -> Option<(Vec<Symbol<'_>>, bool)> {
    let header = Header::parse(file).ok()?;
    let sections = header.sections(LittleEndian, file).ok()?;
    let count =
        |kind: elf::SectionType| sections.iter().filter(|section| section.sh_type(LittleEndian) == kind).count();
    if count(elf::SHT_SYMTAB) != 1 || count(elf::SHT_DYNSYM) > 1 {
        return None;
    }
    let mut list = Vec::new();
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let table = sections.symbols(LittleEndian, file, kind).ok()?;
        for symbol in table.iter() {
            let name = symbol.name(LittleEndian, table.strings()).unwrap_or_default();
            let is_function = kind == elf::SHT_SYMTAB
                && symbol.st_type() == elf::STT_FUNC
                && symbol.st_shndx(LittleEndian) != elf::SHN_UNDEF
                && symbol.st_name(LittleEndian) != 0
                && !name.is_empty();
            list.push((symbol.st_value(LittleEndian), symbol.st_size(LittleEndian), name, is_function));
        }
    }
    let places: BTreeSet<u64> = list.iter().map(|(start, ..)| *start).collect();
    let is_debug = |name: &[u8]| name.windows(5).any(|part| part == b"debug");
    let mut names = sections.iter().map(|section| sections.section_name(LittleEndian, section).unwrap_or(b"debug"));
    let are_alone = !names.any(is_debug);
    (places.len() <= MOST_PLACES).then_some((list, are_alone))
}

/// Compares the innermost frame with the symbols that cover the address.
fn check_symbols(symbols: &[Symbol<'_>], are_alone: bool, key: u64, frames: &[Frame]) {
    let address = if key & EXACT != 0 { key & (EXACT - 1) } else { key.saturating_sub(1) };
    let covers = |(start, size, ..): &&Symbol<'_>| address >= *start && address - *start < *size;
    let covering: Vec<&Symbol<'_>> = symbols.iter().filter(covers).collect();
    if !covering.iter().any(|(.., is_function)| *is_function) {
        return;
    }
    assert!(!frames.is_empty(), "a symbol covers {address:#x}, but there is no frame");
    let raw = frames[0].name.as_ref().map_or("", |name| &name.raw);
    // In the table a version may follow the name.
    let mut names = covering.iter().map(|(_, _, name, _)| String::from_utf8_lossy(name));
    assert!(!are_alone || names.any(|name| name.starts_with(raw)), "{address:#x} is not in {raw}");
}

/// The sections that the reader reads, as ranges of the input.
fn sections_to_change(input: &[u8]) -> Option<Vec<Range<usize>>> {
    let file = input.get(ADDRESSES..)?;
    let header = Header::parse(file).ok()?;
    let sections = header.sections(LittleEndian, file).ok()?;
    let range = |section: &elf::SectionHeader64<LittleEndian>| {
        let name = sections.section_name(LittleEndian, section).ok()?;
        let is_read = [&b".debug_"[..], b".symtab", b".dynsym", b".strtab", b".gnu_debug"];
        let (start, size) = section.file_range(LittleEndian)?;
        let start = usize::try_from(start).ok()?.checked_add(ADDRESSES)?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        let is_used = end <= input.len() && size > 0 && is_read.iter().any(|start| name.starts_with(start));
        is_used.then_some(start..end)
    };
    Some(sections.iter().filter_map(range).collect()).filter(|ranges: &Vec<_>| !ranges.is_empty())
}

/// Numbers at the limits of the encodings of integers.
const BORDERS: [u64; 8] = [0, 1, 0x7f, 0x80, u32::MAX as u64, 1 << 31, 1 << 63, u64::MAX];

/// Most bytes of a file are code and tables that the reader never looks at. So three of four mutations change a few
/// bytes of the sections that it reads.
fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut state = seed as u64 | 1 << 32;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let sections = if size <= max_size && below(4) != 0 { sections_to_change(&data[..size]) } else { None };
    let Some(sections) = sections else { return fuzzer_mutate(data, size, max_size) };
    for _ in 0..=below(4) {
        let section = &mut data[sections[below(sections.len())].clone()];
        let at = below(section.len());
        let width = [1, 1, 2, 4, 8][below(5)].min(section.len() - at);
        match below(5) {
            0 => section[at] = below(256) as u8,
            1 => section[at] = section[at].wrapping_add(1),
            2 => section[at] = section[at].wrapping_sub(1),
            3 => section[at..at + width].copy_from_slice(&BORDERS[below(BORDERS.len())].to_le_bytes()[..width]),
            _ => section.copy_within(at..at + width, below(section.len() - width + 1)),
        }
    }
    size
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut asked: Vec<u64> = (0..4).map(|_| input.u32() as u64 | EXACT).collect();
    asked.extend([0, 1, EXACT, u64::MAX >> 16]);
    let mut module = module_of(input.0);
    let (found, state) = answers(&mut module, &asked, &asked);
    for frames in &found {
        assert!(frames.len() < MOST_FRAMES);
        let outermost = frames.iter().rposition(|frame| !frame.inlined);
        assert!(frames.is_empty() || outermost == Some(frames.len() - 1));
        assert_eq!(frames.iter().filter(|frame| !frame.inlined).count(), usize::from(!frames.is_empty()));
    }
    // Expected addresses are only looked up earlier. Without them, the answers must be the same.
    assert_eq!(answers(&mut module, &asked, &[]), (found.clone(), state));
    if matches!(state, SymbolState::Symbols | SymbolState::Debug)
        && let Some((symbols, are_alone)) = symbols_of(input.0)
    {
        asked.iter().zip(&found).for_each(|(key, frames)| check_symbols(&symbols, are_alone, *key, frames));
    }
    // Only one of the known files, to save time.
    check_known(KNOWN[data.len() % KNOWN.len()]);
});
