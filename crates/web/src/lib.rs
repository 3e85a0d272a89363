//! The page: a server for the user's own browser, and the report that needs no server.
//!
//! Receives: traces. Returns: a page that shows the answers of `analysis` (docs/views.md), or one file that contains
//! the page and its data. Must hold:
//!
//! - only the given traces, the traces in the same folders, and the files that they name are read: sources, and for a
//!   raw file of KDE's heaptrack the object files with their debug information;
//! - only requests with the token that the server made at its start get data (`guard.rs`);
//! - all numbers come from the engine, and the page only adds them up along stacks;
//! - a released binary needs no Node, because `build.rs` builds the page and it is embedded.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod assets;
mod connections;
mod guard;
mod scrape;
mod server;
mod single_file;
mod slices;
mod sources;
mod trace;
mod trace_store;
mod with_engine;

pub use answers::{BadOptions, NamedText, Options, Refusal};
pub use guard::Token;
pub use scrape::{Listen, Scrape, ScrapeServer, Wanted};
pub use server::{Answers, BindError, Saved, Server};
pub use single_file::{Page, ReportError, summary};
pub use trace_store::{OpenError, TraceStore};
pub use with_engine::{FindViewer, ViewerPage, report};
