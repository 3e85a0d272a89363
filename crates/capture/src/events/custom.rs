//! Events that the program reports itself, for blocks of its own allocators. Also a realloc while recording is paused.
//!
//! Such a block is recorded like any other one. Only its domain differs, which is a bit of its address. The program
//! reports a realloc when it is over, so its free and its allocation are stamped one right after the other, the free
//! first.
use super::entering::{AtWork, enter, leave};
use super::realloc::{reallocated, resume, write_stamped_free};
use super::{allocated, freeing};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use channel::{CUSTOM, Kind, MAX_SIZE, encode_free};

/// A program may report any size. A larger size is recorded as this one.
const LARGEST: u64 = MAX_SIZE >> 1;

/// Sets the domain in the address. Null stays null.
#[inline(always)]
const fn custom(address: u64) -> u64 {
    if address == 0 { 0 } else { address & (CUSTOM - 1) | CUSTOM }
}

/// Records a block that the program has allocated itself. Arguments: the address and the size.
pub extern "C" fn reported_alloc(context: &mut Context) -> Next {
    let [address, size, _] = context.arguments;
    allocated(context, custom(address), if size < LARGEST { size } else { LARGEST })
}

pub extern "C" fn reported_free(address: u64, cfa: u64) {
    freeing(custom(address), cfa);
}

/// Called before the program resizes a block itself. Recorded as the free half of a realloc, so the old block does not
/// count as temporary. The program reports the new block afterwards.
pub extern "C" fn reported_moving(address: u64, cfa: u64) {
    if CORE.gate_or_join() & ACTIVE == 0 || address == 0 {
        return;
    }
    let Some(mut entered) = enter(&CORE, cfa) else { return };
    entered.writer(&CORE).begin_events(1);
    entered.writer(&CORE).write(|stamp| encode_free(Kind::FreeByRealloc, stamp, custom(address)));
    leave(&mut entered);
}

/// Records a realloc that the program has made itself. Arguments: the old address, the new size, the new address. If
/// the old address is null, it is an allocation. If the new address is null, it is a free if zero bytes were asked for;
/// otherwise the realloc failed and nothing is recorded.
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
    if CORE.gate_or_join() & ACTIVE == 0 {
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

/// Next part after a realloc while recording is paused: only its free is recorded. The guard is up and the intent is
/// published. Arguments as for `reallocated`.
#[cold]
pub(super) extern "C" fn moved_while_paused(context: &mut Context) -> Next {
    free_alone(context, Kind::FreeByRealloc);
    Next::DONE
}

/// Writes only the free half of a realloc, and leaves the hook.
pub(super) fn free_alone(context: &mut Context, kind: Kind) {
    let [old, _, freed_at] = context.arguments;
    let Some(mut entered) = resume(&CORE, context.cfa()) else { return };
    write_stamped_free(&mut entered, kind, old, freed_at);
    entered.writer(&CORE).clear_intent();
    leave(&mut entered);
}
