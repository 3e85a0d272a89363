//! Numbers for people, as everywhere.
pub(crate) use analysis::numbers::*;
