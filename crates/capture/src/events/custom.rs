//! Events that the program itself asks for: blocks of its own allocators, and what a pause leaves of a realloc.
//!
//! Such a block is like any other but for its domain, a bit of its address: the same walk, ring and records. The calls
//! come after the fact, so a move is stamped as freed and allocated at once, free first.
use super::entering::{AtWork, enter, leave};
use super::realloc::{reallocated, resume, write_stamped_free};
use super::{allocated, freeing};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use channel::{CUSTOM, Kind, MAX_SIZE, encode_free};

/// What a program may say is anything; what the format holds is not.
const LARGEST: u64 = MAX_SIZE >> 1;

/// The domain goes into the address. Null stays null.
#[inline(always)]
const fn custom(address: u64) -> u64 {
    if address == 0 { 0 } else { address & (CUSTOM - 1) | CUSTOM }
}

/// Arguments: the address and the size.
pub extern "C" fn reported_alloc(context: &mut Context) -> Next {
    let [address, size, _] = context.arguments;
    allocated(context, custom(address), if size < LARGEST { size } else { LARGEST })
}

pub extern "C" fn reported_free(address: u64, cfa: u64) {
    freeing(custom(address), cfa);
}

/// Before a realloc of the program's own: a free that makes no block temporary. What it becomes is reported afterwards.
pub extern "C" fn reported_moving(address: u64, cfa: u64) {
    if CORE.gate() & ACTIVE == 0 || address == 0 {
        return;
    }
    let Some(mut entered) = enter(&CORE, cfa) else { return };
    entered.writer(&CORE).begin_events(1);
    entered.writer(&CORE).write(|stamp| encode_free(Kind::FreeByRealloc, stamp, custom(address)));
    leave(&mut entered);
}

/// Arguments: the old address, the new size, the new address. Null before: an allocation. Null after: a free if zero
/// bytes were asked for, else nothing happened.
pub extern "C" fn reported_realloc(context: &mut Context) -> Next {
    let [old, size, new] = context.arguments;
    let size = if size < LARGEST { size } else { LARGEST };
    if old == 0 {
        return allocated(context, custom(new), size);
    }
    if new == 0 {
        if size == 0 {
            freeing(custom(old), context.cfa());
        }
        return Next::DONE;
    }
    if CORE.gate() & ACTIVE == 0 {
        return Next::DONE;
    }
    let core = &CORE;
    let Some(mut entered) = enter(core, context.cfa()) else { return Next::DONE };
    let mut writer = entered.writer(core);
    writer.publish_intent();
    context.result = custom(new);
    context.arguments = [custom(old), size, writer.stamp()];
    Next::then(reallocated)
}

/// After a realloc of a live block, the guard and the intent up: only its free is told. Arguments as for `reallocated`.
#[cold]
pub(super) extern "C" fn moved_while_paused(context: &mut Context) -> Next {
    free_alone(context, Kind::FreeByRealloc);
    Next::DONE
}

/// Writes the free half of a realloc that has no other half, and leaves.
pub(super) fn free_alone(context: &mut Context, kind: Kind) {
    let [old, _, freed_at] = context.arguments;
    let Some(mut entered) = resume(&CORE, context.cfa()) else { return };
    write_stamped_free(&mut entered, kind, old, freed_at);
    entered.writer(&CORE).clear_intent();
    leave(&mut entered);
}
