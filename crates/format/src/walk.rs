//! A fast walk over the events of a block.
//!
//! Receives: a block's events and a visitor. Must hold: the visitor sees what `Events::read` would return, in the same
//! order; a walk that was stopped continues at the same place. Runs of allocations and of frees are separate loops, so
//! an event costs a few instructions and no branch on its kind.
use crate::event::{Events, FOLD_LATEST, Freed, How, MARK_IMAGE, MARK_THREAD, MARK_TIME, TICK_NS, WIDE};
use crate::wire::unzigzag;
use crate::{BlockKind, Event, Malformed, RawBlock};

/// Receives the events of a walk.
pub trait Visitor {
    fn alloc(&mut self, sequence: u64, alloc_class: u32);
    fn free(&mut self, sequence: u64, how: Freed);
    fn unknown_free(&mut self) {}
    /// A process freed a block that another process still holds. The block stays live.
    fn release(&mut self, _sequence: u64) {}
    /// The events that follow belong to this thread.
    fn thread(&mut self, _index: u32) {}
    /// The events that follow are not older than this. Returns false to stop before them.
    fn time(&mut self, _ns: u64) -> bool {
        true
    }
    fn image(&mut self, _image: u32) {}
    /// The thread's latest allocation was folded away.
    fn latest_gone(&mut self) {}
    /// The next allocation has this sequence number, because those before it were folded away.
    fn skip_to(&mut self, _sequence: u64) {}
}

/// Keeps all events. It stops the walk before the first time mark after `until_ns`.
pub(crate) struct EventList {
    pub(crate) events: Vec<Event>,
    until_ns: u64,
}

impl Default for EventList {
    fn default() -> Self {
        EventList { events: Vec::new(), until_ns: u64::MAX }
    }
}

impl Visitor for EventList {
    fn alloc(&mut self, sequence: u64, alloc_class: u32) {
        self.events.push(Event::Alloc { sequence, alloc_class });
    }
    fn free(&mut self, sequence: u64, how: Freed) {
        self.events.push(Event::Free { sequence, how });
    }
    fn unknown_free(&mut self) {
        self.events.push(Event::UnknownFree);
    }
    fn release(&mut self, sequence: u64) {
        self.events.push(Event::Release { sequence });
    }
    fn thread(&mut self, index: u32) {
        self.events.push(Event::Thread(index));
    }
    fn time(&mut self, ns: u64) -> bool {
        if ns > self.until_ns {
            return false;
        }
        self.events.push(Event::Time(ns));
        true
    }
    fn image(&mut self, image: u32) {
        self.events.push(Event::Image(image));
    }
    fn latest_gone(&mut self) {
        self.events.push(Event::LatestGone);
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The block has no more events.
    End,
    /// The requested number of events was reached.
    Limit,
    /// The visitor stopped the walk before a time mark.
    Stopped,
}

impl Events<'_> {
    /// The number of allocations and frees of the block that were visited so far.
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// Continues until `limit` events of this block are done. Marks after the last of them are not visited yet.
    pub fn walk<V: Visitor>(&mut self, visitor: &mut V, limit: u64) -> Result<Walked, Malformed> {
        loop {
            if self.done >= limit {
                return Ok(Walked::Limit);
            }
            if self.done == self.mark_at {
                if !self.walk_mark(visitor)? {
                    return Ok(Walked::Stopped);
                }
                continue;
            }
            if self.done == self.count {
                return self.check_end().map(|_| Walked::End);
            }
            let left = self.mark_at.min(limit).min(self.count) - self.done;
            self.walk_run(visitor, left)?;
        }
    }

    /// Visits `left` events that no mark interrupts.
    #[inline]
    fn walk_run<V: Visitor>(&mut self, visitor: &mut V, left: u64) -> Result<(), Malformed> {
        let mut left = left;
        while left > 0 {
            if self.turn_allocs == 0 && self.turn_frees == 0 {
                self.begin_turn()?;
            }
            let allocs = self.turn_allocs.min(left);
            if allocs > 0 {
                self.walk_allocs(visitor, allocs)?;
                left -= allocs;
            }
            let frees = self.turn_frees.min(left);
            if frees > 0 {
                self.walk_frees(visitor, frees)?;
                left -= frees;
            }
        }
        Ok(())
    }

    #[inline]
    fn walk_allocs<V: Visitor>(&mut self, visitor: &mut V, count: u64) -> Result<(), Malformed> {
        let count_here = usize::try_from(count).map_err(|_| Malformed::Count)?;
        let (low, high) = (self.low.take(count_here)?, self.high.take(count_here)?);
        let mut sequence = self.now.sequence;
        for (&low, &high) in low.iter().zip(high) {
            let rest = if high as u32 == WIDE { self.wide.u32()? } else { high as u32 };
            if rest > u32::MAX >> 8 {
                return Err(Malformed::Overflow);
            }
            visitor.alloc(sequence, rest << 8 | low as u32);
            sequence += 1;
        }
        self.now.sequence = sequence;
        self.turn_allocs -= count;
        self.done += count;
        Ok(())
    }

    #[inline]
    fn walk_frees<V: Visitor>(&mut self, visitor: &mut V, count: u64) -> Result<(), Malformed> {
        let plain = self.odd_in.min(count);
        let mut frees = self.frees;
        let mut freed = self.now.freed;
        for _ in 0..plain {
            freed = freed.wrapping_add(unzigzag(frees.u64()?) as u64);
            visitor.free(freed, Freed::Call);
        }
        self.frees = frees;
        self.now.freed = freed;
        self.turn_frees -= plain;
        self.done += plain;
        if self.odd_in != u64::MAX {
            self.odd_in -= plain;
        }
        if plain == count { Ok(()) } else { self.walk_odd(visitor, count - plain) }
    }

    /// Visits frees, of which the first is not a plain call of free.
    fn walk_odd<V: Visitor>(&mut self, visitor: &mut V, count: u64) -> Result<(), Malformed> {
        for _ in 0..count {
            self.turn_frees -= 1;
            self.done += 1;
            let how = self.next_how()?;
            if how == How::Unknown {
                visitor.unknown_free();
                continue;
            }
            self.now.freed = self.now.freed.wrapping_add(unzigzag(self.frees.u64()?) as u64);
            match how {
                How::Freed(how) => visitor.free(self.now.freed, how),
                How::Released | How::Unknown => visitor.release(self.now.freed),
            }
        }
        Ok(())
    }

    /// Visits the next mark. Returns false if the visitor wants to stop before it.
    fn walk_mark<V: Visitor>(&mut self, visitor: &mut V) -> Result<bool, Malformed> {
        let mut marks = self.marks;
        let value = marks.u64()?;
        let narrow = u32::try_from(value).map_err(|_| Malformed::Overflow);
        match self.mark_what {
            MARK_THREAD => visitor.thread(narrow?),
            MARK_TIME => {
                let tick = self.now.tick.checked_add(value).ok_or(Malformed::Overflow)?;
                if !visitor.time(tick.saturating_mul(TICK_NS)) {
                    return Ok(false);
                }
                self.now.tick = tick;
            }
            MARK_IMAGE => visitor.image(narrow?),
            _ if value == FOLD_LATEST => visitor.latest_gone(),
            _ => {
                self.now.sequence = self.skipped(value)?;
                visitor.skip_to(self.now.sequence);
            }
        }
        self.marks = marks;
        self.load_mark()?;
        Ok(true)
    }
}

impl RawBlock {
    /// The events of an Events block, to be walked.
    pub fn events(&self) -> Result<Events<'_>, Malformed> {
        if self.kind == BlockKind::Events { Events::decode(&self.payload) } else { Err(Malformed::Kind) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::EventEncoder;

    pub(crate) fn random_block(seed: u64) -> RawBlock {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut random = |limit: u64| rng.u64(..limit);
        let mut encoder = EventEncoder::new();
        let mut next = 0;
        for step in 0..400u64 {
            match random(13) {
                0 => encoder.thread(random(3) as u32),
                1 => encoder.time(step * 90_000),
                2 => encoder.unknown_free(),
                3 if next > 0 => encoder.free_by_realloc(random(next)),
                4 if next > 0 => encoder.free_implied(random(next)),
                12 if next > 0 => match random(4) {
                    0 => encoder.freed_by(random(next), Freed::Leaked),
                    1 => encoder.freed_by(random(next), Freed::Replaced),
                    2 => encoder.freed_by(random(next), Freed::Dropped),
                    _ => encoder.release(random(next)),
                },
                5..=7 if next > 0 => (0..random(40)).for_each(|_| encoder.free(random(next))),
                8 => encoder.image(random(3) as u32),
                9 if step % 3 == 0 => encoder.latest_gone(),
                9 if step % 3 == 1 => encoder.skip_to(encoder.next_sequence() + random(300)),
                _ => (0..=random(40)).for_each(|_| next = encoder.alloc(random(1 << 20) as u32) + 1),
            }
        }
        encoder.take()
    }

    fn read_all(block: &RawBlock) -> Vec<Event> {
        let mut events = block.events().unwrap();
        std::iter::from_fn(|| events.read().unwrap()).collect()
    }

    /// Checks for random blocks that a walk sees the events that `read` returns. `walk` gets the seed of a block and
    /// its events.
    fn check(walk: impl Fn(u64, &mut Events<'_>) -> EventList) {
        for seed in 0..50 {
            let block = random_block(seed);
            let list = walk(seed, &mut block.events().unwrap());
            assert_eq!(list.events, read_all(&block), "seed {seed}");
        }
    }

    #[test]
    fn a_walk_sees_what_read_gives() {
        check(|_, events| {
            let mut list = EventList::default();
            assert_eq!(events.walk(&mut list, u64::MAX), Ok(Walked::End));
            list
        });
    }

    #[test]
    fn a_walk_in_steps_is_the_same_walk() {
        check(|seed, events| {
            let (mut list, mut limit) = (EventList::default(), 0);
            while events.walk(&mut list, limit).unwrap() == Walked::Limit {
                assert_eq!(events.done(), limit);
                limit += 1 + seed % 7;
            }
            list
        });
    }

    #[test]
    fn a_walk_stops_before_its_time_and_goes_on() {
        check(|_, events| {
            let mut list = EventList { until_ns: 0, ..EventList::default() };
            loop {
                match events.walk(&mut list, u64::MAX).unwrap() {
                    Walked::End => break,
                    walked => assert_eq!(walked, Walked::Stopped),
                }
                list.until_ns += 100_000;
            }
            list
        });
    }
}
