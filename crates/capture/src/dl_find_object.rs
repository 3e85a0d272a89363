//! How modules are found if the loader cannot be watched, because neither /proc/self/mem nor mprotect lets the capture
//! library write the jump of [`crate::loader`].
//!
//! Then nothing announces a new module. So for each frame the walk asks glibc's `_dl_find_object` (2.35 and later)
//! whether the address is still in the same module, unless the module was loaded at the start. That function takes no
//! lock and may be called from anywhere; the C++ runtime uses it to throw exceptions. Libraries that were loaded at the
//! start are never unloaded. Other libraries are unloaded only by `dlclose`. The capture library exports a `dlclose` of
//! its own, which clears the stack memos and the cached rules, and then jumps to the real one.
//!
//! Must hold: no thread waits for a lock. If two threads meet a new module at the same time, one of them records its
//! frame without a module. The unwind rules of a library that was loaded after the start are not cached
//! (`walk/simple.rs`), because another library may be at the same addresses by the next walk.
use crate::core::CORE;
use crate::elf::LinkMap;
use crate::real;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// `struct dl_find_object`.
#[repr(C)]
struct Object {
    flags: u64,
    start: u64,
    end: u64,
    map: *const LinkMap,
    eh_frame: u64,
    reserved: [u64; 7],
}

type Find = extern "C" fn(address: u64, object: *mut Object) -> i32;

/// `_dl_find_object`. Null if the loader is watched, or has no such function.
static FIND: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// libc's `dlclose`; null until the start.
static CLOSE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The number of modules that were loaded at the start.
static FIRST_MODULES: AtomicU32 = AtomicU32::new(0);
static BUSY: AtomicBool = AtomicBool::new(false);

/// # Safety
/// As `real::resolve`: `first` is the loader's list, and it is stable meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_behind` asks for.
    if let Some(address) = unsafe { real::find_behind(first, ourselves, b"dlclose") } {
        CLOSE.store(address as *mut (), Ordering::Release);
    }
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `opening::resolve` asks
    // for.
    unsafe { crate::opening::resolve(first, ourselves) };
}

/// From now on walks ask for the module of each frame. Returns false if there is no `_dl_find_object`.
///
/// # Safety
/// As `real::resolve`: `first` is the loader's list, and it is stable meanwhile. The table has `modules` modules, all
/// that are loaded.
pub unsafe fn begin(first: *const LinkMap, modules: u32) -> bool {
    // In a forked child, the flag may have been set by a thread that does not exist here. The first modules are the
    // same as in the parent.
    BUSY.store(false, Ordering::Relaxed);
    if is_on() {
        return true;
    }
    FIRST_MODULES.store(modules, Ordering::Relaxed);
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_anywhere` asks for.
    let Some(address) = (unsafe { real::find_anywhere(first, b"_dl_find_object") }) else { return false };
    FIND.store(address as *mut (), Ordering::Release);
    true
}

#[inline(always)]
pub fn is_on() -> bool {
    !FIND.load(Ordering::Relaxed).is_null()
}

/// Returns true if walks ask `_dl_find_object` and the module was loaded after the start, so it may be unloaded at any
/// time.
#[inline]
pub fn may_go(instance: u16) -> bool {
    is_on() && instance as u32 > FIRST_MODULES.load(Ordering::Relaxed)
}

/// Returns the loaded object at an address. It stays loaded while its code is on a stack.
pub fn find(address: u64) -> Option<*const LinkMap> {
    let function = FIND.load(Ordering::Acquire);
    if function.is_null() {
        return None;
    }
    // SAFETY: not null, so `begin` found it under the name `_dl_find_object`. glibc's function of this name takes an
    // address and a `struct dl_find_object`, as `Find` and `Object` say, and its library is never unloaded.
    let function = unsafe { core::mem::transmute::<*mut (), Find>(function) };
    let mut object = Object { flags: 0, start: 0, end: 0, map: core::ptr::null(), eh_frame: 0, reserved: [0; 7] };
    let found = function(address, &raw mut object) == 0 && !object.map.is_null();
    found.then_some(object.map)
}

/// Runs `work`, or returns `None` if another thread is in this function.
pub fn alone<T>(work: impl FnOnce() -> T) -> Option<T> {
    if BUSY.swap(true, Ordering::Acquire) {
        return None;
    }
    let result = work();
    BUSY.store(false, Ordering::Release);
    Some(result)
}

/// Called by the exported `dlclose`. Returns the address to which that `dlclose` jumps next: the real one.
pub extern "C" fn closing() -> *const () {
    CORE.start();
    if is_on() {
        CORE.modules_may_go();
    }
    let real = CLOSE.load(Ordering::Acquire);
    if !real.is_null() {
        return real;
    }
    // Before glibc 2.34, `dlclose` is in libdl, which may have been loaded later.
    let found = CORE.find_later(b"dlclose").map_or(core::ptr::null_mut(), |address| address as *mut ());
    CLOSE.store(found, Ordering::Release);
    if found.is_null() { refuse as *const () } else { found }
}

extern "C" fn refuse() -> i32 {
    -1
}
