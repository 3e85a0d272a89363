//! A bounded queue in the header page: the reports that signals to a watched target ask for.
//!
//! Any thread of the target may add a request, also in a handler that interrupts another handler. Only the collector
//! removes requests. An entry is one word, so a request is never seen half written. The order of requests is that of
//! their stamps, not of their places in the array.
use crate::numbered::numbered;
use crate::record::Stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

numbered! {
    /// What a signal to a watched target asks for.
    pub enum Request: u64 {
        /// SIGUSR1: a report of live memory, sorted by size.
        BySize = 1,
        /// SIGUSR2: a report of live memory, sorted by the number of blocks.
        ByCount = 2,
        /// SIGQUIT: begins a new measuring window.
        Window = 3,
    }
}

impl Request {
    pub const COUNT: usize = 3;
    pub const ALL: [Request; Self::COUNT] = [Request::BySize, Request::ByCount, Request::Window];
}

/// The most requests that can wait for the collector, which looks every 10 ms.
pub const MOST_REQUESTS: usize = 128;
const KIND_BITS: u32 = 2;

#[repr(C)]
pub struct Requests {
    /// `stamp << 2 | Request`, 0 = empty. The target fills an entry, the collector empties it.
    entries: [AtomicU64; MOST_REQUESTS],
    /// How many requests found the queue full. The target counts them.
    missed: AtomicU32,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub stamp: Stamp,
    pub request: Request,
    word: u64,
    at: usize,
}

#[cfg(loom)]
impl Default for Requests {
    fn default() -> Self {
        Requests { entries: core::array::from_fn(|_| AtomicU64::new(0)), missed: AtomicU32::new(0) }
    }
}

impl Requests {
    /// Adds a request. Async-signal-safe: takes no lock and a bounded number of steps.
    pub fn put(&self, request: Request, stamp: Stamp) {
        let word = stamp << KIND_BITS | request as u64;
        for entry in &self.entries {
            if entry.load(Ordering::Relaxed) == 0
                && entry.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the oldest request, or `None` if no request has a stamp of at most `watermark`.
    pub fn oldest(&self, watermark: Stamp) -> Option<Waiting> {
        let waiting = |(at, entry): (usize, &AtomicU64)| {
            let word = entry.load(Ordering::Acquire);
            let request = Request::ALL.into_iter().find(|request| *request as u64 == word & ((1 << KIND_BITS) - 1))?;
            Some(Waiting { stamp: word >> KIND_BITS, request, word, at })
        };
        let all = self.entries.iter().enumerate().filter_map(waiting);
        all.filter(|waiting| waiting.stamp <= watermark).min_by_key(|waiting| waiting.stamp)
    }

    /// Removes a request that was served.
    pub fn remove(&self, served: &Waiting) {
        if let Some(entry) = self.entries.get(served.at) {
            let _ = entry.compare_exchange(served.word, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    pub fn missed(&self) -> u32 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn requests_come_out_in_the_order_of_their_stamps() {
        let requests = Requests { entries: [const { AtomicU64::new(0) }; MOST_REQUESTS], missed: AtomicU32::new(0) };
        for stamp in [5, 3, 4, 1 << 60] {
            requests.put(if stamp == 4 { Request::Window } else { Request::ByCount }, stamp);
        }
        for expected in [(3, Request::ByCount), (4, Request::Window), (5, Request::ByCount)] {
            let waiting = requests.oldest(100);
            assert_eq!(waiting.map(|waiting| (waiting.stamp, waiting.request)), Some(expected));
            waiting.iter().for_each(|waiting| requests.remove(waiting));
        }
        assert_eq!(requests.oldest(100), None);
        assert_eq!(requests.oldest(Stamp::MAX).map(|waiting| waiting.stamp), Some(1 << 60));
        for stamp in 0..200 {
            requests.put(Request::BySize, stamp);
        }
        assert_eq!(requests.missed() as usize, 200 - (MOST_REQUESTS - 1));
    }
}
