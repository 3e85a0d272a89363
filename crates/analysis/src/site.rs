//! What one stack cost.

/// The costs of `print --json`, of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub temporary: u64,
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
    pub peak_bytes: u64,
    pub peak_allocations: u64,
}

impl Costs {
    pub(crate) fn add(&mut self, other: &Costs) {
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.temporary = self.temporary.saturating_add(other.temporary);
        self.leaked_bytes = self.leaked_bytes.saturating_add(other.leaked_bytes);
        self.leaked_allocations = self.leaked_allocations.saturating_add(other.leaked_allocations);
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
        self.peak_allocations = self.peak_allocations.saturating_add(other.peak_allocations);
    }
}

/// A stack during the replay.
///
/// The global peak moves all the time while a heap grows, and must not visit every site each time. So a new peak only
/// counts up an epoch, and a site keeps its live values for the peak before its first change after that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) temporary: u64,
    live_bytes: u64,
    live_allocations: u64,
    at_peak_bytes: u64,
    at_peak_allocations: u64,
    epoch: u64,
}

impl Site {
    pub(crate) const NEW: Site = Site {
        allocations: 0,
        allocated_bytes: 0,
        temporary: 0,
        live_bytes: 0,
        live_allocations: 0,
        at_peak_bytes: 0,
        at_peak_allocations: 0,
        epoch: 0,
    };

    #[inline]
    fn before_change(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.at_peak_bytes = self.live_bytes;
            self.at_peak_allocations = self.live_allocations;
        }
    }

    #[inline]
    pub(crate) fn alloc(&mut self, size: u64, epoch: u64) {
        self.before_change(epoch);
        self.allocations += 1;
        self.allocated_bytes = self.allocated_bytes.saturating_add(size);
        self.live_bytes = self.live_bytes.wrapping_add(size);
        self.live_allocations += 1;
    }

    #[inline]
    pub(crate) fn free(&mut self, size: u64, epoch: u64) {
        self.before_change(epoch);
        self.live_bytes = self.live_bytes.wrapping_sub(size);
        self.live_allocations = self.live_allocations.wrapping_sub(1);
    }

    /// The image ended: what is live is gone with it, neither freed nor leaked.
    pub(crate) fn end_image(&mut self, epoch: u64) {
        self.before_change(epoch);
        self.live_bytes = 0;
        self.live_allocations = 0;
    }

    pub(crate) fn costs(mut self, epoch: u64) -> Costs {
        self.before_change(epoch);
        Costs {
            allocations: self.allocations,
            allocated_bytes: self.allocated_bytes,
            temporary: self.temporary,
            leaked_bytes: self.live_bytes,
            leaked_allocations: self.live_allocations,
            peak_bytes: self.at_peak_bytes,
            peak_allocations: self.at_peak_allocations,
        }
    }
}
