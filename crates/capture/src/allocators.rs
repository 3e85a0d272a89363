//! The table of allocator families: which functions allocate and free, under which names, and what their arguments
//! mean. Launching, attaching and late loading all use it.
//!
//! Its first part are the functions of [`crate::hooks`], for which the capture library exports shims. The second part,
//! [`PATCHED`], are functions that are only patched at their entry. Two rules add more names: mimalloc's functions
//! that take a heap first are those of the table with one more argument, and jemalloc may have any prefix
//! ([`Jemalloc`]).
//!
//! Must hold: one entry is one block. A function that returns or frees several blocks at once has its own
//! [`Effect`].
use crate::hooks::{FAMILY_HOOKS, KINDS, Kind, NAMES};
use channel::AllocatorId;

/// An allocator, or a group of functions that several allocators have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// C++'s `new` and `delete`, in a module that is also another family's allocator. Elsewhere they call malloc.
    Operators,
    /// C23's variants of free, which few versions of libc have.
    SizedFrees,
    Jemalloc,
    Tcmalloc,
    Mimalloc,
    /// malloc, free and so on, under their plain names: glibc's, musl's, or those of any allocator that replaces them.
    Libc,
    Snmalloc,
    Rpmalloc,
    Tbbmalloc,
    /// Functions of DuckDB into which the compiler has inlined those of its jemalloc. A module without that jemalloc does
    /// not need them, because they call malloc there.
    Duckdb,
}

impl Family {
    /// The families for which the capture library exports shims: see [`crate::families`]. The number of each is its
    /// index.
    pub const EXPORTED: [Family; 5] =
        [Family::Operators, Family::SizedFrees, Family::Jemalloc, Family::Tcmalloc, Family::Mimalloc];

    /// A module that exports this function and others of the family has its own implementation of the family.
    pub const fn mark(self) -> &'static [u8] {
        match self {
            Family::Operators | Family::Libc => b"malloc",
            Family::SizedFrees => b"free_sized",
            Family::Jemalloc => b"mallocx",
            Family::Tcmalloc => b"tc_malloc",
            Family::Mimalloc => b"mi_malloc",
            Family::Snmalloc => b"sn_malloc",
            Family::Rpmalloc => b"rpmalloc",
            Family::Tbbmalloc => b"scalable_malloc",
            Family::Duckdb => b"duckdb_je_malloc",
        }
    }

    /// The number of the allocator in an event.
    pub const fn id(self) -> AllocatorId {
        match self {
            Family::Operators | Family::SizedFrees | Family::Libc => AllocatorId::Malloc,
            Family::Jemalloc | Family::Duckdb => AllocatorId::Jemalloc,
            Family::Tcmalloc => AllocatorId::Tcmalloc,
            Family::Mimalloc => AllocatorId::Mimalloc,
            Family::Snmalloc => AllocatorId::Snmalloc,
            Family::Rpmalloc => AllocatorId::Rpmalloc,
            Family::Tbbmalloc => AllocatorId::Tbbmalloc,
        }
    }

    /// Returns true if a module with functions of this family alone is no allocator: they belong to another one.
    pub const fn is_addition(self) -> bool {
        matches!(self, Family::Operators | Family::SizedFrees | Family::Duckdb)
    }
}

/// What a call does to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Effect {
    /// Returns a new block, or null.
    Allocate,
    /// Like posix_memalign: stores the new block where argument 0 points to, and returns 0.
    Out,
    /// Like strdup: returns a new block with a string, whose length is the block's size.
    Text,
    /// Returns a new block, or throws.
    New,
    /// Returns a new block in rax and its usable size in rdx, or throws.
    SizeReturning,
    /// Like realloc.
    Resize,
    /// Like reallocf: as `Resize`, but if the call fails, the block is freed.
    ResizeOrFree,
    /// Like xallocx: resizes the block where it is, and returns the size that it then has.
    InPlace,
    /// As `InPlace`, but returns the block, or null.
    Expand,
    Free,
    /// Frees all blocks of a heap; with `DestroyHeap` the heap itself too. See [`crate::events::heaps`]. mimalloc 3 refuses to destroy its
    /// main heap: `Entry::nothrow` is its function that returns this heap (`mi_heap_main`), or 0.
    ResetHeap,
    DestroyHeap,
    /// Makes a heap. What it allocates for that is the allocator's own, and is freed with the heap.
    NewHeap,
    /// Frees a heap. Its blocks go to another heap, which is never freed.
    DeleteHeap,
    /// Returns a part of a heap, which other functions take instead of the heap.
    PartOfHeap,
    /// From now on, functions without a heap allocate in this heap.
    UseHeap,
    /// Frees blocks of which it is not known which they are.
    EndUnknown,
    /// Like jemalloc's mallctl, which can reset an arena.
    Control,
    /// Like mallctlbymib. `Entry::nothrow` is the function that makes the numbers (mallctlnametomib), or 0.
    ControlByMib,
}

/// What a call does, and which of its arguments say to what. Arguments are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Meaning {
    pub effect: Effect,
    /// The argument with the size of the block.
    pub size: u8,
    /// The argument by which the size is multiplied, or `NONE`.
    pub count: u8,
    /// The block that is freed or resized. For `Effect::New`: where the variant that does not throw takes its tag, a
    /// `std::nothrow_t`.
    pub block: u8,
    /// The argument with the heap, or `NONE`. With `FLAGS` set: the argument with jemalloc's flags, which may have an
    /// arena.
    pub heap: u8,
}

impl Meaning {
    pub const NONE: u8 = u8::MAX;
    /// Set in `heap` if the argument has the flags of jemalloc's functions.
    pub const FLAGS: u8 = 1 << 6;
    /// That of malloc: the first argument is the size, and the block is the result.
    pub const MALLOC: Meaning = Meaning::of_kind(Kind::Size0);

    const fn of(effect: Effect, size: u8, count: u8, block: u8) -> Meaning {
        Meaning { effect, size, count, block, heap: Meaning::NONE }
    }

    const fn in_heap(self, heap: u8) -> Meaning {
        Meaning { heap, ..self }
    }

    const fn of_kind(kind: Kind) -> Meaning {
        const NONE: u8 = Meaning::NONE;
        match kind {
            Kind::Size0 => Meaning::of(Effect::Allocate, 0, NONE, NONE),
            Kind::Size1 => Meaning::of(Effect::Allocate, 1, NONE, NONE),
            Kind::Product => Meaning::of(Effect::Allocate, 1, 0, NONE),
            Kind::Out => Meaning::of(Effect::Out, 2, NONE, NONE),
            Kind::Resize1 => Meaning::of(Effect::Resize, 1, NONE, 0),
            Kind::ResizeProduct => Meaning::of(Effect::Resize, 2, 1, 0),
            Kind::Free => Meaning::of(Effect::Free, NONE, NONE, 0),
            Kind::New => Meaning::of(Effect::New, 0, NONE, 1),
            Kind::NewAligned => Meaning::of(Effect::New, 0, NONE, 2),
            Kind::InPlace => Meaning::of(Effect::InPlace, 1, NONE, 0),
            Kind::Expand => Meaning::of(Effect::Expand, 1, NONE, 0),
            Kind::ResizeOrFree => Meaning::of(Effect::ResizeOrFree, 1, NONE, 0),
            Kind::Text => Meaning::of(Effect::Text, NONE, NONE, NONE),
        }
    }

    /// The same function with one more argument before all others.
    const fn after_heap(self) -> Meaning {
        const fn next(argument: u8) -> u8 {
            if argument == Meaning::NONE { argument } else { argument + 1 }
        }
        let Meaning { effect, size, count, block, .. } = self;
        Meaning { effect, size: next(size), count: next(count), block: next(block), heap: 0 }
    }

    /// Returns true for a function that is about a whole heap and not about one block.
    pub const fn is_about_heap(self) -> bool {
        use Effect::{Control, ControlByMib, DeleteHeap, DestroyHeap, EndUnknown};
        use Effect::{NewHeap, PartOfHeap, ResetHeap, UseHeap};
        let is_freeing = matches!(self.effect, ResetHeap | DestroyHeap | DeleteHeap | EndUnknown);
        is_freeing || matches!(self.effect, NewHeap | PartOfHeap | UseHeap | Control | ControlByMib)
    }

    pub const fn is_allocating(self) -> bool {
        !matches!(self.effect, Effect::Free) && !self.is_about_heap()
    }

    pub const fn is_free(self) -> bool {
        matches!(self.effect, Effect::Free)
    }
}

/// A function of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'a> {
    pub family: Family,
    /// What the name begins with, before a name of libc or of jemalloc.
    pub prefix: &'a str,
    /// The name without the prefix. All functions of an allocator that does not use libc's names have no prefix.
    pub base: &'a str,
    pub meaning: Meaning,
}

struct Row(&'static str, Family, Effect, u8, u8, u8);

const N: u8 = Meaning::NONE;

/// The functions that are patched at their entry and have no exported shim. Each row: the name, the family, the effect,
/// and the arguments `size`, `count` and `block` of [`Meaning`].
const PATCHED: &[Row] = {
    use Effect::{Allocate, Control, ControlByMib, DeleteHeap, DestroyHeap, EndUnknown, Free, New, PartOfHeap};
    use Effect::{NewHeap, ResetHeap, Resize, SizeReturning, UseHeap};
    use Family::{Duckdb, Jemalloc, Mimalloc, Operators, Rpmalloc, Snmalloc, Tbbmalloc, Tcmalloc};
    &[
        Row("_Znwm12__hot_cold_t", Operators, New, 0, N, 1),
        Row("_Znam12__hot_cold_t", Operators, New, 0, N, 1),
        Row("_ZnwmRKSt9nothrow_t12__hot_cold_t", Operators, Allocate, 0, N, N),
        Row("_ZnamRKSt9nothrow_t12__hot_cold_t", Operators, Allocate, 0, N, N),
        Row("_ZnwmSt11align_val_t12__hot_cold_t", Operators, New, 0, N, 2),
        Row("_ZnamSt11align_val_t12__hot_cold_t", Operators, New, 0, N, 2),
        Row("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t", Operators, Allocate, 0, N, N),
        Row("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t", Operators, Allocate, 0, N, N),
        Row("__size_returning_new", Tcmalloc, SizeReturning, 0, N, N),
        Row("__size_returning_new_hot_cold", Tcmalloc, SizeReturning, 0, N, N),
        Row("__size_returning_new_aligned", Tcmalloc, SizeReturning, 0, N, N),
        Row("__size_returning_new_aligned_hot_cold", Tcmalloc, SizeReturning, 0, N, N),
        Row("tcmalloc_size_returning_operator_new", Tcmalloc, SizeReturning, 0, N, N),
        Row("tcmalloc_size_returning_operator_new_nothrow", Tcmalloc, SizeReturning, 0, N, N),
        Row("mi_umalloc", Mimalloc, Allocate, 0, N, N),
        Row("mi_umalloc_small", Mimalloc, Allocate, 0, N, N),
        Row("mi_umalloc_aligned", Mimalloc, Allocate, 0, N, N),
        Row("mi_uzalloc", Mimalloc, Allocate, 0, N, N),
        Row("mi_uzalloc_small", Mimalloc, Allocate, 0, N, N),
        Row("mi_uzalloc_aligned", Mimalloc, Allocate, 0, N, N),
        Row("mi_ucalloc", Mimalloc, Allocate, 1, 0, N),
        Row("mi_urealloc", Mimalloc, Resize, 1, N, 0),
        Row("mi_ufree", Mimalloc, Free, N, N, 0),
        Row("mi_free_small", Mimalloc, Free, N, N, 0),
        Row("mi_aligned_recalloc", Mimalloc, Resize, 2, 1, 0),
        Row("mi_aligned_offset_recalloc", Mimalloc, Resize, 2, 1, 0),
        Row("mi_heap_new", Mimalloc, NewHeap, N, N, N),
        Row("mi_heap_new_ex", Mimalloc, NewHeap, N, N, N),
        Row("mi_heap_new_in_arena", Mimalloc, NewHeap, N, N, N),
        Row("mi_heap_destroy", Mimalloc, DestroyHeap, N, N, N),
        Row("mi_heap_delete", Mimalloc, DeleteHeap, N, N, N),
        Row("mi_heap_theap", Mimalloc, PartOfHeap, N, N, N),
        Row("mi_heap_set_default", Mimalloc, UseHeap, N, N, N),
        Row("mi_theap_set_default", Mimalloc, UseHeap, N, N, N),
        Row("mi_subproc_destroy", Mimalloc, EndUnknown, N, N, N),
        Row("mallctl", Jemalloc, Control, N, N, N),
        Row("mallctlbymib", Jemalloc, ControlByMib, N, N, N),
        Row("sn_rust_alloc", Snmalloc, Allocate, 1, N, N),
        Row("sn_rust_alloc_zeroed", Snmalloc, Allocate, 1, N, N),
        Row("sn_rust_realloc", Snmalloc, Resize, 3, N, 0),
        Row("sn_rust_dealloc", Snmalloc, Free, N, N, 0),
        Row("rpzalloc", Rpmalloc, Allocate, 0, N, N),
        Row("rpaligned_zalloc", Rpmalloc, Allocate, 1, N, N),
        Row("rpaligned_calloc", Rpmalloc, Allocate, 2, 1, N),
        Row("rpaligned_realloc", Rpmalloc, Resize, 2, N, 0),
        Row("rpmalloc_heap_alloc", Rpmalloc, Allocate, 1, N, N),
        Row("rpmalloc_heap_aligned_alloc", Rpmalloc, Allocate, 2, N, N),
        Row("rpmalloc_heap_calloc", Rpmalloc, Allocate, 2, 1, N),
        Row("rpmalloc_heap_aligned_calloc", Rpmalloc, Allocate, 3, 2, N),
        Row("rpmalloc_heap_realloc", Rpmalloc, Resize, 2, N, 1),
        Row("rpmalloc_heap_aligned_realloc", Rpmalloc, Resize, 3, N, 1),
        Row("rpmalloc_heap_free", Rpmalloc, Free, N, N, 1),
        Row("rpmalloc_heap_free_all", Rpmalloc, ResetHeap, N, N, N),
        Row("rpmalloc_heap_thread_set_current", Rpmalloc, UseHeap, N, N, N),
        Row("_ZN3rml11pool_mallocEPNS_10MemoryPoolEm", Tbbmalloc, Allocate, 1, N, N),
        Row("_ZN3rml19pool_aligned_mallocEPNS_10MemoryPoolEmm", Tbbmalloc, Allocate, 1, N, N),
        Row("_ZN3rml12pool_reallocEPNS_10MemoryPoolEPvm", Tbbmalloc, Resize, 2, N, 1),
        Row("_ZN3rml20pool_aligned_reallocEPNS_10MemoryPoolEPvmm", Tbbmalloc, Resize, 2, N, 1),
        Row("_ZN3rml9pool_freeEPNS_10MemoryPoolEPv", Tbbmalloc, Free, N, N, 1),
        Row("_ZN3rml10pool_resetEPNS_10MemoryPoolE", Tbbmalloc, ResetHeap, N, N, N),
        Row("_ZN3rml12pool_destroyEPNS_10MemoryPoolE", Tbbmalloc, DestroyHeap, N, N, N),
        Row("scalable_malloc", Tbbmalloc, Allocate, 0, N, N),
        Row("scalable_calloc", Tbbmalloc, Allocate, 1, 0, N),
        Row("scalable_realloc", Tbbmalloc, Resize, 1, N, 0),
        Row("scalable_posix_memalign", Tbbmalloc, Effect::Out, 2, N, N),
        Row("scalable_aligned_malloc", Tbbmalloc, Allocate, 0, N, N),
        Row("scalable_aligned_realloc", Tbbmalloc, Resize, 1, N, 0),
        Row("scalable_aligned_free", Tbbmalloc, Free, N, N, 0),
        Row("scalable_free", Tbbmalloc, Free, N, N, 0),
        Row("_ZN6duckdb9Allocator15DefaultAllocateEPNS_20PrivateAllocatorDataEm", Duckdb, Allocate, 1, N, N),
        Row("_ZN6duckdb9Allocator17DefaultReallocateEPNS_20PrivateAllocatorDataEPhmm", Duckdb, Resize, 3, N, 1),
        Row("_ZN6duckdb9Allocator11DefaultFreeEPNS_20PrivateAllocatorDataEPhm", Duckdb, Free, N, N, 1),
    ]
};

/// Prefixes that allocators put before the names of libc. The names of mimalloc and tcmalloc with a prefix are rows of
/// their own.
const PREFIXES: [(&str, Family); 2] = [("rp", Family::Rpmalloc), ("sn_", Family::Snmalloc)];

/// Returns what the function of that name does, or `None` if it is in no family. Names with a prefix of jemalloc are
/// not found here, because that depends on the other functions of the module: see [`Jemalloc`].
pub fn find(name: &str) -> Option<Known<'_>> {
    let known = |family, meaning| Known { family, prefix: "", base: name, meaning };
    if let Some(meaning) = libc(name) {
        return Some(known(Family::Libc, meaning));
    }
    if name == "mi_new_n" {
        return Some(known(Family::Mimalloc, Meaning::of(Effect::New, 1, 0, 2)));
    }
    if let Some(hook) = FAMILY_HOOKS.iter().find(|hook| hook.name == name.as_bytes()) {
        return Some(known(hook.family, Meaning::of_kind(hook.kind).in_heap(heap_argument(name))));
    }
    if let Some(row) = PATCHED.iter().find(|row| row.0 == name) {
        return Some(known(row.1, Meaning::of(row.2, row.3, row.4, row.5).in_heap(heap_argument(name))));
    }
    with_heap(name).map(|meaning| known(Family::Mimalloc, meaning)).or_else(|| {
        PREFIXES.iter().find_map(|(prefix, family)| {
            let base = name.strip_prefix(prefix)?;
            Some(Known { family: *family, prefix, base, meaning: libc(base)? })
        })
    })
}

/// Returns which argument of a function has the heap, for functions that are in a table under their own name.
pub fn heap_argument(name: &str) -> u8 {
    const BEGINS: [&str; 4] = ["mi_heap_", "mi_theap_", "rpmalloc_heap_", "_ZN3rml"];
    match name {
        "mallocx" => Meaning::FLAGS | 1,
        "rallocx" => Meaning::FLAGS | 2,
        _ if BEGINS.iter().any(|begin| name.starts_with(begin)) => 0,
        _ => N,
    }
}

fn libc(name: &str) -> Option<Meaning> {
    let index = NAMES.iter().position(|known| *known == name.as_bytes())?;
    KINDS.get(index).map(|kind| Meaning::of_kind(*kind))
}

/// mimalloc's functions with a heap, or the heap of a thread, as their first argument.
fn with_heap(name: &str) -> Option<Meaning> {
    let rest = name.strip_prefix("mi_heap_").or_else(|| name.strip_prefix("mi_theap_"))?;
    match rest {
        "alloc_new" => return Some(Meaning::of(Effect::New, 1, N, 2).in_heap(0)),
        "alloc_new_n" => return Some(Meaning::of(Effect::New, 2, 1, 3).in_heap(0)),
        _ => (),
    }
    let is_it = |name: &[u8]| name.strip_prefix(b"mi_") == Some(rest.as_bytes());
    let hook = FAMILY_HOOKS.iter().find(|hook| hook.family == Family::Mimalloc && is_it(hook.name))?;
    let meaning = Meaning::of_kind(hook.kind);
    // A function that frees, and memalign and its like, exist without a heap only. `mi_heap_new` makes a heap.
    let is_with_heap = !meaning.is_free() && !matches!(hook.kind, Kind::Size1 | Kind::Out) && !rest.starts_with("new");
    is_with_heap.then(|| meaning.after_heap())
}

/// Returns true if the function throws instead of returning null.
pub fn throws(name: &str, meaning: Meaning) -> bool {
    matches!(meaning.effect, Effect::New | Effect::SizeReturning)
        || meaning.effect == Effect::Resize && name.starts_with("mi_new_")
}

/// Returns the name of the function that does the same as the throwing function `name`, but returns null where that one
/// throws.
pub fn nothrow_of(name: &str) -> Option<NothrowName<'_>> {
    const TAG: &str = "RKSt9nothrow_t";
    const HOT: &str = "12__hot_cold_t";
    let known = find(name)?;
    if !throws(name, known.meaning) {
        return None;
    }
    Some(match name {
        "mi_new_realloc" => NothrowName::new(["mi_realloc", "", ""]),
        "mi_new_reallocn" => NothrowName::new(["mi_reallocn", "", ""]),
        "mi_new_n" => NothrowName::new(["mi_mallocn", "", ""]),
        "mi_heap_alloc_new" => NothrowName::new(["mi_heap_malloc", "", ""]),
        "mi_heap_alloc_new_n" => NothrowName::new(["mi_heap_mallocn", "", ""]),
        "mi_theap_alloc_new" => NothrowName::new(["mi_theap_malloc", "", ""]),
        "mi_theap_alloc_new_n" => NothrowName::new(["mi_theap_mallocn", "", ""]),
        _ if known.family == Family::Operators => match name.strip_suffix(HOT) {
            Some(cold) => NothrowName::new([cold, TAG, HOT]),
            None => NothrowName::new([name, TAG, ""]),
        },
        _ if known.meaning.effect == Effect::SizeReturning => return None,
        _ => NothrowName::new([name, "_nothrow", ""]),
    })
}

/// A name that is put together of three parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NothrowName<'a>([&'a str; 3]);

impl<'a> NothrowName<'a> {
    const fn new(parts: [&'a str; 3]) -> NothrowName<'a> {
        NothrowName(parts)
    }

    pub fn is(self, name: &str) -> bool {
        let [a, b, c] = self.0;
        name.len() == a.len() + b.len() + c.len()
            && name.strip_prefix(a).and_then(|rest| rest.strip_prefix(b)).is_some_and(|rest| rest == c)
    }
}

/// How jemalloc is recognised. It can be built with any prefix: `_rjem_malloc`, `je_malloc`, `duckdb_je_malloc`. Other
/// libraries have functions with such endings too (`xmalloc`, `g_malloc`). A prefix is jemalloc's if the module has a
/// function with this prefix that only jemalloc has.
#[derive(Clone, Copy, Debug)]
pub struct Jemalloc;

/// Prefixes that are known to be jemalloc's, also if the linker has removed the functions that only jemalloc has.
const JEMALLOC_PREFIXES: [&str; 4] = ["je_", "_rjem_", "_rust_je_", "jemalloc_"];

/// jemalloc's function that makes the numbers of a name, for mallctlbymib.
pub const NAME_TO_MIB: &str = "mallctlnametomib";

/// The function of mimalloc 3 that returns its main heap.
pub const MAIN_HEAP: &str = "mi_heap_main";

/// Functions that only jemalloc has and that allocate and free nothing.
const JEMALLOC_OTHERS: [&str; 6] = ["mallctl", "mallctlbymib", NAME_TO_MIB, "malloc_stats_print", "nallocx", "sallocx"];

impl Jemalloc {
    /// Splits a name into a prefix that is not empty, and a function of jemalloc or libc.
    pub fn split(name: &str) -> Option<(&str, &str)> {
        // `posix_memalign` must not be taken for a function `memalign` with a prefix.
        let is_base = |base: &str| libc(base).is_some() || only_jemalloc(base) || is_sized_free(base);
        (1..name.len()).filter(|at| name.is_char_boundary(*at)).find_map(|at| {
            let (prefix, base) = name.split_at(at);
            is_base(base).then_some((prefix, base))
        })
    }

    /// Returns true if a module that has this function, which `split` has split, has a jemalloc with this prefix.
    pub fn is_mark(prefix: &str, base: &str) -> bool {
        only_jemalloc(base) || JEMALLOC_PREFIXES.contains(&prefix)
    }

    /// Returns what a function does whose prefix is jemalloc's.
    pub fn find<'a>(prefix: &'a str, base: &'a str) -> Option<Known<'a>> {
        let hook = |family: Family| {
            let of_family = |hook: &&crate::hooks::Described| hook.family == family && hook.name == base.as_bytes();
            FAMILY_HOOKS.iter().find(of_family).map(|hook| Meaning::of_kind(hook.kind))
        };
        let of_table = || libc(base).or_else(|| hook(Family::Jemalloc)).or_else(|| hook(Family::SizedFrees));
        let meaning = match base {
            "mallctl" => Meaning::of(Effect::Control, N, N, N),
            "mallctlbymib" => Meaning::of(Effect::ControlByMib, N, N, N),
            _ => of_table()?.in_heap(heap_argument(base)),
        };
        Some(Known { family: Family::Jemalloc, prefix, base, meaning })
    }
}

fn only_jemalloc(base: &str) -> bool {
    let is_hook = FAMILY_HOOKS.iter().any(|hook| hook.family == Family::Jemalloc && hook.name == base.as_bytes());
    is_hook || JEMALLOC_OTHERS.contains(&base)
}

fn is_sized_free(base: &str) -> bool {
    FAMILY_HOOKS.iter().any(|hook| hook.family == Family::SizedFrees && hook.name == base.as_bytes())
}

/// The longest name of a function that is looked for.
pub const LONGEST: usize = 76;

/// Returns true if the symbol may be a function of an allocator. Called for every symbol of large programs, so names
/// that cannot be one are ruled out quickly.
pub fn may_be_known(name: &str) -> bool {
    const BEGINS: [&str; 11] = [
        "mi_",
        "_Zn",
        "_Zd",
        "tc_",
        "rp",
        "sn_",
        "__size",
        "tcmalloc_s",
        "scalable_",
        "_ZN6duckdb9Allocator",
        "_ZN3rml",
    ];
    const ENDS: [&str; 9] = ["alloc", "free", "allocx", "align", "array", "sized", "mallctl", "bymib", "tomib"];
    let is_near = BEGINS.iter().any(|begin| name.starts_with(begin)) || ENDS.iter().any(|end| name.ends_with(end));
    let is_other = || name.ends_with("malloc_stats_print");
    name.len() <= LONGEST && (is_near || is_other()) && (find(name).is_some() || Jemalloc::split(name).is_some())
}

/// Functions that reveal an allocator which is part of a program or library and has function names of its own. Beside
/// each function is the name by which the allocator is known.
pub const FOREIGN: &[(&[u8], &str)] = &[
    (b"_rjem_malloc", "jemalloc"),
    (b"_rust_je_malloc", "jemalloc"),
    (b"je_malloc", "jemalloc"),
    (b"duckdb_je_malloc", "jemalloc"),
    (b"mi_malloc", "mimalloc"),
    (b"mi_malloc_aligned", "mimalloc"),
    (b"tc_malloc", "tcmalloc"),
    (b"rpmalloc", "rpmalloc"),
    (b"rpaligned_alloc", "rpmalloc"),
    (b"sn_malloc", "snmalloc"),
    (b"sn_rust_alloc", "snmalloc"),
    (b"scalable_malloc", "tbbmalloc"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn meaning(name: &str) -> Option<(Family, Effect, u8, u8, u8)> {
        find(name).map(|k| (k.family, k.meaning.effect, k.meaning.size, k.meaning.count, k.meaning.block))
    }

    #[test]
    fn every_name_is_there_once() {
        for (i, row) in PATCHED.iter().enumerate() {
            assert!(!PATCHED[..i].iter().any(|other| other.0 == row.0), "{}", row.0);
            assert!(!FAMILY_HOOKS.iter().any(|hook| hook.name == row.0.as_bytes()), "{}", row.0);
            assert!(row.0.len() <= LONGEST && may_be_known(row.0), "{}", row.0);
        }
        for hook in FAMILY_HOOKS {
            let name = std::str::from_utf8(hook.name).unwrap();
            assert!(may_be_known(name), "{name}");
        }
    }

    #[test]
    fn every_family_has_a_function_that_allocates_and_one_that_frees() {
        let all = [Family::Snmalloc, Family::Rpmalloc, Family::Tbbmalloc];
        for family in all {
            let has = |is: fn(Effect) -> bool| PATCHED.iter().any(|row| row.1 == family && is(row.2));
            assert!(has(|effect| effect == Effect::Allocate) && has(|effect| effect == Effect::Free), "{family:?}");
        }
    }

    #[test]
    fn arguments_are_those_of_the_functions() {
        use Effect::{Allocate, Expand, Free, New, Out, Resize, ResizeOrFree, Text};
        use Family::{Libc, Mimalloc, Operators, Rpmalloc, Snmalloc, Tcmalloc};
        assert_eq!(meaning("malloc"), Some((Libc, Allocate, 0, N, N)));
        assert_eq!(meaning("calloc"), Some((Libc, Allocate, 1, 0, N)));
        assert_eq!(meaning("posix_memalign"), Some((Libc, Out, 2, N, N)));
        assert_eq!(meaning("_ZnwmSt11align_val_t"), Some((Operators, New, 0, N, 2)));
        assert_eq!(meaning("tc_free_sized"), Some((Tcmalloc, Free, N, N, 0)));
        assert_eq!(meaning("mi_heap_malloc"), Some((Mimalloc, Allocate, 1, N, N)));
        assert_eq!(meaning("mi_theap_zalloc_small"), Some((Mimalloc, Allocate, 1, N, N)));
        assert_eq!(meaning("mi_heap_calloc_aligned_at"), Some((Mimalloc, Allocate, 2, 1, N)));
        assert_eq!(meaning("mi_heap_recalloc_aligned_at"), Some((Mimalloc, Resize, 3, 2, 1)));
        assert_eq!(meaning("mi_heap_reallocf"), Some((Mimalloc, ResizeOrFree, 2, N, 1)));
        assert_eq!(meaning("mi_heap_strndup"), Some((Mimalloc, Text, N, N, N)));
        assert_eq!(meaning("mi_expand"), Some((Mimalloc, Expand, 1, N, 0)));
        assert_eq!(
            (meaning("mi_heap_free"), meaning("mi_heap_memalign"), meaning("mi_heap_new_n")),
            (None, None, None)
        );
        assert_eq!(meaning("sn_rust_realloc"), Some((Snmalloc, Resize, 3, N, 0)));
        assert_eq!(meaning("sn_calloc"), Some((Snmalloc, Allocate, 1, 0, N)));
        assert_eq!(meaning("rpaligned_calloc"), Some((Rpmalloc, Allocate, 2, 1, N)));
        assert_eq!(meaning("rpaligned_alloc"), Some((Rpmalloc, Allocate, 1, N, N)));
        assert_eq!(meaning("rpmalloc_heap_free"), Some((Rpmalloc, Free, N, N, 1)));
        assert_eq!((meaning("zalloc"), meaning("strdup"), meaning("tc_version")), (None, None, None));
    }

    #[test]
    fn functions_with_a_heap_are_known() {
        let heap = |name: &str| find(name).unwrap().meaning.heap;
        assert_eq!((heap("mi_heap_malloc"), heap("mi_theap_realloc"), heap("mi_heap_alloc_new")), (0, 0, 0));
        assert_eq!((heap("rpmalloc_heap_calloc"), heap("mi_heap_destroy"), heap("mi_malloc")), (0, 0, N));
        assert_eq!((heap("mallocx"), heap("rallocx"), heap("malloc")), (Meaning::FLAGS | 1, Meaning::FLAGS | 2, N));
        assert_eq!(Jemalloc::find("any_", "mallocx").unwrap().meaning.heap, Meaning::FLAGS | 1);
        let is_about_heap = |name: &str| find(name).is_some_and(|known| known.meaning.is_about_heap());
        assert!(is_about_heap("mi_heap_delete") && is_about_heap("mallctl") && !is_about_heap("mi_heap_malloc"));
        assert!(!find("mi_heap_destroy").unwrap().meaning.is_allocating());
    }

    #[test]
    fn jemalloc_is_known_with_any_prefix() {
        assert_eq!(Jemalloc::split("duckdb_je_mallocx"), Some(("duckdb_je_", "mallocx")));
        assert_eq!(Jemalloc::split("je_posix_memalign"), Some(("je_", "posix_memalign")));
        assert_eq!(Jemalloc::split("x_free_aligned_sized"), Some(("x_", "free_aligned_sized")));
        assert_eq!((Jemalloc::split("malloc"), Jemalloc::split("xfree_"), Jemalloc::split("")), (None, None, None));
        assert!(Jemalloc::is_mark("any_", "sdallocx") && Jemalloc::is_mark("any_", "mallctl"));
        assert!(Jemalloc::is_mark("_rjem_", "free") && !Jemalloc::is_mark("g_", "malloc"));
        let known = Jemalloc::find("any_", "xallocx").unwrap();
        assert_eq!((known.family, known.meaning.effect), (Family::Jemalloc, Effect::InPlace));
        assert!(Jemalloc::find("any_", "free_sized").unwrap().meaning.is_free());
        assert_eq!(Jemalloc::find("any_", "mallctl").unwrap().meaning.effect, Effect::Control);
        assert_eq!(Jemalloc::find("any_", "nallocx"), None);
    }

    #[test]
    fn most_names_are_ruled_out() {
        let names = ["main", "_ZN4core3fmt5write17h0123456789abcdefE", "malloc_usable_size", "mi_version", "g_mallo"];
        assert!(names.iter().all(|name| !may_be_known(name)));
        assert!(
            ["malloc", "my_mallctl", "mi_theap_malloc", "_rjem_malloc", "x_memalign"].into_iter().all(may_be_known)
        );
    }

    #[test]
    fn the_variant_that_does_not_throw_is_known() {
        let is = |name: &str, other: &str| nothrow_of(name).is_some_and(|parts| parts.is(other));
        assert!(is("_Znam", "_ZnamRKSt9nothrow_t"));
        assert!(is("_ZnwmSt11align_val_t12__hot_cold_t", "_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t"));
        assert!(is("mi_new", "mi_new_nothrow") && is("tc_newarray_aligned", "tc_newarray_aligned_nothrow"));
        assert!(is("mi_heap_alloc_new_n", "mi_heap_mallocn"));
        assert!(nothrow_of("_ZnamRKSt9nothrow_t").is_none() && nothrow_of("malloc").is_none());
    }
}
