//! Writes events into the columns of a block.
use super::{
    FOLD_LATEST, Freed, LET_GO_DROPPED, LET_GO_LEAKED, LET_GO_RELEASED, LET_GO_REPLACED, LONG, MARK_FOLD, MARK_IMAGE,
    MARK_THREAD, MARK_TIME, ODD_IMPLIED, ODD_LET_GO, ODD_REALLOC, ODD_UNKNOWN, State, TICK_NS, WIDE,
};
use crate::wire::{put, zigzag};
use crate::{BlockKind, RawBlock};

/// Gathers events into blocks. This is on the recorder's hot path: adding an event takes a few nanoseconds, and
/// allocates nothing once the columns have grown.
#[derive(Debug, Default)]
pub struct EventEncoder {
    start: State,
    now: State,
    events: u64,
    /// The current turn, which is not in `runs` yet.
    turn_allocs: u32,
    turn_frees: u32,
    /// The number of events of the block before the last mark.
    marked: u64,
    /// The number of plain frees since the last odd one.
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

    /// Returns the allocation's sequence number, counted from 0 through the whole file.
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

    /// A free that is the first half of a realloc. It never makes a block temporary.
    #[inline]
    pub fn free_by_realloc(&mut self, sequence: u64) {
        self.freed(sequence);
        self.odd(ODD_REALLOC);
    }

    /// A free that was not seen but must have happened.
    pub fn free_implied(&mut self, sequence: u64) {
        self.freed(sequence);
        self.odd(ODD_IMPLIED);
    }

    /// A free of any kind.
    pub fn freed_by(&mut self, sequence: u64, how: Freed) {
        match how {
            Freed::Call => self.free(sequence),
            Freed::Realloc => self.free_by_realloc(sequence),
            Freed::Implied => self.free_implied(sequence),
            Freed::Leaked => self.let_go(sequence, LET_GO_LEAKED),
            Freed::Replaced => self.let_go(sequence, LET_GO_REPLACED),
            Freed::Dropped => self.let_go(sequence, LET_GO_DROPPED),
        }
    }

    /// A process freed a block that another process still holds.
    pub fn release(&mut self, sequence: u64) {
        self.let_go(sequence, LET_GO_RELEASED);
    }

    fn let_go(&mut self, sequence: u64, how: u64) {
        self.freed(sequence);
        self.odd(ODD_LET_GO);
        put(&mut self.odd, how);
    }

    pub fn unknown_free(&mut self) {
        self.turn_frees += 1;
        self.events += 1;
        self.odd(ODD_UNKNOWN);
    }

    /// Sets the thread of the events that follow. Cheap if it does not change.
    #[inline]
    pub fn thread(&mut self, index: u32) {
        if index != self.now.thread {
            self.now.thread = index;
            self.mark(MARK_THREAD, index as u64);
        }
    }

    /// Sets the time of the events that follow, since the session's start. It is rounded down to a tick. An earlier
    /// time than the last one is ignored. Cheap if the tick does not change.
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

    /// Gives the next allocation this sequence number, because the allocations before it are not written. A number that
    /// is not larger than the next one is ignored.
    pub fn skip_to(&mut self, sequence: u64) {
        if sequence > self.now.sequence {
            self.mark(MARK_FOLD, sequence - self.now.sequence);
            self.now.sequence = sequence;
        }
    }

    /// Notes that the thread's latest allocation is not written and was freed.
    pub fn latest_gone(&mut self) {
        self.mark(MARK_FOLD, FOLD_LATEST);
    }

    /// Raw bytes of the columns so far. The caller must call `take` while they are far below `MAX_RAW`.
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

    /// Returns the block of all events since the last call and starts a new one.
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
        let place = (self.events - self.marked) << 2 | what;
        self.marked = self.events;
        // Threads that take turns at every few events write many marks, of a byte each.
        if (place | value) < 0x80 {
            self.marks.extend_from_slice(&[place as u8, value as u8]);
        } else {
            put(&mut self.marks, place);
            put(&mut self.marks, value);
        }
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
