//! The real functions, which the hooks call.
//!
//! The shims call them through the table `FUNCTIONS`. Until they are known, each entry is a stub that looks them up,
//! because the loader itself calls malloc before any constructor has run. They are looked up in the loader's list by
//! our own code and never with dlsym, which allocates.
use crate::core::CORE;
use crate::elf::{LinkMap, Symbols};
use crate::hooks::{COUNT, Hook, NAMES};
use core::sync::atomic::{AtomicPtr, Ordering};

pub type Function = extern "C" fn(usize, usize, usize) -> usize;

macro_rules! stubs {
    ($(($upper:ident, $name:ident, $kind:ident))*) => {
        /// The real functions, or their stubs, in the order of `Hook`. The shims call through this table.
        pub static FUNCTIONS: [AtomicPtr<()>; COUNT] =
            [$(AtomicPtr::new(early::<{ Hook::$upper as usize }> as *const () as *mut ())),*];
    };
}
crate::for_each_hook!(stubs);

#[inline(always)]
pub fn function(hook: Hook) -> Function {
    // SAFETY: every entry is the address of a function with at most three word-sized arguments: `early` or
    // `substitute`, which have the type `Function`, or the allocator's function of the hook's name, which `resolve`
    // found. The index is that of a `Hook`.
    unsafe { core::mem::transmute::<*mut (), Function>(FUNCTIONS[hook as usize].load(Ordering::Relaxed)) }
}

/// The stub in `FUNCTIONS` until the real functions are known.
pub extern "C" fn early<const HOOK: usize>(a: usize, b: usize, c: usize) -> usize {
    CORE.start();
    let Some(entry) = FUNCTIONS.get(HOOK) else { return 0 };
    let found = entry.load(Ordering::Relaxed);
    if core::ptr::eq(found, early::<HOOK> as *const ()) {
        return 0;
    }
    // SAFETY: `found` is not the stub any more, so `resolve` has stored it: the allocator's function of the hook's
    // name, or a `substitute`. Both take at most three word-sized arguments.
    let function = unsafe { core::mem::transmute::<*mut (), Function>(found) };
    function(a, b, c)
}

/// Fills `FUNCTIONS` with the definitions in the modules after `ourselves` (`elf::own_dynamic`) in the loader's list.
/// Returns false if there is no malloc or no free.
///
/// # Safety
/// `first` is the first entry of the loader's list, or null, and the list is stable meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) -> bool {
    let mut complete = true;
    for (i, name) in NAMES.iter().enumerate() {
        // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_behind` asks
        // for.
        let found = unsafe { find_behind(first, ourselves, name) };
        let Some(entry) = FUNCTIONS.get(i) else { return false };
        match found {
            Some(address) => entry.store(address as *mut (), Ordering::Relaxed),
            None if i == Hook::MALLOC as usize || i == Hook::FREE as usize => complete = false,
            None => entry.store(substitute(i), Ordering::Relaxed),
        }
    }
    complete
}

/// Returns a function for a hook that no module after this library has. `families::hide` makes the hook invisible, so it
/// can only be called if that failed, or by a program that would not start without this library.
fn substitute(hook: usize) -> *mut () {
    extern "C" fn free(block: usize, _: usize, _: usize) -> usize {
        function(Hook::FREE)(block, 0, 0)
    }
    extern "C" fn null(_: usize, _: usize, _: usize) -> usize {
        0
    }
    let function: Function = if hook >= Hook::FREE as usize { free } else { null };
    function as *mut ()
}

/// Finds a symbol in the modules after `ourselves` in the loader's list. Copies of this library are skipped.
///
/// # Safety
/// As `resolve`: `first` is the loader's list, or null, and the list is stable meanwhile.
pub unsafe fn find_behind(first: *const LinkMap, ourselves: u64, name: &[u8]) -> Option<u64> {
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `search_behind` asks for.
    unsafe { search_behind(first, ourselves, |symbols| symbols.find(name)) }
}

/// Returns what `find` returns for the first module after `ourselves` for which it returns something.
///
/// # Safety
/// As `resolve`: `first` is the loader's list, or null, and the list is stable meanwhile.
unsafe fn search_behind(first: *const LinkMap, ourselves: u64, find: impl Fn(&Symbols) -> Option<u64>) -> Option<u64> {
    let mut behind = false;
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        if behind {
            // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
            let symbols = unsafe { Symbols::of(m) }.filter(|symbols| !is_a_copy(symbols));
            if let Some(address) = symbols.and_then(|symbols| find(&symbols)) {
                return Some(address);
            }
        } else {
            behind = m.dynamic as u64 == ourselves;
        }
        map = m.next;
    }
    None
}

/// Returns true if `dlsym` finds the name in a module after `ourselves` in the loader's list. Definitions that only
/// programs linked long ago are bound to do not count: in glibc since 2.26, `cfree` is such a symbol.
///
/// # Safety
/// As `resolve`: `first` is the loader's list, or null, and the list is stable meanwhile.
pub unsafe fn is_visible_behind(first: *const LinkMap, ourselves: u64, name: &[u8]) -> bool {
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `search_behind` asks for.
    unsafe { search_behind(first, ourselves, |symbols| symbols.find_default(name)) }.is_some()
}

/// Returns true for a copy of this library, which a program may be linked to. The real functions are in the modules
/// after it.
pub(crate) fn is_a_copy(symbols: &Symbols) -> bool {
    symbols.find(b"heaptrack_inject").is_some() || symbols.find(b"heaptrack_invalidate_module_cache").is_some()
}

/// Returns true if another copy of this library precedes this one in the loader's list. The program is bound to that
/// copy. So that copy records, whichever of the two starts first.
///
/// # Safety
/// As `resolve`: `first` is the loader's list, or null, and the list is stable meanwhile.
pub unsafe fn is_behind_a_copy(first: *const LinkMap, ourselves: u64) -> bool {
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        if m.dynamic as u64 == ourselves {
            return false;
        }
        // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
        if unsafe { Symbols::of(m) }.is_some_and(|symbols| is_a_copy(&symbols)) {
            return true;
        }
        map = m.next;
    }
    false
}

/// Finds a symbol in the whole process as the loader does: the first definition in the list counts.
///
/// # Safety
/// As `resolve`: `first` is the loader's list, or null, and the list is stable meanwhile.
pub unsafe fn find_anywhere(first: *const LinkMap, name: &[u8]) -> Option<u64> {
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
        if let Some(address) = unsafe { Symbols::of(m) }.and_then(|s| s.find(name)) {
            return Some(address);
        }
        map = m.next;
    }
    None
}
