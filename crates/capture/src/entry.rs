//! What belongs to one patched function of an allocator in a process that runs already. In a launched program,
//! `families.rs` uses an [`Entry`] for each hooked function of an allocator family.
//!
//! heaptrack replaces the first instructions of a function by a jump to code near that function. In this file, that
//! code is called a *slot*; it is not a thread's slot in the shared memory. The slot leads to a shim:
//!
//! ```text
//! malloc: jmp slot                 slot: push entry; jmp shim            allocations: the shim calls entry.real
//!         (rest of malloc) <---+         push entry; call shim; ...      others: the shim returns, the slot goes on
//!                              +-------- displaced instructions; jmp
//! ```
//!
//! Must hold: an [`Entry`] and its slot are never changed or unmapped once a patch leads to them.
use crate::allocators::{Effect, Meaning};
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

/// The last free of a thread: the block, the CFA of the hook, the ring's head after the free, and the entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    pub address: u64,
    pub cfa: u64,
    pub head: u64,
    /// Null, or an entry to which a patch leads. Such entries stay mapped (see this file's head).
    pub entry: *const Entry,
}

impl Freed {
    pub const NONE: Freed = Freed { address: 0, cfa: 0, head: 0, entry: core::ptr::null() };
}

/// An allocator's function that a hook has called: its module, and the block that it frees or resizes (0 = none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocator {
    pub inside: Range,
    pub freed: u64,
}

impl Allocator {
    pub const NONE: Allocator = Allocator { inside: Range::NONE, freed: 0 };
}

/// The most places at which an allocator's own code calls free for blocks that the program has freed already. Calls
/// from these places are not recorded.
pub const INTERNAL: usize = 4;

/// One patched or hooked function. The shims, which are assembly, know the offsets of the first two fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The address through which the function itself is called. For a patched function these are its displaced
    /// instructions, from which a jump leads to the rest.
    pub real: u64,
    /// For a throwing `operator new`: the variant that returns null instead. For jemalloc's mallctlbymib: its
    /// mallctlnametomib, or 0. For mimalloc's mi_heap_destroy: its mi_heap_main, or 0.
    pub nothrow: u64,
    /// The module that the function is in.
    pub module: Range,
    /// Where the allocator's code is that changes mappings for its own use. `Range::NONE` if that is not known.
    pub mapping_code: Range,
    /// Of a function that changes mappings: where other allocators are, as pairs of start and end.
    pub internal: [u64; INTERNAL],
    pub meaning: Meaning,
    /// `AllocatorId`, for the events.
    pub allocator: u8,
}

impl Entry {
    /// Returns true if the allocator's own code makes the call that returns to `caller`, at one of the places in
    /// `internal`. Few allocators have such places, and the first one comes first.
    #[inline(always)]
    pub fn is_internal_call(&self, caller: u64) -> bool {
        let [first, ..] = self.internal;
        first != 0 && self.internal.contains(&caller)
    }

    /// Of a function that changes mappings: returns true if the call that returns to `caller` was made by libc or by an
    /// allocator, for its own use.
    pub fn is_by_allocator(&self, caller: u64) -> bool {
        let [first, first_end, second, second_end] = self.internal;
        let others = [Range { start: first, end: first_end }, Range { start: second, end: second_end }];
        self.module.holds(caller) || others.iter().any(|other| other.holds(caller))
    }

    /// The entry of no function.
    pub const NONE: Entry = Entry {
        real: 0,
        nothrow: 0,
        module: Range::NONE,
        mapping_code: Range::NONE,
        internal: [0; INTERNAL],
        meaning: Meaning {
            effect: Effect::Allocate,
            size: 0,
            count: Meaning::NONE,
            block: Meaning::NONE,
            heap: Meaning::NONE,
        },
        allocator: 0,
    };
}

macro_rules! shims {
    ($($(#[$about:meta])* $name:ident),* $(,)?) => {
        /// The shim that a slot leads to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Shim { $($(#[$about])* $name),* }

        impl Shim {
            pub const COUNT: usize = [$(Shim::$name),*].len();

            /// Returns true if the slot calls the shim and then continues with the function. Otherwise it jumps to the
            /// shim, which calls the function.
            pub const fn is_before(self) -> bool {
                matches!(self, Shim::Free | Shim::CarefulFree)
            }
        }
    };
}
shims! {
    /// glibc's own malloc and free. They call no other patched function, and their callers follow the ABI.
    Malloc,
    Free,
    /// All other functions, by what they do; `Entry::meaning` says with which arguments. If a patched function calls
    /// another one, that call is not recorded. All registers except the result's are kept, because a caller that was
    /// compiled together with the function may rely on that.
    Allocate, Resize, CarefulFree,
    /// A function that throws instead of returning null, such as `operator new`.
    New,
    /// As `New`, for a function that resizes a block.
    ResizeNew,
    /// A function about a whole heap: it frees all blocks of the heap, for example.
    Heap,
    /// libc's functions through which a program forbids system calls or the time stamp counter, see `sandbox.rs`.
    Prctl,
    Syscall,
    /// libc's `execve`, to which its other exec functions lead, and its `fork`. Hooked only in a program that heaptrack
    /// has started, and in a process whose children are followed.
    Execve,
    Fork,
    /// libc's `fexecve`, which makes a system call of its own.
    Fexecve,
    /// libc's `_exit`, to which `exit` leads.
    Exit,
    /// libc's functions that change mappings, see `mappings.rs`.
    Mmap, Munmap, Mremap, Madvise, Shmat, Shmdt,
}

/// What heaptrack needs to know of the capture library when it writes the library into a running process. Exported as
/// `heaptrack_core_table`.
#[repr(C)]
pub struct CoreTable {
    /// `AttachBlock::VERSION` of the build that compiled the capture library. heaptrack refuses a library with another
    /// version than its own.
    pub version: u64,
    pub core: &'static Core,
    /// The function that replaces the loader's empty notification function.
    pub loader: unsafe extern "C" fn(),
    pub following: &'static crate::follow::Following,
    /// The lists that `left_lists.rs` has not unmapped yet.
    pub left_lists: &'static [crate::left_lists::Left; crate::left_lists::THREADS],
    pub shims: [unsafe extern "C" fn(); Shim::COUNT],
    /// What the tables of programs are filled with, see `api.rs`.
    pub reports: [extern "C" fn(); crate::api::ENTRIES],
}
