//! The live blocks: address -> (sequence number, allocation class).
//!
//! Receives: allocations and frees in order. Returns: for a free, the allocation that it ends. Must hold: an entry has
//! 16 bytes, a shard is at most two thirds full, and shards grow by a third, one at a time. So a live block costs at
//! most 32 bytes, and 8 more while its shard grows. Tables of up to two megabytes are at most one third full and grow
//! fourfold: memory does not matter there, and short probe lengths are predicted well by the processor.
//!
//! Open addressing with linear probing. A removal moves later entries of the probe run back, so there are no
//! tombstones. The place of an address is `hash * length / 2^64`, which keeps the order of hashes and allows any
//! length.
use crate::mapping::{ZeroedTable, prefetch};

/// One live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the allocation in the trace; below 2^48.
    pub sequence: u64,
    pub alloc_class: u32,
}

/// `address (48) | sequence 47..32 (16)`, `sequence 31..0 (32) | allocation class (32)`. Address 0 means empty.
type Entry = [u64; 2];

const SHARD_BITS: u32 = 2;
const SMALLEST: usize = 2048;
/// Up to this many entries in a shard, all shards fit into half a megabyte.
const CACHED: usize = 8192;
/// Up to this many entries in a shard, all shards fit into two megabytes.
const ROOMY: usize = 32768;

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

#[inline(always)]
const fn hash(address: u64) -> u64 {
    // 2^64 / golden ratio: neighbours land far apart and evenly.
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Debug)]
pub struct Blocks {
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Shard {
    entries: ZeroedTable,
    used: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        Self::new()
    }
}

impl Blocks {
    pub fn new() -> Self {
        Blocks { shards: (0..1 << SHARD_BITS).map(|_| Shard::with_length(SMALLEST)).collect() }
    }

    #[inline(always)]
    fn place(&self, address: u64) -> (usize, u64) {
        let hash = hash(address);
        ((hash >> (64 - SHARD_BITS)) as usize, hash << SHARD_BITS)
    }

    /// True if the table does not fit into the second level cache.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.shards.first().is_some_and(|shard| shard.entries.len() > CACHED)
    }

    /// Prefetches the place of an address. To be called some events ahead when the table is large.
    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        let (shard, hash) = self.place(address);
        let Some(shard) = self.shards.get(shard) else { return };
        let home = shard.home(hash);
        // A run of used entries often reaches into the next cache line.
        for index in [home, home + 3] {
            if let Some(entry) = shard.entries.get(index) {
                prefetch(entry);
            }
        }
    }

    /// Returns `Err` and changes nothing if the address is live.
    #[inline]
    pub fn insert(&mut self, address: u64, block: Block) -> Result<(), Block> {
        let (shard, hash) = self.place(address);
        match self.shards.get_mut(shard) {
            // Only a hostile ring reports a block at address 0.
            Some(shard) if address != 0 => shard.insert(hash, address, block),
            _ => Ok(()),
        }
    }

    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        let (shard, hash) = self.place(address);
        self.shards.get_mut(shard).filter(|_| address != 0)?.remove(hash, address)
    }

    /// Visits all blocks, in no order.
    pub fn for_each(&self, mut look: impl FnMut(Block)) {
        for shard in &self.shards {
            shard.entries.iter().filter(|entry| address_of(entry) != 0).for_each(|entry| look(block_of(entry)));
        }
    }

    /// Removes all blocks and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

impl Shard {
    fn with_length(length: usize) -> Self {
        Shard { entries: ZeroedTable::zeroed(length), used: 0 }
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((hash as u128 * self.entries.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        let length = self.entries.len();
        self.used * 3 > if length > ROOMY { length * 2 } else { length }
    }

    #[inline(always)]
    fn after(&self, index: usize) -> usize {
        if index + 1 == self.entries.len() { 0 } else { index + 1 }
    }

    #[inline]
    fn insert(&mut self, hash: u64, address: u64, block: Block) -> Result<(), Block> {
        let mut at = self.home(hash);
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
        if self.is_full() {
            self.grow();
        }
        Ok(())
    }

    #[inline]
    fn remove(&mut self, hash: u64, address: u64) -> Option<Block> {
        let mut at = self.home(hash);
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

    /// Closes the gap: moves later entries of the probe run back, each at most to its home.
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let length = self.entries.len();
        let mut at = gap;
        loop {
            at = self.after(at);
            let found = self.entries[at];
            if address_of(&found) == 0 {
                break;
            }
            let home = self.home(hash(address_of(&found)) << SHARD_BITS);
            // The distances of the entry from its home and of the gap from the entry, both modulo the length.
            let from_home = if at >= home { at - home } else { at + length - home };
            let from_gap = if at >= gap { at - gap } else { at + length - gap };
            if from_home >= from_gap {
                self.entries[gap] = found;
                gap = at;
            }
        }
        self.entries[gap] = [0; 2];
    }

    #[cold]
    fn grow(&mut self) {
        let length = self.entries.len();
        // A small table costs mostly the first touch of its pages, so it grows in large steps.
        let length = if length < ROOMY { length * 4 } else { length + length / 3 };
        let mut larger = Shard::with_length(length);
        for old in self.entries.iter().filter(|entry| address_of(entry) != 0) {
            let mut at = larger.home(hash(address_of(old)) << SHARD_BITS);
            while address_of(&larger.entries[at]) != 0 {
                at = larger.after(at);
            }
            larger.entries[at] = *old;
        }
        larger.used = self.used;
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    impl Blocks {
        pub fn len(&self) -> usize {
            self.shards.iter().map(|shard| shard.used).sum()
        }

        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// Bytes of memory that the table takes.
        pub fn bytes(&self) -> usize {
            self.shards.iter().map(|shard| shard.entries.len() * size_of::<Entry>()).sum()
        }
    }

    #[test]
    fn behaves_like_a_map() {
        for seed in 1..=40u64 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut blocks, mut model) = (Blocks::new(), HashMap::new());
            // Few and many addresses, dense and sparse.
            let (addresses, stride) = (64u64 << (seed % 9), 16u64 << (seed % 5));
            for sequence in 0..20_000u64 {
                let address = 0x5555_0000_0000 + rng.u64(..addresses) * stride;
                if rng.u8(..5) < 3 {
                    let block = Block { sequence: sequence << 15, alloc_class: sequence as u32 };
                    match blocks.insert(address, block) {
                        Ok(()) => assert_eq!(model.insert(address, block), None, "seed {seed}"),
                        Err(live) => assert_eq!(model.get(&address), Some(&live), "seed {seed}"),
                    }
                } else {
                    assert_eq!(blocks.remove(address), model.remove(&address), "seed {seed}");
                }
                assert_eq!(blocks.len(), model.len());
            }
            for (address, block) in model {
                assert_eq!(blocks.remove(address), Some(block), "seed {seed}");
            }
            assert!(blocks.is_empty());
        }
    }

    #[test]
    fn largest_values_come_back() {
        let mut blocks = Blocks::new();
        let block = Block { sequence: (1 << 48) - 1, alloc_class: u32::MAX };
        assert_eq!(blocks.insert((1 << 48) - 1, block), Ok(()));
        assert_eq!(blocks.remove((1 << 48) - 1), Some(block));
    }

    #[test]
    fn a_block_costs_less_than_40_bytes() {
        let mut blocks = Blocks::new();
        for n in 0..2_000_000u64 {
            assert_eq!(blocks.insert(0x7f00_0000_0000 + n * 48, Block { sequence: n, alloc_class: 0 }), Ok(()));
            if n > 10_000 && n % 1000 == 0 {
                assert!(blocks.bytes() as u64 <= (n * 34).max(2816 << 10), "{} bytes for {n}", blocks.bytes());
            }
        }
    }
}
