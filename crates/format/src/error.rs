//! What can go wrong with a trace.
use std::io;

/// The bytes inside a block do not say what its kind should.
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

/// The file cannot be read or written at all. Damage inside a trace is no error: see `Damage`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("this is not a heaptrack trace")]
    NotATrace,
    #[error("this is no regular file")]
    NotAFile,
    #[error("the file is empty")]
    Empty,
    #[error("the trace is of format version {0}, newer than this program knows")]
    Newer(u32),
}
