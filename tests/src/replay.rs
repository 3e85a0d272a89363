//! Computes every number of a trace a second time, by a slow and short replay that shares no code with the engine
//! (`crates/analysis`).
//!
//! Receives: the blocks of a trace file, whose events are decoded by `Events::read` (the engine uses the faster walk of
//! `format`'s `walk.rs` and `flat.rs`), and a random [`Query`]. Returns: what every output must contain. A trace is a
//! list of allocated blocks, each with the positions of its allocation and its free in the list of events. Every answer
//! is a loop over all of them.
//!
//! [`trace`] reads the file, [`query`] makes questions, [`support`] knows which are refused, [`count`] counts, and
//! [`rows`] names rows. [`views`] and [`outputs`] compare heaptrack's output with the result.
pub mod blame;
pub mod count;
pub mod made;
pub mod outputs;
pub mod query;
pub mod rows;
pub mod support;
pub mod tables;
pub mod trace;
pub mod tree;
pub mod views;

pub use count::{Costs, Range};
pub use query::{Merge, Query, When};
pub use support::Support;
pub use trace::{Level, Trace};
