//! The functions that a program may call: reports about its own blocks, and pause, resume, stop.
//!
//! There are two ways to call them. The shared object exports them by name. And each module that was built with our
//! header, or with the crate `heaptrack-api`, has a table of function pointers, which an ELF note locates. The first
//! three words of a note are the length of its name, the length of its content, and its kind. The capture library fills
//! the table when it meets the module. The table works in an attached program too, and for references that the linker
//! has already resolved to null, because they are weak.
//!
//! ```text
//! note:   | 10 u32 | 8 u32 | 1 u32 | "heaptrack" 0 0 0 | entries u32 | table - here i32 |
//! table:  | alloc | free | realloc | moving | pause | resume | stop |                                 8 bytes each
//! ```
use crate::core::CORE;
use crate::elf::{Headers, PF_W, PT_GNU_RELRO, PT_LOAD, ProgramHeader};
use crate::events::custom::{reported_alloc, reported_free, reported_moving, reported_realloc};
use core::sync::atomic::{AtomicU64, Ordering};

pub const NOTE_NAME: &[u8] = b"heaptrack\0";
pub const NOTE_KIND: u32 = 1;
/// The number of pointers in a table.
pub const ENTRIES: usize = 7;

/// Every name that the shared object exports for programs.
pub const NAMES: &[&str] = &[
    "heaptrack_malloc",
    "heaptrack_free",
    "heaptrack_realloc",
    "heaptrack_realloc2",
    "heaptrack_init",
    "heaptrack_stop",
    "heaptrack_pause",
    "heaptrack_resume",
    "heaptrack_invalidate_module_cache",
    "heaptrack_warning",
    "heaptrack_inject",
];

/// Defines a function that saves registers and arguments as a `Context`, as the hooks do, and records.
macro_rules! reporting {
    ($name:ident, $record:ident) => {
        crate::context_shim! {
            pub fn $name ["mov rdi, rsp", "call {record}",] [] record = sym $record,
        }
    };
}

reporting!(alloc, reported_alloc);
reporting!(realloc, reported_realloc);

/// A free needs no stack walk. So this shim makes no frame: it passes on the caller's CFA and jumps.
macro_rules! freeing {
    ($name:ident, $record:ident) => {
        crate::shim! {
            pub fn $name ["lea rsi, [rsp + 8]", "jmp {record}",] record = sym $record,
        }
    };
}

freeing!(free, reported_free);
freeing!(moving, reported_moving);

pub extern "C" fn pause() {
    CORE.start();
    CORE.pause();
}

pub extern "C" fn resume() {
    CORE.resume();
}

pub extern "C" fn stop() {
    CORE.stop();
}

/// The functions that a table is filled with, in the order of the table.
pub const ENTRY_POINTS: [extern "C" fn(); ENTRIES] = [alloc, free, realloc, moving, pause, resume, stop];

/// A table that a note locates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub address: u64,
    /// How many of our functions the table has room for.
    pub entries: usize,
}

impl Located {
    /// Returns the table that a note locates, or `None` if the note is not ours or the table is not aligned. `at` is
    /// the address of the note's content in its process.
    pub fn by(name: &[u8], kind: u32, content: &[u8], at: u64) -> Option<Located> {
        if name != NOTE_NAME || kind != NOTE_KIND {
            return None;
        }
        let (count, rest) = content.split_first_chunk::<4>()?;
        let distance = i32::from_le_bytes(*rest.first_chunk::<4>()?);
        let entries = (u32::from_le_bytes(*count) as usize).min(ENTRIES);
        let address = at.wrapping_add(4).wrapping_add_signed(distance as i64);
        address.is_multiple_of(8).then_some(Located { address, entries })
    }

    /// Returns true if the whole table lies in `[start, start + length)`.
    pub const fn is_inside(&self, start: u64, length: u64) -> bool {
        let end = self.address.wrapping_add(self.entries as u64 * 8);
        self.address >= start && end <= start.wrapping_add(length)
    }
}

/// Fills the tables of a module. Does nothing for the module that this code itself is in.
pub fn fill(headers: Headers, bias: u64) {
    if headers.bounds(bias).is_some_and(|(start, end)| (start..end).contains(&(fill as *const () as u64))) {
        return;
    }
    headers.for_each_note(bias, |name, kind, content| {
        if let Some(table) = Located::by(name, kind, content, content.as_ptr() as u64) {
            fill_table(headers, bias, table);
        }
    });
}

/// Fills a table, but only if the module itself could write to it.
fn fill_table(headers: Headers, bias: u64, table: Located) {
    let inside = |header: &ProgramHeader| table.is_inside(bias.wrapping_add(header.vaddr), header.memsz);
    let is_writable =
        headers.iter().any(|header| header.kind == PT_LOAD && header.flags & PF_W != 0 && inside(&header));
    let is_sealed = headers.iter().any(|header| header.kind == PT_GNU_RELRO && inside(&header));
    if !is_writable || is_sealed {
        return;
    }
    for (place, function) in ENTRY_POINTS.into_iter().take(table.entries).enumerate() {
        // SAFETY: the table is aligned (`Located::by`) and whole inside a writable segment of the module that is not
        // RELRO, checked above. The module is mapped, which the callers of `register` promise. Programs only read the
        // words, and the stores are atomic.
        let entry = unsafe { AtomicU64::from_ptr((table.address as *mut u64).add(place)) };
        entry.store(function as *const () as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_locates_its_table() {
        let content = |entries: u32, distance: i32| [entries.to_le_bytes(), distance.to_le_bytes()].concat();
        let by = |content: &[u8]| Located::by(NOTE_NAME, NOTE_KIND, content, 0x1000);
        assert_eq!(by(&content(7, 0x2000 - 4)), Some(Located { address: 0x3000, entries: 7 }));
        assert_eq!(
            by(&content(3, -0x104)),
            Some(Located { address: 0xf00, entries: 3 }),
            "an older table, before the note"
        );
        assert_eq!(by(&content(99, 4)), Some(Located { address: 0x1008, entries: 7 }), "a later one");
        assert_eq!(by(&content(7, 1)), None, "not a place for pointers");
        assert_eq!(by(&content(7, 4)[..7]), None);
        assert_eq!(Located::by(b"GNU\0", NOTE_KIND, &content(7, 4), 0x1000), None);
        assert_eq!(Located::by(NOTE_NAME, 2, &content(7, 4), 0x1000), None);
        let table = Located { address: 0x1008, entries: 2 };
        assert!(table.is_inside(0x1008, 16) && !table.is_inside(0x1008, 15) && !table.is_inside(0x1010, 64));
    }
}
