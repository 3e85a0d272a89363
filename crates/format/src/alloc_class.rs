//! Pairs `(size, stack)`, each written once. An allocation event is the index of its pair.
use crate::numbered::{Numbered, NumberedEncoder};
use crate::wire::{Cursor, unzigzag};
use crate::{BlockKind, Malformed};

/// No allocation that succeeded was larger, because an address has 48 bits. A larger size is refused.
const MAX_SIZE: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocClass {
    /// Requested bytes.
    pub size: u64,
    /// The id of the stack; 0 if it is not known.
    pub stack: u32,
}

/// Gathers new allocation classes into blocks.
///
/// ```text
/// first index, count, then per allocation class: size, zigzag(stack - stack of the allocation class before)
/// ```
pub type AllocClassEncoder = NumberedEncoder<AllocClass>;

impl Numbered for AllocClass {
    const KIND: BlockKind = BlockKind::AllocClasses;
    const FIRST: u32 = 0;
}

impl AllocClassEncoder {
    /// Adds an allocation class and returns its index, counted from 0. The caller must not push a pair twice.
    pub fn push(&mut self, size: u64, stack: u32) -> u32 {
        let index = self.next();
        self.add(size, stack as u64);
        index
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
