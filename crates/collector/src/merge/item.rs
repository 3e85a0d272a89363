//! One event as the merge and the consumer pass it on.
use channel::{CUSTOM, Event, KIND_BITS, Kind, Plain, Stamp};

/// An event and the ring that it came from. Allocations and frees have the same form, so that code which handles both needs no branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// `stamp (61) | kind (3)`, as in the ring.
    head: u64,
    /// The address; for marks their value.
    pub address: u64,
    pub size: u64,
    /// The number of an allocation's size and stack (`NumberSource::number`).
    pub number: u32,
    /// `2 * slot`, or `2 * slot + 1` for the slot's ring of nested events.
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
    pub const fn plain(plain: &Plain, source: u32) -> Self {
        Item { head: plain.head, address: plain.address, size: plain.size, number: plain.stack, source }
    }

    pub const fn new(event: &Event, source: u32) -> Self {
        let (kind, address, size, number) = match *event {
            Event::Alloc { address, size, stack, .. } => (Kind::Alloc, address, size, stack),
            Event::Free { address, by_realloc: false, .. } => (Kind::Free, address, 0, 0),
            Event::Free { address, .. } => (Kind::FreeByRealloc, address, 0, 0),
            Event::ThreadStart { tid, .. } => (Kind::ThreadStart, tid as u64, 0, 0),
            Event::Image { image, .. } => (Kind::Image, image as u64, 0, 0),
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

    /// True for an event of one of malloc's blocks.
    #[inline(always)]
    pub const fn is_mallocs(&self) -> bool {
        self.has_block() & (self.address & CUSTOM == 0)
    }

    pub const fn event(&self) -> Event {
        let (stamp, address, value) = (self.stamp(), self.address, self.address as u32);
        if self.is_alloc() {
            Event::Alloc { stamp, address, size: self.size, stack: self.number }
        } else if self.is_free() {
            Event::Free { stamp, address, by_realloc: self.is_by_realloc() }
        } else if self.is(Kind::ThreadStart) {
            Event::ThreadStart { stamp, tid: value }
        } else {
            Event::Image { stamp, image: value }
        }
    }
}
