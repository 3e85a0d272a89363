//! What the target stores for the collector just before an exec.
//!
//! If the new program records, it increments `Header::image`, and what is stored here does not matter. If it does not
//! (because it is static, or runs with other privileges), the collector sees that the image that made the exec was the
//! last one.
use crate::core::{ACTIVE, CORE};
use channel::Header;
use core::sync::atomic::Ordering;

/// Called before an exec. `path` is that of the new program. It is null if the exec is by a descriptor, or if the path
/// may not be read.
///
/// # Safety
/// `path` is null or a NUL-terminated string that can be read.
pub unsafe fn leaving(path: *const u8) {
    if CORE.gate() & ACTIVE == 0 || CORE.header().heaptrace.watched != 0 || !CORE.is_own_process() {
        return;
    }
    let header = CORE.header();
    // SAFETY: `copy_path` asks that `path` is null or a NUL-terminated string, which the caller promises.
    unsafe { copy_path(header, path) };
    header.left_at.store(CORE.stamp(), Ordering::Relaxed);
    header.leaving.store(header.image.load(Ordering::Relaxed), Ordering::Release);
}

/// Called if the exec failed.
pub fn stayed() {
    if CORE.gate() & ACTIVE != 0 && CORE.is_own_process() {
        CORE.header().leaving.store(0, Ordering::Release);
    }
}

/// Copies the path to the header. A path that is too long is cut.
///
/// # Safety
/// `path` is null or a NUL-terminated string that can be read.
unsafe fn copy_path(header: &Header, path: *const u8) {
    let mut at = 0;
    let mut is_over = path.is_null();
    for place in &header.left_for {
        let mut word = 0;
        for i in 0..8 {
            // SAFETY: a byte of the string that the caller promises. `is_over` is true from its NUL on (from the start
            // if `path` is null), so nothing after the NUL is read.
            let byte = if is_over { 0 } else { unsafe { *path.add(at) } };
            is_over |= byte == 0;
            word |= (byte as u64) << (i * 8);
            at += 1;
        }
        place.store(word, Ordering::Relaxed);
    }
}
