//! The module table: every object file that the loader ever mapped, in the order of loading.
use crate::sync::{AtomicU32, AtomicU64};

pub const BUILD_ID_MAX: usize = 32;

/// The bits of `Module::flags`.
#[derive(Debug)]
pub struct ModuleFlags;

impl ModuleFlags {
    /// The module is an allocator whose own functions are hooked.
    pub const HOOKED: u32 = 1;
    /// The module is the first one of a separate linker namespace (dlmopen), which has another malloc.
    pub const NAMESPACE: u32 = 2;
    /// The module is bound to another malloc than the program (RTLD_DEEPBIND).
    pub const BYPASSES: u32 = 4;
}

/// The thread that loads a module fills its entry and publishes it with `Header::module_count`. In an attached process,
/// the profiler does this for the modules that are loaded already. After that only `unloaded` and `flags` change. The
/// instance number of entry `i` is `i + 1`. A library that is loaded again gets a new entry.
#[repr(C)]
pub struct Module {
    /// The mapped addresses are `[start, end)`.
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// An address in memory is the address in the file plus this.
    pub bias: AtomicU64,
    /// Address of `.eh_frame_hdr`, 0 = none.
    pub eh_frame_hdr: AtomicU64,
    /// The stamps of its loading and unloading. `unloaded` is 0 while the module is loaded.
    pub loaded: AtomicU64,
    pub unloaded: AtomicU64,
    /// Where its path is in `names`. The length is 0 if there was no room, or if the path of the main program could not
    /// be read; `/proc/PID/exe` has that one.
    pub name_at: AtomicU32,
    pub name_len: AtomicU32,
    pub image: AtomicU32,
    pub build_id_len: AtomicU32,
    /// Bits of [`ModuleFlags`].
    pub flags: AtomicU32,
    pub build_id: [AtomicU64; BUILD_ID_MAX / 8],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Module>() == 104);
