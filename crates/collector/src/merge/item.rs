//! One event as the merge and the consumer pass it on.
use channel::{CUSTOM, Event, FORK, HeapMark, KIND_BITS, Kind, MapCall, Plain, Stamp};

/// Where a ring is: the number of its process among those that are recorded now, and its slot in the shared memory of that process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub process: u16,
    pub slot: u32,
}

/// The process of a block is in the upper bits of its address, so blocks of two processes never have the same address.
const PROCESS_SHIFT: u32 = 48;
const ADDRESS_MASK: u64 = (1 << PROCESS_SHIFT) - 1;

impl Origin {
    #[inline(always)]
    pub const fn tag(self) -> u64 {
        (self.process as u64) << PROCESS_SHIFT
    }
}

/// An event and the ring that it came from. Allocations and frees have the same form, so that code which handles both needs no branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// `stamp (61) | kind (3)`, as in the ring.
    head: u64,
    /// `process (16) | address (48)`; for marks their value.
    pub address: u64,
    /// The size of an allocation; for marks the slot of the thread in its own process.
    pub size: u64,
    /// The number of an allocation's size and stack (`NumberSource::number`); for marks the process.
    pub number: u32,
    /// `2 * n`, or `2 * n + 1` for a slot's ring of nested events, where `n` is the slot's number among those of all processes.
    pub source: u32,
}

const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

/// Order of events: by stamp, at equal stamps the free before the allocation.
#[inline(always)]
pub const fn key(head: u64) -> u64 {
    head >> KIND_BITS << 1 | (head & KIND_MASK == Kind::Alloc as u64) as u64
}

impl Item {
    #[inline(always)]
    pub const fn plain(plain: &Plain, source: u32, tag: u64) -> Self {
        Item { head: plain.head, address: plain.address | tag, size: plain.size, number: plain.stack, source }
    }

    #[inline(always)]
    pub const fn new(event: &Event, source: u32, origin: Origin) -> Self {
        let tag = origin.tag();
        let (slot, process) = (origin.slot as u64, origin.process as u32);
        let (kind, address, size, number) = match *event {
            Event::Alloc { address, size, stack, .. } => (Kind::Alloc, address | tag, size, stack),
            Event::Free { address, by_realloc: false, .. } => (Kind::Free, address | tag, 0, 0),
            Event::Free { address, .. } => (Kind::FreeByRealloc, address | tag, 0, 0),
            Event::ThreadStart { tid, .. } => (Kind::ThreadStart, tid as u64, slot, process),
            Event::Image { image, .. } => (Kind::Image, image as u64, slot, process),
            Event::Fork { fork, pid, .. } => (Kind::Image, FORK | (fork as u64) << 32 | pid as u64, slot, process),
            Event::Exit { code, .. } => (Kind::Image, FORK | code as u64, slot, process),
            Event::Heap { mark, heap, .. } => (Kind::Image, mark.value(heap), slot, process),
        };
        Item { head: event.stamp() << KIND_BITS | kind as u64, address, size, number, source }
    }

    #[inline(always)]
    pub const fn stamp(&self) -> Stamp {
        self.head >> KIND_BITS
    }

    #[inline(always)]
    pub const fn key(&self) -> u64 {
        key(self.head)
    }

    #[inline(always)]
    const fn is(&self, kind: Kind) -> bool {
        self.head & KIND_MASK == kind as u64
    }

    #[inline(always)]
    pub const fn is_alloc(&self) -> bool {
        self.is(Kind::Alloc)
    }

    #[inline(always)]
    pub const fn is_free(&self) -> bool {
        self.is(Kind::Free) | self.is(Kind::FreeByRealloc)
    }

    #[inline(always)]
    pub const fn is_by_realloc(&self) -> bool {
        self.is(Kind::FreeByRealloc)
    }

    /// True for an event of a block, and not a mark.
    #[inline(always)]
    pub const fn has_block(&self) -> bool {
        self.is_alloc() | self.is_free()
    }

    /// True for an event of one of malloc's blocks in the first process.
    #[inline(always)]
    pub const fn is_mallocs(&self) -> bool {
        self.has_block() & (self.address < CUSTOM)
    }

    /// True for an event of a block that the program reported itself.
    #[inline(always)]
    pub const fn is_custom(&self) -> bool {
        self.has_block() & (self.address & CUSTOM != 0)
    }

    /// The call, if the event is about a mapping of the program.
    #[inline]
    pub fn map_call(&self) -> Option<MapCall> {
        if self.is_alloc() && self.is_custom() { MapCall::of(self.size) } else { None }
    }

    /// The address in its process.
    #[inline(always)]
    pub const fn plain_address(&self) -> u64 {
        self.address & ADDRESS_MASK
    }

    /// The number of the process among those that are recorded now.
    #[inline(always)]
    pub const fn process(&self) -> usize {
        if self.has_block() { (self.address >> PROCESS_SHIFT) as usize } else { self.number as usize }
    }

    pub const fn event(&self) -> Event {
        let (stamp, address, value) = (self.stamp(), self.plain_address(), self.address as u32);
        if self.is_alloc() {
            Event::Alloc { stamp, address, size: self.size, stack: self.number }
        } else if self.is_free() {
            Event::Free { stamp, address, by_realloc: self.is_by_realloc() }
        } else if self.is(Kind::ThreadStart) {
            Event::ThreadStart { stamp, tid: value }
        } else if self.address >> 32 == FORK >> 32 {
            Event::Exit { stamp, code: value as u8 }
        } else if self.address & FORK != 0 {
            Event::Fork { stamp, fork: (self.address >> 32) as u32 & 0x7fff_ffff, pid: value }
        } else if let Some((mark, heap)) = HeapMark::from_value(self.address) {
            Event::Heap { stamp, mark, heap }
        } else {
            Event::Image { stamp, image: value }
        }
    }
}
