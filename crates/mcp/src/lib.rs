//! `heaptrack mcp`: a server of the Model Context Protocol, so that coding agents can ask about traces.
//!
//! Receives: JSON-RPC messages, one in each line of stdin, and the folders whose traces may be opened. Returns: one line on
//! stdout for each request. Must hold:
//!
//! - Whatever a line contains, the server goes on. A request that cannot be answered gets an error.
//! - No answer is longer than [`MOST_BYTES`], and no request longer than [`LONGEST_LINE`] is kept in memory.
//! - Only files below the given folders are opened (`folders.rs`), except for object files in which names are looked up.
//! - No program is started and no process is touched, unless the user allowed it.
//! - Every answer about a trace says what the trace does not contain.
//!
//! docs/mcp.md is for users; decision 85 says why no library speaks the protocol.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arguments;
mod folders;
mod lines;
mod page;
mod prompts;
mod recorder;
mod rows;
mod server;
mod tools;
mod traces;

pub use folders::Folders;
pub use recorder::Recorder;
pub use server::{Options, serve};

/// The longest request, in bytes.
pub const LONGEST_LINE: usize = 1 << 20;
/// The most bytes of rows in one answer. What does not fit is on the next page.
pub const MOST_BYTES: usize = 32 << 10;
