//! The harness of the end-to-end tests.
//!
//! Receives: a finished `heaptrack` binary (`HEAPTRACK_BIN`, else `target/release/heaptrack`) and the programs in
//! `tests/targets`. Returns: what a program did alone and while it was recorded ([`run`]), what the trace says
//! ([`report`]), and what independent tools say about the same program ([`dhat`], [`gdb`]).
//!
//! Must hold: no result depends on a clock, except where a promise is about time. Every random choice comes from a
//! printed seed ([`chance`]). A missing tool fails the test (`tests/setup.sh` installs all of them).
pub mod attach;
pub mod chance;
pub mod channel_memory;
pub mod dhat;
pub mod folder;
pub mod gdb;
pub mod heaptrace;
pub mod kde;
pub mod memory;
pub mod phases;
pub mod pprof;
pub mod process;
pub mod processes;
pub mod profilers;
pub mod promised;
pub mod receiver;
pub mod replay;
pub mod report;
pub mod run;
pub mod sampled;
pub mod scale;
pub mod server;
pub mod symbols;
pub mod tally;
pub mod targets;
pub mod tmux;
pub mod twins;
pub mod view;
pub mod viewer;
pub mod watchdog;
pub mod zoo;

pub use chance::Chance;
pub use folder::Folder;
pub use report::{Report, Site};
pub use run::{Outcome, Program};
