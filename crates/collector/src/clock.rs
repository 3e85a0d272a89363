//! From stamps to nanoseconds since the session's start.
//!
//! Receives: pairs (stamp, ns), sampled throughout the session. Returns: the time of any stamp, by interpolation
//! between the pairs around it. Must hold: time never goes back, whatever stamps a hostile target writes. Stamps are
//! converted in roughly rising order, so old pairs are forgotten.
use crate::mapping::tsc;
use channel::{Clock, Header, Stamp};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The most pairs that are kept while the merge is late (a thread stopped inside a hook). Beyond that, every second
/// pair is dropped.
const MOST_PAIRS: usize = 4096;

/// Returns `Tsc` only if the kernel itself trusts the counter. Otherwise it may differ between processors.
pub fn kernel_clock() -> Clock {
    match std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Ok(name) if name.trim() == "tsc" => Clock::Tsc,
        _ => Clock::Ticks,
    }
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    stamp: Stamp,
    ns: u64,
}

#[derive(Debug)]
pub struct Timeline {
    clock: Clock,
    start: Instant,
    first: Pair,
    pairs: VecDeque<Pair>,
    last_ns: u64,
}

impl Timeline {
    /// `start` is the session's time 0.
    pub fn new(clock: Clock, start: Instant, header: &Header) -> Self {
        let mut timeline =
            Timeline { clock, start, first: Pair { stamp: 0, ns: 0 }, pairs: VecDeque::with_capacity(64), last_ns: 0 };
        timeline.sample(header);
        timeline.first = timeline.pairs.front().copied().unwrap_or(timeline.first);
        timeline
    }

    /// Returns the stamp that an event written now would get, and remembers it with its time.
    pub fn sample(&mut self, header: &Header) -> Stamp {
        let stamp = self.tick(header);
        self.push(stamp, self.now_ns());
        stamp
    }

    /// Returns the stamp that an event written now would get. Threads that may not read the counter stamp their next
    /// events with it or a later one, so the watermark of this instant holds for them too.
    pub fn tick(&self, header: &Header) -> Stamp {
        match self.clock {
            Clock::Tsc => {
                let now = tsc();
                header.ticks.fetch_max(now, Ordering::SeqCst);
                now
            }
            Clock::Ticks => header.ticks.load(Ordering::Acquire),
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn push(&mut self, stamp: Stamp, ns: u64) {
        let newest = self.pairs.len();
        if let Some(last) = self.pairs.back().copied().filter(|last| stamp <= last.stamp) {
            // Ticks do not advance while nothing happens. Two pairs then keep the first and the latest time of the
            // stamp.
            let before = newest.checked_sub(2).and_then(|index| self.pairs.get(index));
            if before.is_some_and(|before| before.stamp == last.stamp) {
                self.pairs.pop_back();
            }
            self.pairs.push_back(Pair { stamp: last.stamp, ns });
            return;
        }
        if self.pairs.len() >= MOST_PAIRS {
            let mut nth = 0;
            self.pairs.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
        self.pairs.push_back(Pair { stamp, ns });
    }

    /// Returns the number of stamps in `ns` nanoseconds, estimated from the first and the last sample. Returns 0 for
    /// ticks, because they count events and not time.
    pub fn stamps_in(&self, ns: u64) -> u64 {
        let Some(last) = self.pairs.back().filter(|_| self.clock == Clock::Tsc) else { return 0 };
        let (stamps, elapsed) = (last.stamp.saturating_sub(self.first.stamp), last.ns.saturating_sub(self.first.ns));
        if elapsed < 1_000_000 {
            // The samples are too close to know the frequency, so 3 stamps per nanosecond are assumed.
            return ns * 3;
        }
        // No processor of this kind counts more than 8 stamps per nanosecond.
        (stamps as u128 * ns as u128 / elapsed as u128).min(ns as u128 * 8) as u64
    }

    /// Returns the time of an event, which never goes back. Forgets the pairs of much earlier stamps.
    pub fn advance(&mut self, stamp: Stamp) -> u64 {
        while self.pairs.len() > 2 && self.pairs.get(1).is_some_and(|second| second.stamp < stamp) {
            self.pairs.pop_front();
        }
        self.last_ns = self.last_ns.max(self.ns(stamp));
        self.last_ns
    }

    /// Returns the time of a stamp. Outside of the known pairs, returns the time of the nearest pair.
    pub fn ns(&self, stamp: Stamp) -> u64 {
        let after = self.pairs.partition_point(|pair| pair.stamp < stamp);
        let pair = |index: usize| self.pairs.get(index);
        match (after.checked_sub(1).and_then(pair), pair(after)) {
            (Some(a), Some(b)) => {
                let (stamps, elapsed) = (b.stamp - a.stamp, b.ns.saturating_sub(a.ns));
                a.ns + ((stamp - a.stamp) as u128 * elapsed as u128 / stamps as u128) as u64
            }
            (Some(only), None) | (None, Some(only)) => only.ns,
            (None, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::mapping::tests::tight;

    fn timeline(pairs: &[(u64, u64)]) -> Timeline {
        let pairs: VecDeque<_> = pairs.iter().map(|&(stamp, ns)| Pair { stamp, ns }).collect();
        Timeline { clock: Clock::Tsc, start: Instant::now(), first: pairs[0], pairs, last_ns: 0 }
    }

    #[test]
    fn between_two_pairs_time_is_straight() {
        let mut time = timeline(&[(1000, 0), (3000, 1000), (5000, 3000)]);
        assert_eq!(time.advance(1000), 0);
        assert_eq!(time.advance(2000), 500);
        assert_eq!(time.advance(3000), 1000);
        assert_eq!(time.advance(4000), 2000);
        assert_eq!(time.advance(9000), 3000, "not beyond what was sampled");
        assert_eq!(time.advance(1500), 3000, "never back");
    }

    #[test]
    fn the_shared_word_follows_the_counter_and_never_goes_back() {
        let mapping = Mapping::create(&tight()).unwrap();
        let region = mapping.region();
        let header = region.header();
        let time = Timeline::new(Clock::Tsc, Instant::now(), header);
        let first = header.ticks.load(Ordering::Relaxed);
        assert_eq!(time.first.stamp, first);
        let second = time.tick(header);
        assert!(second > first);
        assert_eq!(header.ticks.load(Ordering::Relaxed), second);
        let ahead = second + (1 << 40);
        header.ticks.store(ahead, Ordering::Relaxed);
        assert!(time.tick(header) < ahead);
        assert_eq!(header.ticks.load(Ordering::Relaxed), ahead);
    }

    #[test]
    fn frequency_comes_from_the_whole_session() {
        let time = timeline(&[(0, 0), (3_000_000, 1_000_000)]);
        assert_eq!(time.stamps_in(1000), 3000);
    }

    #[test]
    fn ticks_stand_still_while_nothing_happens() {
        let mut time = timeline(&[(10, 0)]);
        time.push(20, 1000);
        for ns in [2000, 3000, 9_000_000] {
            time.push(20, ns);
        }
        time.push(22, 9_000_200);
        assert_eq!(time.pairs.len(), 4);
        assert_eq!((time.advance(15), time.advance(20)), (500, 1000));
        assert_eq!((time.advance(21), time.advance(22)), (9_000_100, 9_000_200));
    }

    #[test]
    fn many_pairs_are_thinned() {
        let mut time = timeline(&[(0, 0)]);
        for n in 1..20_000 {
            time.push(n * 10, n * 5);
        }
        assert!(time.pairs.len() <= MOST_PAIRS);
        assert_eq!(time.advance(10_000), 5000);
    }
}
