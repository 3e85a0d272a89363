//! Numbers of a running session, for a front end.
use std::sync::atomic::{AtomicU64, Ordering};

/// The collecting thread writes them after each round that merges; any other thread may read them at any time.
#[derive(Debug, Default)]
pub struct Stats {
    pub events: AtomicU64,
    /// Of a recording that samples, this and the peak are estimates.
    pub live_bytes: AtomicU64,
    pub peak_bytes: AtomicU64,
    pub file_bytes: AtomicU64,
    pub lost_events: AtomicU64,
    /// The most threads that worked on events at the same time. 0 before the first merge on several threads.
    pub threads: AtomicU64,
    /// If a tree is followed: the processes that run now.
    pub processes: AtomicU64,
}

impl Stats {
    pub(crate) fn set(place: &AtomicU64, value: u64) {
        place.store(value, Ordering::Relaxed);
    }

    pub fn get(place: &AtomicU64) -> u64 {
        place.load(Ordering::Relaxed)
    }
}
