//! What happens in a hook: find the thread's state, find or walk the stack, write the event.
//!
//! An allocation is stamped after the real call, a free before it, so that of two threads that hand an address over
//! the free has the older stamp. How an event gets into the ring is said in `channel/src/writer.rs`.
pub mod attached;
pub mod custom;
mod entering;
pub mod families;
mod realloc;
mod stacks;
mod threads;

pub use realloc::reallocate;
pub use threads::begin_early;

use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, COUNTING, PAUSED};
use crate::local::Local;
use crate::memo::Memo;
use crate::resume_state::ResumeState;
use channel::{Kind, encode_alloc, encode_free};
use core::sync::atomic::Ordering;
use entering::{AtWork, Entered, Quick, enter, enter_quickly, leave};
use stacks::{known_stack, remembered, remembered_elsewhere, walk_and_write};

/// Before an allocation: fetches what the memo will compare into the cache while the real function works.
#[inline(always)]
pub fn allocating(context: &Context) {
    let local = CORE.only.load(Ordering::Relaxed);
    if !local.is_null() {
        // SAFETY: `Core::begin_thread` stores a local in `only` after `Local::begin` has made its memo, and locals stay
        // mapped.
        unsafe { Memo::fetch(&raw const (*local).memo, context.ret, context.cfa()) };
    }
}

/// After an allocation that returned `address`.
#[inline(always)]
pub fn allocated(context: &mut Context, address: u64, size: u64) -> Next {
    if address == 0 {
        return Next::DONE;
    }
    let core = &CORE;
    if core.gate() & (ACTIVE | PAUSED | COUNTING) == ACTIVE
        && let Some(mut entered) = enter_quickly(core, context.cfa())
    {
        entered.writer(core).begin_events(1);
        // SAFETY: `enter_quickly` returned the calling thread's own local, and put the guard of its main level up for
        // us.
        let known = unsafe { remembered(core, entered.local, context) };
        if let Ok(stack) = known
            && entered.writer(core).write_quickly(|stamp| encode_alloc(stamp, address, size, stack))
        {
            leave(&mut entered);
            return Next::DONE;
        }
        context.arguments = [address, size, entered.local as u64];
        return match known {
            Ok(stack) => {
                context.resume_state = ResumeState::of_stack(stack);
                Next::then(allocated_without_room)
            }
            Err(miss) => {
                context.resume_state = ResumeState::of_miss(miss);
                Next::then(allocated_elsewhere)
            }
        };
    }
    context.arguments = [address, size, 0];
    context.resume_state = ResumeState::NOTHING;
    Next::then(allocated_slowly)
}

/// The youngest of its set is another stack. The guard is up. Arguments: the address, the size, the thread's state;
/// where the youngest differs.
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

/// As `allocated_elsewhere`, but the stack is known.
#[cold]
extern "C" fn allocated_without_room(context: &mut Context) -> Next {
    let [address, size, local] = context.arguments;
    let mut entered = Quick { local: local as *mut Local };
    let stack = context.resume_state.stack();
    entered.writer(&CORE).write(|stamp| encode_alloc(stamp, address, size, stack));
    leave(&mut entered);
    Next::DONE
}

/// A thread's first event, a hook inside a hook, a stack that is not remembered, a test that counts.
/// Arguments: the address, the size, and the thread's state if the guard is up and the event was begun.
#[cold]
extern "C" fn allocated_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, local] = context.arguments;
    let mut entered = if local != 0 {
        Entered { local: local as *mut Local, nested: false }
    } else {
        if core.gate_or_join() & (ACTIVE | PAUSED) != ACTIVE {
            return Next::DONE;
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
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
    Next::DONE
}

/// Before a free of `address`. `cfa`: the hook's caller's stack pointer.
#[inline(always)]
pub fn freeing(address: u64, cfa: u64) {
    if address == 0 {
        return;
    }
    let core = &CORE;
    if core.gate() & ACTIVE != 0
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

/// The guard is up and the event was begun.
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
    if core.gate_or_join() & ACTIVE == 0 || families::free_inside(address, cfa) {
        return;
    }
    let Some(mut entered) = enter(core, cfa) else { return };
    entered.writer(core).begin_events(1);
    entered.writer(core).write(|stamp| encode_free(Kind::Free, stamp, address));
    leave(&mut entered);
}
