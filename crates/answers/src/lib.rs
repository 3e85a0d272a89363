//! What the page asks about open traces, and the answers as JSON.
//!
//! Receives: an open trace, and the words of an address. Returns: JSON, or a refusal with a sentence. Must hold: an answer
//! depends only on the trace, the words and the options. The server (`crates/web`) and the engine in a browser
//! (`crates/viewer`) answer with the same functions, so the page cannot tell them apart.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod address;
mod browser;
mod options;
mod question;
mod status;
mod view;

pub use browser::{INDEX_BYTES, too_large_for_a_browser};
pub use options::{BadOptions, NamedText, Options, Settings, check_suppressions};
pub use question::{Question, question};
pub use status::{State, TraceStatus, status_of};
pub use view::{answer, cannot_be_read, pairs, refuse_samples, table};

/// Why a question has no answer: the HTTP status, and a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub sentence: String,
}

impl Refusal {
    pub fn new(status: u16, sentence: impl Into<String>) -> Self {
        Refusal { status, sentence: sentence.into() }
    }
}
