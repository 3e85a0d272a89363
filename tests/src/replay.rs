//! Computes every number of a trace a second time: a slow, short replay that shares no code with the engine (`crates/analysis`).
//!
//! Receives: the blocks of a trace file, taken apart by `format`'s plain reader (the engine has a reader of its own), and a random [`Query`].
//! Returns: what every output must say. A trace is a list of blocks, each with the places in the list of events at which it was
//! allocated and freed; every answer is a loop over all of them.
//!
//! [`trace`] reads, [`query`] asks, [`support`] knows what is refused, [`count`] counts, [`rows`] names rows; [`views`] and [`outputs`] compare what heaptrack says.
pub mod count;
pub mod made;
pub mod outputs;
pub mod query;
pub mod rows;
pub mod support;
pub mod trace;
pub mod views;

pub use count::{Costs, Range};
pub use query::{Merge, Query, When};
pub use support::Support;
pub use trace::{Level, Trace};
