//! Tables as CSV (RFC 4180, with a header) or as JSON Lines, one object for each row.
//!
//! Must hold: a value that is not known is an empty cell, or is left out of the object. It is never 0.
use crate::json;
use std::io::{self, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    Csv,
    JsonLines,
}

/// A cell of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Number(u64),
    Text(&'a str),
    /// JSON. In CSV it is a text.
    Json(&'a str),
    Bool(bool),
    Unknown,
}

impl<'a> Cell<'a> {
    pub(crate) fn text(text: Option<&'a str>) -> Self {
        text.map_or(Cell::Unknown, Cell::Text)
    }

    pub(crate) fn number(number: Option<u64>) -> Self {
        number.map_or(Cell::Unknown, Cell::Number)
    }
}

pub(crate) struct TableWriter<'a> {
    format: TableFormat,
    columns: &'a [&'a str],
    out: &'a mut dyn Write,
    row: Vec<u8>,
}

impl<'a> TableWriter<'a> {
    /// Writes the header of a CSV file.
    pub(crate) fn new(format: TableFormat, columns: &'a [&'a str], out: &'a mut dyn Write) -> io::Result<Self> {
        if format == TableFormat::Csv {
            writeln!(out, "{}", columns.join(","))?;
        }
        Ok(TableWriter { format, columns, out, row: Vec::new() })
    }

    /// Writes a row, with a cell for each column.
    pub(crate) fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        self.row.clear();
        match self.format {
            TableFormat::Csv => self.csv(cells),
            TableFormat::JsonLines => self.json(cells),
        }
        self.row.push(b'\n');
        self.out.write_all(&self.row)
    }

    fn csv(&mut self, cells: &[Cell<'_>]) {
        for (number, cell) in cells.iter().enumerate() {
            if number > 0 {
                self.row.push(b',');
            }
            match cell {
                Cell::Number(value) => push_number(&mut self.row, *value),
                Cell::Text(text) | Cell::Json(text) => push_quoted(&mut self.row, text),
                Cell::Bool(value) => self.row.extend_from_slice(if *value { b"true" } else { b"false" }),
                Cell::Unknown => {}
            }
        }
    }

    fn json(&mut self, cells: &[Cell<'_>]) {
        self.row.push(b'{');
        for (name, cell) in self.columns.iter().zip(cells) {
            if matches!(cell, Cell::Unknown) {
                continue;
            }
            if self.row.len() > 1 {
                self.row.push(b',');
            }
            self.row.push(b'"');
            self.row.extend_from_slice(name.as_bytes());
            self.row.extend_from_slice(b"\":");
            match cell {
                Cell::Number(value) => push_number(&mut self.row, *value),
                Cell::Text(text) => self.row.extend_from_slice(json::text(text).as_bytes()),
                Cell::Json(text) => self.row.extend_from_slice(text.as_bytes()),
                Cell::Bool(value) => self.row.extend_from_slice(if *value { b"true" } else { b"false" }),
                Cell::Unknown => {}
            }
        }
        self.row.push(b'}');
    }
}

/// Faster than `write!`, which matters for tables of millions of events.
fn push_number(row: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    row.extend_from_slice(&digits[at..]);
}

fn push_quoted(row: &mut Vec<u8>, text: &str) {
    if !text.bytes().any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r')) && !text.is_empty() {
        return row.extend_from_slice(text.as_bytes());
    }
    row.push(b'"');
    row.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    row.push(b'"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn written(format: TableFormat) -> String {
        let mut out = Vec::new();
        let mut table = TableWriter::new(format, &["a", "b", "c"], &mut out).unwrap();
        table.row(&[Cell::Number(0), Cell::Text("x\"y, z"), Cell::Bool(true)]).unwrap();
        table.row(&[Cell::Number(u64::MAX), Cell::Unknown, Cell::Json("[1]")]).unwrap();
        table.row(&[Cell::Unknown, Cell::Text(""), Cell::Text("two\nlines")]).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn unknown_is_not_zero() {
        let csv = "a,b,c\n0,\"x\"\"y, z\",true\n18446744073709551615,,[1]\n,\"\",\"two\nlines\"\n";
        assert_eq!(written(TableFormat::Csv), csv);
        let lines = "{\"a\":0,\"b\":\"x\\\"y, z\",\"c\":true}\n{\"a\":18446744073709551615,\"c\":[1]}\n{\"b\":\"\",\"c\":\"two\\nlines\"}\n";
        assert_eq!(written(TableFormat::JsonLines), lines);
    }
}
