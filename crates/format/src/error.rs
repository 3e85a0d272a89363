//! Errors of reading and writing a trace.
use std::io;

/// The bytes inside a block are not valid for its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the data ends in the middle of a value")]
    Cut,
    #[error("a number does not fit its field")]
    Overflow,
    #[error("a count is larger than its block can hold")]
    Count,
    #[error("an unknown tag")]
    Tag,
    #[error("a reference to something that was not defined")]
    Reference,
    #[error("a block of an unknown kind")]
    Kind,
}

/// The file cannot be read or written at all. Damage inside a trace is not an error but a `Damage`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a heaptrack trace")]
    NotATrace,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is a folder")]
    Folder,
    #[error("it is empty")]
    Empty,
    /// A heap profile of another tool: what it is, and what is wrong.
    #[error("it is {0}")]
    HeapProfile(String),
    #[error("its format version {0} is newer than this heaptrack knows; use a newer heaptrack")]
    Newer(u32),
}
