//! The table that heaptrack fills, and the ELF note that locates it.
use core::sync::atomic::{AtomicUsize, Ordering};

type Alloc = extern "C" fn(*const u8, usize);
type Free = extern "C" fn(*const u8);
type Realloc = extern "C" fn(*const u8, usize, *const u8);
type Plain = extern "C" fn();

/// The table of function pointers that a program calls for its reports. Its layout is that in `heaptrack_api.h`.
///
/// ```text
/// | alloc | free | realloc | moving | pause | resume | stop |      8 bytes each, 0 = not recorded
/// ```
#[repr(C)]
pub struct ReportTable {
    entries: [AtomicUsize; 7],
}

macro_rules! entry {
    ($name:ident, $place:literal, $function:ty) => {
        #[inline(always)]
        pub fn $name(&self) -> Option<$function> {
            // SAFETY: zero is `None`. Only heaptrack writes other values, as whole words: `fill_table` in a launched
            // program, `attach::reports::fill` in an attached one. Both take them from `capture::api::ENTRY_POINTS`,
            // whose order and types are those of this table; the code there is never unmapped.
            unsafe { core::mem::transmute::<usize, Option<$function>>(self.entries[$place].load(Ordering::Acquire)) }
        }
    };
}

impl ReportTable {
    entry!(alloc, 0, Alloc);
    entry!(free, 1, Free);
    entry!(realloc, 2, Realloc);
    entry!(moving, 3, Free);
    entry!(pause, 4, Plain);
    entry!(resume, 5, Plain);
    entry!(stop, 6, Plain);
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
mod placed {
    use super::ReportTable;

    // The name is weak, as in the header, so several definitions in one program or library become one.
    core::arch::global_asm!(
        ".pushsection .bss.heaptrack_api_table,\"aw\",@nobits",
        ".weak heaptrack_api_table",
        ".hidden heaptrack_api_table",
        ".type heaptrack_api_table,@object",
        ".size heaptrack_api_table,56",
        ".balign 16",
        "heaptrack_api_table:",
        ".zero 56",
        ".popsection",
        ".pushsection .note.heaptrack,\"a\",@note",
        ".balign 4",
        ".long 10, 8, 1",
        ".asciz \"heaptrack\"",
        ".balign 4",
        ".long 7",
        ".long heaptrack_api_table - .",
        ".popsection",
    );

    unsafe extern "C" {
        #[link_name = "heaptrack_api_table"]
        safe static TABLE: ReportTable;
    }

    #[inline(always)]
    pub fn entries() -> &'static ReportTable {
        &TABLE
    }
}

/// On systems that heaptrack does not support, the table is never filled.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
mod placed {
    use super::{AtomicUsize, ReportTable};

    static TABLE: ReportTable = ReportTable { entries: [const { AtomicUsize::new(0) }; 7] };

    #[inline(always)]
    pub fn entries() -> &'static ReportTable {
        &TABLE
    }
}

pub use placed::entries;
