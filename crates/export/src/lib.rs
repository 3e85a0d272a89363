//! Traces in formats of other tools, one module per format.
//!
//! Receives: a trace, as blocks (`heaptrack`, `massif`) or as a report (`massif`, `folded`; `svg` takes the rows of
//! `folded`). Returns: bytes, to any writer. Must hold: no number changes; characters of a name that would break a
//! format are escaped or replaced, and the name is never left out.
#![forbid(unsafe_code)]

mod definitions;
pub mod folded;
mod heap;
pub mod heaptrack;
mod hex;
pub mod massif;
mod packing;
pub mod svg;

pub use packing::{Packed, Packing};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Read(#[from] format::Error),
    #[error("writing failed: {0}")]
    Write(#[from] std::io::Error),
}

/// Opens the trace anew for each pass over it.
pub type Opener<'a> = &'a dyn Fn() -> Result<format::Source, format::Error>;
