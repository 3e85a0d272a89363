//! The modules of the target, read from outside from its loader's own list.
//!
//! Receives: the target's memory. Returns: the same descriptions of modules that the capture library makes in a
//! launched program. Must hold: the list is read while all threads are stopped, or compared again then. A list that
//! makes no sense is cut.
use crate::files::{Header, headers, headers_of_file, program_headers_at};
use crate::memory::Memory;
use crate::process::Process;
use crate::reports;
use capture::api::Located;
use capture::elf::DT_DEBUG;
use capture::modules::{Description, KERNEL_OBJECT};
use channel::BUILD_ID_MAX;
use object::elf;

const AT_PHNUM: u64 = 5;
const MOST_MAPS: usize = 8192;
const MOST_SPACES: usize = 16;
const MOST_PATH: usize = 4096;
const MOST_NOTE: u64 = 64 << 10;

/// The addresses of the loader's `r_debug` and of the program's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loader {
    /// 0 for a program without a loader.
    pub debug: u64,
    /// The function that the loader calls when the list has changed.
    pub changed: u64,
    pub bias: u64,
    pub headers: u64,
    pub header_count: u64,
    /// The program was linked to run without a loader. It may have a list nevertheless.
    pub is_static: bool,
}

/// An entry of the loader's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub at: u64,
    pub bias: u64,
    name: u64,
    pub dynamic: u64,
}

/// The description of a module.
#[derive(Clone, Debug)]
pub struct Module {
    pub listed: Listed,
    pub name: Vec<u8>,
    pub start: u64,
    pub end: u64,
    eh_frame_hdr: u64,
    pub build_id: Vec<u8>,
    /// The tables through which it reports blocks of its own (`heaptrack_api.h`).
    pub tables: Vec<Located>,
}

impl Loader {
    pub fn find(process: &Process, memory: &Memory) -> Option<Loader> {
        let at = program_headers_at(process)?;
        let count = process.auxiliary(AT_PHNUM)?;
        let list = headers(memory, at, u16::try_from(count).ok()?);
        let own = list.iter().find(|header| header.kind == elf::PT_PHDR);
        // A static program that is not position independent has no PT_PHDR.
        let bias = match own {
            Some(own) => at.wrapping_sub(own.vaddr),
            None => list.iter().find(|header| header.kind == elf::PT_LOAD).map_or(0, |first| guess_bias(at, first)),
        };
        let dynamic = list.iter().find(|header| header.kind == elf::PT_DYNAMIC);
        let debug =
            dynamic.and_then(|header| dynamic_value(memory, bias.wrapping_add(header.vaddr), DT_DEBUG)).unwrap_or(0);
        let changed = if debug == 0 { 0 } else { memory.word(debug + 16).unwrap_or(0) };
        let is_there = changed != 0;
        Some(Loader {
            debug: if is_there { debug } else { 0 },
            changed,
            bias,
            headers: at,
            header_count: count,
            is_static: !list.iter().any(|header| header.kind == elf::PT_INTERP),
        })
    }

    /// Reads the current list.
    pub fn list(&self, memory: &Memory) -> Vec<Listed> {
        let mut found = Vec::new();
        if self.debug == 0 {
            return found;
        }
        let mut board = self.debug;
        for _ in 0..MOST_SPACES {
            let Ok([version, first, _, _, _]) = memory.words::<5>(board) else { break };
            let mut at = first;
            while at != 0 && found.len() < MOST_MAPS {
                let Ok([bias, name, dynamic, next]) = memory.words::<4>(at) else { break };
                // The loader itself is mapped once, but listed in every namespace.
                let is_listed_twice = board != self.debug && found.iter().any(|one: &Listed| one.dynamic == dynamic);
                if !is_listed_twice {
                    found.push(Listed { at, bias, name, dynamic });
                }
                at = next;
            }
            board = if version as u32 >= 2 { memory.word(board + 40).unwrap_or(0) } else { 0 };
            if board == 0 {
                break;
            }
        }
        found
    }

    /// Describes the modules on the list. A program without a loader has only itself as a module; `fake` is the address
    /// where a list entry for it will be made. `table` is the address of the unwind table that the profiler made for
    /// the program, or 0. It is used if the program has no table of its own.
    pub fn describe(&self, process: &Process, memory: &Memory, list: &[Listed], fake: u64, table: u64) -> Vec<Module> {
        let exe = process.exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe).as_bytes().to_vec();
        let own = headers(memory, self.headers, self.header_count as u16);
        if self.debug == 0 {
            let listed = Listed { at: fake, bias: self.bias, name: 0, dynamic: 0 };
            return describe(memory, listed, &own, exe).map(|module| module.with_table(table)).into_iter().collect();
        }
        let mut modules = Vec::new();
        for listed in list {
            let name = if listed.name == 0 { Vec::new() } else { memory.string(listed.name, MOST_PATH) };
            // An entry without a name need not be the program, because musl has no name for the kernel's object.
            let module = if name.is_empty() && listed.dynamic == dynamic_of(&own, listed.bias) {
                describe(memory, *listed, &own, exe.clone())
            } else {
                let name = if name.is_empty() { KERNEL_OBJECT.to_vec() } else { name };
                headers_of_file(memory, listed.bias).and_then(|headers| describe(memory, *listed, &headers, name))
            };
            // Some loaders have a name for the program.
            let is_program = |module: &Module| (module.start..module.end).contains(&self.headers);
            modules.extend(module.map(|module| if is_program(&module) { module.with_table(table) } else { module }));
        }
        modules
    }
}

impl Module {
    fn with_table(mut self, table: u64) -> Module {
        if self.eh_frame_hdr == 0 {
            self.eh_frame_hdr = table;
        }
        self
    }

    pub fn description(&self) -> Description<'_> {
        let mut build_id = [0; BUILD_ID_MAX / 8];
        for (index, byte) in self.build_id.iter().take(BUILD_ID_MAX).enumerate() {
            if let Some(word) = build_id.get_mut(index / 8) {
                *word |= u64::from(*byte) << (index % 8 * 8);
            }
        }
        Description {
            flags: 0,
            map: self.listed.at,
            dynamic: self.listed.dynamic,
            start: self.start,
            end: self.end,
            bias: self.listed.bias,
            eh_frame_hdr: self.eh_frame_hdr,
            build_id,
            build_id_len: self.build_id.len().min(BUILD_ID_MAX) as u32,
            name: &self.name,
        }
    }
}

/// Guesses the bias of a program. Assumes that its program headers, like its ELF header, are on the first page of the
/// first segment.
fn guess_bias(headers_at: u64, first: &Header) -> u64 {
    (headers_at & !0xfff).wrapping_sub(first.vaddr & !0xfff)
}

/// Returns the address of the dynamic section of a file with these headers, or 0 if it has none.
fn dynamic_of(headers: &[Header], bias: u64) -> u64 {
    headers.iter().find(|header| header.kind == elf::PT_DYNAMIC).map_or(0, |header| bias.wrapping_add(header.vaddr))
}

fn dynamic_value(memory: &Memory, at: u64, tag: u64) -> Option<u64> {
    for index in 0..256 {
        match memory.words::<2>(at + index * 16).ok()? {
            [0, _] => return None,
            [found, value] if found == tag => return Some(value),
            _ => (),
        }
    }
    None
}

fn describe(memory: &Memory, listed: Listed, headers: &[Header], name: Vec<u8>) -> Option<Module> {
    let loads = || headers.iter().filter(|header| header.kind == elf::PT_LOAD);
    let low = loads().map(|header| header.vaddr & !0xfff).min()?;
    let high = loads().map(|header| header.vaddr.wrapping_add(header.memsz)).max()?;
    let unwind = headers.iter().find(|header| header.kind == elf::PT_GNU_EH_FRAME);
    Some(Module {
        listed,
        name,
        start: listed.bias.wrapping_add(low),
        end: listed.bias.wrapping_add(high).wrapping_add(0xfff) & !0xfff,
        eh_frame_hdr: unwind.map_or(0, |header| listed.bias.wrapping_add(header.vaddr)),
        build_id: build_id(memory, listed.bias, headers).unwrap_or_default(),
        tables: reports::tables(memory, listed.bias, headers),
    })
}

fn build_id(memory: &Memory, bias: u64, headers: &[Header]) -> Option<Vec<u8>> {
    headers.iter().filter(|header| header.kind == elf::PT_NOTE && header.memsz < MOST_NOTE).find_map(|header| {
        let mut bytes = vec![0; header.memsz as usize];
        memory.read(bias.wrapping_add(header.vaddr), &mut bytes).ok()?;
        let number = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let mut at = 0;
        loop {
            let (name_len, len, kind) = (number(at)? as usize, number(at + 4)? as usize, number(at + 8)?);
            let content = at + 12 + name_len.next_multiple_of(4);
            if kind == elf::NT_GNU_BUILD_ID.0 && bytes.get(at + 12..at + 16) == Some(b"GNU\0") {
                return bytes.get(content..content + len).map(<[u8]>::to_vec);
            }
            at = content + len.next_multiple_of(4);
        }
    })
}
