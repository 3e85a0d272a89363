//! How large each part of the shared memory is, and where it starts. The collector chooses, the target checks.
use crate::header::Header;
use crate::module::Module;
use crate::slot::SlotHeader;

pub const PAGE: usize = 4096;

/// Sizes of all parts. Written by the collector into the header, copied and checked once by the target.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Threads that can record at the same time.
    pub slots: u32,
    /// Modules that can ever be loaded, reloads included.
    pub modules: u32,
    /// Bytes for module paths.
    pub names: u32,
    /// The target's own tables, bytes.
    pub private: u32,
    /// Words of a slot's ring; a power of two.
    pub ring_words: u32,
    /// Words of the ring for events inside a signal handler that interrupted a hook; a power of two.
    pub nested_words: u32,
    /// The target's own per-thread tables, bytes.
    pub slot_private: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    NotPowerOfTwo,
    OutOfRange,
}

const fn pages(bytes: usize) -> usize {
    (bytes + PAGE - 1) & !(PAGE - 1)
}

impl Geometry {
    /// What `capture` needs for its per-process tables; asserted there against the real types.
    pub const PRIVATE_BYTES: u32 = 1 << 20;
    /// What `capture` needs per thread; asserted there against the real types.
    pub const SLOT_PRIVATE_BYTES: u32 = 1408 << 10;

    /// For a target without a limit on its address space. Sparse: only touched pages cost memory. Small all the same,
    /// since a program may set itself a limit later.
    pub const fn roomy() -> Self {
        Geometry {
            slots: 4096,
            modules: 8192,
            names: 768 << 10,
            private: Self::PRIVATE_BYTES,
            ring_words: 1 << 16,
            nested_words: 1 << 12,
            slot_private: Self::SLOT_PRIVATE_BYTES,
        }
    }

    /// For a target under `RLIMIT_AS`: the fixed part stays below 6 MB and a slot below 2 MB of address space.
    pub const fn tight() -> Self {
        Geometry {
            slots: 1024,
            modules: 1024,
            names: 128 << 10,
            private: Self::PRIVATE_BYTES,
            ring_words: 1 << 15,
            nested_words: 1 << 12,
            slot_private: Self::SLOT_PRIVATE_BYTES,
        }
    }

    /// `Ok` when every size is within bounds, so that no offset below can overflow.
    pub const fn check(&self) -> Result<(), GeometryError> {
        if !self.ring_words.is_power_of_two() || !self.nested_words.is_power_of_two() {
            return Err(GeometryError::NotPowerOfTwo);
        }
        let sane = self.slots >= 1
            && self.slots <= 1 << 16
            && self.modules >= 16
            && self.modules < 0xffff
            && self.names <= 64 << 20
            && self.ring_words >= 8192
            && self.ring_words <= 1 << 24
            && self.nested_words >= 4096
            && self.nested_words <= 1 << 24
            && self.private == Self::PRIVATE_BYTES
            && self.slot_private == Self::SLOT_PRIVATE_BYTES;
        if sane { Ok(()) } else { Err(GeometryError::OutOfRange) }
    }

    pub const fn slot_headers_at(&self) -> usize {
        pages(size_of::<Header>())
    }
    pub const fn modules_at(&self) -> usize {
        self.slot_headers_at() + pages(self.slots as usize * size_of::<SlotHeader>())
    }
    pub const fn names_at(&self) -> usize {
        self.modules_at() + pages(self.modules as usize * size_of::<Module>())
    }
    pub const fn private_at(&self) -> usize {
        self.names_at() + pages(self.names as usize)
    }
    /// The length of the part that is mapped once, at start.
    pub const fn fixed_len(&self) -> usize {
        self.private_at() + pages(self.private as usize)
    }
    pub const fn ring_bytes(&self) -> usize {
        self.ring_words as usize * 8
    }
    pub const fn nested_bytes(&self) -> usize {
        self.nested_words as usize * 8
    }
    pub const fn slot_area_len(&self) -> usize {
        pages(self.ring_bytes()) + pages(self.nested_bytes()) + pages(self.slot_private as usize)
    }
    pub const fn slot_area_at(&self, slot: u32) -> usize {
        self.fixed_len() + slot as usize * self.slot_area_len()
    }
    /// Offsets inside a slot area.
    pub const fn nested_in_slot(&self) -> usize {
        pages(self.ring_bytes())
    }
    pub const fn private_in_slot(&self) -> usize {
        pages(self.ring_bytes()) + pages(self.nested_bytes())
    }
    pub const fn total_len(&self) -> usize {
        self.slot_area_at(self.slots)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_geometries_are_valid_and_small_enough() {
        assert_eq!(Geometry::roomy().check(), Ok(()));
        let tight = Geometry::tight();
        assert_eq!(tight.check(), Ok(()));
        assert!(tight.fixed_len() <= 6 << 20, "{}", tight.fixed_len());
        assert!(tight.slot_area_len() <= 2 << 20, "{}", tight.slot_area_len());
        assert!(Geometry::roomy().slot_area_len() <= 2 << 20);
        assert!(Geometry::roomy().fixed_len() <= 6 << 20);
    }

    #[test]
    fn a_ring_that_is_no_power_of_two_is_refused() {
        let g = Geometry { ring_words: 1000, ..Geometry::tight() };
        assert_eq!(g.check(), Err(GeometryError::NotPowerOfTwo));
    }
}
