//! The harness of the end-to-end tests.
//!
//! Given: a finished `heaptrack` binary (`HEAPTRACK_BIN`, else `target/release/heaptrack`) and the programs in
//! `tests/targets`. Gives back: what a program did alone and what it did while being recorded ([`run`]), what the trace
//! says ([`report`]), and what somebody else says about the same program ([`dhat`], [`gdb`]).
//!
//! What must hold: nothing here is decided by a clock, except where a promise is about time; every random choice comes
//! from a printed seed ([`chance`]); a tool that is missing fails the test (`tests/setup.sh` installs all of them).
pub mod attach;
pub mod chance;
pub mod channel_memory;
pub mod dhat;
pub mod folder;
pub mod gdb;
pub mod heaptrace;
pub mod kde;
pub mod phases;
pub mod process;
pub mod replay;
pub mod report;
pub mod run;
pub mod scale;
pub mod server;
pub mod symbols;
pub mod targets;
pub mod twins;
pub mod view;
pub mod watchdog;
pub mod zoo;

pub use chance::Chance;
pub use folder::Folder;
pub use report::{Report, Site};
pub use run::{Outcome, Program};
