//! The functions that are patched at their entry. These are the functions of the table in `capture::allocators`, two
//! functions through which a program forbids itself system calls, and those by which it changes its mappings.
use crate::files::Symbols;
use crate::mapping_code;
use capture::allocators::{self, Effect, Family, Jemalloc, Meaning};
use capture::entry::{Entry, Shim};

/// What is known of a wanted function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub shim: Shim,
    /// The quicker shim, for glibc's own functions.
    pub plain: Option<Shim>,
    /// It is called `malloc`, or `free`, without the prefix of its family.
    pub is_malloc: bool,
    pub is_main_free: bool,
    pub meaning: Meaning,
    /// The allocator that the function belongs to: its family, and the prefix of its names.
    pub group: (Family, String),
}

impl Wanted {
    /// Returns true for a function of no allocator: one by which a program forbids itself system calls,
    /// one that makes or replaces a process, or one that changes mappings.
    pub const fn is_no_allocator(&self) -> bool {
        matches!(self.shim, Shim::Prctl | Shim::Syscall | Shim::Execve | Shim::Fork | Shim::Fexecve | Shim::Exit)
            || self.is_mapping()
    }

    pub const fn is_mapping(&self) -> bool {
        is_mapping(self.shim)
    }
}

/// Returns true for the shim of a function that changes mappings.
pub const fn is_mapping(shim: Shim) -> bool {
    matches!(shim, Shim::Mmap | Shim::Munmap | Shim::Mremap | Shim::Madvise | Shim::Shmat | Shim::Shmdt)
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
/// The function to which all exec functions of a libc lead, its fork, and the function to which its `exit` leads. They are
/// hooked only in a program that heaptrack has started, and in a process whose children are followed.
const PROCESSES: [(&str, Shim); 4] =
    [("execve", Shim::Execve), ("fork", Shim::Fork), ("fexecve", Shim::Fexecve), ("_Exit", Shim::Exit)];
/// The functions that change mappings. They are hooked only in a libc that is a module of its own: in a static program,
/// calls of its allocator could not be told from those of the program.
const MAPPING: [(&str, Shim); 7] = [
    ("mmap", Shim::Mmap),
    ("mmap64", Shim::Mmap),
    ("munmap", Shim::Munmap),
    ("mremap", Shim::Mremap),
    ("madvise", Shim::Madvise),
    ("shmat", Shim::Shmat),
    ("shmdt", Shim::Shmdt),
];

/// Returns the shim of a function that is no allocator's.
fn other_shim(name: &str) -> Option<Shim> {
    FORBIDDING.iter().chain(&PROCESSES).chain(&MAPPING).find(|(known, _)| *known == name).map(|(_, shim)| *shim)
}

/// glibc's functions that call free for blocks that the program has already freed.
const CACHES: [&str; 2] = ["tcache_thread_shutdown", "__malloc_arena_thread_freeres"];

/// The allocators of one file.
#[derive(Debug, Default)]
pub struct Allocators {
    /// The prefixes that jemalloc has in this file.
    prefixes: Vec<String>,
}

impl Allocators {
    /// `names` are the functions of the file.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Allocators {
        let marks = names.filter_map(Jemalloc::split).filter(|(prefix, base)| Jemalloc::is_mark(prefix, base));
        let mut prefixes: Vec<String> = marks.map(|(prefix, _)| prefix.to_owned()).collect();
        prefixes.sort();
        prefixes.dedup();
        Allocators { prefixes }
    }

    pub fn find(&self, name: &str) -> Option<Wanted> {
        if let Some(shim) = other_shim(name) {
            let meaning = Entry::NONE.meaning;
            let group = (Family::Libc, String::new());
            return Some(Wanted { shim, plain: None, is_malloc: false, is_main_free: false, meaning, group });
        }
        let known = allocators::find(name).or_else(|| {
            let (prefix, base) = Jemalloc::split(name)?;
            self.prefixes.iter().any(|known| known == prefix).then(|| Jemalloc::find(prefix, base))?
        })?;
        let shim = match known.meaning.effect {
            Effect::Allocate | Effect::Out | Effect::Text => Shim::Allocate,
            Effect::New => Shim::New,
            // They throw, and have no variant that does not. See `unrecorded`.
            Effect::SizeReturning => return None,
            Effect::Resize if allocators::throws(name, known.meaning) => Shim::ResizeNew,
            Effect::Resize | Effect::ResizeOrFree | Effect::InPlace | Effect::Expand => Shim::Resize,
            Effect::Free => Shim::CarefulFree,
            _ => Shim::Heap,
        };
        let plain = match name {
            "malloc" => Some(Shim::Malloc),
            "free" => Some(Shim::Free),
            _ => None,
        };
        let base = if known.family == Family::Mimalloc { name.strip_prefix("mi_").unwrap_or(name) } else { known.base };
        Some(Wanted {
            shim,
            plain,
            is_malloc: base == "malloc",
            is_main_free: base == "free",
            meaning: known.meaning,
            group: (known.family, known.prefix.to_owned()),
        })
    }
}

/// Returns true for a function that allocates and cannot be recorded: it throws, and has no variant that does not.
pub fn is_unrecorded(name: &str) -> bool {
    allocators::find(name).is_some_and(|known| known.meaning.effect == Effect::SizeReturning)
}

/// Returns true if a symbol with this name is needed.
pub fn is_wanted(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    allocators::may_be_known(name)
        || CACHES.contains(&name)
        || name == allocators::NAME_TO_MIB
        || name == allocators::MAIN_HEAP
        || other_shim(name).is_some()
        || mapping_code::is_wanted(name)
        || SANITIZERS.iter().any(|(symbol, ..)| *symbol == name)
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
        let names = ["_rjem_mallocx", "_rjem_sdallocx", "x_malloc", "x_free", "duck_malloc", "duck_mallctl"];
        let allocators = Allocators::of(names.into_iter());
        let shim = |name| allocators.find(name).map(|wanted| wanted.shim);
        let malloc = allocators.find("malloc").unwrap();
        assert!(malloc.is_malloc && malloc.plain == Some(Shim::Malloc));
        let other = allocators.find("duck_malloc").unwrap();
        assert_eq!((other.plain, other.is_malloc, other.group), (None, true, (Family::Jemalloc, "duck_".to_owned())));
        assert_eq!((shim("x_malloc"), shim("x_free"), shim("_rjem_free")), (None, None, Some(Shim::CarefulFree)));
        assert_eq!((shim("_rjem_sdallocx"), shim("_rjem_xallocx")), (Some(Shim::CarefulFree), Some(Shim::Resize)));
        assert_eq!((shim("mi_zalloc_aligned"), shim("mi_strdup")), (Some(Shim::Allocate), Some(Shim::Allocate)));
        assert!(allocators.find("mi_free").unwrap().is_main_free && allocators.find("rpfree").unwrap().is_main_free);
        assert_eq!(
            (shim("zalloc"), shim("__size_returning_new"), shim("mi_new_realloc")),
            (None, None, Some(Shim::ResizeNew))
        );
        assert_eq!((shim("_Znwm"), shim("_ZnamSt11align_val_t")), (Some(Shim::New), Some(Shim::New)));
        assert_eq!((shim("_ZdaPvm"), shim("prctl")), (Some(Shim::CarefulFree), Some(Shim::Prctl)));
        assert!(!is_wanted(b"main") && is_wanted(b"__asan_init"));
    }
}
