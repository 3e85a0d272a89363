//! The tables through which programs report blocks of their own (`heaptrack_api.h`). They are found and filled from
//! outside.
//!
//! Receives: the program headers of a module in the target. Returns: the addresses of its tables. Must hold: tables are
//! written only while all threads are stopped, because a thread must never see half of a pointer, and only in memory
//! that the module itself could write.
//!
//! The pointers stay valid when the recorder is gone: they lead to the capture library, which is never unmapped, and
//! its gate is shut then. So a recorder that dies may leave them, and so may a detach by another process.
use crate::files::Header;
use crate::memory::Memory;
use capture::api::{ENTRIES, Located};
use object::elf;
use std::io;

const MOST_NOTE: u64 = 64 << 10;
const WRITABLE: u32 = 2;

/// Finds the tables of one module.
pub fn tables(memory: &Memory, bias: u64, headers: &[Header]) -> Vec<Located> {
    let mut found = Vec::new();
    for header in headers.iter().filter(|header| header.kind == elf::PT_NOTE && header.memsz < MOST_NOTE) {
        let at = bias.wrapping_add(header.vaddr);
        let mut bytes = vec![0; header.memsz as usize];
        if memory.read(at, &mut bytes).is_ok() {
            found.extend(located(&bytes, at));
        }
    }
    let inside = |table: &Located, header: &Header| table.is_inside(bias.wrapping_add(header.vaddr), header.memsz);
    found.retain(|table| {
        let is_writable = |header: &Header| header.kind == elf::PT_LOAD && header.flags & WRITABLE != 0;
        headers.iter().any(|header| is_writable(header) && inside(table, header))
            && !headers.iter().any(|header| header.kind == elf::PT_GNU_RELRO && inside(table, header))
    });
    // Each source file that includes the header has a note, but a program has one table.
    found.sort_unstable_by_key(|table| table.address);
    found.dedup();
    found
}

/// Returns the tables that the notes in `bytes` locate. The bytes are at `at` in the target.
fn located(bytes: &[u8], at: u64) -> Vec<Located> {
    let number = |place: usize| bytes.get(place..place + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let mut found = Vec::new();
    let mut place = 0;
    while let (Some(name_len), Some(len), Some(kind)) = (number(place), number(place + 4), number(place + 8)) {
        let name = place + 12;
        let content = name + (name_len as usize).next_multiple_of(4);
        let (Some(text), Some(what)) =
            (bytes.get(name..name + name_len as usize), bytes.get(content..content + len as usize))
        else {
            break;
        };
        found.extend(Located::by(text, kind, what, at + content as u64));
        place = content + (len as usize).next_multiple_of(4);
    }
    found
}

/// Fills the tables. All threads must be stopped.
pub fn fill(memory: &Memory, tables: &[Located], entries: &[u64; ENTRIES]) -> io::Result<()> {
    tables
        .iter()
        .try_for_each(|table| memory.write_words(table.address, entries.get(..table.entries).unwrap_or(entries)))
}

/// Clears our pointers. All threads must be stopped. Ignores tables of modules that were unloaded meanwhile.
pub fn clear(memory: &Memory, tables: &[Located], entries: &[u64; ENTRIES]) {
    for table in tables {
        if memory.word(table.address).ok() == entries.first().copied() {
            let _ = memory.write_words(table.address, &[0; ENTRIES][..table.entries.min(ENTRIES)]);
        }
    }
}
