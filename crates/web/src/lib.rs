//! The page: a server for the user's own browser, and the report that needs no server.
//!
//! Receives: traces. Returns: a page that shows the answers of `analysis` (docs/views.md), or one file with all of it.
//! Must hold:
//!
//! - only the given traces, the traces in the same folders, and the sources that they name are read; only requests with
//!   the token that the server made at its start are answered (`guard.rs`);
//! - all numbers come from the engine, and the page only adds them up along stacks;
//! - a released binary needs no Node, because `build.rs` builds the page and it is embedded.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod address;
mod assets;
mod guard;
mod server;
mod single_file;
mod slices;
mod sources;
mod trace;
mod trace_store;

pub use server::{Answers, BindError, Refusal, Server};
pub use single_file::{Page, report};
pub use trace_store::{OpenError, Options, TraceStore};
