//! A session without a trace: the questions that it takes, and its answers.
use crate::aggregate::LiveSite;
use crate::memory::Memory;
use format::{Losses, MemoryInstant, Module, Totals};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reason for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The target was sent a signal that asks for a dump by size (or, below, by count).
    BySize,
    ByCount,
    /// A new measuring window has begun; the snapshot is empty.
    Window,
    /// The owner asked, with this number.
    Asked(u32),
    /// The session has ended.
    End,
}

/// What a session can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The answer carries the same number.
    Snapshot(u32),
    /// Forget all live blocks.
    Window,
}

/// The most memory of snapshots that are still held, counted in sites: about 100 MB.
const MOST_WAITING: usize = 1 << 20;
/// The cost of a snapshot besides its sites and modules, counted in sites.
const FIXED_COST: usize = 1 << 10;

/// The memory that all held snapshots of a session take together, counted in sites.
#[derive(Debug, Default)]
pub(crate) struct Backlog(Arc<AtomicUsize>);

impl Backlog {
    pub(crate) fn is_full(&self) -> bool {
        self.0.load(Ordering::Acquire) >= MOST_WAITING
    }

    /// Counts a snapshot until the returned share is dropped.
    pub(crate) fn hold(&self, sites: usize, modules: usize) -> BacklogShare {
        let cost = sites + modules + FIXED_COST;
        self.0.fetch_add(cost, Ordering::AcqRel);
        BacklogShare { backlog: Arc::clone(&self.0), cost }
    }
}

/// A snapshot's share of the backlog.
#[derive(Debug)]
pub struct BacklogShare {
    backlog: Arc<AtomicUsize>,
    cost: usize,
}

impl Drop for BacklogShare {
    fn drop(&mut self) {
        self.backlog.fetch_sub(self.cost, Ordering::AcqRel);
    }
}

/// What is live in the target at one instant.
#[derive(Debug)]
pub struct Snapshot {
    pub reason: Reason,
    pub pid: u32,
    /// The kernel's name of the program.
    pub name: String,
    /// The time since the session's start.
    pub time_ns: u64,
    /// The sites with live blocks, in no order.
    pub sites: Vec<LiveSite>,
    pub totals: Totals,
    pub losses: Losses,
    pub modules: Vec<Module>,
    /// The last look at the target's memory. If the target is gone, it was made before its end.
    pub memory: Memory,
    /// The last look at the parts of the target's memory.
    pub memory_parts: Option<Arc<MemoryInstant>>,
    /// Counts this snapshot in the session's backlog until it is dropped.
    pub held: BacklogShare,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_that_wait_are_bounded() {
        let backlog = Backlog::default();
        let mut waiting = Vec::new();
        while !backlog.is_full() {
            waiting.push(backlog.hold(100_000, 0));
        }
        assert_eq!(waiting.len(), 11);
        waiting.pop();
        assert!(!backlog.is_full());
        drop(waiting);
        assert_eq!(backlog.0.load(Ordering::Relaxed), 0);
    }
}
