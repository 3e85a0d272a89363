//! How large each part of the shared memory is, and where it starts. The collector chooses the sizes and the target
//! checks them.
use crate::header::Header;
use crate::module::Module;
use crate::slot::SlotHeader;

pub const PAGE: usize = 4096;

/// The sizes of all parts. The collector writes them into the header. The target copies and checks them once.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(loom, derive(Default))]
pub struct Geometry {
    /// Threads that can record at the same time.
    pub slots: u32,
    /// The target maps the headers of slots `[0, near_slots)` at the start. It maps the others only when it has more
    /// threads.
    pub near_slots: u32,
    /// Entries of the module table. Every load of a module takes one, also when the module was loaded before.
    pub modules: u32,
    /// Bytes for module paths.
    pub names: u32,
    /// `WriterMemory::process`.
    pub private: u32,
    /// Slots `[0, large_slots)` have rings of `ring_words`. The other slots have rings of `small_ring_words`, and their
    /// threads use smaller tables. Only programs with many threads need these slots.
    pub large_slots: u32,
    /// Words of a large slot's ring; a power of two.
    pub ring_words: u32,
    /// Words of any other slot's ring; a power of two.
    pub small_ring_words: u32,
    /// Words of the ring for events inside a signal handler that interrupted a hook; a power of two.
    pub nested_words: u32,
    /// `WriterMemory::thread`.
    pub slot_private: u32,
    /// The target maps the areas of the first `SINGLE_SLOTS` slots one by one, and those of the others in groups of
    /// this many, because Linux allows a process only 65,530 mappings.
    pub slots_per_map: u32,
}

/// How many bytes of the shared memory belong to the writer, which is the capture library in the target. The channel
/// only reserves them: it neither reads them nor knows what they hold. The capture library defines the two numbers
/// (`capture::core::WRITER_MEMORY`) and refuses a channel that was made with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterMemory {
    /// Once for the process.
    pub process: u32,
    /// Once for each slot.
    pub thread: u32,
}

impl WriterMemory {
    /// For a channel whose writer keeps nothing in it, as in tests of the collector.
    pub const NONE: WriterMemory = WriterMemory { process: 0, thread: 0 };
    /// The most bytes that `Geometry::check` accepts for `process`, and for `thread`.
    const MOST_BYTES: u32 = 64 << 20;
}

/// A group of slot areas that the target maps in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUnit {
    pub index: usize,
    pub first_slot: u32,
    pub slots: u32,
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
    pub const SINGLE_SLOTS: u32 = 8;
    /// An upper bound of the number of map units (`MapUnit`) in any geometry that passes `check`.
    pub const MAX_MAP_UNITS: usize = 1 << 11;

    /// For a target without a limit on its address space. Only pages that are touched cost memory. The sizes are
    /// moderate nevertheless, because a program may set itself a limit later.
    pub const fn roomy(writer: WriterMemory) -> Self {
        Geometry {
            slots: 24 << 10,
            near_slots: 1 << 10,
            modules: 8192,
            names: 768 << 10,
            private: writer.process,
            large_slots: 256,
            ring_words: 1 << 16,
            small_ring_words: 1 << 12,
            nested_words: 1 << 12,
            slot_private: writer.thread,
            slots_per_map: 64,
        }
    }

    /// For a target under `RLIMIT_AS`. The fixed part takes less than 2 MB of address space, and so does the area of a
    /// slot.
    pub const fn tight(writer: WriterMemory) -> Self {
        Geometry {
            slots: 1024,
            near_slots: 1024,
            modules: 1024,
            names: 128 << 10,
            private: writer.process,
            large_slots: 64,
            ring_words: 1 << 15,
            small_ring_words: 1 << 12,
            nested_words: 1 << 12,
            slot_private: writer.thread,
            slots_per_map: 1,
        }
    }

    /// Returns `Ok` if every size is within bounds. Then none of the offsets below can overflow.
    pub const fn check(&self) -> Result<(), GeometryError> {
        if !self.ring_words.is_power_of_two()
            || !self.small_ring_words.is_power_of_two()
            || !self.nested_words.is_power_of_two()
        {
            return Err(GeometryError::NotPowerOfTwo);
        }
        let sane = self.slots >= 1
            && self.slots <= 1 << 16
            && self.near_slots >= 32
            && self.near_slots <= self.slots
            && self.near_slots.is_multiple_of(32)
            && self.modules >= 16
            && self.modules < 0xffff
            && self.names <= 64 << 20
            && self.ring_words >= 8192
            && self.ring_words <= 1 << 24
            && self.small_ring_words >= 4096
            && self.small_ring_words <= self.ring_words
            && self.large_slots <= self.slots
            && self.slots_per_map >= 1
            && self.slots_per_map <= 1 << 12
            && self.map_unit_of(self.slots).index < Self::MAX_MAP_UNITS
            && self.nested_words >= 4096
            && self.nested_words <= 1 << 24
            && self.private <= WriterMemory::MOST_BYTES
            && self.slot_private <= WriterMemory::MOST_BYTES;
        if sane { Ok(()) } else { Err(GeometryError::OutOfRange) }
    }

    /// The geometry that these bytes of a channel's header hold. It may make no sense: see `check`.
    pub const fn from_bytes(bytes: &[u8; size_of::<Geometry>()]) -> Self {
        // SAFETY: `Geometry` is laid out as in C and consists of integers only, so any bytes of that length are one.
        unsafe { bytes.as_ptr().cast::<Geometry>().read_unaligned() }
    }

    /// The bytes that `from_bytes` reads.
    pub const fn to_bytes(self) -> [u8; size_of::<Geometry>()] {
        // SAFETY: eleven integers of four bytes, laid out as in C, so there is no byte between them.
        unsafe { core::mem::transmute(self) }
    }

    pub const fn writer_memory(&self) -> WriterMemory {
        WriterMemory { process: self.private, thread: self.slot_private }
    }

    pub const fn modules_at(&self) -> usize {
        pages(size_of::<Header>())
    }
    pub const fn names_at(&self) -> usize {
        self.modules_at() + pages(self.modules as usize * size_of::<Module>())
    }
    pub const fn private_at(&self) -> usize {
        self.names_at() + pages(self.names as usize)
    }
    pub const fn slot_headers_at(&self) -> usize {
        self.private_at() + pages(self.private as usize)
    }
    /// The length of the part that the target maps at the start. The headers of far slots follow it.
    pub const fn near_len(&self) -> usize {
        self.slot_headers_at() + pages(self.near_slots as usize * size_of::<SlotHeader>())
    }
    /// The length of everything before the slot areas.
    pub const fn fixed_len(&self) -> usize {
        self.slot_headers_at() + pages(self.slots as usize * size_of::<SlotHeader>())
    }
    /// Words of the ring of a slot.
    #[inline(always)]
    pub const fn ring_words_of(&self, slot: u32) -> u32 {
        if slot < self.large_slots { self.ring_words } else { self.small_ring_words }
    }
    const fn area_len(&self, ring_words: u32) -> usize {
        pages(ring_words as usize * 8) + pages(self.nested_words as usize * 8) + pages(self.slot_private as usize)
    }
    /// Where a slot's area begins. For `slot == slots`, where the last area ends.
    pub const fn slot_area_at(&self, slot: u32) -> usize {
        let large = if slot < self.large_slots { slot } else { self.large_slots };
        self.fixed_len()
            + large as usize * self.area_len(self.ring_words)
            + (slot - large) as usize * self.area_len(self.small_ring_words)
    }
    /// The offset of the nested ring in a slot's area.
    pub const fn nested_in_slot(&self, slot: u32) -> usize {
        pages(self.ring_words_of(slot) as usize * 8)
    }
    pub const fn private_in_slot(&self, slot: u32) -> usize {
        self.nested_in_slot(slot) + pages(self.nested_words as usize * 8)
    }
    /// The unit that holds a slot's area.
    pub const fn map_unit_of(&self, slot: u32) -> MapUnit {
        let single = Self::SINGLE_SLOTS;
        let unit = match (slot.wrapping_sub(single)).checked_div(self.slots_per_map) {
            Some(units) if slot >= single => single + units,
            _ => slot,
        };
        self.map_unit(unit as usize)
    }
    pub const fn map_unit(&self, index: usize) -> MapUnit {
        let (single, each) = (Self::SINGLE_SLOTS, self.slots_per_map);
        let unit = index as u32;
        let (first_slot, slots) = if unit < single { (unit, 1) } else { (single + (unit - single) * each, each) };
        let left = self.slots.saturating_sub(first_slot);
        MapUnit { index, first_slot, slots: if slots < left { slots } else { left } }
    }
    pub const fn map_unit_len(&self, unit: MapUnit) -> usize {
        self.slot_area_at(unit.first_slot + unit.slots) - self.slot_area_at(unit.first_slot)
    }
    pub const fn total_len(&self) -> usize {
        self.slot_area_at(self.slots)
    }
}

const _: () = assert!(size_of::<Geometry>() == 11 * size_of::<u32>());

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The same numbers as `capture::core::WRITER_MEMORY`.
    const WRITER: WriterMemory = WriterMemory { process: 5 << 18, thread: 1408 << 10 };

    #[test]
    fn both_geometries_are_valid_and_small_enough() {
        assert_eq!(Geometry::roomy(WRITER).check(), Ok(()));
        let tight = Geometry::tight(WRITER);
        assert_eq!(tight.check(), Ok(()));
        assert!(tight.near_len() <= 4 << 20, "{}", tight.near_len());
        assert!(Geometry::roomy(WRITER).near_len() <= 4 << 20, "{}", Geometry::roomy(WRITER).near_len());
        for geometry in [tight, Geometry::roomy(WRITER)] {
            assert!(geometry.slot_area_at(1) - geometry.slot_area_at(0) <= 2 << 20);
        }
    }

    #[test]
    fn units_cover_every_slot_once() {
        for geometry in
            [Geometry::tight(WRITER), Geometry::roomy(WRITER), Geometry { slots: 1075, ..Geometry::roomy(WRITER) }]
        {
            let mut next = 0;
            for index in 0.. {
                let unit = geometry.map_unit(index);
                if unit.slots == 0 {
                    break;
                }
                assert!(index < Geometry::MAX_MAP_UNITS);
                assert_eq!(unit.first_slot, next);
                next += unit.slots;
                assert_eq!(geometry.map_unit_of(unit.first_slot), unit);
                assert_eq!(geometry.map_unit_of(next - 1), unit);
            }
            assert_eq!(next, geometry.slots);
        }
    }

    #[test]
    fn a_ring_that_is_no_power_of_two_is_refused() {
        let g = Geometry { ring_words: 1000, ..Geometry::tight(WRITER) };
        assert_eq!(g.check(), Err(GeometryError::NotPowerOfTwo));
    }

    #[test]
    fn a_writer_that_wants_too_much_is_refused() {
        let most = WriterMemory::MOST_BYTES;
        for (process, thread) in [(most + 1, 0), (0, most + 1)] {
            let geometry = Geometry::roomy(WriterMemory { process, thread });
            assert_eq!(geometry.check(), Err(GeometryError::OutOfRange));
        }
    }

    #[test]
    fn a_geometry_is_read_from_the_bytes_of_a_header() {
        let geometry = Geometry::roomy(WRITER);
        let words = [
            geometry.slots,
            geometry.near_slots,
            geometry.modules,
            geometry.names,
            geometry.private,
            geometry.large_slots,
            geometry.ring_words,
            geometry.small_ring_words,
            geometry.nested_words,
            geometry.slot_private,
            geometry.slots_per_map,
        ];
        let mut bytes = [0; size_of::<Geometry>()];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
        assert_eq!(Geometry::from_bytes(&bytes), geometry);
        assert_eq!(geometry.to_bytes(), bytes);
        assert_eq!(geometry.writer_memory(), WRITER);
    }
}
