//! The mapped memory as typed parts. The only place that turns offsets into references.
use crate::geometry::Geometry;
use crate::header::Header;
use crate::module::Module;
use crate::ring::Ring;
use crate::slot::SlotHeader;
use crate::sync::AtomicU64;

/// The fixed part. `Copy`: it is an address and its geometry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Region {
    base: *mut u8,
    geometry: Geometry,
}

// SAFETY: all parts are atomics, or written only before the other side starts.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    /// `base` is page-aligned, mapped readable and writable for `geometry.fixed_len()` bytes for as long as the
    /// region or anything taken from it is used, and `geometry.check()` was `Ok`.
    pub const unsafe fn new(base: *mut u8, geometry: Geometry) -> Self {
        Region { base, geometry }
    }

    #[inline(always)]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline(always)]
    pub const fn header(&self) -> &'static Header {
        // SAFETY: `new`'s caller guarantees the mapping; the header is at its start.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// `None` when there is no such slot.
    #[inline]
    pub const fn slot(&self, index: u32) -> Option<&'static SlotHeader> {
        if index >= self.geometry.slots {
            return None;
        }
        // SAFETY: inside the fixed part, by `Geometry` and the check above.
        Some(unsafe { &*self.base.add(self.geometry.slot_headers_at()).cast::<SlotHeader>().add(index as usize) })
    }

    #[inline]
    pub const fn modules(&self) -> &'static [Module] {
        // SAFETY: inside the fixed part, by `Geometry`.
        unsafe {
            core::slice::from_raw_parts(
                self.base.add(self.geometry.modules_at()).cast(),
                self.geometry.modules as usize,
            )
        }
    }

    /// Module paths, bytes in words so that both sides can touch them.
    #[inline]
    pub const fn names(&self) -> &'static [core::sync::atomic::AtomicU8] {
        // SAFETY: inside the fixed part, by `Geometry`.
        unsafe {
            core::slice::from_raw_parts(self.base.add(self.geometry.names_at()).cast(), self.geometry.names as usize)
        }
    }

    /// The target's own tables.
    #[inline(always)]
    pub const fn private(&self) -> *mut u8 {
        // SAFETY: inside the fixed part, by `Geometry`.
        unsafe { self.base.add(self.geometry.private_at()) }
    }

    /// One of the two rings of a slot whose area is mapped at `area`.
    ///
    /// # Safety
    /// `area` is mapped for `geometry.slot_area_len()` bytes for as long as the ring is used.
    #[inline(always)]
    pub const unsafe fn ring(&self, slot: &'static SlotHeader, area: *mut u8, nested: bool) -> Ring<'static> {
        let (offset, words, head, tail) = if nested {
            (self.geometry.nested_in_slot(), self.geometry.nested_words, &slot.nested_head, &slot.nested_tail)
        } else {
            (0, self.geometry.ring_words, &slot.head, &slot.tail)
        };
        // SAFETY: the caller's promise, and the geometry's offsets.
        let words = unsafe { core::slice::from_raw_parts(area.add(offset).cast::<AtomicU64>(), words as usize) };
        Ring::new(words, head, tail)
    }

    /// Both rings.
    ///
    /// # Safety
    /// As `ring`.
    #[inline]
    pub const unsafe fn rings(&self, slot: &'static SlotHeader, area: *mut u8) -> [Ring<'static>; 2] {
        // SAFETY: the caller's promise.
        unsafe { [self.ring(slot, area, false), self.ring(slot, area, true)] }
    }
}
