//! The custom domain in the reports: blocks of the program's own allocators, kept apart from malloc's.
use super::Trace;
use super::json::{Lists, totals};
use super::text;
use crate::source;
use format::Domain;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::io::{self, Write};
use std::path::Path;

/// The same file as a trace of nothing but custom blocks.
pub fn trace(path: &Path) -> Result<Trace, format::Error> {
    let mut reader = source::open(path)?;
    reader.set_domain(Domain::Custom);
    Trace::read(reader)
}

/// Totals and lists as the whole report has them.
pub struct Custom<'a>(pub &'a Trace);

impl Serialize for Custom<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("totals", &totals(&self.0.report.totals))?;
        Lists(self.0).serialize_into(&mut map)?;
        map.end()
    }
}

/// A section behind malloc's.
pub fn section(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    writeln!(out, "\ncustom allocators: blocks that the program reported itself, not counted above\n")?;
    text::heap_totals(out, &trace.report)?;
    text::lists(out, trace, "custom ")
}
