//! Rings that are filled by hand, and a consumer that writes down what it receives.
use super::*;
use crate::spill::Spill;
use channel::{Event, Kind, Path, Ring, StackId, encode_alloc, encode_free};
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

/// Rings that a test fills by hand.
struct Rings {
    merge: Merge,
}

impl Rings {
    fn new() -> Self {
        Self::with_bound(Store::BOUND)
    }
    /// `bound`: how many words the store keeps in memory.
    fn with_bound(bound: usize) -> Self {
        Rings { merge: Merge::new(Store::new(Spill::new(std::env::temp_dir()), bound)) }
    }
    /// Adds events in order: `"6+10a 4-20b"` is an allocation of the block a in ring 6 with the stamp 10, and then a
    /// free of the block b in ring 4 with the stamp 20.
    fn add_all(&mut self, events: &str) {
        for event in events.split_whitespace() {
            let (what, block) = event.split_at(event.len() - 1);
            let address = 0x100 * (u64::from(block.as_bytes()[0] - b'a') + 1);
            let (source, stamp) = what.split_once(['+', '-']).unwrap();
            let (source, stamp) = (source.parse().unwrap(), stamp.parse().unwrap());
            if what.contains('+') {
                self.alloc(source, stamp, address);
            } else {
                self.free(source, stamp, address);
            }
        }
    }
    fn add(&mut self, source: u32, words: &[u64]) {
        let places: Vec<_> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
        let ring = Ring::new(&places, &head, &tail);
        words.iter().enumerate().for_each(|(n, word)| ring.put(n as u64, *word));
        ring.commit(words.len() as u64);
        self.merge.ordering.drain(source, &ring).unwrap();
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

/// Writes down what it receives: `+stamp`, `-stamp`, or `!stamp` if it was forced.
#[derive(Default)]
pub struct Log {
    live: HashSet<u64>,
    text: String,
    far: bool,
}

impl NumberSource for Log {
    fn define(&mut self, _: u16, _: u32, _: &Path<'_>) {}
    fn number(&mut self, _: u32, _: u64, _: u64, stack: StackId) -> u32 {
        stack
    }
}

impl Consumer for Log {
    fn wants_slices(&self) -> bool {
        self.far
    }
    fn take(&mut self, item: &Item) -> Verdict {
        match item.event() {
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
            _ => self.text += &format!("*{} ", item.stamp()),
        }
        Verdict::Taken
    }
    fn force(&mut self, item: &Item) {
        self.text += &format!("!{} ", item.stamp());
    }
    fn is_full(&self) -> bool {
        false
    }
}

/// Empty rings, and consumers without and with `expect`.
fn near_and_far() -> [(Rings, Log); 2] {
    [false, true].map(|far| (Rings::new(), Log { far, ..Log::default() }))
}

/// Merges the events, and returns the log.
fn merged(events: &str) -> String {
    let [near, far] = near_and_far().map(|(mut rings, mut log)| {
        rings.add_all(events);
        assert!(rings.run(u64::MAX, &mut log));
        log.text
    });
    assert_eq!(near, far);
    near
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
    assert_eq!(merged("4+10a 0+20a 2-20a"), "+10 -20 +20 ");
}

#[test]
fn an_allocation_waits_for_the_free_before_it() {
    for (mut rings, mut log) in near_and_far() {
        rings.add_all("0+10a 0+11b 2+20a 2+21c 0-25b 0-30a");
        assert!(!rings.run(22, &mut log));
        assert_eq!(log.text, "+10 +11 ", "an older free may still come");
        assert!(rings.run(31, &mut log));
        assert_eq!(log.text, "+10 +11 -30 +20 +21 -25 ");
        assert!(rings.run(u64::MAX, &mut log));
        assert_eq!(log.text, "+10 +11 -30 +20 +21 -25 ", "and not seen twice");
    }
}

/// An address that several threads use in turn. The free that must come first is in the ring that is searched last.
#[test]
fn of_several_frees_the_oldest_is_meant() {
    assert_eq!(merged("6+10a 4+20a 6-21a 2-30a 2+90a 0-95a"), "+10 -21 +20 -30 +90 -95 ");
}

#[test]
fn of_several_allocations_the_oldest_is_meant() {
    assert_eq!(merged("4-20a 6+21a 2+26a 0+28b"), "+21 -20 +26 +28 ");
}

/// The same as of several frees, with a store that holds hardly anything in memory.
#[test]
fn what_is_meant_may_be_in_the_spill_file() {
    let (mut rings, mut log) = (Rings::with_bound(4), Log::default());
    rings.add_all("6+10a 4+20a 6+12i 6-21a 2-30a 2+90a 0-95a");
    assert!(rings.run(u64::MAX, &mut log));
    assert_eq!(log.text, "+10 +12 -21 +20 -30 +90 -95 ");
    assert_eq!(rings.merge.broken_words(), 0);
}

/// Threads that pass few addresses around, with stamps that are slightly early. Every event must find its partner.
#[test]
fn no_pair_is_mismatched_however_early_stamps_are() {
    // Far larger than the error of the stamps, as in a recording.
    let patience = Patience { free: 1000, alloc: 100 };
    for seed in 1..=3000u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut random = |limit: u64| rng.u64(..limit);
        let bound = if seed % 4 == 0 { 16 } else { Store::BOUND };
        let mut rings = Rings::with_bound(bound);
        let mut log = Log { far: seed % 2 == 0, ..Log::default() };
        let (mut live, mut last, mut now) = ([false; 5], [0u64; 4], 100);
        for _ in 0..200 {
            now += random(4);
            let (thread, address) = (random(4) as usize, random(5) as usize);
            // A free is stamped right after the address came from another thread, an allocation after much other work.
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
                // No later event has an older stamp than this.
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
fn a_free_that_is_not_there_yet_is_waited_for() {
    let (mut rings, mut log) = (Rings::new(), Log::default());
    rings.add_all("0+10a 2+20a 2+21c");
    assert!(!rings.run(500, &mut log));
    assert_eq!(log.text, "+10 ");
    rings.add_all("0-600a");
    assert!(rings.run(700, &mut log));
    assert_eq!(log.text, "+10 -600 +20 +21 ");
}

#[test]
fn a_free_that_never_comes_is_implied() {
    let (mut rings, mut log) = (Rings::new(), Log::default());
    rings.add_all("0+10a 2+20a");
    assert!(!rings.run(1020, &mut log));
    assert!(rings.run(1021, &mut log));
    assert_eq!(log.text, "+10 !20 ");
}

#[test]
fn a_free_that_overtook_its_allocation_waits_shortly() {
    assert_eq!(merged("0-20a 2+22a 0-40i 2+51i"), "+22 -20 !40 +51 ");
}

/// At the end of every run, an allocation waits for a free that comes later.
#[test]
fn memory_does_not_grow_while_some_event_always_waits() {
    for (mut rings, mut log) in near_and_far() {
        rings.alloc(0, 1, 0x100);
        for n in 1..2000u64 {
            let now = n * 100;
            rings.free(0, now + 50, 0x100);
            rings.alloc(2, now, 0x100);
            (1..20).for_each(|other| rings.alloc(4, now + other, n << 20 | other << 8));
            assert!(!rings.run(now + 20, &mut log));
            assert!(rings.merge.pending.held() < 100, "{}", rings.merge.pending.held());
        }
        assert!(rings.run(u64::MAX, &mut log));
        assert!(!log.text.contains('!'));
    }
}

#[test]
fn a_ring_with_garbage_stops_alone() {
    let (mut rings, mut log) = (Rings::new(), Log::default());
    rings.alloc(0, 10, 0x100);
    // A path with more frames than there are words.
    rings.add(2, &[1000 << 3 | Kind::Path as u64, 7, 7]);
    rings.alloc(0, 20, 0x200);
    rings.add(0, &[15 << 3 | Kind::Free as u64]);
    assert!(rings.run(u64::MAX, &mut log));
    assert_eq!(log.text, "+10 +20 ");
    assert!(rings.merge.ordering.is_broken(2) && rings.merge.ordering.is_broken(0));
    assert_eq!(rings.merge.broken_words(), 4);
}

#[test]
fn many_rings_give_one_order() {
    for (mut rings, mut log) in near_and_far() {
        let mut rng = fastrand::Rng::with_seed(99);
        for n in 1..=5000u64 {
            rings.alloc(rng.u32(..40), n, n * 16);
        }
        for watermark in (0..=5200).step_by(100) {
            assert!(rings.run(watermark, &mut log));
        }
        let expected: String = (1..=5000).map(|n| format!("+{n} ")).collect();
        assert_eq!(log.text, expected);
    }
}
