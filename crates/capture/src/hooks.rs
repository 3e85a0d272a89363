//! The table of functions for which the capture library exports a shim. Everything else about them is generated from
//! it: the shims, the look-up of the real functions, and the list of exports that the build checks. `allocators.rs` adds
//! the functions that are only patched at their entry.
//!
//! It has two parts. The functions that nearly every libc has are exported, unless the program's libc lacks them. The
//! functions that few modules define (C++'s operators, C23's variants of free, and what jemalloc, mimalloc and tcmalloc
//! export besides malloc) are exported only if such a module is loaded. See [`crate::families`].

pub use crate::allocators::Family;

/// Calls `$then! { (NAME, name, Kind) ... }` with every function of libc that is hooked. `Kind` says what the
/// arguments mean:
///
/// - `Size0`, `Size1`: allocates; the size is argument 0, or argument 1. `Product`: the size is argument 0 times
///   argument 1.
/// - `Out`: like posix_memalign: the block is stored through argument 0, the size is argument 2.
/// - `Resize1`, `ResizeProduct`: realloc and reallocarray.
/// - `Free`: frees argument 0.
#[macro_export]
macro_rules! for_each_hook {
    ($then:ident) => {
        $then! {
            (MALLOC, malloc, Size0)
            (CALLOC, calloc, Product)
            (REALLOC, realloc, Resize1)
            (REALLOCARRAY, reallocarray, ResizeProduct)
            (POSIX_MEMALIGN, posix_memalign, Out)
            (ALIGNED_ALLOC, aligned_alloc, Size1)
            (MEMALIGN, memalign, Size1)
            (VALLOC, valloc, Size0)
            (PVALLOC, pvalloc, Size0)
            (FREE, free, Free)
            (CFREE, cfree, Free)
        }
    };
}

/// Calls `$then! { (NAME, name, Family, Kind) ... }` with every function that only an allocator defines. Besides the
/// kinds of [`for_each_hook`]:
///
/// - `New`, `NewAligned`: as `Size0`, but throws instead of returning null.
/// - `InPlace`: like xallocx: resizes argument 0 where it is, to argument 1, and returns the size that it then has.
/// - `Expand`: as `InPlace`, but returns the block, or null.
/// - `ResizeOrFree`: like reallocf: as `Resize1`, but if the call fails, the block is freed.
/// - `Text`: like strdup: the size is that of the string that is returned.
///
/// To add a family, add its rows here or to `PATCHED` in `allocators.rs`, and its variant to [`Family`].
#[macro_export]
macro_rules! for_each_family_hook {
    ($then:ident) => {
        $then! {
            (NEW, _Znwm, Operators, New)
            (NEW_NOTHROW, _ZnwmRKSt9nothrow_t, Operators, Size0)
            (NEW_ALIGNED, _ZnwmSt11align_val_t, Operators, NewAligned)
            (NEW_ALIGNED_NOTHROW, _ZnwmSt11align_val_tRKSt9nothrow_t, Operators, Size0)
            (NEW_ARRAY, _Znam, Operators, New)
            (NEW_ARRAY_NOTHROW, _ZnamRKSt9nothrow_t, Operators, Size0)
            (NEW_ARRAY_ALIGNED, _ZnamSt11align_val_t, Operators, NewAligned)
            (NEW_ARRAY_ALIGNED_NOTHROW, _ZnamSt11align_val_tRKSt9nothrow_t, Operators, Size0)
            (DELETE, _ZdlPv, Operators, Free)
            (DELETE_SIZED, _ZdlPvm, Operators, Free)
            (DELETE_NOTHROW, _ZdlPvRKSt9nothrow_t, Operators, Free)
            (DELETE_ALIGNED, _ZdlPvSt11align_val_t, Operators, Free)
            (DELETE_SIZED_ALIGNED, _ZdlPvmSt11align_val_t, Operators, Free)
            (DELETE_ALIGNED_NOTHROW, _ZdlPvSt11align_val_tRKSt9nothrow_t, Operators, Free)
            (DELETE_ARRAY, _ZdaPv, Operators, Free)
            (DELETE_ARRAY_SIZED, _ZdaPvm, Operators, Free)
            (DELETE_ARRAY_NOTHROW, _ZdaPvRKSt9nothrow_t, Operators, Free)
            (DELETE_ARRAY_ALIGNED, _ZdaPvSt11align_val_t, Operators, Free)
            (DELETE_ARRAY_SIZED_ALIGNED, _ZdaPvmSt11align_val_t, Operators, Free)
            (DELETE_ARRAY_ALIGNED_NOTHROW, _ZdaPvSt11align_val_tRKSt9nothrow_t, Operators, Free)

            (FREE_SIZED, free_sized, SizedFrees, Free)
            (FREE_ALIGNED_SIZED, free_aligned_sized, SizedFrees, Free)

            (MALLOCX, mallocx, Jemalloc, Size0)
            (RALLOCX, rallocx, Jemalloc, Resize1)
            (XALLOCX, xallocx, Jemalloc, InPlace)
            (DALLOCX, dallocx, Jemalloc, Free)
            (SDALLOCX, sdallocx, Jemalloc, Free)

            (TC_MALLOC, tc_malloc, Tcmalloc, Size0)
            (TC_MALLOC_SKIP_NEW_HANDLER, tc_malloc_skip_new_handler, Tcmalloc, Size0)
            (TC_CALLOC, tc_calloc, Tcmalloc, Product)
            (TC_REALLOC, tc_realloc, Tcmalloc, Resize1)
            (TC_MEMALIGN, tc_memalign, Tcmalloc, Size1)
            (TC_POSIX_MEMALIGN, tc_posix_memalign, Tcmalloc, Out)
            (TC_VALLOC, tc_valloc, Tcmalloc, Size0)
            (TC_PVALLOC, tc_pvalloc, Tcmalloc, Size0)
            (TC_FREE, tc_free, Tcmalloc, Free)
            (TC_FREE_SIZED, tc_free_sized, Tcmalloc, Free)
            (TC_CFREE, tc_cfree, Tcmalloc, Free)
            (TC_NEW, tc_new, Tcmalloc, New)
            (TC_NEW_NOTHROW, tc_new_nothrow, Tcmalloc, Size0)
            (TC_NEW_ALIGNED, tc_new_aligned, Tcmalloc, NewAligned)
            (TC_NEW_ALIGNED_NOTHROW, tc_new_aligned_nothrow, Tcmalloc, Size0)
            (TC_NEWARRAY, tc_newarray, Tcmalloc, New)
            (TC_NEWARRAY_NOTHROW, tc_newarray_nothrow, Tcmalloc, Size0)
            (TC_NEWARRAY_ALIGNED, tc_newarray_aligned, Tcmalloc, NewAligned)
            (TC_NEWARRAY_ALIGNED_NOTHROW, tc_newarray_aligned_nothrow, Tcmalloc, Size0)
            (TC_DELETE, tc_delete, Tcmalloc, Free)
            (TC_DELETE_SIZED, tc_delete_sized, Tcmalloc, Free)
            (TC_DELETE_NOTHROW, tc_delete_nothrow, Tcmalloc, Free)
            (TC_DELETE_ALIGNED, tc_delete_aligned, Tcmalloc, Free)
            (TC_DELETE_SIZED_ALIGNED, tc_delete_sized_aligned, Tcmalloc, Free)
            (TC_DELETE_ALIGNED_NOTHROW, tc_delete_aligned_nothrow, Tcmalloc, Free)
            (TC_DELETEARRAY, tc_deletearray, Tcmalloc, Free)
            (TC_DELETEARRAY_SIZED, tc_deletearray_sized, Tcmalloc, Free)
            (TC_DELETEARRAY_NOTHROW, tc_deletearray_nothrow, Tcmalloc, Free)
            (TC_DELETEARRAY_ALIGNED, tc_deletearray_aligned, Tcmalloc, Free)
            (TC_DELETEARRAY_SIZED_ALIGNED, tc_deletearray_sized_aligned, Tcmalloc, Free)
            (TC_DELETEARRAY_ALIGNED_NOTHROW, tc_deletearray_aligned_nothrow, Tcmalloc, Free)

            (MI_MALLOC, mi_malloc, Mimalloc, Size0)
            (MI_MALLOC_SMALL, mi_malloc_small, Mimalloc, Size0)
            (MI_ZALLOC, mi_zalloc, Mimalloc, Size0)
            (MI_ZALLOC_SMALL, mi_zalloc_small, Mimalloc, Size0)
            (MI_CALLOC, mi_calloc, Mimalloc, Product)
            (MI_MALLOCN, mi_mallocn, Mimalloc, Product)
            (MI_REALLOC, mi_realloc, Mimalloc, Resize1)
            (MI_REZALLOC, mi_rezalloc, Mimalloc, Resize1)
            (MI_REALLOCF, mi_reallocf, Mimalloc, ResizeOrFree)
            (MI_REALLOCN, mi_reallocn, Mimalloc, ResizeProduct)
            (MI_RECALLOC, mi_recalloc, Mimalloc, ResizeProduct)
            (MI_REALLOCARRAY, mi_reallocarray, Mimalloc, ResizeProduct)
            (MI_EXPAND, mi_expand, Mimalloc, Expand)
            (MI_MALLOC_ALIGNED, mi_malloc_aligned, Mimalloc, Size0)
            (MI_MALLOC_ALIGNED_AT, mi_malloc_aligned_at, Mimalloc, Size0)
            (MI_ZALLOC_ALIGNED, mi_zalloc_aligned, Mimalloc, Size0)
            (MI_ZALLOC_ALIGNED_AT, mi_zalloc_aligned_at, Mimalloc, Size0)
            (MI_CALLOC_ALIGNED, mi_calloc_aligned, Mimalloc, Product)
            (MI_CALLOC_ALIGNED_AT, mi_calloc_aligned_at, Mimalloc, Product)
            (MI_REALLOC_ALIGNED, mi_realloc_aligned, Mimalloc, Resize1)
            (MI_REALLOC_ALIGNED_AT, mi_realloc_aligned_at, Mimalloc, Resize1)
            (MI_REZALLOC_ALIGNED, mi_rezalloc_aligned, Mimalloc, Resize1)
            (MI_REZALLOC_ALIGNED_AT, mi_rezalloc_aligned_at, Mimalloc, Resize1)
            (MI_RECALLOC_ALIGNED, mi_recalloc_aligned, Mimalloc, ResizeProduct)
            (MI_RECALLOC_ALIGNED_AT, mi_recalloc_aligned_at, Mimalloc, ResizeProduct)
            (MI_MEMALIGN, mi_memalign, Mimalloc, Size1)
            (MI_ALIGNED_ALLOC, mi_aligned_alloc, Mimalloc, Size1)
            (MI_POSIX_MEMALIGN, mi_posix_memalign, Mimalloc, Out)
            (MI_VALLOC, mi_valloc, Mimalloc, Size0)
            (MI_PVALLOC, mi_pvalloc, Mimalloc, Size0)
            (MI_STRDUP, mi_strdup, Mimalloc, Text)
            (MI_STRNDUP, mi_strndup, Mimalloc, Text)
            (MI_NEW, mi_new, Mimalloc, New)
            (MI_NEW_NOTHROW, mi_new_nothrow, Mimalloc, Size0)
            (MI_NEW_ALIGNED, mi_new_aligned, Mimalloc, NewAligned)
            (MI_NEW_ALIGNED_NOTHROW, mi_new_aligned_nothrow, Mimalloc, Size0)
            (MI_NEW_N, mi_new_n, Mimalloc, Product)
            (MI_NEW_REALLOC, mi_new_realloc, Mimalloc, Resize1)
            (MI_NEW_REALLOCN, mi_new_reallocn, Mimalloc, ResizeProduct)
            (MI_FREE, mi_free, Mimalloc, Free)
            (MI_CFREE, mi_cfree, Mimalloc, Free)
            (MI_FREE_SIZE, mi_free_size, Mimalloc, Free)
            (MI_FREE_ALIGNED, mi_free_aligned, Mimalloc, Free)
            (MI_FREE_SIZE_ALIGNED, mi_free_size_aligned, Mimalloc, Free)
        }
    };
}

/// What a function's arguments and its result mean: see [`for_each_hook`] and [`for_each_family_hook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Size0,
    Size1,
    Product,
    Out,
    Resize1,
    ResizeProduct,
    Free,
    New,
    NewAligned,
    InPlace,
    Expand,
    ResizeOrFree,
    Text,
}

macro_rules! names {
    ($(($upper:ident, $name:ident, $kind:ident))*) => {
        /// A hooked function of libc. The number is its index in `real::FUNCTIONS`.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Hook { $($upper),* }

        /// Every hook's symbol, in the order of `Hook`.
        pub const NAMES: &[&[u8]] = &[$(stringify!($name).as_bytes()),*];

        /// What the arguments of every hook mean, in the order of `Hook`.
        pub const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}
for_each_hook!(names);

macro_rules! family_names {
    ($(($upper:ident, $name:ident, $family:ident, $kind:ident))*) => {
        /// A hooked function of an allocator family. The number is its index in `families::ENTRIES`.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum FamilyHook { $($upper),* }

        /// Every family hook, in the order of `FamilyHook`.
        pub const FAMILY_HOOKS: &[Described] = &[$(Described {
            name: stringify!($name).as_bytes(),
            family: Family::$family,
            kind: Kind::$kind,
        }),*];
    };
}
for_each_family_hook!(family_names);

/// A function that only an allocator defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    pub name: &'static [u8],
    pub family: Family,
    pub kind: Kind,
}

pub const COUNT: usize = NAMES.len();
pub const FAMILY_COUNT: usize = FAMILY_HOOKS.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once() {
        let all: Vec<&[u8]> = NAMES.iter().copied().chain(FAMILY_HOOKS.iter().map(|hook| hook.name)).collect();
        for (i, name) in all.iter().enumerate() {
            assert!(!all[..i].contains(name), "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn every_family_can_be_recognised_and_frees_what_it_allocates() {
        for family in Family::EXPORTED {
            let of = |kind: Kind| FAMILY_HOOKS.iter().any(|hook| hook.family == family && hook.kind == kind);
            // The blocks that C23's variants free come from malloc.
            assert!((of(Kind::Size0) || family == Family::SizedFrees) && of(Kind::Free), "{family:?}");
        }
    }
}
