//! The stack tree: `(parent, frame) -> id`, insert-only, lock-free, shared by all threads of the target.
//!
//! A stack is the id of its leaf; walking `parent` up to 0 gives its frames, leaf first. A node is filled, then
//! published by one CAS on its bucket; a parent always has a smaller id than its children, so no walk can loop.
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub type StackId = u32;

/// One frame of a stack, as the target knows it.
///
/// ```text
///  63        48  47  46                       0
/// | instance   | E | offset in the module      |
/// ```
/// `instance` 0: no module (JIT code), the offset is an address. `instance` 0xffff: a marker, not a frame.
/// The offset is that of a return address, or, with `E` set, of the instruction itself (interrupted by a signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey(pub u64);

impl FrameKey {
    const EXACT: u64 = 1 << 47;
    const MARKERS: u64 = 0xffff;
    /// Frames were left out here, in the middle of a very deep stack.
    pub const CUT: FrameKey = FrameKey(Self::MARKERS << 48 | 1);

    #[inline]
    pub const fn new(instance: u16, offset: u64, exact: bool) -> Self {
        FrameKey((instance as u64) << 48 | offset & (Self::EXACT - 1) | if exact { Self::EXACT } else { 0 })
    }
    pub const fn instance(self) -> u16 {
        (self.0 >> 48) as u16
    }
    pub const fn offset(self) -> u64 {
        self.0 & (Self::EXACT - 1)
    }
    /// True when the offset is that of the interrupted instruction, not of a return address.
    pub const fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0 && !self.is_marker()
    }
    pub const fn is_marker(self) -> bool {
        self.0 >> 48 == Self::MARKERS
    }
}

#[repr(C)]
pub struct Node {
    pub parent: AtomicU32,
    /// Next node of the same bucket, 0 = none.
    pub next: AtomicU32,
    /// `FrameKey`.
    pub key: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    Full,
    /// A link that no honest writer makes.
    Corrupt,
}

pub struct Tree<'a> {
    buckets: &'a [AtomicU32],
    nodes: &'a [Node],
    count: &'a AtomicU32,
}

impl<'a> Tree<'a> {
    /// `buckets.len()` must be a power of two; `count` starts at 0 or 1 and node 0 is the root.
    #[inline(always)]
    pub const fn new(buckets: &'a [AtomicU32], nodes: &'a [Node], count: &'a AtomicU32) -> Self {
        Tree { buckets, nodes, count }
    }

    #[inline(always)]
    fn bucket(&self, parent: StackId, key: FrameKey) -> Option<&'a AtomicU32> {
        // Fibonacci hashing over both halves; the multiplier is 2^64 / golden ratio.
        let mixed = (key.0 ^ (parent as u64) << 32 ^ parent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed >> 32 ^ mixed >> 7) as usize & (self.buckets.len().wrapping_sub(1));
        self.buckets.get(index)
    }

    /// Looks through a bucket's chain from `from` until `until` (exclusive).
    #[inline(always)]
    fn find(
        &self,
        from: StackId,
        until: StackId,
        parent: StackId,
        key: FrameKey,
    ) -> Result<Option<StackId>, TreeError> {
        let mut at = from;
        let mut steps = 0u32;
        while at != until && at != 0 {
            let node = self.nodes.get(at as usize).ok_or(TreeError::Corrupt)?;
            if node.key.load(Ordering::Relaxed) == key.0 && node.parent.load(Ordering::Relaxed) == parent {
                return Ok(Some(at));
            }
            at = node.next.load(Ordering::Relaxed);
            steps += 1;
            if steps > 1 << 20 {
                return Err(TreeError::Corrupt);
            }
        }
        Ok(None)
    }

    /// The id of `key` called from `parent`; the same pair has one id for ever, whoever asks.
    pub fn intern(&self, parent: StackId, key: FrameKey) -> Result<StackId, TreeError> {
        let bucket = self.bucket(parent, key).ok_or(TreeError::Corrupt)?;
        let mut head = bucket.load(Ordering::Acquire);
        if let Some(id) = self.find(head, 0, parent, key)? {
            return Ok(id);
        }
        let id = self.reserve()?;
        let node = self.nodes.get(id as usize).ok_or(TreeError::Full)?;
        node.parent.store(parent, Ordering::Relaxed);
        node.key.store(key.0, Ordering::Relaxed);
        loop {
            node.next.store(head, Ordering::Relaxed);
            match bucket.compare_exchange(head, id, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(id),
                Err(newer) => {
                    // Somebody published first: it may be the same frame. Our node then stays unused.
                    if let Some(id) = self.find(newer, head, parent, key)? {
                        return Ok(id);
                    }
                    head = newer;
                }
            }
        }
    }

    fn reserve(&self) -> Result<StackId, TreeError> {
        // The early look keeps the counter from running away when the tree is full.
        if self.count.load(Ordering::Relaxed) as usize >= self.nodes.len() - 1 {
            return Err(TreeError::Full);
        }
        let id = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if id as usize >= self.nodes.len() { Err(TreeError::Full) } else { Ok(id) }
    }

    /// Reader: the node of an id that came out of a ring. Checks that the parent is older.
    pub fn node(&self, id: StackId) -> Result<(StackId, FrameKey), TreeError> {
        let node = self.nodes.get(id as usize).ok_or(TreeError::Corrupt)?;
        let parent = node.parent.load(Ordering::Relaxed);
        if id == 0 || parent >= id {
            return Err(TreeError::Corrupt);
        }
        Ok((parent, FrameKey(node.key.load(Ordering::Relaxed))))
    }
}
