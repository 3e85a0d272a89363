//! A realloc is a free that is stamped before the real call, and an allocation that is stamped after it. Both are
//! written in one commit.
use super::entering::{AtWork, Entered, enter, leave};
use super::stacks::{known_stack, walk_and_write};
use super::{allocated, custom, sampled};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, COUNTING, Core, EXACT, PAUSED};
use crate::entry::{Allocator, Range};
use crate::families;
use crate::hooks::Hook;
use crate::local::thread_pointer;
use crate::nesting;
use crate::real;
use crate::resume_state::ResumeState;
use crate::sampling;
use channel::{ALLOC_WORDS, FREE_WORDS, Kind, StackId, Stamp, encode_alloc, encode_free};

/// A realloc, including the call of the real function. Nothing is recorded if it fails.
#[inline(always)]
pub fn reallocate(hook: Hook, context: &mut Context, size: u64) -> Next {
    let [a, b, c] = context.arguments;
    let real = real::function(hook);
    let call = || real(a as usize, b as usize, c as usize) as u64;
    let core = &CORE;
    if core.gate_or_join() & ACTIVE == 0 {
        context.result = call();
        return Next::DONE;
    }
    if a == 0 {
        context.result = call_unrecorded(real, context);
        context.arguments = [context.result, size, 0];
        return Next::then(new_block);
    }
    let Some(mut entered) = enter(core, context.cfa()) else {
        context.result = call();
        return Next::DONE;
    };
    // The guard stays up, so a signal handler that interrupts the real function records in the other ring. The intent
    // stays published, because another thread may get the old address, and its allocation must not be merged before
    // this free.
    let mut writer = entered.writer(core);
    writer.publish_intent();
    let freed_at = writer.stamp();
    context.result = match nesting::libc().or_else(|| allocator_of(real)) {
        Some(inside) => call_inside(&mut entered, Allocator { inside, freed: a }, call),
        None => call(),
    };
    context.arguments = [a, size, freed_at];
    Next::then(reallocated)
}

/// Returns the module with the real realloc if other functions of it are hooked: mimalloc's realloc calls its `mi_malloc` or
/// its `mi_heap_realloc`.
#[inline(always)]
pub(super) fn allocator_of(real: real::Function) -> Option<Range> {
    if families::is_any_enabled() { families::module_of(real as usize as u64) } else { None }
}

/// Calls the real realloc for a block that is not recorded as one that moves, or for none. What the allocator allocates by
/// other hooked functions meanwhile is not the program's.
#[inline(always)]
pub(super) fn call_unrecorded(real: real::Function, context: &Context) -> u64 {
    let [a, b, c] = context.arguments;
    let call = || real(a as usize, b as usize, c as usize) as u64;
    match allocator_of(real).and_then(|allocator| Some((enter(&CORE, context.cfa())?, allocator))) {
        Some((mut entered, inside)) => {
            let result = call_inside(&mut entered, Allocator { inside, freed: a }, call);
            leave(&mut entered);
            result
        }
        None => call(),
    }
}

/// Makes a call of a function of the allocator. What it allocates by other hooked functions is ignored, and so is its free
/// of the block that it resizes.
#[inline(always)]
pub(super) fn call_inside(entered: &mut Entered, allocator: Allocator, call: impl Fn() -> u64) -> u64 {
    entered.begin_call(allocator);
    let result = call();
    entered.end_call();
    result
}

/// Next part of `realloc(NULL, size)`. Arguments: the address and the size.
extern "C" fn new_block(context: &mut Context) -> Next {
    let [address, size, _] = context.arguments;
    allocated(context, address, size)
}

/// Returns the hook that an earlier part has entered, for the same frame.
#[inline(always)]
pub(super) fn resume(core: &Core, cfa: u64) -> Option<Entered> {
    let local = core.threads().find(thread_pointer())?;
    // SAFETY: `find` returns the calling thread's own local (see `Local`).
    let nested = unsafe { (*local).main.guard } != cfa;
    Some(Entered { local, nested })
}

/// Next part after the real realloc of a live block. The guard is up and the intent is published. Arguments: the old
/// address, the new size, the stamp of the free.
pub(super) extern "C" fn reallocated(context: &mut Context) -> Next {
    let core = &CORE;
    if context.result == 0 {
        return Next::then(realloc_returned_null);
    }
    if core.gate() & (PAUSED | EXACT) != EXACT {
        return Next::then(moved_specially);
    }
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    match known_stack(core, &entered, context) {
        Ok(stack) => moved(core, &mut entered, context, stack),
        Err(miss) => {
            context.resume_state = ResumeState::of_miss(miss);
            Next::then(moved_slowly)
        }
    }
}

/// Next part if realloc returned null. With a size of zero it has freed the block. Otherwise it has failed.
#[cold]
extern "C" fn realloc_returned_null(context: &mut Context) -> Next {
    let core = &CORE;
    let [old, size, freed_at] = context.arguments;
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    let is_sampled = sampling::concerns(core.gate(), old);
    let kind = if is_sampled && size == 0 { sampled::release(old) } else { Some(Kind::Free) };
    if let Some(kind) = kind.filter(|_| size == 0) {
        write_stamped_free(&mut entered, kind, old, freed_at);
    }
    entered.writer(core).clear_intent();
    leave(&mut entered);
    Next::DONE
}

/// Writes a free with a stamp that was taken before.
pub(super) fn write_stamped_free(entered: &mut Entered, kind: Kind, address: u64, freed_at: Stamp) {
    let mut writer = entered.writer(&CORE);
    writer.begin_events(1);
    if writer.has_room_or_drops(FREE_WORDS, 1) {
        writer.commit(writer.head(), encode_free(kind, freed_at, address), 1);
    }
}

/// Next part after the real realloc if recording is paused, or if blocks are sampled. The guard is up and the intent is
/// published. Arguments as for `reallocated`.
#[cold]
extern "C" fn moved_specially(context: &mut Context) -> Next {
    let gate = CORE.gate();
    if sampling::concerns(gate, context.arguments[0]) {
        return Next::then(sampled::moved);
    }
    if gate & PAUSED != 0 {
        return Next::then(custom::moved_while_paused);
    }
    let Some(mut entered) = resume(&CORE, context.cfa()) else { return Next::DONE };
    match known_stack(&CORE, &entered, context) {
        Ok(stack) => moved(&CORE, &mut entered, context, stack),
        Err(miss) => {
            context.resume_state = ResumeState::of_miss(miss);
            Next::then(moved_slowly)
        }
    }
}

#[cold]
extern "C" fn moved_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    let (arguments, new) = (context.arguments, context.result);
    entered.writer(core).begin_events(2);
    if !walk_and_write(core, &mut entered, context, 2, |stamp, stack| encode_move(arguments, new, stamp, stack)) {
        entered.writer(core).clear_intent();
    }
    leave(&mut entered);
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
    Next::DONE
}

#[inline(always)]
fn moved(core: &Core, entered: &mut Entered, context: &Context, stack: StackId) -> Next {
    let mut writer = entered.writer(core);
    writer.begin_events(2);
    if writer.has_room_or_drops(MOVE_WORDS, 2) {
        let stamp = writer.stamp();
        writer.commit(writer.head(), encode_move(context.arguments, context.result, stamp, stack), 2);
    } else {
        writer.clear_intent();
    }
    leave(entered);
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
    Next::DONE
}

const MOVE_WORDS: usize = FREE_WORDS + ALLOC_WORDS;

/// Encodes both halves of a realloc. Arguments as for `reallocated`; `stamp` is that of the allocation.
#[inline(always)]
fn encode_move(arguments: [u64; 3], new: u64, stamp: Stamp, stack: StackId) -> [u64; MOVE_WORDS] {
    let [old, size, freed_at] = arguments;
    let [f0, f1] = encode_free(Kind::FreeByRealloc, freed_at, old);
    let [a0, a1, a2] = encode_alloc(stamp, new, size, stack);
    [f0, f1, a0, a1, a2]
}
