//! The capture library as a shared object: exported shims, a constructor, and the few functions that compilers expect.
//!
//! Receives: the program's calls, by symbol interposition. Must hold: no NEEDED entry, no thread-local storage, no
//! vector register, no reachable panic. It exports only the hooks and the functions for programs (those of
//! `family_shims` only if an allocator is loaded). `crates/cli/build.rs` and the tests check this.
#![no_std]

mod api;
mod closing;
mod entries;
mod exec;
mod family_shims;
mod fork;
mod map_shims;
mod memory;
mod opening;
mod sampled_shims;
mod sandbox;
mod shims;

use capture::core::CORE;

/// Starts before `main` also in a program that does not allocate until then, so that its environment has none of our
/// variables.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        CORE.start();
    }
    construct
};

/// If `heaptrace` watches, a program that exits normally waits here until the collector has looked at its memory.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destruct() {
        CORE.say_farewell();
    }
    destruct
};

unsafe extern "C" {
    /// Defined nowhere, so a panic that can be reached is a link error.
    fn heaptrack_core_must_not_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: this never runs. The function is defined nowhere, so a library in which this code can be reached does not
    // link.
    unsafe { heaptrack_core_must_not_panic() }
}
