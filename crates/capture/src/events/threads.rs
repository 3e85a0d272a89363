//! What a thread does before its first event: it takes a slot and writes a record with its tid.
use super::entering::{AtWork, Entered, Quick, leave};
use crate::core::{ACTIVE, Core};
use crate::local::{self, Local, Slot, thread_pointer};
use crate::sandbox::Calling;
use crate::sys;
use channel::{Loss, RingWriter};
use core::sync::atomic::{Ordering, compiler_fence};

/// Called before the thread enters a sandbox, while it can still make system calls. Takes a slot for it, and finds out
/// which pages of its stack can be read.
pub fn begin_early(core: &Core) {
    let pointer = thread_pointer();
    let Some(local) = core.threads().find(pointer).or_else(|| begin_thread(core, pointer)) else { return };
    let word = 0_u64;
    let in_use = &raw const word as u64;
    // SAFETY: `find` and `begin_thread` return the calling thread's own local (see `Local`).
    let guard = unsafe { &mut (*local).main.guard };
    if *guard != 0 {
        // This is in a signal handler that interrupted a hook, and the hook uses the proof.
        return;
    }
    *guard = in_use;
    compiler_fence(Ordering::SeqCst);
    // libc puts the thread block at the upper end of the stack of every thread but the first.
    let is_first = sys::gettid() == sys::getpid();
    let top = if is_first { core.stack_top.load(Ordering::Relaxed) } else { pointer };
    // SAFETY: the calling thread's own local (see `Local`). The guard is up, so a signal handler uses the other proof.
    unsafe { (*local).proof[0].prepare(in_use, top) };
    leave(&mut Quick { local });
}

/// Makes the state of a thread at its first event. Returns `None` if it cannot record.
#[cold]
#[inline(never)]
pub(super) fn begin_thread(core: &Core, pointer: u64) -> Option<*mut Local> {
    let _calls = Calling::begin();
    // A signal handler may have forked after the hook read the gate. A child must not take a slot of its parent.
    if core.gate() & ACTIVE == 0 {
        return None;
    }
    if !core.may_call() {
        core.lose(Loss::NoSlot);
        return None;
    }
    core.check_clock();
    let tid = sys::gettid();
    let offset = local::find_tid(pointer, tid, core.tid_offset.load(Ordering::Relaxed));
    if offset != 0 {
        core.tid_offset.store(offset, Ordering::Relaxed);
    }
    let inherited = inherit(core, pointer, tid);
    let is_new = inherited.is_none();
    let Some((local, slot)) = inherited.or_else(|| take_slot(core, tid)) else {
        core.lose(Loss::NoSlot);
        return None;
    };
    // SAFETY: `inherit` or `take_slot` has just made the calling thread the owner of `slot` by a compare-and-swap of
    // its owner word, and returned that slot's local.
    unsafe { Local::begin(local, core, slot, pointer, offset) };
    if is_new && !core.threads().enter(pointer, local) {
        slot.header.bury(slot.owner);
        core.lose(Loss::NoSlot);
        return None;
    }
    core.begin_thread(local);
    announce(core, local, tid);
    Some(local)
}

/// Writes that the process forks, or has forked: see `Event::Fork`. Writes nothing in a signal handler that has interrupted a
/// hook. The collector then learns of the child only when it joins.
pub fn note_fork(core: &Core, number: u32, pid: u32) {
    note(core, |writer| writer.note_fork(number, pid));
}

/// Writes that the process ends: see `Event::Exit`. Writes nothing in a signal handler that has interrupted a hook.
pub fn note_exit(core: &Core, code: u8) {
    note(core, |writer| writer.note_exit(code));
}

fn note(core: &Core, write: impl FnOnce(&mut RingWriter<'_, Core>)) {
    if core.gate() & ACTIVE == 0 || !core.may_call() {
        return;
    }
    let pointer = thread_pointer();
    let Some(local) = core.threads().find(pointer).or_else(|| begin_thread(core, pointer)) else { return };
    // SAFETY: `find` and `begin_thread` return the calling thread's own local (see `Local`).
    if unsafe { (*local).main.guard } != 0 {
        return;
    }
    let mut entered = Entered { local, nested: false };
    entered.level().guard = u64::MAX;
    compiler_fence(Ordering::SeqCst);
    write(&mut entered.writer(core));
    leave(&mut entered);
}

/// Takes over the slot of a dead thread that had the same thread pointer.
fn inherit(core: &Core, pointer: u64, tid: u32) -> Option<(*mut Local, Slot)> {
    let (local, dead) = core.threads().last(pointer)?;
    // SAFETY: locals stay mapped (see `Local`), and so do the slot headers that they point to.
    let header = unsafe { &*(*local).header };
    let owner = header.inherit(dead, tid)?;
    // SAFETY: locals stay mapped (see `Local`). The field has the same value for every owner of the slot, so it does
    // not change.
    let index = unsafe { (*local).slot };
    let area = core.area(index)?;
    Some((local, Slot { index, owner, header, area }))
}

/// Takes a free slot and maps its area.
fn take_slot(core: &Core, tid: u32) -> Option<(*mut Local, Slot)> {
    let region = core.region();
    let image = core.header().image.load(Ordering::Relaxed);
    let taken = region.take_slot(tid, image);
    let (index, owner) = taken.or_else(|| {
        core.map_far_slots();
        region.take_slot(tid, image)
    })?;
    let header = region.slot(index)?;
    let Some(area) = core.area(index) else {
        header.bury(owner);
        return None;
    };
    Some((core.local(index, area), Slot { index, owner, header, area }))
}

/// Writes the first records of a thread: its tid and, for the first thread, the number of the program image.
fn announce(core: &Core, local: *mut Local, tid: u32) {
    let mut entered = Entered { local, nested: false };
    entered.level().guard = u64::MAX;
    let new_image = || {
        let is_first = !core.announced.swap(true, Ordering::AcqRel);
        is_first.then(|| core.header().image.load(Ordering::Relaxed))
    };
    entered.writer(core).announce(tid, new_image);
    leave(&mut entered);
}
