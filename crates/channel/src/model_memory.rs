//! Shared memory for loom's models. Loom's atomics are not valid as zeroed memory, so each one is made by its
//! constructor.
#![allow(clippy::expect_used)]

use crate::geometry::{Geometry, PAGE};
use crate::header::Header;
use crate::region::Region;
use crate::ring::Ring;
use crate::slot::SlotHeader;
use crate::sync::AtomicU64;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// A header, slots, and both rings of each slot, as `Region` expects them. Smaller than any real one.
#[derive(Debug)]
pub struct ModelMemory {
    base: *mut u8,
    geometry: Geometry,
}

// SAFETY: an address, and numbers that do not change. What it points to is atomics, and a header whose other fields are
// not written after `new`.
unsafe impl Send for ModelMemory {}
// SAFETY: `&ModelMemory` gives access to the same atomics and numbers as `ModelMemory`, see `Send`.
unsafe impl Sync for ModelMemory {}

impl ModelMemory {
    /// `header`: the numbers that the collector writes before the target starts.
    pub fn new(slots: u32, ring_words: u32, header: Header) -> Self {
        let geometry = Geometry {
            slots,
            near_slots: slots,
            large_slots: slots,
            ring_words,
            small_ring_words: ring_words,
            nested_words: ring_words,
            slots_per_map: 1,
            ..Geometry::default()
        };
        assert!(ring_words as usize * size_of::<AtomicU64>() <= PAGE, "a ring of loom's atomics must fit a page");
        // SAFETY: the length is not 0.
        let base = unsafe { alloc_zeroed(layout(&geometry)) };
        let memory = ModelMemory { base, geometry };
        // SAFETY: `geometry` places the header, the slots and the rings inside of the memory that was allocated for it,
        // aligned, and nothing else uses it yet.
        unsafe {
            base.cast::<Header>().write(header);
            let first = base.add(geometry.slot_headers_at()).cast::<SlotHeader>();
            for index in 0..slots {
                first.add(index as usize).write(SlotHeader::default());
                for is_nested in [false, true] {
                    let (words, len) = memory.region().ring_words(index, memory.area(index), is_nested);
                    (0..len).for_each(|at| words.cast_mut().add(at).write(AtomicU64::new(0)));
                }
            }
        }
        memory
    }

    pub fn region(&self) -> Region {
        // SAFETY: the memory is there for as long as `self`, and is as long as the geometry says. `Geometry::check`
        // would refuse so small a geometry, but its offsets are valid. The models use no part that has no room in it.
        unsafe { Region::new(self.base, self.geometry) }
    }

    pub fn area(&self, slot: u32) -> *mut u8 {
        self.base.wrapping_add(self.geometry.slot_area_at(slot))
    }

    pub fn slot(&self, index: u32) -> &SlotHeader {
        self.region().slot(index).expect("a slot of the model")
    }

    pub fn rings(&self, index: u32) -> [Ring<'_>; 2] {
        let slot = self.region().slot(index).expect("a slot of the model");
        // SAFETY: the area is a part of the memory.
        unsafe { self.region().rings(index, slot, self.area(index)) }
    }
}

impl Drop for ModelMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `new`. Loom's atomics own nothing that must be dropped.
        unsafe { dealloc(self.base, layout(&self.geometry)) };
    }
}

fn layout(geometry: &Geometry) -> Layout {
    Layout::from_size_align(geometry.total_len(), PAGE).expect("a small geometry")
}
