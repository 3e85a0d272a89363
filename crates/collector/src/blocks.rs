//! The live blocks: address -> (sequence number, allocation class).
//!
//! Receives: allocations and frees in order. Returns: for a free, the allocation that it ends. Must hold: above 10 million blocks, a block
//! takes at most 24 bytes, unless there were more blocks before; no call takes longer than about a millisecond.
//!
//! Up to 2 MB, the table is one that is fast in the processor's caches (`small.rs`). Beyond, it is one that needs one cache line for a
//! look-up and grows without a pause (`large.rs`).
mod large;
mod small;

use large::LargeTable;
use small::SmallTable;

/// One live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the allocation in the trace; below 2^47. Higher bits are lost.
    pub sequence: u64,
    pub alloc_class: u32,
}

#[derive(Debug)]
enum Table {
    Small(SmallTable),
    Large(LargeTable),
}

#[derive(Debug)]
pub struct Blocks {
    table: Table,
}

impl Default for Blocks {
    fn default() -> Self {
        Self::new()
    }
}

impl Blocks {
    pub fn new() -> Self {
        Blocks { table: Table::Small(SmallTable::new()) }
    }

    /// True if calls of `prefetch` pay off.
    #[inline]
    pub fn is_large(&self) -> bool {
        match &self.table {
            Table::Small(table) => table.is_large(),
            Table::Large(_) => true,
        }
    }

    /// Prefetches the place of an address. To be called some events ahead when the table is large.
    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        match &self.table {
            Table::Small(table) => table.prefetch(address),
            Table::Large(table) => table.prefetch(address),
        }
    }

    /// Returns `Err` and changes nothing if the address is live.
    #[inline(always)]
    pub fn insert(&mut self, address: u64, block: Block) -> Result<(), Block> {
        match &mut self.table {
            // Only a hostile ring reports a block at address 0.
            Table::Small(table) if !table.is_full() && address != 0 => table.insert(address, block),
            _ => self.insert_in_large(address, block),
        }
    }

    #[inline(never)]
    fn insert_in_large(&mut self, address: u64, block: Block) -> Result<(), Block> {
        if address == 0 {
            return Ok(());
        }
        if let Table::Small(small) = &self.table {
            let mut large = LargeTable::new();
            small.for_each(|address, block| _ = large.insert(address, block));
            self.table = Table::Large(large);
        }
        match &mut self.table {
            Table::Large(table) => table.insert(address, block),
            Table::Small(_) => Ok(()),
        }
    }

    #[inline(always)]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        match &mut self.table {
            Table::Small(table) if address != 0 => table.remove(address),
            Table::Large(table) => table.remove(address),
            Table::Small(_) => None,
        }
    }

    /// Returns the block at an address.
    pub fn get(&self, address: u64) -> Option<Block> {
        match &self.table {
            Table::Small(table) if address != 0 => table.get(address),
            Table::Large(table) => table.get(address),
            Table::Small(_) => None,
        }
    }

    /// Visits all blocks with their addresses, in no order.
    pub fn for_each(&self, look: impl FnMut(u64, Block)) {
        match &self.table {
            Table::Small(table) => table.for_each(look),
            Table::Large(table) => table.for_each(look),
        }
    }

    /// Visits some blocks, about as many as `most`. Begins at `from`, which is 0 at first, and returns where to continue, or `None` after
    /// the last block. A block that lives during all calls is visited once.
    pub fn visit_some(&self, from: u64, most: usize, look: impl FnMut(u64, Block)) -> Option<u64> {
        match &self.table {
            // It is small enough for one call. If it grew out of its size meanwhile, the visit continues in the large one.
            Table::Small(table) => {
                table.for_each(look);
                None
            }
            Table::Large(table) => table.visit_some(from, most / 2, look),
        }
    }

    /// Removes all blocks and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn behaves_like_a_map_in_both_tables() {
        for seed in 1..=40u64 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut blocks, mut model) = (Blocks::new(), HashMap::new());
            // Few and many addresses, dense and sparse. The many do not fit into a small table.
            let (addresses, stride) = (64u64 << (seed % 13), 16u64 << (seed % 5));
            for sequence in 0..100_000u64 {
                let address = 0x5555_0000_0000 + rng.u64(..addresses) * stride;
                if rng.u8(..8) < 5 {
                    let block = Block { sequence: sequence << 15, alloc_class: sequence as u32 };
                    match blocks.insert(address, block) {
                        Ok(()) => assert_eq!(model.insert(address, block), None, "seed {seed}"),
                        Err(live) => assert_eq!(model.get(&address), Some(&live), "seed {seed}"),
                    }
                } else {
                    assert_eq!(blocks.remove(address), model.remove(&address), "seed {seed}");
                }
            }
            assert_eq!(matches!(blocks.table, Table::Large(_)), addresses >= 64 << 11, "seed {seed}");
            let mut sum = 0;
            blocks.for_each(|_, block| sum += block.sequence);
            assert_eq!(sum, model.values().map(|block| block.sequence).sum::<u64>());
            for (address, block) in model {
                assert_eq!(blocks.get(address), Some(block), "seed {seed}");
                assert_eq!(blocks.remove(address), Some(block), "seed {seed}");
            }
            blocks.for_each(|address, block| panic!("{address:x}: {block:?}"));
        }
    }

    #[test]
    fn nothing_lives_at_address_0() {
        let mut blocks = Blocks::new();
        let block = Block { sequence: 1, alloc_class: 1 };
        assert_eq!((blocks.insert(0, block), blocks.insert(0, block), blocks.remove(0)), (Ok(()), Ok(()), None));
        for address in 1..100_000 {
            assert_eq!(blocks.insert(address * 16, block), Ok(()));
        }
        assert_eq!((blocks.insert(0, block), blocks.insert(0, block), blocks.remove(0)), (Ok(()), Ok(()), None));
    }
}
