//! The module table: every object file that was ever mapped by the loader, in the order of loading.
use crate::sync::{AtomicU32, AtomicU64};

pub const BUILD_ID_MAX: usize = 32;

/// What the target knows of a module besides its place. Bits of `Module::flags`.
#[derive(Debug)]
pub struct ModuleFlags;

impl ModuleFlags {
    /// It is an allocator whose own functions are hooked.
    pub const HOOKED: u32 = 1;
    /// It is the first of a namespace of its own (dlmopen), in which there is another malloc.
    pub const NAMESPACE: u32 = 2;
    /// It is bound to another malloc than the program (RTLD_DEEPBIND).
    pub const BYPASSES: u32 = 4;
}

/// Filled by the target's loader thread, then published by `Header::module_count`. Only `unloaded` changes later.
/// The instance number of entry `i` is `i + 1`; a library that is loaded again gets a new entry.
#[repr(C)]
pub struct Module {
    /// First and last+1 mapped address.
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// What is added to an address in the file to get the one in memory.
    pub bias: AtomicU64,
    /// Address of `.eh_frame_hdr`, 0 = none.
    pub eh_frame_hdr: AtomicU64,
    /// Stamps.
    pub loaded: AtomicU64,
    pub unloaded: AtomicU64,
    /// Where its path is in `names`. Empty for the main program (`/proc/PID/exe` tells it).
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
