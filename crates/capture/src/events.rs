//! What a hook does: find the thread's state, find or walk the stack, write the event.
//!
//! An allocation is stamped after the real call, and a free before it. So if one thread frees an address and another
//! gets it, the free has the older stamp. `channel/src/writer.rs` describes how an event is written to the ring.
//!
//! A hook is split into parts (`context::Next`). The quick part handles nearly all events. It calls no function and
//! hence saves no registers. If it cannot finish, it leaves its state in the `Context` and returns the next part.
pub mod attached;
pub mod custom;
mod entering;
pub mod families;
pub mod heaps;
pub mod mappings;
pub mod nesting;
mod realloc;
pub mod sampled;
mod stacks;
mod threads;

pub use realloc::reallocate;
pub use threads::{begin_early, note_exit, note_fork};

use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, COUNTING, Core, EXACT, PAUSED};
use crate::local::Local;
use crate::memo::Memo;
use crate::resume_state::ResumeState;
use crate::sampling;
use channel::{Kind, encode_alloc, encode_free, is_map_call};
use core::sync::atomic::Ordering;
use entering::{AtWork, Entered, Quick, enter, enter_quickly, leave};
use stacks::{known_stack, remembered, remembered_elsewhere, walk_and_write};

/// Called before an allocation. Prefetches what the memo will compare, while the real function works.
#[inline(always)]
pub fn allocating(context: &Context) {
    let local = CORE.only.load(Ordering::Relaxed);
    if !local.is_null() {
        // SAFETY: `Core::begin_thread` stores a local in `only` after `Local::begin` has made its memo, and locals stay
        // mapped.
        unsafe { Memo::fetch(&raw const (*local).memo, context.ret, context.cfa()) };
    }
}

/// Called after an allocation that returned `address`.
#[inline(always)]
pub fn allocated(context: &mut Context, address: u64, size: u64) -> Next {
    if address == 0 {
        return Next::DONE;
    }
    let core = &CORE;
    if is_plainly_recording(core)
        && let Some(entered) = enter_quickly(core, context.cfa())
    {
        return allocated_quickly(entered, context, address, size);
    }
    context.arguments = [address, size, 0];
    context.resume_state = ResumeState::NOTHING;
    Next::then(allocated_slowly)
}

/// Returns true if recording is on, every block is recorded, and nothing special is going on.
#[inline(always)]
fn is_plainly_recording(core: &Core) -> bool {
    core.gate() & (ACTIVE | EXACT | PAUSED | COUNTING) == ACTIVE | EXACT
}

/// The part of `allocated` that nearly all allocations take. The guard is up for `entered`.
#[inline(always)]
fn allocated_quickly(mut entered: Quick, context: &mut Context, address: u64, size: u64) -> Next {
    let core = &CORE;
    entered.writer(core).begin_events(1);
    // SAFETY: a `Quick` is the calling thread's own local, and the guard of its main level is up for this hook.
    let known = unsafe { remembered(core, entered.local, context) };
    if let Ok(stack) = known
        && entered.writer(core).write_quickly(|stamp| encode_alloc(stamp, address, size, stack))
    {
        leave(&mut entered);
        return Next::DONE;
    }
    context.arguments = [address, size, entered.local as u64];
    match known {
        Ok(stack) => {
            context.resume_state = ResumeState::of_stack(stack);
            Next::then(allocated_without_room)
        }
        Err(miss) => {
            context.resume_state = ResumeState::of_miss(miss);
            Next::then(allocated_elsewhere)
        }
    }
}

/// Next part after `allocated`: the memo's first candidate is another stack. The guard is up. Arguments: the address,
/// the size, the thread's state. Resume state: the miss.
extern "C" fn allocated_elsewhere(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, local] = context.arguments;
    let mut entered = Quick { local: local as *mut Local };
    // SAFETY: `local` is what `enter_quickly` returned in `allocated`: the calling thread's own, with the guard of its
    // main level up for this hook until `leave`. There, `remembered` has failed with this miss.
    match unsafe { remembered_elsewhere(entered.local, context, context.resume_state.miss()) } {
        Ok(stack) => {
            entered.writer(core).write(|stamp| encode_alloc(stamp, address, size, stack));
            leave(&mut entered);
            Next::DONE
        }
        Err(miss) => {
            context.resume_state = ResumeState::of_miss(miss);
            Next::then(allocated_slowly)
        }
    }
}

/// Next part after `allocated`: the stack is known, but there was no room in the ring, or the clock must be read by a
/// function call. Arguments as for `allocated_elsewhere`. Resume state: the stack.
#[cold]
extern "C" fn allocated_without_room(context: &mut Context) -> Next {
    let [address, size, local] = context.arguments;
    let mut entered = Quick { local: local as *mut Local };
    let stack = context.resume_state.stack();
    entered.writer(&CORE).write(|stamp| encode_alloc(stamp, address, size, stack));
    leave(&mut entered);
    Next::DONE
}

/// Next part for all other cases: recording is off or paused, a thread's first event, a hook that interrupts a hook, a
/// stack that must be walked, a test that counts allocations. Arguments: the address, the size, and the thread's state,
/// or 0. If it is not 0, the guard is up, the event was begun, and the resume state is the miss.
#[cold]
extern "C" fn allocated_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, local] = context.arguments;
    let mut entered = if local != 0 {
        Entered { local: local as *mut Local, nested: false }
    } else {
        let gate = core.gate_or_join();
        if gate & (ACTIVE | PAUSED) != ACTIVE {
            core.note_early();
            return Next::DONE;
        }
        if sampling::concerns(gate, address) {
            return Next::then(sampled::decide_about);
        }
        let Some(mut entered) = enter(core, context.cfa()) else { return Next::DONE };
        entered.writer(core).begin_events(1);
        entered
    };
    let known = if local != 0 { Err(context.resume_state.miss()) } else { known_stack(core, &entered, context) };
    match known {
        Ok(stack) => entered.writer(core).write(|stamp| encode_alloc(stamp, address, size, stack)),
        Err(miss) => {
            context.resume_state = ResumeState::of_miss(miss);
            walk_and_write(core, &mut entered, context, 1, |stamp, stack| encode_alloc(stamp, address, size, stack));
        }
    }
    leave(&mut entered);
    if core.gate() & COUNTING != 0 && !is_map_call(size) {
        core.counted();
    }
    Next::DONE
}

/// Called before a free of `address`. `cfa` is the CFA of the hook.
#[inline(always)]
pub fn freeing(address: u64, cfa: u64) {
    if address == 0 {
        return;
    }
    let core = &CORE;
    if core.gate() & EXACT != 0
        && let Some(mut entered) = enter_quickly(core, cfa)
    {
        entered.writer(core).begin_events(1);
        if entered.writer(core).write_quickly(|stamp| encode_free(Kind::Free, stamp, address)) {
            leave(&mut entered);
            return;
        }
        freed_without_room(address, entered.local);
        return;
    }
    freeing_slowly(address, cfa);
}

/// Writes a free if there was no room in the ring, or if the clock must be read by a function call. The guard is up and
/// the event was begun.
#[cold]
#[inline(never)]
fn freed_without_room(address: u64, local: *mut Local) {
    let mut entered = Quick { local };
    entered.writer(&CORE).write(|stamp| encode_free(Kind::Free, stamp, address));
    leave(&mut entered);
}

#[cold]
#[inline(never)]
fn freeing_slowly(address: u64, cfa: u64) {
    let core = &CORE;
    let gate = core.gate_or_join();
    if sampling::concerns(gate, address) {
        return sampled::freeing(address, cfa);
    }
    if gate & ACTIVE == 0 || families::free_inside(address, cfa) {
        return;
    }
    let Some(mut entered) = enter(core, cfa) else { return };
    entered.writer(core).begin_events(1);
    entered.writer(core).write(|stamp| encode_free(Kind::Free, stamp, address));
    leave(&mut entered);
}
