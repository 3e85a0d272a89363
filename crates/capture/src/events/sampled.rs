//! What a hook does in a recording that samples: it records only blocks that `sampling.rs` takes, and their frees.
//!
//! A block that was taken is put into `live_blocks` before its event is written, and so before the program gets its
//! address. A free takes it out before the real function runs.
use super::entering::{AtWork, Entered, enter, leave};
use super::families;
use super::realloc::{allocator_of, call_inside, call_unrecorded, resume, write_stamped_free};
use super::stacks::{known_stack, walk_and_write};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, COUNTING, Core, PAUSED};
use crate::entry::Allocator;
use crate::hooks::Hook;
use crate::real::function;
use crate::resume_state::ResumeState;
use crate::sampling::{self, heaps, live_blocks, plain_size};
use channel::{Kind, Loss, encode_alloc, encode_free, is_tagged_in_heap, sampled_bytes};

/// Next part after an allocation about which nothing is decided yet. Arguments: the address and the size. The gate is
/// active.
#[cold]
pub(super) extern "C" fn decide_about(context: &mut Context) -> Next {
    if sampling::takes(plain_size(context.arguments[1])) { Next::then(record) } else { Next::DONE }
}

/// Called after an allocation that was taken before the real call.
#[inline(always)]
pub fn allocated(context: &mut Context, address: u64, size: u64) -> Next {
    if address == 0 {
        return Next::DONE;
    }
    context.arguments = [address, size, 0];
    Next::then(record)
}

/// Next part of an allocation that is taken. Arguments: the address and the size.
#[cold]
extern "C" fn record(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, _] = context.arguments;
    if core.gate() & (ACTIVE | PAUSED) != ACTIVE {
        return Next::DONE;
    }
    let Some(mut entered) = enter(core, context.cfa()) else { return Next::DONE };
    if keep(core, &mut entered, address, size, None) {
        write_allocation(core, &mut entered, context, address, size);
    }
    leave(&mut entered);
    count(core);
    Next::DONE
}

/// Puts a block into `live_blocks`. Returns false if there is no room, and counts the loss. `stays_in`: the number of the
/// heap of the block that was at this address and was resized in place.
fn keep(core: &Core, entered: &mut Entered, address: u64, size: u64, stays_in: Option<u16>) -> bool {
    let heap = match stays_in {
        Some(heap) => Some(heap),
        None if is_tagged_in_heap(size) => heaps::number(entered.level().heap),
        None => Some(0),
    };
    let is_kept = heap.is_some_and(|heap| live_blocks::insert(address, heap));
    if is_kept {
        sampling::note(address);
    } else {
        core.lose(Loss::SamplesFull);
    }
    is_kept
}

/// For tests: stops after the allocations that they ask for.
fn count(core: &Core) {
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
}

fn write_allocation(core: &Core, entered: &mut Entered, context: &mut Context, address: u64, size: u64) {
    entered.writer(core).begin_events(1);
    match known_stack(core, entered, context) {
        Ok(stack) => entered.writer(core).write(|stamp| encode_alloc(stamp, address, size, stack)),
        Err(miss) => {
            context.resume_state = ResumeState::of_miss(miss);
            walk_and_write(core, entered, context, 1, |stamp, stack| encode_alloc(stamp, address, size, stack));
        }
    }
}

/// Takes a block that is about to be freed out of `live_blocks`. Returns `None` if it was not taken. Otherwise returns
/// the kind of its event: a plain free of a thread's latest sampled block makes it temporary, so if the thread has
/// allocated in between, the free is written as that of a realloc, which never does.
pub(super) fn release(address: u64) -> Option<Kind> {
    let kind = if sampling::is_latest(address, 0) { Kind::Free } else { Kind::FreeByRealloc };
    live_blocks::remove(address).map(|_| kind)
}

/// Called before a free. `cfa` is the CFA of the hook.
#[inline(never)]
pub fn freeing(address: u64, cfa: u64) {
    let core = &CORE;
    if address == 0 || core.gate_or_join() & ACTIVE == 0 {
        return;
    }
    if crate::families::is_any_enabled() && families::free_inside(address, cfa) {
        return;
    }
    if !live_blocks::has(address) {
        return;
    }
    // A realloc to 0 bytes may call free. `enter` refuses that call, and the hook of the realloc takes the block out.
    let Some(mut entered) = enter(core, cfa) else { return };
    if let Some(kind) = release(address) {
        entered.writer(core).begin_events(1);
        entered.writer(core).write(|stamp| encode_free(kind, stamp, address));
    }
    leave(&mut entered);
}

/// Next part after the real realloc of a live block, by a hook that decided nothing before. The guard is up and the
/// intent is published. Arguments: the old address, the new size, the stamp of the free.
#[cold]
pub(super) extern "C" fn moved(context: &mut Context) -> Next {
    let core = &CORE;
    let [old, size, freed_at] = context.arguments;
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    let heap = live_blocks::remove(old);
    if heap.is_some() {
        write_stamped_free(&mut entered, Kind::FreeByRealloc, old, freed_at);
    }
    entered.writer(core).clear_intent();
    let is_taken = core.gate() & PAUSED == 0 && sampling::takes(plain_size(size));
    let stays_in = heap.filter(|_| context.result == old);
    if is_taken && keep(core, &mut entered, context.result, size, stays_in) {
        write_allocation(core, &mut entered, context, context.result, size);
    }
    leave(&mut entered);
    count(core);
    Next::DONE
}

/// A realloc whose old block may have been taken, or whose new block is taken, including the call of the real function.
pub fn reallocate(context: &mut Context, size: u64, is_taken: bool) -> Next {
    let [a, b, c] = context.arguments;
    let core = &CORE;
    let real = function(Hook::REALLOC);
    let call = || real(a as usize, b as usize, c as usize) as u64;
    if core.gate_or_join() & ACTIVE == 0 {
        context.result = call();
        return Next::DONE;
    }
    // A realloc to 0 bytes frees. If its block is the thread's latest, the block is temporary.
    let is_latest = size == 0 && sampling::is_latest(a, sampled_bytes(size));
    if a == 0 || !live_blocks::has(a) {
        context.result = call_unrecorded(real, context);
        return if is_taken { allocated(context, context.result, size) } else { Next::DONE };
    }
    // If `enter` refuses, the block stays in `live_blocks`: its free can still be recorded by another hook.
    let Some(mut entered) = enter(core, context.cfa()) else {
        context.result = call();
        return Next::DONE;
    };
    // Before the real call, because afterwards another thread may get the address. The result does not matter: only a
    // program that frees a block twice can have removed it meanwhile.
    let heap = live_blocks::remove(a).unwrap_or(0);
    let mut writer = entered.writer(core);
    writer.publish_intent();
    let freed_at = writer.stamp();
    context.result = match allocator_of(real) {
        Some(inside) => call_inside(&mut entered, Allocator { inside, freed: a }, call),
        None => call(),
    };
    context.arguments = [a, size, freed_at];
    context.resume_state = ResumeState::of_flags(is_taken, is_latest, heap);
    Next::then(reallocated)
}

/// Next part after the real realloc of a block that was taken. The guard is up and the intent is published. Arguments as
/// for `moved`. Resume state: whether the new block is taken, whether the old one is the thread's latest, and its heap.
#[cold]
extern "C" fn reallocated(context: &mut Context) -> Next {
    let core = &CORE;
    let [old, size, freed_at] = context.arguments;
    let (is_taken, is_latest, heap) = context.resume_state.flags();
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    let has_failed = context.result == 0 && size != 0;
    if has_failed {
        // The old block is still there.
        keep(core, &mut entered, old, 0, Some(heap));
    } else {
        let kind = if context.result == 0 && is_latest { Kind::Free } else { Kind::FreeByRealloc };
        write_stamped_free(&mut entered, kind, old, freed_at);
    }
    entered.writer(core).clear_intent();
    let stays_in = (context.result == old).then_some(heap);
    let is_taken = context.result != 0 && is_taken && core.gate() & PAUSED == 0;
    if is_taken && keep(core, &mut entered, context.result, size, stays_in) {
        write_allocation(core, &mut entered, context, context.result, size);
    }
    leave(&mut entered);
    count(core);
    Next::DONE
}
