//! Reads the events of a block one by one. `walk.rs` visits all events of a block, which is faster.
use super::{
    Event, FOLD_LATEST, Freed, LET_GO_DROPPED, LET_GO_LEAKED, LET_GO_RELEASED, LET_GO_REPLACED, LONG, MARK_IMAGE,
    MARK_THREAD, MARK_TIME, MAX_EVENTS, ODD_IMPLIED, ODD_LET_GO, ODD_REALLOC, ODD_UNKNOWN, State, TICK_NS, WIDE,
};
use crate::Malformed;
use crate::wire::{Cursor, unzigzag};

/// What the next entry of `runs` that is not an allocation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Freed(Freed),
    /// The block stays live: see `Event::Release`.
    Released,
    Unknown,
}

/// The events of one block, decoded one after the other.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    start: State,
    pub(crate) now: State,
    pub(crate) count: u64,
    pub(crate) done: u64,
    pub(crate) turn_allocs: u64,
    pub(crate) turn_frees: u64,
    /// The number of plain frees before the next odd one, or `u64::MAX` if there is none, and (below) how the odd free
    /// was made.
    pub(crate) odd_in: u64,
    odd_how: How,
    /// The number of events of the block before the next mark, or `u64::MAX` if there is none, and (below) what it
    /// marks.
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
        let [sequence, freed, tick] = cursor.numbers()?;
        let start = State { sequence, freed, tick, thread: cursor.u32()?, image: cursor.u32()? };
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
            odd_how: How::Unknown,
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

    /// The next sequence number at the start of the block. The first allocation has it, unless a fold mark comes
    /// before.
    pub const fn first_sequence(&self) -> u64 {
        self.start.sequence
    }

    /// The thread before the first event.
    pub const fn thread(&self) -> u32 {
        self.start.thread
    }
    /// The time before the first event.
    pub const fn time_ns(&self) -> u64 {
        self.start.tick.saturating_mul(TICK_NS)
    }
    /// The image before the first event.
    pub const fn image(&self) -> u32 {
        self.start.image
    }

    /// Returns the next event or mark, or `None` at the end.
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
        let how = self.next_how()?;
        if how == How::Unknown {
            return Ok(Event::UnknownFree);
        }
        let delta = unzigzag(self.frees.u64()?);
        self.now.freed = self.now.freed.wrapping_add(delta as u64);
        let sequence = self.now.freed;
        Ok(match how {
            How::Freed(how) => Event::Free { sequence, how },
            How::Released | How::Unknown => Event::Release { sequence },
        })
    }

    /// Returns how the next free was made.
    #[inline]
    pub(crate) fn next_how(&mut self) -> Result<How, Malformed> {
        if self.odd_in != 0 {
            if self.odd_in != u64::MAX {
                self.odd_in -= 1;
            }
            return Ok(How::Freed(Freed::Call));
        }
        let how = self.odd_how;
        self.load_odd()?;
        Ok(how)
    }

    /// Returns the mark as an event. Returns `None` if it skips sequence numbers, which shows in the next allocation.
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

    /// Returns the next sequence number after `count` numbers are left out. Returns an error if that number plus the
    /// block's number of events overflows.
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
        // Many empty turns would let `read` recurse until the stack overflows.
        if turn == 0 || turn > self.count - self.done {
            return Err(Malformed::Count);
        }
        self.turn_allocs = allocs;
        self.turn_frees = frees;
        Ok(())
    }

    pub(crate) fn load_odd(&mut self) -> Result<(), Malformed> {
        match tagged(&mut self.odd)? {
            Some((left, how)) => (self.odd_in, self.odd_how) = (left, self.odd_how(how)?),
            None => self.odd_in = u64::MAX,
        }
        Ok(())
    }

    fn odd_how(&mut self, how: u64) -> Result<How, Malformed> {
        Ok(match how {
            ODD_REALLOC => How::Freed(Freed::Realloc),
            ODD_IMPLIED => How::Freed(Freed::Implied),
            ODD_UNKNOWN => How::Unknown,
            ODD_LET_GO => match self.odd.u64()? {
                LET_GO_LEAKED => How::Freed(Freed::Leaked),
                LET_GO_REPLACED => How::Freed(Freed::Replaced),
                LET_GO_DROPPED => How::Freed(Freed::Dropped),
                LET_GO_RELEASED => How::Released,
                _ => return Err(Malformed::Tag),
            },
            _ => return Err(Malformed::Tag),
        })
    }

    pub(crate) fn load_mark(&mut self) -> Result<(), Malformed> {
        let Some((left, what)) = tagged(&mut self.marks)? else {
            self.mark_at = u64::MAX;
            return Ok(());
        };
        self.mark_at = self.done.checked_add(left).filter(|at| *at <= self.count).ok_or(Malformed::Count)?;
        self.mark_what = what;
        Ok(())
    }

    pub(crate) fn check_end(&self) -> Result<Option<Event>, Malformed> {
        for column in [self.runs, self.low, self.high, self.wide, self.frees, self.odd, self.marks] {
            column.end()?;
        }
        Ok(None)
    }
}

/// Returns the next number of a column and its two-bit tag, or `None` at the end of the column.
#[inline]
fn tagged(column: &mut Cursor) -> Result<Option<(u64, u64)>, Malformed> {
    if column.is_empty() {
        return Ok(None);
    }
    let word = column.u64()?;
    Ok(Some((word >> 2, word & 3)))
}
