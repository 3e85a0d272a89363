//! A libc whose allocating functions call each other by their exported names. Such a call arrives at a hook of ours, but
//! it is not the program's, and must not be recorded a second time.
//!
//! In musl, `calloc` calls `malloc`, and `posix_memalign` and `memalign` call `aligned_alloc`. glibc's functions call
//! each other directly. So with glibc the hooks save the guard that this takes.
use crate::elf::{Headers, LinkMap, Symbols};
use crate::entry::Range;
use crate::modules::headers_of;
use crate::real;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where that libc is: its start and its end. 0 = there is none.
static LIBC: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns where the libc is whose functions call each other, if this process has such a libc.
#[inline(always)]
pub fn libc() -> Option<Range> {
    let end = LIBC[1].load(Ordering::Relaxed);
    if end == 0 { None } else { Some(Range { start: LIBC[0].load(Ordering::Relaxed), end }) }
}

/// Called at the start in a process whose libc is not glibc.
///
/// # Safety
/// `first` is the loader's list, or null, and the list is stable meanwhile. `ourselves` is as for `real::resolve`.
pub unsafe fn expect(first: *const LinkMap, program: Headers, ourselves: u64) {
    let mut is_behind = false;
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
        let symbols = unsafe { Symbols::of(m) }.filter(|symbols| is_behind && !real::is_a_copy(symbols));
        let has_malloc = symbols.is_some_and(|symbols| symbols.find(b"malloc").is_some());
        let bounds = || headers_of(m, program)?.bounds(m.bias);
        if let Some((start, end)) = has_malloc.then(bounds).flatten() {
            LIBC[0].store(start, Ordering::Relaxed);
            LIBC[1].store(end, Ordering::Relaxed);
            return;
        }
        is_behind |= m.dynamic as u64 == ourselves;
        map = m.next;
    }
}
