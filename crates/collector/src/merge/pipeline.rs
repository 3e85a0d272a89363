//! The merge with more than one thread.
//!
//! ```text
//! this thread         decode, number  ->|  the channels are bounded, and their slices come back to be filled again
//! heaptrack-order     sort            ->|  only with three threads
//! heaptrack-pair      pair, record    ->|  -> raw blocks
//! ```
//!
//! Receives: what `Merge::run` receives. Returns: the same events to the consumer, in the same order. Must hold: what is recorded does
//! not depend on the number of threads; all threads but the caller's are gone at the end, and everything that they worked on is here
//! again, so that nothing else in the recorder needs to know about them.
use super::consumer::Consumer;
use super::ordering::Ordering;
use super::slice::{Items, Slice};
use super::{Merge, Patience, limit};
use crate::numbering::{Definitions, Numbering};
use channel::Stamp;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope};

/// Slices that wait in a channel. Enough for the threads to run on when one of them is late, and few enough to stay in the cache.
const WAITING: usize = 4;

/// The most threads for which there is work.
pub const MOST_THREADS: usize = 3;

/// A consumer that gets its numbers from another thread.
pub trait Learner: Consumer + Send {
    /// Takes note of definitions. Comes before the events that refer to them.
    fn learn(&mut self, definitions: &mut Definitions);
    /// Called after each slice.
    fn end_slice(&mut self);
}

/// A slice on its way to the thread that pairs.
struct Passed {
    items: Items,
    definitions: Definitions,
    /// All events with keys below this are in this slice or in those before it.
    complete: u64,
}

/// A slice on its way to the thread that sorts.
struct Unsorted {
    slice: Slice,
    /// No key in the slice is below this.
    start: u64,
    definitions: Definitions,
    complete: u64,
}

impl Merge {
    /// Like `run`, with at most `threads` threads; more than `MOST_THREADS` have nothing to do. Between two slices, `relieve` may empty rings, and
    /// returns false to stop. Returns the number of threads, or an error if one could not be started; no event was taken then.
    pub fn run_in_parallel<C: Learner>(
        &mut self,
        threads: usize,
        (watermark, patience): (Stamp, Patience),
        numbers: &mut Numbering,
        consumer: &mut C,
        relieve: impl FnMut(&mut Ordering) -> bool,
    ) -> io::Result<usize> {
        let threads = threads.min(MOST_THREADS);
        let Merge { ordering, slice, pending, complete } = self;
        let (sorted, inbox) = sync_channel::<Passed>(WAITING);
        let (emptied, empty) = channel::<Items>();
        let pair = move || {
            for mut passed in inbox {
                consumer.learn(&mut passed.definitions);
                pending.accept(&mut passed.items);
                // The other end is gone when everything is decoded.
                let _ = emptied.send(passed.items);
                // What waits for an event that is not here yet is tried again with the next slice.
                pending.take(passed.complete >> 1, patience, consumer);
                consumer.end_slice();
            }
        };
        std::thread::scope(|scope| {
            let pairing = Builder::new().name("heaptrack-pair".into()).spawn_scoped(scope, pair)?;
            let sorter = Sorter { sorted, empty };
            let decoder = Decoding { ordering, limit: limit(watermark), numbers, relieve };
            let end = match threads {
                ..=2 => decoder.run(slice, move |slice, start, definitions, complete| {
                    sorter.pass_on(slice, start, definitions, complete)
                }),
                _ => decoder.run_apart(start_sorter(scope, sorter)?),
            };
            *complete = end.max(*complete);
            // The thread that sorts is gone before this one, whose inbox it held open. The scope would wait, too, but ThreadSanitizer
            // does not see how.
            pairing.join().unwrap_or_else(|panic| resume_unwind(panic));
            Ok(threads)
        })
    }
}

/// Starts the thread that sorts. Returns where it receives slices.
fn start_sorter<'scope>(
    scope: &'scope Scope<'scope, '_>,
    sorter: Sorter,
) -> io::Result<(SyncSender<Unsorted>, Receiver<Slice>)> {
    let (decoded, inbox) = sync_channel::<Unsorted>(WAITING);
    let (emptied, empty) = channel::<Slice>();
    let sort = move || {
        for Unsorted { mut slice, start, definitions, complete } in inbox {
            if !sorter.pass_on(&mut slice, start, definitions, complete) {
                return;
            }
            let _ = emptied.send(slice);
        }
    };
    Builder::new().name("heaptrack-order".into()).spawn_scoped(scope, sort)?;
    Ok((decoded, empty))
}

/// The last step before the thread that pairs.
struct Sorter {
    sorted: SyncSender<Passed>,
    /// Lists to fill again.
    empty: Receiver<Items>,
}

impl Sorter {
    /// Returns false if there is nobody to pass it on to.
    fn pass_on(&self, slice: &mut Slice, start: u64, definitions: Definitions, complete: u64) -> bool {
        slice.sort(start);
        let mut items = self.empty.try_recv().unwrap_or_default();
        std::mem::swap(&mut items, &mut slice.sorted);
        self.sorted.send(Passed { items, definitions, complete }).is_ok()
    }
}

/// The first step, on the calling thread.
struct Decoding<'a, R> {
    ordering: &'a mut Ordering,
    limit: u64,
    numbers: &'a mut Numbering,
    relieve: R,
}

impl<R: FnMut(&mut Ordering) -> bool> Decoding<'_, R> {
    /// Decodes slice after slice and passes them on. Returns the key below which every event was passed on.
    fn run(mut self, slice: &mut Slice, mut pass_on: impl FnMut(&mut Slice, u64, Definitions, u64) -> bool) -> u64 {
        let mut complete = 0;
        while (self.relieve)(self.ordering) {
            let (start, end) = self.ordering.decode(self.limit, self.numbers, slice);
            complete = end;
            if slice.count() == 0 {
                break;
            }
            let mut definitions = Definitions::default();
            self.numbers.take_new(&mut definitions);
            if !pass_on(slice, start, definitions, complete) {
                break;
            }
        }
        complete
    }

    /// The same with a thread that sorts.
    fn run_apart(self, (decoded, empty): (SyncSender<Unsorted>, Receiver<Slice>)) -> u64 {
        self.run(&mut Slice::default(), move |slice, start, definitions, complete| {
            let next = empty.try_recv().unwrap_or_default();
            let slice = std::mem::replace(slice, next);
            decoded.send(Unsorted { slice, start, definitions, complete }).is_ok()
        })
    }
}
