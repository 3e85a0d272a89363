//! The allocation classes: pairs `(size, stack)`, each with an index.
//!
//! Receives: the size and stack of an allocation. Returns: the index of the pair, if it is known; counts the live
//! blocks of each pair. Must hold: an index stands for the same pair until the pair has no live block and the owner
//! calls `forget_dead`.

use channel::split_size;

/// The size of one pair, and the number of its live blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub size: u64,
    /// Blocks of this allocation class that live now.
    pub live: u64,
}

/// `size (48) | stack 31..16 (16)`, `stack 15..0 (16) | 0 (8) | allocator (8) | index + 1 (32)`. Index + 1 = 0 means
/// empty.
type Entry = [u64; 2];

/// Finds the index of a pair.
#[derive(Debug)]
pub struct ClassTable {
    table: Vec<Entry>,
    /// How many entries are used.
    used: usize,
}

/// The pairs, and how many of their blocks live.
#[derive(Debug, Default)]
pub struct AllocClasses {
    table: ClassTable,
    usage: Vec<Usage>,
    /// By index.
    stacks: Vec<u32>,
    /// Indexes of forgotten pairs, to be used again.
    unused: Vec<u32>,
}

#[inline(always)]
const fn pack(size: u64, stack: u32) -> Entry {
    let (size, allocator) = split_size(size);
    [size << 16 | (stack >> 16) as u64, (stack as u64 & 0xffff) << 48 | (allocator as u64) << 32]
}

/// The first place of an entry in a table of this length, a power of two. `entry` is without its index.
#[inline(always)]
const fn home(entry: &Entry, length: usize) -> usize {
    // 2^64 / golden ratio: sizes that are near each other, or multiples of 8, land far apart. The stack is above a size of less than 4 GB,
    // because where their bits overlap, different pairs would have one place.
    let mixed = (entry[0] ^ entry[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - length.trailing_zeros())) as usize
}

/// A table has at least this many places for each entry. A small one is in the first level cache anyway, so it can have more.
#[inline(always)]
const fn least_share(length: usize) -> usize {
    if length < 8192 { 3 } else { 2 }
}

impl Default for ClassTable {
    fn default() -> Self {
        ClassTable { table: vec![[0; 2]; 1024], used: 0 }
    }
}

impl ClassTable {
    /// Returns the index of a known pair. `size` includes the allocator, as in a decoded event.
    #[inline]
    pub fn find(&self, size: u64, stack: u32) -> Option<u32> {
        let wanted = pack(size, stack);
        let mask = self.table.len() - 1;
        let mut at = home(&wanted, self.table.len());
        loop {
            let [first, second] = self.table[at];
            if first == wanted[0] && second >> 32 == wanted[1] >> 32 && second as u32 != 0 {
                return Some(second as u32 - 1);
            }
            if second as u32 == 0 {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a pair that is not known yet.
    pub fn add(&mut self, size: u64, stack: u32, index: u32) {
        if (self.used + 1) * least_share(self.table.len()) > self.table.len() {
            self.grow();
        }
        let mut entry = pack(size, stack);
        entry[1] |= index as u64 + 1;
        Self::place(&mut self.table, entry);
        self.used += 1;
    }

    fn place(table: &mut [Entry], entry: Entry) {
        let mask = table.len() - 1;
        let mut at = home(&[entry[0], entry[1] & !0xffff_ffff], table.len());
        while table[at][1] as u32 != 0 {
            at = (at + 1) & mask;
        }
        table[at] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = vec![[0; 2]; self.table.len() * 2];
        for entry in self.table.iter().filter(|entry| entry[1] as u32 != 0) {
            Self::place(&mut larger, *entry);
        }
        self.table = larger;
    }

    /// Keeps only the pairs whose index passes.
    fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        let kept = |entry: &&Entry| (entry[1] as u32).checked_sub(1).is_some_and(&is_kept);
        let kept: Vec<Entry> = self.table.iter().filter(kept).copied().collect();
        self.used = kept.len();
        self.table.fill([0; 2]);
        kept.into_iter().for_each(|entry| Self::place(&mut self.table, entry));
    }
}

impl AllocClasses {
    /// Returns the index of a known pair.
    #[inline]
    pub fn find(&self, size: u64, stack: u32) -> Option<u32> {
        self.table.find(size, stack)
    }

    /// Adds a pair under an index that no pair has.
    pub fn add(&mut self, size: u64, stack: u32, index: u32) {
        self.table.add(size, stack, index);
        self.define(split_size(size).0, stack, index);
    }

    /// Sets the size and the stack of an index whose pair is known elsewhere.
    pub fn define(&mut self, size: u64, stack: u32, index: u32) {
        if self.usage.len() <= index as usize {
            self.usage.resize(index as usize + 1, Usage::default());
            self.stacks.resize(index as usize + 1, 0);
        }
        self.usage[index as usize] = Usage { size, live: 0 };
        self.stacks[index as usize] = stack;
    }

    /// Returns an index for `add` that no pair has.
    pub fn next_index(&mut self) -> u32 {
        self.unused.pop().unwrap_or(self.usage.len() as u32)
    }

    /// The number of pairs that have an index.
    pub const fn known(&self) -> usize {
        self.usage.len() - self.unused.len()
    }

    /// Forgets all pairs without a live block, so that their indexes can be used again.
    pub fn forget_dead(&mut self) {
        let usage = &self.usage;
        self.table.retain(|index| usage.get(index as usize).is_some_and(|usage| usage.live > 0));
        self.unused = (0..self.usage.len() as u32).filter(|index| self.usage[*index as usize].live == 0).collect();
        // `next_index` takes the last one, so low indexes are used first.
        self.unused.reverse();
    }

    /// The size of an index; 0 if there is no such index.
    pub fn size(&self, index: u32) -> u64 {
        self.usage.get(index as usize).map_or(0, |usage| usage.size)
    }

    /// The stack of an index; 0 if there is no such index.
    pub fn stack(&self, index: u32) -> u32 {
        self.stacks.get(index as usize).copied().unwrap_or(0)
    }

    #[inline]
    pub fn usage_mut(&mut self, index: u32) -> Option<&mut Usage> {
        self.usage.get_mut(index as usize)
    }

    pub const fn len(&self) -> usize {
        self.usage.len()
    }

    /// The sizes and live blocks, by index.
    pub fn usage(&self) -> &[Usage] {
        &self.usage
    }

    /// Returns pairs `(allocation class, live blocks)`, sorted by allocation class, without those that have no live
    /// block.
    pub fn live(&self) -> Vec<(u32, u64)> {
        let counts = self.usage.iter().enumerate().filter(|(_, usage)| usage.live > 0);
        counts.map(|(index, usage)| (index as u32, usage.live)).collect()
    }

    /// Sets the live blocks of all allocation classes to 0. Called when all blocks are gone after an `exec`, and when a
    /// new measuring window begins, for which all blocks are forgotten.
    pub fn clear_live(&mut self) {
        self.usage.iter_mut().for_each(|usage| usage.live = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn behaves_like_a_map() {
        let (mut alloc_classes, mut model) = (AllocClasses::default(), HashMap::new());
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..200_000 {
            let size = if rng.bool() { rng.u64(..0x100) } else { rng.u64(..1 << 36) << 12 };
            let stack = rng.u32(..0x20) * 0x1_0001;
            let known = model.get(&(size, stack)).copied();
            assert_eq!(alloc_classes.find(size, stack), known);
            if known.is_none() {
                let index = model.len() as u32;
                alloc_classes.add(size, stack, index);
                model.insert((size, stack), index);
            }
        }
        for ((size, stack), index) in model {
            assert_eq!(alloc_classes.find(size, stack), Some(index));
            assert_eq!(alloc_classes.usage_mut(index).unwrap().size, size);
        }
    }

    /// All pairs of many sizes and few stacks, as a program has them that allocates in a few functions. A search that looks at several
    /// places costs more than all other steps of an allocation.
    #[test]
    fn pairs_of_few_stacks_are_found_at_once() {
        for (sizes, step) in [(1400, 1), (175, 8), (500, 64), (40, 4096)] {
            for stacks in [1, 8, 16, 100] {
                let mut table = ClassTable::default();
                let pairs = (0..sizes).flat_map(|n| (1..=stacks).map(move |stack| (16 + n * step, stack)));
                pairs.enumerate().for_each(|(index, (size, stack))| table.add(size, stack, index as u32));
                let length = table.table.len();
                let looks = |(at, entry): (usize, &Entry)| {
                    let home = home(&[entry[0], entry[1] & !0xffff_ffff], length);
                    at.wrapping_sub(home) % length + 1
                };
                let used = table.table.iter().enumerate().filter(|(_, entry)| entry[1] as u32 != 0);
                let all: usize = used.map(looks).sum();
                assert!(all as u64 * 2 < sizes * stacks as u64 * 3, "{sizes} * {step}, {stacks}: {all}");
            }
        }
    }

    #[test]
    fn dead_pairs_are_forgotten_and_their_indexes_used_again() {
        let mut alloc_classes = AllocClasses::default();
        for size in 0..5000 {
            let index = alloc_classes.next_index();
            alloc_classes.add(size, 1, index);
            alloc_classes.usage_mut(index).unwrap().live = size % 2;
        }
        alloc_classes.forget_dead();
        assert_eq!(alloc_classes.known(), 2500);
        assert_eq!((alloc_classes.find(10, 1), alloc_classes.find(11, 1)), (None, Some(11)));
        for size in 0..2500 {
            let index = alloc_classes.next_index();
            assert_eq!(index as u64, size * 2);
            alloc_classes.add(size, 2, index);
        }
        assert_eq!(
            (alloc_classes.next_index(), alloc_classes.find(2499, 2), alloc_classes.find(4999, 1)),
            (5000, Some(4998), Some(4999))
        );
    }

    #[test]
    fn live_counts_leave_zeros_out() {
        let mut alloc_classes = AllocClasses::default();
        for index in 0..3 {
            alloc_classes.add(index as u64, 1, index);
        }
        alloc_classes.usage_mut(2).unwrap().live = 5;
        assert_eq!(alloc_classes.live(), [(2, 5)]);
        alloc_classes.clear_live();
        assert_eq!(alloc_classes.live(), []);
    }
}
