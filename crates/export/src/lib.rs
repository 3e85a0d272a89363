//! Traces in formats of other tools, one module per format.
//!
//! Receives: a trace, as blocks (`heaptrack`), as a report (`folded`; `svg` takes the rows of `folded`), as selected stacks
//! with their costs (`Selected`), or as events. Returns: bytes, to any writer. Must hold: no number changes; characters of a name that would break a
//! format are escaped or replaced, and the name is never left out.
#![forbid(unsafe_code)]

mod definitions;
pub mod dhat;
pub mod events;
pub mod firefox;
pub mod folded;
pub mod gperftools;
pub mod heaptrack;
mod hex;
mod json;
pub mod massif;
pub mod otlp;
mod packing;
pub mod pprof;
pub mod protobuf;
mod redaction;
mod selected;
pub mod sites;
pub mod speedscope;
pub mod svg;
mod table;

pub use packing::{Packed, Packing};
pub use redaction::Redaction;
pub use selected::Selected;
pub use svg::escape_xml;
pub use table::TableFormat;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Read(#[from] format::Error),
    #[error(transparent)]
    ReadAgain(#[from] analysis::Gone),
    #[error("writing failed: {0}")]
    Write(#[from] std::io::Error),
}

/// Opens the trace anew for each pass over it.
pub type Opener<'a> = &'a dyn Fn() -> Result<format::Source, format::Error>;
