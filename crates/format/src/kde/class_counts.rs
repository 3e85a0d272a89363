//! Counts the events of an interpreted file by allocation class, without finding out which block a free belongs to.
//!
//! Receives: the allocation classes of allocations and frees, in order. Returns: what `Pairs` and a count of its events
//! return together, as far as it does not depend on the blocks: totals, the peak and the counts of every class. Must
//! hold: both ways return the same numbers, and stop at the same line.
use super::event_words::EventWord;
use super::pairs::MOST_LIVE;
use crate::class_counter::Use;
use crate::{ClassCounter, PeakTracker, Totals};

/// Events that are counted without a check for overflow, which needs `live_bytes` to be below `CAREFUL_BYTES` before
/// them: a block has at most 2^48 bytes.
const QUICK_EVENTS: usize = 1 << 14;
const CAREFUL_BYTES: u64 = 1 << 63;

/// The counts of an interpreted file of KDE's heaptrack.
#[derive(Clone, Debug, Default)]
pub struct KdeCounts {
    classes: ClassCounter,
    /// The allocation class of the last allocation, or 0 after any free, as KDE's reader keeps it for temporary blocks.
    last: u32,
    /// The time of the events that follow.
    now_ns: u64,
    events: u64,
    unknown_frees: u64,
    /// More bytes were live than fit into 64 bits, or nearly. From then on, every sum saturates.
    is_careful: bool,
}

/// Why `count_quickly` stopped.
enum Stop {
    End,
    /// There is no such allocation class.
    NoAllocClass,
    /// The event is a free, but all blocks of its allocation class are freed already.
    UnknownFree,
    /// The event made a new peak.
    Peak,
    /// The event made the count of temporary blocks overflow.
    Carry,
}

/// The state that `count_quickly` keeps in registers.
struct Heap {
    last: u32,
    live_bytes: u64,
    live_allocations: u64,
    peak_bytes: u64,
    epoch: u32,
}

impl KdeCounts {
    /// The counts of each allocation class, what is live, and the peak.
    pub const fn classes(&self) -> &ClassCounter {
        &self.classes
    }

    /// The time of the last event.
    pub const fn time_ns(&self) -> u64 {
        self.now_ns
    }

    /// Allocations and frees, also those of unknown blocks.
    pub const fn events(&self) -> u64 {
        self.events
    }

    pub const fn unknown_frees(&self) -> u64 {
        self.unknown_frees
    }

    /// All totals but runtime and resident memory.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals { unknown_frees: self.unknown_frees, ..Totals::default() };
        for class in self.classes.counts() {
            totals.allocations += class.allocations;
            totals.deallocations += class.allocations - class.live;
            totals.allocated_bytes = totals.allocated_bytes.wrapping_add(class.allocations.wrapping_mul(class.size));
            totals.temporary += class.temporary;
        }
        self.classes.heap().fill(totals)
    }

    pub(super) fn define(&mut self, size: u64) {
        self.classes.define(size);
    }

    /// Sets the time of the events that follow.
    pub(super) const fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Counts events up to the first one that must be refused, and returns how many it counted.
    pub(super) fn count(&mut self, events: &[EventWord]) -> usize {
        let mut done = 0;
        for piece in events.chunks(QUICK_EVENTS) {
            let heap = self.classes.heap();
            self.is_careful |= heap.live_bytes >= CAREFUL_BYTES;
            let is_near_limit = heap.live_allocations + piece.len() as u64 >= MOST_LIVE;
            let counted =
                if self.is_careful || is_near_limit { self.count_carefully(piece) } else { self.count_piece(piece) };
            done += counted;
            if counted < piece.len() {
                break;
            }
        }
        done
    }

    fn count_carefully(&mut self, events: &[EventWord]) -> usize {
        let is_counted = |event: &&EventWord| {
            let alloc_class = event.alloc_class();
            if event.is_free() { self.free(alloc_class) } else { !self.is_full() && self.alloc(alloc_class) }
        };
        events.iter().take_while(is_counted).count()
    }

    /// True if no further allocation is accepted.
    pub(super) const fn is_full(&self) -> bool {
        self.classes.heap().live_allocations >= MOST_LIVE
    }

    /// Returns false if there is no such allocation class.
    pub(super) fn alloc(&mut self, alloc_class: u32) -> bool {
        if self.classes.size(alloc_class).is_none() {
            return false;
        }
        self.events += 1;
        self.last = alloc_class;
        if self.classes.alloc(alloc_class) {
            self.classes.set_peak(self.now_ns, self.events);
        }
        true
    }

    /// Returns false if there is no such allocation class.
    pub(super) fn free(&mut self, alloc_class: u32) -> bool {
        let Some(used) = self.classes.uses.get(alloc_class as usize) else { return false };
        let is_temporary = std::mem::take(&mut self.last) == alloc_class;
        self.events += 1;
        if used.live == 0 {
            self.unknown_frees += 1;
        } else {
            self.classes.free(alloc_class, is_temporary);
        }
        true
    }

    /// As `count`, if neither the bytes nor the blocks can reach a limit.
    fn count_piece(&mut self, events: &[EventWord]) -> usize {
        let mut done = 0;
        loop {
            let classes = &mut self.classes;
            let PeakTracker { live_bytes, live_allocations, peak_bytes, .. } = classes.heap;
            let mut heap = Heap { last: self.last, live_bytes, live_allocations, peak_bytes, epoch: classes.epoch };
            let (counted, stop) = count_quickly(&mut classes.uses, events.get(done..).unwrap_or_default(), &mut heap);
            (classes.heap.live_bytes, classes.heap.live_allocations) = (heap.live_bytes, heap.live_allocations);
            self.last = heap.last;
            self.events += counted as u64;
            done += counted;
            match stop {
                Stop::End | Stop::NoAllocClass => return done,
                Stop::Peak => classes.set_peak(self.now_ns, self.events),
                Stop::Carry => events.get(done - 1).iter().for_each(|event| classes.carry(event.alloc_class())),
                Stop::UnknownFree => {
                    self.unknown_frees += 1;
                    self.last = 0;
                    self.events += 1;
                    done += 1;
                }
            }
        }
    }
}

/// Counts up to an event that needs more than this. Returns how many events were counted, and why it stopped. Stops after
/// an event that made a new peak or a carry, and before any other.
///
/// Whether an event is an allocation or a free cannot be predicted, so nothing branches on it.
#[inline(never)]
fn count_quickly(uses: &mut [Use], events: &[EventWord], heap: &mut Heap) -> (usize, Stop) {
    let Heap { mut last, mut live_bytes, .. } = *heap;
    let (mut done, mut frees, mut stop) = (0, 0u64, Stop::End);
    for event in events {
        let (alloc_class, is_free) = (event.alloc_class(), event.is_free() as u32);
        let Some(used) = uses.get_mut(alloc_class as usize) else {
            stop = Stop::NoAllocClass;
            break;
        };
        if used.live < is_free {
            stop = Stop::UnknownFree;
            break;
        }
        done += 1;
        used.settle(heap.epoch);
        used.live = used.live.wrapping_add(1).wrapping_sub(2 * is_free);
        used.allocations += (1 - is_free) as u64;
        let is_temporary = is_free & (last == alloc_class) as u32;
        let (temporary, has_carried) = used.temporary.overflowing_add(is_temporary);
        used.temporary = temporary;
        last = alloc_class & is_free.wrapping_sub(1);
        let sign = (is_free as u64).wrapping_neg();
        live_bytes = live_bytes.wrapping_add((used.size ^ sign).wrapping_sub(sign));
        frees += is_free as u64;
        if live_bytes > heap.peak_bytes {
            stop = Stop::Peak;
            break;
        }
        if has_carried {
            stop = Stop::Carry;
            break;
        }
    }
    (heap.last, heap.live_bytes) = (last, live_bytes);
    heap.live_allocations = (heap.live_allocations + done as u64).wrapping_sub(2 * frees);
    (done, stop)
}
