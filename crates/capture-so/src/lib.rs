//! The capture core as a shared object: exported shims, a constructor, and the few functions that compilers expect.
//!
//! Given: the program's calls, by symbol interposition. What must hold: no NEEDED entry, no thread-local storage, no
//! vector register, no symbol exported but the hooks and the calls for programs (those of `family_shims` only where an
//! allocator is loaded), no reachable panic; `crates/cli/build.rs` and the tests check it.
#![no_std]

mod api;
mod closing;
mod entries;
mod exec;
mod family_shims;
mod fork;
mod memory;
mod opening;
mod sandbox;
mod shims;

use capture::core::CORE;

/// Programs that never allocate before `main` must still lose our variables before it.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        CORE.start();
    }
    construct
};

/// A program that ends in good order lets its memory be looked at, where somebody watches.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destruct() {
        CORE.say_farewell();
    }
    destruct
};

unsafe extern "C" {
    /// Defined nowhere: a panic that can be reached fails the link.
    fn heaptrack_core_must_not_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: never runs: the function is defined nowhere, so a library in which this code can be reached does not
    // link.
    unsafe { heaptrack_core_must_not_panic() }
}
