//! The tables by which programs report blocks of their own (`heaptrack_api.h`), found and filled from outside.
//!
//! Given: the program headers of a module in the target. Gives back: where its tables are. What must hold: they are
//! written only while all threads stand still, for a pointer must never be seen half; only where the module itself
//! could write.
//!
//! What is written stays good when we are gone: it leads into the image, which is never unmapped, and there the gate is
//! shut. So a recorder that dies, or another one that detaches, may leave it.
use crate::files::Header;
use crate::memory::Memory;
use capture::api::{ENTRIES, Located};
use object::elf;
use std::io;

const MOST_NOTE: u64 = 64 << 10;
const WRITABLE: u32 = 2;

/// The tables of one module.
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

/// What the notes in `bytes`, which lie at `at` in the target, locate.
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

/// All threads stand still.
pub fn fill(memory: &Memory, tables: &[Located], entries: &[u64; ENTRIES]) -> io::Result<()> {
    tables
        .iter()
        .try_for_each(|table| memory.write_words(table.address, entries.get(..table.entries).unwrap_or(entries)))
}

/// Takes out what is ours. All threads stand still; a module that went meanwhile is no mistake.
pub fn clear(memory: &Memory, tables: &[Located], entries: &[u64; ENTRIES]) {
    for table in tables {
        if memory.word(table.address).ok() == entries.first().copied() {
            let _ = memory.write_words(table.address, &[0; ENTRIES][..table.entries.min(ENTRIES)]);
        }
    }
}
