//! The one rule for the peak of a heap: the first strict maximum of its live bytes.
//!
//! Receives: the sizes of allocated and freed blocks, in order. Returns: what is live, and how much was live at the
//! peak. Must hold: a later moment with equally many bytes is not the peak; freeing never moves the peak.
use crate::Totals;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeakTracker {
    pub live_bytes: u64,
    pub live_allocations: u64,
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub peak_time_ns: u64,
}

impl PeakTracker {
    /// Adds a block. Returns true if more bytes are live than ever before; the caller must then call `set_peak`. These
    /// are two calls, so that a hot loop needs the time only at a new peak.
    #[inline(always)]
    #[must_use]
    pub const fn alloc(&mut self, size: u64) -> bool {
        self.live_allocations += 1;
        self.live_bytes = self.live_bytes.saturating_add(size);
        self.live_bytes > self.peak_bytes
    }

    /// Adds a block that was allocated at `time_ns`. Returns true if this is a new peak.
    #[inline(always)]
    pub const fn alloc_at(&mut self, size: u64, time_ns: u64) -> bool {
        let is_peak = self.alloc(size);
        if is_peak {
            self.set_peak(time_ns);
        }
        is_peak
    }

    /// Makes what is live now the peak, even if more was live before. That is also how a range of time starts.
    #[inline(always)]
    pub const fn set_peak(&mut self, time_ns: u64) {
        self.peak_bytes = self.live_bytes;
        self.peak_allocations = self.live_allocations;
        self.peak_time_ns = time_ns;
    }

    /// Removes a block.
    #[inline(always)]
    pub const fn free(&mut self, size: u64) {
        self.live_allocations = self.live_allocations.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(size);
    }

    /// Removes all blocks; the peak stays.
    pub const fn free_all(&mut self) {
        self.live_bytes = 0;
        self.live_allocations = 0;
    }

    /// Takes a peak that was counted elsewhere, if it is higher.
    pub const fn raise(&mut self, bytes: u64, allocations: u64, time_ns: u64) {
        if bytes > self.peak_bytes {
            self.peak_bytes = bytes;
            self.peak_allocations = allocations;
            self.peak_time_ns = time_ns;
        }
    }

    /// Returns `totals` with what is live (as leaked) and the peak.
    pub const fn fill(&self, totals: Totals) -> Totals {
        Totals {
            leaked_bytes: self.live_bytes,
            leaked_allocations: self.live_allocations,
            peak_bytes: self.peak_bytes,
            peak_allocations: self.peak_allocations,
            peak_time_ns: self.peak_time_ns,
            ..totals
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(heap: &PeakTracker) -> (u64, u64, u64) {
        (heap.peak_bytes, heap.peak_allocations, heap.peak_time_ns)
    }

    #[test]
    fn the_first_of_equal_maxima_is_the_peak() {
        let mut heap = PeakTracker::default();
        assert!(heap.alloc_at(10, 1));
        heap.free(10);
        assert!(!heap.alloc_at(4, 2));
        assert!(!heap.alloc_at(6, 3), "as many bytes, in more blocks");
        assert_eq!(peak(&heap), (10, 1, 1));
        assert!(heap.alloc_at(1, 4));
        assert_eq!(peak(&heap), (11, 3, 4));
    }

    #[test]
    fn blocks_without_bytes_are_no_peak() {
        let mut heap = PeakTracker::default();
        assert!(!heap.alloc_at(0, 5));
        assert_eq!((heap.live_allocations, peak(&heap)), (1, (0, 0, 0)));
    }

    #[test]
    fn the_peak_outlives_its_blocks() {
        let mut heap = PeakTracker::default();
        heap.alloc_at(7, 1);
        heap.free_all();
        assert_eq!((heap.live_bytes, heap.live_allocations, peak(&heap)), (0, 0, (7, 1, 1)));
        heap.set_peak(9);
        assert_eq!(peak(&heap), (0, 0, 9));
    }

    #[test]
    fn only_a_higher_peak_is_taken_over() {
        let mut heap = PeakTracker::default();
        heap.alloc_at(7, 1);
        heap.raise(7, 9, 9);
        assert_eq!(peak(&heap), (7, 1, 1));
        heap.raise(8, 9, 9);
        assert_eq!(peak(&heap), (8, 9, 9));
    }

    #[test]
    fn lies_do_not_overflow() {
        let mut heap = PeakTracker::default();
        heap.free(3);
        heap.alloc_at(u64::MAX, 1);
        heap.alloc_at(5, 2);
        assert_eq!((heap.live_bytes, heap.live_allocations, peak(&heap)), (u64::MAX, 2, (u64::MAX, 1, 1)));
    }
}
