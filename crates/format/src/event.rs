//! The events of a block: allocations and frees in order, with the thread, the time and the image they belong to.
//!
//! Columns, because each then repeats itself in its own way and compresses on its own:
//!
//! ```text
//! head    first sequence number, sequence freed last, tick, thread, image: the state before the first event
//!         number of events, byte lengths of the seven columns (all varints), then the columns:
//! runs    a byte per turn: | frees 7..4 | allocations 3..0 |, first the allocations, then the frees;
//!         15 = 15 and more: a varint of what is beyond 15 follows, the allocations' first
//! low     per allocation: the low byte of its allocation class's index; its sequence number is one more than that of the
//!         allocation before
//! high    per allocation: the rest of that index (index >> 8), or 255: the rest stands in `wide`
//! wide    per 255 in `high`: index >> 8, varint
//! frees   per free of a known block: zigzag(its sequence number - that of the block freed before), varint
//! odd     per free that is not a plain call of free: frees since the last such << 2 | how, varint
//! marks   events since the last mark << 2 | what, varint, then its value:
//!         0 thread index · 1 ticks since the last time mark · 2 image · 3 what became of events that are not here any more:
//!         0 the thread's latest allocation is gone, n the next allocation's sequence number is larger by n
//! ```
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

/// The most events a block may claim: what a hostile one can make a reader do.
pub const MAX_EVENTS: u64 = 1 << 26;
/// Time marks stand on a grid, so that one differs from the next by 1 nearly always, which costs nothing.
pub(crate) const TICK_NS: u64 = 100_000;
const LONG: u32 = 15;
pub(crate) const WIDE: u32 = 255;

/// How a block was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freed {
    Call,
    /// The first half of a realloc; its allocation follows, perhaps after other threads' events.
    Realloc,
    /// Nobody saw it: the address was given out again.
    Implied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Alloc {
        sequence: u64,
        alloc_class: u32,
    },
    Free {
        sequence: u64,
        how: Freed,
    },
    /// Of a block that was there before us, or was lost.
    UnknownFree,
    /// The events that follow are this thread's.
    Thread(u32),
    /// The events that follow are not older than this, in nanoseconds since the session's start.
    Time(u64),
    /// `exec`: a new image starts, all blocks are gone.
    Image(u32),
    /// The thread's latest allocation was folded away, so none of its blocks is that.
    LatestGone,
}

pub(crate) const ODD_REALLOC: u64 = 0;
pub(crate) const ODD_IMPLIED: u64 = 1;
pub(crate) const ODD_UNKNOWN: u64 = 2;
pub(crate) const MARK_THREAD: u64 = 0;
pub(crate) const MARK_TIME: u64 = 1;
pub(crate) const MARK_IMAGE: u64 = 2;
pub(crate) const MARK_FOLD: u64 = 3;
/// The value of a fold mark that skips no numbers.
pub(crate) const FOLD_LATEST: u64 = 0;

/// What an event does not say because it is mostly as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) sequence: u64,
    pub(crate) freed: u64,
    pub(crate) tick: u64,
    thread: u32,
    image: u32,
}

/// Gathers events into blocks. Hot: a few nanoseconds per event, no allocation once its buffers have grown.
#[derive(Debug, Default)]
pub struct EventEncoder {
    start: State,
    now: State,
    events: u64,
    /// The turn that is not in `runs` yet.
    turn_allocs: u32,
    turn_frees: u32,
    /// Events up to the last mark; frees since the last odd one.
    marked: u64,
    plain_frees: u64,
    runs: Vec<u8>,
    low: Vec<u8>,
    high: Vec<u8>,
    wide: Vec<u8>,
    frees: Vec<u8>,
    odd: Vec<u8>,
    marks: Vec<u8>,
}

impl EventEncoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// The allocation's sequence number, counted from 0 through the whole file.
    #[inline]
    pub fn alloc(&mut self, alloc_class: u32) -> u64 {
        if self.turn_frees != 0 {
            self.end_turn();
        }
        self.turn_allocs += 1;
        self.events += 1;
        self.low.push(alloc_class as u8);
        let rest = alloc_class >> 8;
        self.high.push(rest.min(WIDE) as u8);
        if rest >= WIDE {
            put(&mut self.wide, rest as u64);
        }
        let sequence = self.now.sequence;
        self.now.sequence += 1;
        sequence
    }

    #[inline]
    pub fn free(&mut self, sequence: u64) {
        self.freed(sequence);
        self.plain_frees += 1;
    }

    /// A free that is the first half of a realloc: it never makes a block temporary.
    #[inline]
    pub fn free_by_realloc(&mut self, sequence: u64) {
        self.freed(sequence);
        self.odd(ODD_REALLOC);
    }

    /// A free that nobody saw but that must have happened.
    pub fn free_implied(&mut self, sequence: u64) {
        self.freed(sequence);
        self.odd(ODD_IMPLIED);
    }

    pub fn unknown_free(&mut self) {
        self.turn_frees += 1;
        self.events += 1;
        self.odd(ODD_UNKNOWN);
    }

    /// Whose events follow. Cheap if nothing changes.
    #[inline]
    pub fn thread(&mut self, index: u32) {
        if index != self.now.thread {
            self.now.thread = index;
            self.mark(MARK_THREAD, index as u64);
        }
    }

    /// Time since the session's start. Cheap if nothing changes: kept to a tenth of a millisecond; never goes back.
    #[inline]
    pub fn time(&mut self, ns: u64) {
        let tick = ns / TICK_NS;
        if tick > self.now.tick {
            self.mark(MARK_TIME, tick - self.now.tick);
            self.now.tick = tick;
        }
    }

    pub fn image(&mut self, image: u32) {
        if image != self.now.image {
            self.now.image = image;
            self.mark(MARK_IMAGE, image as u64);
        }
    }

    /// The next allocation has this number, because those before are not written.
    pub fn skip_to(&mut self, sequence: u64) {
        if sequence > self.now.sequence {
            self.mark(MARK_FOLD, sequence - self.now.sequence);
            self.now.sequence = sequence;
        }
    }

    /// What the thread allocated last is not written, and was freed.
    pub fn latest_gone(&mut self) {
        self.mark(MARK_FOLD, FOLD_LATEST);
    }

    /// Raw bytes so far: when to `take` is the caller's to decide, but before 16 MiB.
    #[inline]
    pub const fn len(&self) -> usize {
        self.runs.len() + 2 * self.low.len() + self.wide.len() + self.frees.len() + self.odd.len() + self.marks.len()
    }

    /// Events in the block so far.
    pub const fn events(&self) -> u64 {
        self.events
    }

    pub const fn is_empty(&self) -> bool {
        self.events == 0 && self.marks.is_empty()
    }

    /// The sequence number that the next allocation gets.
    pub const fn next_sequence(&self) -> u64 {
        self.now.sequence
    }

    /// The block of all since the last call; the encoder goes on in a new one.
    pub fn take(&mut self) -> RawBlock {
        if self.turn_allocs != 0 || self.turn_frees != 0 {
            self.end_turn();
        }
        let mut payload = Vec::with_capacity(self.len() + 64);
        for value in [
            self.start.sequence,
            self.start.freed,
            self.start.tick,
            self.start.thread as u64,
            self.start.image as u64,
            self.events,
        ] {
            put(&mut payload, value);
        }
        let columns = [
            &mut self.runs,
            &mut self.low,
            &mut self.high,
            &mut self.wide,
            &mut self.frees,
            &mut self.odd,
            &mut self.marks,
        ];
        for column in &columns {
            put(&mut payload, column.len() as u64);
        }
        for column in columns {
            payload.append(column);
        }
        self.start = self.now;
        self.events = 0;
        self.marked = 0;
        self.plain_frees = 0;
        RawBlock { kind: BlockKind::Events, payload }
    }

    #[inline]
    fn freed(&mut self, sequence: u64) {
        self.turn_frees += 1;
        self.events += 1;
        put(&mut self.frees, zigzag(sequence.wrapping_sub(self.now.freed) as i64));
        self.now.freed = sequence;
    }

    fn odd(&mut self, how: u64) {
        put(&mut self.odd, self.plain_frees << 2 | how);
        self.plain_frees = 0;
    }

    fn mark(&mut self, what: u64, value: u64) {
        put(&mut self.marks, (self.events - self.marked) << 2 | what);
        put(&mut self.marks, value);
        self.marked = self.events;
    }

    #[inline]
    fn end_turn(&mut self) {
        let (allocs, frees) = (self.turn_allocs, self.turn_frees);
        self.runs.push((allocs.min(LONG) | frees.min(LONG) << 4) as u8);
        if allocs >= LONG {
            put(&mut self.runs, (allocs - LONG) as u64);
        }
        if frees >= LONG {
            put(&mut self.runs, (frees - LONG) as u64);
        }
        self.turn_allocs = 0;
        self.turn_frees = 0;
    }
}

/// The events of one block: a walk over its bytes.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    start: State,
    pub(crate) now: State,
    pub(crate) count: u64,
    pub(crate) done: u64,
    pub(crate) turn_allocs: u64,
    pub(crate) turn_frees: u64,
    /// Plain frees before the next odd one, and how that one is; `u64::MAX`: no odd one comes.
    pub(crate) odd_in: u64,
    pub(crate) odd_how: u64,
    /// Events before the next mark, and what it marks.
    pub(crate) mark_at: u64,
    pub(crate) mark_what: u64,
    runs: Cursor<'a>,
    pub(crate) low: Cursor<'a>,
    pub(crate) high: Cursor<'a>,
    pub(crate) wide: Cursor<'a>,
    pub(crate) frees: Cursor<'a>,
    odd: Cursor<'a>,
    pub(crate) marks: Cursor<'a>,
}

impl<'a> Events<'a> {
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let start = State {
            sequence: cursor.u64()?,
            freed: cursor.u64()?,
            tick: cursor.u64()?,
            thread: cursor.u32()?,
            image: cursor.u32()?,
        };
        let count = cursor.u64()?;
        if count > MAX_EVENTS {
            return Err(Malformed::Count);
        }
        start.sequence.checked_add(count).ok_or(Malformed::Overflow)?;
        let mut lengths = [0usize; 7];
        for length in &mut lengths {
            *length = usize::try_from(cursor.u64()?).map_err(|_| Malformed::Cut)?;
        }
        let mut columns = [Cursor::new(&[]); 7];
        for (column, length) in columns.iter_mut().zip(lengths) {
            *column = Cursor::new(cursor.take(length)?);
        }
        cursor.end()?;
        let [runs, low, high, wide, frees, odd, marks] = columns;
        let mut events = Events {
            start,
            now: start,
            count,
            done: 0,
            turn_allocs: 0,
            turn_frees: 0,
            odd_in: u64::MAX,
            odd_how: 0,
            mark_at: u64::MAX,
            mark_what: 0,
            runs,
            low,
            high,
            wide,
            frees,
            odd,
            marks,
        };
        events.load_odd()?;
        events.load_mark()?;
        Ok(events)
    }

    /// Allocations and frees in the block.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Sequence number of the block's first allocation.
    pub const fn first_sequence(&self) -> u64 {
        self.start.sequence
    }

    /// Thread, time and image before the first event.
    pub const fn thread(&self) -> u32 {
        self.start.thread
    }
    pub const fn time_ns(&self) -> u64 {
        self.start.tick.saturating_mul(TICK_NS)
    }
    pub const fn image(&self) -> u32 {
        self.start.image
    }

    /// The next event, `None` at the end.
    #[inline]
    pub fn read(&mut self) -> Result<Option<Event>, Malformed> {
        while self.done == self.mark_at {
            if let Some(event) = self.read_mark()? {
                return Ok(Some(event));
            }
        }
        if self.turn_allocs != 0 {
            self.turn_allocs -= 1;
            self.done += 1;
            let sequence = self.now.sequence;
            self.now.sequence += 1;
            return Ok(Some(Event::Alloc { sequence, alloc_class: self.read_alloc_class()? }));
        }
        if self.turn_frees != 0 {
            self.turn_frees -= 1;
            self.done += 1;
            return self.read_free().map(Some);
        }
        if self.done == self.count {
            return self.check_end();
        }
        self.begin_turn()?;
        self.read()
    }

    #[inline]
    fn read_alloc_class(&mut self) -> Result<u32, Malformed> {
        let low = self.low.byte()? as u32;
        let mut rest = self.high.byte()? as u32;
        if rest == WIDE {
            rest = self.wide.u32()?;
        }
        if rest > u32::MAX >> 8 { Err(Malformed::Overflow) } else { Ok(rest << 8 | low) }
    }

    #[inline]
    fn read_free(&mut self) -> Result<Event, Malformed> {
        let mut how = Freed::Call;
        if self.odd_in == 0 {
            let odd = self.odd_how;
            self.load_odd()?;
            match odd {
                ODD_REALLOC => how = Freed::Realloc,
                ODD_IMPLIED => how = Freed::Implied,
                ODD_UNKNOWN => return Ok(Event::UnknownFree),
                _ => return Err(Malformed::Tag),
            }
        } else {
            self.odd_in -= 1;
        }
        let delta = unzigzag(self.frees.u64()?);
        self.now.freed = self.now.freed.wrapping_add(delta as u64);
        Ok(Event::Free { sequence: self.now.freed, how })
    }

    /// `None`: numbers were skipped, which the next allocation tells by itself.
    fn read_mark(&mut self) -> Result<Option<Event>, Malformed> {
        let what = self.mark_what;
        let value = self.marks.u64()?;
        let narrow = u32::try_from(value).map_err(|_| Malformed::Overflow);
        self.load_mark()?;
        Ok(Some(match what {
            MARK_THREAD => Event::Thread(narrow?),
            MARK_TIME => {
                self.now.tick = self.now.tick.checked_add(value).ok_or(Malformed::Overflow)?;
                Event::Time(self.now.tick.saturating_mul(TICK_NS))
            }
            MARK_IMAGE => Event::Image(narrow?),
            _ if value == FOLD_LATEST => Event::LatestGone,
            _ => {
                self.now.sequence = self.skipped(value)?;
                return Ok(None);
            }
        }))
    }

    /// The sequence number behind so many that are left out; those of the whole block still fit behind it.
    pub(crate) fn skipped(&self, count: u64) -> Result<u64, Malformed> {
        let next = self.now.sequence.checked_add(count).ok_or(Malformed::Overflow)?;
        next.checked_add(self.count).ok_or(Malformed::Overflow)?;
        Ok(next)
    }

    #[inline]
    pub(crate) fn begin_turn(&mut self) -> Result<(), Malformed> {
        let byte = self.runs.byte()? as u64;
        let mut length = |nibble: u64| {
            if nibble < LONG as u64 {
                return Ok(nibble);
            }
            self.runs.u64()?.checked_add(nibble).ok_or(Malformed::Overflow)
        };
        let allocs = length(byte & 15)?;
        let frees = length(byte >> 4)?;
        let turn = allocs.checked_add(frees).ok_or(Malformed::Overflow)?;
        // An empty turn would let `read` recurse without end.
        if turn == 0 || turn > self.count - self.done {
            return Err(Malformed::Count);
        }
        self.turn_allocs = allocs;
        self.turn_frees = frees;
        Ok(())
    }

    pub(crate) fn load_odd(&mut self) -> Result<(), Malformed> {
        if self.odd.is_empty() {
            self.odd_in = u64::MAX;
            return Ok(());
        }
        let word = self.odd.u64()?;
        self.odd_in = word >> 2;
        self.odd_how = word & 3;
        Ok(())
    }

    pub(crate) fn load_mark(&mut self) -> Result<(), Malformed> {
        if self.marks.is_empty() {
            self.mark_at = u64::MAX;
            return Ok(());
        }
        let word = self.marks.u64()?;
        self.mark_at = self.done.checked_add(word >> 2).filter(|at| *at <= self.count).ok_or(Malformed::Count)?;
        self.mark_what = word & 3;
        Ok(())
    }

    pub(crate) fn check_end(&self) -> Result<Option<Event>, Malformed> {
        for column in [self.runs, self.low, self.high, self.wide, self.frees, self.odd, self.marks] {
            column.end()?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    fn read_all(block: &RawBlock) -> Result<Vec<Event>, Malformed> {
        let Block::Events(mut events) = block.decode()? else { return Err(Malformed::Kind) };
        let mut list = Vec::new();
        while let Some(event) = events.read()? {
            list.push(event);
        }
        Ok(list)
    }

    #[test]
    fn every_sort_of_event_comes_back_in_its_place() {
        let mut encoder = EventEncoder::new();
        encoder.image(1);
        encoder.thread(3);
        assert_eq!(encoder.alloc(7), 0);
        assert_eq!(encoder.alloc(0x1234_5678), 1);
        encoder.time(250_000);
        encoder.time(299_999);
        encoder.free(0);
        encoder.unknown_free();
        encoder.thread(3);
        encoder.thread(4);
        encoder.free_by_realloc(1);
        assert_eq!(encoder.alloc(0xfeff), 2);
        encoder.free_implied(2);
        encoder.image(2);
        assert_eq!(
            read_all(&encoder.take()),
            Ok(vec![
                Event::Image(1),
                Event::Thread(3),
                Event::Alloc { sequence: 0, alloc_class: 7 },
                Event::Alloc { sequence: 1, alloc_class: 0x1234_5678 },
                Event::Time(200_000),
                Event::Free { sequence: 0, how: Freed::Call },
                Event::UnknownFree,
                Event::Thread(4),
                Event::Free { sequence: 1, how: Freed::Realloc },
                Event::Alloc { sequence: 2, alloc_class: 0xfeff },
                Event::Free { sequence: 2, how: Freed::Implied },
                Event::Image(2),
            ])
        );
        assert!(encoder.is_empty());
    }

    #[test]
    fn a_block_knows_the_state_it_starts_in() -> Result<(), Malformed> {
        let mut encoder = EventEncoder::new();
        encoder.thread(9);
        encoder.image(2);
        encoder.time(1_000_000);
        encoder.alloc(1);
        encoder.alloc(2);
        encoder.free(1);
        encoder.take();
        encoder.free(0);
        encoder.alloc(3);
        let block = encoder.take();
        let Block::Events(events) = block.decode()? else { return Err(Malformed::Kind) };
        assert_eq!(
            (events.first_sequence(), events.thread(), events.image(), events.time_ns(), events.count()),
            (2, 9, 2, 1_000_000, 2)
        );
        assert_eq!(
            read_all(&block)?,
            [Event::Free { sequence: 0, how: Freed::Call }, Event::Alloc { sequence: 2, alloc_class: 3 }]
        );
        Ok(())
    }

    #[test]
    fn runs_of_every_length_around_the_escape_come_back() {
        for length in [1, 14, 15, 16, 142, 143, 144, 1000] {
            let mut encoder = EventEncoder::new();
            let mut expected = Vec::new();
            for sequence in 0..length {
                encoder.alloc(5);
                expected.push(Event::Alloc { sequence, alloc_class: 5 });
            }
            for sequence in (0..length).rev() {
                encoder.free(sequence);
                expected.push(Event::Free { sequence, how: Freed::Call });
            }
            assert_eq!(read_all(&encoder.take()), Ok(expected));
        }
    }

    #[test]
    fn a_block_without_events_is_no_problem() {
        let mut encoder = EventEncoder::new();
        assert!(encoder.is_empty());
        assert_eq!(read_all(&encoder.take()), Ok(vec![]));
    }

    #[test]
    fn a_turn_beyond_the_count_is_refused() {
        // head, count 1, columns of 1 1 1 0 0 0 0 bytes; the turn claims two allocations
        let payload = vec![0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0x02, 0, 0];
        assert_eq!(read_all(&RawBlock { kind: BlockKind::Events, payload }), Err(Malformed::Count));
    }
}
