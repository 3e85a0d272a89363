//! Addresses to what people wrote: function, file, line, inlined frames.
//!
//! Given: a module (a path, a build-id, perhaps a living process) and offsets in it. Gives back: frames, innermost
//! first, and how well the module is known. What must hold:
//!
//! - The only code that opens debug files.
//! - **A file that is not the one that ran is never used**: its build-id must be the recorded one. What does not fit is said.
//! - **Malformed files never panic**: the frame stays an address.
//! - Files are read, not mapped: a file that shrinks while it is read is an error, not the end of the process.
//!
//! ```text
//! Wanted (modules, frames of a trace) -> Finder (files) -> Resolver (one module) -> format::Symbols
//! ```
#![forbid(unsafe_code)]

mod debuginfod;
mod demangle;
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
pub use resolver::{Frame, Resolver, State};
pub use run::{Budget, Progress, resolve_all, resolve_jit, resolve_module, starts};
pub use store::Store;
pub use target_files::{PinnedFiles, Target};
pub use wanted::{ModuleWork, SKIPPED, Wanted};
