//! The receiver of the merged events, and what it answers to each of them.
use channel::{Decoder, Event, Path, Record, RecordError, StackId};

/// An event and the ring that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub event: Event,
    /// `2 * slot`, or `2 * slot + 1` for the slot's ring of nested events.
    pub source: u32,
}

/// The consumer's answer to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// An allocation of a live address. The free of the earlier block must come first.
    StillLive,
    /// A free of an address that is not live. Its allocation may still be in a ring.
    NotLive,
}

pub trait Consumer {
    /// True if calls of `expect` pay off: the tables are so large that they are not in the processor's caches.
    fn wants_expect(&self) -> bool;
    /// A ring defines new stacks. The same definition may come more than once.
    fn define(&mut self, source: u32, path: &Path<'_>);
    /// Returns the trace's id of a ring's stack.
    fn stack(&mut self, source: u32, number: StackId) -> u32;
    /// Announces an event some events ahead of its `take`, so that the consumer can prefetch.
    fn expect(&self, event: &Event);
    fn take(&mut self, item: &Item) -> Verdict;
    /// Takes an event that `take` refused, because the event that it misses does not come.
    fn force(&mut self, item: &Item);
    /// True if the consumer takes no more events for now.
    fn is_full(&self) -> bool;
}

/// Returns the next event of a ring, with the trace's id of its stack. Stacks that are defined before it are passed to the consumer.
#[inline(always)]
pub fn next_event(
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
