//! The functions that compilers emit calls to. They are local to this library, so the program keeps its own. Each has
//! the contract of C's function of the same name, which compilers and `core` fulfil.
use core::arch::asm;

/// # Safety
/// C's memcpy: `n` bytes are readable at `from` and writable at `to`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: copies `n` bytes forward, which the caller promises to be readable and writable. The ABI has the
    // direction flag clear.
    unsafe {
        asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// C's memmove: `n` bytes are readable at `from` and writable at `to`; they may overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= n {
        // SAFETY: `to` is below `from`, or at least `n` above it, so a forward copy reads each byte before it is
        // overwritten. The caller promises both ranges.
        return unsafe { memcpy(to, from, n) };
    }
    // SAFETY: copies the `n` bytes of both ranges, which the caller promises, from the end. Then it clears the
    // direction flag, as the ABI wants it; the kernel clears it for signal handlers meanwhile.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") n => _, inout("rdi") to.wrapping_add(n).wrapping_sub(1) => _,
             inout("rsi") from.wrapping_add(n).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// # Safety
/// C's memset: `n` bytes are writable at `to`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: writes the `n` bytes at `to` that the caller promises to be writable. The ABI has the direction flag
    // clear.
    unsafe {
        asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") byte as u8,
             options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// C's memcmp: `n` bytes are readable at `a` and at `b`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: `i` is below `n`, and the caller promises `n` readable bytes at both. Volatile, or the compiler would
        // make this loop a call of itself.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return x as i32 - y as i32;
        }
    }
    0
}

/// # Safety
/// C's bcmp: `n` bytes are readable at `a` and at `b`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller promises `n` readable bytes at both, which is what `memcmp` asks for.
    unsafe { memcmp(a, b, n) }
}

/// # Safety
/// C's strlen: `text` points to a NUL-terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: every byte before was not the NUL that the caller promises. Volatile, or the compiler would make this
    // loop a call of itself.
    while unsafe { text.add(n).read_volatile() } != 0 {
        n += 1;
    }
    n
}
