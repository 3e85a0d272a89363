//! The beginning and the end of a hook, which raises and lowers the guard of its thread.
//!
//! The guard says that a hook of the thread is at work. If a hook finds the guard raised, there are three possible
//! reasons: a signal handler called the hook, the allocator itself called it, or a jump (`siglongjmp`) has left the
//! previous hook.
use super::attached;
use super::threads::begin_thread;
use crate::core::{ACTIVE, Core};
use crate::entry::{Allocator, Range};
use crate::local::{Level, Local, thread_pointer};
use crate::sys;
use channel::{Check, Loss, RingWriter};
use core::sync::atomic::{Ordering, compiler_fence};

/// A hook whose guard is up: the thread's state, and which of its two rings it writes to.
///
/// It gives out references to single fields of the thread's state, never to all of it. Other threads may read the
/// identity. A signal handler that interrupts the hook uses the other level, proof and scratch memory, and no memo.
pub(super) trait AtWork {
    fn state(&self) -> *mut Local;

    /// Returns true if the hook interrupts another hook of its thread.
    #[inline(always)]
    fn is_nested(&self) -> bool {
        false
    }

    #[inline(always)]
    fn level(&mut self) -> &mut Level {
        let local = self.state();
        // SAFETY: the calling thread's own local (see `Local`). Only one hook of a level uses its fields at a time, and
        // the guard of this level is up for this hook.
        unsafe { if self.is_nested() { &mut (*local).nested } else { &mut (*local).main } }
    }

    /// The writer of this hook's ring.
    #[inline(always)]
    fn writer<'a>(&'a mut self, core: &'a Core) -> RingWriter<'a, Core> {
        let is_nested = self.is_nested();
        // SAFETY: locals stay mapped (see `Local`). `Local::begin` set the field to the slot's header, which
        // `Region::slot` returned: a part of the shared mapping that stays mapped like the local. `identity` consists
        // of atomics.
        let (slot, identity) = unsafe { (&*(*self.state()).header, &(*self.state()).identity) };
        // In a child that was forked during a hook, the tid differs. Such a child writes nothing.
        let is_parent = || core.gate() & ACTIVE != 0;
        core.header().require(Check::Owner, || identity.is_owner_of(slot, thread_pointer()) || !is_parent());
        // SAFETY: `Local::begin` has made the state of each level for this slot, and the calling thread owns it. Only
        // hooks of this level use its ring: the guard is up.
        unsafe { RingWriter::new(core, slot, &mut self.level().ring, is_nested) }
    }

    /// Stores which allocator's function a hook of this thread is calling, if no other hook of this thread waits for
    /// one.
    #[inline(always)]
    fn set_allocator(&mut self, allocator: Allocator) {
        self.set_inside(allocator.inside);
        let local = self.state();
        // SAFETY: the calling thread's own local (see `Local`). A signal handler that interrupts this restores what it
        // changes.
        unsafe { ((*local).freed.address, (*local).outer) = (allocator.freed, None) };
    }

    /// As `set_allocator`, before the hook calls the allocator's function. A nested hook keeps what the hook that it
    /// interrupts has stored, for `end_call`.
    #[inline(always)]
    fn begin_call(&mut self, allocator: Allocator) {
        let local = self.state();
        // SAFETY: the calling thread's own local (see `Local`). A signal handler that interrupts this restores what it
        // changes.
        let outer = unsafe { Allocator { inside: (*local).inside, freed: (*local).freed.address } };
        self.set_allocator(allocator);
        if self.is_nested() {
            // SAFETY: the calling thread's own local (see `Local`). The guard of the nested level is up for this hook,
            // so no other one uses the field.
            unsafe { (*local).outer = Some(outer) };
        }
    }

    /// Restores what `begin_call` has replaced. Before a hook of the main level, no hook of the thread was at work.
    #[inline(always)]
    fn end_call(&mut self) {
        // SAFETY: the calling thread's own local (see `Local`).
        let outer = if self.is_nested() { unsafe { (*self.state()).outer } } else { None };
        self.set_allocator(outer.unwrap_or(Allocator::NONE));
    }

    /// As `set_inside`, before the hook calls the allocator's function. Returns what `set_inside` must restore after that:
    /// the hook that this one interrupts may be calling an allocator's function, too.
    #[inline(always)]
    fn replace_inside(&mut self, allocator: Range) -> Range {
        let local = self.state();
        // SAFETY: the calling thread's own local (see `Local`). Copied, so that no reference stays.
        let outer = if self.is_nested() { unsafe { (*local).inside } } else { Range::NONE };
        self.set_inside(allocator);
        outer
    }

    /// See `Local::inside`.
    #[inline(always)]
    fn set_inside(&mut self, allocator: Range) {
        let local = self.state();
        // SAFETY: the calling thread's own (see `Local`). Volatile, so that the stores keep their order: a handler that
        // interrupts them finds the old range, the new one, or one that holds nothing because its end is 0.
        unsafe {
            (&raw mut (*local).inside.end).write_volatile(0);
            (&raw mut (*local).inside.start).write_volatile(allocator.start);
            (&raw mut (*local).inside.end).write_volatile(allocator.end);
        }
    }

    /// The same as `set_inside(Range::NONE)`, with one store less.
    #[inline(always)]
    fn clear_inside(&mut self) {
        let local = self.state();
        // SAFETY: the calling thread's own (see `Local`). Volatile, so that the stores keep their order: a handler that
        // interrupts them finds the old range, or one that holds nothing because its end is 0.
        unsafe {
            (&raw mut (*local).inside.end).write_volatile(0);
            (&raw mut (*local).inside.start).write_volatile(0);
        }
    }
}

/// If a jump has left the nested hook while it was calling an allocator's function, restores what this hook had
/// replaced. A hook with the CFA `cfa` calls this, and `local` is its thread's own.
#[cold]
#[inline(never)]
pub(super) fn restore_if_left(core: &Core, local: *mut Local, cfa: u64) {
    // SAFETY: the caller passes the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let (outer, guard) = unsafe { ((*local).outer, (*local).nested.guard) };
    // `enter_nested` says why a hook on a signal stack, or in a sandbox, cannot tell.
    if let Some(outer) = outer
        && cfa >= guard
        && core.may_call()
        && !sys::on_signal_stack()
    {
        Entered { local, nested: true }.set_allocator(outer);
    }
}

/// A hook at work, of either level.
pub(super) struct Entered {
    pub(super) local: *mut Local,
    pub(super) nested: bool,
}

impl AtWork for Entered {
    #[inline(always)]
    fn state(&self) -> *mut Local {
        self.local
    }

    #[inline(always)]
    fn is_nested(&self) -> bool {
        self.nested
    }
}

/// A hook of a known thread that interrupts no other hook. Nearly all hooks are of this kind. The compiler knows which
/// ring it uses, which removes a third of the code.
pub(super) struct Quick {
    pub(super) local: *mut Local,
}

impl AtWork for Quick {
    #[inline(always)]
    fn state(&self) -> *mut Local {
        self.local
    }
}

/// Returns the calling thread's own state, if it is found at once.
#[inline(always)]
fn find_quickly(core: &Core) -> Option<*mut Local> {
    let pointer = thread_pointer();
    let only = core.only.load(Ordering::Relaxed);
    // SAFETY: `Core::begin_thread` stores a local in `only`, and locals stay mapped (see `Local`). `identity` is
    // atomic.
    if !only.is_null() && unsafe { (*only).identity.is_mine(pointer) } {
        Some(only)
    } else {
        core.threads().find_near(pointer)
    }
}

/// Returns true if a function of `module` that a hook of this thread is calling has called the hook with the CFA `cfa`,
/// as `enter_nested` finds it. Nearly all calls inside an allocator are of this kind.
#[inline(always)]
pub(super) fn is_call_inside(core: &Core, module: Range, cfa: u64) -> bool {
    let Some(local) = find_quickly(core) else { return false };
    // SAFETY: `find_quickly` returns the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let (outer, guard, inside) = unsafe { ((*local).outer, (*local).main.guard, (*local).inside) };
    outer.is_none() && cfa < guard && inside == module && attached::is_inside(inside, cfa)
}

/// Raises the guard, if the thread's state is found at once and no hook of the thread is at work.
#[inline(always)]
pub(super) fn enter_quickly(core: &Core, cfa: u64) -> Option<Quick> {
    let local = find_quickly(core)?;
    // SAFETY: `is_mine` was true, so this is the calling thread's own local (see `Local`). A signal handler that
    // interrupts this function has left its hook, and lowered the guard, before this function continues.
    let guard = unsafe { &mut (*local).main.guard };
    if *guard != 0 {
        return None;
    }
    *guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(Quick { local })
}

/// Raises the guard. Returns `None` if this event is not to be recorded or cannot be recorded. An event that cannot be
/// recorded is counted as lost.
#[inline(always)]
pub(super) fn enter(core: &Core, cfa: u64) -> Option<Entered> {
    let pointer = thread_pointer();
    let local = match core.threads().find(pointer) {
        Some(local) => local,
        None => begin_thread(core, pointer)?,
    };
    // SAFETY: `find` and `begin_thread` return the calling thread's own local (see `Local`). A signal handler that
    // interrupts this function has left its hook, and lowered the guard, before this function continues.
    let guard = unsafe { &mut (*local).main.guard };
    if *guard != 0 {
        return enter_nested(core, local, cfa);
    }
    *guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(Entered { local, nested: false })
}

/// Enters a hook that found the guard raised: either the other hook of this thread is still at work, or a jump has left
/// it.
#[cold]
fn enter_nested(core: &Core, local: *mut Local, cfa: u64) -> Option<Entered> {
    restore_if_left(core, local, cfa);
    let mut main = Entered { local, nested: false };
    let mut nested = Entered { local, nested: true };
    // SAFETY: `enter` passes the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let inside = unsafe { (*local).inside };
    if cfa < main.level().guard && attached::is_inside(inside, cfa) {
        return None;
    }
    // Makes the next event of each of the thread's two rings read the clock. An event that skips the clock gets the
    // stamp of the event before it in its ring plus one, which would not order it among the events of the other ring.
    core.header().next_round();
    // In a sandbox the kernel cannot be asked, so the other hook is assumed to be at work. A wrong guess is harmless:
    // this hook writes to the second ring. The opposite mistake would let two hooks write to one ring.
    let on_signal_stack = !core.may_call() || sys::on_signal_stack();
    // If this frame is above the other hook's frame, or in its place, the other hook is gone. A signal stack may be
    // anywhere, so there this says nothing.
    if cfa >= main.level().guard && !on_signal_stack {
        // SAFETY: the calling thread's own local (see `Local`). A jump has left the hook that used the memo, so there
        // is no other reference to it.
        unsafe {
            (*local).memo.forget();
            (*local).outer = None;
        }
        main.set_inside(Range::NONE);
        main.writer(core).abandon(true);
        nested.writer(core).abandon(false);
        nested.level().guard = 0;
        main.level().guard = cfa;
        return Some(main);
    }
    if nested.level().guard != 0 && (cfa < nested.level().guard || on_signal_stack) {
        core.lose(Loss::Nested);
        return None;
    }
    if nested.level().guard != 0 {
        nested.writer(core).abandon(true);
    }
    nested.level().guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(nested)
}

#[inline(always)]
pub(super) fn leave(entered: &mut impl AtWork) {
    compiler_fence(Ordering::SeqCst);
    entered.level().guard = 0;
}
