//! The events of a slice of time: decoded ring by ring, then sorted.
//!
//! Receives: items of one ring after the other. Returns: all of them by key. Must hold: items of one ring keep their order; at the end
//! the items stand in memory in their order, because another thread may read them, and its processor can fetch what is in order.
use super::consumer::NumberSource;
use super::item::Item;
use std::mem;

/// The length of a new list.
const FEWEST: usize = 1024;
const INDEX_BITS: u32 = 20;
/// With more items than this, an index has no place beside its key.
const MOST_ITEMS: usize = 1 << INDEX_BITS;

/// A list whose room is never given back, so that adding an item needs no check whether there is room for one more.
#[derive(Debug, Default)]
pub struct Items {
    /// The first `count` are items, the others are room.
    buffer: Vec<Item>,
    count: usize,
}

impl Items {
    pub fn one(item: Item) -> Self {
        Items { buffer: vec![item], count: 1 }
    }

    pub fn get(&self) -> &[Item] {
        self.buffer.get(..self.count).unwrap_or_default()
    }

    pub fn get_mut(&mut self) -> &mut [Item] {
        self.buffer.get_mut(..self.count).unwrap_or_default()
    }

    pub const fn count(&self) -> usize {
        self.count
    }

    pub const fn clear(&mut self) {
        self.count = 0;
    }

    pub fn remove_first(&mut self, count: usize) {
        let count = count.min(self.count);
        self.buffer.copy_within(count..self.count, 0);
        self.count -= count;
    }

    /// Makes room for so many more items.
    fn reserve(&mut self, more: usize) {
        if self.buffer.len() < self.count + more {
            let length = (self.count + more).next_power_of_two().max(FEWEST);
            self.buffer.resize(length, Item::default());
        }
    }

    /// Moves all items of another list to the end of this one.
    pub fn append(&mut self, other: &mut Items) {
        if self.count == 0 {
            mem::swap(self, other);
        } else {
            self.add(other.count, other.get().iter());
        }
        other.clear();
    }

    fn add<'a>(&mut self, count: usize, items: impl Iterator<Item = &'a Item>) {
        self.reserve(count);
        for (place, item) in self.buffer.iter_mut().skip(self.count).zip(items) {
            *place = *item;
        }
        self.count += count;
    }
}

#[derive(Debug, Default)]
pub struct Slice {
    /// The items by ring, and their keys.
    decoded: Items,
    keys: Vec<u64>,
    /// The items by key.
    pub sorted: Items,
    /// Indexes of allocations that have the stack's number of their ring.
    unnumbered: Vec<u32>,
    spare: Vec<u64>,
}

impl Slice {
    /// The number of items that are decoded and not sorted.
    pub const fn count(&self) -> usize {
        self.decoded.count
    }

    /// Returns room for at least one more item and its key.
    pub fn room(&mut self) -> (&mut [Item], &mut [u64]) {
        let count = self.decoded.count;
        self.decoded.reserve(1);
        self.keys.resize(self.decoded.buffer.len(), 0);
        (self.decoded.buffer.get_mut(count..).unwrap_or_default(), self.keys.get_mut(count..).unwrap_or_default())
    }

    /// The first `count` places of the room were filled.
    pub const fn filled(&mut self, count: usize) {
        self.decoded.count += count;
    }

    #[cold]
    pub fn push(&mut self, item: Item, key: u64) {
        let (items, keys) = self.room();
        if let (Some(place), Some(its_key)) = (items.first_mut(), keys.first_mut()) {
            (*place, *its_key) = (item, key);
            self.filled(1);
        }
    }

    /// Gives the allocations from `first` on their numbers. Returns the number of items.
    pub fn number(&mut self, first: usize, numbers: &mut impl NumberSource) -> usize {
        let items = self.decoded.get_mut().get_mut(first..).unwrap_or_default();
        if self.unnumbered.len() < items.len() {
            self.unnumbered.resize(items.len().next_power_of_two(), 0);
        }
        // A list of the allocations first: a branch for each item would be mispredicted often.
        let mut allocations = 0;
        for (index, item) in items.iter().enumerate() {
            self.unnumbered[allocations] = index as u32;
            allocations += item.is_alloc() as usize;
        }
        for &index in &self.unnumbered[..allocations] {
            let item = &mut items[index as usize];
            item.number = numbers.number(item.source, item.address, item.size, item.number);
        }
        self.count()
    }

    /// Moves the decoded items to the end of `sorted`. They come later than all items there. No key of theirs is below `start`.
    pub fn sort(&mut self, start: u64) {
        let count = self.decoded.count;
        let keys = self.keys.get_mut(..count).unwrap_or_default();
        if keys.is_sorted() {
            self.sorted.append(&mut self.decoded);
            return;
        }
        let items = self.decoded.get();
        if count >= MOST_ITEMS {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|index| keys.get(*index));
            self.sorted.add(count, order.iter().filter_map(|index| items.get(*index)));
        } else {
            self.spare.resize(self.spare.len().max(count), 0);
            let order = sorted_order(keys, self.spare.get_mut(..count).unwrap_or_default(), start);
            let mask = MOST_ITEMS - 1;
            self.sorted.add(count, order.iter().map(|key| &items[*key as usize & mask]));
        }
        self.decoded.clear();
    }
}

/// Returns the keys in order, each with its index in the low bits. Equal keys keep their order. The result is in one of the two lists.
fn sorted_order<'a>(keys: &'a mut [u64], spare: &'a mut [u64], start: u64) -> &'a [u64] {
    let mut widest = 0;
    for (index, key) in keys.iter_mut().enumerate() {
        *key -= start;
        widest |= *key;
        *key = *key << INDEX_BITS | index as u64;
    }
    radix_sort(keys, spare, u64::BITS - widest.leading_zeros())
}

/// Sorts by the `bits` bits above the index.
fn radix_sort<'a>(mut keys: &'a mut [u64], mut spare: &'a mut [u64], bits: u32) -> &'a [u64] {
    const MOST: u32 = 11;
    let passes = bits.div_ceil(MOST).max(1);
    let digit = bits.div_ceil(passes);
    let mask = (1u64 << digit) - 1;
    let mut counts = [0u32; 1 << MOST];
    for pass in 0..passes {
        let shift = INDEX_BITS + pass * digit;
        let used = &mut counts[..1 << digit];
        used.fill(0);
        for key in keys.iter() {
            used[(key >> shift & mask) as usize] += 1;
        }
        let mut sum = 0;
        for count in used.iter_mut() {
            sum += mem::replace(count, sum);
        }
        for key in keys.iter() {
            let place = &mut used[(key >> shift & mask) as usize];
            spare[*place as usize] = *key;
            *place += 1;
        }
        mem::swap(&mut keys, &mut spare);
    }
    keys
}
