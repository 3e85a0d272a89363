//! The exported functions for programs, with the names of those in KDE's library. They do the same as far as that is
//! possible here. See `capture::api`.
//!
//! This library has a table of its own, like every module that was built with our header. A program may be linked to a
//! copy of this library, and be launched with another copy or be attached to. Then its own copy does not record. It
//! passes its calls on through its table, which the copy that records has filled.
use capture::api;
use capture::core::CORE;
use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

type Callback = Option<extern "C" fn()>;

/// In the order of `capture::api`: alloc, free, realloc, moving, pause, resume, stop.
static TABLE: [AtomicUsize; api::ENTRIES] = [const { AtomicUsize::new(0) }; api::ENTRIES];

global_asm!(
    ".pushsection .note.heaptrack,\"a\",@note",
    ".balign 4",
    ".long 10, 8, {kind}",
    ".asciz \"heaptrack\"",
    ".balign 4",
    ".long {entries}",
    ".long {table} - .",
    ".popsection",
    kind = const api::NOTE_KIND,
    entries = const api::ENTRIES,
    table = sym TABLE,
);

/// Jumps to the function in the table if it is filled, otherwise to our own.
macro_rules! exported {
    ($name:ident, $entry:path, $place:literal) => {
        capture::shim! {
            #[unsafe(no_mangle)]
            fn $name [
                "mov rax, [rip + {table} + {place} * 8]",
                "test rax, rax",
                "jnz 2f",
                "jmp {entry}",
                "2:",
                "jmp rax",
            ]
            table = sym TABLE,
            place = const $place,
            entry = sym $entry,
        }
    };
}

exported!(heaptrack_malloc, api::alloc, 0);
exported!(heaptrack_free, api::free, 1);
exported!(heaptrack_realloc, api::realloc, 2);
// In KDE's library, the same function as `heaptrack_realloc`, but with integers instead of pointers as arguments.
exported!(heaptrack_realloc2, api::realloc, 2);
exported!(heaptrack_pause, api::pause, 4);
exported!(heaptrack_resume, api::resume, 5);
exported!(heaptrack_stop, stop, 6);

static AT_STOP: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn stop() {
    if !CORE.stop() {
        return;
    }
    let callback = AT_STOP.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or what `heaptrack_init` was given as a `Callback`. Null is `None`, and a function pointer has the
    // size of a pointer.
    if let Some(callback) = unsafe { core::mem::transmute::<*mut (), Callback>(callback) } {
        callback();
    }
}

/// Does not start a recording: heaptrack does that, and names the file. If this process is recorded, calls `before` and
/// stores `at_stop` for `stop`. The callback for "after" takes an object of KDE's library, which does not exist here,
/// so it is not called.
#[unsafe(no_mangle)]
extern "C" fn heaptrack_init(_name: *const u8, before: Callback, _after: usize, at_stop: Callback) {
    CORE.start();
    if CORE.gate() & capture::core::ACTIVE == 0 {
        return;
    }
    if let Some(before) = before {
        before();
    }
    let at_stop = at_stop.map_or(core::ptr::null_mut(), |callback| callback as *mut ());
    AT_STOP.store(at_stop, Ordering::Release);
}

#[unsafe(no_mangle)]
extern "C" fn heaptrack_inject(_name: *const u8) {
    CORE.start();
}

#[unsafe(no_mangle)]
extern "C" fn heaptrack_invalidate_module_cache() {
    CORE.forget_modules();
}

/// Calls the callback with libc's `stderr`, if this process is recorded.
#[unsafe(no_mangle)]
extern "C" fn heaptrack_warning(callback: Option<extern "C" fn(*mut u8)>) {
    if let (Some(callback), Some(stream)) = (callback, CORE.standard_error()) {
        callback(stream);
    }
}
