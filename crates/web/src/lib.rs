//! The page: a server for the user's own browser, and the report that needs no server.
//!
//! Given: traces. Gives back: a page over the answers of `analysis` (docs/views.md), or one file with all of it. What must hold:
//!
//! - only the traces that were given, those beside them, and the sources that they name are read; nobody but the user is answered (`guard.rs`);
//! - numbers are the engine's: the page only adds them up along stacks;
//! - a released binary needs no Node: `build.rs` builds the page and it is embedded.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod address;
mod assets;
mod guard;
mod server;
mod single_file;
mod sources;
mod trace;
mod trace_store;

pub use server::{Answers, BindError, Refusal, Server};
pub use single_file::{Page, report};
pub use trace_store::{OpenError, Options, TraceStore};
