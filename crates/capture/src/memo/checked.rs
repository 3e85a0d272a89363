//! Reading a remembered walk frame by frame, for `Memo::top` and for the checks of a build with the feature `checks`.
use super::{BESIDE, Check, END, LOW48, Memo, NEAR_SHIFT, SPECIAL};
use channel::StackId;

/// A remembered frame.
#[derive(Clone, Copy)]
pub struct Node {
    /// The address of the stack word that holds its return address.
    pub slot: u64,
    pub pc: u64,
    /// The number of its caller's node. `None` where the walk ends.
    pub caller: Option<StackId>,
}

impl Memo {
    /// Returns the node of a number, or `None` if it was forgotten or overwritten.
    pub fn node(&self, number: StackId) -> Option<Node> {
        self.is_kept(number).then(|| self.node_at(number))
    }

    pub(super) fn node_at(&self, number: StackId) -> Node {
        // SAFETY: node pointers are in the arena (see `Memo`); this one is from `check`.
        let Check { at: slot, pc } = unsafe { *self.check(number) };
        let caller = match pc >> NEAR_SHIFT & END {
            _ if pc & SPECIAL == 0 => Some(number.wrapping_add(1)),
            END => None,
            BESIDE => Some(number.wrapping_add(1)),
            0 => Some((self.way(number) >> 32) as u32),
            near => Some(number.wrapping_sub(near as u32)),
        };
        Node { slot, pc: pc & LOW48, caller }
    }

    /// As `is_alive`, but computed from `forgotten` and the size of the arena. `oldest` is not used, because it is one
    /// of the things that the check is about.
    fn is_kept(&self, number: StackId) -> bool {
        let age = self.head.wrapping_sub(number);
        age != 0 && age <= self.head.wrapping_sub(self.forgotten) && age <= self.node_mask + 1
    }
}
