//! Walks with frames that were guessed, because there is no CFI for them.
use super::{Memo, SEGMENT};
use crate::proof::Range;
use channel::StackId;

impl Memo {
    /// True when a remembered walk may need a proof that does not hold for a stack pointer of `cfa`.
    #[inline(always)]
    pub fn has_left_guesses(&self, cfa: u64) -> bool {
        cfa.wrapping_sub(self.guesses_low) >= self.guesses_len
    }

    /// Walks with guessed frames are remembered from now on, or the stack pointer has left the pages of those that are.
    /// `stack`: what is known to be readable around the stack pointer. If it is another stack, all walks are forgotten.
    pub fn move_guesses(&mut self, stack: Range) {
        let now = Range { low: self.guesses_low, high: self.guesses_low.saturating_add(self.guesses_len) };
        let has_none = self.guesses_len == u64::MAX;
        if !has_none && !stack.contains(now) {
            self.forget();
            return;
        }
        (self.guesses_low, self.guesses_len) = (stack.low, stack.high - stack.low);
    }

    /// The highest CFA of a remembered walk.
    pub fn top(&self, number: StackId) -> u64 {
        let mut top = 0;
        let mut at = number;
        for _ in 0..SEGMENT {
            if !self.is_alive(at) {
                break;
            }
            let node = self.node_at(at);
            top = node.slot + 8;
            let Some(caller) = node.caller else { break };
            at = caller;
        }
        top
    }
}
