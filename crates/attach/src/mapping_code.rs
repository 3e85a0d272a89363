//! Which code of an allocator changes mappings for the allocator's own use, if the allocator is linked into a program or a
//! library among other code.
//!
//! Receives: the functions of a file. Returns: the addresses from the first to the last of an allocator's functions that
//! call mmap and its relatives. Must hold: no function of the program is among them. The functions of a source file are
//! beside each other, so one that is far from the others is left out.
use crate::files::Function;
use capture::allocators::Family;
use capture::entry::Range;

/// jemalloc's `pages.c`: functions with a prefix that ends with this, and local ones without a prefix.
const JEMALLOC_PREFIX: &str = "je_";
const JEMALLOC: [&str; 13] = [
    "pages_map",
    "pages_unmap",
    "pages_commit",
    "pages_decommit",
    "pages_mark_guards",
    "pages_unmark_guards",
    "pages_purge_lazy",
    "pages_purge_forced",
    "pages_purge_process_madvise",
    "pages_huge",
    "pages_nohuge",
    "pages_dontdump",
    "pages_dodump",
];
const JEMALLOC_LOCAL: [&str; 5] =
    ["os_pages_map", "os_pages_unmap", "os_pages_commit", "pages_map_slow", "pages_commit_impl"];
/// mimalloc's `prim.c` and `os.c`, by the beginnings of their names.
const MIMALLOC: [&str; 7] =
    ["_mi_prim_", "unix_mmap", "unix_madvise", "mi_unix_mmap", "mi_madvise", "_mi_os_", "mi_os_"];
const RPMALLOC: [&str; 6] =
    ["_rpmalloc_mmap_os", "_rpmalloc_unmap_os", "_rpmalloc_mmap", "_rpmalloc_unmap", "os_mmap", "os_munmap"];
/// Functions of one source file are not further from each other than this.
const GAP: u64 = 4096;

/// The name without what a compiler appends to a function that it has changed: `os_pages_map.constprop.0`.
fn base(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn is_of(family: Family, name: &str) -> bool {
    let name = base(name);
    match family {
        Family::Jemalloc => {
            let mut prefixes = JEMALLOC.iter().filter_map(|known| name.strip_suffix(known));
            JEMALLOC_LOCAL.contains(&name) || prefixes.any(|prefix| prefix.ends_with(JEMALLOC_PREFIX))
        }
        Family::Mimalloc => MIMALLOC.iter().any(|begin| name.starts_with(begin)),
        Family::Rpmalloc => RPMALLOC.contains(&name),
        _ => false,
    }
}

const FAMILIES: [Family; 3] = [Family::Jemalloc, Family::Mimalloc, Family::Rpmalloc];

/// Returns true if a symbol with this name is needed.
pub fn is_wanted(name: &str) -> bool {
    FAMILIES.iter().any(|family| is_of(*family, name))
}

/// Returns where the code is, for a function of this family. malloc and the operators may belong to any allocator of the file.
pub fn find(functions: &[Function], family: Family) -> Range {
    let is_any = family == Family::Libc || family.is_addition();
    let families = FAMILIES.iter().filter(|known| is_any || **known == family);
    families.map(|family| largest_run(functions, *family)).find(|range| *range != Range::NONE).unwrap_or(Range::NONE)
}

/// Returns the addresses of the most functions of the family that are near each other.
fn largest_run(functions: &[Function], family: Family) -> Range {
    let mut of_family: Vec<&Function> = functions.iter().filter(|function| is_of(family, &function.name)).collect();
    of_family.sort_by_key(|function| function.at);
    of_family.dedup_by_key(|function| function.at);
    let mut largest: (usize, Range) = (0, Range::NONE);
    let mut run: (usize, Range) = (0, Range::NONE);
    for function in of_family {
        let end = function.at + function.size.max(1);
        run = if run.0 != 0 && function.at < run.1.end.saturating_add(GAP) {
            (run.0 + 1, Range { end: run.1.end.max(end), ..run.1 })
        } else {
            (1, Range { start: function.at, end })
        };
        if run.0 > largest.0 {
            largest = run;
        }
    }
    largest.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, at: u64) -> Function {
        Function { name: name.to_owned(), at, size: 0x100, is_local: true }
    }

    #[test]
    fn the_functions_of_one_source_file_are_a_range() {
        let functions = [
            function("_rjem_je_pages_unmap", 0x5200),
            function("os_pages_map.constprop.0", 0x5000),
            function("_rjem_je_pages_map.cold", 0x100),
            function("_rjem_je_arena_decay", 0x4f00),
            function("my_pages_map", 0x6000),
            function("_rjem_je_pages_purge_forced", 0x5400),
        ];
        let range = Range { start: 0x5000, end: 0x5500 };
        assert_eq!(find(&functions, Family::Jemalloc), range);
        assert_eq!(find(&functions, Family::Libc), range, "the malloc of a jemalloc without a prefix");
        assert_eq!(find(&functions, Family::Mimalloc), Range::NONE);
        assert!(is_wanted("_mi_prim_free") && is_wanted("je_pages_purge_lazy"));
        assert!(!is_wanted("pages_unmap") && !is_wanted("mmap") && !is_wanted("mi_malloc"));
    }
}
