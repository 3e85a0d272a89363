//! Puts the events of all rings into one order, slice by slice.
//!
//! Receives: the queues of all rings. Returns: for a slice of time, all its events by key. Must hold: events of one ring keep
//! their order; rings without events cost nothing.
//!
//! ```text
//! ring 0  |--e---e-e|--e---         A slice is as long as is needed for some thousand events. Each ring's part is decoded
//! ring 2  |-e------e|e----e         in one go, which is what processors are good at. Then the slice is sorted by a radix
//! ring 4  |---e-e---|-----          sort of a few passes.
//!          slice n   slice n+1
//! ```
use super::consumer::{Consumer, NumberSource};
use super::item::{Item, Origin};
use super::slice::Slice;
use super::source::Source;
use crate::queue::Store;
use channel::{Decoder, Ring, RingError};

/// Events in a slice, approximately: their items stay in the second level cache.
const WANTED: usize = 2048;
/// For so few rings, to compare their next keys is cheaper than to sort.
const FEW: usize = 4;
/// A ring whose next events come before those of all others for this part of a slice is alone.
const ALONE: u64 = 16;
/// The length of the first slice, in keys.
const FIRST_WIDTH: u64 = 1 << 16;
/// Longer slices would leave no room for the index beside the key.
const MOST_WIDTH: u64 = 1 << 40;

/// A ring that has events, and the key of its next one.
#[derive(Clone, Copy, Debug)]
struct Ready {
    next: u64,
    source: u32,
}

#[derive(Debug)]
pub struct Ordering {
    store: Store,
    sources: Vec<Source>,
    ready: Vec<Ready>,
    /// Numbers of slots that can be given again.
    unused: Vec<u32>,
    width: u64,
    broken: u64,
}

impl Ordering {
    pub const fn new(store: Store) -> Self {
        Ordering { store, sources: Vec::new(), ready: Vec::new(), unused: Vec::new(), width: FIRST_WIDTH, broken: 0 }
    }

    /// Gives a slot a number among those of all processes. Its rings are the sources `2 * number` and `2 * number + 1`.
    pub fn add_slot(&mut self, origin: Origin) -> u32 {
        let number = self.unused.pop().unwrap_or(self.sources.len().div_ceil(2) as u32);
        let first = number as usize * 2;
        if self.sources.len() < first + 2 {
            self.sources.resize_with(first + 2, Source::default);
        }
        for source in self.sources.iter_mut().skip(first).take(2) {
            *source = Source { origin, ..Source::default() };
        }
        number
    }

    /// The number can be given to another slot. Its rings must have no events any more.
    pub fn drop_slot(&mut self, number: u32) {
        self.unused.push(number);
    }

    /// Takes all committed words out of a ring. Returns `Ok(0)` also when there is no room for them now.
    pub fn drain(&mut self, source: u32, ring: &Ring<'_>) -> Result<usize, RingError> {
        let index = source as usize;
        if self.sources.len() <= index {
            self.sources.resize_with(index + 1, Source::default);
        }
        let Some(place) = self.sources.get_mut(index).filter(|_| self.store.has_room()) else { return Ok(0) };
        let words = place.queue.fill(ring, &mut self.store)?;
        if words > 0 && !place.is_ready {
            self.make_ready(source);
        }
        Ok(words)
    }

    /// Returns false if `drain` would take nothing now.
    pub fn has_room(&mut self) -> bool {
        self.store.has_room()
    }

    /// Words in memory that were drained and are not ordered yet. Words in the spill file are not counted.
    pub const fn queued(&self) -> usize {
        self.store.in_memory()
    }

    pub fn is_broken(&self, source: u32) -> bool {
        self.source(source).is_some_and(|source| source.broken)
    }

    pub fn source(&self, source: u32) -> Option<&Source> {
        self.sources.get(source as usize)
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub const fn broken_words(&self) -> u64 {
        self.broken
    }

    /// Finds the key of a ring's next event. If there is none, the ring is not ready.
    fn make_ready(&mut self, index: u32) {
        if let Some(next) = self.next_key(index) {
            self.ready.push(Ready { next, source: index });
        }
    }

    fn next_key(&mut self, index: u32) -> Option<u64> {
        let source = self.sources.get_mut(index as usize)?;
        source.is_ready = false;
        loop {
            let window = source.queue.window(&mut self.store);
            let words = window.len();
            match Decoder::new(window).decode() {
                Ok(Some(event)) if !source.broken => {
                    source.is_ready = true;
                    return Some(Item::new(&event, index, source.origin).key().max(source.last));
                }
                // This window has only skip words left.
                Ok(None) if words > 0 => source.queue.advance(words, &mut self.store),
                Ok(None) => return None,
                _ => {
                    source.broken = true;
                    self.broken += source.queue.discard(&mut self.store) as u64;
                    return None;
                }
            }
        }
    }

    /// If the next events come from one ring, or from a few in turns, passes some of them straight to the consumer: at most `most`, with keys
    /// below `limit`. Returns their number and the event that the consumer refused; `None` if it is better to sort, or if no event is
    /// below `limit`.
    #[inline(always)]
    pub fn run_straight<C: Consumer + NumberSource>(
        &mut self,
        (limit, most): (u64, usize),
        consumer: &mut C,
        note: impl FnMut(&Item),
    ) -> Option<(usize, Option<Item>)> {
        let (at, others) = self.first_ready()?;
        let is_few = self.ready.len() <= FEW;
        let first = self.ready.get_mut(at)?;
        if first.next >= limit || !is_few && others - first.next < self.width / ALONE {
            return None;
        }
        let index = first.source;
        let source = self.sources.get_mut(index as usize)?;
        // A key of another ring that is equal may come first or second.
        let end = limit.min(others.saturating_add(1));
        let (run, refused) = source.run_straight(&mut self.store, index, (end, most), consumer, note);
        match run.next {
            Some(next) => first.next = next,
            None => {
                self.ready.swap_remove(at);
                self.make_ready(index);
            }
        }
        Some((run.events, refused))
    }

    /// How many rings there are, whether or not they have events.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns which of the ready rings has the smallest key, and the smallest key of the others.
    #[inline]
    fn first_ready(&self) -> Option<(usize, u64)> {
        let (mut first, mut second) = (u64::MAX, u64::MAX);
        let mut at = None;
        for (index, ready) in self.ready.iter().enumerate() {
            if ready.next < first {
                (first, second, at) = (ready.next, first, Some(index));
            } else {
                second = second.min(ready.next);
            }
        }
        at.map(|at| (at, second))
    }

    /// Decodes the events of the next slice, ring by ring. Returns a key that none of them is below, and the key below which every event
    /// is in `slice` or was before, at most `limit`.
    pub fn decode(&mut self, limit: u64, numbers: &mut impl NumberSource, slice: &mut Slice) -> (u64, u64) {
        let Some((first, others)) = self.first_ready() else { return (limit, limit) };
        let start = self.ready.get(first).map_or(u64::MAX, |ready| ready.next);
        if start >= limit {
            return (limit, limit);
        }
        let end = if others - start >= self.width / ALONE {
            let end = limit.min(others);
            self.decode_source(first, (end, WANTED), numbers, slice).unwrap_or(end).min(end)
        } else {
            self.decode_all(start, limit, numbers, slice)
        };
        (start, end)
    }

    /// Decodes the events of all rings in a slice that begins at `start`. Returns its end, at most `limit`.
    fn decode_all(&mut self, start: u64, limit: u64, numbers: &mut impl NumberSource, slice: &mut Slice) -> u64 {
        let end = limit.min(start.saturating_add(self.width));
        let before = slice.count();
        let mut at = 0;
        while let Some(&Ready { next, .. }) = self.ready.get(at) {
            if next >= end || self.decode_source(at, (end, usize::MAX), numbers, slice).is_some() {
                at += 1;
            }
        }
        let count = slice.count() - before;
        if count > 2 * WANTED {
            self.width = (self.width / 2).max(1);
        } else if count < WANTED / 2 && end < limit {
            self.width = (self.width * 2).min(MOST_WIDTH);
        }
        end
    }

    /// Decodes at most `most` events of the ready ring at `at`, with keys below `end`. Returns the key of the next one. If there is
    /// none, the ring is removed from those that are ready.
    fn decode_source(
        &mut self,
        at: usize,
        (end, most): (u64, usize),
        numbers: &mut impl NumberSource,
        slice: &mut Slice,
    ) -> Option<u64> {
        let index = self.ready.get(at)?.source;
        let mut left = most;
        loop {
            let source = self.sources.get_mut(index as usize)?;
            let run = source.run(&mut self.store, index, (end, left), numbers, slice);
            left = left.saturating_sub(run.events);
            let Some(next) = run.next.or_else(|| self.next_key(index)) else {
                self.ready.swap_remove(at);
                return None;
            };
            if next >= end || left == 0 || run.next.is_some() {
                self.ready.get_mut(at)?.next = next;
                return Some(next);
            }
        }
    }
}
