//! The parts of JSON that large files are written with, piece by piece.
use std::io::{self, Write};

/// A text in quotes.
pub(crate) fn text(text: &str) -> String {
    // A text can always be written.
    serde_json::to_string(text).unwrap_or_default()
}

/// Any value that can be written as JSON.
pub(crate) fn value(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Writes the items with commas between them.
pub(crate) fn list<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        write(out, item)?;
    }
    Ok(())
}
