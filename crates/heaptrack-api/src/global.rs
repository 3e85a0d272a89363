//! A global allocator whose blocks are reported.
use crate::{report_alloc, report_free, report_moving};
use core::alloc::{GlobalAlloc, Layout};

/// Wraps an allocator that does not use malloc. The blocks of an allocator that uses malloc are recorded already, and
/// would be counted twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported<A>(pub A);

// SAFETY: every method returns what the same method of `A`, a `GlobalAlloc`, returned for the same arguments. The
// reports around it do not unwind, because the entries of `ReportTable` are `extern "C"`, and heaptrack's functions
// behind them allocate nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reported<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` is the caller's, who promises what `GlobalAlloc::alloc` asks for: its size is not zero.
        let block = unsafe { self.0.alloc(layout) };
        report_alloc(block, layout.size());
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` is the caller's, who promises what `GlobalAlloc::alloc_zeroed` asks for: its size is not
        // zero.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        report_alloc(block, layout.size());
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Reported before the real free, because another thread may get the address right after it.
        report_free(block);
        // SAFETY: the caller promises what `GlobalAlloc::dealloc` asks for: `block` is allocated, with `layout`, by
        // this allocator. All its blocks come from `self.0`, unchanged. The report has only read the address.
        unsafe { self.0.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        report_moving(block);
        // SAFETY: the caller promises what `GlobalAlloc::realloc` asks for: `block` is allocated, with `layout`, by
        // this allocator, and `size` is not zero and fits the alignment. All its blocks come from `self.0`, unchanged.
        let moved = unsafe { self.0.realloc(block, layout, size) };
        if moved.is_null() {
            report_alloc(block, layout.size());
        } else {
            report_alloc(moved, size);
        }
        moved
    }
}
