//! The functions that are hooked in a process that runs already. These are the functions of `capture::hooks` for which
//! there is a shim, under their own names and with the prefixes that allocators have if they are linked into a program,
//! and two functions through which a program forbids itself system calls.
use crate::files::Symbols;
use capture::entry::Shim;
use capture::hooks::{Kind, kind_of, without_prefix};

pub use capture::hooks::has_prefix;

/// What is known of a wanted function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub shim: Shim,
    /// The quicker shim, for glibc's own functions.
    pub plain: Option<Shim>,
    pub is_malloc: bool,
    pub is_free: bool,
}

const SANITIZERS: [(&str, &str, &str); 4] = [
    ("__asan_init", "libasan.so", "AddressSanitizer"),
    ("__tsan_init", "libtsan.so", "ThreadSanitizer"),
    ("__msan_init", "libmsan.so", "MemorySanitizer"),
    ("__lsan_init", "liblsan.so", "LeakSanitizer"),
];

/// The functions through which programs forbid themselves system calls or the time stamp counter. They are hooked only
/// in a file that also has a malloc, as libc has.
const FORBIDDING: [(&str, Shim); 2] = [("prctl", Shim::Prctl), ("syscall", Shim::Syscall)];

/// glibc's functions that call free for blocks that the program has already freed.
const CACHES: [&str; 2] = ["tcache_thread_shutdown", "__malloc_arena_thread_freeres"];

/// Names that are longer than this many bytes are not wanted.
const LONGEST: usize = 40;

pub fn find(name: &str) -> Option<Wanted> {
    if let Some((_, shim)) = FORBIDDING.iter().find(|(known, _)| *known == name) {
        return Some(Wanted { shim: *shim, plain: None, is_malloc: false, is_free: false });
    }
    let kind = kind_of(name)?;
    let base = without_prefix(name);
    // The operators call functions such as `mi_new`. A direct call of them is rare.
    if has_prefix(name) && base.starts_with("new") {
        return None;
    }
    let shim = match kind {
        Kind::Size0 => Shim::Size0,
        Kind::Size1 => Shim::Size1,
        Kind::Product => Shim::Product,
        Kind::Out => Shim::Out,
        Kind::Resize1 => Shim::Resize1,
        Kind::ResizeProduct => Shim::ResizeProduct,
        Kind::Free => Shim::CarefulFree,
        // Only the operators have a variant that does not throw and whose name is known.
        Kind::New if is_operator(name) => Shim::New,
        Kind::NewAligned if is_operator(name) => Shim::NewAligned,
        Kind::New | Kind::NewAligned | Kind::InPlace | Kind::Expand | Kind::ResizeOrFree | Kind::Text => return None,
    };
    let plain = match name {
        "malloc" => Some(Shim::Malloc),
        "free" => Some(Shim::Free),
        _ => None,
    };
    Some(Wanted { shim, plain, is_malloc: base == "malloc", is_free: kind == Kind::Free })
}

fn is_operator(name: &str) -> bool {
    name.starts_with("_Z")
}

/// Returns the name of the variant of a throwing operator that returns null instead.
pub fn nothrow_of(name: &str) -> Option<String> {
    matches!(find(name)?.shim, Shim::New | Shim::NewAligned).then(|| format!("{name}RKSt9nothrow_t"))
}

/// Returns true if a symbol with this name is needed.
pub fn is_wanted(name: &[u8]) -> bool {
    // This is called for every symbol of large programs. Most names are too long.
    if name.len() > LONGEST {
        return false;
    }
    let Ok(name) = std::str::from_utf8(name) else { return false };
    find(name).is_some() || CACHES.contains(&name) || SANITIZERS.iter().any(|(symbol, ..)| *symbol == name)
}

/// Returns the sanitizer or tool that a program runs under if it has this file.
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
