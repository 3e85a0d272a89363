//! What a trace means: replays its events into totals and costs per stack.
//!
//! Receives: the blocks of a trace, in file order. Returns: a `Report`, or answers to queries. Must hold:
//!
//! - Pure: the same blocks have the same report. No files, no clock, no printing.
//! - Memory is bounded by live blocks, definitions and the bounds of the index, not by events.
//! - Malformed blocks, and references to missing definitions, are counted as damage. Nothing panics.
//!
//! How things are counted:
//!
//! - An allocation counts when it is recorded (it returned non-null); sizes are the requested ones.
//! - A realloc arrives as a free and an allocation, and counts as one each.
//! - The peak is the first strict maximum of live bytes. A stack's share is what it held at that event.
//! - A block is temporary when its own thread frees it while it is still that thread's latest allocation. The free half
//!   of a realloc, and a free that was not recorded, never make a block temporary. KDE's files are counted by KDE's
//!   rule.
//! - Blocks that are live at the end are leaked. Blocks that were live when `exec` replaced the program are neither
//!   freed nor leaked. If one trace has several processes, each leaks what it had not freed when it ended.
#![forbid(unsafe_code)]

mod block_events;
mod code_class;
mod costs;
mod counter;
mod definitions;
mod details;
mod emptiness;
mod ended;
mod engine;
mod event_counter;
mod fitting;
mod folds;
mod frame_names;
mod group_id;
mod index;
mod interning;
mod intervals;
mod known_costs;
mod lifespans;
mod lookup;
mod moment;
mod named_enum;
pub mod numbers;
mod own_peak;
mod pairing;
mod pass;
mod pattern;
mod process_name;
mod process_tree;
mod profile;
mod query;
mod query_words;
mod range_costs;
mod replay;
mod selecting;
mod session_counter;
mod session_report;
mod stack_table;
mod suppressions;
mod units;
pub mod view;
mod walker;
mod wrappers;

pub use block_events::{BlockEvent, BlockEventKind};
pub use code_class::{BadRule, CodeClass, CodeClasses};
pub use costs::{Costs, to_signed};
pub use counter::most_bytes_of_live_blocks;
pub use definitions::{Definitions, SiteId};
pub use details::{Detail, Details};
pub use emptiness::{why_empty, why_none_of};
pub use engine::Engine;
pub use fitting::Misfit;
pub use frame_names::{Level, ModuleNames, Names};
pub use intervals::{Intervals, Variances};
pub use known_costs::KnownCosts;
pub use lookup::{Allocation, Lookup};
pub use moment::When;
pub use pairing::{Called, PairNames, Pairing, Side};
pub use pass::{Blocks, BlocksInMemory, Gone};
pub use pattern::Pattern;
pub use process_name::ProcessName;
pub use process_tree::{CombinedPeak, ProcessRow, ProcessTree, Share};
pub use profile::{Profile, Range};
pub use query::{BadQuery, By, CodeClassSet, Compare, Cost, Merge, NOT_A_TIME, Query, Span};
pub use query_words::{WORDS, Word};
pub use replay::Replay;
pub use session_report::{Faults, Report, SiteCosts};
pub use stack_table::{Node, NodeId, StackTable, StackTableLevel, StackTableStack};
pub use suppressions::{BadSuppression, Source, Suppression, Suppressions};
pub use units::{NOT_A_DURATION, NOT_A_SIZE, parse_duration, parse_size};
pub use view::{AnswerError, Trace, View, answer, unseen};
pub use wrappers::{ENDINGS, KNOWN_NAMES, Reason, Wrapper, Wrappers};
