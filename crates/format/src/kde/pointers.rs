//! Blocks by their addresses, for files that contain addresses: raw ones, and format 0.
//!
//! Must hold: memory is bounded by live blocks. If an address is allocated again while it is live, the new block
//! replaces the old one, whose free was not recorded.
use crate::{IntMap, PeakTracker, Totals};

#[derive(Default)]
pub(crate) struct Pointers {
    /// Address -> sequence number and allocation class.
    live: IntMap<u64, (u64, u32)>,
    alloc_classes: IntMap<(u64, u32), u32>,
    sizes: Vec<u64>,
    /// The address of the last allocation, if no free came after it.
    last: Option<u64>,
    pub(crate) now_ns: u64,
    pub(crate) heap: PeakTracker,
    /// All totals but those of `heap`, runtime and resident memory.
    pub(crate) totals: Totals,
}

impl Pointers {
    /// Returns the allocation class of an allocation, and whether it is new.
    pub(crate) fn alloc_class(&mut self, size: u64, stack: u32) -> (u32, bool) {
        let next = self.sizes.len() as u32;
        let alloc_class = *self.alloc_classes.entry((size, stack)).or_insert(next);
        if alloc_class == next {
            self.sizes.push(size);
        }
        (alloc_class, alloc_class == next)
    }

    /// Adds a block. If the address is live, the caller must call `implied` first.
    pub(crate) fn alloc(&mut self, address: u64, sequence: u64, alloc_class: u32) {
        let size = self.size(alloc_class);
        self.last = Some(address);
        self.live.insert(address, (sequence, alloc_class));
        let totals = &mut self.totals;
        totals.allocations += 1;
        totals.allocated_bytes = totals.allocated_bytes.saturating_add(size);
        self.heap.alloc_at(size, self.now_ns);
    }

    /// Removes the block at `address` and returns its sequence number.
    pub(crate) fn free(&mut self, address: u64) -> Option<u64> {
        let is_temporary = self.last == Some(address);
        let sequence = self.remove(address)?;
        self.last = None;
        self.totals.temporary += is_temporary as u64;
        Some(sequence)
    }

    /// Removes a block whose free was not recorded.
    pub(crate) fn implied(&mut self, address: u64) -> Option<u64> {
        let sequence = self.remove(address)?;
        self.totals.implied_frees += 1;
        Some(sequence)
    }

    fn remove(&mut self, address: u64) -> Option<u64> {
        let (sequence, alloc_class) = self.live.remove(&address)?;
        let size = self.size(alloc_class);
        self.totals.deallocations += 1;
        self.heap.free(size);
        Some(sequence)
    }

    fn size(&self, alloc_class: u32) -> u64 {
        self.sizes.get(alloc_class as usize).copied().unwrap_or(0)
    }
}
