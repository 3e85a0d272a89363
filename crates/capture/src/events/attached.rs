//! What happens at a patched entry, besides what happens in every hook.
//!
//! A function of an allocator may call another one (`calloc` of musl calls `malloc`), whose entry is patched too. Such
//! a call is not the program's: while the outer function runs, the guard is up and says so, and calls out of the same
//! module are passed over. A signal handler that allocates meanwhile is in another module, and is recorded.
use super::entering::{AtWork, enter, leave};
use super::realloc::{reallocated, resume};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use crate::entry::{Entry, Freed, Range};
use crate::families;
use crate::resume_state::{GuardState, ResumeState};
use channel::{Kind, encode_free};

/// The address that a hook returns to.
///
/// # Safety
/// `cfa` is that of a hook at work on the calling thread.
#[inline(always)]
unsafe fn return_address(cfa: u64) -> u64 {
    // SAFETY: the caller promises that a hook with this CFA is at work on this thread. The word below a CFA is the
    // return address that the call has pushed, and it stays until the hook returns.
    unsafe { *((cfa - 8) as *const u64) }
}

/// True for the call of one function of an allocator by another. Only asked by a hook that found another one at work.
#[inline]
pub fn is_inside(allocator: Range, cfa: u64) -> bool {
    // SAFETY: `enter_nested` passes the CFA with which its own hook was entered, and that hook is at work.
    let caller = unsafe { return_address(cfa) };
    allocator != Range::NONE && (allocator.holds(caller) || CORE.is_own(caller) || families::is_own(caller))
}

/// Before an allocating function that may call others.
#[inline(always)]
pub fn before(context: &mut Context, entry: &Entry) {
    context.resume_state = ResumeState::of_guard(GuardState::UNGUARDED);
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    let guard = match enter(&CORE, context.cfa()) {
        Some(mut entered) => {
            entered.set_inside(entry.module);
            GuardState::GUARDED
        }
        None => GuardState::NOT_RECORDED,
    };
    context.resume_state = ResumeState::of_guard(guard);
}

/// After it.
#[inline(always)]
pub fn after(context: &mut Context, address: u64, size: u64) -> Next {
    match context.resume_state.guard() {
        GuardState::NOT_RECORDED => return Next::DONE,
        GuardState::GUARDED => {
            if let Some(mut entered) = resume(&CORE, context.cfa()) {
                entered.set_inside(Range::NONE);
                leave(&mut entered);
            }
        }
        _ => (),
    }
    super::allocated(context, address, size)
}

/// The function behind a slot.
#[inline(always)]
fn real(entry: &Entry) -> extern "C" fn(u64, u64, u64) -> u64 {
    // SAFETY: the profiler has written the address of the patched function's own code into `real`, and an entry never
    // changes once a patch leads to it (`entry.rs`). The function takes three words at most; the C ABI ignores the
    // others.
    unsafe { core::mem::transmute(entry.real) }
}

/// Only calls the function: nothing is recorded.
pub fn call_real(context: &mut Context, entry: &Entry) -> Next {
    let [a, b, c] = context.arguments;
    context.result = real(entry)(a, b, c);
    Next::DONE
}

/// The whole of a realloc, the real call included.
#[inline(always)]
pub fn reallocate(context: &mut Context, entry: &Entry, size: u64) -> Next {
    let [a, b, c] = context.arguments;
    let real = real(entry);
    let core = &CORE;
    if core.gate() & ACTIVE == 0 {
        context.result = real(a, b, c);
        return Next::DONE;
    }
    if a == 0 {
        before(context, entry);
        context.result = real(a, b, c);
        context.arguments = [context.result, size, 0];
        return Next::then(new_block);
    }
    let Some(mut entered) = enter(core, context.cfa()) else {
        context.result = real(a, b, c);
        return Next::DONE;
    };
    entered.set_inside(entry.module);
    // As in a launched program: the intent stays up through the real call.
    let mut writer = entered.writer(core);
    writer.publish_intent();
    let freed_at = writer.stamp();
    context.result = real(a, b, c);
    entered.set_inside(Range::NONE);
    context.arguments = [a, size, freed_at];
    Next::then(reallocated)
}

/// realloc(NULL, size). Arguments: the address and the size.
extern "C" fn new_block(context: &mut Context) -> Next {
    let [address, size, _] = context.arguments;
    after(context, address, size)
}

/// Before a free.
#[inline(always)]
pub fn freeing(address: u64, cfa: u64, entry: &Entry) {
    // SAFETY: `before_free` in `capture-so` passes the CFA of the shim that calls it, so that hook is at work.
    let caller = unsafe { return_address(cfa) };
    if entry.module.holds(caller) && entry.internal.contains(&caller) {
        return;
    }
    super::freeing(address, cfa);
}

/// Before a free that may lead to another one that is patched too: an `operator delete`, or the free of a library that
/// goes on to libc's. The same block with no event between, at another entry, for the same frame or by the module that
/// was freeing it, is the same free. At the same entry it is not: the block may have come back from another thread.
#[inline(always)]
pub fn freeing_carefully(address: u64, cfa: u64, entry: &Entry) {
    // SAFETY: `before_careful_free` in `capture-so` passes the CFA of the shim that calls it, so that hook is at work.
    let caller = unsafe { return_address(cfa) };
    let is_internal = entry.module.holds(caller) && entry.internal.contains(&caller);
    if is_internal || CORE.gate() & ACTIVE == 0 || address == 0 {
        return;
    }
    let core = &CORE;
    let Some(mut entered) = enter(core, cfa) else { return };
    let head = entered.level().ring.head;
    // SAFETY: the calling thread's own; a handler that changes it meanwhile leaves a whole one.
    let last = unsafe { (*entered.local).freed };
    let here = core::ptr::from_ref(entry) as u64;
    let is_passed_on = last.entry != here && (last.cfa == cfa || last.module.holds(caller));
    if last.address != address || last.head != head || !is_passed_on {
        entered.writer(&CORE).begin_events(1);
        entered.writer(core).write(|stamp| encode_free(Kind::Free, stamp, address));
        let head = entered.level().ring.head;
        // SAFETY: `enter` returned the calling thread's own local (see `Local`). No reference to this field exists.
        unsafe { (*entered.local).freed = Freed { address, cfa, head, entry: here, module: entry.module } };
    }
    leave(&mut entered);
}
