//! The mapped memory as typed parts. Only this file turns offsets into references.
use crate::geometry::Geometry;
use crate::header::Header;
use crate::module::Module;
use crate::ring::Ring;
use crate::slot::SlotHeader;
use crate::sync::AtomicU64;
use core::marker::PhantomData;
use core::mem::offset_of;

/// The fixed part of the shared memory: its address and its geometry. It stays mapped for `'m`, so references to its
/// parts may live that long.
///
/// The unsafe code of this file rests on one invariant, **the parts are mapped**: every part that `Geometry` places in
/// the fixed part lies inside memory that is mapped readable and writable at `base` for all of `'m`, page-aligned. The
/// callers of `new` and `in_parts` promise the mapping; `Geometry::check`, which they have called, keeps the offsets
/// inside `fixed_len` and aligned. All types in there are valid for any bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Region<'m> {
    base: *mut u8,
    geometry: Geometry,
    /// Points to the word with the address at which the headers of far slots are mapped; 0 = not mapped yet. If this
    /// pointer is null, they follow directly after the headers of near slots.
    far: *const core::sync::atomic::AtomicU64,
    /// Where the last page before the slot areas ends.
    fixed_end: u64,
    mapped: PhantomData<&'m Header>,
}

// SAFETY: a region is an address, which any thread may use. What it hands out references to are atomics, and numbers of
// the header that `collector::Mapping` writes before another thread or process sees the memory.
unsafe impl Send for Region<'_> {}
// SAFETY: `&Region` hands out the same references as `Region`, to atomics and to numbers that no longer change.
unsafe impl Sync for Region<'_> {}

impl<'m> Region<'m> {
    /// # Safety
    /// `base` is page-aligned, mapped readable and writable for `geometry.fixed_len()` bytes during all of `'m`, and
    /// `geometry.check()` was `Ok`.
    pub unsafe fn new(base: *mut u8, geometry: Geometry) -> Self {
        let fixed_end = base as u64 + geometry.fixed_len() as u64;
        Region { base, geometry, far: core::ptr::null(), fixed_end, mapped: PhantomData }
    }

    /// A region whose far slots are mapped later.
    ///
    /// # Safety
    /// As `new`, but only `geometry.near_len()` bytes are mapped at `base`. The last page before the slot areas is
    /// mapped and ends at `fixed_end`. `far` points into the private part. It holds 0 until the headers of far slots
    /// are mapped, and then their address.
    pub const unsafe fn in_parts(
        base: *mut u8,
        geometry: Geometry,
        far: *const core::sync::atomic::AtomicU64,
        fixed_end: u64,
    ) -> Self {
        Region { base, geometry, far, fixed_end, mapped: PhantomData }
    }

    /// Returns the bytes of the region that `new` would make in another process. `base` is an address in that process,
    /// and is not dereferenced here. Bytes between fields are zero.
    pub fn bytes_for_another_process(base: u64, geometry: Geometry) -> [u8; size_of::<Region<'static>>()] {
        let mut bytes = [0; size_of::<Region<'static>>()];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(offset_of!(Region<'static>, base), &base.to_ne_bytes());
        put(offset_of!(Region<'static>, geometry), &geometry.to_bytes());
        put(offset_of!(Region<'static>, fixed_end), &(base + geometry.fixed_len() as u64).to_ne_bytes());
        bytes
    }

    /// Where the last page before the slot areas ends.
    pub const fn fixed_end(&self) -> u64 {
        self.fixed_end
    }

    /// Where the near part ends.
    pub fn near_end(&self) -> u64 {
        self.base as u64 + self.geometry.near_len() as u64
    }

    #[inline(always)]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline(always)]
    pub const fn header(&self) -> &'m Header {
        // SAFETY: the parts are mapped (see `Region`). The header is at the start of `base` and smaller than a page.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Returns `None` if there is no such slot, or if its header is not mapped.
    #[inline]
    pub fn slot(&self, index: u32) -> Option<&'m SlotHeader> {
        if index >= self.geometry.slots {
            return None;
        }
        let is_near = index < self.geometry.near_slots || self.far.is_null();
        let (first, index) = if is_near {
            (self.base as usize + self.geometry.slot_headers_at(), index)
        } else {
            // SAFETY: not null, so `in_parts` made this region: its caller promises that `far` points into the private
            // part.
            let far = unsafe { &*self.far }.load(core::sync::atomic::Ordering::Acquire);
            (far as usize, index - self.geometry.near_slots)
        };
        if first == 0 {
            return None;
        }
        // SAFETY: the parts are mapped (see `Region`). If `far` is null, `index` is below `slots`, and the caller of
        // `new` has mapped that many headers. Otherwise it is below `near_slots`, or (for a far slot) below `slots -
        // near_slots`, and the caller of `in_parts` maps that many.
        Some(unsafe { &*(first as *const SlotHeader).add(index as usize) })
    }

    #[inline]
    pub const fn modules(&self) -> &'m [Module] {
        // SAFETY: the parts are mapped (see `Region`). `Geometry` leaves `modules` entries of room at `modules_at`.
        unsafe {
            core::slice::from_raw_parts(
                self.base.add(self.geometry.modules_at()).cast(),
                self.geometry.modules as usize,
            )
        }
    }

    /// The module paths. The bytes are atomics, because both processes access them.
    #[inline]
    pub const fn names(&self) -> &'m [core::sync::atomic::AtomicU8] {
        // SAFETY: the parts are mapped (see `Region`). `Geometry` leaves `names` bytes of room at `names_at`.
        unsafe {
            core::slice::from_raw_parts(self.base.add(self.geometry.names_at()).cast(), self.geometry.names as usize)
        }
    }

    /// The part that belongs to the writer, see `WriterMemory`.
    #[inline(always)]
    pub const fn private(&self) -> *mut u8 {
        // SAFETY: the parts are mapped (see `Region`), so the sum is an address inside the same mapping.
        unsafe { self.base.add(self.geometry.private_at()) }
    }

    /// Returns the words of one of a slot's two rings, and their number. The slot's area is mapped at `area`.
    #[inline(always)]
    pub const fn ring_words(&self, index: u32, area: *mut u8, nested: bool) -> (*const AtomicU64, usize) {
        let (offset, words) = if nested {
            (self.geometry.nested_in_slot(index), self.geometry.nested_words)
        } else {
            (0, self.geometry.ring_words_of(index))
        };
        (area.wrapping_add(offset).cast(), words as usize)
    }

    /// Returns both rings of slot `index`, whose header is `slot` and whose area is mapped at `area`.
    ///
    /// # Safety
    /// `area` is mapped up to `geometry.private_in_slot(index)` during all of `'r`.
    #[inline]
    pub const unsafe fn rings<'r>(&self, index: u32, slot: &'r SlotHeader, area: *mut u8) -> [Ring<'r>; 2] {
        let (words, len) = self.ring_words(index, area, false);
        let (nested_words, nested_len) = self.ring_words(index, area, true);
        // SAFETY: the caller promises that `area` is mapped up to `private_in_slot`. `Geometry` places both rings
        // before that, and each begins at a page. The words are atomics, which any bytes are.
        unsafe {
            [
                Ring::new(core::slice::from_raw_parts(words, len), &slot.head, &slot.tail),
                Ring::new(core::slice::from_raw_parts(nested_words, nested_len), &slot.nested_head, &slot.nested_tail),
            ]
        }
    }
}
