//! Tells heaptrack about blocks that do not come from malloc, but from pools, arenas or allocators of your own.
//!
//! ```
//! let block = [0u8; 64]; // in truth: what your pool hands out
//! heaptrack_api::report_alloc(block.as_ptr(), block.len());
//! heaptrack_api::report_free(block.as_ptr());
//! ```
//!
//! Receives: addresses and sizes. Must hold: nothing is linked, nothing is needed at run time, no report allocates.
//! While the program is not recorded, a report is a load, a test and a branch that is not taken.
//!
//! The program contains a table of function pointers, which an ELF note locates. heaptrack fills the table when it
//! launches the program or attaches to it. The table has the same name and layout as in `heaptrack_api.h`, so a program
//! with C and Rust parts has only one.
//!
//! [`Reported`] wraps a whole global allocator. `System` stands for an allocator of your own here. Do not wrap `System`
//! itself: it uses malloc, whose blocks are recorded anyway, so they would be counted twice.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: heaptrack_api::Reported<std::alloc::System> = heaptrack_api::Reported(std::alloc::System);
//! # fn main() { drop(vec![1, 2, 3]); }
//! ```
#![no_std]

mod global;
mod report_table;

pub use global::Reported;

use report_table::entries;

/// Reports that a block of `size` bytes was allocated.
#[inline(always)]
pub fn report_alloc(ptr: *const u8, size: usize) {
    if let Some(alloc) = entries().alloc() {
        alloc(ptr, size);
    }
}

/// Reports that a block was freed or is about to be freed.
#[inline(always)]
pub fn report_free(ptr: *const u8) {
    if let Some(free) = entries().free() {
        free(ptr);
    }
}

/// Reports that a block was moved or resized. Only correct if no other thread can have got the old address meanwhile.
/// Otherwise use [`report_moving`].
#[inline(always)]
pub fn report_realloc(old: *const u8, size: usize, new: *const u8) {
    if let Some(realloc) = entries().realloc() {
        realloc(old, size, new);
    }
}

/// Reports that a block is about to be moved or resized. Report its new address and size with [`report_alloc`]
/// afterwards. This is exact even if another thread gets the old address at once.
#[inline(always)]
pub fn report_moving(ptr: *const u8) {
    if let Some(moving) = entries().moving() {
        moving(ptr);
    }
}

/// Pauses recording: no allocation of the process is recorded, not even malloc's. Frees still are.
#[inline(always)]
pub fn pause() {
    if let Some(pause) = entries().pause() {
        pause();
    }
}

/// Resumes recording after [`pause`].
#[inline(always)]
pub fn resume() {
    if let Some(resume) = entries().resume() {
        resume();
    }
}

/// Ends the recording of this process for good.
#[inline(always)]
pub fn stop() {
    if let Some(stop) = entries().stop() {
        stop();
    }
}

/// Returns true while the program is recorded. May also return true after the recording has ended. For allocators whose
/// reports take effort to prepare.
#[inline(always)]
pub fn is_listening() -> bool {
    entries().alloc().is_some()
}
