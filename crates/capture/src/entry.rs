//! What belongs to one patched entry of an allocator in a process that runs already.
//!
//! The profiler replaces the first instructions of a function by a jump to code near it (a *slot*), which leads here:
//!
//! ```text
//! malloc: jmp slot                 slot: push entry; jmp shim            allocations: the shim calls entry.real
//!         (rest of malloc) <---+         push entry; call shim; ...      others: the shim returns, the slot goes on
//!                              +-------- displaced instructions; jmp
//! ```
//!
//! What must hold: an [`Entry`] and its slot are never changed or unmapped once a patch leads to them.
use crate::core::Core;

/// Addresses `[start, end)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    pub const NONE: Range = Range { start: 0, end: 0 };

    #[inline(always)]
    pub const fn holds(self, address: u64) -> bool {
        address >= self.start && address < self.end
    }
}

/// A free: of what, by which frame, where the ring was behind it; the entry, and the module that it is in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    pub address: u64,
    pub cfa: u64,
    pub head: u64,
    pub entry: u64,
    pub module: Range,
}

impl Freed {
    pub const NONE: Freed = Freed { address: 0, cfa: 0, head: 0, entry: 0, module: Range::NONE };
}

/// Return addresses of calls that an allocator makes to its own free for blocks that are free already.
pub const INTERNAL: usize = 4;

/// One patched function. The shims know where the first two are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The function itself: its displaced instructions, then the rest.
    pub real: u64,
    /// Of a throwing `operator new`: the one that returns null instead.
    pub nothrow: u64,
    /// The module that the function is in.
    pub module: Range,
    pub internal: [u64; INTERNAL],
}

macro_rules! shims {
    ($($(#[$about:meta])* $name:ident),* $(,)?) => {
        /// Where a slot leads to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Shim { $($(#[$about])* $name),* }

        impl Shim {
            pub const COUNT: usize = [$(Shim::$name),*].len();

            /// The slot calls the shim, then goes on with the function. Else it jumps, and the shim calls the function.
            pub const fn is_before(self) -> bool {
                matches!(self, Shim::Free | Shim::CarefulFree)
            }
        }
    };
}
shims! {
    /// glibc's own malloc and free, which reach no other entry, and whose callers keep to the ABI.
    Malloc,
    Free,
    /// The others: calls of entries by entries are theirs, and all registers but the result's are kept, as callers may
    /// expect who were compiled together with the function.
    Size0,
    Size1,
    Product,
    Out,
    Resize1,
    ResizeProduct,
    CarefulFree,
    /// A throwing `operator new`, without and with an alignment.
    New,
    NewAligned,
    /// libc's functions by which programs forbid system calls or the time stamp counter, see `sandbox.rs`.
    Prctl,
    Syscall,
}

/// What the profiler must find in the image: exported as `heaptrack_core_table`.
#[repr(C)]
pub struct CoreTable {
    /// `AttachBlock::VERSION`, as the image was compiled.
    pub version: u64,
    pub core: &'static Core,
    /// In place of the loader's empty function.
    pub loader: unsafe extern "C" fn(),
    pub shims: [unsafe extern "C" fn(); Shim::COUNT],
    /// What tables of programs are filled with.
    pub reports: [extern "C" fn(); crate::api::ENTRIES],
}
