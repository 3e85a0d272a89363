//! Compares a remembered walk with a new one, in a build with the feature `checks`.
use super::{Stop, Walk, inside};
use crate::context::Context;
use crate::core::Core;
use crate::local::Local;
use crate::memo::{Memo, Miss};
use crate::proof::Proof;
use channel::{Check, StackId};

/// In a build with checks, walks the stack of the calling hook again without the memo. The frames from `skip` on must
/// be those that the memo has from `number` on. Called before the event is committed, because the walk may make system
/// calls (see `let_hooks_finish` in `sandbox.rs`).
///
/// # Safety
/// `local` is the calling thread's own, and the guard of its main level is up for the hook of `context`. No reference
/// to its memo or its first scratch is used again.
#[inline(always)]
pub unsafe fn check_stack(core: &Core, local: *mut Local, context: &Context, number: StackId, skip: usize) {
    core.header().require(Check::Memo, || {
        // SAFETY: these are the main hook's fields (see `Local`), and the caller promises that this hook is the main
        // one.
        let (memo, [scratch, _]) = unsafe { (&(*local).memo, &mut (*local).scratch) };
        // A new proof, so that later walks know the same of the stack as in a build without checks.
        let mut proof = Proof::default();
        Walk { core, scratch, proof: &mut proof, memo: None, may_ask: core.may_call() }
            .agrees_with(context, memo, number, skip)
    });
}

impl Walk<'_> {
    /// Returns true if a new walk finds the frames that the memo has (see `check_stack`). Also returns true if the two
    /// cannot be compared, because the new walk does not reach the root or has guessed frames, or because a module was
    /// loaded or unloaded meanwhile.
    #[inline(never)]
    fn agrees_with(&mut self, context: &Context, memo: &Memo, number: StackId, skip: usize) -> bool {
        let generation = self.core.modules().generation();
        self.proof.start(context.cfa() - 8, self.may_ask);
        self.scratch.module = None;
        self.scratch.unsure = false;
        let (count, _, stop) = self.collect(context, Miss::WALK_ANEW);
        let is_whole = matches!(stop, Stop::End | Stop::Zero) && !self.scratch.unsure;
        if !is_whole || self.core.modules().generation() != generation {
            return true;
        }
        // The terminating zero is remembered like a frame.
        let end = count + (stop == Stop::Zero) as usize;
        let mut next = Some(number);
        for i in skip..end {
            let Some(node) = next.and_then(|number| memo.node(number)) else { return false };
            let frame = self.frame(i);
            if (node.slot, node.pc) != (frame.cfa.wrapping_sub(8), frame.pc()) {
                return false;
            }
            next = node.caller;
        }
        next.is_none()
    }

    /// Checks that the module that the walk found for `pc` is the only one that holds it. If the walk found no module,
    /// checks that none holds `pc`.
    #[inline(always)]
    pub(super) fn check_module(&self, pc: u64) {
        self.core.header().require(Check::Frame, || {
            let instance = self.scratch.module.as_ref().map(|found| found.instance);
            self.core.modules().is_only(inside(pc), instance)
        });
    }
}
