//! Counts a whole session by allocation class, at the lowest possible cost.
//!
//! Receives: the allocation class of each allocation and of each free, in order. Returns: the counts of every class,
//! and the peak of the heap. Must hold: an event touches one place in memory; the memory does not grow with live
//! blocks.
use crate::{IntMap, PeakTracker};

/// The counts of one allocation class while they change.
///
/// While a heap grows, nearly every event is a new peak of the program, so a new peak must not visit every allocation
/// class. It only increments an epoch. An allocation class copies its live count to `at_peak` before its first change
/// after that.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Use {
    pub(crate) size: u64,
    pub(crate) allocations: u64,
    /// Carries beyond 32 bits are in `ClassCounter::carried`.
    pub(crate) temporary: u32,
    pub(crate) live: u32,
    at_peak: u32,
    epoch: u32,
}

/// Half a cache line.
const _: () = assert!(size_of::<Use>() == 32);

impl Use {
    #[inline(always)]
    pub(crate) const fn settle(&mut self, epoch: u32) {
        self.at_peak = if self.epoch == epoch { self.at_peak } else { self.live };
        self.epoch = epoch;
    }
}

/// The counts of one allocation class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCounts {
    pub size: u64,
    pub allocations: u64,
    pub temporary: u64,
    pub live: u64,
    /// Live at the peak of the program.
    pub at_peak: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ClassCounter {
    pub(crate) uses: Vec<Use>,
    /// By allocation class: temporary blocks beyond 32 bits.
    carried: IntMap<u32, u64>,
    pub(crate) epoch: u32,
    pub(crate) heap: PeakTracker,
    /// Events up to and including the one that made the peak.
    peak_event: u64,
}

impl ClassCounter {
    /// Adds an allocation class. Classes are numbered from 0.
    pub fn define(&mut self, size: u64) {
        self.uses.push(Use { size, allocations: 0, temporary: 0, live: 0, at_peak: 0, epoch: self.epoch });
    }

    /// The number of allocation classes.
    pub const fn len(&self) -> usize {
        self.uses.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// The size of a block of this class. `None` if there is no such class.
    #[inline(always)]
    pub fn size(&self, alloc_class: u32) -> Option<u64> {
        self.uses.get(alloc_class as usize).map(|used| used.size)
    }

    /// What is live, and the peak.
    pub const fn heap(&self) -> &PeakTracker {
        &self.heap
    }

    /// The number of events up to and including the one that made the peak.
    pub const fn peak_event(&self) -> u64 {
        self.peak_event
    }

    /// The counts of all classes, in the order of their numbers.
    pub fn counts(&self) -> impl Iterator<Item = ClassCounts> {
        self.uses.iter().zip(0u32..).map(|(used, number)| ClassCounts {
            size: used.size,
            allocations: used.allocations,
            temporary: used.temporary as u64 + self.carried.get(&number).copied().unwrap_or(0),
            live: used.live as u64,
            at_peak: if used.epoch == self.epoch { used.at_peak } else { used.live } as u64,
        })
    }

    /// Counts an allocation. Returns true if it made a new peak; the caller must then call `set_peak`. Two calls, so
    /// that a hot loop needs the time only at a new peak.
    #[inline(always)]
    #[must_use]
    pub fn alloc(&mut self, alloc_class: u32) -> bool {
        let Some(used) = self.uses.get_mut(alloc_class as usize) else { return false };
        used.settle(self.epoch);
        used.allocations += 1;
        used.live = used.live.wrapping_add(1);
        self.heap.alloc(used.size)
    }

    /// Counts a free of a live block.
    #[inline(always)]
    pub fn free(&mut self, alloc_class: u32, is_temporary: bool) {
        let Some(used) = self.uses.get_mut(alloc_class as usize) else { return };
        used.settle(self.epoch);
        used.live = used.live.wrapping_sub(1);
        let (temporary, has_carried) = used.temporary.overflowing_add(is_temporary as u32);
        used.temporary = temporary;
        self.heap.free(used.size);
        if has_carried {
            self.carry(alloc_class);
        }
    }

    /// A class has 2^32 more temporary blocks than `Use` says.
    #[cold]
    pub(crate) fn carry(&mut self, alloc_class: u32) {
        *self.carried.entry(alloc_class).or_default() += 1 << 32;
    }

    /// Takes the present moment for the peak. `event`: the number of events so far. Not inlined, so that the hot loop
    /// need not keep the current time in a register.
    #[inline(never)]
    pub fn set_peak(&mut self, time_ns: u64, event: u64) {
        self.heap.set_peak(time_ns);
        self.peak_event = event;
        self.epoch += 1;
        if self.epoch == u32::MAX {
            self.first_epoch();
        }
    }

    /// The epoch counter is at its end: starts again with 0.
    #[cold]
    fn first_epoch(&mut self) {
        for used in &mut self.uses {
            used.settle(self.epoch);
            used.epoch = 0;
        }
        self.epoch = 0;
    }

    /// All live blocks disappear without being freed. Calls `each` with the live count of every class.
    pub fn end_all(&mut self, mut each: impl FnMut(usize, u64)) {
        for (number, used) in self.uses.iter_mut().enumerate() {
            used.settle(self.epoch);
            each(number, std::mem::take(&mut used.live) as u64);
        }
        self.heap.free_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(sizes: &[u64]) -> ClassCounter {
        let mut counter = ClassCounter::default();
        sizes.iter().for_each(|size| counter.define(*size));
        counter
    }

    fn alloc(counter: &mut ClassCounter, alloc_class: u32, event: u64) {
        if counter.alloc(alloc_class) {
            counter.set_peak(event * 10, event);
        }
    }

    #[test]
    fn every_class_knows_what_it_held_at_the_peak() {
        let mut counter = counter(&[10, 1]);
        for (alloc_class, event) in [0, 1, 1, 0].into_iter().zip(1..) {
            alloc(&mut counter, alloc_class, event);
        }
        counter.free(0, false);
        counter.free(1, true);
        alloc(&mut counter, 1, 7);
        let counts: Vec<ClassCounts> = counter.counts().collect();
        let of =
            |size, allocations, temporary, live, at_peak| ClassCounts { size, allocations, temporary, live, at_peak };
        assert_eq!(counts, [of(10, 2, 0, 1, 2), of(1, 3, 1, 2, 2)]);
        assert_eq!((counter.heap().peak_bytes, counter.heap().peak_time_ns, counter.peak_event()), (22, 40, 4));
    }

    #[test]
    fn the_epochs_start_again() {
        let mut counter = counter(&[10, 1]);
        alloc(&mut counter, 1, 1);
        counter.epoch = u32::MAX - 1;
        alloc(&mut counter, 0, 2);
        assert_eq!(counter.epoch, 0);
        counter.free(0, false);
        counter.free(1, false);
        assert_eq!(counter.counts().map(|counts| counts.at_peak).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn temporary_blocks_beyond_32_bits_are_counted() {
        let mut counter = counter(&[1]);
        alloc(&mut counter, 0, 1);
        counter.uses[0].temporary = u32::MAX;
        counter.free(0, true);
        assert_eq!(counter.counts().map(|counts| counts.temporary).collect::<Vec<_>>(), [1 << 32]);
    }

    #[test]
    fn blocks_that_disappear_are_told() {
        let mut counter = counter(&[4, 5]);
        alloc(&mut counter, 1, 1);
        let mut told = Vec::new();
        counter.end_all(|number, live| told.push((number, live)));
        assert_eq!(told, [(0, 0), (1, 1)]);
        assert_eq!((counter.heap().live_bytes, counter.heap().peak_bytes), (0, 5));
    }
}
