//! Tells heaptrack about blocks that do not come from malloc: pools, arenas, allocators of your own.
//!
//! ```
//! let block = [0u8; 64]; // in truth: what your pool hands out
//! heaptrack_api::report_alloc(block.as_ptr(), block.len());
//! heaptrack_api::report_free(block.as_ptr());
//! ```
//!
//! Given: addresses and sizes. Gives back: nothing; while nobody records, a report is a load, a test and a branch not
//! taken. What must hold: nothing is linked, nothing is needed at run time, no report allocates.
//!
//! heaptrack finds a table of pointers in the program by an ELF note and fills it, when it launches the program or
//! attaches to it. The table has the name and the shape of that in `heaptrack_api.h`, so a program of C and Rust parts
//! has one.
//!
//! [`Reported`] wraps a whole global allocator:
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

/// A block of `size` bytes was handed out.
#[inline(always)]
pub fn report_alloc(ptr: *const u8, size: usize) {
    if let Some(alloc) = entries().alloc() {
        alloc(ptr, size);
    }
}

/// A block was taken back, or is about to be.
#[inline(always)]
pub fn report_free(ptr: *const u8) {
    if let Some(free) = entries().free() {
        free(ptr);
    }
}

/// A block was moved or resized. Nobody else may have got the old place meanwhile: see [`report_moving`].
#[inline(always)]
pub fn report_realloc(old: *const u8, size: usize, new: *const u8) {
    if let Some(realloc) = entries().realloc() {
        realloc(old, size, new);
    }
}

/// A block is about to be moved or resized; [`report_alloc`] will tell where it is then. Exact where another thread may
/// get the old place at once.
#[inline(always)]
pub fn report_moving(ptr: *const u8) {
    if let Some(moving) = entries().moving() {
        moving(ptr);
    }
}

/// From here on no allocation of the process is recorded, malloc's neither. Frees still are.
#[inline(always)]
pub fn pause() {
    if let Some(pause) = entries().pause() {
        pause();
    }
}

/// Allocations are recorded again.
#[inline(always)]
pub fn resume() {
    if let Some(resume) = entries().resume() {
        resume();
    }
}

/// Ends the recording, for good.
#[inline(always)]
pub fn stop() {
    if let Some(stop) = entries().stop() {
        stop();
    }
}

/// Somebody records, or did. For allocators whose reports cost something to make.
#[inline(always)]
pub fn is_listening() -> bool {
    entries().alloc().is_some()
}
