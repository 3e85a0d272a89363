//! Unpacked text in pieces of whole lines.
//!
//! What must hold: a line is at most 16 MiB; what is longer is skipped and counted as damage, so that no file makes the buffer
//! grow without end.
use super::input::{End, Input};
use std::io::{self, Read};

const STEP: usize = 256 << 10;
const LONGEST_LINE: usize = 16 << 20;

pub(crate) struct Text<R: Read> {
    input: Input<R>,
    /// `buffer[start..whole]` are whole lines, what follows is the beginning of one.
    buffer: Vec<u8>,
    start: usize,
    whole: usize,
    /// Bytes of text before `buffer[0]`.
    before: u64,
    /// The line that is coming is too long: it is dropped up to its end.
    is_dropping: bool,
    dropped: u64,
}

impl<R: Read> Text<R> {
    pub(crate) const fn new(input: Input<R>) -> Self {
        Text { input, buffer: Vec::new(), start: 0, whole: 0, before: 0, is_dropping: false, dropped: 0 }
    }

    /// Lends the whole lines that are not consumed yet, reading more if there are none; empty at the end. Give the
    /// buffer back with `put_back`.
    pub(crate) fn take(&mut self) -> io::Result<Lines> {
        while self.start == self.whole {
            if !self.fill()? {
                break;
            }
        }
        Ok(Lines { buffer: std::mem::take(&mut self.buffer), before: self.before, at: self.start, end: self.whole })
    }

    pub(crate) fn put_back(&mut self, lines: Lines) {
        self.buffer = lines.buffer;
        self.start = lines.at;
    }

    /// Where in the text the next line begins.
    pub(crate) const fn offset(&self) -> u64 {
        self.before + self.start as u64
    }

    /// After the end: how it ended, and whether a last line was left without its line feed.
    pub(crate) const fn end(&self) -> Option<End> {
        self.input.end()
    }

    pub(crate) const fn unfinished_bytes(&self) -> usize {
        self.buffer.len() - self.whole
    }

    /// Bytes of lines that were too long.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn fill(&mut self) -> io::Result<bool> {
        self.before += self.start as u64;
        self.buffer.drain(..self.start);
        (self.start, self.whole) = (0, 0);
        let have = self.buffer.len();
        self.buffer.resize(have + STEP, 0);
        let read = self.input.read(&mut self.buffer[have..]);
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        if read? == 0 {
            return Ok(false);
        }
        if self.is_dropping {
            self.drop_to_feed();
        }
        match self.buffer.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => self.whole = at + 1,
            None if self.buffer.len() > LONGEST_LINE => {
                self.is_dropping = true;
                self.drop_to_feed();
            }
            None => (),
        }
        Ok(true)
    }

    fn drop_to_feed(&mut self) {
        let feed = self.buffer.iter().position(|byte| *byte == b'\n');
        let length = feed.map_or(self.buffer.len(), |at| at + 1);
        self.is_dropping = feed.is_none();
        self.buffer.drain(..length);
        self.before += length as u64;
        self.dropped += length as u64;
    }
}

/// Whole lines, lent out.
pub(crate) struct Lines {
    buffer: Vec<u8>,
    before: u64,
    at: usize,
    end: usize,
}

impl Lines {
    pub(crate) fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..self.end).unwrap_or_default()
    }

    /// Where in the text the next line begins.
    pub(crate) const fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    pub(crate) const fn consume(&mut self, length: usize) {
        self.at += length;
    }

    /// The next line without its line feed.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let from = self.at;
        let length = self.rest().iter().position(|byte| *byte == b'\n')?;
        self.at = from + length + 1;
        self.buffer.get(from..from + length)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::super::input::Unpacker;
    use super::*;

    #[test]
    fn lines_longer_than_any_are_dropped_in_bounded_memory() {
        let long = io::repeat(b'x').take(40 << 20);
        let input = io::Cursor::new(b"a\n".to_vec()).chain(long).chain(&b"\nb\nrest"[..]);
        let mut text = Text::new(Input::Here(Unpacker::new(input, b"").unwrap()));
        let mut found = Vec::new();
        loop {
            let mut lines = text.take().unwrap();
            if lines.rest().is_empty() {
                break;
            }
            while let Some(line) = lines.next() {
                found.push(line.to_vec());
            }
            assert!(lines.buffer.capacity() < 40 << 20);
            text.put_back(lines);
        }
        assert_eq!(found, [b"a", b"b"]);
        assert_eq!(text.dropped(), (40 << 20) + 1);
    }
}
