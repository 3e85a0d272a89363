//! Gathers items that are numbered without gaps, such as stack nodes and allocation classes, into blocks.
use crate::wire::{put, zigzag};
use crate::{BlockKind, RawBlock};
use std::marker::PhantomData;

/// An item that blocks of its own kind hold.
pub trait Numbered {
    const KIND: BlockKind;
    /// The number of the first item of a trace.
    const FIRST: u32;
}

/// The items that are not in a block yet. A block is `number of the first item, count, items`.
#[derive(Debug)]
pub struct NumberedEncoder<T> {
    first: u32,
    next: u32,
    /// The second value of the last item, or 0 at the start of a block. For the next item, only the difference from
    /// this value is written.
    last: u64,
    bytes: Vec<u8>,
    item: PhantomData<T>,
}

impl<T: Numbered> Default for NumberedEncoder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Numbered> NumberedEncoder<T> {
    pub const fn new() -> Self {
        NumberedEncoder { first: T::FIRST, next: T::FIRST, last: 0, bytes: Vec::new(), item: PhantomData }
    }

    /// The number of the next item.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Adds an item of two values. For the second one, the difference from the item before is written.
    pub(crate) fn add(&mut self, value: u64, near: u64) {
        put(&mut self.bytes, value);
        put(&mut self.bytes, zigzag(near.wrapping_sub(self.last) as i64));
        self.last = near;
        self.next += 1;
    }

    pub const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Raw bytes so far.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Moves all items into a block.
    pub fn take(&mut self) -> RawBlock {
        let mut payload = Vec::with_capacity(self.bytes.len() + 16);
        put(&mut payload, self.first as u64);
        put(&mut payload, (self.next - self.first) as u64);
        payload.append(&mut self.bytes);
        self.first = self.next;
        self.last = 0;
        RawBlock { kind: T::KIND, payload }
    }
}
