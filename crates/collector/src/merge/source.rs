//! One ring's queue as the merge sees it: a run of its events, taken while they come before those of all other rings.
use super::consumer::{Consumer, Item, next_event};
use super::key;
use crate::queue::{Queue, Store};
use channel::Decoder;
use std::ops::ControlFlow;

#[derive(Debug, Default)]
pub struct Source {
    pub queue: Queue,
    pub in_heap: bool,
    /// The ring held a word that is no record, so everything after it is discarded.
    pub broken: bool,
    /// Events that the consumer has received.
    pub taken: u64,
}

/// How far a run got.
pub struct Run {
    /// Events that were visited.
    pub events: usize,
    /// The key of the event after them. `None` if the run ended before that event was decoded.
    pub next: Option<u64>,
}

impl Source {
    /// Passes the next events to `visit` and removes them from the queue. The run ends before an event whose key is larger than
    /// `last`, after `most` events, after an event for which `visit` returns `Break`, and at the end of the queue's first chunk.
    #[inline(always)]
    pub fn run<C: Consumer>(
        &mut self,
        store: &mut Store,
        number: u32,
        (last, most): (u64, usize),
        consumer: &mut C,
        mut visit: impl FnMut(&mut C, Item) -> ControlFlow<()>,
    ) -> Run {
        let window = self.queue.window(store);
        let words = window.len();
        let mut decoder = Decoder::new(window);
        let mut left = words;
        let mut run = Run { events: 0, next: None };
        // An error ends the run. `Merge::requeue` then decodes the same words again, and marks the source as broken.
        while let Ok(Some(event)) = next_event(&mut decoder, number, consumer) {
            if key(&event) > last || run.events == most {
                run.next = Some(key(&event));
                break;
            }
            left = decoder.remaining();
            run.events += 1;
            if visit(consumer, Item { event, source: number }).is_break() {
                break;
            }
        }
        self.queue.advance(words - left, store);
        run
    }
}
