//! The k-way merge of all rings into one order of events.
//!
//! Receives: the queues of all rings, and a watermark below which no ring gets another event. Returns: all events below the watermark,
//! one after the other, to a `Consumer`. Must hold: events of one ring keep their order, and at equal stamps a free comes first.
//!
//! Stamps are taken without a fence. Two threads that hand an address to each other within a few hundred cycles can
//! therefore stamp in the wrong order. The consumer notices (an allocation of a live address, or a free of an address that is not
//! live), and the merge looks ahead for the event that must come first (`partner.rs`). Only that event moves.
mod consumer;
mod heap;
mod partner;
mod recent_frees;
mod source;
#[cfg(test)]
pub mod tests;

use crate::queue::Store;
use channel::{Decoder, Event, Ring, RingError, Stamp};
pub use consumer::{Consumer, Item, Verdict};
use heap::Heap;
use recent_frees::RecentFrees;
use source::Source;
use std::ops::ControlFlow;

/// Why the merge stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every event below the watermark was taken.
    Done,
    /// An event waits for one that has not arrived yet. Call again with a later watermark.
    Waiting,
    /// The consumer is full. Call again when it is not.
    Full,
    /// Some thread may be waiting for ring space by now. Look at the rings, then call again.
    Paused,
}

/// How far apart, in stamps, two events of one address can be in the wrong order.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// An allocation waits this long for the free of the block before it.
    pub free: u64,
    /// A free waits this long for its allocation. This time is short, because the block may have been live before the recording
    /// started. The next allocation of its address is then another block.
    pub alloc: u64,
}

#[derive(Debug)]
pub struct Merge {
    store: Store,
    sources: Vec<Source>,
    /// The key of the next event of each source that has events.
    heap: Heap,
    batch: Vec<Item>,
    at: usize,
    broken: u64,
    frees: RecentFrees,
}

/// Rings of one thread: one for its events, one for events that happen within them.
const RINGS: usize = 2;
/// Long enough to hide a cache miss, short enough to stay in the first level cache.
const BATCH: usize = 64;
/// Events between two checks of the consumer and the rings. They take a small part of the time in which a thread can fill
/// half of its ring.
const STRETCH: usize = 4096;

/// Order of events: by stamp, at equal stamps the free before the allocation.
#[inline(always)]
const fn key(event: &Event) -> u64 {
    event.stamp() << 1 | matches!(event, Event::Alloc { .. }) as u64
}

/// Keys of events below the watermark are below this.
const fn limit(watermark: Stamp) -> u64 {
    let most = Stamp::MAX >> 1;
    (if watermark < most { watermark } else { most }) << 1
}

#[inline(always)]
const fn address(event: &Event) -> u64 {
    match *event {
        Event::Alloc { address, .. } | Event::Free { address, .. } => address,
        Event::ThreadStart { .. } | Event::Image { .. } => 0,
    }
}

impl Merge {
    pub fn new(store: Store) -> Self {
        Merge {
            store,
            sources: Vec::new(),
            heap: Heap::default(),
            batch: Vec::with_capacity(BATCH),
            at: 0,
            broken: 0,
            frees: RecentFrees::default(),
        }
    }

    /// Returns false if `drain` would take nothing now.
    pub fn has_room(&mut self) -> bool {
        self.store.has_room()
    }

    /// Words in memory that were drained and are not merged yet. Words in the spill file are not counted.
    pub const fn queued(&self) -> usize {
        self.store.in_memory()
    }

    /// Takes all committed words out of a ring. Returns `Ok(0)` also when there is no room for them now.
    pub fn drain(&mut self, source: u32, ring: &Ring<'_>) -> Result<usize, RingError> {
        let index = source as usize;
        if self.sources.len() <= index {
            self.sources.resize_with(index + 1, Source::default);
        }
        let Some(place) = self.sources.get_mut(index).filter(|_| self.store.has_room()) else { return Ok(0) };
        let words = place.queue.fill(ring, &mut self.store)?;
        if words > 0 && !place.in_heap {
            self.requeue(source);
        }
        Ok(words)
    }

    /// True when nothing of this source is left to merge.
    pub fn is_drained(&self, source: u32) -> bool {
        self.sources.get(source as usize).is_none_or(|source| source.queue.is_empty())
            && self.batch.get(self.at..).is_none_or(|rest| rest.iter().all(|item| item.source != source))
    }

    /// True when nothing of any source is left.
    pub fn is_empty(&self) -> bool {
        self.at == self.batch.len() && self.heap.is_empty()
    }

    /// How many events of a source were merged, since its ring was made.
    pub fn taken(&self, source: u32) -> u64 {
        self.sources.get(source as usize).map_or(0, |source| source.taken)
    }

    #[inline(always)]
    fn count(&mut self, source: u32) {
        if let Some(source) = self.sources.get_mut(source as usize) {
            source.taken += 1;
        }
    }

    pub fn is_broken(&self, source: u32) -> bool {
        self.sources.get(source as usize).is_some_and(|source| source.broken)
    }

    /// Words that were discarded because they were no records. Words that cannot be read back from the spill file are not among
    /// them; the audit finds those.
    pub const fn broken_words(&self) -> u64 {
        self.broken
    }

    /// Puts a source back into the heap by its first event.
    fn requeue(&mut self, index: u32) {
        let Some(source) = self.sources.get_mut(index as usize) else { return };
        loop {
            let window = source.queue.window(&mut self.store);
            let words = window.len();
            match Decoder::new(window).decode() {
                Ok(Some(event)) if !source.broken => {
                    source.in_heap = true;
                    self.heap.push((key(&event), index));
                    return;
                }
                // This window has only skip words left.
                Ok(None) if words > 0 => source.queue.advance(words, &mut self.store),
                Ok(None) => break,
                _ => {
                    source.broken = true;
                    self.broken += source.queue.discard(&mut self.store) as u64;
                    break;
                }
            }
        }
        source.in_heap = false;
    }

    /// Hands every event with a stamp below `watermark` to `consumer`.
    pub fn run(&mut self, watermark: Stamp, patience: Patience, consumer: &mut impl Consumer) -> Stopped {
        let mut done = 0;
        while done < STRETCH {
            while let Some(item) = self.batch.get(self.at) {
                match consumer.take(item) {
                    Verdict::Taken => {
                        self.frees.note(&item.event);
                        self.at += 1;
                        let source = item.source;
                        self.count(source);
                    }
                    verdict => {
                        if !self.resolve(verdict, watermark, patience, consumer) {
                            return Stopped::Waiting;
                        }
                    }
                }
            }
            self.batch.clear();
            self.at = 0;
            if consumer.is_full() {
                return Stopped::Full;
            }
            if !consumer.wants_expect() {
                match self.run_straight(watermark, consumer) {
                    Some(events) => done += events,
                    None => return Stopped::Done,
                }
                continue;
            }
            self.gather(watermark, consumer);
            if self.batch.is_empty() {
                return Stopped::Done;
            }
            done += self.batch.len();
        }
        Stopped::Paused
    }

    /// Returns the source of the next event below `limit`, and the largest key up to which its events come before those of
    /// all other sources.
    #[inline]
    fn next_run(&self, limit: u64) -> Option<(u32, u64)> {
        let (first, index) = self.heap.first().filter(|(first, _)| *first < limit)?;
        debug_assert!(self.heap.second_key().is_none_or(|second| first <= second));
        Some((index, self.heap.second_key().unwrap_or(u64::MAX).min(limit - 1)))
    }

    /// Updates the top of the heap after some of its events were taken. `next` is the key of its next event, if known.
    #[inline]
    fn update_top(&mut self, index: u32, next: Option<u64>) {
        if let Some(next) = next {
            self.heap.set_first(next);
        } else {
            self.heap.pop();
            self.requeue(index);
        }
    }

    /// Passes a run of events straight to the consumer. Returns their number, or `None` if no event is left below
    /// `watermark`.
    fn run_straight(&mut self, watermark: Stamp, consumer: &mut impl Consumer) -> Option<usize> {
        let (index, last) = self.next_run(limit(watermark))?;
        // A thread that is alone receives no block of another thread, so its frees need not be remembered.
        let is_shared = self.sources.len() > RINGS;
        let source = self.sources.get_mut(index as usize)?;
        let (batch, frees) = (&mut self.batch, &mut self.frees);
        let run = source.run(&mut self.store, index, (last, STRETCH - 1), consumer, |consumer, item| {
            if consumer.take(&item) != Verdict::Taken {
                // `run` asks again and resolves it.
                batch.push(item);
                return ControlFlow::Break(());
            }
            if is_shared {
                frees.note(&item.event);
            }
            ControlFlow::Continue(())
        });
        source.taken += (run.events - batch.len()) as u64;
        self.update_top(index, run.next);
        // One more, so that a run without events (a look-ahead took them) counts too.
        Some(run.events + 1)
    }

    /// Fills the batch with the next events below `watermark`.
    fn gather(&mut self, watermark: Stamp, consumer: &mut impl Consumer) {
        while self.batch.len() < BATCH {
            let Some((index, last)) = self.next_run(limit(watermark)) else { return };
            let Some(source) = self.sources.get_mut(index as usize) else { return };
            let batch = &mut self.batch;
            let most = BATCH - batch.len();
            let run = source.run(&mut self.store, index, (last, most), consumer, |consumer, item| {
                consumer.expect(&item.event);
                batch.push(item);
                ControlFlow::Continue(())
            });
            self.update_top(index, run.next);
        }
    }
}
