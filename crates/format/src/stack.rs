//! The stack tree of the file: `(parent, frame)`, ids from 1 in file order, a parent always before its children.
use crate::numbered::{Numbered, NumberedEncoder};
use crate::wire::{Cursor, unzigzag};
use crate::{BlockKind, Frame, Malformed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller's node, or 0 if this frame is the root.
    pub parent: u32,
    pub frame: Frame,
}

/// Gathers new nodes into blocks.
///
/// ```text
/// first id, count, then per node: own id - parent, zigzag(frame - frame of the node before)
/// ```
/// A new stack is mostly a chain of nodes whose parent is the node before, so the first value is mostly 1.
pub type StackEncoder = NumberedEncoder<StackNode>;

impl Numbered for StackNode {
    const KIND: BlockKind = BlockKind::Stacks;
    const FIRST: u32 = 1;
}

impl StackEncoder {
    /// `parent` must be 0 or an id that was returned before. Returns the node's id.
    pub fn push(&mut self, parent: u32, frame: Frame) -> u32 {
        let id = self.next();
        debug_assert!(parent < id);
        self.add(id.wrapping_sub(parent) as u64, frame.0);
        id
    }
}

/// The nodes of one block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// The id of the first node; the others follow without gaps.
    pub first: u32,
    pub nodes: Vec<StackNode>,
}

impl Stacks {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let first = cursor.u32()?;
        let mut next = first;
        let mut last = 0u64;
        if first == 0 {
            return Err(Malformed::Reference);
        }
        let nodes = cursor.list(|cursor| {
            let back = cursor.u32()?;
            let parent = next.checked_sub(back).filter(|_| back > 0).ok_or(Malformed::Reference)?;
            last = last.wrapping_add(unzigzag(cursor.u64()?) as u64);
            next = next.checked_add(1).ok_or(Malformed::Overflow)?;
            Ok(StackNode { parent, frame: Frame(last) })
        })?;
        cursor.end()?;
        Ok(Stacks { first, nodes })
    }
}
