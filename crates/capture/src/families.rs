//! Hooks for the functions that only an allocator defines (an *allocator family*), in a program that was launched.
//!
//! jemalloc, tcmalloc and mimalloc define C++'s operators themselves and do not call malloc by its symbol. The
//! operators of libstdc++ do call malloc, which is hooked. So a function of [`crate::hooks::FAMILY_HOOKS`] is hooked
//! only if the definition that the program uses is in an allocator. Other programs must run exactly as without the
//! capture library:
//!
//! 1. In the library's file these names are weak and undefined, so the loader never finds them there. A program with a
//!    weak reference to `mallocx` gets the same address as without us.
//! 2. At the start, [`enable`] looks for the definitions in the modules after ours. For those in an allocator it
//!    defines our symbols, so that later bindings (a first call, `dlopen`, `dlsym`) find our shims.
//! 3. Words that the loader has already bound to the allocator get the address of the shim, see [`crate::imports`].
//!
//! The functions of [`crate::hooks::NAMES`] are defined in the library's file, because nearly every libc has them. If
//! the program would not find one of them without us, [`hide`] makes our symbol undefined.
//!
//! Must hold: a block is counted once, by the outermost hooked function. While a shim calls the allocator, the thread's
//! guard is up, and calls that the allocator itself makes are not recorded (`events/families.rs`).
use crate::allocators::{Meaning, heap_argument};
use crate::elf::{Headers, LinkMap, Symbols};
use crate::entry::{Entry, Range};
use crate::hooks::{COUNT, FAMILY_COUNT, FAMILY_HOOKS, Family, NAMES};
use crate::imports;
use crate::modules::headers_of;
use crate::patch::{Page, Patcher};
use crate::real;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

/// The real functions, in the order of `FamilyHook`. The shims call them through this table. A hook that is not enabled
/// has none.
#[repr(transparent)]
pub struct Entries(UnsafeCell<[Entry; FAMILY_COUNT]>);

// SAFETY: only `enable` writes it, at start-up (see `Core`), when there is one thread. The shims and `entry` read it
// later.
unsafe impl Sync for Entries {}

pub static ENTRIES: Entries = Entries(UnsafeCell::new([Entry::NONE; FAMILY_COUNT]));

/// Where this library is.
static OWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The lowest and the highest address of an enabled function.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// A function that is hooked now.
#[derive(Clone, Copy)]
pub struct Hooked {
    pub name: &'static [u8],
    pub real: u64,
    pub shim: u64,
}

/// Returns false if no enabled function can be at this address. Two comparisons rule out nearly all addresses.
pub fn may_be_enabled(address: u64) -> bool {
    (LOWEST.load(Ordering::Relaxed)..=HIGHEST.load(Ordering::Relaxed)).contains(&address)
}

/// Returns the real function of a hook, if the hook is enabled.
pub fn entry(index: usize) -> Option<Entry> {
    // SAFETY: nothing writes the table during this call. Only `enable` writes it, at start-up, when there is one
    // thread, and `enable` holds no reference to the table while it calls other functions.
    unsafe { (*ENTRIES.0.get()).get(index).copied() }.filter(|entry| entry.real != 0)
}

pub fn is_any_enabled() -> bool {
    HIGHEST.load(Ordering::Relaxed) != 0
}

/// Returns the module of the allocator that has the function at `address`, if functions of that module are hooked.
#[cold]
#[inline(never)]
pub fn module_of(address: u64) -> Option<Range> {
    // SAFETY: nothing writes the table during this call. Only `enable` writes it, at start-up, when there is one
    // thread, and `enable` holds no reference to the table while it calls other functions.
    let entries = unsafe { &*ENTRIES.0.get() };
    entries.iter().find(|entry| entry.real != 0 && entry.module.holds(address)).map(|entry| entry.module)
}

/// Returns true if functions of the module at `start` are hooked.
#[inline(never)]
pub fn is_hooked(start: u64) -> bool {
    // SAFETY: nothing writes the table during this call. Only `enable` writes it, at start-up, when there is one
    // thread, and `enable` holds no reference to the table while it calls other functions.
    let entries = unsafe { &*ENTRIES.0.get() };
    entries.iter().any(|entry| entry.real != 0 && entry.module.start == start)
}

/// Returns true for a return address in this library. A hook sees one if the function that a shim called has jumped to
/// another hooked function.
pub fn is_own(address: u64) -> bool {
    let [start, end] = [OWN[0].load(Ordering::Relaxed), OWN[1].load(Ordering::Relaxed)];
    Range { start, end }.holds(address)
}

#[cfg(feature = "shims")]
// SAFETY: `family_shims.rs` defines it as this many function pointers, which have the size of a `u64`.
unsafe extern "C" {
    /// The shims, in the order of `FamilyHook`. Defined in `capture-so`.
    static heaptrack_family_shims: [u64; FAMILY_COUNT];
}

/// Returns the shim that is called instead of an enabled function.
#[cfg(feature = "shims")]
pub fn shim(index: usize) -> Option<u64> {
    // SAFETY: `capture-so` defines the array with this many function pointers, each of the size of a `u64`. The loader
    // fills it in when it relocates the library, before any code of the library runs; nothing writes to it later.
    unsafe { heaptrack_family_shims.get(index).copied() }
}

/// Only the library that runs in the target has shims.
#[cfg(not(feature = "shims"))]
pub fn shim(_index: usize) -> Option<u64> {
    None
}

/// Hooks the families that are loaded. Returns false if one is loaded but cannot be hooked.
///
/// # Safety
/// `first` is the loader's list, stable meanwhile; no other thread runs yet, or the loader's lock is held.
#[inline(never)]
pub unsafe fn enable(first: *const LinkMap, program: Headers, ourselves: u64) -> bool {
    // SAFETY: the caller promises that `first` is the loader's list and stable.
    let Some((own, range)) = (unsafe { find_own(first, ourselves) }) else { return true };
    OWN[0].store(range.start, Ordering::Relaxed);
    OWN[1].store(range.end, Ordering::Relaxed);
    // SAFETY: `own` is an entry of the stable list, so `own.next` is the rest of it.
    let present = Family::EXPORTED.map(|family| unsafe { is_present(own.next, family) });
    if !present.contains(&true) {
        return true;
    }
    // SAFETY: `own` is an entry of the stable list: listed maps are whole (see `LinkMap`).
    let Some(symbols) = (unsafe { Symbols::of(own) }) else { return false };
    let patcher = Patcher::open();
    let mut is_whole = true;
    for (i, hook) in
        FAMILY_HOOKS.iter().enumerate().filter(|(_, hook)| present.get(hook.family as usize) == Some(&true))
    {
        // SAFETY: `own` is an entry of the stable list, so `own.next` is the rest of it.
        let Some(found) = (unsafe { find_in_allocator(own.next, program, hook.name, hook.family) }) else { continue };
        let Some(shim) = shim(i) else { return false };
        is_whole &= define(&symbols, hook.name, shim.wrapping_sub(own.bias), &patcher);
        LOWEST.fetch_min(found.real, Ordering::Relaxed);
        HIGHEST.fetch_max(found.real, Ordering::Relaxed);
        // SAFETY: start-up (see `Core`): there is one thread, and no reference to the table is alive here.
        if let Some(place) = unsafe { (*ENTRIES.0.get()).get_mut(i) } {
            *place = found;
        }
    }
    // SAFETY: the caller promises the stable list, and that no other thread runs or the loader's lock is held. At
    // start-up the loader has relocated all modules.
    is_whole &= unsafe { imports::redirect_all(first, program, range, &patcher) };
    patcher.close();
    is_whole
}

/// Makes the functions of [`NAMES`] invisible that the program would not find without this library. Returns false if
/// that fails.
///
/// A weak reference that the loader has bound to our shim becomes null if no module defines the function. If a module
/// has a definition for old programs only, as glibc has for `cfree`, references to it stay bound to our shim, and those
/// that would be bound at the first call are bound now. Libraries that are loaded later are bound to that definition,
/// so their calls are not recorded.
///
/// # Safety
/// `first` is the loader's list, stable meanwhile; no other thread runs yet, or the loader's lock is held.
#[inline(never)]
pub unsafe fn hide(first: *const LinkMap, program: Headers, ourselves: u64) -> bool {
    // SAFETY: the caller promises that `first` is the loader's list and stable.
    let Some((own, range)) = (unsafe { find_own(first, ourselves) }) else { return true };
    // SAFETY: `own` is an entry of the stable list: listed maps are whole (see `LinkMap`).
    let Some(symbols) = (unsafe { Symbols::of(own) }) else { return false };
    let mut is_whole = true;
    for name in NAMES.iter().chain(crate::mappings::NAMES) {
        // SAFETY: the caller promises that `first` is the loader's list and stable.
        if unsafe { real::is_visible_behind(first, own.dynamic as u64, name) } {
            continue;
        }
        let Some(shim) = symbols.find(name) else { continue };
        // SAFETY: the caller promises that `first` is the loader's list and stable.
        let (is_used, is_defined) = unsafe {
            let is_used = real::find_anywhere(first, name) == Some(shim);
            (is_used, real::find_behind(first, own.dynamic as u64, name).is_some())
        };
        let patcher = Patcher::open();
        if is_used {
            let unbound = imports::Unbound { name, shim, is_defined };
            // SAFETY: the caller promises the stable list, and that no other thread runs or the loader's lock is held.
            // At start-up the loader has relocated all modules.
            is_whole &= unsafe { imports::unbind_all(first, program, range, &unbound, &patcher) };
        }
        is_whole &= change(&symbols, name, UNDEFINED, &patcher);
        patcher.close();
    }
    is_whole
}

/// Returns this library's own entry of the loader's list, and its addresses.
///
/// # Safety
/// `first` is null or an entry of the loader's list, which is stable as long as the result is used.
unsafe fn find_own<'a>(first: *const LinkMap, ourselves: u64) -> Option<(&'a LinkMap, Range)> {
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        let bounds = Headers::at(m.bias).and_then(|headers| headers.bounds(m.bias));
        if let Some((start, end)) = bounds.filter(|(start, end)| (*start..*end).contains(&ourselves)) {
            return Some((m, Range { start, end }));
        }
        map = m.next;
    }
    None
}

/// Returns this library's own entry of the loader's list.
///
/// # Safety
/// `first` is null or an entry of the loader's list, which is stable as long as the result is used.
pub unsafe fn own_map<'a>(first: *const LinkMap) -> Option<&'a LinkMap> {
    // SAFETY: the caller promises the list and that it is stable, which is what `find_own` asks for.
    unsafe { find_own(first, own_map as *const () as u64) }.map(|(map, _)| map)
}

/// Returns true if a module defines functions of the family.
///
/// # Safety
/// `first` is null or an entry of the loader's list, which is stable meanwhile.
unsafe fn is_present(first: *const LinkMap, family: Family) -> bool {
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
        if let Some(symbols) = unsafe { Symbols::of(m) } {
            // libc has malloc but no operators.
            let is_whole = family != Family::Operators || symbols.find(b"_Znwm").is_some();
            if is_whole && symbols.find(family.mark()).is_some() && !real::is_a_copy(&symbols) {
                return true;
            }
        }
        map = m.next;
    }
    false
}

/// Returns the first definition of a name, if it is in an allocator of the family.
///
/// # Safety
/// `first` is null or an entry of the loader's list, which is stable meanwhile.
unsafe fn find_in_allocator(first: *const LinkMap, program: Headers, name: &[u8], family: Family) -> Option<Entry> {
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
        let symbols = unsafe { Symbols::of(m) }.filter(|symbols| !real::is_a_copy(symbols));
        if let Some((symbols, real)) = symbols.and_then(|symbols| symbols.find(name).map(|at| (symbols, at))) {
            symbols.find(family.mark())?;
            let (start, end) = headers_of(m, program)?.bounds(m.bias)?;
            let heap = core::str::from_utf8(name).map_or(Meaning::NONE, heap_argument);
            let meaning = Meaning { heap, ..Entry::NONE.meaning };
            let (module, allocator) = (Range { start, end }, family.id() as u8);
            return Some(Entry { real, module, meaning, allocator, ..Entry::NONE });
        }
        map = m.next;
    }
    None
}

/// What a symbol of this library says: its type and binding, its section and its value.
type Definition = (u8, u16, u64);

/// A weak function that is undefined.
const UNDEFINED: Definition = (2 << 4 | 2, 0, 0);

/// Makes the loader find our shim under a name that is not defined in the library's file.
fn define(symbols: &Symbols, name: &[u8], value: u64, patcher: &Patcher) -> bool {
    const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
    /// Any section that is not 0. The loader only distinguishes defined symbols from undefined ones.
    const SECTION: u16 = 1;
    change(symbols, name, (GLOBAL_FUNCTION, SECTION, value), patcher)
}

fn change(symbols: &Symbols, name: &[u8], to: Definition, patcher: &Patcher) -> bool {
    let Some(place) = symbols.entry(name) else { return false };
    // SAFETY: `Symbols::entry` found it in the symbol table of this library, which is mapped as long as this code is.
    let mut symbol = unsafe { *place };
    (symbol.info, symbol.section, symbol.value) = to;
    // SAFETY: `place` is an entry of this library's own symbol table, which stays mapped. The callers of `enable` and
    // `hide` promise that the loader's lock is held or that no other thread runs, so the loader does not read the entry
    // meanwhile.
    unsafe { patcher.write(place as u64, symbol.bytes(), Page::ReadOnlyData) }
}

/// Calls `look` with every function that is hooked now, libc's first.
///
/// # Safety
/// `own` is our own entry of the loader's list.
pub unsafe fn for_each_hooked(own: &LinkMap, mut look: impl FnMut(Hooked)) {
    // SAFETY: `own` is the entry of this library, which is mapped as long as this code is: listed maps are whole (see
    // `LinkMap`).
    let Some(symbols) = (unsafe { Symbols::of(own) }) else { return };
    for (i, name) in NAMES.iter().take(COUNT).enumerate() {
        let real = real::FUNCTIONS.get(i).map_or(0, |function| function.load(Ordering::Relaxed) as u64);
        if let Some(shim) = symbols.find(name) {
            look(Hooked { name, real, shim });
        }
    }
    for (i, hook) in FAMILY_HOOKS.iter().enumerate() {
        if let (Some(entry), Some(shim)) = (entry(i), symbols.find(hook.name)) {
            look(Hooked { name: hook.name, real: entry.real, shim });
        }
    }
}
