//! What happens around a function of an allocator family in a program that was launched: see [`crate::families`].
//!
//! The guard is up while the allocator's function runs, and `inside` names its module, so that calls which the allocator
//! makes to other hooked functions are passed over. An exception that leaves the function takes the guard down on its
//! way, see [`unwound`].
use super::{
    Entered, Writer, allocated, clear_intent, enter, leave, publish_intent, reallocated, resume, stamp, write,
};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use crate::entry::{Entry, Range};
use crate::local::thread_pointer;
use channel::{Kind, encode_free};

/// What a shim keeps on the stack, lowest address first.
#[repr(C)]
pub struct Call {
    /// rcx, r8 and r9 as the caller left them.
    pub arguments: [u64; 3],
    /// Of a resize: the stamp of the free. From `after_*` on: what the shim returns.
    pub kept: u64,
    /// `inside` of the thread before this call: a signal handler may have interrupted another one.
    outer: Range,
    pub context: Context,
}

impl Call {
    /// What a shim reserves below the return address.
    pub const SAVED: usize = size_of::<Call>() - 8;
}

const _: () = assert!(Call::SAVED == 136 && Call::SAVED % 16 == 8);

/// `Context::differs` between the two halves.
const UNGUARDED: u64 = 0;
const GUARDED: u64 = 1;
const NOT_THE_PROGRAMS: u64 = 2;

/// Raises the guard. Returns `None` when the call is not to be recorded, or cannot be; `differs` says which.
#[inline(always)]
fn begin(call: &mut Call, entry: &Entry) -> Option<Entered> {
    call.context.differs = UNGUARDED;
    if CORE.gate_or_join() & ACTIVE == 0 {
        return None;
    }
    let Some(mut entered) = enter(&CORE, call.context.cfa()) else {
        call.context.differs = NOT_THE_PROGRAMS;
        return None;
    };
    call.context.differs = GUARDED;
    call.outer = entered.local().inside;
    entered.local().inside = entry.module;
    Some(entered)
}

/// The allocator's function has returned. Returns the hook of `begin`, whose guard is still up.
#[inline(always)]
fn end(call: &mut Call) -> Option<Entered> {
    call.kept = call.context.result;
    if call.context.differs != GUARDED {
        return None;
    }
    let mut entered = resume(&CORE, call.context.cfa())?;
    entered.local().inside = call.outer;
    Some(entered)
}

pub fn before_allocation(call: &mut Call, entry: &Entry) {
    begin(call, entry);
}

/// After an allocation that gave `address`, 0 = it failed.
#[inline(always)]
pub fn after_allocation(call: &mut Call, address: u64, size: u64) -> Next {
    if let Some(mut entered) = end(call) {
        leave(&mut entered);
    }
    if call.context.differs == NOT_THE_PROGRAMS {
        return Next::DONE;
    }
    allocated(&mut call.context, address, size)
}

/// A free is written before the allocator's function runs, as every free is.
pub fn before_free(call: &mut Call, entry: &Entry) {
    let [address, ..] = call.context.arguments;
    if address == 0 {
        call.context.differs = UNGUARDED;
        return;
    }
    if let Some(mut entered) = begin(call, entry) {
        write(&CORE, &mut entered, |stamp| encode_free(Kind::Free, stamp, address));
    }
}

pub fn after_free(call: &mut Call) -> Next {
    if let Some(mut entered) = end(call) {
        leave(&mut entered);
    }
    Next::DONE
}

/// As in `events::reallocate`: the intent stays up through the allocator's function, so that the free is not overtaken
/// by another thread that gets the old address.
pub fn before_resize(call: &mut Call, entry: &Entry) {
    let [old, ..] = call.context.arguments;
    let Some(mut entered) = begin(call, entry) else { return };
    if old != 0 {
        publish_intent(&mut entered);
        call.kept = stamp(&CORE, &mut entered);
    }
}

/// What became of a resize.
pub enum Resized {
    /// The block is there now, with that size.
    To(u64, u64),
    /// It failed, and the block is as it was.
    Not,
    /// The block is gone.
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
    // `reallocated` takes a null with a size for a failure, and one without for a free.
    let (address, size) = match resized {
        Resized::To(address, size) => (address, size),
        Resized::Not => (0, 1),
        Resized::Freed => (0, 0),
    };
    call.context.result = address;
    call.context.arguments = [old, size, freed_at];
    Next::then(reallocated)
}

/// An exception has left the allocator's function and goes through the shim's frame: the guard and the intent come down.
/// The innermost hook of the thread is the one whose frame is being unwound.
pub fn unwound() {
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    let Some(local) = CORE.threads().find(thread_pointer()) else { return };
    // SAFETY: the calling thread's own state.
    let nested = unsafe { (*local).nested.guard } != 0;
    let mut entered = Entered { local, nested };
    if entered.level().guard == 0 || entered.local().inside == Range::NONE {
        return;
    }
    if !nested {
        entered.local().inside = Range::NONE;
    }
    clear_intent(&mut entered);
    leave(&mut entered);
}
