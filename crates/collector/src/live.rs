//! A session without a trace: what can be asked of it, and what it answers.
use crate::aggregate::LiveSite;
use crate::memory::Memory;
use format::{Losses, Module, Totals};

/// Why there is a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The target was sent a signal: dump by size, or by count.
    BySize,
    ByCount,
    /// A new measuring window has begun; the snapshot is empty.
    Window,
    /// We were asked, under this number.
    Asked(u32),
    /// The target is gone.
    End,
}

/// What may be asked of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The answer has the same number.
    Snapshot(u32),
    /// Forget everything that lives.
    Window,
}

/// What lives in the target at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub reason: Reason,
    pub pid: u32,
    /// The kernel's name of the program.
    pub name: String,
    /// Since the session's start.
    pub time_ns: u64,
    /// Those with live blocks, in no order.
    pub sites: Vec<LiveSite>,
    pub totals: Totals,
    pub losses: Losses,
    pub modules: Vec<Module>,
    /// The last look at it, which for a target that is gone was before its end.
    pub memory: Memory,
}
