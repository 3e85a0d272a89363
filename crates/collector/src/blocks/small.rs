//! A table of few blocks.
//!
//! Receives: allocations and frees in order. Returns: for a free, the allocation that it ends. Must hold: the table is in the processor's
//! caches (at most 2 MB) and at most one third full, so that probe lengths are short and predicted well. Memory does not matter at this size.
//!
//! Open addressing with linear probing. A removal moves later entries of the probe run back, so there are no tombstones.
use super::Block;
use crate::mapping::ZeroedTable;

/// `address (48) | sequence 47..32 (16)`, `sequence 31..0 (32) | allocation class (32)`. Address 0 means empty.
type Entry = [u64; 2];

const SMALLEST: usize = 1 << 13;
/// A table of this many entries takes two megabytes.
const LARGEST: usize = 1 << 17;

#[inline(always)]
const fn entry(address: u64, block: Block) -> Entry {
    [address << 16 | block.sequence >> 32, block.sequence << 32 | block.alloc_class as u64]
}

#[inline(always)]
const fn address_of(entry: &Entry) -> u64 {
    entry[0] >> 16
}

#[inline(always)]
const fn block_of(entry: &Entry) -> Block {
    Block { sequence: (entry[0] & 0xffff) << 32 | entry[1] >> 32, alloc_class: entry[1] as u32 }
}

#[derive(Debug)]
pub struct SmallTable {
    entries: ZeroedTable<Entry>,
    used: usize,
    /// The place of an address is the upper bits of its hash.
    shift: u32,
}

impl SmallTable {
    pub fn new() -> Self {
        Self::with_length(SMALLEST)
    }

    fn with_length(length: usize) -> Self {
        SmallTable { entries: ZeroedTable::zeroed(length), used: 0, shift: u64::BITS - length.trailing_zeros() }
    }

    /// True if the next insertion would make the table too large.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.used * 3 >= LARGEST
    }

    /// True if the table does not fit into a quarter of the second level cache.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.entries.len() > LARGEST / 4
    }

    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        // 2^64 / golden ratio: neighbours land far apart and evenly.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn after(&self, index: usize) -> usize {
        (index + 1) & (self.entries.len() - 1)
    }

    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        if let Some(entry) = self.entries.get(self.home(address)) {
            crate::mapping::prefetch(entry);
        }
    }

    /// Returns `Err` and changes nothing if the address is live.
    #[inline(always)]
    pub fn insert(&mut self, address: u64, block: Block) -> Result<(), Block> {
        let mut at = self.home(address);
        loop {
            let found = self.entries[at];
            if address_of(&found) == 0 {
                break;
            }
            if address_of(&found) == address {
                return Err(block_of(&found));
            }
            at = self.after(at);
        }
        self.entries[at] = entry(address, block);
        self.used += 1;
        if self.used * 3 > self.entries.len() {
            self.grow();
        }
        Ok(())
    }

    /// Returns the block at an address.
    pub fn get(&self, address: u64) -> Option<Block> {
        let mut at = self.home(address);
        loop {
            let found = &self.entries[at];
            if address_of(found) == address {
                return Some(block_of(found));
            }
            if address_of(found) == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        let mut at = self.home(address);
        loop {
            let found = self.entries[at];
            if address_of(&found) == address {
                break;
            }
            if address_of(&found) == 0 {
                return None;
            }
            at = self.after(at);
        }
        let block = block_of(&self.entries[at]);
        self.close_gap(at);
        self.used -= 1;
        Some(block)
    }

    /// Moves later entries of the probe run back, each at most to its home.
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.entries.len() - 1;
        let mut at = gap;
        loop {
            at = self.after(at);
            let found = self.entries[at];
            if address_of(&found) == 0 {
                break;
            }
            let from_home = at.wrapping_sub(self.home(address_of(&found))) & mask;
            let from_gap = at.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.entries[gap] = found;
                gap = at;
            }
        }
        self.entries[gap] = [0; 2];
    }

    #[cold]
    fn grow(&mut self) {
        // A small table costs mostly the first touch of its pages, so it grows in large steps.
        let mut larger = Self::with_length(self.entries.len() * 4);
        self.for_each(|address, block| _ = larger.insert(address, block));
        *self = larger;
    }

    /// Visits all blocks with their addresses, in no order.
    pub fn for_each(&self, mut look: impl FnMut(u64, Block)) {
        let used = self.entries.iter().filter(|entry| address_of(entry) != 0);
        used.for_each(|entry| look(address_of(entry), block_of(entry)));
    }
}
