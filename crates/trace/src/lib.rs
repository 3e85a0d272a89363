//! Opens recordings of heaptrack and answers questions about them.
//!
//! It reads traces of this heaptrack, files of KDE's heaptrack, and heap profiles of pprof, DHAT, massif, gperftools and
//! jemalloc. It has no unsafe code, prints nothing, and starts no process.
//!
//! ```
//! use heaptrack_trace::{EventKind, Selection, Trace, Verdict};
//!
//! let trace = Trace::open("../format/tests/data/v1.htz")?;
//! let totals = trace.totals();
//! println!("{:?} allocations, {:?} bytes at the peak", totals.allocations, totals.peak_bytes);
//!
//! // What each stack held at the peak, and the names of its levels.
//! for site in trace.live_at("peak")? {
//!     let names: Vec<&str> = trace.stack(site.id).filter_map(|level| level.short).collect();
//!     println!("{:?} bytes: {}", site.costs.live_bytes(), names.join(" < "));
//! }
//!
//! // The places that hold more and more memory.
//! let leaks = trace.leaks(&Selection::everything())?;
//! for leak in leaks.iter().filter(|leak| leak.verdict == Verdict::Grows) {
//!     println!("{} bytes: {}", leak.live_bytes, leak.reason);
//! }
//!
//! // Every allocation of the second half, one by one.
//! let mut sizes = 0;
//! trace.each_event(&Selection::new([("from", "50%")])?, |event| {
//!     if event.kind == EventKind::Alloc {
//!         sizes += event.size;
//!     }
//! })?;
//!
//! // What the numbers do not contain.
//! trace.not_seen().iter().for_each(|sentence| println!("{sentence}"));
//! # Ok::<(), heaptrack_trace::Error>(())
//! ```
//!
//! # What is promised
//!
//! The items on this page are the API. It follows semantic versioning: within one major version, programs that use it
//! still compile, and each number keeps its meaning. Structs and enums may get new fields and variants, which is why they are
//! marked `non_exhaustive`. JSON may get new keys, but keeps the keys that it has (docs/views.md). Every file that a version could
//! open, a later version can open, too.
//!
//! Items that are public but not on this page (`#[doc(hidden)]`) are for heaptrack's own programs and may change at any
//! time. So may the crates below this one (`analysis`, `format`, `import`, `symbols`); no type of theirs is in the API.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answers;
mod costs;
mod error;
mod event_blocks;
mod extent;
mod growth;
mod heap_profile;
#[doc(hidden)]
pub mod lens;
mod missing_names;
mod not_seen;
mod open;
mod opening;
#[doc(hidden)]
pub mod print_json;
#[cfg_attr(not(unix), path = "no_object_files.rs")]
mod raw_names;
mod read_ahead;
mod selection;
mod shared_bytes;
mod trace;
mod trace_file;

pub use answers::{
    Block, Change, Event, EventKind, Leak, Level, Sampling, Session, Site, SiteId, TotalErrors, Verdict,
};
pub use costs::{Costs, Totals};
pub use error::Error;
pub use selection::Selection;
pub use trace::Trace;

#[doc(hidden)]
pub use event_blocks::EventBlockReader;
#[doc(hidden)]
pub use extent::{Extent, ExtentMoment, Reading};
#[doc(hidden)]
pub use growth::Growth;
#[doc(hidden)]
pub use open::{AskError, OpenOptions, OpenTrace};
#[doc(hidden)]
pub use opening::Opening;
#[cfg(unix)]
#[doc(hidden)]
pub use raw_names::ModuleFiles;
#[doc(hidden)]
pub use shared_bytes::ReadAt;
#[cfg(unix)]
#[doc(hidden)]
pub use trace_file::open_source;
#[doc(hidden)]
pub use trace_file::{TraceFile, has_custom, has_domain, heap_profile_kind, open_without_names};
