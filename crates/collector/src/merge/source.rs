//! One ring's queue as the merge sees it.
use super::consumer::{Consumer, NumberSource, Verdict};
use super::item::{Item, Origin, key};
use super::slice::Slice;
use crate::queue::{Queue, Store};
use channel::{Decoder, Event, Record};

#[derive(Debug, Default)]
pub struct Source {
    pub origin: Origin,
    pub queue: Queue,
    /// The queue has an event, so the source is in the list of those that are ready.
    pub is_ready: bool,
    /// The ring held a word that is no record, so everything after it is discarded.
    pub broken: bool,
    /// Events that left the queue.
    pub taken: u64,
    /// The key of the last event. Later events of the ring have at least this key, whatever their stamps are.
    pub last: u64,
}

/// How far a run got.
pub struct Run {
    /// Events that left the queue.
    pub events: usize,
    /// The key of the event after them. `None` if the run ended at the end of the queue's first chunk, or before words that are
    /// no record.
    pub next: Option<u64>,
}

impl Source {
    /// Decodes the next events into `slice` and removes them from the queue. The run ends before an event whose key is `end` or
    /// larger, after `most` events, and at the end of the queue's first chunk.
    pub fn run(
        &mut self,
        store: &mut Store,
        number: u32,
        (end, most): (u64, usize),
        numbers: &mut impl NumberSource,
        slice: &mut Slice,
    ) -> Run {
        let window = self.queue.window(store);
        let words = window.len();
        let mut decoder = Decoder::new(window);
        let first = slice.count();
        let mut run = Run { events: 0, next: None };
        let mut numbered = first;
        let mut latest = self.last;
        let left = loop {
            let from = (number, self.origin.tag());
            let stopped = decode_plain(&mut decoder, from, (end, most - (slice.count() - first), &mut latest), slice);
            let left = decoder.remaining();
            if stopped.is_some() {
                run.next = stopped;
                break left;
            }
            // A path gives new meanings to numbers, so the events before it get their numbers first.
            numbered = slice.number(numbered, numbers);
            match decoder.record() {
                Ok(Some(Record::Path(path))) => numbers.define(self.origin.process, number, &path),
                Ok(Some(Record::Event(event))) => {
                    let item = Item::new(&event, number, self.origin);
                    let key = item.key().max(latest);
                    if key >= end || slice.count() - first == most {
                        run.next = Some(key);
                        break left;
                    }
                    latest = key;
                    slice.push(item, key);
                }
                // The same words are decoded again to find the next key, and the source is then marked as broken.
                Ok(None) | Err(_) => break left,
            }
        };
        slice.number(numbered, numbers);
        run.events = slice.count() - first;
        self.last = latest;
        self.taken += run.events as u64;
        self.queue.advance(words - left, store);
        run
    }
}

impl Source {
    /// Passes the next events straight to the consumer and removes them from the queue. The run ends as that of `run` does, and after an
    /// event that the consumer refuses, which is returned. If `is_shared`, the frees are noted.
    #[inline(always)]
    pub fn run_straight<C: Consumer + NumberSource>(
        &mut self,
        store: &mut Store,
        number: u32,
        (end, most): (u64, usize),
        consumer: &mut C,
        mut note: impl FnMut(&Item),
    ) -> (Run, Option<Item>) {
        let origin = self.origin;
        let window = self.queue.window(store);
        let words = window.len();
        let mut decoder = Decoder::new(window);
        let mut straight = Straight { end, most, latest: self.last, left: words, events: 0, next: None, refused: None };
        // An error ends the run. The same words are decoded again to find the next key, and the source is then marked as broken.
        while let Ok(Some(record)) = decoder.record() {
            // A step for each kind, so that the code looks at the kind once.
            let goes_on = match record {
                Record::Event(event @ Event::Alloc { address, size, stack, .. }) => {
                    let mut item = Item::new(&event, number, origin);
                    // Looking up its number is left to the run that takes it.
                    straight.reaches(&item) && {
                        item.number = consumer.number(number, address, size, stack);
                        straight.take(consumer, &item, decoder.remaining(), &mut note)
                    }
                }
                Record::Event(Event::Free { stamp, address, by_realloc }) => {
                    let item = Item::new(&Event::Free { stamp, address, by_realloc }, number, origin);
                    straight.reaches(&item) && straight.take(consumer, &item, decoder.remaining(), &mut note)
                }
                Record::Event(event) => {
                    let item = Item::new(&event, number, origin);
                    straight.reaches(&item) && straight.take(consumer, &item, decoder.remaining(), &mut note)
                }
                Record::Path(path) => {
                    consumer.define(origin.process, number, &path);
                    true
                }
            };
            if !goes_on {
                break;
            }
        }
        self.last = straight.latest;
        self.taken += straight.events as u64;
        self.queue.advance(words - straight.left, store);
        (Run { events: straight.events, next: straight.next }, straight.refused)
    }
}

/// How far `run_straight` is.
struct Straight {
    end: u64,
    most: usize,
    latest: u64,
    /// Words after the events that were taken.
    left: usize,
    events: usize,
    next: Option<u64>,
    refused: Option<Item>,
}

impl Straight {
    /// Returns false if the run ends before this event.
    #[inline(always)]
    fn reaches(&mut self, item: &Item) -> bool {
        let key = item.key().max(self.latest);
        if key >= self.end || self.events == self.most {
            self.next = Some(key);
            return false;
        }
        self.latest = key;
        true
    }

    /// Returns false if the consumer refused the event.
    #[inline(always)]
    fn take(&mut self, consumer: &mut impl Consumer, item: &Item, left: usize, note: &mut impl FnMut(&Item)) -> bool {
        self.left = left;
        self.events += 1;
        if consumer.take(item) != Verdict::Taken {
            self.refused = Some(*item);
            return false;
        }
        note(item);
        true
    }
}

/// Decodes allocations and frees up to the first other record. Returns the key of the next event if the run ends before it.
#[inline(always)]
fn decode_plain(
    decoder: &mut Decoder<'_>,
    (source, tag): (u32, u64),
    (end, most, latest): (u64, usize, &mut u64),
    slice: &mut Slice,
) -> Option<u64> {
    let mut left = most;
    loop {
        let (items, keys) = slice.room();
        let room = items.len();
        let (mut count, mut last) = (0, *latest);
        let mut next = None;
        for (item, its_key) in items.iter_mut().zip(keys) {
            let Some(plain) = decoder.plain() else { break };
            let key = key(plain.head).max(last);
            if key >= end || count == left {
                next = Some(key);
                break;
            }
            last = key;
            decoder.take_plain(&plain);
            *item = Item::plain(&plain, source, tag);
            *its_key = key;
            count += 1;
        }
        *latest = last;
        left -= count;
        slice.filled(count);
        if count < room || next.is_some() {
            return next;
        }
    }
}
