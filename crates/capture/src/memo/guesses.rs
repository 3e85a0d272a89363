//! Where walks with guessed frames may be compared.
//!
//! If code has no CFI, a walk follows the frame pointer, which may hold any value. The memo compares the stack words of
//! such a walk only while the stack pointer is in pages that were shown to be readable, see [`crate::proof`].
use super::{Memo, SEGMENT};
use crate::proof::Range;
use channel::StackId;

impl Memo {
    /// Returns true if some remembered walk may not be compared, because the stack pointer `cfa` has left the pages
    /// that were shown to be readable for that walk.
    #[inline(always)]
    pub fn has_left_guesses(&self, cfa: u64) -> bool {
        cfa.wrapping_sub(self.guesses_low) >= self.guesses_len
    }

    /// Called before a walk with guessed frames is remembered, and after the stack pointer has left the pages of such
    /// walks. `stack` is the memory around the stack pointer that is known to be readable. If walks with guessed frames
    /// are remembered and `stack` does not contain their pages, it is another stack, and everything is forgotten.
    pub fn move_guesses(&mut self, stack: Range) {
        let now = Range { low: self.guesses_low, high: self.guesses_low.saturating_add(self.guesses_len) };
        let has_none = self.guesses_len == u64::MAX;
        if !has_none && !stack.contains(now) {
            self.forget();
            return;
        }
        (self.guesses_low, self.guesses_len) = (stack.low, stack.high - stack.low);
    }

    /// Returns the CFA of the outermost frame of the remembered walk that begins at node `number`, which is its highest
    /// CFA.
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
