//! The words of a module through which it calls other modules, and what they are bound to.
//!
//! A module's relocations name a symbol and a word; the loader writes the symbol's address into the word. A word that
//! holds the address of an allocator's function gets the address of our shim instead. The word is compared first, so a
//! module that is bound to another definition keeps it.
use crate::elf::{self, Headers, LinkMap, Relocation, Symbols};
use crate::entry::Range;
use crate::families::{self, entry};
use crate::hooks::{FAMILY_COUNT, FAMILY_HOOKS};
use crate::modules::headers_of;
use crate::patch::{Page, Patcher};

/// Relocations that write a symbol's address: R_X86_64_64, _GLOB_DAT, _JUMP_SLOT.
const ADDRESSES: [u32; 3] = [1, 6, 7];

/// Puts our shims into every word that is bound to a function of an enabled family. Returns false when a word could not
/// be written.
///
/// # Safety
/// As `families::enable`.
pub unsafe fn redirect_all(first: *const LinkMap, program: Headers, own: Range, patcher: &Patcher) -> bool {
    let mut is_whole = true;
    let mut map = first;
    // SAFETY: the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        if let Some(headers) = headers_of(m, program) {
            let is_own = headers.bounds(m.bias).is_some_and(|(start, _)| own.holds(start));
            // SAFETY: as above.
            is_whole &= is_own || unsafe { redirect(m, headers, patcher) };
        }
        map = m.next;
    }
    is_whole
}

/// # Safety
/// `map` is an entry of the loader's list, mapped and relocated, `headers` are its headers; as `families::enable`.
unsafe fn redirect(map: &LinkMap, headers: Headers, patcher: &Patcher) -> bool {
    // SAFETY: the caller's promise.
    let Some(symbols) = (unsafe { Symbols::of(map) }) else { return true };
    let mut is_whole = true;
    // SAFETY: the caller's promise.
    unsafe {
        elf::for_each_relocation(map, |relocation| {
            if let Some((at, shim)) = wanted(map, &symbols, relocation) {
                is_whole &= write(headers, map.bias, at, shim, patcher);
            }
        });
    }
    is_whole
}

/// The word that a relocation writes and the shim that it is to lead to, if it leads to a hooked function now.
///
/// # Safety
/// As `redirect`.
unsafe fn wanted(map: &LinkMap, symbols: &Symbols, relocation: &Relocation) -> Option<(u64, u64)> {
    if relocation.symbol() == 0 || relocation.addend != 0 || !ADDRESSES.contains(&relocation.kind()) {
        return None;
    }
    let at = map.bias.wrapping_add(relocation.offset);
    // SAFETY: the loader wrote this word when it relocated the module.
    let value = unsafe { (at as *const u64).read_unaligned() };
    if !families::may_be_enabled(value) {
        return None;
    }
    let hook = (0..FAMILY_COUNT).find(|&i| {
        let is_bound = entry(i).is_some_and(|entry| entry.real == value && !entry.module.holds(at));
        let name = FAMILY_HOOKS.get(i).map_or(&b""[..], |hook| hook.name);
        // SAFETY: the index is the relocation's own.
        is_bound && unsafe { symbols.has_name(relocation.symbol(), name) }
    })?;
    Some((at, families::shim(hook)?))
}

/// # Safety
/// `at` is a word of a module that the loader has relocated; as `families::enable`.
unsafe fn write(headers: Headers, bias: u64, at: u64, value: u64, patcher: &Patcher) -> bool {
    if is_writable(headers, bias, at) {
        // SAFETY: a word of a writable segment. Other threads that call through it meanwhile find the old or the new value.
        unsafe { (at as *mut u64).write_unaligned(value) };
        return true;
    }
    // SAFETY: the caller's promise: the word is mapped, in a page that the loader made read-only.
    unsafe { patcher.write(at, &value.to_le_bytes(), Page::ReadOnlyData) }
}

/// False where the loader takes the right to write away after relocation.
fn is_writable(headers: Headers, bias: u64, at: u64) -> bool {
    let holds = |header: &elf::ProgramHeader| {
        let start = bias.wrapping_add(header.vaddr);
        Range { start, end: start.wrapping_add(header.memsz) }.holds(at)
    };
    let is_relro = headers.iter().any(|header| header.kind == elf::PT_GNU_RELRO && holds(&header));
    let is_data =
        |header: elf::ProgramHeader| header.kind == elf::PT_LOAD && header.flags & elf::PF_W != 0 && holds(&header);
    !is_relro && headers.iter().any(is_data)
}
