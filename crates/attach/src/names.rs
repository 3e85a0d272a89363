//! The functions that are hooked in a process that runs already.
//!
//! Those of `capture::hooks`, under their own names and under the names that allocators have when they are linked into a
//! program; what jemalloc and mimalloc have besides; C++'s operators, where they do not come down to malloc.
use crate::files::Symbols;
use capture::entry::Shim;
use capture::hooks::{KINDS, Kind, NAMES};

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub shim: Shim,
    /// The quicker one, for glibc's own.
    pub plain: Option<Shim>,
    pub is_malloc: bool,
    pub is_free: bool,
}

const PREFIXES: [&str; 6] = ["je_", "_rjem_", "tc_", "mi_", "rp", "_rust_je_"];

/// Beyond `capture::hooks`.
const MORE: [(&str, Kind); 11] = [
    ("mallocx", Kind::Size0),
    ("rallocx", Kind::Resize1),
    ("dallocx", Kind::Free),
    ("sdallocx", Kind::Free),
    ("zalloc", Kind::Size0),
    ("malloc_aligned", Kind::Size0),
    ("zalloc_aligned", Kind::Size0),
    ("realloc_aligned", Kind::Resize1),
    ("free_size", Kind::Free),
    ("free_aligned", Kind::Free),
    ("free_size_aligned", Kind::Free),
];

/// `operator new`, by what comes behind `_Znw` and `_Zna`.
const NEW: [(&str, Shim); 4] = [
    ("m", Shim::New),
    ("mRKSt9nothrow_t", Shim::Size0),
    ("mSt11align_val_t", Shim::NewAligned),
    ("mSt11align_val_tRKSt9nothrow_t", Shim::Size0),
];

/// `operator delete`, by what comes behind `_Zdl` and `_Zda`.
const DELETE: [&str; 6] =
    ["Pv", "Pvm", "PvRKSt9nothrow_t", "PvSt11align_val_t", "PvmSt11align_val_t", "PvSt11align_val_tRKSt9nothrow_t"];

const SANITIZERS: [(&str, &str, &str); 4] = [
    ("__asan_init", "libasan.so", "AddressSanitizer"),
    ("__tsan_init", "libtsan.so", "ThreadSanitizer"),
    ("__msan_init", "libmsan.so", "MemorySanitizer"),
    ("__lsan_init", "liblsan.so", "LeakSanitizer"),
];

/// By which programs forbid system calls or the time stamp counter. Only looked for beside a malloc: in libc.
const FORBIDDING: [(&str, Shim); 2] = [("prctl", Shim::Prctl), ("syscall", Shim::Syscall)];

/// Where frees are that are not the program's.
const CACHES: [&str; 2] = ["tcache_thread_shutdown", "__malloc_arena_thread_freeres"];

/// The longest of all names.
const LONGEST: usize = 40;

fn without_prefix(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

pub fn has_prefix(name: &str) -> bool {
    without_prefix(name).len() != name.len()
}

pub fn find(name: &str) -> Option<Wanted> {
    let whole = Wanted { shim: Shim::Size0, plain: None, is_malloc: false, is_free: false };
    let behind = |starts: [&str; 2]| starts.iter().find_map(|start| name.strip_prefix(start));
    if let Some(form) = behind(["_Znw", "_Zna"]) {
        let (_, shim) = NEW.iter().find(|(known, _)| *known == form)?;
        return Some(Wanted { shim: *shim, ..whole });
    }
    if let Some(form) = behind(["_Zdl", "_Zda"]) {
        return DELETE.contains(&form).then_some(Wanted { shim: Shim::CarefulFree, is_free: true, ..whole });
    }
    if let Some((_, shim)) = FORBIDDING.iter().find(|(known, _)| *known == name) {
        return Some(Wanted { shim: *shim, ..whole });
    }
    let base = without_prefix(name);
    let hook = NAMES.iter().position(|known| *known == base.as_bytes()).and_then(|index| KINDS.get(index));
    // Only with a prefix, or jemalloc's own: the others are words that a program may use for anything.
    let may_have_more = has_prefix(name) || base.ends_with("allocx");
    let more = || MORE.iter().find(|(known, _)| may_have_more && *known == base).map(|(_, kind)| kind);
    let kind = hook.or_else(more)?;
    let (is_malloc, is_free) = (base == "malloc", *kind == Kind::Free);
    let plain = match base {
        "malloc" => Some(Shim::Malloc),
        "free" => Some(Shim::Free),
        _ => None,
    };
    let shim = match kind {
        Kind::Size0 => Shim::Size0,
        Kind::Size1 => Shim::Size1,
        Kind::Product => Shim::Product,
        Kind::Out => Shim::Out,
        Kind::Resize1 => Shim::Resize1,
        Kind::ResizeProduct => Shim::ResizeProduct,
        Kind::Free => Shim::CarefulFree,
    };
    Some(Wanted { shim, plain: plain.filter(|_| base.len() == name.len()), is_malloc, is_free })
}

/// The form of a throwing operator that returns null instead.
pub fn nothrow_of(name: &str) -> Option<String> {
    matches!(find(name)?.shim, Shim::New | Shim::NewAligned).then(|| format!("{name}RKSt9nothrow_t"))
}

/// Whether anybody asks for a symbol of that name.
pub fn is_wanted(name: &[u8]) -> bool {
    // Asked for every symbol of large programs: most are too long.
    if name.len() > LONGEST {
        return false;
    }
    let Ok(name) = std::str::from_utf8(name) else { return false };
    find(name).is_some() || CACHES.contains(&name) || SANITIZERS.iter().any(|(symbol, ..)| *symbol == name)
}

/// The tool that a file makes a program run under.
pub fn sanitizer(file: &str, symbols: &Symbols) -> Option<&'static str> {
    if file.starts_with("vgpreload_") || file.ends_with("-amd64-linux") {
        return Some("Valgrind");
    }
    let found =
        SANITIZERS.iter().find(|(symbol, library, _)| file.starts_with(library) || symbols.find(symbol).is_some());
    found.map(|(_, _, tool)| *tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known() {
        let shim = |name| find(name).map(|wanted| wanted.shim);
        assert_eq!(find("malloc").unwrap().plain, Some(Shim::Malloc));
        assert_eq!(
            find("je_malloc").unwrap(),
            Wanted { shim: Shim::Size0, plain: None, is_malloc: true, is_free: false }
        );
        assert_eq!(shim("_rjem_sdallocx"), Some(Shim::CarefulFree));
        assert_eq!(shim("mi_zalloc_aligned"), Some(Shim::Size0));
        assert_eq!(shim("zalloc"), None);
        assert_eq!((shim("_Znwm"), shim("_ZnamSt11align_val_t")), (Some(Shim::New), Some(Shim::NewAligned)));
        assert_eq!(shim("_ZdaPvm"), Some(Shim::CarefulFree));
        assert_eq!(nothrow_of("_Znam").as_deref(), Some("_ZnamRKSt9nothrow_t"));
        assert_eq!(nothrow_of("_ZnamRKSt9nothrow_t"), None);
        assert!(!is_wanted(b"main") && is_wanted(b"__asan_init"));
    }
}
