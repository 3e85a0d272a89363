//! A global allocator whose blocks are reported.
use crate::{report_alloc, report_free, report_moving};
use core::alloc::{GlobalAlloc, Layout};

/// Wraps an allocator that does not use malloc; one that does is recorded already, and would be shown in both places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported<A>(pub A);

// SAFETY: every call is the inner allocator's, unchanged; reports allocate nothing and do not unwind.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reported<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.0.alloc(layout) };
        report_alloc(block, layout.size());
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        report_alloc(block, layout.size());
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before: another thread may get the place at once.
        report_free(block);
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        report_moving(block);
        // SAFETY: the caller's promise.
        let moved = unsafe { self.0.realloc(block, layout, size) };
        if moved.is_null() {
            report_alloc(block, layout.size());
        } else {
            report_alloc(moved, size);
        }
        moved
    }
}
