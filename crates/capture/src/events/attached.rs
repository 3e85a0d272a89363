//! Hooks of patched functions, in a process that was attached to.
//!
//! A function of an allocator may call another one that is patched too: musl's `calloc` calls `malloc`. Such a call is
//! not the program's and must not be recorded. So while the outer function runs, the guard is up, and calls from the
//! same module are ignored. A signal handler that allocates meanwhile is in another module, and is recorded.
use super::entering::{AtWork, enter, leave};
use super::realloc::{reallocated, resume};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use crate::entry::{Entry, Freed, Range};
use crate::families;
use crate::resume_state::{GuardState, ResumeState};
use channel::{Kind, encode_free};

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

/// Called before an allocating function that may call other patched functions.
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

/// Called after an allocating function for which `before` was called. `address` is what it returned.
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

/// Returns the patched function itself.
#[inline(always)]
fn real(entry: &Entry) -> extern "C" fn(u64, u64, u64) -> u64 {
    // SAFETY: the profiler has written the address of the patched function's own code into `real`, and an entry never
    // changes once a patch leads to it (`entry.rs`). The function takes three words at most; the C ABI ignores the
    // others.
    unsafe { core::mem::transmute(entry.real) }
}

/// Only calls the patched function, and records nothing.
pub fn call_real(context: &mut Context, entry: &Entry) -> Next {
    let [a, b, c] = context.arguments;
    context.result = real(entry)(a, b, c);
    Next::DONE
}

/// A realloc, including the call of the real function.
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
    // The intent stays published during the real call, as in `events::reallocate`.
    let mut writer = entered.writer(core);
    writer.publish_intent();
    let freed_at = writer.stamp();
    context.result = real(a, b, c);
    entered.set_inside(Range::NONE);
    context.arguments = [a, size, freed_at];
    Next::then(reallocated)
}

/// Next part of `realloc(NULL, size)`. Arguments: the address and the size.
extern "C" fn new_block(context: &mut Context) -> Next {
    let [address, size, _] = context.arguments;
    after(context, address, size)
}

/// Called before a free. Does nothing if the allocator's own code makes the call at one of the known places
/// (`Entry::internal`).
#[inline(always)]
pub fn freeing(address: u64, cfa: u64, entry: &Entry) {
    // SAFETY: `before_free` in `capture-so` passes the CFA of the shim that calls it, so that hook is at work.
    let caller = unsafe { return_address(cfa) };
    if entry.module.holds(caller) && entry.internal.contains(&caller) {
        return;
    }
    super::freeing(address, cfa);
}

/// Called before a free that may call another patched one: an `operator delete`, or the free of a library that calls
/// libc's.
///
/// The call is a part of the thread's last free, and is not recorded again, if all of these hold: the block is the
/// same, the thread has written no event in between, the entry is another one, and the call comes from the same frame
/// or from the module that was freeing the block. At the same entry it is another free, because the block may have come
/// back from another thread.
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
    // SAFETY: `enter` returned the calling thread's own local (see `Local`). Copied, so that no reference stays. A
    // signal handler may change the fields during the copy. They are integers, so any mixture of old and new ones is
    // valid.
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
