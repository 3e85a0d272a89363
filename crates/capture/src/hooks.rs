//! The one table of hooked functions. Everything else about them is made from it: the exported shims, the look-up of
//! the real functions, the list of exports that the build checks.

/// Calls `$then! { (NAME, name, Kind) ... }` with every hook. `Kind` says what the arguments mean:
///
/// - `Size0`, `Size1`: allocates; the size is that argument. `Product`: the size is argument 0 times argument 1.
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
            (FREE_SIZED, free_sized, Free)
            (FREE_ALIGNED_SIZED, free_aligned_sized, Free)
        }
    };
}

/// See [`for_each_hook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Size0,
    Size1,
    Product,
    Out,
    Resize1,
    ResizeProduct,
    Free,
}

macro_rules! names {
    ($(($upper:ident, $name:ident, $kind:ident))*) => {
        /// Index of a hook in `real::FUNCTIONS`.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Hook { $($upper),* }

        /// Every hook's symbol, in the order of `Hook`.
        pub const NAMES: &[&[u8]] = &[$(stringify!($name).as_bytes()),*];

        /// What each one's arguments mean, in the order of `Hook`.
        pub const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}
for_each_hook!(names);

pub const COUNT: usize = NAMES.len();
