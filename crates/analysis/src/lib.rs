//! What a trace means: a replay of its events into totals and costs per stack.
//!
//! Given: the blocks of a trace, in file order. Gives back: a `Report`. What must hold:
//!
//! - Pure: the same blocks give the same report. No files, no clock, no printing.
//! - Memory is bounded by live blocks and sites, not by events.
//! - Blocks that lie, or miss what they refer to, are counted as damage; nothing panics.
//!
//! How things are counted:
//!
//! - An allocation counts when it is recorded (it returned non-null); sizes are the requested ones.
//! - A realloc arrives as a free and an allocation, and counts as one each.
//! - The peak is the first strict maximum of live bytes; a site's share is what it held at that very event.
//! - A block is temporary when its own thread frees it while it is still that thread's latest allocation. The free
//!   half of a realloc, and a free that nobody saw, never make one.
//! - Leaked is what is live at the end. What was live when `exec` ended an image is gone with it: neither freed nor leaked.
//!   Of several processes in one trace, each leaks what it had not freed when it ended.
#![forbid(unsafe_code)]

mod code_class;
mod costs;
mod counter;
mod definitions;
mod emptiness;
mod ended;
mod engine;
mod fitting;
mod folds;
mod frame_names;
mod index;
mod lifespans;
mod live;
mod lookup;
mod moment;
mod pairing;
mod pass;
mod pattern;
mod profile;
mod query;
mod replay;
mod session_counter;
mod session_report;
mod stack_table;
mod suppressions;
mod units;
pub mod view;
mod walker;

pub use code_class::{BadRule, CodeClass, CodeClasses};
pub use costs::{Costs, to_signed};
pub use definitions::{Definitions, SiteId};
pub use emptiness::{why_empty, why_none_of};
pub use engine::Engine;
pub use fitting::Misfit;
pub use frame_names::{Level, ModuleNames, Names};
pub use lookup::{Allocation, Lookup};
pub use moment::When;
pub use pairing::{Called, Pairing, Side};
pub use pass::{Blocks, BlocksInMemory, Gone};
pub use pattern::Pattern;
pub use profile::{Profile, Range};
pub use query::{BadQuery, By, CodeClassSet, Compare, Cost, Merge, NOT_A_TIME, Query, Span};
pub use replay::Replay;
pub use session_report::{Faults, Report, SiteCosts};
pub use stack_table::{Node, NodeId, StackTable, StackTableLevel, StackTableStack};
pub use suppressions::{BadSuppression, Source, Suppression, Suppressions};
pub use units::{NOT_A_DURATION, NOT_A_SIZE, parse_duration, parse_size};
pub use view::{AnswerError, Trace, View, answer, unseen};
