//! The error of [`Trace`](crate::Trace).
use crate::open::AskError;
use analysis::{AnswerError, BadQuery};

/// Why a trace could not be opened, or a question could not be answered. Its text is one sentence for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read, is no trace, or has a newer format.
    #[error("{0}")]
    File(String),
    /// The selection has a wrong word or value, or asks for something that the trace does not have.
    #[error("{0}")]
    Selection(String),
}

impl From<format::Error> for Error {
    fn from(error: format::Error) -> Self {
        Error::File(error.to_string())
    }
}

impl From<BadQuery> for Error {
    fn from(bad: BadQuery) -> Self {
        Error::Selection(bad.to_string())
    }
}

impl From<AnswerError> for Error {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Query(bad) => bad.into(),
            AnswerError::Gone(_) | AnswerError::Io(_) => Error::File(error.to_string()),
        }
    }
}

impl From<AskError> for Error {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Read(error) => error.into(),
            AskError::Answer(error) => error.into(),
        }
    }
}
