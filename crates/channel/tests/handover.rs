//! Tests that the shared memory orders other memory accesses, when it hands something over from one thread to another.
//!
//! The words of the channel are atomics, so a wrong order of them is no data race. So each test also hands over plain
//! memory. If that is not ordered, ThreadSanitizer (`make soak-thread`) reports a race, whether or not it went wrong
//! this time.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test")]
use channel::{Geometry, Region, Request, Ring, SlotState, WriterMemory};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;

/// Plain memory, whose hand-over must be ordered by atomics.
struct Plain(Vec<UnsafeCell<u64>>);

// SAFETY: the tests use a word only in the thread that it was handed to. They test that this handover is ordered.
unsafe impl Sync for Plain {}

impl Plain {
    fn new(count: usize) -> Plain {
        Plain((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn get(&self, at: usize) -> u64 {
        // SAFETY: the caller was handed this word, and is the only one that uses it.
        unsafe { *self.0[at].get() }
    }

    fn set(&self, at: usize, value: u64) {
        // SAFETY: the caller was handed this word, and is the only one that uses it.
        unsafe { *self.0[at].get() = value }
    }
}

/// Checks the plain word that belongs to each word from the ring.
struct Reader<'a> {
    plain: &'a Plain,
    seen: u64,
}

impl Extend<u64> for Reader<'_> {
    fn extend<T: IntoIterator<Item = u64>>(&mut self, words: T) {
        for word in words {
            assert_eq!(word, self.seen);
            assert_eq!(self.plain.get(word as usize % self.plain.0.len()), word * 3);
            self.seen += 1;
        }
    }
}

#[test]
fn what_was_written_before_a_commit_is_there_for_the_reader() {
    const WORDS: u64 = 200_000;
    let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
    let plain = Plain::new(words.len());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let ring = Ring::new(&words, &head, &tail);
            let mut at = 0;
            while at < WORDS {
                for _ in 0..ring.room().min(WORDS - at) {
                    plain.set(at as usize % words.len(), at * 3);
                    ring.put(at, at);
                    at += 1;
                }
                ring.commit(at);
                std::thread::yield_now();
            }
        });
        let ring = Ring::new(&words, &head, &tail);
        let mut reader = Reader { plain: &plain, seen: 0 };
        while reader.seen < WORDS {
            ring.drain(&mut reader).unwrap();
            std::thread::yield_now();
        }
        writer.join().unwrap();
    });
}

/// The fixed part of the shared memory of a new session.
struct Memory {
    base: *mut u8,
    layout: Layout,
}

impl Memory {
    fn new() -> Memory {
        let layout = Layout::from_size_align(Geometry::tight(WriterMemory::NONE).fixed_len(), channel::PAGE).unwrap();
        // SAFETY: the layout is not empty.
        Memory { base: unsafe { alloc_zeroed(layout) }, layout }
    }

    fn region(&self) -> Region<'_> {
        // SAFETY: `new` has made as much memory as the geometry asks for, aligned, and it stays while `self` is
        // borrowed.
        unsafe { Region::new(self.base, Geometry::tight(WriterMemory::NONE)) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this layout; every region borrows `self`, so none is left.
        unsafe { dealloc(self.base, self.layout) };
    }
}

#[test]
fn a_slot_belongs_to_one_thread_and_then_to_the_next() {
    const THREADS: u32 = 4;
    const TURNS: u32 = 500;
    let memory = Memory::new();
    let region = memory.region();
    let plain = Plain::new(region.geometry().slots as usize);
    std::thread::scope(|scope| {
        let take_and_give_back = |tid| {
            let plain = &plain;
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let (index, owner) = region.take_slot(tid, 1).unwrap();
                    assert_eq!((owner.tid(), owner.state()), (tid, SlotState::Live));
                    plain.set(index as usize, plain.get(index as usize) + 1);
                    let slot = region.slot(index).unwrap();
                    assert!(slot.bury(owner));
                    region.give_slot_back(index, slot.owner());
                    // Another thread may take it now.
                    std::thread::yield_now();
                }
            })
        };
        let threads: Vec<_> = (1..=THREADS).map(take_and_give_back).collect();
        // Joined one by one, because ThreadSanitizer does not see the synchronisation at the end of a scope.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let sum: u64 = (0..plain.0.len()).map(|at| plain.get(at)).sum();
    assert_eq!(sum, THREADS as u64 * TURNS as u64);
}

#[test]
fn every_slot_has_one_owner_and_there_is_none_beyond_the_last() {
    let memory = Memory::new();
    let region = memory.region();
    let slots = region.geometry().slots;
    for expected in 0..slots {
        let (index, owner) = region.take_slot(expected + 1, 1).unwrap();
        assert_eq!((index, owner.tid()), (expected, expected + 1));
    }
    assert_eq!(region.take_slot(slots + 1, 1), None);
    assert!(region.slot(slots).is_none());
}

#[test]
fn what_was_written_before_a_request_is_there_for_the_collector() {
    const THREADS: u64 = 4;
    const EACH: u64 = 100;
    let memory = Memory::new();
    let requests = &memory.region().header().heaptrace.requests;
    let plain = Plain::new((THREADS * EACH) as usize);
    std::thread::scope(|scope| {
        let ask = |thread| {
            let plain = &plain;
            scope.spawn(move || {
                for number in thread * EACH..(thread + 1) * EACH {
                    plain.set(number as usize, number);
                    requests.put(Request::ByCount, number + 1);
                    // Waits until no request is in the queue. So each thread has at most one request there, and the
                    // queue is never full.
                    while requests.oldest(u64::MAX).is_some() {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let threads: Vec<_> = (0..THREADS).map(ask).collect();
        let mut seen = 0;
        while seen < THREADS * EACH {
            let Some(waiting) = requests.oldest(u64::MAX) else {
                std::thread::yield_now();
                continue;
            };
            let number = waiting.stamp - 1;
            assert_eq!(plain.get(number as usize), number);
            requests.remove(&waiting);
            seen += 1;
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(requests.missed(), 0);
}
