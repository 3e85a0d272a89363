//! An exec in the target's own process: the new program continues in the same trace.
//!
//! The program's environment does not have our variables. So the exec functions add them to the environment of the new
//! program, if that program can be recorded (`image.rs`). All other calls (by children, of spawned programs, by
//! processes that do not record) are passed on unchanged, unless a whole tree of processes is followed. Then every
//! program gets the variables, whichever function of libc executes it (`exec_site.rs`).
use crate::core::CORE;
use crate::elf::LinkMap;
use crate::environment::{Carried, PRELOAD, bytes, split_preload};
use crate::exec_site;
use crate::follow::{self, UnrecordedRun};
use crate::image;
use crate::leaving::{leaving, stayed};
use crate::left_lists;
use crate::local::thread_pointer;
use crate::real;
use crate::signals;
use crate::starting::{self, Answer};
use crate::strings::{is_list, is_string};
use crate::sys;
use channel::UnrecordedExec;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A list of strings that ends with a null, as exec takes it.
pub type Strings = *const *const u8;

/// The libc functions that all exec functions lead to.
#[derive(Clone, Copy)]
pub enum Flavour {
    /// execve(path, argv, envp)
    Path,
    /// execvpe(file, argv, envp): searches PATH.
    Search,
    /// fexecve(fd, argv, envp)
    Descriptor,
}

/// posix_spawn and posix_spawnp. Their numbers follow those of `Flavour`.
#[derive(Clone, Copy)]
pub enum Spawn {
    Path = 3,
    Search = 4,
}

const ENOSYS: i32 = 38;

/// libc's functions, in the order of `Flavour` and `Spawn`, and the address of its `environ`. They are found once, at
/// the start, because a forked child must not search the loader's list: it may be a copy of a list that was half
/// changed.
static REAL: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];
static ENVIRON: AtomicUsize = AtomicUsize::new(0);

/// Returns the address of libc's `execve`, 0 if it was not found.
pub fn libc_execve() -> u64 {
    REAL[Flavour::Path as usize].load(Ordering::Acquire) as u64
}

/// # Safety
/// As `real::resolve`: `first` is the loader's list, and it is stable meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    let names = [&b"execve"[..], b"execvpe", b"fexecve", b"posix_spawn", b"posix_spawnp"];
    for (name, place) in names.into_iter().zip(&REAL) {
        // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_behind` asks
        // for.
        let found = unsafe { real::find_behind(first, ourselves, name) };
        place.store(found.unwrap_or(0) as usize, Ordering::Release);
    }
    // If the program has a copy of libc's variable, the copy comes first, and the program itself uses it too.
    // SAFETY: the caller promises that `first` is the loader's list and stable, which is what `find_anywhere` asks for.
    let environ = unsafe { real::find_anywhere(first, b"environ") };
    ENVIRON.store(environ.unwrap_or(0) as usize, Ordering::Release);
}

/// Calls the real function, with our variables added if this process records and the new program can be recorded. If
/// `environment` is `None`, the current environment is used.
///
/// # Safety
/// The arguments are what the flavour's function takes: `first` is a NUL-terminated string or a descriptor, `argv` and
/// `environment` are null or lists of NUL-terminated strings that end with a null. All stay until the function returns.
pub unsafe fn run(flavour: Flavour, first: usize, argv: Strings, environment: Option<Strings>) -> i32 {
    CORE.start();
    let real = REAL[flavour as usize].load(Ordering::Acquire);
    if real == 0 {
        return -1;
    }
    // SAFETY: not 0, so `resolve` found it in libc under the flavour's name, and each of the three functions has this
    // signature.
    let real: Real = unsafe { core::mem::transmute(real) };
    let environment = environment.unwrap_or_else(current);
    // `fexecve` makes a system call of its own. All others lead to libc's `execve`.
    if exec_site::is_patched() && !matches!(flavour, Flavour::Descriptor) {
        return real(first, argv, environment);
    }
    // SAFETY: the arguments are what the flavour's function takes, by the caller's promise.
    unsafe { run_with(|list| real(first, argv, list), flavour, first, environment) }
}

/// The same in place of the system call in libc's `execve` (`exec_site.rs`). Returns what the kernel returns.
///
/// # Safety
/// `path`, `argv` and `environment` are what `execve` takes, as for `run`.
pub unsafe fn run_at_site(path: usize, argv: Strings, environment: Strings) -> isize {
    // SAFETY: the caller promises the arguments of an `execve`. `list` is the caller's list, or one that `run_with` made.
    let real = |list: Strings| unsafe { exec_site::call(path, argv, list) };
    // SAFETY: the caller promises the arguments of an `execve`.
    unsafe { run_with(real, Flavour::Path, path, environment) as isize }
}

/// The same for a program in which heaptrack has patched libc's `execve` or `fexecve`. `real` is the address of the
/// function's own code.
///
/// # Safety
/// `first`, `argv` and `environment` are what the flavour's function takes, as for `run`. `real` is the address of this
/// function.
pub unsafe fn run_patched(flavour: Flavour, first: usize, argv: Strings, environment: Strings, real: u64) -> i32 {
    // SAFETY: the caller promises that this is the address of the flavour's function, which has this signature.
    let real: Real = unsafe { core::mem::transmute(real) };
    // heaptrack may detach while libc's function runs. A child that shares the memory of this process does not return from
    // a successful exec, and is not counted: until it is done, the thread that made it cannot be stopped.
    let is_counted = CORE.has_own_memory();
    if is_counted {
        follow::begin_call();
    }
    // SAFETY: the caller promises the arguments of the flavour's function.
    let result = unsafe { run_with(|list| real(first, argv, list), flavour, first, environment) };
    if is_counted {
        follow::end_call();
    }
    result
}

type Real = extern "C" fn(usize, Strings, Strings) -> i32;

/// `real` executes the program with the list that it is given.
///
/// # Safety
/// As for `run`: `first` and `environment` are what the flavour's function takes.
unsafe fn run_with(real: impl Fn(Strings) -> i32, flavour: Flavour, first: usize, environment: Strings) -> i32 {
    let Some(carried) = CORE.carried() else { return real(environment) };
    // In a sandbox the kernel may not be asked what can be read, so nothing is read.
    let may_look = CORE.may_call_if_ready();
    if may_look && !is_readable(flavour, first, environment) {
        // The kernel will refuse the call with EFAULT.
        return real(environment);
    }
    let has_path = may_look && !matches!(flavour, Flavour::Descriptor);
    // SAFETY: `first` is what the flavour takes: `is_readable`.
    let found = if may_look { unsafe { obstacle(flavour, first, carried) } } else { Some(UnrecordedExec::Sandbox) };
    // SAFETY: the path or the file name of the call: `is_readable` has found its end.
    let path = if has_path { unsafe { bytes(first as *const u8) } } else { &[] };
    let is_wanted = follow::wants_program(path);
    let asks = matches!(found, Some(UnrecordedExec::Static | UnrecordedExec::OwnMalloc)) && is_wanted;
    let answer = if asks { starting::ask() } else { Answer::None };
    let is_held = matches!(answer, Answer::Held(_));
    // If such a program is not patched, what it allocates otherwise and what it starts is still recorded.
    let obstacle = found.filter(|why| *why != UnrecordedExec::OwnMalloc || is_held);
    let why = obstacle.filter(|_| !is_held);
    if may_look && why.is_some() {
        join_to_leave();
    }
    // SAFETY: null, or the path or the file name of the call: `is_readable` has found its end.
    unsafe { leaving(if has_path { first as *const u8 } else { core::ptr::null() }) };
    CORE.note_unrecorded_exec(why);
    let run =
        why.filter(|_| is_wanted && matches!(answer, Answer::None)).and_then(|why| UnrecordedRun::count(path, why));
    // SAFETY: a list of strings: `is_readable`.
    let edited = unsafe {
        match obstacle {
            // In a sandbox memory cannot be mapped, so the program's own list is passed on as it is.
            Some(UnrecordedExec::Sandbox) => None,
            Some(_) => Edited::without_ours(environment, carried),
            None => Edited::with_ours(environment, carried),
        }
    };
    let result = real_exec(real, environment, edited, may_look);
    // Only a failed exec returns.
    CORE.note_unrecorded_exec(None);
    if let Answer::Held(held) = answer {
        held.failed();
    }
    run.into_iter().for_each(UnrecordedRun::take_back);
    stayed();
    result
}

/// A forked child without an event of its own joins before it executes a program that is not recorded. Otherwise the collector would
/// not know that the child holds what it inherited no longer.
fn join_to_leave() {
    if follow::shared_hub().is_some() && CORE.has_own_memory() {
        CORE.gate_or_join_to_leave();
    }
}

/// Calls libc's function, with the edited list if there is one. Afterwards that list is unmapped (see `left_lists`).
/// Signals that this process inherited as ignored are ignored in the new program too.
fn real_exec(real: impl Fn(Strings) -> i32, environment: Strings, edited: Option<Edited>, may_call: bool) -> i32 {
    if !may_call {
        return real(environment);
    }
    let owner = thread_pointer();
    left_lists::free(owner);
    let is_noted = edited.as_ref().is_some_and(|edited| left_lists::note(owner, edited.at, edited.len));
    let ignored = signals::ignore_inherited();
    let result = real(edited.as_ref().map_or(environment, Edited::list));
    signals::handle_again(ignored);
    if is_noted {
        left_lists::free(owner);
    } else {
        edited.into_iter().for_each(Edited::free);
    }
    result
}

/// Returns true if the path or file name and the environment can be read.
fn is_readable(flavour: Flavour, first: usize, environment: Strings) -> bool {
    (matches!(flavour, Flavour::Descriptor) || is_string(first as *const u8)) && is_list(environment)
}

/// Returns why the new program cannot be recorded, or `None` if it can.
///
/// # Safety
/// `first` is the first argument of the flavour's function: a NUL-terminated string, or a descriptor.
unsafe fn obstacle(flavour: Flavour, first: usize, carried: &Carried) -> Option<UnrecordedExec> {
    let is_searched = matches!(flavour, Flavour::Search) && is_list(current());
    // SAFETY: `is_list` has found the ends of the list and of its strings.
    let search = if is_searched { unsafe { find(current(), b"PATH=") } } else { core::ptr::null() };
    // SAFETY: the caller promises the flavour's first argument. `search` is null or a value in libc's own list, which
    // `is_list` has found to be NUL-terminated.
    unsafe { image::obstacle(flavour, first, search, carried) }
}

/// Returns what follows the prefix in the first entry that begins with it, or null.
///
/// # Safety
/// `environment` is null or a list of NUL-terminated strings that ends with a null.
unsafe fn find(environment: Strings, prefix: &[u8]) -> *const u8 {
    let mut at = environment;
    // SAFETY: the caller promises the list. The loop stops at its null, and the prefix was found, so the value begins
    // at or before the NUL.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if bytes(*at).starts_with(prefix) {
                return (*at).add(prefix.len());
            }
            at = at.add(1);
        }
    }
    core::ptr::null()
}

/// Calls the real posix_spawn. If a tree is followed, the child gets our variables: from the `execve` that libc calls, or
/// here if that could not be patched.
///
/// # Safety
/// The arguments are what the function takes: pid, path, actions, attributes, argv, envp. The path is a NUL-terminated
/// string, envp is null or a list of such strings that ends with a null, and all stay until the function returns.
pub unsafe fn spawn(kind: Spawn, arguments: [usize; 6]) -> i32 {
    CORE.start();
    let real = REAL[kind as usize].load(Ordering::Acquire);
    if real == 0 {
        return ENOSYS;
    }
    // SAFETY: not 0, so `resolve` found it in libc under the name of `kind`, and both functions have this signature.
    let real: extern "C" fn(usize, usize, usize, usize, usize, Strings) -> i32 = unsafe { core::mem::transmute(real) };
    let [pid, path, actions, attributes, argv, envp] = arguments;
    let environment = envp as Strings;
    if exec_site::is_patched() {
        let result = real(pid, path, actions, attributes, argv, environment);
        // libc waits for the child's exec, so the child does not need its list any more.
        if CORE.may_call_if_ready() {
            left_lists::free(thread_pointer());
        }
        return result;
    }
    let flavour = if matches!(kind, Spawn::Search) { Flavour::Search } else { Flavour::Path };
    let is_followed = follow::is_on() && CORE.may_call_if_ready() && is_readable(flavour, path, environment);
    let carried = if is_followed { CORE.carried() } else { None };
    // SAFETY: the path or file name of the program's own call, and a list of strings: `is_readable`.
    let edited = carried.and_then(|carried| unsafe {
        if obstacle(flavour, path, carried).is_some_and(|why| why != UnrecordedExec::OwnMalloc) {
            Edited::without_ours(environment, carried)
        } else {
            Edited::with_ours(environment, carried)
        }
    });
    let list = edited.as_ref().map_or(environment, Edited::list);
    let result = real(pid, path, actions, attributes, argv, list);
    if result == 0 {
        CORE.note_child();
    }
    // libc waits for the child's exec, so the child has its own copy by now.
    edited.into_iter().for_each(Edited::free);
    result
}

/// Returns the current value of libc's `environ`.
fn current() -> Strings {
    let variable = ENVIRON.load(Ordering::Acquire) as *const Strings;
    // SAFETY: not null, so it is where `resolve` found the variable `environ`: in the program or in a library of the
    // start, which the loader never unloads.
    if variable.is_null() { core::ptr::null() } else { unsafe { *variable } }
}

/// An environment list with or without our two variables, in memory of its own. The program's entries keep their order.
/// `new` maps `len` bytes at `at`, and only `free` unmaps them.
struct Edited {
    at: *mut u8,
    len: usize,
}

/// Writes into the mapping of an `Edited`. `[at, end)` are the bytes of it that are not used yet. The `Pen` is not used
/// after `Edited::free`.
struct Pen {
    at: *mut u8,
    end: *mut u8,
}

impl Pen {
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.at < self.end {
                // SAFETY: `at` is below `end`, checked, so it is inside the mapping (see `Pen`), and one byte further
                // is at most its end.
                unsafe {
                    *self.at = byte;
                    self.at = self.at.add(1);
                }
            }
        }
    }
}

/// Where our variables are in an environment list.
struct Entries {
    list: Strings,
    count: usize,
    /// The index and the value of the last LD_PRELOAD, which is the one that the loader uses.
    preload: Option<(usize, &'static [u8])>,
    /// The last entry of the carried variable.
    variable: Option<usize>,
}

impl Entries {
    /// # Safety
    /// `list` is null or a list of NUL-terminated strings that ends with a null, and both stay until the exec or spawn
    /// has returned, by which time the result is gone.
    unsafe fn of(list: Strings, variable: &[u8]) -> Self {
        let mut entries = Entries { list, count: 0, preload: None, variable: None };
        while let Some(entry) = entries.get(entries.count) {
            // SAFETY: an entry of the list, NUL-terminated by the caller's promise. `'static` stands for the time until
            // the exec has returned, for which the caller promises that it stays.
            let text: &'static [u8] = unsafe { bytes(entry) };
            if let Some(value) = text.strip_prefix(PRELOAD) {
                entries.preload = Some((entries.count, value));
            }
            if text.starts_with(variable) {
                entries.variable = Some(entries.count);
            }
            entries.count += 1;
        }
        entries
    }

    /// Returns entry `i`, or `None` at the end of the list. `i` is at most `count`.
    fn get(&self, i: usize) -> Option<*const u8> {
        // SAFETY: the caller of `of` promises that the list is null, or has entries and then a null. `i` is at most
        // `count`, and `of` stops at the null, so nothing after the null is read.
        let entry = unsafe { if self.list.is_null() { core::ptr::null() } else { *self.list.add(i) } };
        (!entry.is_null()).then_some(entry)
    }

    /// Returns the libraries that the user preloads, and whether ours is in front of them.
    fn theirs(&self, library: &[u8]) -> (&'static [u8], bool) {
        let list = self.preload.map_or(&b""[..], |(_, list)| list);
        let (first, rest) = split_preload(list);
        if first == library { (rest, true) } else { (list, false) }
    }
}

impl Edited {
    /// Maps memory for `entries` pointers and then `strings` bytes.
    fn new(entries: usize, strings: usize) -> Option<(Edited, Pen)> {
        let list_len = entries * 8;
        let len = list_len + strings;
        let at = sys::map_private(len)?;
        Some((Edited { at, len }, Pen { at: at.wrapping_add(list_len), end: at.wrapping_add(len) }))
    }

    fn set(&self, i: usize, entry: *const u8) {
        if i * 8 + 8 <= self.len {
            // SAFETY: the eight bytes lie in the `len` bytes that `new` has mapped, checked above, and a mapping is
            // page-aligned.
            unsafe { *self.at.cast::<*const u8>().add(i) = entry };
        }
    }

    /// Makes a list with our variables. Returns `None` if the list has them already, or if there is no memory.
    ///
    /// # Safety
    /// `environment` is null or a list of NUL-terminated strings that ends with a null, and stays until the exec has
    /// returned.
    unsafe fn with_ours(environment: Strings, carried: &Carried) -> Option<Edited> {
        // SAFETY: the caller promises the list, and that it stays until the exec has returned, which is what
        // `Entries::of` asks for.
        let entries = unsafe { Entries::of(environment, carried.variable.name()) };
        let (theirs, has_library) = entries.theirs(carried.library.get());
        if has_library && entries.variable.is_some() {
            return None;
        }
        let (library, value) = (carried.library.get(), carried.value.get());
        let strings = PRELOAD.len() + library.len() + theirs.len() + carried.variable.name().len() + value.len() + 3;
        let (edited, mut pen) = Edited::new(entries.count + 3, strings)?;
        let preload = pen.at;
        pen.put(PRELOAD);
        pen.put(library);
        if !theirs.is_empty() {
            pen.put(b":");
            pen.put(theirs);
        }
        pen.put(&[0]);
        let variable = pen.at;
        pen.put(carried.variable.name());
        pen.put(value);
        pen.put(&[0]);
        for i in 0..entries.count {
            edited.set(i, entries.get(i).unwrap_or(core::ptr::null()));
        }
        // Our entries are appended, and our library removes them in the new program.
        for (i, text) in [preload, variable, core::ptr::null()].into_iter().enumerate() {
            edited.set(entries.count + i, text);
        }
        Some(edited)
    }

    /// Makes a list without our variables, for a program that our library cannot be loaded into. Returns `None` if the
    /// list has none of them, or if there is no memory.
    ///
    /// # Safety
    /// `environment` is null or a list of NUL-terminated strings that ends with a null, and stays until the exec has
    /// returned.
    unsafe fn without_ours(environment: Strings, carried: &Carried) -> Option<Edited> {
        // SAFETY: the caller promises the list, and that it stays until the exec has returned, which is what
        // `Entries::of` asks for.
        let entries = unsafe { Entries::of(environment, carried.variable.name()) };
        let (theirs, has_library) = entries.theirs(carried.library.get());
        if !has_library {
            return None;
        }
        let (edited, mut pen) = Edited::new(entries.count + 1, PRELOAD.len() + theirs.len() + 1)?;
        let preload = pen.at;
        pen.put(PRELOAD);
        pen.put(theirs);
        pen.put(&[0]);
        let mut count = 0;
        for i in 0..entries.count {
            let is_preload = entries.preload.is_some_and(|(at, _)| at == i);
            if entries.variable == Some(i) || is_preload && theirs.is_empty() {
                continue;
            }
            edited.set(count, if is_preload { preload } else { entries.get(i).unwrap_or(core::ptr::null()) });
            count += 1;
        }
        edited.set(count, core::ptr::null());
        Some(edited)
    }

    fn list(&self) -> Strings {
        self.at.cast_const().cast()
    }

    fn free(self) {
        // SAFETY: `new` mapped these bytes with `map_private`. `real_exec` and `spawn` free them after libc's function
        // has returned, and no other code has their address: `real_exec` does not free what it has noted in
        // `left_lists`.
        unsafe { sys::unmap(self.at, self.len) };
    }
}
