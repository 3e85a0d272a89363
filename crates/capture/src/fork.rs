//! A fork in a signal handler that has interrupted a hook.
//!
//! ```text
//! parent   hook ─┐                 ┌─ hook goes on, in the shared memory
//!                └ handler: fork() ┤
//! child                            └─ hook goes on, in copies at the same addresses
//! ```
//! When the handler returns, the child continues the hook of its parent. The ring and the thread state of that hook are
//! shared memory, so a write by the child would destroy the parent's recording. So the pages that the rest of a hook
//! writes to are copied before the fork, while this thread cannot change them. The child maps the copies over the
//! originals.
//!
//! A hook that has read the gate but not yet raised the guard cannot be told from no hook. So every child gets copies
//! of two pages: the thread's own fields and the header of its slot. The copied fields say that the known modules are
//! out of date and that the ring is full. So if there is such a hook, it reads the gate again before it does anything
//! else, and finds it shut. Otherwise the child does not use the copies, because its next hook finds the gate shut.
//!
//! Not covered: processes that were attached to without `--follow`, where `fork` is not hooked, and other ways to fork
//! (`_Fork`, and system calls that the program makes itself). `_Fork` is not exported here, because older C libraries have none, and
//! a program may ask whether it exists.
use crate::core::{ACTIVE, CORE, Core};
use crate::elf::LinkMap;
use crate::local::{Local, thread_pointer};
use crate::real;
use crate::{events, follow, sys};
use channel::{FORK_FAILED, PAGE, SlotHeader};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// How often this process has forked, and in a child the number of the fork that made it. A child's copy of it is the number
/// of its own fork, unless another thread of the parent forked at the same time; then `call` corrects it.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// In a forked child: the number of the fork in the parent.
pub fn number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// libc's functions that start child processes; 0 until the start.
static FORK: AtomicUsize = AtomicUsize::new(0);
static VFORK: AtomicUsize = AtomicUsize::new(0);
static SYSTEM: AtomicUsize = AtomicUsize::new(0);
static POPEN: AtomicUsize = AtomicUsize::new(0);
static DAEMON: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// As for `real::resolve`: `first` is the loader's list, which does not change meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    let functions =
        [(&b"fork"[..], &FORK), (b"vfork", &VFORK), (b"system", &SYSTEM), (b"popen", &POPEN), (b"daemon", &DAEMON)];
    for (name, place) in functions {
        // SAFETY: the caller promises the loader's list, unchanged meanwhile.
        if let Some(address) = unsafe { real::find_behind(first, ourselves, name) } {
            place.store(address as usize, Ordering::Release);
        }
    }
}

/// Called before libc starts a child in another way than by `fork`. The exported function jumps to the address that is
/// returned: libc's function, or one that only fails, if libc's was not found.
fn starting(real: &AtomicUsize, refuse: extern "C" fn() -> isize) -> usize {
    CORE.start();
    CORE.note_child();
    match real.load(Ordering::Acquire) {
        0 => refuse as *const () as usize,
        real => real,
    }
}

extern "C" fn minus_one() -> isize {
    -1
}

extern "C" fn null() -> isize {
    0
}

pub extern "C" fn starting_vfork() -> usize {
    starting(&VFORK, minus_one)
}

pub extern "C" fn starting_system() -> usize {
    starting(&SYSTEM, minus_one)
}

pub extern "C" fn starting_popen() -> usize {
    starting(&POPEN, null)
}

/// Calls libc's `fork` and returns its result. Returns -1 if the start did not find that function; no program is known
/// in which this happens.
pub fn call() -> i32 {
    // This may be the first hooked function that the program calls.
    CORE.start();
    let real = FORK.load(Ordering::Acquire);
    if real == 0 {
        return -1;
    }
    // SAFETY: not 0, so `resolve` found it in libc under this name.
    unsafe { call_patched(real as u64) }
}

/// The same for a program in which heaptrack has patched libc's `fork`.
///
/// # Safety
/// `real` is the address of libc's `fork`, or of its own code.
pub unsafe fn call_patched(real: u64) -> i32 {
    // SAFETY: the caller promises a `fork`, which has this signature.
    let real: extern "C" fn() -> i32 = unsafe { core::mem::transmute(real) };
    // A program that was patched before its first instruction may fork before its first event.
    CORE.gate_after_start();
    // Until `end_call`, heaptrack does not unmap the memory that the copies are to replace.
    follow::begin_call();
    let number = announce();
    let copies = own_state(&CORE).map(|local| Copies::new(&CORE, local));
    let pid = real();
    if pid > 0 {
        CORE.note_child();
    }
    if number != 0 {
        match pid {
            0 => NUMBER.store(number, Ordering::Relaxed),
            pid => events::note_fork(&CORE, number, if pid < 0 { FORK_FAILED } else { pid as u32 }),
        }
    }
    if let Some(copies) = copies {
        if pid == 0 { copies.replace() } else { copies.unmap() }
    }
    if pid == 0 {
        follow::end_all_calls()
    } else {
        follow::end_call()
    }
    pid
}

/// Announces a fork, if a tree of processes is recorded. Returns its number, or 0. A forked child that forks before its first
/// event joins here: otherwise its own child would take it for the process that has forked it, and their numbers would mix.
fn announce() -> u32 {
    if follow::shared_hub().is_none() || CORE.gate_or_join() & ACTIVE == 0 {
        return 0;
    }
    let number = (NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & 0x7fff_ffff).max(1);
    events::note_fork(&CORE, number, 0);
    number
}

/// Calls libc's `daemon`, which forks inside of libc. Only the child returns, unless the fork fails.
pub fn call_daemon(keeps_folder: i32, keeps_streams: i32) -> i32 {
    CORE.start();
    let real = DAEMON.load(Ordering::Acquire);
    if real == 0 {
        return -1;
    }
    // SAFETY: not 0, so `resolve` found it in libc under this name, and it has this signature.
    let real: extern "C" fn(i32, i32) -> i32 = unsafe { core::mem::transmute(real) };
    // In a sandbox the kernel must not be asked which process this is.
    let number = if CORE.may_call_if_ready() { announce() } else { 0 };
    if number == 0 {
        CORE.note_child();
        return real(keeps_folder, keeps_streams);
    }
    let parent = sys::getpid();
    let result = real(keeps_folder, keeps_streams);
    if sys::getpid() == parent {
        events::note_fork(&CORE, number, FORK_FAILED);
    } else {
        NUMBER.store(number, Ordering::Relaxed);
        // The parent ends now. What the child inherits is known as long as the recorder knows which fork made it.
        CORE.gate_or_join();
    }
    result
}

/// Returns the state of the calling thread, if it has recorded something.
fn own_state(core: &Core) -> Option<*mut Local> {
    let may_record = core.gate() & ACTIVE != 0 && core.may_call();
    if may_record { core.threads().find(thread_pointer()) } else { None }
}

fn is_in_hook(local: *mut Local) -> bool {
    // SAFETY: the caller passes the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let guards = unsafe { [(*local).main.guard, (*local).nested.guard] };
    guards != [0, 0]
}

/// Copies of the memory that a hook writes to. If there is no memory for a copy, that part is left out.
struct Copies {
    header: Option<Copy>,
    slot_header: Option<Copy>,
    /// The area of the slot, or the page with the thread's own fields.
    slot: Option<Copy>,
}

impl Copies {
    /// `local`: the calling thread's own.
    fn new(core: &Core, local: *mut Local) -> Self {
        // SAFETY: the calling thread's own local (see `Local`); both fields stay as they are while the thread has the
        // slot.
        let (index, slot_header) = unsafe { ((*local).slot, (*local).header) };
        let slot_header = Copy::of(slot_header as usize, size_of::<SlotHeader>());
        if !is_in_hook(local) {
            return Copies { header: None, slot_header, slot: copy_of_fields(local) };
        }
        let geometry = core.region().geometry();
        let area = local as usize - geometry.private_in_slot(index);
        let len = geometry.slot_area_at(index + 1) - geometry.slot_area_at(index);
        let header = core::ptr::from_ref(core.header()) as usize;
        Copies { header: Copy::of(header, geometry.modules_at()), slot_header, slot: Copy::of(area, len) }
    }

    fn parts(self) -> impl Iterator<Item = Copy> {
        [self.header, self.slot_header, self.slot].into_iter().flatten()
    }

    /// In the child: puts the copies in the place of the shared memory.
    fn replace(self) {
        self.parts().for_each(Copy::replace);
    }

    /// In the parent, which needs no copies: unmaps them.
    fn unmap(self) {
        self.parts().for_each(Copy::unmap);
    }
}

// The first page of a `Local` holds all fields up to the memo.
const _: () = assert!(offset_of!(Local, memo) <= PAGE);

/// Copies the page with a thread's own fields, and changes the copy so that a hook without a guard reads the gate
/// again.
fn copy_of_fields(local: *mut Local) -> Option<Copy> {
    let copy = Copy::of(local as usize, PAGE)?;
    let fields = copy.at.cast::<Local>();
    // SAFETY: `Copy::of` has just mapped and filled this page, and has given its address to this function only. Both
    // fields are in it: see the assertion above.
    unsafe {
        (*fields).generation = !(*fields).generation;
        (*fields).main.ring.distrust();
    }
    Some(copy)
}

/// A copy of the pages `[original, original + len)`, mapped at `at` by `of`. Only `replace` and `unmap` end it.
struct Copy {
    original: usize,
    at: *mut u8,
    len: usize,
}

impl Copy {
    /// Copies the pages that hold `[start, start + len)`, which are mapped.
    fn of(start: usize, len: usize) -> Option<Self> {
        let original = start & !(PAGE - 1);
        let len = (start + len).next_multiple_of(PAGE) - original;
        let at = sys::map_private(len)?;
        for offset in (0..len).step_by(size_of::<u64>()) {
            // SAFETY: the region is mapped (see `Core`) in whole pages, and the mapping at `at` is as long. Volatile,
            // because other threads and the collector write to the header meanwhile. The old or the new word is copied;
            // both are good enough, because the child's copy is not read by the collector.
            unsafe {
                let word = ((original + offset) as *const u64).read_volatile();
                at.add(offset).cast::<u64>().write_volatile(word);
            }
        }
        Some(Copy { original, at, len })
    }

    fn replace(self) {
        // SAFETY: the child has one thread, and it is here, so no other thread uses the pages meanwhile. They stay
        // readable and writable, and their contents are those from before the fork.
        unsafe { sys::move_mapping(self.at, self.len, self.original) };
    }

    fn unmap(self) {
        // SAFETY: `of` mapped these pages, and nothing else points to them.
        unsafe { sys::unmap(self.at, self.len) };
    }
}
