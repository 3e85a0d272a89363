//! exec in the target's own process: the new program image goes on in the same trace.
//!
//! The program's environment never shows our variables, so the exec functions put them into the one that the new image
//! gets. Everything else (children, spawned programs, processes that do not record) passes through untouched, unless
//! a whole tree of processes is followed: then everybody gets them.
use crate::core::CORE;
use crate::elf::LinkMap;
use crate::environment::{Carried, PRELOAD, bytes, split_preload};
use crate::follow;
use crate::leaving::{leaving, stayed};
use crate::real;
use crate::sys;
use core::sync::atomic::{AtomicUsize, Ordering};

type Strings = *const *const u8;

/// The exec functions that take their lists as pointers, by what they call.
#[derive(Clone, Copy)]
pub enum Flavour {
    /// execve(path, argv, envp)
    Path,
    /// execvpe(file, argv, envp): searches PATH.
    Search,
    /// fexecve(fd, argv, envp)
    Descriptor,
}

/// posix_spawn, posix_spawnp: by what they call, behind the flavours of exec.
#[derive(Clone, Copy)]
pub enum Spawn {
    Path = 3,
    Search = 4,
}

const ENOSYS: i32 = 38;

/// libc's functions, in the order of `Flavour` and `Spawn`, and the address of its `environ`. Found once, at the start: a forked
/// child may have got its parent's loader in the middle of a change, and must not search it.
static REAL: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];
static ENVIRON: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// As `real::resolve`.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    let names = [&b"execve"[..], b"execvpe", b"fexecve", b"posix_spawn", b"posix_spawnp"];
    for (name, place) in names.into_iter().zip(&REAL) {
        // SAFETY: the caller's promise.
        let found = unsafe { real::find_behind(first, ourselves, name) };
        place.store(found.unwrap_or(0) as usize, Ordering::Release);
    }
    // The program's own copy of libc's variable comes first, as the program itself sees it.
    // SAFETY: the caller's promise.
    let environ = unsafe { real::find_anywhere(first, b"environ") };
    ENVIRON.store(environ.unwrap_or(0) as usize, Ordering::Release);
}

/// Runs the real function with our variables added if this process records. No `environment`: the current one.
///
/// # Safety
/// The arguments are what the flavour's function takes.
pub unsafe fn run(flavour: Flavour, first: usize, argv: Strings, environment: Option<Strings>) -> i32 {
    CORE.start();
    let real = REAL[flavour as usize].load(Ordering::Acquire);
    if real == 0 {
        return -1;
    }
    // SAFETY: the libc function of that name and signature.
    let real: extern "C" fn(usize, Strings, Strings) -> i32 = unsafe { core::mem::transmute(real) };
    let environment = environment.unwrap_or_else(current);
    let Some(carried) = CORE.carried() else { return real(first, argv, environment) };
    // SAFETY: the path or the file name of the call; a descriptor has neither.
    unsafe { leaving(if matches!(flavour, Flavour::Descriptor) { core::ptr::null() } else { first as *const u8 }) };
    // SAFETY: a list of strings.
    match unsafe { Extended::new(environment, carried) } {
        Some(extended) => {
            let result = real(first, argv, extended.list());
            // Only a failed exec comes back.
            extended.free();
            stayed();
            result
        }
        None => {
            let result = real(first, argv, environment);
            stayed();
            result
        }
    }
}

/// Hands a posix_spawn on; its child gets our variables where a tree is followed.
///
/// # Safety
/// The arguments are what the function takes: pid, path, actions, attributes, argv, envp.
pub unsafe fn spawn(kind: Spawn, arguments: [usize; 6]) -> i32 {
    CORE.start();
    let real = REAL[kind as usize].load(Ordering::Acquire);
    if real == 0 {
        return ENOSYS;
    }
    // SAFETY: the libc function of that name and signature.
    let real: extern "C" fn(usize, usize, usize, usize, usize, Strings) -> i32 = unsafe { core::mem::transmute(real) };
    let [pid, path, actions, attributes, argv, envp] = arguments;
    let environment = envp as Strings;
    let carried = if follow::is_on() { CORE.carried() } else { None };
    // SAFETY: a list of strings.
    let extended = carried.and_then(|carried| unsafe { Extended::new(environment, carried) });
    let list = extended.as_ref().map_or(environment, Extended::list);
    let result = real(pid, path, actions, attributes, argv, list);
    // The child has its own copy by now: libc waits for its exec.
    if let Some(extended) = extended {
        extended.free();
    }
    result
}

/// What libc's `environ` points to now.
fn current() -> Strings {
    let variable = ENVIRON.load(Ordering::Acquire) as *const Strings;
    // SAFETY: libc's variable, found at the start.
    if variable.is_null() { core::ptr::null() } else { unsafe { *variable } }
}

/// A copy of an environment list with our two variables, in memory of its own.
struct Extended {
    at: *mut u8,
    len: usize,
}

/// Writes into a mapping that was sized for it.
struct Pen {
    at: *mut u8,
    end: *mut u8,
}

impl Pen {
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.at < self.end {
                // SAFETY: inside the mapping, checked.
                unsafe {
                    *self.at = byte;
                    self.at = self.at.add(1);
                }
            }
        }
    }
}

impl Extended {
    /// `None`: the list has them already, or there is no memory.
    ///
    /// # Safety
    /// `environment` is null or a list of strings.
    unsafe fn new(environment: Strings, carried: &Carried) -> Option<Extended> {
        // SAFETY: the caller's promise.
        let entry = |i: usize| unsafe { if environment.is_null() { core::ptr::null() } else { *environment.add(i) } };
        let mut count = 0;
        let mut theirs: &[u8] = &[];
        let (mut has_library, mut has_variable) = (false, false);
        while !entry(count).is_null() {
            // SAFETY: an entry of the list.
            let text = unsafe { bytes(entry(count)) };
            if text.starts_with(PRELOAD) {
                theirs = text.get(PRELOAD.len()..).unwrap_or(&[]);
                let (first, rest) = split_preload(theirs);
                has_library = first == carried.library.get();
                theirs = if has_library { rest } else { theirs };
            }
            has_variable |= text.starts_with(carried.variable);
            count += 1;
        }
        if has_library && has_variable {
            return None;
        }
        let list_len = (count + 3) * 8;
        let strings_len =
            PRELOAD.len() + carried.variable.len() + carried.library.get().len() + carried.value.get().len();
        let len = list_len + strings_len + theirs.len() + 8;
        let at = sys::map_private(len)?;
        let list = at.cast::<*const u8>();
        let mut pen = Pen { at: at.wrapping_add(list_len), end: at.wrapping_add(len) };
        let preload = pen.at;
        pen.put(PRELOAD);
        pen.put(carried.library.get());
        if !theirs.is_empty() {
            pen.put(b":");
            pen.put(theirs);
        }
        pen.put(&[0]);
        let channel = pen.at;
        pen.put(carried.variable);
        pen.put(carried.value.get());
        pen.put(&[0]);
        let mut n = 0;
        for i in 0..count {
            // SAFETY: entries of the list; the copy has room for all of them and three more words.
            unsafe {
                let text = bytes(entry(i));
                if !text.starts_with(PRELOAD) && !text.starts_with(carried.variable) {
                    *list.add(n) = entry(i);
                    n += 1;
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            *list.add(n) = preload;
            *list.add(n + 1) = channel;
            *list.add(n + 2) = core::ptr::null();
        }
        Some(Extended { at, len })
    }

    fn list(&self) -> Strings {
        self.at.cast_const().cast()
    }

    fn free(self) {
        // SAFETY: our own mapping, no longer used.
        unsafe { sys::unmap(self.at, self.len) };
    }
}
