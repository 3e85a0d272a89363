//! Adding a walk to the memo.
use super::{Found, Stop, Walk};
use crate::core::Core;
use crate::local::thread_pointer;
use crate::memo::Fact;
use crate::rule::{Kind, Rule};
use crate::sys;
use channel::StackId;
use core::sync::atomic::Ordering;

impl Walk<'_> {
    /// Called for a walk that followed a frame pointer without CFI. Its words may be compared later only while they are
    /// known to be readable. `last` is its outermost frame, `tail` the remembered walk that its caller belongs to.
    ///
    /// Returns false if that cannot be shown: the thread runs on a stack that the program made itself, or the frame
    /// pointer led out of the thread's stack. The program may unmap what is above such a stack while the thread runs on
    /// it.
    #[cold]
    #[inline(never)]
    fn prove_guesses(&mut self, last: usize, tail: Option<StackId>) -> bool {
        let top = self.frame(last).cfa;
        let Some(memo) = self.memo.as_deref_mut() else { return false };
        let top = tail.map_or(top, |tail| memo.top(tail).max(top));
        let end = own_stack_end(self.core, self.may_ask);
        match self.proof.own_stack(top, end) {
            Some(stack) => memo.move_guesses(stack),
            None => return false,
        }
        true
    }

    /// Adds the frames of the walk to the memo, under the numbers from `first` on. Returns how many frames at the leaf
    /// are not remembered, or `None` if nothing is.
    #[inline(never)]
    pub fn remember(&mut self, found: &Found, first: StackId) -> Option<usize> {
        let Found { count, start, stop, .. } = *found;
        if stop == Stop::Lost || stop == Stop::Full {
            return None;
        }
        let (tail, mut needs, mut depth) = match stop {
            Stop::Known(tail) => (Some(tail.number), tail.needs_rbp, tail.depth),
            _ => (None, false, 0),
        };
        // The terminating zero gets a node after the last frame.
        let end = if stop == Stop::Zero { count + 1 } else { count };
        if stop == Stop::Zero
            && let Some(zero) = self.scratch.frames.get_mut(count)
        {
            zero.rule = Rule::END;
        }
        if start >= count || self.scratch.unsure && !self.prove_guesses(end - 1, tail) {
            return None;
        }
        let memo = self.memo.as_deref_mut()?;
        // Whether the rbp of a frame matters depends on its callers, so the facts are computed from the root to the
        // leaf. They are stored in place, because a local array would be too large for a small stack.
        for i in (start..end).rev() {
            let frame = self.scratch.frames.get_mut(i)?;
            let caller_needs = needs;
            let restored = frame.rule.is_simple() && frame.rule.rbp_slot() != 0;
            needs = match frame.rule.kind() {
                Kind::Simple if frame.rule.uses_rbp() => true,
                Kind::Simple if restored => false,
                Kind::Simple => caller_needs,
                _ => false,
            };
            if i < count {
                depth += 1;
            }
            let slot = if restored && caller_needs { frame.rule.rbp_slot() } else { 0 };
            // The rule is not needed any more. Its field holds the facts from here on.
            let by_code = frame.rule.is_by_code() as u32;
            frame.rule = Rule(slot | by_code << 14 | (needs as u32) << 15 | (depth as u32) << 16);
        }
        let frames = &self.scratch.frames;
        let is_remembered = memo.remember(first.wrapping_add(start as u32), end - start, tail, |i| {
            // SAFETY: `Memo::remember` asks for `i < end - start`. `collect` returns a `count` of at most `MAX_FRAMES`,
            // so `end` is at most `MAX_FRAMES + 1`, the array's length.
            let frame = unsafe { frames.get_unchecked(start + i) };
            let facts = frame.rule.0;
            (
                frame.place(),
                Fact {
                    depth: (facts >> 16) as u16,
                    needs_rbp: facts & 1 << 15 != 0,
                    by_code: facts & 1 << 14 != 0,
                    caller_slot: facts & 0x7ff,
                },
            )
        });
        is_remembered.then_some(start)
    }
}

/// Returns the upper end of the stack that libc gave to the calling thread, or 0 if it is not known. libc puts the
/// thread block at the upper end of each thread's stack, except for the first thread, whose block is anywhere.
fn own_stack_end(core: &Core, may_ask: bool) -> u64 {
    let pointer = thread_pointer();
    let tid = match core.tid_offset.load(Ordering::Relaxed) {
        // SAFETY: inside the calling thread's own thread block: `find_tid` has found the tid of a thread at this offset
        // of its block, which is the same libc's.
        offset if offset != 0 => unsafe { ((pointer + offset as u64) as *const u32).read_volatile() },
        _ if may_ask => sys::gettid(),
        _ => return 0,
    };
    if tid == core.pid() { core.stack_top.load(Ordering::Relaxed) } else { pointer }
}
