//! Which blocks are in which heap of an allocator, for heaps whose blocks can be freed all at once: mimalloc's heaps,
//! jemalloc's arenas, rpmalloc's heaps, pools of TBB.
//!
//! Receives: marks about heaps, allocations and frees, in order. Returns: the blocks that ended with their heap. Must hold:
//! programs without such heaps pay one test for each event.
use crate::merge::Item;
use channel::{HeapMark, is_in_heap};
use format::{IntMap, IntSet};

/// The address of a heap, with the number of its process in the upper bits, as in `Item::address`.
type Heap = u64;

#[derive(Debug, Default)]
pub struct Heaps {
    is_used: bool,
    /// By heap: the addresses of its live blocks.
    blocks: IntMap<Heap, IntSet<u64>>,
    /// By address: the heap of a live block.
    heap_of: IntMap<u64, Heap>,
    /// By ring: the heap of the next allocation that is in a heap.
    next: IntMap<u32, Heap>,
    /// By ring: the address that was resized last, and its heap. If the block has not moved, it is still in that heap.
    resized: IntMap<u32, (u64, Option<Heap>)>,
    /// By a heap that is a part of another one: that one.
    whole: IntMap<Heap, Heap>,
    /// Heaps with blocks that were not marked.
    mixed: IntSet<Heap>,
    unknown: u64,
}

const PROCESS: u64 = 0xffff << 48;

impl Heaps {
    /// Returns true if the program has such heaps. Otherwise `allocated` and `freed` need not be called.
    #[inline(always)]
    pub const fn is_used(&self) -> bool {
        self.is_used
    }

    /// How often blocks were freed of which it is not known which they were.
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    /// A block was allocated.
    pub fn allocated(&mut self, item: &Item) {
        let marked = if is_in_heap(item.size) { self.next.remove(&item.source) } else { None };
        let heap = match self.resized.remove(&item.source) {
            Some((address, heap)) if address == item.address => heap,
            _ => marked,
        };
        if let Some(heap) = heap {
            let heap = self.whole.get(&heap).copied().unwrap_or(heap);
            self.heap_of.insert(item.address, heap);
            self.blocks.entry(heap).or_default().insert(item.address);
        }
    }

    /// A block ended. `item` is its free, or the allocation that implies it.
    pub fn freed(&mut self, item: &Item) {
        let heap = self.heap_of.remove(&item.address);
        if let Some(blocks) = heap.and_then(|heap| self.blocks.get_mut(&heap)) {
            blocks.remove(&item.address);
        }
        if item.is_by_realloc() {
            self.resized.insert(item.source, (item.address, heap));
        }
    }

    /// Takes a mark about a heap. Returns the addresses of the blocks that end.
    pub fn mark(&mut self, mark: HeapMark, heap: u64, item: &Item) -> Vec<u64> {
        self.is_used = true;
        let heap = heap | (item.process() as u64) << 48;
        match mark {
            HeapMark::In => {
                self.next.insert(item.source, heap);
            }
            HeapMark::PartOf => {
                if let Some(part) = self.next.remove(&item.source).filter(|part| *part != heap) {
                    self.whole.insert(part, heap);
                }
            }
            HeapMark::Mixed => {
                self.mixed.insert(heap);
            }
            HeapMark::UnknownEnded => self.unknown += 1,
            HeapMark::Left => self.leave(heap),
            HeapMark::Ended => return self.end(heap),
        }
        Vec::new()
    }

    fn end(&mut self, heap: Heap) -> Vec<u64> {
        let ended: Vec<u64> = self.blocks.remove(&heap).unwrap_or_default().into_iter().collect();
        self.forget(&ended);
        // A forked process also frees the blocks that it inherited with the heap. They are listed at its ancestor.
        let is_same = |other: &Heap| other & !PROCESS == heap & !PROCESS;
        let is_inherited = ended.is_empty() && self.blocks.keys().any(is_same);
        self.unknown += (is_inherited || self.mixed.contains(&heap)) as u64;
        ended
    }

    fn forget(&mut self, addresses: &[u64]) {
        for address in addresses {
            self.heap_of.remove(address);
        }
    }

    fn leave(&mut self, heap: Heap) {
        let blocks: Vec<u64> = self.blocks.remove(&heap).unwrap_or_default().into_iter().collect();
        self.forget(&blocks);
        self.mixed.remove(&heap);
    }

    /// An exec removed all heaps.
    pub fn clear(&mut self) {
        *self = Heaps { unknown: self.unknown, ..Heaps::default() };
    }

    /// Another process gets this number.
    pub fn forget_process(&mut self, number: u16) {
        if !self.is_used {
            return;
        }
        let is_other = |key: &u64| *key >> 48 != u64::from(number);
        self.blocks.retain(|heap, _| is_other(heap));
        self.heap_of.retain(|address, _| is_other(address));
        self.whole.retain(|part, _| is_other(part));
        self.mixed.retain(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::Origin;
    use channel::{Event, IN_HEAP};

    const SOURCE: u32 = 4;
    const MIMALLOC: u8 = 3;

    fn item(event: &Event) -> Item {
        Item::new(event, SOURCE, Origin { process: 2, slot: 2 })
    }

    fn alloc(heaps: &mut Heaps, address: u64, heap: Option<u64>) {
        let tag = u64::from(MIMALLOC | if heap.is_some() { IN_HEAP } else { 0 }) << 56;
        heap.into_iter().for_each(|heap| drop(mark(heaps, HeapMark::In, heap)));
        heaps.allocated(&item(&Event::Alloc { stamp: 1, address, size: 8 | tag, stack: 0 }));
    }

    fn free(heaps: &mut Heaps, address: u64, by_realloc: bool) {
        heaps.freed(&item(&Event::Free { stamp: 1, address, by_realloc }));
    }

    fn mark(heaps: &mut Heaps, mark: HeapMark, heap: u64) -> Vec<u64> {
        let mut ended = heaps.mark(mark, heap, &item(&Event::Heap { stamp: 1, mark, heap }));
        ended.iter_mut().for_each(|address| *address &= !PROCESS);
        ended.sort_unstable();
        ended
    }

    #[test]
    fn the_blocks_of_a_heap_end_with_it() {
        let mut heaps = Heaps::default();
        for (address, heap) in [(0x10, Some(1)), (0x20, Some(1)), (0x30, Some(2)), (0x40, None), (0x50, Some(1))] {
            alloc(&mut heaps, address, heap);
        }
        free(&mut heaps, 0x20, false);
        alloc(&mut heaps, 0x20, None);
        assert_eq!(mark(&mut heaps, HeapMark::Ended, 1), [0x10, 0x50]);
        assert_eq!(mark(&mut heaps, HeapMark::Ended, 1), []);
        assert_eq!(mark(&mut heaps, HeapMark::Left, 2), []);
        alloc(&mut heaps, 0x60, Some(2));
        assert_eq!((mark(&mut heaps, HeapMark::Ended, 2), heaps.unknown()), (vec![0x60], 0));
    }

    #[test]
    fn a_block_that_is_resized_in_place_stays_in_its_heap() {
        let mut heaps = Heaps::default();
        alloc(&mut heaps, 0x10, Some(1));
        alloc(&mut heaps, 0x20, None);
        alloc(&mut heaps, 0x30, Some(1));
        // 0x10 grows in place by a function without a heap, 0x20 by one with a heap, 0x30 moves out of its heap.
        for (old, new, heap) in [(0x10, 0x10, None), (0x20, 0x20, Some(1)), (0x30, 0x40, None)] {
            heap.into_iter().for_each(|heap| drop(mark(&mut heaps, HeapMark::In, heap)));
            free(&mut heaps, old, true);
            alloc(&mut heaps, new, heap);
        }
        assert_eq!(mark(&mut heaps, HeapMark::Ended, 1), [0x10]);
    }

    #[test]
    fn parts_end_with_the_whole_and_what_is_unknown_is_counted() {
        let mut heaps = Heaps::default();
        mark(&mut heaps, HeapMark::In, 7);
        mark(&mut heaps, HeapMark::PartOf, 1);
        alloc(&mut heaps, 0x10, Some(7));
        mark(&mut heaps, HeapMark::Mixed, 1);
        assert_eq!((mark(&mut heaps, HeapMark::Ended, 1), heaps.unknown()), (vec![0x10], 1));
        mark(&mut heaps, HeapMark::UnknownEnded, 0);
        assert_eq!(heaps.unknown(), 2);
        alloc(&mut heaps, 0x10, Some(1));
        heaps.forget_process(2);
        assert_eq!((mark(&mut heaps, HeapMark::Ended, 1), heaps.unknown()), (vec![], 2));
    }
}
