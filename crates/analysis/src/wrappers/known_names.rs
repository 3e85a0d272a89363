//! The names of functions that are known to wrap an allocator. docs/blame.md shows this list; a test compares the two.
use crate::code_class::matches;

/// `*` stands for any text. The names are short names, without parameters.
pub const KNOWN_NAMES: &[(&str, &[&str])] = &[
    (
        "C programs",
        &[
            "xmalloc*",
            "xcalloc*",
            "xrealloc*",
            "xzalloc*",
            "xstrdup*",
            "xstrndup*",
            "xmemdup*",
            "xasprintf",
            "xvasprintf",
            "zmalloc*",
            "zcalloc*",
            "zrealloc*",
            "ztry*alloc*",
            "zstrdup",
            "emalloc*",
            "ecalloc*",
            "erealloc*",
            "estrdup*",
            "safe_malloc*",
            "safe_calloc*",
            "safe_realloc*",
            "checked_malloc",
            "checked_realloc",
        ],
    ),
    (
        "GCC",
        &[
            "ggc_internal_*alloc*",
            "ggc_alloc*",
            "ggc_realloc*",
            "alloc_page",
            "*mempool_obstack_chunk_alloc*",
            "_obstack_newchunk",
            "_obstack_begin*",
            "_obstack_allocated_p",
            "htab_create*",
            "htab_find_slot*",
            "htab_expand",
            "_cpp_alloc*",
            "_cpp_*_alloc",
            "pool_allocator::*",
            "*_pool_allocator<*>::*",
            "*object_allocator<*>::*",
            "va_heap::reserve*",
            "vec<*va_heap*>::reserve*",
            "*hash_table<*>::alloc_entries",
        ],
    ),
    (
        "GLib",
        &[
            "g_malloc*",
            "g_try_malloc*",
            "g_realloc*",
            "g_try_realloc*",
            "g_slice_alloc*",
            "g_slice_copy",
            "g_strdup*",
            "g_strndup",
            "g_memdup*",
            "g_aligned_alloc*",
        ],
    ),
    (
        "SQLite",
        &[
            "sqlite3_malloc*",
            "sqlite3_realloc*",
            "sqlite3Malloc*",
            "sqlite3Realloc*",
            "sqlite3MemMalloc",
            "sqlite3MemRealloc",
            "sqlite3DbMalloc*",
            "sqlite3DbRealloc*",
            "sqlite3DbStrDup",
            "sqlite3DbStrNDup",
            "sqlite3PageMalloc",
            "dbMallocRawFinish",
            "pcache1Alloc",
            "mallocWithAlarm",
        ],
    ),
    (
        "CPython",
        &[
            "_PyMem_*",
            "PyMem_*",
            "_PyObject_Malloc",
            "_PyObject_Calloc",
            "_PyObject_Realloc",
            "PyObject_Malloc",
            "PyObject_Calloc",
            "PyObject_Realloc",
            "_PyObject_New*",
            "_PyObject_GC_*",
            "PyObject_GC_New*",
            "gc_alloc",
            "_PyType_AllocNoTrack",
            "PyType_GenericAlloc",
        ],
    ),
    (
        "Java",
        &[
            "os::malloc",
            "os::realloc",
            "os::strdup*",
            "AllocateHeap",
            "ReallocateHeap",
            "NMTPreInit*",
            "*CHeapObj*::operator new*",
            "*ArrayAllocator<*>::*",
            "Arena::grow*",
            "Arena::Arena",
            "Arena::A*alloc*",
            "Chunk::operator new",
            "ChunkPool::*",
            "resource_allocate_bytes",
            "resource_reallocate_bytes",
            "ResourceObj::operator new*",
            "AnyObj::operator new*",
        ],
    ),
    (
        "V8 and node",
        &[
            "node::*ArrayBufferAllocator::*",
            "node::*Malloc*",
            "node::*Realloc*",
            "node::*Calloc*",
            "v8::internal::Alloc*WithRetry*",
            "v8::internal::AlignedAllocWithRetry",
            "v8::internal::Malloced::operator new",
            "v8::internal::NewArray*",
            "v8::internal::Heap::AllocateExternalBackingStore*",
            "v8::internal::BackingStore::Allocate*",
            "v8::internal::AccountingAllocator::*",
            "v8::internal::Zone::*",
            "v8::base::*Malloc*",
        ],
    ),
    (
        "OpenSSL",
        &[
            "CRYPTO_malloc*",
            "CRYPTO_zalloc",
            "CRYPTO_aligned_alloc",
            "CRYPTO_realloc",
            "CRYPTO_memdup",
            "CRYPTO_strdup",
            "CRYPTO_strndup",
        ],
    ),
    (
        "Ruby",
        &[
            "ruby_xmalloc*",
            "ruby_xcalloc*",
            "ruby_xrealloc*",
            "rb_gc_impl_*alloc*",
            "objspace_x*alloc*",
            "objspace_malloc*",
            "rb_xmalloc*",
            "rb_xcalloc*",
            "rb_xrealloc*",
            "rb_wb_protected_newobj_of",
            "rb_ec_wb_protected_newobj_of",
            "rb_wb_unprotected_newobj_of",
            "rb_newobj*",
        ],
    ),
    (
        "Perl, Lua, PHP, Tcl",
        &[
            "Perl_safesys*alloc",
            "Perl_savepv*",
            "l_alloc",
            "luaM_*",
            "_emalloc*",
            "_ecalloc*",
            "_erealloc*",
            "_safe_emalloc*",
            "_safe_malloc*",
            "__zend_malloc",
            "__zend_calloc",
            "__zend_realloc",
            "zend_mm_alloc*",
            "Tcl_Alloc",
            "TclpAlloc",
            "Tcl_Realloc",
        ],
    ),
    (
        "Servers",
        &[
            "ngx_alloc",
            "ngx_calloc",
            "ngx_palloc*",
            "ngx_pcalloc",
            "ngx_pnalloc",
            "ngx_pmemalign",
            "ngx_memalign",
            "ngx_create_pool",
            "apr_palloc*",
            "apr_pcalloc*",
            "apr_allocator_alloc",
            "allocator_alloc",
            "palloc*",
            "repalloc*",
            "MemoryContextAlloc*",
            "AllocSetAlloc*",
            "AllocSetRealloc",
            "pg_malloc*",
            "pg_strdup",
            "pstrdup",
        ],
    ),
    ("Rust", &["*hashbrown::*do_alloc*", "*::do_alloc", "hashbrown::*"]),
];

/// Endings of names. A C function with such a name is a wrapper if at least two functions call it.
pub const ENDINGS: &[&str] = &["malloc", "calloc", "realloc", "zalloc", "mallocz", "strdup", "strndup", "memdup"];

pub(super) fn is_known(name: &str) -> bool {
    KNOWN_NAMES.iter().any(|(_, names)| names.iter().any(|pattern| matches(pattern, name)))
}

pub(super) fn has_name_of_wrapper(name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let name = last.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_blame_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/blame.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let rows = KNOWN_NAMES.iter().map(|(program, names)| format!("| {program} | {} |\n", quoted(names)));
        let table: String = rows.collect();
        assert!(page.contains(&table), "docs/blame.md must have these rows:\n{table}");
        assert!(page.contains(&format!("ends in {} (in any case)", quoted(ENDINGS))));
    }

    #[test]
    fn names_of_wrappers_are_recognised() {
        for (name, expected) in [
            ("xmalloc", true),
            ("xmalloc_failed", true),
            ("g_malloc0", true),
            ("os::malloc", true),
            ("make_node", false),
            ("sqlite3_step", false),
            ("_PyObject_Malloc", true),
            ("malloc_info", false),
        ] {
            assert_eq!(is_known(name), expected, "{name}");
        }
        for (name, expected) in [("png_malloc", true), ("Pool::xRealloc", true), ("mallocs", false), ("load", false)] {
            assert_eq!(has_name_of_wrapper(name), expected, "{name}");
        }
    }
}
