//! Hooks of the functions of an allocator family in a program that was launched: see [`crate::families`].
//!
//! While the allocator's function runs, the guard is up and `inside` names its module. So allocations that the
//! allocator makes through other hooked functions are not recorded. A free is ignored only if it frees the block that
//! the outer function frees or resizes. Others are recorded: if a new handler throws, the allocator frees the
//! exception, which is a block of the program. An exception that leaves the function lowers the guard on its way, see
//! [`unwound`].
use super::attached::write_free;
use super::entering::{AtWork, Entered, Quick, enter, enter_quickly, leave, restore_if_left};
use super::realloc::{reallocated, resume};
use super::{allocated, heaps, sampled};
use crate::allocators::Meaning;
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, EXACT};
use crate::entry::{Allocator, Entry, Range};
use crate::families;
use crate::local::{Local, thread_pointer};
use crate::resume_state::{GuardState, ResumeState};
use crate::sampling;
use channel::{IN_HEAP, Kind, encode_free, tagged};

/// What a shim saves on the stack. The fields are from the lowest address to the highest.
#[repr(C)]
pub struct Call {
    /// rcx, r8 and r9 as the caller left them.
    pub arguments: [u64; 3],
    /// In a resize: the stamp of the free. The functions `after_*` store what the shim returns here.
    pub kept: u64,
    /// `Entry::allocator`.
    allocator: u8,
    /// The thread's state if `begin_quickly` has entered the hook, otherwise 0.
    local: u64,
    pub context: Context,
}

impl Call {
    /// How many bytes a shim reserves below the return address.
    pub const SAVED: usize = size_of::<Call>() - 8;
}

/// With this, the stack is aligned when a shim calls a function.
const _: () = assert!(Call::SAVED % 16 == 8);

/// As `begin`, if no hook of the thread is at work. Nearly all calls are of this kind. Returns `None`, and does nothing,
/// otherwise.
#[inline(always)]
fn begin_quickly(call: &mut Call, entry: &Entry, block: u64) -> Option<Quick> {
    call.local = 0;
    if CORE.gate() & EXACT == 0 || entry.meaning.heap != Meaning::NONE {
        return None;
    }
    let mut quick = enter_quickly(&CORE, call.context.cfa())?;
    call.local = quick.local as u64;
    call.allocator = entry.allocator;
    quick.set_allocator(Allocator { inside: entry.module, freed: block });
    Some(quick)
}

/// Raises the guard for a function that frees or resizes `block`; 0 = it allocates. Returns `None` if recording is off,
/// or if the call is not to be recorded. `resume_state` says which.
#[inline(always)]
fn begin(call: &mut Call, entry: &Entry, block: u64) -> Option<Entered> {
    call.local = 0;
    call.context.resume_state = ResumeState::of_guard(GuardState::UNGUARDED);
    call.allocator = entry.allocator;
    if CORE.gate_or_join() & ACTIVE == 0 {
        return None;
    }
    let entered = match outer_hook(call.context.cfa()) {
        Some(outer) if block != 0 && outer.freed != block => outer.enter_as_program(call.context.cfa()),
        _ => enter(&CORE, call.context.cfa()),
    };
    let Some(mut entered) = entered else {
        call.context.resume_state = ResumeState::of_guard(GuardState::NOT_RECORDED);
        return None;
    };
    call.context.resume_state = ResumeState::of_guard(GuardState::GUARDED);
    if entry.meaning.heap != Meaning::NONE {
        mark_heap(call, entry, &mut entered);
    }
    entered.begin_call(Allocator { inside: entry.module, freed: block });
    Some(entered)
}

/// If the block will be in an arena that the caller named, says so before its allocation.
#[inline(never)]
fn mark_heap(call: &mut Call, entry: &Entry, entered: &mut Entered) {
    let index = entry.meaning.heap & !Meaning::FLAGS;
    let heap = heaps::heap_of(entry, call.context.arguments.get(index as usize).copied().unwrap_or(0));
    if heap != 0 {
        heaps::mark_in(entered, heap);
        call.allocator |= IN_HEAP;
    }
}

/// A hook of this thread that has called an allocator's function. That function has not returned yet.
struct Outer {
    local: *mut Local,
    inside: Range,
    /// The block that it frees or resizes, 0 = none.
    freed: u64,
}

#[inline(always)]
fn outer_hook(cfa: u64) -> Option<Outer> {
    let local = CORE.threads().find(thread_pointer())?;
    // SAFETY: `find` returns the calling thread's own local (see `Local`).
    if unsafe { cfa >= (*local).main.guard || (*local).inside == Range::NONE } {
        return None;
    }
    restore_if_left(&CORE, local, cfa);
    // SAFETY: `find` returns the calling thread's own local (see `Local`).
    let (inside, freed) = unsafe { ((*local).inside, (*local).freed.address) };
    (inside != Range::NONE).then_some(Outer { local, inside, freed })
}

impl Outer {
    /// Enters the hook as for a call by the program, although its return address may be in the allocator. Otherwise
    /// `enter` would take the call for one of the allocator's own and ignore it.
    fn enter_as_program(self, cfa: u64) -> Option<Entered> {
        // SAFETY: the calling thread's own local (see `Local`). A signal handler that interrupts this restores what it
        // changes.
        unsafe { (*self.local).inside = Range::NONE };
        let entered = enter(&CORE, cfa);
        // SAFETY: `outer_hook` got the calling thread's own local (see `Local`) from `find`. The field has no
        // reference.
        unsafe { (*self.local).inside = self.inside };
        entered
    }
}

/// Handles a call of libc's free while a hook of this thread waits for an allocator's function. Records the free,
/// unless it frees the block that this function frees or resizes. Returns false, and does nothing, if no hook waits or
/// no family is hooked.
#[cold]
#[inline(never)]
pub fn free_inside(address: u64, cfa: u64) -> bool {
    let Some(outer) = outer_hook(cfa).filter(|_| families::is_any_enabled()) else { return false };
    if outer.freed != address
        && let Some(mut entered) = outer.enter_as_program(cfa)
    {
        if let Some(kind) = recorded_free(address) {
            entered.writer(&CORE).begin_events(1);
            entered.writer(&CORE).write(|stamp| encode_free(kind, stamp, address));
        }
        leave(&mut entered);
    }
    true
}

/// Called when the allocator's function has returned. Returns the hook that `begin` entered, with its guard still up,
/// or `None` if `begin` entered none.
#[inline(always)]
fn end(call: &mut Call) -> Option<Entered> {
    call.kept = call.context.result;
    if call.context.resume_state.guard() != GuardState::GUARDED {
        return None;
    }
    let mut entered = resume(&CORE, call.context.cfa())?;
    entered.end_call();
    Some(entered)
}

#[inline(always)]
pub fn before_allocation(call: &mut Call, entry: &Entry) {
    if begin_quickly(call, entry, 0).is_none() {
        before_slow_allocation(call, entry);
    }
}

#[cold]
#[inline(never)]
fn before_slow_allocation(call: &mut Call, entry: &Entry) {
    begin(call, entry, 0);
}

/// Called when the allocator's function has returned. Returns the hook that `begin_quickly` entered, with its guard
/// still up, or `None` if it entered none.
#[inline(always)]
fn end_quickly(call: &mut Call) -> Option<Quick> {
    if call.local == 0 {
        return None;
    }
    call.kept = call.context.result;
    let mut quick = Quick { local: call.local as *mut Local };
    quick.set_allocator(Allocator::NONE);
    Some(quick)
}

/// Called after an allocation that returned `address`; 0 = it failed.
#[inline(always)]
pub fn after_allocation(call: &mut Call, address: u64, size: u64) -> Next {
    if let Some(mut quick) = end_quickly(call) {
        if address != 0 && super::is_plainly_recording(&CORE) {
            // The guard stays up from the call of the real function to the event.
            return super::allocated_quickly(quick, &mut call.context, address, tagged(size, call.allocator));
        }
        leave(&mut quick);
        return allocated(&mut call.context, address, tagged(size, call.allocator));
    }
    after_slow_allocation(call, address, size)
}

#[cold]
#[inline(never)]
fn after_slow_allocation(call: &mut Call, address: u64, size: u64) -> Next {
    if let Some(mut entered) = end(call) {
        leave(&mut entered);
    }
    if call.context.resume_state.guard() == GuardState::NOT_RECORDED {
        return Next::DONE;
    }
    allocated(&mut call.context, address, tagged(size, call.allocator))
}

/// Writes a free. Like every free, it is written before the real function runs.
#[inline(always)]
pub fn before_free(call: &mut Call, entry: &Entry) {
    let [address, ..] = call.context.arguments;
    if address != 0
        && let Some(mut quick) = begin_quickly(call, entry, address)
    {
        quick.writer(&CORE).begin_events(1);
        if !quick.writer(&CORE).write_quickly(|stamp| encode_free(Kind::Free, stamp, address)) {
            write_free(Entered { local: quick.local, nested: false }, address);
        }
        return;
    }
    before_slow_free(call, entry, address);
}

#[cold]
#[inline(never)]
fn before_slow_free(call: &mut Call, entry: &Entry, address: u64) {
    if address == 0 {
        call.local = 0;
        call.context.resume_state = ResumeState::of_guard(GuardState::UNGUARDED);
    } else if let Some(mut entered) = begin(call, entry, address)
        && let Some(kind) = recorded_free(address)
    {
        entered.writer(&CORE).begin_events(1);
        entered.writer(&CORE).write(|stamp| encode_free(kind, stamp, address));
    }
}

/// Returns the kind of the event of a free, or `None` if blocks are sampled and this one was not taken.
fn recorded_free(address: u64) -> Option<Kind> {
    if sampling::concerns(CORE.gate(), address) { sampled::release(address) } else { Some(Kind::Free) }
}

#[inline(always)]
pub fn after_free(call: &mut Call) -> Next {
    match end_quickly(call) {
        Some(mut quick) => {
            leave(&mut quick);
            Next::DONE
        }
        None => after_slow_free(call),
    }
}

#[cold]
#[inline(never)]
fn after_slow_free(call: &mut Call) -> Next {
    if let Some(mut entered) = end(call) {
        leave(&mut entered);
    }
    Next::DONE
}

/// Takes the stamp of the free half of a resize. The intent stays published during the allocator's function. So another
/// thread that gets the old address cannot have its allocation merged before this free, as in `events::reallocate`.
pub fn before_resize(call: &mut Call, entry: &Entry) {
    let [old, ..] = call.context.arguments;
    let Some(mut entered) = begin(call, entry, old) else { return };
    if old != 0 {
        let mut writer = entered.writer(&CORE);
        writer.publish_intent();
        call.kept = writer.stamp();
    }
}

/// What became of a resize.
pub enum Resized {
    /// The block is at this address now, with this size.
    To(u64, u64),
    /// The resize failed, and the block is unchanged.
    Not,
    /// The block was freed.
    Freed,
}

#[inline(always)]
pub fn after_resize(call: &mut Call, resized: Resized) -> Next {
    let ([old, ..], freed_at) = (call.context.arguments, call.kept);
    if old == 0 {
        let (address, size) = if let Resized::To(address, size) = resized { (address, size) } else { (0, 0) };
        return after_allocation(call, address, size);
    }
    if end(call).is_none() {
        return Next::DONE;
    }
    // `reallocated` takes null with a size other than 0 for a failure, and null with size 0 for a free.
    let (address, size) = match resized {
        Resized::To(address, size) => (address, tagged(size, call.allocator)),
        Resized::Not => (0, 1),
        Resized::Freed => (0, 0),
    };
    call.context.result = address;
    call.context.arguments = [old, size, freed_at];
    Next::then(reallocated)
}

/// Called when an exception that left the allocator's function unwinds the shim's frame. Lowers the guard, clears the
/// intent and restores what `begin` has replaced. The frame that is unwound belongs to the innermost hook of the thread
/// that has called an allocator's function.
pub fn unwound() {
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    let Some(local) = CORE.threads().find(thread_pointer()) else { return };
    // SAFETY: `find` returns the calling thread's own local (see `Local`).
    let nested = unsafe { (*local).nested.guard != 0 && (*local).outer.is_some() };
    let mut entered = Entered { local, nested };
    // SAFETY: `find` returns the calling thread's own local (see `Local`).
    let inside = unsafe { (*local).inside };
    if entered.level().guard == 0 || inside == Range::NONE {
        return;
    }
    entered.end_call();
    entered.writer(&CORE).clear_intent();
    leave(&mut entered);
}
