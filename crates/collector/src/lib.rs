//! Drains the shared memory of a target, orders and pairs its events, writes the trace.
//!
//! Receives: a plan and an open file. Returns: a trace, live numbers while it grows, an outcome at the end. Must hold:
//!
//! - **Bounded memory**: 64 MB plus 40 bytes for each live block. Words that do not fit wait in a spill file.
//! - **The draining thread never waits** for a disk or a terminal.
//! - **The target is hostile**: its words can spoil its own trace, and nothing else.
//!
//! ```text
//! rings -drain-> queues -merge-> events in order -recorder-> raw blocks -writer-> file
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aggregate;
mod alloc_classes;
mod audit;
mod blocks;
mod bound;
mod clock;
mod cores;
mod domain_recorder;
mod drain;
mod ends;
mod error;
mod estimate;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod heaps;
mod holdings;
mod hub;
mod instances;
mod live;
mod mapped;
mod mapping;
mod memory;
mod memory_parts;
mod merge;
mod modules;
mod numbering;
mod observed;
mod offered;
pub mod part;
mod proc_files;
mod queue;
mod recorder;
mod recording;
mod sampler;
mod session;
mod sink;
mod spawn;
mod spill;
mod stacks;
mod stats;
mod threads;
mod trace_path;
mod tree;
mod writer;

pub use aggregate::LiveSite;
pub use bound::Bound;
pub use clock::kernel_clock;
pub use cores::RecorderThreads;
pub use error::SetupError;
pub use hub::{Bell, Hub, Joined};
pub use live::{Ask, Reason, Snapshot};
pub use mapping::{Mapping, Setup, SlotArea};
pub use memory::{Memory, heap_of};
pub use modules::text as name_of;
pub use observed::{Inspect, Observed, Replaced, UnrecordedProcesses};
pub use offered::{Offered, TreeHub};
pub use recording::{Attachment, End, FailedCheck, LivePlan, Outcome, Plan, Recording};
pub use spawn::{
    Going, Inbox, Inherited, Launch, Received, Waiting, children_peak_rss, environment, spawn, spawn_waiting,
};
pub use stats::Stats;
pub use trace_path::TracePath;
