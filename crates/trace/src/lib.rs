//! Opens a trace and answers questions about it: the one way in which all commands and the server of the page read a
//! file.
//!
//! Receives: the path of a trace that this heaptrack or KDE's heaptrack wrote, finished or still growing. Returns: an
//! [`OpenTrace`], which has counted the whole session and can be asked for any part of it. Must hold:
//!
//! - A file that is renamed, deleted or replaced after it was opened stays the file that was opened.
//! - A damaged or unfinished file opens. [`OpenTrace::damage`] and [`OpenTrace::is_complete`] say what is missing.
//! - Only a file that cannot be read, is no trace at all, or has a newer format is an error.
//!
//! ```
//! use analysis::{CodeClasses, Query, Suppressions, View};
//! use heaptrack_trace::OpenTrace;
//!
//! let trace = OpenTrace::open("../format/tests/data/v1.htz")?;
//! let totals = trace.engine().totals();
//! println!("{} allocations, {} bytes at the peak", totals.allocations, totals.peak_bytes);
//! assert!(totals.allocations > 0);
//!
//! // Any view of docs/views.md as JSON, here for all allocations up to the peak.
//! let classes = CodeClasses::new(&trace.engine().definitions().session.exe);
//! let table = trace.table(&classes, Suppressions::new());
//! let query = Query::new([("to", "peak")])?;
//! let mut json = Vec::new();
//! trace.answer(View::Summary, &query, &table, None, &mut json)?;
//! assert!(json.starts_with(b"{"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod event_blocks;
mod extent;
mod growth;
mod heap_profile;
mod open;
mod raw_names;
mod read_ahead;
mod shared_file;
mod trace_file;

pub use event_blocks::EventBlockReader;
pub use extent::{Extent, ExtentMoment, Reading};
pub use growth::Growth;
pub use open::{AskError, OpenOptions, OpenTrace};
pub use raw_names::ModuleFiles;
pub use trace_file::{TraceFile, has_custom, heap_profile_kind, open_source, open_without_names};
