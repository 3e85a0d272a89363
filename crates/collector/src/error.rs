//! The errors that keep a session from starting.
use std::io;

/// Recording cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("the sizes of the shared memory are out of bounds")]
    Geometry,
    #[error("cannot create the shared memory: {0}")]
    Memory(#[source] io::Error),
    #[error("cannot write the library for the program: {0}")]
    Library(#[source] io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot write the trace: {0}")]
    Output(#[source] io::Error),
}

impl SetupError {
    /// Returns true if the shared memory or the library's file could not be made, most likely because there is no room.
    pub const fn is_out_of_room(&self) -> bool {
        matches!(self, SetupError::Memory(_) | SetupError::Library(_))
    }
}
