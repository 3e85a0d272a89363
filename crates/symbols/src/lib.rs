//! Translates addresses to source code: function, file, line, and inlined frames.
//!
//! Receives: a module (a path, a build-id, perhaps a process that still runs) and offsets in it. Returns: frames,
//! innermost first, and how well the module is known. Must hold:
//!
//! - No other crate opens debug files.
//! - **Only the file that ran is used**: its build-id must be the recorded one. A file that does not fit is reported.
//! - **Malformed files never cause a panic**: the frame stays an address.
//! - Files are read, not mapped. If a file shrinks while it is read, that is an error and not a SIGBUS.
//!
//! ```text
//! Wanted (modules, frames of a trace) -> Finder (files) -> Resolver (one module) -> format::Symbols
//! ```
#![forbid(unsafe_code)]

mod debuginfod;
mod dwarf;
mod elf;
mod finder;
mod functions;
mod jit;
mod kept;
mod lines;
mod near;
mod packing;
mod part;
mod resolver;
mod run;
mod section;
mod store;
mod symbol_table;
mod target_files;
mod units;
mod wanted;

pub use debuginfod::{Debuginfod, Download};
pub use demangle::{Hint, Name, demangle, shorten};
pub use finder::{Finder, Search};
pub use jit::{Code, Jit};
pub use resolver::{Frame, Function, Resolver, State};
pub use run::{Budget, Progress, resolve_all, resolve_jit, resolve_module, separate_functions, starts};
pub use store::Store;
pub use target_files::{PinnedFiles, Target};
pub use wanted::{ModuleWork, SKIPPED, Wanted};
