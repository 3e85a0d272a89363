//! The functions of libc by which a program changes its mappings, and how a launched program reaches them.
//!
//! The exported shims call them through the table `FUNCTIONS`, as the shims of malloc do (`real.rs`). A program may call
//! one of them before anything has started, so each entry is at first a stub that starts the library.
use crate::core::CORE;
use crate::elf::{Headers, LinkMap, Symbols};
use crate::entry::Range;
use crate::families;
use crate::modules::headers_of;
use crate::real;
use crate::sys;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Calls `$then! { (NAME, name, number of the system call) ... }` with every function of libc that changes mappings.
#[macro_export]
macro_rules! for_each_map_hook {
    ($then:ident) => {
        $then! {
            (MMAP, mmap, 9)
            (MMAP64, mmap64, 9)
            (MUNMAP, munmap, 11)
            (MREMAP, mremap, 25)
            (MADVISE, madvise, 28)
            (SHMAT, shmat, 30)
            (SHMDT, shmdt, 67)
        }
    };
}

macro_rules! table {
    ($(($upper:ident, $name:ident, $number:literal))*) => {
        /// A hooked function. The number is its index in `FUNCTIONS`.
        #[allow(clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum MapHook { $($upper),* }

        pub const NAMES: &[&[u8]] = &[$(stringify!($name).as_bytes()),*];

        /// What is called if no module after this library has the function. That is only possible before the start, or for a
        /// program that could not be linked without this library.
        const DIRECT: &[Function] = &[$(direct::<$number>),*];

        /// The stubs. They keep all registers in which a function gets arguments.
        mod early {
            $(crate::shim! {
                pub fn $name [
                    $crate::push_registers!(cfi rdi, rsi, rdx, rcx, r8, r9, rax),
                    "call {start}",
                    $crate::pop_registers!(cfi rax, r9, r8, rcx, rdx, rsi, rdi),
                    "jmp qword ptr [rip + {functions} + {offset}]",
                ]
                start = sym super::start,
                functions = sym super::FUNCTIONS,
                offset = const super::MapHook::$upper as usize * 8,
            })*
        }

        /// The real functions, or their stubs, in the order of `MapHook`.
        pub static FUNCTIONS: [AtomicPtr<()>; NAMES.len()] =
            [$(AtomicPtr::new(early::$name as *const () as *mut ())),*];

        const STUBS: [extern "C" fn(); NAMES.len()] = [$(early::$name),*];
    };
}
for_each_map_hook!(table);

pub type Function = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;

#[inline(always)]
pub fn function(hook: MapHook) -> Function {
    // SAFETY: every entry is a function with at most six word-sized arguments: a stub, which passes all of them on, a
    // `direct`, or the function of the hook's name, which `resolve` found. The index is that of a `MapHook`.
    unsafe { core::mem::transmute::<*mut (), Function>(FUNCTIONS[hook as usize].load(Ordering::Relaxed)) }
}

/// Makes the system call itself. It cannot set errno, which belongs to a libc that is not known.
extern "C" fn direct<const NUMBER: usize>(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    // SAFETY: the program itself makes this call, with these arguments.
    let result = unsafe { sys::call_any(NUMBER, [a, b, c, d, e, f].map(|argument| argument as usize)) };
    if (-4095..0).contains(&result) { u64::MAX } else { result as u64 }
}

/// Called by a stub. Afterwards no entry is a stub.
extern "C" fn start() {
    CORE.start();
    for ((entry, stub), direct) in FUNCTIONS.iter().zip(STUBS).zip(DIRECT) {
        let (stub, direct) = (stub as *const () as *mut (), *direct as *const () as *mut ());
        let _ = entry.compare_exchange(stub, direct, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Where the module is that has malloc, if it is not the program. Its calls are the allocator's own.
static MALLOC: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns true if the call that returns to `caller` was made by an allocator, for its own use.
pub fn is_by_allocator(caller: u64) -> bool {
    let [start, end] = [MALLOC[0].load(Ordering::Relaxed), MALLOC[1].load(Ordering::Relaxed)];
    Range { start, end }.holds(caller) || families::is_any_enabled() && families::module_of(caller).is_some()
}

/// Fills `FUNCTIONS`, and finds the module that has malloc.
///
/// # Safety
/// As `real::resolve`: `first` is the loader's list, or null, and it is stable meanwhile.
pub unsafe fn resolve(first: *const LinkMap, program: Headers, ourselves: u64) {
    for ((name, entry), direct) in NAMES.iter().zip(&FUNCTIONS).zip(DIRECT) {
        // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_behind` asks for.
        let find = |name: &[u8]| unsafe { real::find_behind(first, ourselves, name) };
        // musl has no symbol `mmap64` since 1.2.4. Its loader takes `mmap` for it, which is the same function.
        let found = find(name).or_else(|| if *name == b"mmap64" { find(b"mmap") } else { None });
        entry.store(found.map_or(*direct as *mut (), |address| address as *mut ()), Ordering::Relaxed);
    }
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `module_with_malloc` asks for.
    if let Some((start, end)) = unsafe { module_with_malloc(first, program, ourselves) } {
        MALLOC[0].store(start, Ordering::Relaxed);
        MALLOC[1].store(end, Ordering::Relaxed);
    }
}

/// Returns where the first module after this library is that has malloc.
///
/// # Safety
/// As `resolve`.
unsafe fn module_with_malloc(first: *const LinkMap, program: Headers, ourselves: u64) -> Option<(u64, u64)> {
    let mut is_behind = false;
    let mut map = first;
    // SAFETY: `map` is null or an entry of the loader's list, which is stable by the caller's promise.
    while let Some(m) = unsafe { map.as_ref() } {
        // SAFETY: an entry of the stable list: listed maps are whole (see `LinkMap`).
        let symbols = unsafe { Symbols::of(m) }.filter(|symbols| is_behind && !real::is_a_copy(symbols));
        if symbols.is_some_and(|symbols| symbols.find(b"malloc").is_some()) {
            return headers_of(m, program)?.bounds(m.bias);
        }
        is_behind |= m.dynamic as u64 == ourselves;
        map = m.next;
    }
    None
}
