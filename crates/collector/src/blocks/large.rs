//! A table of many blocks.
//!
//! Receives: allocations and frees in order. Returns: for a free, the allocation that it ends. Must hold: above 10
//! million blocks, a block takes at most 24 bytes, unless there were more blocks before; no call moves the entries of
//! more than `SWEPT` buckets.
//!
//! A bucket is one cache line with four entries. The home of an address is the bucket `hash * buckets / 2^64`. An entry
//! that finds no room in its home lies in the next bucket with room; after the last bucket comes the first. Each bucket
//! counts the entries that passed it, so most searches end in the home. Removing an entry moves no other.
//!
//! The table grows in place. A home keeps the order of hashes, so with more buckets every home stays or moves up.
//! Therefore the entries can be moved from the top down, a few buckets at every few insertions. Meanwhile hashes below
//! `unmoved` still have their old homes.
//!
//! Whether the next event is an allocation or a free cannot be predicted, so `change` handles both by the same
//! instructions if the entry, or room for it, is in the home.
use super::Block;
use crate::mapping::{Found, Line, ZeroedTable, prefetch};
use std::hint::{cold_path, select_unpredictable};

/// An entry of a bucket. `low` has bits 31..0 of the address. `high` has bits 47..32 of the address, bits 46..32 of the
/// sequence number, and one bit of the bucket's count. `rest` has bits 31..0 of the sequence number, and the allocation
/// class. Address 0 means empty.
#[derive(Clone, Copy, Debug)]
struct Entry {
    low: u32,
    high: u32,
    rest: u64,
}

const ENTRIES: usize = 4;
/// The count of passed entries in a bucket stops here. It is exact below.
const MANY: u32 = 15;
/// A search for the exact count of a bucket that has `MANY` looks at this many buckets.
const RECOUNTED: usize = 12;
/// While the table grows, this many buckets are moved at every `INSERTED`th insertion. Fewer buckets at an insertion
/// would let the part that is not moved yet become too full.
const SWEPT: usize = 16;
const INSERTED: usize = 2;
/// At most this many buckets are read for that, unless addresses were chosen to share a home.
#[cfg(test)]
const SWEPT_AT_ONCE: usize = 256;

/// The smallest table fits into two megabytes. Memory does not matter there: at most three eighths of the entries are used, so that nearly
/// all are in their homes.
const ROOMY: usize = 32768;
/// Larger tables grow by a multiple of a huge page.
const HUGE_PAGE: usize = ROOMY;
/// Up to 64 MB, at most half of the entries are used. A block outside its home costs another look, and memory does not matter much yet.
const SPACIOUS: usize = 32 * HUGE_PAGE;
/// From this many blocks on, each takes at most 24 bytes. With 10 million, a test would take too long.
const MANY_BLOCKS: usize = if cfg!(test) { 1_000_000 } else { 10_000_000 };
/// The buckets that `MANY_BLOCKS` may take.
const FRUGAL: usize = 24 * MANY_BLOCKS / size_of::<Line>();

impl Entry {
    #[inline(always)]
    const fn new(address: u64, block: Block) -> Self {
        Entry {
            low: address as u32,
            high: (address >> 32 << 16) as u32 | (block.sequence >> 31) as u32 & 0xfffe,
            rest: block.sequence << 32 | block.alloc_class as u64,
        }
    }

    #[inline(always)]
    const fn of(line: &Line, slot: usize) -> Self {
        Entry { low: line.low[slot], high: line.high[slot], rest: line.rest[slot] }
    }

    #[inline(always)]
    const fn block(&self) -> Block {
        Block { sequence: (self.high as u64 & 0xfffe) << 31 | self.rest >> 32, alloc_class: self.rest as u32 }
    }

    #[inline(always)]
    const fn address(&self) -> u64 {
        self.low as u64 | (self.high as u64 >> 16) << 32
    }
}

#[inline(always)]
const fn hash(address: u64) -> u64 {
    // 2^64 / golden ratio: neighbours land far apart and evenly, and so do the heaps of threads, which differ only in high bits. Only 48
    // bits of an address are kept. The lowest bit is zero, so that `u64::MAX` is above all hashes.
    (address << 16 >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !1
}

#[inline(always)]
const fn home(hash: u64, buckets: usize) -> usize {
    ((hash as u128 * buckets as u128) >> 64) as usize
}

/// The lowest hash whose home is this bucket.
const fn first_hash(bucket: usize, buckets: usize) -> u64 {
    ((bucket as u128) << 64).div_ceil(buckets as u128) as u64
}

/// The number of entries that passed this bucket: their homes are this bucket or earlier ones, and they lie in later
/// ones.
#[inline(always)]
const fn passed(line: &Line) -> u32 {
    let [a, b, c, d] = line.high;
    a & 1 | (b & 1) << 1 | (c & 1) << 2 | (d & 1) << 3
}

fn set_passed(line: &mut Line, count: u32) {
    for (bit, high) in line.high.iter_mut().enumerate() {
        *high = *high & !1 | count >> bit & 1;
    }
}

#[derive(Debug)]
pub struct LargeTable {
    table: ZeroedTable,
    used: usize,
    /// With this many blocks, the table begins to grow, or moves more entries.
    step_at: usize,
    /// Hashes below this have homes for `old_length` buckets, all others for the whole table. 0 unless it grows.
    unmoved: u64,
    old_length: usize,
    /// Entries whose old homes are below this have not been moved. 0 unless the table grows.
    sweep: usize,
    /// The entries that are being moved. Kept for its memory.
    moving: Vec<Entry>,
    #[cfg(test)]
    most_swept: usize,
}

impl Default for LargeTable {
    fn default() -> Self {
        Self::new()
    }
}

impl LargeTable {
    pub fn new() -> Self {
        LargeTable {
            table: ZeroedTable::zeroed(ROOMY),
            used: 0,
            step_at: limit(ROOMY),
            unmoved: 0,
            old_length: ROOMY,
            sweep: 0,
            moving: Vec::new(),
            #[cfg(test)]
            most_swept: 0,
        }
    }

    /// Prefetches the home of an address. To be called some events ahead when the table is large.
    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        if let Some(line) = self.table.get(self.home(address)) {
            prefetch(line);
        }
    }

    /// Returns `Err` and changes nothing if the address is live.
    #[inline]
    pub fn insert(&mut self, address: u64, block: Block) -> Result<(), Block> {
        match self.change(address, true, block) {
            Some(_) => Ok(()),
            None => Err(self.get(address).unwrap_or(block)),
        }
    }

    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        self.change(address, false, Block { sequence: 0, alloc_class: 0 })
    }

    /// With `is_alloc`, inserts the block and returns it, or returns `None` and changes nothing if the address is live.
    /// Otherwise removes the block at the address and returns it, or returns `None` if the address is not live.
    #[inline(always)]
    pub fn change(&mut self, address: u64, is_alloc: bool, block: Block) -> Option<Block> {
        let at = self.home(address);
        let line = self.table.get_mut(at)?;
        let new = Entry::new(address, block);
        let Found { same, empty, count } = line.look_for(new.low, new.high);
        let fits = select_unpredictable(is_alloc, empty, same);
        // An allocation needs a look at later buckets, too, because its address may be live there.
        let hindrance = select_unpredictable(is_alloc, same | count, 0);
        // Only address 0 is the same as that of an empty entry.
        if hindrance | same & empty | (fits == 0) as u32 != 0 {
            cold_path();
            return self.change_elsewhere(address, is_alloc, block);
        }
        let slot = fits.trailing_zeros() as usize % ENTRIES;
        let old = Entry::of(line, slot);
        line.set_address(slot, select_unpredictable(is_alloc, new.low, 0), select_unpredictable(is_alloc, new.high, 0));
        // What an empty entry has there does not matter.
        line.rest[slot] = new.rest;
        // Adds or subtracts 1.
        self.used = self.used.wrapping_add((is_alloc as usize * 2).wrapping_sub(1));
        if self.used >= self.step_at {
            cold_path();
            self.grow();
        }
        let (high, rest) = select_unpredictable(is_alloc, (new.high, new.rest), (old.high, old.rest));
        Some(Entry { low: 0, high, rest }.block())
    }

    /// Returns the block at an address.
    pub fn get(&self, address: u64) -> Option<Block> {
        self.find(address).map(|(at, slot)| Entry::of(&self.table[at], slot).block())
    }

    /// Visits all blocks with their addresses, in no order.
    pub fn for_each(&self, mut look: impl FnMut(u64, Block)) {
        for line in self.table.iter() {
            let entries = (0..ENTRIES).map(|slot| Entry::of(line, slot));
            entries.filter(|entry| entry.address() != 0).for_each(|entry| look(entry.address(), entry.block()));
        }
    }

    /// Visits the blocks whose hashes are at least `from` and whose homes are among the next `buckets`. Returns the hash to continue
    /// with, or `None` after the last block. A block that lives during all calls of such a visit is visited once, even if the table grows
    /// in between: an entry may change its bucket, but never its hash.
    pub fn visit_some(&self, from: u64, buckets: usize, mut look: impl FnMut(u64, Block)) -> Option<u64> {
        let is_old = from < self.unmoved;
        let length = if is_old { self.old_length } else { self.table.len() };
        let first = home(from, length);
        let end = first + buckets.max(1);
        let next = if end < length { Some(first_hash(end, length)) } else { None };
        let next = if is_old { Some(next.unwrap_or(u64::MAX).min(self.unmoved)) } else { next };
        let last = home(next.map_or(u64::MAX, |next| next - 1), length);
        let mut at = first;
        for seen in 1..=self.table.len() {
            let line = &self.table[at];
            for entry in (0..ENTRIES).map(|slot| Entry::of(line, slot)).filter(|entry| entry.address() != 0) {
                let hash = hash(entry.address());
                if hash >= from && next.is_none_or(|next| hash < next) {
                    look(entry.address(), entry.block());
                }
            }
            // Entries that found no room in their homes lie in the buckets after them.
            if seen > last - first && passed(line) == 0 {
                break;
            }
            at = self.after(at);
        }
        next.filter(|next| *next < u64::MAX)
    }

    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        let hash = hash(address);
        select_unpredictable(hash < self.unmoved, home(hash, self.old_length), home(hash, self.table.len()))
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    /// The number of buckets from `from` up to `to`.
    #[inline(always)]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.table.len() - from }
    }

    #[inline(never)]
    fn change_elsewhere(&mut self, address: u64, is_alloc: bool, block: Block) -> Option<Block> {
        let new = Entry::new(address, block);
        if new.address() == 0 {
            // Only a hostile ring reports a block at address 0.
            return is_alloc.then_some(block);
        }
        let found = self.find(address);
        if !is_alloc {
            let (at, slot) = found?;
            self.used -= 1;
            return Some(self.take(self.home(address), at, slot).block());
        }
        if found.is_some() {
            return None;
        }
        self.put(new);
        self.used += 1;
        if self.used >= self.step_at {
            self.grow();
        }
        Some(block)
    }

    /// Returns bucket and slot of an address.
    #[inline]
    fn find(&self, address: u64) -> Option<(usize, usize)> {
        let mut at = self.home(address);
        let (low, high) = (address as u32, (address >> 32 << 16) as u32);
        for _ in 0..self.table.len() {
            let found = self.table[at].look_for(low, high);
            if found.same != 0 {
                return Some((at, found.same.trailing_zeros() as usize));
            }
            if found.count == 0 {
                break;
            }
            at = self.after(at);
        }
        None
    }

    /// Writes an entry that is not in the table to the first bucket with room from its home on.
    #[inline]
    fn put(&mut self, entry: Entry) {
        let mut at = self.home(entry.address());
        loop {
            let line = &mut self.table[at];
            let found = line.look_for(0, 0);
            if found.empty != 0 {
                let slot = found.empty.trailing_zeros() as usize % ENTRIES;
                line.low[slot] = entry.low;
                line.high[slot] |= entry.high;
                line.rest[slot] = entry.rest;
                return;
            }
            if found.count < MANY {
                set_passed(line, found.count + 1);
            }
            at = self.after(at);
        }
    }

    /// Removes an entry and returns it without the bit of the count.
    #[inline]
    fn take(&mut self, home: usize, at: usize, slot: usize) -> Entry {
        let line = &mut self.table[at];
        let mut entry = Entry::of(line, slot);
        entry.high &= !1;
        line.low[slot] = 0;
        line.high[slot] &= 1;
        let mut passing = home;
        while passing != at {
            match passed(&self.table[passing]) {
                MANY => self.recount(passing),
                count => set_passed(&mut self.table[passing], count.saturating_sub(1)),
            }
            passing = self.after(passing);
        }
        entry
    }

    /// Counts the entries that passed a bucket with a count of `MANY`. Otherwise, buckets would get more and more such
    /// counts, and searches would become longer. The count stays if the entries lie too far away.
    #[cold]
    fn recount(&mut self, bucket: usize) {
        let (mut at, mut count) = (bucket, 0);
        for distance in 1..=RECOUNTED {
            at = self.after(at);
            let line = &self.table[at];
            let addresses = (0..ENTRIES).map(|slot| Entry::of(line, slot).address()).filter(|&address| address != 0);
            count += addresses.filter(|&address| self.distance(self.home(address), at) >= distance).count() as u32;
            if passed(line) == 0 {
                set_passed(&mut self.table[bucket], count.min(MANY));
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        if self.sweep == 0 {
            self.enlarge();
        }
        debug_assert!(self.used < limit(self.table.len()), "moving entries was too slow");
        self.sweep_some();
        self.step_at = if self.sweep == 0 { limit(self.table.len()) } else { self.used + INSERTED };
    }

    /// Appends buckets. All entries keep their old homes at first.
    fn enlarge(&mut self) {
        // The last bucket is no longer followed by the first one. Entries that went on there go to the new buckets.
        let mut moving = std::mem::take(&mut self.moving);
        let old_length = self.table.len();
        let mut before = old_length - 1;
        for at in 0..old_length {
            if passed(&self.table[before]) == 0 {
                break;
            }
            for slot in 0..ENTRIES {
                let address = Entry::of(&self.table[at], slot).address();
                let home = self.home(address);
                if address != 0 && home > at {
                    moving.push(self.take(home, at, slot));
                }
            }
            before = at;
        }
        self.table.grow(larger(old_length));
        self.old_length = old_length;
        self.sweep = old_length;
        // Above all hashes.
        self.unmoved = u64::MAX;
        self.put_all(moving);
    }

    /// Moves the entries whose old homes are in the next `SWEPT` buckets.
    fn sweep_some(&mut self) {
        let mut moving = std::mem::take(&mut self.moving);
        let low = self.sweep.saturating_sub(SWEPT);
        let homes = low..self.sweep;
        let mut at = low;
        for done in 0..self.table.len() {
            for slot in 0..ENTRIES {
                let address = Entry::of(&self.table[at], slot).address();
                let home = home(hash(address), self.old_length);
                // An entry from a lower bucket may lie here, and one whose new home is near the end of the table.
                if homes.contains(&home) && address != 0 {
                    moving.push(self.take(home, at, slot));
                }
            }
            #[cfg(test)]
            (self.most_swept = self.most_swept.max(done + 1));
            if done + 1 >= homes.len() && passed(&self.table[at]) == 0 {
                break;
            }
            at = self.after(at);
        }
        self.sweep = low;
        self.unmoved = first_hash(low, self.old_length);
        self.put_all(moving);
        self.prefetch_sweep();
    }

    /// Prefetches the buckets that the next entries are moved from and to.
    fn prefetch_sweep(&self) {
        let low = self.sweep.saturating_sub(SWEPT);
        let moved = |bucket: usize| (bucket as u128 * self.table.len() as u128 / self.old_length as u128) as usize;
        for lines in [self.table.get(low..self.sweep), self.table.get(moved(low)..moved(self.sweep))] {
            lines.into_iter().flatten().for_each(prefetch);
        }
    }

    fn put_all(&mut self, mut moving: Vec<Entry>) {
        moving.iter().for_each(|&entry| self.put(entry));
        moving.clear();
        self.moving = moving;
    }
}

/// Returns the given number of sixteenths of a large table, in whole huge pages.
const fn part(buckets: usize, sixteenths: usize) -> usize {
    let part = buckets / 16 * sixteenths / HUGE_PAGE * HUGE_PAGE;
    if part > 0 { part } else { HUGE_PAGE }
}

/// With this many blocks, a table of this many buckets grows. The fuller it is, the more entries are not in their homes.
const fn limit(buckets: usize) -> usize {
    let entries = buckets * ENTRIES;
    if buckets <= ROOMY {
        entries / 8 * 3
    } else if buckets <= SPACIOUS && buckets + part(buckets, 8) <= FRUGAL {
        entries / 2
    } else if buckets + part(buckets, 8) <= FRUGAL {
        entries / 3 * 2
    } else {
        entries / 5 * 4
    }
}

/// The number of buckets to grow to.
const fn larger(buckets: usize) -> usize {
    if buckets + part(buckets, 8) <= FRUGAL {
        buckets + part(buckets, 8)
    } else {
        // Four fifths were used, so each block takes 16 / (4 / 5) * 19 / 16 bytes now, which is less than 24.
        buckets + part(buckets, 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    impl LargeTable {
        pub fn len(&self) -> usize {
            self.used
        }

        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// Bytes of memory that the table takes.
        pub fn bytes(&self) -> usize {
            self.table.len() * size_of::<Line>()
        }

        /// Checks that every entry can be found and that every count is right.
        fn check(&self) {
            let length = self.table.len();
            let (mut counts, mut used) = (vec![0u32; length], 0);
            for at in 0..length {
                let addresses = (0..ENTRIES).map(|slot| Entry::of(&self.table[at], slot).address());
                for address in addresses.filter(|&address| address != 0) {
                    used += 1;
                    let mut passing = self.home(address);
                    while passing != at {
                        counts[passing] += 1;
                        passing = self.after(passing);
                    }
                }
            }
            assert_eq!(used, self.used);
            for (line, count) in self.table.iter().zip(counts) {
                assert!(passed(line) == count || passed(line) == MANY, "{} instead of {count}", passed(line));
            }
            assert!(self.used <= limit(length), "moving entries was too slow");
        }
    }

    /// Returns addresses whose home in the smallest table is this bucket.
    fn of_home(bucket: usize, count: usize) -> Vec<u64> {
        // The hashes of two addresses at this distance differ by very little: it is a Fibonacci number.
        const DISTANCE: u64 = 102_334_155;
        let is_here = |address: &u64| home(hash(*address), ROOMY) == bucket;
        let first = (1 << 46..).find(is_here).unwrap();
        let below = (0..8000).map(|n| first - n * DISTANCE);
        let addresses: Vec<u64> = below.chain((1..8000).map(|n| first + n * DISTANCE)).filter(is_here).collect();
        assert!(addresses.len() >= count, "{}", addresses.len());
        addresses[..count].to_vec()
    }

    /// Changes blocks at random and compares with a map. Returns how often the table grew.
    fn compare(seed: u64, addresses: &[u64], changes: usize, allocs_of_8: u8) -> usize {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut blocks, mut model) = (LargeTable::new(), HashMap::new());
        let (mut length, mut grown) = (blocks.bytes(), 0);
        for number in 0..changes {
            let address = addresses[rng.usize(..addresses.len())];
            let is_alloc = rng.u8(..8) < allocs_of_8;
            let block = Block { sequence: rng.u64(..1 << 47), alloc_class: rng.u32(..) };
            let live = model.get(&address).copied();
            match (rng.bool(), is_alloc) {
                (true, true) => assert_eq!(blocks.change(address, true, block), live.is_none().then_some(block)),
                (true, false) => assert_eq!(blocks.change(address, false, block), live),
                (false, true) => assert_eq!(blocks.insert(address, block), live.map_or(Ok(()), Err)),
                (false, false) => assert_eq!(blocks.remove(address), live),
            }
            if !is_alloc {
                model.remove(&address);
            } else if live.is_none() {
                model.insert(address, block);
            }
            assert_eq!(blocks.len(), model.len());
            let is_new_length = std::mem::replace(&mut length, blocks.bytes()) != blocks.bytes();
            grown += is_new_length as usize;
            if is_new_length || number.is_power_of_two() {
                blocks.check();
            }
        }
        blocks.check();
        let (mut seen, mut expected) = (Vec::new(), model.values().copied().collect::<Vec<_>>());
        blocks.for_each(|_, block| seen.push(block));
        for blocks in [&mut seen, &mut expected] {
            blocks.sort_by_key(|block| (block.sequence, block.alloc_class));
        }
        assert_eq!(seen, expected, "seed {seed}");
        for (number, (address, block)) in model.into_iter().enumerate() {
            assert_eq!(blocks.remove(address), Some(block), "seed {seed}");
            if number == 1000 {
                blocks.check();
            }
        }
        blocks.check();
        assert!(blocks.is_empty());
        grown
    }

    #[test]
    fn behaves_like_a_map() {
        for seed in 1..=40u64 {
            // Few and many addresses, dense and sparse.
            let (count, stride) = (64u64 << (seed % 11), 16u64 << (seed % 5));
            let addresses: Vec<u64> = (0..count).map(|n| 0x5555_0000_0000 + n * stride).collect();
            compare(seed, &addresses, 40_000, 4 + (seed % 4) as u8);
        }
        let addresses: Vec<u64> = (0..400_000).map(|n| 0x7f00_0000_0000 + n * 16).collect();
        assert!(compare(41, &addresses, 800_000, 7) >= 2);
        // The heaps of 64 threads.
        let addresses: Vec<u64> = (0..400_000).map(|n| 0x7f00_0000_0000 + ((n % 64) << 26) + n / 64 * 64).collect();
        assert!(compare(42, &addresses, 800_000, 7) >= 2);
    }

    /// Thousands of addresses share a home: the first, one in the middle, and the last, after which comes the first.
    #[test]
    fn addresses_of_one_home() {
        for (seed, bucket) in [(1, 0), (2, ROOMY / 2), (3, ROOMY - 1)] {
            let addresses = of_home(bucket, 6000);
            compare(seed, &addresses, 6000, 5);
            // They move while others are inserted.
            let others = (0..80_000).map(|n| 0x5555_0000_0000 + n * 48);
            let some = addresses.iter().copied().take(1000);
            assert!(compare(seed, &some.chain(others).collect::<Vec<_>>(), 120_000, 7) > 0);
        }
    }

    #[test]
    fn counts_that_were_too_large_become_exact() {
        let mut blocks = LargeTable::new();
        let block = Block { sequence: 1, alloc_class: 2 };
        let addresses = of_home(ROOMY / 2, 40);
        for &address in &addresses {
            assert_eq!(blocks.insert(address, block), Ok(()));
        }
        assert_eq!(passed(&blocks.table[blocks.home(addresses[0])]), MANY);
        for &address in addresses.iter().rev() {
            assert_eq!(blocks.remove(address), Some(block));
        }
        assert!(blocks.table.iter().all(|line| passed(line) == 0));
    }

    #[test]
    fn largest_values_come_back() {
        let mut blocks = LargeTable::new();
        let block = Block { sequence: (1 << 47) - 1, alloc_class: u32::MAX };
        assert_eq!(blocks.insert((1 << 48) - 1, block), Ok(()));
        assert_eq!(blocks.insert((1 << 48) - 1, Block { sequence: 0, alloc_class: 0 }), Err(block));
        assert_eq!(blocks.remove((1 << 48) - 1), Some(block));
    }

    /// Between two steps of a visit, blocks are inserted, so that the table grows, and others are removed.
    #[test]
    fn a_visit_in_steps_meets_every_block_that_stays_once() {
        for seed in 1..=12u64 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut blocks = LargeTable::new();
            let (kept, removed, added) = (0x5555_0000_0000u64, 0x6666_0000_0000u64, 0x7777_0000_0000u64);
            let count = 40_000 * (seed % 4 + 1);
            let block = Block { sequence: 7, alloc_class: 8 };
            for n in 0..count {
                assert_eq!(blocks.insert(kept + n * 48, block), Ok(()));
                assert_eq!(blocks.insert(removed + n * 16, block), Ok(()));
            }
            let (mut seen, mut others) = (HashMap::new(), HashMap::new());
            let (mut from, mut new, mut gone) = (Some(0), 0, 0);
            let before = blocks.bytes();
            while let Some(at) = from {
                from = blocks.visit_some(at, rng.usize(1..3000), |address, found| {
                    assert_eq!(found, block);
                    let map = if (kept..removed).contains(&address) { &mut seen } else { &mut others };
                    *map.entry(address).or_insert(0) += 1;
                });
                for _ in 0..rng.u64(..3000) {
                    assert_eq!(blocks.insert(added + new * 32, block), Ok(()));
                    new += 1;
                }
                for _ in 0..rng.u64(..300) {
                    gone += (blocks.remove(removed + gone * 16).is_some()) as u64;
                }
            }
            assert!(blocks.bytes() > before || seed % 4 == 0, "seed {seed}: the table grew");
            assert_eq!(seen.len() as u64, count, "seed {seed}");
            assert!(seen.values().all(|times| *times == 1) && others.values().all(|times| *times == 1), "seed {seed}");
        }
    }

    #[test]
    fn nothing_lives_at_address_0() {
        let mut blocks = LargeTable::new();
        let block = Block { sequence: 1, alloc_class: 2 };
        assert_eq!((blocks.insert(0, block), blocks.insert(0, block)), (Ok(()), Ok(())));
        assert_eq!((blocks.change(0, true, block), blocks.change(0, false, block)), (Some(block), None));
        assert_eq!(blocks.remove(0), None);
        assert!(blocks.is_empty());
    }

    #[test]
    fn growing_takes_little_time_and_memory() {
        let mut blocks = LargeTable::new();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut address = 0x7f00_0000_0000;
        for n in 1..=2_000_000u64 {
            address += rng.u64(2..20) * 16;
            assert_eq!(blocks.insert(address, Block { sequence: n, alloc_class: 0 }), Ok(()));
            if n % 1000 == 0 {
                let most = if n >= MANY_BLOCKS as u64 { n * 24 } else { (n * 48).max(4 << 20) };
                assert!(blocks.bytes() as u64 <= most, "{} bytes for {n}", blocks.bytes());
            }
            assert!(blocks.used <= limit(blocks.table.len()), "moving entries was too slow");
        }
        assert!(blocks.most_swept <= SWEPT_AT_ONCE, "{}", blocks.most_swept);
        blocks.check();
    }
}
