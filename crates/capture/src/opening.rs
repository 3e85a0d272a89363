//! Noticing that a program opens libraries with RTLD_DEEPBIND.
//!
//! The symbols of such a library are looked up in the libraries that it needs first, so its malloc is libc's own and
//! not our shim. From the first such call on, every new library is bound to our shims, see
//! [`crate::imports::bind_deep`]. The exported `dlopen` only checks the mode and then jumps to the real one, because
//! the loader must see the original caller.
use crate::core::CORE;
use crate::elf::{self, LinkMap};
use crate::real;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub const RTLD_DEEPBIND: u32 = 8;

/// libc's `dlopen`; null until the start.
pub static OPEN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The program's own entry of the loader's list. It is never removed.
static PROGRAM: AtomicPtr<LinkMap> = AtomicPtr::new(core::ptr::null_mut());
static DEEP: AtomicBool = AtomicBool::new(false);

/// # Safety
/// As `real::resolve`: `first` is the loader's list, and it is stable meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    PROGRAM.store(first.cast_mut(), Ordering::Release);
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_behind` asks for.
    if let Some(address) = unsafe { real::find_behind(first, ourselves, b"dlopen") } {
        OPEN.store(address as *mut (), Ordering::Release);
    }
}

/// Returns true once the program has used RTLD_DEEPBIND.
pub fn is_deep() -> bool {
    DEEP.load(Ordering::Relaxed)
}

/// The exported `dlopen` calls this if the mode has RTLD_DEEPBIND, or if the real function is not known yet. Returns
/// the address that it jumps to next.
pub extern "C" fn opening(mode: u32) -> *const () {
    CORE.start();
    if mode & RTLD_DEEPBIND != 0 {
        DEEP.store(true, Ordering::Relaxed);
    }
    let known = OPEN.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // Before glibc 2.34, `dlopen` is in libdl, which may have been loaded later.
    let program = PROGRAM.load(Ordering::Acquire);
    // SAFETY: `resolve` stored the first entry of the loader's list, which is never removed. The list is read without
    // the loader's lock, so this relies on no other thread unloading a module meanwhile.
    let found = unsafe { real::find_behind(program, elf::own_dynamic(), b"dlopen") };
    let found = found.map_or(core::ptr::null_mut(), |address| address as *mut ());
    OPEN.store(found, Ordering::Release);
    if found.is_null() { refuse as *const () } else { found }
}

extern "C" fn refuse() -> usize {
    0
}
