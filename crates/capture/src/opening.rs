//! Noticing that a program opens libraries with RTLD_DEEPBIND.
//!
//! Such a library is bound to the libraries that it needs before everything else: its malloc is libc's own, not our
//! shim. From the first such call on, every library that comes is looked at, see [`crate::imports::bind_deep`]. Only
//! the mode is looked at here, and the exported `dlopen` then jumps on: the loader must see its caller.
use crate::core::CORE;
use crate::elf::{self, LinkMap};
use crate::real;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub const RTLD_DEEPBIND: u32 = 8;

/// libc's `dlopen`; null until the start.
pub static OPEN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The program's own entry of the loader's list, which never goes.
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

/// True once the program has asked for RTLD_DEEPBIND.
pub fn is_deep() -> bool {
    DEEP.load(Ordering::Relaxed)
}

/// What the exported `dlopen` calls if the mode is deep, or if the real function is not known yet. Returns where it
/// then jumps to.
pub extern "C" fn opening(mode: u32) -> *const () {
    CORE.start();
    if mode & RTLD_DEEPBIND != 0 {
        DEEP.store(true, Ordering::Relaxed);
    }
    let known = OPEN.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // Before glibc 2.34 it is in a library of its own, which may have come later.
    let program = PROGRAM.load(Ordering::Acquire);
    // SAFETY: the loader's list; the caller is in a function of the loader's own interface, not inside of malloc.
    let found = unsafe { real::find_behind(program, elf::own_dynamic(), b"dlopen") };
    let found = found.map_or(core::ptr::null_mut(), |address| address as *mut ());
    OPEN.store(found, Ordering::Release);
    if found.is_null() { refuse as *const () } else { found }
}

extern "C" fn refuse() -> usize {
    0
}
