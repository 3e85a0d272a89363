//! One order out of many rings: by stamp, and for one address by what must have been.
//!
//! Given: the queues of all rings and a watermark below which no ring gets another event. Gives back: all events below
//! it, one after the other, to a `Consumer`. What must hold: events of one ring keep their order; equal stamps: free
//! first.
//!
//! Stamps are taken without a fence, so two threads that hand an address to each other within a few hundred cycles can
//! stamp in the wrong order. The consumer notices (an allocation of a live address, a free of one that is not), and
//! the merge looks ahead for the event that must come first: only that one moves.
mod heap;

use crate::queue::{Queue, Store};
use channel::{Decoder, Event, Path, Record, RecordError, Ring, RingError, StackId, Stamp};
use heap::Heap;

/// An event and the ring it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub event: Event,
    /// `2 * slot`, or `2 * slot + 1` for the slot's ring of nested events.
    pub source: u32,
}

/// What the consumer says to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// An allocation of a live address: its free must be somewhere.
    StillLive,
    /// A free of an address that is not live: its allocation may be somewhere.
    NotLive,
}

pub trait Consumer {
    /// True: `expect` is worth its time.
    fn wants_expect(&self) -> bool;
    /// A ring tells new stacks; may come more than once.
    fn define(&mut self, source: u32, path: &Path<'_>);
    /// The trace's id of a ring's stack.
    fn stack(&mut self, source: u32, number: StackId) -> u32;
    /// Some events ahead of `take`.
    fn expect(&self, event: &Event);
    fn take(&mut self, item: &Item) -> Verdict;
    /// `take` said no, and what it missed does not come.
    fn force(&mut self, item: &Item);
    /// True: no more for now.
    fn is_full(&self) -> bool;
}

/// Why the merge stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Everything below the watermark was taken.
    Done,
    /// An event waits for one that is not there yet: call again with a later watermark.
    Waiting,
    /// The consumer is full: call again when it is not.
    Full,
    /// Some thread may be waiting by now: look at the rings, then call again.
    Paused,
}

/// How far apart, in stamps, two events of one address can be in the wrong order.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// An allocation waits this long for the free before it.
    pub free: u64,
    /// A free waits this long for its allocation. Short: where an address was live before we came, the next allocation
    /// of it is another block.
    pub alloc: u64,
}

#[derive(Debug, Default)]
struct Source {
    queue: Queue,
    in_heap: bool,
    /// It held something that is no record; the rest of it is worth nothing.
    broken: bool,
    /// Events that the consumer has got.
    taken: u64,
}

#[derive(Debug)]
pub struct Merge {
    store: Store,
    sources: Vec<Source>,
    /// The first key of every source that has events.
    heap: Heap,
    batch: Vec<Item>,
    at: usize,
    broken: u64,
    frees: Frees,
}

/// Of one thread: its own, and that of events within its events.
const RINGS: usize = 2;
/// Long enough to hide a cache miss, short enough to stay in the first level cache.
const BATCH: usize = 64;
/// Events between two looks whether the consumer is full, or a ring. They take a small part of the time in which a thread can fill
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
            frees: Frees::default(),
        }
    }

    /// False: what is drained now would stay where it is.
    pub fn has_room(&mut self) -> bool {
        self.store.has_room()
    }

    /// Words that were drained and are not merged yet, as far as they are in memory.
    pub const fn queued(&self) -> usize {
        self.store.in_memory()
    }

    /// Takes all committed words out of a ring. `Ok(0)` also when there is no room for them now.
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

    /// Words that were no records. (What does not come back from the spill file is found by the audit.)
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
                // Only holes left in this window.
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

    /// The source whose event is next below `limit`, and the last key that its events may have to come before those of
    /// all others.
    #[inline]
    fn next_run(&self, limit: u64) -> Option<(u32, u64)> {
        let (first, index) = self.heap.first().filter(|(first, _)| *first < limit)?;
        let second = self.heap.second_key();
        // Its first event always passes, even when a look ahead has taken the one it was queued by.
        Some((index, second.unwrap_or(u64::MAX).max(first).min(limit - 1)))
    }

    /// The top of the heap has given some events away; `next` is the key it has now, if known.
    #[inline]
    fn update_top(&mut self, index: u32, next: Option<u64>) {
        if let Some(next) = next {
            self.heap.set_first(next);
        } else {
            self.heap.pop();
            self.requeue(index);
        }
    }

    /// Straight from the words to the consumer, for as long as one source comes first. How many events, `None`: nothing is left below
    /// `watermark`.
    fn run_straight(&mut self, watermark: Stamp, consumer: &mut impl Consumer) -> Option<usize> {
        let (index, last) = self.next_run(limit(watermark))?;
        // One thread alone gets nothing from others.
        let is_shared = self.sources.len() > RINGS;
        let source = self.sources.get_mut(index as usize)?;
        let window = source.queue.window(&mut self.store);
        let words = window.len();
        let mut decoder = Decoder::new(window);
        let mut left = words;
        let mut next = None;
        let mut stretch = STRETCH;
        // An error is found again, and handled, by `requeue`.
        while let Ok(Some(event)) = next_event(&mut decoder, index, consumer) {
            stretch -= 1;
            if key(&event) > last || stretch == 0 {
                next = Some(key(&event));
                break;
            }
            left = decoder.remaining();
            let item = Item { event, source: index };
            if consumer.take(&item) != Verdict::Taken {
                // `run` asks again and resolves it.
                self.batch.push(item);
                break;
            }
            source.taken += 1;
            if is_shared {
                self.frees.note(&item.event);
            }
        }
        source.queue.advance(words - left, &mut self.store);
        self.update_top(index, next);
        Some(STRETCH - stretch)
    }

    /// Fills the batch with the next events below `watermark`.
    fn gather(&mut self, watermark: Stamp, consumer: &mut impl Consumer) {
        while self.batch.len() < BATCH {
            let Some((index, last)) = self.next_run(limit(watermark)) else { return };
            let next = self.gather_run(index, last, consumer);
            self.update_top(index, next);
        }
    }

    /// Events of one source as long as they come before all others. Returns the key of the one after, if it was seen.
    #[inline]
    fn gather_run(&mut self, index: u32, last: u64, consumer: &mut impl Consumer) -> Option<u64> {
        let source = self.sources.get_mut(index as usize)?;
        let window = source.queue.window(&mut self.store);
        let words = window.len();
        let mut decoder = Decoder::new(window);
        let mut left = words;
        let mut next = None;
        while let Ok(Some(event)) = next_event(&mut decoder, index, consumer) {
            if key(&event) > last || self.batch.len() >= BATCH {
                next = Some(key(&event));
                break;
            }
            left = decoder.remaining();
            consumer.expect(&event);
            self.batch.push(Item { event, source: index });
        }
        source.queue.advance(words - left, &mut self.store);
        next
    }

    /// The consumer did not take the item at `at`. False: it may still be helped later.
    #[cold]
    fn resolve(
        &mut self,
        verdict: Verdict,
        watermark: Stamp,
        patience: Patience,
        consumer: &mut impl Consumer,
    ) -> bool {
        let Some(&item) = self.batch.get(self.at) else { return true };
        let wait = if verdict == Verdict::StillLive { patience.free } else { patience.alloc };
        let until = item.event.stamp().saturating_add(wait);
        // Two frees in a row: a thread frees a block and gets it again, another one takes that and frees it, and has the older stamp. Then
        // what was allocated again is still to come, from the same ring. An address that was live before we came was freed once.
        let may_be_own = verdict == Verdict::NotLive && self.frees.has(&item.event, wait);
        let found = self.find_partner(&item, verdict, until, may_be_own);
        match found {
            // One that is older may still come.
            Some(partner) if partner.stamp >= watermark => return false,
            Some(partner) => {
                let Some(partner) = self.take_partner(&partner, consumer) else { return false };
                self.frees.note(&partner.event);
                if consumer.take(&partner) != Verdict::Taken {
                    consumer.force(&partner);
                }
                self.count(partner.source);
            }
            None if watermark <= until => return false,
            None => {
                consumer.force(&item);
                self.at += 1;
                self.count(item.source);
            }
        }
        true
    }

    /// The event of another ring, perhaps of its own, that must come before `item`: of those that could, the oldest. An address that is handed around quickly
    /// has several, and any other would leave one of them without its partner.
    fn find_partner(&mut self, item: &Item, verdict: Verdict, until: Stamp, may_be_own: bool) -> Option<Partner> {
        let wanted = |event: &Event| {
            address(event) == address(&item.event)
                && match verdict {
                    Verdict::StillLive => matches!(event, Event::Free { .. }),
                    _ => matches!(event, Event::Alloc { .. }),
                }
        };
        let mut found: Option<Partner> = None;
        let later = self.batch.iter().enumerate().skip(self.at + 1);
        let later = later.filter(|(_, other)| (may_be_own || other.source != item.source) && wanted(&other.event));
        if let Some((at, other)) = later.min_by_key(|(_, other)| other.event.stamp())
            && other.event.stamp() <= until
        {
            found = Some(Partner { stamp: other.event.stamp(), at: At::Batch(at) });
        }
        for (index, source) in self.sources.iter_mut().enumerate() {
            if (index as u32 == item.source && !may_be_own) || source.broken {
                continue;
            }
            let before = found.as_ref().map_or(until.saturating_add(1), |partner| partner.stamp);
            if let Some((chunk, end, stamp)) = first_of(&mut source.queue, &mut self.store, before, wanted) {
                found = Some(Partner { stamp, at: At::Queue { source: index as u32, chunk, end } });
            }
        }
        found
    }

    fn take_partner(&mut self, partner: &Partner, consumer: &mut impl Consumer) -> Option<Item> {
        match partner.at {
            At::Batch(at) => Some(self.batch.remove(at)),
            At::Queue { source, chunk, end } => {
                let words = self.sources.get_mut(source as usize)?.queue.resident().nth(chunk)?;
                Some(Item { event: cut_out(words, end, source, consumer)?, source })
            }
        }
    }
}

/// The latest frees: address and stamp.
#[derive(Debug)]
struct Frees {
    places: Box<[(u64, Stamp)]>,
    next: usize,
}

impl Default for Frees {
    fn default() -> Self {
        Frees { places: vec![(0, 0); Self::COUNT].into(), next: 0 }
    }
}

impl Frees {
    /// Of more than the time that one waits for its allocation; a power of two.
    const COUNT: usize = 1024;

    #[inline(always)]
    fn note(&mut self, event: &Event) {
        if let Event::Free { address, stamp, .. } = *event
            && let Some(place) = self.places.get_mut(self.next & (Self::COUNT - 1))
        {
            *place = (address, stamp);
            self.next = self.next.wrapping_add(1);
        }
    }

    /// The address was freed already, shortly before.
    fn has(&self, event: &Event, wait: u64) -> bool {
        let oldest = event.stamp().saturating_sub(wait);
        self.places.iter().any(|(freed, stamp)| *freed == address(event) && *stamp >= oldest)
    }
}

/// An event that is to come before others.
struct Partner {
    stamp: Stamp,
    at: At,
}

enum At {
    Batch(usize),
    /// The words of a chunk up to and with it.
    Queue {
        source: u32,
        chunk: usize,
        end: usize,
    },
}

/// The next event of a ring, the stacks before it told to the consumer and its own stack known by the trace's id.
#[inline(always)]
fn next_event(
    decoder: &mut Decoder<'_>,
    source: u32,
    consumer: &mut impl Consumer,
) -> Result<Option<Event>, RecordError> {
    loop {
        match decoder.record()? {
            Some(Record::Event(Event::Alloc { stamp, address, size, stack })) => {
                let stack = consumer.stack(source, stack);
                return Ok(Some(Event::Alloc { stamp, address, size, stack }));
            }
            Some(Record::Event(event)) => return Ok(Some(event)),
            Some(Record::Path(path)) => consumer.define(source, &path),
            None => return Ok(None),
        }
    }
}

/// The first wanted record of a queue with a stamp below `before`: its chunk, the words up to and with it, and its stamp.
fn first_of(
    queue: &mut Queue,
    store: &mut Store,
    before: Stamp,
    wanted: impl Fn(&Event) -> bool,
) -> Option<(usize, usize, Stamp)> {
    let mut searched = 0;
    loop {
        for (chunk, words) in queue.resident().enumerate().skip(searched) {
            match first_in(words, before, &wanted) {
                Search::Found { end, stamp } => return Some((chunk, end, stamp)),
                Search::Past => return None,
                Search::NotHere => searched = chunk + 1,
            }
        }
        if !queue.load(store) {
            return None;
        }
    }
}

enum Search {
    /// The words up to and with the record, and its stamp.
    Found {
        end: usize,
        stamp: Stamp,
    },
    /// Everything that follows is too late.
    Past,
    NotHere,
}

fn first_in(words: &[u64], before: Stamp, wanted: impl Fn(&Event) -> bool) -> Search {
    let mut decoder = Decoder::new(words);
    while let Ok(Some(event)) = decoder.decode() {
        if event.stamp() >= before {
            return Search::Past;
        }
        if wanted(&event) {
            return Search::Found { end: words.len() - decoder.remaining(), stamp: event.stamp() };
        }
    }
    Search::NotHere
}

/// Turns the record that ends at `end` into holes. The stacks before it are told, for it may need them.
fn cut_out(words: &mut [u64], end: usize, source: u32, consumer: &mut impl Consumer) -> Option<Event> {
    let mut decoder = Decoder::new(words.get(..end)?);
    let mut last = None;
    while let Ok(Some(event)) = next_event(&mut decoder, source, consumer) {
        last = Some(event);
    }
    let event = last?;
    let length = if matches!(event, Event::Alloc { .. }) { channel::ALLOC_WORDS } else { channel::FREE_WORDS };
    for word in words.iter_mut().take(end).skip(end - length) {
        *word = channel::Kind::Skip as u64;
    }
    Some(event)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::spill::Spill;
    use channel::{Kind, encode_alloc, encode_free};
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64;

    /// Rings that a test fills by hand.
    struct Rings {
        merge: Merge,
    }

    impl Rings {
        fn new() -> Self {
            Rings { merge: Merge::new(Store::new(Spill::new(std::env::temp_dir()), Store::BOUND)) }
        }
        fn add(&mut self, source: u32, words: &[u64]) {
            let places: Vec<_> = (0..1024).map(|_| AtomicU64::new(0)).collect();
            let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
            let ring = Ring::new(&places, &head, &tail);
            words.iter().enumerate().for_each(|(n, word)| ring.put(n as u64, *word));
            ring.commit(words.len() as u64);
            self.merge.drain(source, &ring).unwrap();
        }
        fn alloc(&mut self, source: u32, stamp: u64, address: u64) {
            self.add(source, &encode_alloc(stamp, address, 8, 1));
        }
        fn free(&mut self, source: u32, stamp: u64, address: u64) {
            self.add(source, &encode_free(Kind::Free, stamp, address));
        }
        fn run(&mut self, watermark: u64, log: &mut Log) -> bool {
            self.run_with(Patience { free: 1000, alloc: 10 }, watermark, log)
        }
        fn run_with(&mut self, patience: Patience, watermark: u64, log: &mut Log) -> bool {
            loop {
                match self.merge.run(watermark, patience, log) {
                    Stopped::Paused => (),
                    stopped => return stopped == Stopped::Done,
                }
            }
        }
    }

    /// Remembers what it was given: `+stamp`, `-stamp`, `!stamp` when forced.
    #[derive(Default)]
    pub struct Log {
        live: HashSet<u64>,
        text: String,
        far: bool,
    }

    impl Consumer for Log {
        fn define(&mut self, _: u32, _: &Path<'_>) {}
        fn stack(&mut self, _: u32, number: StackId) -> u32 {
            number
        }
        fn wants_expect(&self) -> bool {
            self.far
        }
        fn expect(&self, _: &Event) {}
        fn take(&mut self, item: &Item) -> Verdict {
            match item.event {
                Event::Alloc { address, stamp, .. } => {
                    if !self.live.insert(address) {
                        return Verdict::StillLive;
                    }
                    self.text += &format!("+{stamp} ");
                }
                Event::Free { address, stamp, .. } => {
                    if !self.live.remove(&address) {
                        return Verdict::NotLive;
                    }
                    self.text += &format!("-{stamp} ");
                }
                _ => self.text += &format!("*{} ", item.event.stamp()),
            }
            Verdict::Taken
        }
        fn force(&mut self, item: &Item) {
            self.text += &format!("!{} ", item.event.stamp());
        }
        fn is_full(&self) -> bool {
            false
        }
    }

    #[test]
    fn events_come_by_stamp_below_the_watermark() {
        let (mut rings, mut log) = (Rings::new(), Log::default());
        for (source, stamp) in [(0, 10), (0, 30), (2, 20), (2, 40), (5, 25), (5, 50)] {
            rings.alloc(source, stamp, stamp * 16);
        }
        assert!(rings.run(40, &mut log));
        assert_eq!(log.text, "+10 +20 +25 +30 ");
        assert!(!rings.merge.is_drained(2));
        assert!(rings.run(u64::MAX, &mut log));
        assert_eq!(log.text, "+10 +20 +25 +30 +40 +50 ");
        assert!(rings.merge.is_drained(2));
    }

    #[test]
    fn at_equal_stamps_the_free_comes_first() {
        let (mut rings, mut log) = (Rings::new(), Log::default());
        rings.alloc(4, 10, 0x100);
        rings.alloc(0, 20, 0x100);
        rings.free(2, 20, 0x100);
        assert!(rings.run(100, &mut log));
        assert_eq!(log.text, "+10 -20 +20 ");
    }

    #[test]
    fn an_allocation_waits_for_the_free_before_it() {
        for far in [false, true] {
            check_waits(Log { far, ..Log::default() });
        }
    }

    fn check_waits(mut log: Log) {
        let mut rings = Rings::new();
        rings.alloc(0, 10, 0x100);
        rings.alloc(0, 11, 0x200);
        rings.alloc(2, 20, 0x100);
        rings.alloc(2, 21, 0x300);
        rings.free(0, 25, 0x200);
        rings.free(0, 30, 0x100);
        assert!(!rings.run(22, &mut log));
        assert_eq!(log.text, "+10 +11 ", "an older free may still come");
        assert!(rings.run(31, &mut log));
        assert_eq!(log.text, "+10 +11 -30 +20 +21 -25 ");
        assert!(rings.run(u64::MAX, &mut log));
        assert_eq!(log.text, "+10 +11 -30 +20 +21 -25 ", "and not seen twice");
    }

    /// An address that goes round: the free that is meant is in the ring that is looked at last.
    #[test]
    fn of_several_frees_the_oldest_is_meant() {
        for far in [false, true] {
            let (mut rings, mut log) = (Rings::new(), Log { far, ..Log::default() });
            rings.alloc(6, 10, 0x100);
            rings.alloc(4, 20, 0x100);
            rings.free(6, 21, 0x100);
            rings.free(2, 30, 0x100);
            rings.alloc(2, 90, 0x100);
            rings.free(0, 95, 0x100);
            assert!(rings.run(u64::MAX, &mut log));
            assert_eq!(log.text, "+10 -21 +20 -30 +90 -95 ");
        }
    }

    /// The same where hardly anything fits into memory.
    #[test]
    fn what_is_meant_may_be_in_the_spill_file() {
        let mut rings = Rings { merge: Merge::new(Store::new(Spill::new(std::env::temp_dir()), 4)) };
        let mut log = Log::default();
        rings.alloc(6, 10, 0x100);
        rings.alloc(4, 20, 0x100);
        rings.alloc(6, 12, 0x900);
        rings.free(6, 21, 0x100);
        rings.free(2, 30, 0x100);
        rings.alloc(2, 90, 0x100);
        rings.free(0, 95, 0x100);
        assert!(rings.run(u64::MAX, &mut log));
        assert_eq!(log.text, "+10 +12 -21 +20 -30 +90 -95 ");
        assert_eq!(rings.merge.broken_words(), 0);
    }

    /// Threads that hand few addresses around, each of whose stamps is early by a little: every event finds its partner.
    #[test]
    fn no_pair_is_mismatched_however_early_stamps_are() {
        // Far more than stamps are early by, as in a recording.
        let patience = Patience { free: 1000, alloc: 100 };
        for seed in 1..=3000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = |limit: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % limit
            };
            let bound = if seed % 4 == 0 { 16 } else { Store::BOUND };
            let mut rings = Rings { merge: Merge::new(Store::new(Spill::new(std::env::temp_dir()), bound)) };
            let mut log = Log { far: seed % 2 == 0, ..Log::default() };
            let (mut live, mut last, mut now) = ([false; 5], [0u64; 4], 100);
            for _ in 0..200 {
                now += random(4);
                let (thread, address) = (random(4) as usize, random(5) as usize);
                // A free is stamped right after the address came from another thread, an allocation after much else.
                let early = if live[address] { random(9) } else { 0 };
                last[thread] = (last[thread] + 1).max(now - early);
                now = now.max(last[thread]);
                let (source, place) = (thread as u32 * 2, 0x100 * (address as u64 + 1));
                if live[address] {
                    rings.free(source, last[thread], place);
                } else {
                    rings.alloc(source, last[thread], place);
                }
                live[address] = !live[address];
                if random(10) == 0 {
                    // No later event is older than this.
                    rings.run_with(patience, now - 8, &mut log);
                }
            }
            assert!(rings.run_with(patience, u64::MAX, &mut log));
            assert!(!log.text.contains('!'), "seed {seed}: {}", log.text);
            assert_eq!(log.text.split_whitespace().count(), 200, "seed {seed}");
            assert_eq!(log.live.len(), live.iter().filter(|live| **live).count(), "seed {seed}");
        }
    }

    #[test]
    fn of_several_allocations_the_oldest_is_meant() {
        for far in [false, true] {
            let (mut rings, mut log) = (Rings::new(), Log { far, ..Log::default() });
            rings.free(4, 20, 0x100);
            rings.alloc(6, 21, 0x100);
            rings.alloc(2, 26, 0x100);
            rings.alloc(0, 28, 0x200);
            assert!(rings.run(u64::MAX, &mut log));
            assert_eq!(log.text, "+21 -20 +26 +28 ");
        }
    }

    #[test]
    fn a_free_that_is_not_there_yet_is_waited_for() {
        let (mut rings, mut log) = (Rings::new(), Log::default());
        rings.alloc(0, 10, 0x100);
        rings.alloc(2, 20, 0x100);
        rings.alloc(2, 21, 0x300);
        assert!(!rings.run(500, &mut log));
        assert_eq!(log.text, "+10 ");
        rings.free(0, 600, 0x100);
        assert!(rings.run(700, &mut log));
        assert_eq!(log.text, "+10 -600 +20 +21 ");
    }

    #[test]
    fn a_free_that_never_comes_is_implied() {
        let (mut rings, mut log) = (Rings::new(), Log::default());
        rings.alloc(0, 10, 0x100);
        rings.alloc(2, 20, 0x100);
        assert!(!rings.run(1020, &mut log));
        assert!(rings.run(1021, &mut log));
        assert_eq!(log.text, "+10 !20 ");
    }

    #[test]
    fn a_free_that_overtook_its_allocation_waits_shortly() {
        let (mut rings, mut log) = (Rings::new(), Log::default());
        rings.free(0, 20, 0x100);
        rings.alloc(2, 22, 0x100);
        rings.free(0, 40, 0x900);
        rings.alloc(2, 51, 0x900);
        assert!(rings.run(u64::MAX, &mut log));
        assert_eq!(log.text, "+22 -20 !40 +51 ");
    }

    #[test]
    fn a_ring_with_garbage_stops_alone() {
        let (mut rings, mut log) = (Rings::new(), Log::default());
        rings.alloc(0, 10, 0x100);
        rings.add(2, &[7, 7, 7]);
        rings.alloc(0, 20, 0x200);
        rings.add(0, &[15 << 3 | Kind::Free as u64]);
        assert!(rings.run(u64::MAX, &mut log));
        assert_eq!(log.text, "+10 +20 ");
        assert!(rings.merge.is_broken(2) && rings.merge.is_broken(0));
        assert_eq!(rings.merge.broken_words(), 4);
    }

    #[test]
    fn many_rings_give_one_order() {
        for far in [false, true] {
            check_one_order(Log { far, ..Log::default() });
        }
    }

    fn check_one_order(mut log: Log) {
        let mut rings = Rings::new();
        let mut state = 99u64;
        let mut stamps = [0u64; 40];
        for n in 1..=5000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let source = (state >> 33) % 40;
            stamps[source as usize] = n;
            rings.alloc(source as u32, n, n * 16);
        }
        for watermark in (0..=5200).step_by(100) {
            assert!(rings.run(watermark, &mut log));
        }
        let expected: String = (1..=5000).map(|n| format!("+{n} ")).collect();
        assert_eq!(log.text, expected);
    }
}
