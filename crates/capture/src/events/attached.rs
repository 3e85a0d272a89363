//! Hooks of patched functions, in a process that was attached to.
//!
//! A function of an allocator may call another one that is patched too: musl's `calloc` calls `malloc`. Such a call is
//! not the program's and must not be recorded. So while the outer function runs, the guard is up, and calls from the
//! same module are ignored. A signal handler that allocates meanwhile is in another module, and is recorded.
use super::entering::{AtWork, Entered, Quick, enter, enter_quickly, is_call_inside, leave};
use super::realloc::{reallocated, resume};
use super::{heaps, sampled};
use crate::allocators::{Effect, Meaning};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, EXACT};
use crate::entry::{Entry, Freed, Range};
use crate::families;
use crate::local::{Local, thread_pointer};
use crate::resume_state::{GuardState, ResumeState};
use crate::sampling;
use channel::{IN_HEAP, Kind, encode_free, tagged};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Returns the address that a hook returns to.
///
/// # Safety
/// `cfa` is that of a hook at work on the calling thread.
#[inline(always)]
unsafe fn return_address(cfa: u64) -> u64 {
    // SAFETY: the caller promises that a hook with this CFA is at work on this thread. The word below a CFA is the
    // return address that the call has pushed, and it stays until the hook returns.
    unsafe { *((cfa - 8) as *const u64) }
}

/// Returns true if a function of `allocator` has called the hook with this CFA. Only a hook that found another hook at
/// work asks.
#[inline]
pub fn is_inside(allocator: Range, cfa: u64) -> bool {
    // SAFETY: `enter_nested` passes the CFA with which its own hook was entered, and that hook is at work.
    let caller = unsafe { return_address(cfa) };
    allocator != Range::NONE && (allocator.holds(caller) || CORE.is_own(caller) || families::is_own(caller))
}

/// What the shim of a patched function saves on the stack. The fields are from the lowest address to the highest.
#[repr(C)]
pub struct Call {
    /// rdi, rsi, rdx, rcx, r8 and r9 as the caller left them.
    pub arguments: [u64; 6],
    /// r10 and r11.
    pub registers: [u64; 2],
    /// What the shim returns.
    pub result: u64,
    /// The thread's state if `before` has entered the hook quickly, otherwise 0.
    local: u64,
    /// What `Local::inside` was before this call, unless `before` has entered the hook quickly.
    outer: Range,
    pub context: Context,
}

impl Call {
    /// How many bytes a shim reserves below the context.
    pub const SAVED: usize = size_of::<Call>() - size_of::<Context>();

    #[inline(always)]
    pub(super) fn argument(&self, index: u8) -> u64 {
        self.arguments.get(index as usize).copied().unwrap_or(0)
    }

    /// Returns the size that the caller asked for, or `None` if it is a product that is too large. Then the function
    /// fails.
    #[inline(always)]
    fn size(&self, meaning: Meaning) -> Option<u64> {
        let each = self.argument(meaning.size);
        if meaning.count == Meaning::NONE { Some(each) } else { each.checked_mul(self.argument(meaning.count)) }
    }
}

/// With this, the stack is aligned when a shim calls a function.
const _: () = assert!(Call::SAVED.is_multiple_of(16));

/// Called before an allocating function that may call other patched functions.
#[inline(always)]
pub fn before(call: &mut Call, entry: &Entry) {
    call.local = 0;
    if CORE.gate() & ACTIVE != 0
        && let Some(mut quick) = enter_quickly(&CORE, call.context.cfa())
    {
        quick.set_inside(entry.module);
        call.local = quick.local as u64;
        return;
    }
    if CORE.gate() & ACTIVE != 0 && is_call_inside(&CORE, entry.module, call.context.cfa()) {
        call.outer = Range::NONE;
        call.context.resume_state = ResumeState::of_guard(GuardState::NOT_RECORDED);
        return;
    }
    before_slowly(call, entry);
}

#[cold]
#[inline(never)]
fn before_slowly(call: &mut Call, entry: &Entry) {
    call.context.resume_state = ResumeState::of_guard(GuardState::UNGUARDED);
    if CORE.gate_or_join() & ACTIVE == 0 {
        return;
    }
    let guard = match enter(&CORE, call.context.cfa()) {
        Some(mut entered) => {
            call.outer = entered.replace_inside(entry.module);
            GuardState::GUARDED
        }
        None => {
            call.outer = go_inside(entry.module);
            GuardState::NOT_RECORDED
        }
    };
    call.context.resume_state = ResumeState::of_guard(guard);
}

/// Called before a function that is not recorded, because an allocator at work has called it. If it calls a third
/// allocator, that call must not be recorded either, so its module becomes `Local::inside`. Returns what that was, or
/// `Range::NONE` if nothing has changed.
pub(super) fn go_inside(module: Range) -> Range {
    let Some(local) = CORE.threads().find(thread_pointer()) else { return Range::NONE };
    // SAFETY: `find` returns the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let outer = unsafe { (*local).inside };
    if outer != Range::NONE {
        Entered { local, nested: false }.set_inside(module);
    }
    outer
}

/// Undoes `go_inside`.
pub(super) fn come_back(outer: Range) {
    if outer != Range::NONE
        && let Some(local) = CORE.threads().find(thread_pointer())
    {
        Entered { local, nested: false }.set_inside(outer);
    }
}

/// Called after an allocating function for which `before` was called.
#[inline(always)]
pub fn after(call: &mut Call, entry: &Entry) -> Next {
    call.context.result = call.result;
    if call.local != 0 && entry.meaning.heap == Meaning::NONE && super::is_plainly_recording(&CORE) {
        let mut quick = Quick { local: call.local as *mut Local };
        quick.clear_inside();
        let is_malloc = entry.meaning == Meaning::MALLOC;
        let (address, size) = if is_malloc { (call.result, call.arguments[0]) } else { new_block(call, entry.meaning) };
        if address != 0 {
            // The guard stays up from the call of the real function to the event.
            return super::allocated_quickly(quick, &mut call.context, address, tagged(size, entry.allocator));
        }
        leave(&mut quick);
        return Next::DONE;
    }
    // Only if `before` has not entered quickly, it has set the resume state.
    let is_ignored = || call.context.resume_state.guard() == GuardState::NOT_RECORDED && call.outer == Range::NONE;
    if call.local == 0 && is_ignored() { Next::DONE } else { after_otherwise(call, entry) }
}

/// As `after`, for a call that `before` has not entered quickly, a function that may allocate in a heap, or while
/// something special is going on. Not inlined, so that `after` needs fewer registers.
#[inline(never)]
fn after_otherwise(call: &mut Call, entry: &Entry) -> Next {
    if call.local != 0 {
        let mut quick = Quick { local: call.local as *mut Local };
        quick.clear_inside();
        leave(&mut quick);
    } else if !after_slowly(call) {
        return Next::DONE;
    }
    let (address, size) = new_block(call, entry.meaning);
    if entry.meaning.heap != Meaning::NONE {
        return allocated_in_heap(call, entry, address, size);
    }
    super::allocated(&mut call.context, address, tagged(size, entry.allocator))
}

/// As the end of `after`, for a function that may allocate in a heap.
#[inline(never)]
fn allocated_in_heap(call: &mut Call, entry: &Entry, address: u64, size: u64) -> Next {
    let heap = heaps::argument(call, entry);
    let is_marked = address != 0 && heap != 0 && heaps::enter_and_mark_in(call.context.cfa(), heap);
    let allocator = if is_marked { entry.allocator | IN_HEAP } else { entry.allocator };
    super::allocated(&mut call.context, address, tagged(size, allocator))
}

/// Ends what `before_slowly` has begun. Returns false if the call is not to be recorded.
#[cold]
#[inline(never)]
fn after_slowly(call: &mut Call) -> bool {
    match call.context.resume_state.guard() {
        GuardState::NOT_RECORDED => {
            come_back(call.outer);
            return false;
        }
        GuardState::GUARDED => {
            if let Some(mut entered) = resume(&CORE, call.context.cfa()) {
                entered.set_inside(call.outer);
                leave(&mut entered);
            }
        }
        _ => (),
    }
    true
}

/// Returns the new block and its size. The address is 0 if the function has failed.
#[inline(always)]
fn new_block(call: &Call, meaning: Meaning) -> (u64, u64) {
    match meaning.effect {
        Effect::Text => (call.result, text_size(call.result)),
        Effect::Out if call.result as u32 == 0 => {
            // SAFETY: the function returned 0, so it has stored a block where its first argument points to. The
            // caller's pointer is as valid as it was for that store, because the caller has not got control back.
            let address = unsafe { *(call.argument(0) as *const u64) };
            (address, size_of_block(call, meaning))
        }
        Effect::Out => (0, 0),
        _ => (call.result, size_of_block(call, meaning)),
    }
}

/// If the product overflows, the function has failed, and the size is not used.
#[inline(always)]
fn size_of_block(call: &Call, meaning: Meaning) -> u64 {
    call.size(meaning).unwrap_or(0)
}

/// Returns the size of the string at `text`, including its end. 0 if it is null.
#[cold]
fn text_size(text: u64) -> u64 {
    let mut length = 0u64;
    // SAFETY: functions with the effect `Text` return null, which is checked, or a NUL-terminated string, which the
    // caller has not got yet. Every byte before was not the NUL.
    while text != 0 && unsafe { *((text + length) as *const u8) } != 0 {
        length += 1;
    }
    if text == 0 { 0 } else { length + 1 }
}

/// Calls the patched function itself.
#[inline(always)]
pub(super) fn real(call: &Call, entry: &Entry) -> u64 {
    call_at(call, entry.real)
}

/// Calls a function that resizes: the patched function itself, or its variant that does not throw.
#[inline(always)]
fn resize(call: &Call, entry: &Entry) -> u64 {
    call_at(call, if entry.nothrow == 0 { entry.real } else { entry.nothrow })
}

/// Calls a function with the arguments of the call. `at` is `real` or `nothrow` of the call's entry.
#[inline(always)]
fn call_at(call: &Call, at: u64) -> u64 {
    type Function = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
    // SAFETY: the profiler has written the address of the patched function's own code into `real`, and for a function that
    // throws that of its variant into `nothrow`. An entry never changes once a patch leads to it (`entry.rs`). The
    // function takes six words at most; the C ABI ignores the others.
    let function: Function = unsafe { core::mem::transmute(at) };
    let [a, b, c, d, e, f] = call.arguments;
    function(a, b, c, d, e, f)
}

/// A function that resizes a block, including the call of the real function.
#[inline(always)]
pub fn reallocate(call: &mut Call, entry: &Entry) -> Next {
    let core = &CORE;
    let old = call.argument(entry.meaning.block);
    if core.gate_or_join() & ACTIVE == 0 {
        call.result = resize(call, entry);
        return Next::DONE;
    }
    if old == 0 {
        before(call, entry);
        call.result = resize(call, entry);
        return after(call, entry);
    }
    let Some(mut entered) = enter(core, call.context.cfa()) else {
        let outer = go_inside(entry.module);
        call.result = resize(call, entry);
        come_back(outer);
        return Next::DONE;
    };
    let outer = entered.replace_inside(entry.module);
    let heap = if entry.meaning.heap == Meaning::NONE { 0 } else { heaps::argument(call, entry) };
    if heap != 0 {
        heaps::mark_in(&mut entered, heap);
    }
    // The intent stays published during the real call, as in `events::reallocate`.
    let mut writer = entered.writer(core);
    writer.publish_intent();
    let freed_at = writer.stamp();
    call.result = resize(call, entry);
    entered.set_inside(outer);
    let (address, size) = resized(call, entry.meaning, old);
    call.context.result = address;
    let allocator = if heap != 0 { entry.allocator | IN_HEAP } else { entry.allocator };
    let size = if address == 0 { size } else { tagged(size, allocator) };
    call.context.arguments = [old, size, freed_at];
    Next::then(reallocated)
}

/// Returns the block after a resize, and its size. `reallocated` takes null with a size other than 0 for a failure, and
/// null with size 0 for a free.
fn resized(call: &Call, meaning: Meaning, old: u64) -> (u64, u64) {
    const FAILED: (u64, u64) = (0, 1);
    let Some(size) = call.size(meaning) else { return FAILED };
    match meaning.effect {
        Effect::InPlace if call.result >= size => (old, size),
        Effect::Expand if call.result != 0 => (old, size),
        Effect::InPlace | Effect::Expand => FAILED,
        Effect::ResizeOrFree if call.result == 0 => (0, 0),
        _ => (call.result, size),
    }
}

/// Called before a free. Does nothing if the allocator's own code makes the call at one of the known places
/// (`Entry::internal`).
#[inline(always)]
pub fn freeing(address: u64, cfa: u64, entry: &Entry) {
    // SAFETY: `before_free` in `capture-so` passes the CFA of the shim that calls it, so that hook is at work.
    let caller = unsafe { return_address(cfa) };
    if entry.is_internal_call(caller) {
        return;
    }
    super::freeing(address, cfa);
}

/// Called before a free that may call another patched one: an `operator delete`, or the free of a library that calls
/// libc's. `first` and `second` are its first two arguments.
///
/// The call is a part of the thread's last free, and is not recorded again, if all of these hold: the block is the
/// same, the thread has written no event in between, the entry is another one, and the call comes from the same frame
/// or from the module that was freeing the block. At the same entry it is another free, because the block may have come
/// back from another thread.
#[inline(always)]
pub fn freeing_carefully(first: u64, second: u64, cfa: u64, entry: &Entry) {
    let address = if entry.meaning.block == 1 { second } else { first };
    // SAFETY: `before_careful_free` in `capture-so` passes the CFA of the shim that calls it, so that hook is at work.
    let caller = unsafe { return_address(cfa) };
    if address == 0 || entry.is_internal_call(caller) {
        return;
    }
    let core = &CORE;
    if core.gate() & EXACT != 0
        && let Some(entered) = enter_quickly(core, cfa)
    {
        return free_once(entered, address, cfa, caller, entry);
    }
    freeing_slowly(address, cfa, caller, entry);
}

/// The entry of the last patched free while blocks are sampled. Such a free does not look for its thread's state. Null, or
/// an entry to which a patch leads, which stays mapped (`entry.rs`).
static LAST_SAMPLED: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());

/// Returns true if a call of mmap or its relatives that returns to `caller` was made by the allocator of the last free, for
/// its own use.
pub(super) fn is_by_last_allocator(caller: u64) -> bool {
    // SAFETY: `find` returns the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let of_thread = CORE.threads().find(thread_pointer()).map(|local| unsafe { (*local).freed.entry });
    let entries = [of_thread.unwrap_or(core::ptr::null()), LAST_SAMPLED.load(Ordering::Acquire).cast_const()];
    // SAFETY: null, or an entry to which a patch leads, as `free_once` and `freeing_slowly` have stored it. Such an entry stays
    // mapped and unchanged (`entry.rs`).
    entries.iter().any(|entry| unsafe { entry.as_ref() }.is_some_and(|entry| entry.mapping_code.holds(caller)))
}

#[cold]
#[inline(never)]
fn freeing_slowly(address: u64, cfa: u64, caller: u64, entry: &Entry) {
    // The free that this one may be a part of has taken the block out of those that were sampled.
    if sampling::concerns(CORE.gate_or_join(), address) {
        if LAST_SAMPLED.load(Ordering::Relaxed).cast_const() != core::ptr::from_ref(entry) {
            LAST_SAMPLED.store(core::ptr::from_ref(entry).cast_mut(), Ordering::Release);
        }
        return sampled::freeing(address, cfa);
    }
    if CORE.gate_or_join() & ACTIVE != 0
        && let Some(entered) = enter(&CORE, cfa)
    {
        free_once(entered, address, cfa, caller, entry);
    }
}

/// Writes the free, unless it is a part of the thread's last one. `entered` is the hook, and `caller` its return address.
#[inline(always)]
fn free_once(mut entered: impl AtWork, address: u64, cfa: u64, caller: u64, entry: &Entry) {
    let core = &CORE;
    let local = entered.state();
    let head = entered.level().ring.head;
    // SAFETY: the calling thread's own local (see `Local`). No reference to this field exists.
    let last = unsafe { (*local).freed.address };
    if last != address || !is_passed_on(local, head, cfa, caller, entry) {
        entered.writer(core).begin_events(1);
        if !entered.writer(core).write_quickly(|stamp| encode_free(Kind::Free, stamp, address)) {
            write_free(Entered { local, nested: entered.is_nested() }, address);
        }
    }
    // Also if it is passed on: this function may pass the block on to a third one.
    let head = entered.level().ring.head;
    // SAFETY: the calling thread's own local (see `Local`). No reference to this field exists.
    unsafe { (*local).freed = Freed { address, cfa, head, entry } };
    leave(&mut entered);
}

/// Writes a free if there was no room in the ring, or if the clock must be read by a function call. The guard is up and
/// the event was begun.
#[cold]
#[inline(never)]
pub(super) fn write_free(mut entered: Entered, address: u64) {
    entered.writer(&CORE).write(|stamp| encode_free(Kind::Free, stamp, address));
}

/// Returns true if the hook frees the block of the thread's last free as a part of that free. `local` is the thread's
/// own, and `head` that of its ring.
#[cold]
#[inline(never)]
fn is_passed_on(local: *mut Local, head: u64, cfa: u64, caller: u64, entry: &Entry) -> bool {
    // SAFETY: the caller passes the calling thread's own local (see `Local`). Copied, so that no reference stays. A
    // signal handler may change the fields during the copy. Each of them is then the old or the new one, and every
    // mixture of them is valid.
    let last = unsafe { (*local).freed };
    // SAFETY: null, or an entry that `free_once` has stored, which was an entry to which a patch leads. Such an entry
    // stays mapped and unchanged (`entry.rs`).
    let module = unsafe { last.entry.as_ref() }.map_or(Range::NONE, |entry| entry.module);
    let is_other = !core::ptr::eq(last.entry, entry);
    last.head == head && is_other && (last.cfa == cfa || module.holds(caller))
}
