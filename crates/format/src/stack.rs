//! The stack tree of the file: `(parent, frame)`, ids from 1 in file order, a parent always before its children.
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Frame, Malformed, RawBlock};

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
#[derive(Debug)]
pub struct StackEncoder {
    first: u32,
    next: u32,
    last_frame: u64,
    nodes: Vec<u8>,
}

impl Default for StackEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl StackEncoder {
    pub const fn new() -> Self {
        StackEncoder { first: 1, next: 1, last_frame: 0, nodes: Vec::new() }
    }

    /// `parent` must be 0 or an id that was returned before. Returns the node's id.
    pub fn push(&mut self, parent: u32, frame: Frame) -> u32 {
        let id = self.next;
        debug_assert!(parent < id);
        put(&mut self.nodes, id.wrapping_sub(parent) as u64);
        put(&mut self.nodes, zigzag(frame.0.wrapping_sub(self.last_frame) as i64));
        self.last_frame = frame.0;
        self.next += 1;
        id
    }

    pub const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Raw bytes so far.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn take(&mut self) -> RawBlock {
        let mut payload = Vec::with_capacity(self.nodes.len() + 16);
        put(&mut payload, self.first as u64);
        put(&mut payload, (self.next - self.first) as u64);
        payload.append(&mut self.nodes);
        self.first = self.next;
        self.last_frame = 0;
        RawBlock { kind: BlockKind::Stacks, payload }
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
