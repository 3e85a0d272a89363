//! Reads files of KDE's heaptrack as if they were ours.
//!
//! Receives: the text of an interpreted or a raw file of formats 0 to 3, packed by gzip or zstd or not at all, complete
//! or truncated. Returns: our blocks, in an order in which a recording could have written them. Must hold: every
//! consumer of blocks works on them unchanged; hostile text causes a note of damage; memory is bounded by live blocks
//! and definitions, and those by limits.
//!
//! ```text
//! file -> Unpacker -> Text (whole lines) -> Translation -> RawBlock
//! ```
//! Such a file does not contain threads, or the time of day at which it began. An interpreted file of format 1 or later
//! does not say which of several equal blocks was freed. `docs/kde.md` describes the consequences. The kinds of files
//! are in `file_kind.rs`, KDE's rules for counting in `counting.rs`.
mod ahead;
mod class_counts;
mod counted_lines;
mod counting;
mod event_words;
mod file_kind;
mod interpreted_names;
mod line;
mod pairs;
mod pointers;
mod raw;
mod text;
mod translation;
mod unpack;

use crate::{BlockKind, Damage, Error, RawBlock};
pub use ahead::KdeAhead;
pub(crate) use ahead::Wanted;
pub use class_counts::KdeCounts;
pub use counting::{Counting, KdeRule};
pub use file_kind::KdeFileKind;
pub use interpreted_names::Shorten;
use std::collections::VecDeque;
use std::io::Read;
use text::{Cutter, Lines, Text};
use translation::{Refused, Translation};
pub(crate) use unpack::is_packed;
use unpack::{End, Unpacker};

/// The newest format of KDE's that we can read.
const NEWEST: u32 = 3;
const DAMAGE_KEPT: usize = 256;

/// True for the first bytes of a plain text of KDE's.
pub(crate) fn is_text(first: &[u8]) -> bool {
    matches!(first, [b'v' | b'X' | b'x' | b'I', b' ', ..]) && !first.contains(&0)
}

/// Returns blocks as `Reader` does.
pub struct KdeReader<R: Read> {
    text: Text<R>,
    lines: Lines,
    translation: Translation,
    queue: VecDeque<RawBlock>,
    block: RawBlock,
    skipped: &'static [BlockKind],
    is_packed: bool,
    is_raw: bool,
    is_over: bool,
    finished: bool,
    damage: Vec<Damage>,
    damage_count: u64,
}

impl<R: Read> KdeReader<R> {
    /// Reads the first line. `first` has the first bytes of `input`, at least four if there are as many; `input` must
    /// still be at its beginning.
    pub fn new(input: R, first: &[u8]) -> Result<Self, Error> {
        Self::with(Text::Here(Cutter::new(Unpacker::new(input, first)?)), is_packed(first))
    }

    /// Like `new`, with a thread that unpacks ahead.
    pub(crate) fn unpacked_ahead(input: R, first: &[u8]) -> Result<Self, Error>
    where
        R: Send + 'static,
    {
        Self::with(Text::ahead(Cutter::new(Unpacker::new(input, first)?))?, is_packed(first))
    }

    fn with(mut text: Text<R>, is_packed: bool) -> Result<Self, Error> {
        let mut lines = text.next(Lines::default())?;
        let start = lines.rest().get(..lines.rest().len().min(256)).unwrap_or_default().to_vec();
        if start.is_empty() {
            return Err(if lines.last == Some((End::Whole, 0)) { Error::Empty } else { Error::NotATrace });
        }
        if start.starts_with(b"v ") {
            lines.next();
        }
        if !is_text(&start) {
            return Err(Error::NotATrace);
        }
        let (version, format) = first_line(&start)?;
        Ok(KdeReader {
            text,
            lines,
            translation: Translation::new(format, version),
            queue: VecDeque::new(),
            block: RawBlock { kind: BlockKind::Session, payload: Vec::new() },
            skipped: &[],
            is_packed,
            is_raw: start.split(|byte| *byte == b'\n').take(2).any(|line| line.starts_with(b"x ")),
            is_over: false,
            finished: false,
            damage: Vec::new(),
            damage_count: 0,
        })
    }

    /// Returns the next block, or `None` at the end.
    pub fn next_block(&mut self) -> Result<Option<&RawBlock>, Error> {
        match self.take_block()? {
            Some(block) => {
                self.block = block;
                Ok(Some(&self.block))
            }
            None => Ok(None),
        }
    }

    fn take_block(&mut self) -> Result<Option<RawBlock>, Error> {
        loop {
            while let Some(block) = self.queue.pop_front() {
                if !self.skipped.contains(&block.kind) {
                    return Ok(Some(block));
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.read()?;
        }
    }

    /// Sets how functions get a short name. Must be called before the first block is read.
    pub const fn set_shorten(&mut self, shorten: Option<Shorten>) {
        self.translation.names.shorten = shorten;
    }

    /// Counts the events of an interpreted file by allocation class instead of returning them as blocks. Does nothing for
    /// other files. Must be called before the first block is read.
    pub fn count_classes(&mut self) {
        if !self.is_raw && self.translation.count_classes() {
            // Without another thread, the work is done here.
            let _ = self.text.decode_ahead();
        }
    }

    /// After the last block: the counts of a file whose events were counted.
    pub fn take_counts(&mut self) -> Option<Box<KdeCounts>> {
        self.translation.take_counts()
    }

    /// Blocks of these kinds are not returned.
    pub const fn skip(&mut self, kinds: &'static [BlockKind]) {
        self.skipped = kinds;
    }

    /// True if the file has no names, so that they must be looked up.
    pub const fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// True if the file is complete.
    pub const fn finished(&self) -> bool {
        self.finished
    }

    /// Places that could not be read, at most the first 256. Offsets are those of the unpacked text.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    pub const fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// Translates until there are blocks, or up to the end.
    fn read(&mut self) -> Result<(), Error> {
        let mut lines = std::mem::take(&mut self.lines);
        while !self.translation.is_full() && !self.is_over {
            if !lines.rest().is_empty() {
                if self.translation.is_counting() {
                    self.count(&mut lines);
                } else {
                    self.translate(&mut lines);
                }
                continue;
            }
            if let Some((end, unfinished)) = lines.last {
                self.end(end, unfinished, lines.offset());
                return Ok(());
            }
            lines = self.text.next(lines)?;
            if lines.dropped > 0 {
                self.note(lines.offset() - lines.dropped, lines.dropped, "a line of more than 16 MiB");
            }
        }
        self.lines = lines;
        self.translation.take(&mut self.queue);
        Ok(())
    }

    /// Translates plain events, then one line of another kind.
    fn translate(&mut self, lines: &mut Lines) {
        loop {
            let plain = self.translation.events(lines.rest());
            lines.consume(plain);
            if self.translation.is_full() {
                return;
            }
            if plain == 0 {
                break;
            }
        }
        self.translate_line(lines);
    }

    fn translate_line(&mut self, lines: &mut Lines) {
        let offset = lines.offset();
        let refused = lines.next().map_or(Ok(()), |line| self.translation.line(line));
        let length = lines.offset() - offset;
        match refused {
            Ok(()) => (),
            Err(Refused::Line) => self.note(offset, length, "a line that makes no sense"),
            Err(Refused::TooMuch) => {
                self.note(offset, length, "more than a trace can hold: the rest was not read");
                self.is_over = true;
            }
        }
    }

    fn end(&mut self, end: End, unfinished: usize, offset: u64) {
        self.is_over = true;
        if end == End::Damaged {
            self.note(offset, 0, "the packed data is damaged from here on");
        }
        // The text of a raw file does not say that it is complete, but its packing does.
        let is_ended = self.translation.has_trailer || self.translation.kind == KdeFileKind::Raw && self.is_packed;
        self.finished = end == End::Whole && is_ended && unfinished == 0;
        self.translation.take(&mut self.queue);
        if self.finished {
            self.queue.push_back(self.translation.summary(self.damage_count == 0).to_block());
        }
    }

    fn note(&mut self, offset: u64, length: u64, reason: &'static str) {
        if let Some(last) = self.damage.last_mut()
            && last.reason == reason
            && last.offset + last.length == offset
        {
            last.length += length;
            return;
        }
        self.damage_count += 1;
        if self.damage.len() < DAMAGE_KEPT {
            self.damage.push(Damage { offset, length, reason });
        }
    }
}

/// Returns the recorder's version and the format from the `v` line. A file without a `v` line has version and format 0.
fn first_line(start: &[u8]) -> Result<(u32, u32), Error> {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(rest) = line.strip_prefix(b"v ") else { return Ok((0, 0)) };
    let mut fields = line::Fields::new(rest);
    let version = fields.index().ok_or(Error::NotATrace)?;
    let format = match fields.index() {
        Some(format) => format,
        None if version == 0x1_0200 => 1,
        None => 0,
    };
    if format > NEWEST { Err(Error::Newer(format)) } else { Ok((version, format)) }
}
