//! Redirecting the imports of loaded modules to our shims.
//!
//! A relocation names a symbol and a word of the module, and the loader writes the symbol's address to the word. If the
//! word holds the address of a hooked allocator function, it gets the address of our shim instead. A module that is
//! bound to another definition keeps it.
use crate::elf::{self, Headers, LinkMap, Relocation, Symbols};
use crate::entry::Range;
use crate::families::{self, Hooked, entry};
use crate::hooks::{FAMILY_COUNT, FAMILY_HOOKS};
use crate::modules::headers_of;
use crate::patch::{Page, Patcher};

/// Relocations that write a symbol's address: R_X86_64_64, _GLOB_DAT, _JUMP_SLOT.
const ADDRESSES: [u32; 3] = [1, 6, 7];

/// Writes the address of our shim to every word that is bound to a function of an enabled family. Returns false if a
/// word could not be written.
///
/// # Safety
/// `first` is the loader's list, stable meanwhile, and its modules are relocated. No other thread runs yet, or the
/// loader's lock is held.
pub unsafe fn redirect_all(first: *const LinkMap, program: Headers, own: Range, patcher: &Patcher) -> bool {
    // SAFETY: the caller promises what `rewrite_all` asks for. It calls `wanted` with a module of the stable list, which
    // is relocated by the caller's promise, and with tables of that module.
    unsafe { rewrite_all(first, program, own, patcher, |map, symbols, relocation| wanted(map, symbols, relocation)) }
}

/// A function that the program would not find without this library.
pub struct Unbound<'a> {
    pub name: &'a [u8],
    pub shim: u64,
    /// A module has a definition for programs that were linked long ago.
    pub is_defined: bool,
}

/// Writes null to every word that a weak reference to the function has bound to our shim. If the function has a
/// definition for old programs, it writes our shim to every word that would be bound to it at the first call instead.
/// Returns false if a word could not be written.
///
/// # Safety
/// As `redirect_all`: `first` is the loader's list, stable meanwhile, and its modules are relocated. No other thread
/// runs yet, or the loader's lock is held.
pub unsafe fn unbind_all(
    first: *const LinkMap,
    program: Headers,
    own: Range,
    unbound: &Unbound,
    patcher: &Patcher,
) -> bool {
    const JUMP_SLOT: u32 = 7;
    const WEAK: u8 = 2;
    let wanted = |map: &LinkMap, symbols: &Symbols, relocation: &Relocation| {
        let index = relocation.symbol();
        let is_address = index != 0 && ADDRESSES.contains(&relocation.kind());
        if !is_address || unbound.is_defined && relocation.kind() != JUMP_SLOT {
            return None;
        }
        // SAFETY: `rewrite_all` passes a relocation and the symbols of the same module, so the index is within its
        // symbol table.
        let (symbol, is_it) = unsafe { (*symbols.at(index), symbols.has_name(index, unbound.name)) };
        if !is_it || symbol.section != 0 {
            return None;
        }
        let at = map.bias.wrapping_add(relocation.offset);
        // SAFETY: the loader wrote this word when it relocated the module, which the caller promises, so it is mapped.
        let value = unsafe { (at as *const u64).read_unaligned() };
        let is_bound = value == unbound.shim;
        match unbound.is_defined {
            true => (!is_bound).then_some((at, unbound.shim)),
            false => (is_bound && symbol.info >> 4 == WEAK).then_some((at, 0)),
        }
    };
    // SAFETY: the caller promises what `rewrite_all` asks for.
    unsafe { rewrite_all(first, program, own, patcher, wanted) }
}

/// Writes to the words of all modules but this library's. `wanted` gets a relocation with its module, and returns the
/// address of the word that the relocation names and its new value, or `None`. Returns false if a word could not be
/// written.
///
/// # Safety
/// As `redirect_all`: `first` is the loader's list, stable meanwhile, and its modules are relocated. No other thread
/// runs yet, or the loader's lock is held.
unsafe fn rewrite_all(
    first: *const LinkMap,
    program: Headers,
    own: Range,
    patcher: &Patcher,
    wanted: impl Fn(&LinkMap, &Symbols, &Relocation) -> Option<(u64, u64)>,
) -> bool {
    let mut is_whole = true;
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        if let Some(headers) = headers_of(m, program) {
            let is_own = headers.bounds(m.bias).is_some_and(|(start, _)| own.holds(start));
            // SAFETY: `m` is an entry of the stable list, mapped and relocated by the caller's promise, and
            // `headers_of` returned its headers. `wanted` returns the word that its relocation names.
            is_whole &= is_own || unsafe { rewrite(m, headers, patcher, &wanted) };
        }
        map = m.next;
    }
    is_whole
}

/// # Safety
/// `map` is an entry of the loader's list, mapped and relocated, and `headers` are its headers. `wanted` returns only
/// the word that the relocation names. No other thread runs yet, or the loader's lock is held.
unsafe fn rewrite(
    map: &LinkMap,
    headers: Headers,
    patcher: &Patcher,
    wanted: &impl Fn(&LinkMap, &Symbols, &Relocation) -> Option<(u64, u64)>,
) -> bool {
    // SAFETY: the caller promises an entry of the loader's list: listed maps are whole (see `LinkMap`).
    let Some(symbols) = (unsafe { Symbols::of(map) }) else { return true };
    let mut is_whole = true;
    // SAFETY: the caller promises an entry of the loader's list: listed maps are whole (see `LinkMap`). `write` gets the
    // word that a relocation of this very module names, by the caller's promise, which the loader has relocated.
    unsafe {
        elf::for_each_relocation(map, |relocation| {
            if let Some((at, value)) = wanted(map, &symbols, relocation) {
                is_whole &= write(headers, map.bias, at, value, patcher);
            }
        });
    }
    is_whole
}

/// If a relocation's word is bound to a hooked function, returns the word's address and the shim for it.
///
/// # Safety
/// `map` is an entry of the loader's list, mapped and relocated; `symbols` and `relocation` are of its tables.
unsafe fn wanted(map: &LinkMap, symbols: &Symbols, relocation: &Relocation) -> Option<(u64, u64)> {
    if relocation.symbol() == 0 || relocation.addend != 0 || !ADDRESSES.contains(&relocation.kind()) {
        return None;
    }
    let at = map.bias.wrapping_add(relocation.offset);
    // SAFETY: the loader wrote this word when it relocated the module, which the caller promises, so it is mapped.
    let value = unsafe { (at as *const u64).read_unaligned() };
    if !families::may_be_enabled(value) {
        return None;
    }
    let hook = (0..FAMILY_COUNT).find(|&i| {
        let is_bound = entry(i).is_some_and(|entry| entry.real == value && !entry.module.holds(at));
        let name = FAMILY_HOOKS.get(i).map_or(&b""[..], |hook| hook.name);
        // SAFETY: the index is that of a relocation of the same module, which the caller promises, so it is within the
        // symbol table.
        is_bound && unsafe { symbols.has_name(relocation.symbol(), name) }
    })?;
    Some((at, families::shim(hook)?))
}

/// # Safety
/// `at` is a word that a relocation of a mapped module names, and `headers` and `bias` are that module's. No other
/// thread runs yet, or the loader's lock is held.
unsafe fn write(headers: Headers, bias: u64, at: u64, value: u64, patcher: &Patcher) -> bool {
    if is_writable(headers, bias, at) {
        // SAFETY: the word is in a writable segment of the module, checked by `is_writable`, which the loader has
        // mapped. No other thread uses it now: at start-up there is none, and the loader tells of a new library before
        // its constructors run.
        unsafe { (at as *mut u64).write_unaligned(value) };
        return true;
    }
    // SAFETY: the caller promises a word of a mapped module, and that no other thread uses it meanwhile. It is not
    // writable, so its page is protected as `page` says.
    unsafe { patcher.write(at, &value.to_le_bytes(), page(headers, bias, at)) }
}

/// Returns the protection of a page of a module that is not writable. In a library that was linked without separate
/// code, the symbol tables are in the code segment.
fn page(headers: Headers, bias: u64, at: u64) -> Page {
    let is_code = |header: elf::ProgramHeader| {
        let start = bias.wrapping_add(header.vaddr);
        let range = Range { start, end: start.wrapping_add(header.memsz) };
        header.kind == elf::PT_LOAD && header.flags & elf::PF_X != 0 && range.holds(at)
    };
    if headers.iter().any(is_code) { Page::Code } else { Page::ReadOnlyData }
}

/// Returns true if the word is in a writable segment that the loader does not make read-only after relocation (RELRO).
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

/// What a library that was opened with RTLD_DEEPBIND is bound to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Our shims, or no hooked function.
    ToUs,
    /// Perhaps another allocator: for at least one hooked function that the library imports, some module has a
    /// definition other than the real function of our shim.
    Elsewhere,
}

/// Binds a library that was opened with RTLD_DEEPBIND to our shims.
///
/// The loader searches the library's own dependencies first, so it would bind the library to the real functions. The
/// library is bound to our shim only if every module that defines the function has the same definition. Then our shim
/// and the definition that the loader would choose lead to the same allocator, whatever the library's scope is.
///
/// A symbol that is undefined in the library gets a hidden definition at our shim. Every loader binds such a symbol
/// without a search, now or at the first call. Words that are bound already are rewritten, because some versions of the
/// loader announce a library after they have relocated it.
///
/// # Safety
/// `map` is an entry of the list at `first`, the loader's own. Its lock is held, or there is no other thread: the list
/// is stable and nothing is relocated meanwhile.
#[cold]
#[inline(never)]
pub unsafe fn bind_deep(map: &LinkMap, first: *const LinkMap, loader: u64, program: Headers) -> Bound {
    // SAFETY: the caller promises the stable list and that `map` is of it, so listed maps are whole (see `LinkMap`).
    let (Some(own), Some(symbols), Some(headers)) =
        (unsafe { families::own_map(first) }, unsafe { Symbols::of(map) }, headers_of(map, program))
    else {
        return Bound::ToUs;
    };
    let patcher = Patcher::open();
    let mut bound = Bound::ToUs;
    // SAFETY: `own` and `map` are entries of the stable list: listed maps are whole (see `LinkMap`). `index` is that of
    // a relocation of `map`, so it is within its symbol table, and `at` is a word that this relocation names, so it is
    // mapped.
    unsafe {
        families::for_each_hooked(own, |hooked| {
            elf::for_each_relocation(map, |relocation| {
                let index = relocation.symbol();
                let is_it =
                    index != 0 && ADDRESSES.contains(&relocation.kind()) && symbols.has_name(index, hooked.name);
                // A function that the library defines itself stays its own.
                if !is_it || (*symbols.at(index)).section != 0 {
                    return;
                }
                if !is_only_definition(first, own, loader, &hooked) {
                    bound = Bound::Elsewhere;
                    return;
                }
                let at = map.bias.wrapping_add(relocation.offset);
                if (at as *const u64).read_unaligned() == hooked.real {
                    write(headers, map.bias, at, hooked.shim, &patcher);
                }
                let place = symbols.at(index);
                let page = page(headers, map.bias, place as u64);
                define_hidden(place, hooked.shim.wrapping_sub(map.bias), page, &patcher);
            });
        });
    }
    patcher.close();
    bound
}

/// # Safety
/// `place` is an entry of a loaded module's symbol table, in a page that is protected as `page` says; as `bind_deep`.
unsafe fn define_hidden(place: *mut elf::Symbol, value: u64, page: Page, patcher: &Patcher) {
    const HIDDEN: u8 = 2;
    // SAFETY: the caller promises an entry of a loaded module's symbol table, which is mapped, and which the loader
    // does not change.
    let mut symbol = unsafe { *place };
    symbol.other = HIDDEN;
    // Any section except "undefined" and "absolute". Then the value is relative to the module's bias.
    symbol.section = 1;
    symbol.value = value;
    // SAFETY: the caller promises an entry in a page that is protected as `page` says. Only the loader reads it. Its
    // lock is held, or there is no other thread, so it does not read it meanwhile.
    unsafe { patcher.write(place as u64, symbol.bytes(), page) };
}

/// Returns true if no module of the list defines the name at another address than the real function of our shim.
///
/// # Safety
/// `first` is the loader's list, stable meanwhile.
unsafe fn is_only_definition(first: *const LinkMap, own: &LinkMap, loader: u64, hooked: &Hooked) -> bool {
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        // The loader's own small allocator is used only at its start.
        if !core::ptr::eq(m, own) && m.bias != loader {
            // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
            let found = unsafe { Symbols::of(m) }.and_then(|symbols| symbols.find(hooked.name));
            if found.is_some_and(|address| address != hooked.real) {
                return false;
            }
        }
        map = m.next;
    }
    true
}
