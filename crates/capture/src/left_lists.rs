//! Unmaps environment lists that an exec in a child of vfork could not unmap.
//!
//! Such a child runs in its parent's memory. Its exec does not return, so it cannot unmap the list that was made for
//! the new program. The thread that called vfork has the same thread pointer as the child, and waits until the exec is
//! done. So when the next exec with that thread pointer begins, the list is not in use any more, and is unmapped.
//! When heaptrack detaches from a process, it unmaps the lists that are left.
use crate::sys;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Seldom more threads than this are between vfork and exec at the same time. The lists of further threads stay mapped.
pub const THREADS: usize = 64;

/// The words of a list. heaptrack reads them from outside when it detaches.
#[repr(C)]
pub struct Left {
    /// A thread pointer, or 0.
    owner: AtomicU64,
    at: AtomicUsize,
    len: AtomicUsize,
}

pub static LEFT: [Left; THREADS] =
    [const { Left { owner: AtomicU64::new(0), at: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; THREADS];

/// Called before an exec that gets the list of `len` bytes at `at`. Returns true if `free` will unmap it from now on.
pub fn note(owner: u64, at: *mut u8, len: usize) -> bool {
    let is_free = |left: &&Left| {
        let taken = left.owner.compare_exchange(0, owner, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(owner)
    };
    let Some(left) = LEFT.iter().find(is_free) else { return false };
    left.len.store(len, Ordering::Relaxed);
    left.at.store(at as usize, Ordering::Release);
    true
}

/// Called before an exec, and after one that failed. Unmaps the list that was noted for this thread pointer.
pub fn free(owner: u64) {
    let Some(left) = LEFT.iter().find(|left| left.owner.load(Ordering::Acquire) == owner) else { return };
    let at = left.at.swap(0, Ordering::AcqRel);
    if at != 0 {
        let len = left.len.load(Ordering::Relaxed);
        // SAFETY: `note` got both from the caller that had mapped them. `swap` gives them to one thread only, and the
        // exec that used them is over (see the top of this file).
        unsafe { sys::unmap(at as *mut u8, len) };
    }
    left.owner.store(0, Ordering::Release);
}
