//! Pairs `(size, stack)`, each written once. An allocation event is the index of its pair.
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

/// No allocation that succeeded was larger, because an address has 48 bits.
const MAX_SIZE: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocClass {
    /// Requested bytes.
    pub size: u64,
    /// The id of the stack; 0 if it is not known.
    pub stack: u32,
}

/// Gathers new allocation classes into blocks: `first index, count, then per allocation class: size, zigzag(stack - stack of the allocation class before)`.
#[derive(Debug, Default)]
pub struct AllocClassEncoder {
    first: u32,
    next: u32,
    last_stack: u32,
    alloc_classes: Vec<u8>,
}

impl AllocClassEncoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the index, counted from 0. The caller must not push a pair twice.
    pub fn push(&mut self, size: u64, stack: u32) -> u32 {
        let index = self.next;
        put(&mut self.alloc_classes, size);
        put(&mut self.alloc_classes, zigzag(stack as i64 - self.last_stack as i64));
        self.last_stack = stack;
        self.next += 1;
        index
    }

    pub const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Raw bytes so far.
    pub const fn len(&self) -> usize {
        self.alloc_classes.len()
    }

    pub fn take(&mut self) -> RawBlock {
        let mut payload = Vec::with_capacity(self.alloc_classes.len() + 16);
        put(&mut payload, self.first as u64);
        put(&mut payload, (self.next - self.first) as u64);
        payload.append(&mut self.alloc_classes);
        self.first = self.next;
        self.last_stack = 0;
        RawBlock { kind: BlockKind::AllocClasses, payload }
    }
}

/// The allocation classes of one block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocClasses {
    /// The index of the first; the others follow without gaps.
    pub first: u32,
    pub alloc_classes: Vec<AllocClass>,
}

impl AllocClasses {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let first = cursor.u32()?;
        let mut stack = 0i64;
        let alloc_classes = cursor.list(|cursor| {
            let size = cursor.u64()?;
            if size > MAX_SIZE {
                return Err(Malformed::Overflow);
            }
            stack = stack.wrapping_add(unzigzag(cursor.u64()?));
            Ok(AllocClass { size, stack: u32::try_from(stack).map_err(|_| Malformed::Overflow)? })
        })?;
        cursor.end()?;
        first.checked_add(alloc_classes.len() as u32).ok_or(Malformed::Overflow)?;
        Ok(AllocClasses { first, alloc_classes })
    }
}
