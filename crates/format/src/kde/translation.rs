//! Translates KDE's text into our blocks, line by line.
//!
//! ```text
//! s, i  -> Modules, Symbols      t -> Stacks      a -> AllocClasses      + -> allocation      c -> time
//! x, m  -> Modules (raw files)                                    - -> free            R -> Samples
//! ```
//! Must hold: definitions are returned before the events that use them; an invalid line changes nothing.
use super::class_counts::KdeCounts;
use super::event_words::EventWord;
use super::interpreted_names::Names;
use super::line::{Fields, short_number};
use super::pairs::{Freed, MOST_LIVE, Pairs};
use super::pointers::Pointers;
use super::raw::Modules;
use super::{Counting, KdeFileKind};
use crate::{
    AllocClassEncoder, EventEncoder, Exit, Frame, RawBlock, RssSample, Session, StackEncoder, Summary, Suppressions,
    Totals, VERSION,
};
use std::collections::VecDeque;

/// A block is written at this many raw bytes of events (or, below, of definitions).
const FULL: usize = 512 << 10;
/// Lines that are decoded together; at most ten bytes each.
const BATCH: usize = 32;
const FULL_DEFINITIONS: usize = 4 << 20;
const MOST_SAMPLES: usize = 1 << 16;
const MOST_NODES: usize = 1 << 26;
const MOST_ALLOC_CLASSES: usize = 1 << 26;
const MOST_SUPPRESSIONS: usize = 1 << 20;
const MOST_COMMAND: usize = 1 << 16;
/// KDE's page size if a file does not contain it.
const PAGE: u64 = 4096;
const LARGEST: u64 = 1 << 48;
const MS: u64 = 1_000_000;

/// Why a line was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The line is invalid; the next one may be valid.
    Line,
    /// The file claims more than we accept, so reading ends here.
    TooMuch,
}

pub(super) struct Translation {
    format: u32,
    version: u32,
    pub(super) kind: KdeFileKind,
    session: Session,
    suppressions: String,
    /// The session was not returned yet, or has changed since.
    is_session_new: bool,
    has_command: bool,
    /// The lines that follow may still be words of the command: KDE's recorder does not escape line feeds in them.
    in_command: bool,
    command_bytes: usize,
    pub(super) names: Names,
    modules: Modules,
    pairs: Pairs,
    /// Set if events are counted by allocation class: no blocks of events are made, and `pairs` is not used.
    counts: Option<Box<KdeCounts>>,
    pointers: Pointers,
    /// KDE's trace number - 1 -> our stack.
    traces: Vec<u32>,
    stacks: StackEncoder,
    alloc_classes: AllocClassEncoder,
    events: EventEncoder,
    samples: Vec<RssSample>,
    now_ns: u64,
    peak_rss: u64,
    /// The approximate raw bytes of definitions since the last blocks.
    defined: usize,
    pub(super) has_trailer: bool,
}

impl Translation {
    pub(super) fn new(format: u32, version: u32) -> Self {
        let kind = if format == 0 { KdeFileKind::Old } else { KdeFileKind::Interpreted };
        let session = Session { version: VERSION, page_size: PAGE as u32, ..Session::default() };
        Translation {
            format,
            version,
            kind,
            session: Session { tool: kind.tool(version), counting: Counting::of_file(kind), ..session },
            suppressions: String::new(),
            is_session_new: true,
            has_command: false,
            in_command: false,
            command_bytes: 0,
            names: Names::default(),
            modules: Modules::default(),
            pairs: Pairs::default(),
            counts: None,
            pointers: Pointers::default(),
            traces: Vec::new(),
            stacks: StackEncoder::new(),
            alloc_classes: AllocClassEncoder::new(),
            events: EventEncoder::new(),
            samples: Vec::new(),
            now_ns: 0,
            peak_rss: 0,
            defined: 0,
            has_trailer: false,
        }
    }

    /// Counts events by allocation class instead of making blocks of them, if the file names allocation classes. Must be
    /// called before the first line. Returns false for other files.
    pub(super) fn count_classes(&mut self) -> bool {
        let is_possible = self.kind == KdeFileKind::Interpreted;
        self.counts = is_possible.then(Box::default);
        is_possible
    }

    /// False also if a file that seemed to be interpreted turned out to be a raw one.
    pub(super) const fn is_counting(&self) -> bool {
        self.counts.is_some()
    }

    /// The counts, at the end of the file.
    pub(super) const fn take_counts(&mut self) -> Option<Box<KdeCounts>> {
        self.counts.take()
    }

    /// Counts events up to the first one that must be refused, and returns how many it counted.
    pub(super) fn count(&mut self, events: &[EventWord]) -> usize {
        let counted = self.counts.as_mut().map_or(0, |counts| counts.count(events));
        // The command ends at the first line that is one.
        self.in_command &= counted == 0;
        counted
    }

    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= FULL || self.defined >= FULL_DEFINITIONS || self.samples.len() >= MOST_SAMPLES
    }

    /// Translates plain events at the front of `text`, at most one batch. Returns their length in bytes.
    ///
    /// All lines of the batch are decoded before any is used, so that their cache misses overlap.
    pub(super) fn events(&mut self, text: &[u8]) -> usize {
        let is_near_limit = self.pairs.heap.live_allocations + BATCH as u64 > MOST_LIVE;
        if self.kind != KdeFileKind::Interpreted || is_near_limit {
            return 0;
        }
        let mut alloc_classes = [0u32; BATCH];
        let mut ends = [0u16; BATCH];
        let (mut allocs, mut count, mut at) = (0u32, 0, 0);
        for (alloc_class, end) in alloc_classes.iter_mut().zip(&mut ends) {
            let Some([kind @ (b'+' | b'-'), b' ', number @ ..]) =
                text.get(at..).and_then(|rest| rest.first_chunk::<10>())
            else {
                break;
            };
            let Some((number, length)) = short_number(number) else { break };
            at += length + 3;
            (*alloc_class, *end) = (number, at as u16);
            allocs |= ((*kind == b'+') as u32) << count;
            count += 1;
        }
        let alloc_classes = alloc_classes.get(..count).unwrap_or_default();
        self.pairs.touch(alloc_classes);
        let mut used = 0;
        for (&alloc_class, &end) in alloc_classes.iter().zip(&ends) {
            if !(if allocs & 1 != 0 { self.alloc(alloc_class) } else { self.free(alloc_class) }) {
                break;
            }
            allocs >>= 1;
            used = end as usize;
        }
        // The command ends at the first line that is one.
        self.in_command &= used == 0;
        used
    }

    /// Translates one line, without its line feed.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), Refused> {
        if self.in_command {
            if !is_a_line(line, self.format) {
                return self.more_command(line);
            }
            self.in_command = false;
        }
        let Some((&letter, rest)) = line.split_first() else { return Ok(()) };
        let rest = match rest.split_first() {
            Some((b' ', rest)) => rest,
            None => rest,
            Some(_) if letter == b'#' => rest,
            Some(_) => return Err(Refused::Line),
        };
        let fields = Fields::new(rest);
        match letter {
            b'+' => return self.plus(fields),
            b'-' => return sense(self.minus(fields)),
            b't' => return self.trace(fields),
            b'a' => return self.alloc_class(fields),
            b's' => return self.string(fields),
            b'i' => {
                self.defined += 64;
                return sense(self.names.pointer(fields));
            }
            b'c' => return sense(self.time(fields)),
            b'R' => return sense(self.resident(fields)),
            b'm' => return sense(self.module(fields)),
            b'x' => self.program(fields),
            b'X' => return sense(self.command(rest)),
            b'I' => return sense(self.system(fields)),
            b'S' => self.suppression(fields),
            b'A' => (self.session.attached, self.is_session_new) = (true, true),
            b'#' => self.has_trailer |= rest.starts_with(b"ips: "),
            // Lines of a later recorder.
            b'v' => return Err(Refused::Line),
            _ if letter.is_ascii_alphabetic() => (),
            _ => return Err(Refused::Line),
        }
        Ok(())
    }

    /// Returns the blocks of everything since the last call.
    pub(super) fn take(&mut self, queue: &mut VecDeque<RawBlock>) {
        if self.is_session_new {
            self.is_session_new = false;
            let program =
                if self.kind == KdeFileKind::Raw { Some(&*self.modules.program) } else { self.names.program() };
            self.session.exe = program.unwrap_or_default().to_owned();
            queue.push_back(self.session.to_block());
            if !self.suppressions.is_empty() {
                queue.push_back(Suppressions(self.suppressions.clone()).to_block());
            }
        }
        let mut push = |block| queue.push_back(block);
        self.modules.take(&mut push);
        self.names.take(&mut push);
        if !self.stacks.is_empty() {
            push(self.stacks.take());
        }
        if !self.alloc_classes.is_empty() {
            push(self.alloc_classes.take());
        }
        if !self.events.is_empty() {
            push(self.events.take());
        }
        if !self.samples.is_empty() {
            push(RssSample::to_block(&self.samples));
            self.samples.clear();
        }
        self.defined = 0;
    }

    /// The summary at the end. KDE's readers add one millisecond to the last time in the file.
    pub(super) fn summary(&self, complete: bool) -> Summary {
        let totals = match (&self.counts, self.kind) {
            (Some(counts), _) => counts.totals(),
            (None, KdeFileKind::Interpreted) => self.pairs.heap.fill(self.pairs.totals),
            _ => self.pointers.heap.fill(self.pointers.totals),
        };
        let totals = Totals { runtime_ns: self.now_ns + MS, peak_rss_bytes: self.peak_rss, ..totals };
        Summary { complete, exit: Exit::Unknown, totals }
    }

    #[inline]
    fn alloc(&mut self, alloc_class: u32) -> bool {
        if !self.pairs.alloc(alloc_class, self.events.next_sequence()) {
            return false;
        }
        self.events.alloc(alloc_class);
        true
    }

    #[inline]
    fn free(&mut self, alloc_class: u32) -> bool {
        match self.pairs.free(alloc_class) {
            Freed::Block(sequence) => self.events.free(sequence),
            Freed::Unknown => self.unknown_free(),
            Freed::NoAllocClass => return false,
        }
        true
    }

    #[cold]
    fn unknown_free(&mut self) {
        self.events.unknown_free();
        self.pairs.totals.unknown_frees += 1;
    }

    fn plus(&mut self, mut fields: Fields) -> Result<(), Refused> {
        if let Some(counts) = &mut self.counts {
            if counts.is_full() {
                return Err(Refused::TooMuch);
            }
            return sense(fields.index().is_some_and(|alloc_class| counts.alloc(alloc_class)));
        }
        if self.kind == KdeFileKind::Interpreted {
            if self.pairs.heap.live_allocations >= MOST_LIVE {
                return Err(Refused::TooMuch);
            }
            return sense(fields.index().is_some_and(|alloc_class| self.alloc(alloc_class)));
        }
        let (Some(size), Some(trace), Some(address)) = (fields.number(), fields.index(), fields.number()) else {
            return Err(Refused::Line);
        };
        if size > LARGEST {
            return Err(Refused::Line);
        }
        let stack = self.stack(trace).ok_or(Refused::Line)?;
        if self.pointers.heap.live_allocations >= MOST_LIVE {
            return Err(Refused::TooMuch);
        }
        let (alloc_class, is_new) = self.pointers.alloc_class(size, stack);
        if is_new {
            self.alloc_classes.push(size, stack);
            self.defined += 8;
        }
        if let Some(old) = self.pointers.implied(address) {
            self.events.free_implied(old);
        }
        let sequence = self.events.alloc(alloc_class);
        self.pointers.alloc(address, sequence, alloc_class);
        Ok(())
    }

    fn minus(&mut self, mut fields: Fields) -> bool {
        if let Some(counts) = &mut self.counts {
            return fields.index().is_some_and(|alloc_class| counts.free(alloc_class));
        }
        if self.kind == KdeFileKind::Interpreted {
            return fields.index().is_some_and(|alloc_class| self.free(alloc_class));
        }
        let Some(address) = fields.number() else { return false };
        match self.pointers.free(address) {
            Some(sequence) => self.events.free(sequence),
            None => {
                self.events.unknown_free();
                self.pointers.totals.unknown_frees += 1;
            }
        }
        true
    }

    fn trace(&mut self, mut fields: Fields) -> Result<(), Refused> {
        let (Some(pointer), Some(parent)) = (fields.number(), fields.index()) else {
            return Err(Refused::Line);
        };
        if self.traces.len() >= MOST_NODES {
            return Err(Refused::TooMuch);
        }
        // A refused node would shift the numbers of all later ones.
        let parent = self.stack(parent).unwrap_or(0);
        let (frame, is_allocator) = match self.kind {
            KdeFileKind::Raw => (self.modules.frame(pointer, self.now_ns), false),
            _ => {
                let known = u32::try_from(pointer).ok().and_then(|number| self.names.get(number));
                known.map_or((Frame::LOST, false), |known| (known.frame, known.is_allocator))
            }
        };
        let stack = if is_allocator { parent } else { self.stacks.push(parent, frame) };
        self.traces.push(stack);
        self.defined += 16;
        Ok(())
    }

    /// Returns the stack of KDE's trace number; 0 is no stack.
    fn stack(&self, trace: u32) -> Option<u32> {
        match trace.checked_sub(1) {
            None => Some(0),
            Some(place) => self.traces.get(place as usize).copied(),
        }
    }

    fn alloc_class(&mut self, mut fields: Fields) -> Result<(), Refused> {
        let (Some(size), Some(trace)) = (fields.number(), fields.index()) else { return Err(Refused::Line) };
        // Other files have sizes and stacks in their events, and number allocation classes by their first use.
        if self.kind != KdeFileKind::Interpreted {
            return Err(Refused::Line);
        }
        if self.class_count() >= MOST_ALLOC_CLASSES {
            return Err(Refused::TooMuch);
        }
        // A refused allocation class would shift the numbers of all later ones.
        let size = if size > LARGEST { 0 } else { size };
        self.alloc_classes.push(size, self.stack(trace).unwrap_or(0));
        match &mut self.counts {
            Some(counts) => counts.define(size),
            None => self.pairs.define(size),
        }
        self.defined += 16;
        Ok(())
    }

    fn class_count(&self) -> usize {
        self.counts.as_ref().map_or(self.pairs.alloc_classes(), |counts| counts.classes().len())
    }

    fn string(&mut self, mut fields: Fields) -> Result<(), Refused> {
        let whole = fields.rest();
        let text = if self.format >= 3 { fields.sized().ok_or(Refused::Line)? } else { whole };
        self.defined += text.len();
        // The first string is the program's file, which is a part of the session.
        self.is_session_new |= self.names.is_empty();
        if self.names.string(text) { Ok(()) } else { Err(Refused::TooMuch) }
    }

    fn time(&mut self, mut fields: Fields) -> bool {
        let Some(now) = fields.number().and_then(|ms| ms.checked_mul(MS)) else { return false };
        if now < self.now_ns {
            return false;
        }
        self.now_ns = now;
        match &mut self.counts {
            Some(counts) => counts.set_time(now),
            None => {
                (self.pairs.now_ns, self.pointers.now_ns) = (now, now);
                self.events.time(now);
            }
        }
        true
    }

    fn resident(&mut self, mut fields: Fields) -> bool {
        let Some(pages) = fields.number() else { return false };
        let Some(rss_bytes) = pages.checked_mul(self.session.page_size as u64) else { return false };
        self.peak_rss = self.peak_rss.max(rss_bytes);
        self.samples.push(RssSample { time_ns: self.now_ns, rss_bytes, overhead_bytes: 0 });
        true
    }

    fn module(&mut self, mut fields: Fields) -> bool {
        if !self.become_raw() {
            return false;
        }
        let name = if self.format >= 3 { fields.sized() } else { Some(fields.word()) };
        self.defined += 64;
        match name {
            Some(b"-") => {
                self.modules.begin();
                true
            }
            Some(name) => self.modules.add(name, fields, self.now_ns),
            None => false,
        }
    }

    fn program(&mut self, mut fields: Fields) {
        if !self.become_raw() {
            return;
        }
        let path = if self.format >= 3 { fields.sized() } else { Some(fields.rest()) };
        self.modules.program = String::from_utf8_lossy(path.unwrap_or_default()).into_owned();
    }

    /// Only raw files have modules. Returns false if this file is already known to be another kind.
    fn become_raw(&mut self) -> bool {
        if self.kind != KdeFileKind::Raw {
            if !self.traces.is_empty() || self.class_count() != 0 {
                return false;
            }
            self.leave_counting();
            self.kind = KdeFileKind::Raw;
            self.session.tool = KdeFileKind::Raw.tool(self.version);
            self.session.counting = Counting::of_file(KdeFileKind::Raw);
            self.is_session_new = true;
        }
        true
    }

    /// No event was counted yet, because there is no allocation class.
    fn leave_counting(&mut self) {
        if self.counts.take().is_some() {
            self.pointers.now_ns = self.now_ns;
            self.events.time(self.now_ns);
        }
    }

    fn command(&mut self, text: &[u8]) -> bool {
        let is_first = !std::mem::replace(&mut self.has_command, true);
        if is_first {
            let text = String::from_utf8_lossy(text);
            self.session.command = text.split(' ').map(str::to_owned).collect();
            (self.is_session_new, self.in_command) = (true, true);
        }
        is_first
    }

    /// Adds a line to a word of the command that contains line feeds.
    fn more_command(&mut self, line: &[u8]) -> Result<(), Refused> {
        self.command_bytes += line.len();
        if self.command_bytes > MOST_COMMAND {
            return Err(Refused::Line);
        }
        let text = String::from_utf8_lossy(line);
        let mut words = text.split(' ');
        let first = words.next().unwrap_or_default();
        match self.session.command.last_mut() {
            Some(last) => *last = format!("{last}\n{first}"),
            None => self.session.command.push(first.to_owned()),
        }
        self.session.command.extend(words.map(str::to_owned));
        Ok(())
    }

    fn system(&mut self, mut fields: Fields) -> bool {
        let (Some(page), Some(pages)) = (fields.index(), fields.number()) else { return false };
        self.session.page_size = page;
        self.session.system_memory = pages.saturating_mul(page as u64);
        self.is_session_new = true;
        true
    }

    /// Format 3 writes a length in front, which KDE's own readers do not expect.
    fn suppression(&mut self, fields: Fields) {
        let mut sized = fields;
        let text = sized.sized().filter(|_| sized.rest().is_empty()).unwrap_or(fields.rest());
        if self.suppressions.len() + text.len() < MOST_SUPPRESSIONS {
            self.suppressions.push_str(&String::from_utf8_lossy(text));
            self.suppressions.push('\n');
            self.is_session_new = true;
        }
    }
}

/// True if the whole line is valid as one that a recorder writes after the command.
fn is_a_line(line: &[u8], format: u32) -> bool {
    let Some((&letter, [b' ', rest @ ..])) = line.split_first() else { return line == b"A" };
    let mut fields = Fields::new(rest);
    let is_named = match letter {
        b's' | b'x' if format < 3 => return true,
        b'm' if format < 3 => !fields.word().is_empty(),
        b's' | b'x' | b'm' => fields.sized().is_some(),
        b'S' => return true,
        b'I' | b'i' | b't' | b'a' | b'+' | b'-' | b'c' | b'R' => fields.number().is_some(),
        _ => false,
    };
    while !fields.rest().is_empty() {
        if fields.number().is_none() {
            return false;
        }
    }
    is_named
}

fn sense(makes: bool) -> Result<(), Refused> {
    if makes { Ok(()) } else { Err(Refused::Line) }
}
