//! Unpacked text in pieces of whole lines, from the caller's thread or from threads that work ahead: one unpacks, and
//! another may decode events.
//!
//! Must hold: a line has at most 16 MiB. Longer ones are dropped and counted, so that no file makes a buffer grow
//! without end. The threads are at most a few pieces ahead, and end when the reader is dropped.
use super::event_words::EventWords;
use super::unpack::{End, Unpacker};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

const STEP: usize = 256 << 10;
const LONGEST_LINE: usize = 16 << 20;
/// Enough for some milliseconds of work. On a busy machine, threads that wait for each other after every piece would seldom
/// run at the same time.
const PIECES_AHEAD: usize = 16;
/// A piece with a larger buffer, because of a long line, waits until all pieces before it are used.
const LARGE: usize = 4 * STEP;

/// Whole lines: `buffer[at..end]`.
#[derive(Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// The decoded text, or the buffers of an earlier piece.
    words: EventWords,
    is_decoded: bool,
    /// The number of bytes of text before `buffer[0]`.
    before: u64,
    /// The bytes of a line before these lines that was too long.
    pub(crate) dropped: u64,
    /// Set if these lines are the last: how the text ended, and the bytes of a line without its end.
    pub(crate) last: Option<(End, usize)>,
}

impl Lines {
    pub(crate) fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..self.end).unwrap_or_default()
    }

    /// The offset of the next line in the text.
    pub(crate) const fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    pub(crate) const fn consume(&mut self, length: usize) {
        self.at += length;
    }

    /// Goes to a place of the buffer.
    pub(crate) const fn go_to(&mut self, place: usize) {
        self.at = place;
    }

    fn decode(&mut self) {
        self.words.fill(&self.buffer, self.at..self.end);
        self.is_decoded = true;
    }

    /// Returns the decoded text. Must be called once for each piece, before any of it is consumed.
    pub(crate) fn take_words(&mut self) -> EventWords {
        if !self.is_decoded {
            self.decode();
        }
        std::mem::take(&mut self.words)
    }

    /// Takes back the buffers of decoded text, to use them again.
    pub(crate) fn return_words(&mut self, words: EventWords) {
        self.words = words;
    }

    /// The next line without its line feed.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let from = self.at;
        let length = self.rest().iter().position(|byte| *byte == b'\n')?;
        self.at = from + length + 1;
        self.buffer.get(from..from + length)
    }
}

/// Cuts text at line feeds.
pub(crate) struct Cutter<R: Read> {
    input: Unpacker<R>,
    /// The beginning of a line whose end was not read yet.
    rest: Vec<u8>,
    /// The number of bytes of text before `rest`.
    before: u64,
    /// The current line is too long and is dropped up to its end.
    is_dropping: bool,
    dropped: u64,
}

impl<R: Read> Cutter<R> {
    pub(crate) const fn new(input: Unpacker<R>) -> Self {
        Cutter { input, rest: Vec::new(), before: 0, is_dropping: false, dropped: 0 }
    }

    /// Returns the next lines, at least one until the last. The buffers of `done` are reused.
    fn next(&mut self, done: Lines) -> io::Result<Lines> {
        let mut lines = self.read(done.buffer)?;
        lines.words = done.words;
        Ok(lines)
    }

    fn read(&mut self, mut buffer: Vec<u8>) -> io::Result<Lines> {
        loop {
            let have = self.rest.len();
            if buffer.len() < have + STEP {
                buffer.resize(have + STEP, 0);
            }
            buffer[..have].copy_from_slice(&self.rest);
            let count = self.input.read(&mut buffer[have..])?;
            let mut lines = Lines { before: self.before, dropped: self.dropped, ..Lines::default() };
            if count == 0 {
                lines.buffer = buffer;
                lines.last = Some((self.input.end().unwrap_or(End::Cut), have));
                return Ok(lines);
            }
            let mut text = &buffer[..have + count];
            if self.is_dropping {
                text = self.drop_line(text);
                lines.at = have + count - text.len();
                lines.before = self.before - lines.at as u64;
                lines.dropped = self.dropped;
            }
            let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.rest.clear();
            self.rest.extend_from_slice(&text[end..]);
            if end > 0 {
                lines.end = lines.at + end;
                self.before += end as u64;
                self.dropped = 0;
                lines.buffer = buffer;
                return Ok(lines);
            }
            if self.rest.len() > LONGEST_LINE {
                self.is_dropping = true;
                let rest = std::mem::take(&mut self.rest);
                self.drop_line(&rest);
            }
        }
    }

    /// Returns the text after the line that is too long.
    fn drop_line<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let feed = text.iter().position(|byte| *byte == b'\n');
        let length = feed.map_or(text.len(), |at| at + 1);
        self.is_dropping = feed.is_none();
        self.dropped += length as u64;
        self.before += length as u64;
        &text[length..]
    }
}

pub(crate) enum Text<R: Read> {
    Here(Cutter<R>),
    Ahead {
        pieces: Receiver<io::Result<Lines>>,
        /// Returns used buffers to the unpacking thread.
        used: Sender<Lines>,
    },
}

impl<R: Read> Text<R> {
    /// Starts a thread that unpacks. It ends with the text, or when the reader is dropped.
    pub(crate) fn ahead(cutter: Cutter<R>) -> io::Result<Self>
    where
        R: Send + 'static,
    {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let (used, buffers) = channel();
        let builder = std::thread::Builder::new().name("heaptrack-unpack".into());
        builder.spawn(move || cut(cutter, &sender, &buffers))?;
        Ok(Text::Ahead { pieces, used })
    }

    /// Starts another thread, which decodes the events of all pieces that follow. Without it, the caller decodes them.
    pub(crate) fn decode_ahead(&mut self) -> io::Result<()> {
        let Text::Ahead { pieces, .. } = self else { return Ok(()) };
        let (sender, decoded) = sync_channel(PIECES_AHEAD);
        let (start, text) = channel();
        let builder = std::thread::Builder::new().name("heaptrack-decode".into());
        builder.spawn(move || text.recv().map(|text| decode(&text, &sender)))?;
        // Sent only now, because the pieces would be lost with a thread that cannot be started.
        let _ = start.send(std::mem::replace(pieces, decoded));
        Ok(())
    }

    /// Returns the next lines. The buffers of `done`, the lines before, are reused.
    pub(crate) fn next(&mut self, done: Lines) -> io::Result<Lines> {
        match self {
            Text::Here(cutter) => cutter.next(done),
            Text::Ahead { pieces, used } => {
                let _ = used.send(done);
                // The thread sends how it ended before it exits.
                let gone = || Lines { last: Some((End::Damaged, 0)), ..Lines::default() };
                pieces.recv().unwrap_or_else(|_| Ok(gone()))
            }
        }
    }
}

fn cut<R: Read>(mut cutter: Cutter<R>, pieces: &SyncSender<io::Result<Lines>>, buffers: &Receiver<Lines>) {
    // The reader returns one buffer more than it received, because it returns one before it asks for the first piece.
    let (mut sent, mut returned) = (1u64, 0u64);
    loop {
        let buffer = buffers.try_recv().inspect(|_| returned += 1).ok();
        let lines = cutter.next(buffer.filter(|done| done.buffer.len() <= LARGE).unwrap_or_default());
        let is_last = lines.as_ref().map_or(true, |lines| lines.last.is_some());
        if lines.as_ref().is_ok_and(|lines| lines.buffer.len() > LARGE) {
            while returned < sent && buffers.recv().is_ok() {
                returned += 1;
            }
        }
        if pieces.send(lines).is_err() || is_last {
            return;
        }
        sent += 1;
    }
}

fn decode(text: &Receiver<io::Result<Lines>>, decoded: &SyncSender<io::Result<Lines>>) {
    for mut lines in text {
        if let Ok(lines) = &mut lines {
            lines.decode();
        }
        if decoded.send(lines).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn long_lines_do_not_stop_the_threads() {
        let line = |number: usize| "x".repeat(if number.is_multiple_of(3) { 2 << 20 } else { 70_000 });
        let whole: String = (0..60).map(|number| line(number) + "\n").collect();
        let input = io::Cursor::new(whole.clone().into_bytes());
        let mut text = Text::ahead(Cutter::new(Unpacker::new(input, b"").unwrap())).unwrap();
        let mut lines = text.next(Lines::default()).unwrap();
        text.decode_ahead().unwrap();
        let mut found = String::new();
        while lines.last.is_none() {
            found += std::str::from_utf8(lines.rest()).unwrap();
            lines = text.next(lines).unwrap();
        }
        assert!(found == whole, "{} bytes of {}", found.len(), whole.len());
    }

    #[test]
    fn lines_longer_than_any_are_dropped_in_bounded_memory() {
        let long = || io::repeat(b'x').take(40 << 20);
        // After the first long line, a piece of text ends in the middle of the next line.
        let input =
            io::Cursor::new(b"a\n".to_vec()).chain(long()).chain(&b"\nb"[..]).chain(&b"\nc\n"[..]).chain(long());
        let input = input.chain(&b"\nd\nrest"[..]);
        let cutter = Cutter::new(Unpacker::new(input, b"").unwrap());
        let mut text = Text::ahead(cutter).unwrap();
        let mut found = Vec::new();
        let mut lines = Lines::default();
        let mut dropped = 0;
        while lines.last.is_none() {
            lines = text.next(lines).unwrap();
            dropped += lines.dropped;
            loop {
                let offset = lines.offset();
                let Some(line) = lines.next() else { break };
                found.push((offset, String::from_utf8(line.to_vec()).unwrap()));
            }
            assert!(lines.buffer.capacity() < 40 << 20);
        }
        let long = (40 << 20) + 1;
        let at = [0, 2 + long, 4 + long, 6 + 2 * long];
        assert_eq!(found, at.into_iter().zip(["a", "b", "c", "d"].map(str::to_owned)).collect::<Vec<_>>());
        assert_eq!((dropped, lines.last), (2 * long, Some((End::Whole, 4))));
    }
}
