//! The writer, the reader, the watermark and the slots under every interleaving with a bounded number of preemptions
//! (`bounded`). Run with `make models`.
//!
//! The models run the code that ships. With `--cfg loom` only the atomics and the barriers are loom's
//! (`channel/src/sync.rs`). The collector's membarrier is modelled by a SeqCst fence on both sides, which has the same
//! effect.
#![cfg(loom)]
#![allow(clippy::expect_used)]

#[path = "models/target.rs"]
mod target;

use channel::{Event, Host, Loss, NO_CALLS_SAID, OnFull, SlotState, model_signal};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use target::{Collector, FREE_WORDS, Settings, Target, Thread, free};

/// Loom tries every interleaving with up to this many preemptions. All interleavings would take hours.
fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Both events arrive once and in order, although the ring has room for only one of them.
#[test]
fn a_writer_that_waits_loses_nothing() {
    bounded(3, || {
        let target = Target::new(Settings { ring_words: FREE_WORDS, ..Settings::WAITS });
        let mut thread = Thread::begin(&target, 1);
        let writer = thread::spawn(move || (1..=2).for_each(|address| thread.free(address)));
        let mut collector = Collector::default();
        while collector.arrived < 2 {
            if collector.drain(&target) == 0 {
                thread::yield_now();
            }
        }
        writer.join().expect("writer");
        assert_eq!(collector.written_by, [(0, 1), (0, 2)]);
        assert_eq!(target.memory.slot(0).dropped.load(Ordering::Relaxed), 0);
    });
}

/// If a thread is killed at any point, at most one call of it is in flight. All other events have arrived or are
/// counted as dropped.
#[test]
fn a_killed_thread_leaves_one_call_unaccounted_at_most() {
    bounded(3, || {
        let target = Target::new(Settings { ring_words: 4, on_full: OnFull::Drop, ..Settings::WAITS });
        let mut thread = Thread::begin(&target, 1);
        let writer = thread::spawn(move || (1..=3).for_each(|address| thread.free(address)));
        let mut collector = Collector::default();
        collector.audit(&target, 1);
        collector.audit(&target, 1);
        writer.join().expect("writer");
        collector.audit(&target, 0);
        assert_eq!(target.memory.slot(0).events_begun(), 3);
    });
}

/// If a ring is full, events are dropped and counted, with and without system calls. Once it was emptied, it takes
/// events again.
#[test]
fn a_full_ring_drops_and_recovers() {
    const IN_SANDBOX: u32 = NO_CALLS_SAID;
    for (on_full, no_syscalls) in [(OnFull::Drop, 0), (OnFull::Wait, 0), (OnFull::Wait, IN_SANDBOX)] {
        bounded(3, move || {
            let max_stall_ms = if no_syscalls == 0 { 1 } else { 0 };
            let target = Target::new(Settings { ring_words: 4, on_full, max_stall_ms, ..Settings::WAITS });
            target.header().no_syscalls.store(no_syscalls, Ordering::Relaxed);
            let mut thread = Thread::begin(&target, 1);
            (1..=4).for_each(|address| thread.free(address));
            let slot = target.memory.slot(0);
            assert_eq!(slot.dropped.load(Ordering::Relaxed), 2, "the ring holds two");
            // The first event that found no room has used up the whole time for waits.
            let waits = if on_full == OnFull::Wait && no_syscalls == 0 { 1 } else { 0 };
            assert_eq!(target.waits.load(Ordering::Relaxed), waits);
            let writer = thread::spawn(move || {
                thread.free(5);
                thread
            });
            let mut collector = Collector::default();
            collector.audit(&target, 1);
            let mut thread = writer.join().expect("writer");
            collector.audit(&target, 0);
            let dropped = target.memory.slot(0).dropped.load(Ordering::Relaxed);
            (6..=7).for_each(|address| thread.free(address));
            collector.audit(&target, 0);
            let slot = target.memory.slot(0);
            assert_eq!(slot.dropped.load(Ordering::Relaxed), dropped, "an empty ring takes events again");
            assert_eq!(target.header().losses[Loss::RingFull as usize].load(Ordering::Relaxed), dropped);
            assert_eq!(collector.arrived + dropped, 7);
        });
    }
}

/// One thread frees an address and another one allocates it. The free is merged first, and no event arrives below a
/// watermark that the collector has already used.
#[test]
fn a_free_is_merged_before_the_next_allocation_of_its_address() {
    bounded(2, || {
        let target = Target::new(Settings { slots: 2, ..Settings::WAITS });
        let heap = Arc::new(AtomicU64::new(0));
        let (mut first, mut second) = (Thread::begin(&target, 1), Thread::begin(&target, 2));
        let frees = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                first.free(7);
                heap.store(7, Ordering::Release);
            })
        };
        let allocates = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                if heap.load(Ordering::Acquire) == 7 {
                    second.allocate(7);
                }
            })
        };
        let mut collector = Collector::default();
        collector.round(&target);
        frees.join().expect("the thread that frees");
        allocates.join().expect("the thread that allocates");
        collector.finish(&target);
        assert_eq!(collector.place_of(false, 7), Some(0));
        assert!(matches!(collector.place_of(true, 7), None | Some(1)));
    });
}

/// As in the model above, a free is merged before the next allocation of its address. Here the first thread records
/// alone and skips the clock when the second one begins. Either thread may allocate an address that the other one has
/// freed.
#[test]
fn a_thread_that_counts_is_in_order_with_the_second_thread() {
    bounded(2, || {
        let target = Target::new(Settings { slots: 2, ring_words: 16, may_count: true, ..Settings::WAITS });
        let (to_second, to_first) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut first = Thread::begin(&target, 1);
        // The clock is read for this event, and not for the next.
        first.free(100);
        let alone = {
            let (to_second, to_first) = (Arc::clone(&to_second), Arc::clone(&to_first));
            thread::spawn(move || {
                first.free(7);
                to_second.store(7, Ordering::Release);
                if to_first.load(Ordering::Acquire) == 9 {
                    first.allocate(9);
                }
            })
        };
        let newcomer = {
            let (target, to_second, to_first) = (Arc::clone(&target), Arc::clone(&to_second), Arc::clone(&to_first));
            thread::spawn(move || {
                let mut second = Thread::begin(&target, 2);
                if to_second.load(Ordering::Acquire) == 7 {
                    second.allocate(7);
                } else {
                    second.free(9);
                    to_first.store(9, Ordering::Release);
                }
            })
        };
        let mut collector = Collector::default();
        collector.round(&target);
        alone.join().expect("the first thread");
        newcomer.join().expect("the second thread");
        collector.finish(&target);
        for address in [7, 9] {
            if let Some(alloc) = collector.place_of(true, address) {
                let free = collector.place_of(false, address).expect("freed before");
                assert!(free < alloc, "{:?}", collector.merged);
            }
        }
    });
}

/// Stands for a jump out of a signal handler, which leaves the hook that the handler interrupted.
struct Jump;

/// Calls `hook`, which a jump out of a signal handler leaves at point number `point`. Returns true if the hook ended
/// before that.
fn left_by_jump(point: u32, hook: impl FnOnce()) -> bool {
    model_signal::interrupt_at(point, || resume_unwind(Box::new(Jump)));
    match catch_unwind(AssertUnwindSafe(hook)) {
        Ok(()) => assert!(model_signal::take_pending(), "the handler ran and did not jump"),
        Err(payload) if payload.is::<Jump>() => return false,
        Err(payload) => resume_unwind(payload),
    }
    true
}

/// A jump leaves a hook at any point. Its event arrives or is counted as lost, and the next event is not damaged.
#[test]
fn a_hook_that_is_left_by_a_jump_is_recorded_or_counted() {
    let mut reached = 0;
    for point in 0.. {
        let came_to_end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let noted = std::sync::Arc::clone(&came_to_end);
        bounded(3, move || {
            let target = Target::new(Settings { on_full: OnFull::Drop, ..Settings::WAITS });
            let mut thread = Thread::begin(&target, 1);
            let noted = std::sync::Arc::clone(&noted);
            let writer = thread::spawn(move || {
                if left_by_jump(point, || thread.free(1)) {
                    noted.store(true, std::sync::atomic::Ordering::Relaxed);
                } else {
                    thread.writer().abandon(true);
                }
                thread.free(2);
            });
            let mut collector = Collector::default();
            collector.audit(&target, 1);
            writer.join().expect("writer");
            collector.audit(&target, 0);
            let lost = target.header().losses[Loss::Abandoned as usize].load(Ordering::Relaxed);
            assert_eq!(collector.arrived + lost, 2, "each event is recorded, or lost once");
            assert_eq!(collector.written_by.last(), Some(&(0, 2)));
        });
        if came_to_end.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        reached += 1;
    }
    assert_eq!(reached, 4, "the intent, the clock, and two points after the commit");
}

/// A signal handler interrupts a hook at any point and writes to the other ring. Events that begin after the handler
/// has returned are merged after the handler's, also if the thread records alone and skips the clock. The watermark
/// does not pass events of either ring.
#[test]
fn events_of_a_handler_are_in_order_with_those_after_it() {
    for point in 0..4 {
        bounded(2, move || {
            let target = Target::new(Settings { ring_words: 16, may_count: true, ..Settings::WAITS });
            let thread = Box::leak(Box::new(Thread::begin(&target, 1)));
            thread.free(1);
            // The handler uses the ring that the interrupted hook does not use.
            let handler = std::ptr::from_mut(thread);
            let writer = thread::spawn(AssertSend(handler).calls(move |thread| {
                for (first, second) in [(2, 3), (4, 5)] {
                    model_signal::interrupt_at(
                        point,
                        AssertSend(thread).calls(move |thread| in_handler(thread, first)),
                    );
                    // SAFETY: the `Thread` was leaked, and the handler uses its other ring.
                    unsafe { &mut *thread }.free(second);
                    // SAFETY: the `Thread` was leaked, and no other reference to it is in use now.
                    unsafe { &mut *thread }.free(second + 10);
                    model_signal::take_pending();
                }
            }));
            let mut collector = Collector::default();
            collector.round(&target);
            writer.join().expect("writer");
            collector.finish(&target);
            let place = |address| collector.place_of(false, address).expect("it was written");
            assert!(place(2) < place(13), "{:?}", collector.merged);
            assert!(place(13) < place(4), "{:?}", collector.merged);
            assert!(place(4) < place(15), "{:?}", collector.merged);
            assert_eq!(collector.arrived, 7);
            // SAFETY: the box was leaked above, and `writer`, the last thread that used it, has ended.
            drop(unsafe { Box::from_raw(handler) });
        });
    }
}

/// Does what `enter_nested` and a hook in a signal handler do.
fn in_handler(thread: *mut Thread, address: u64) {
    // SAFETY: the hook that is interrupted uses the state of the other ring.
    let thread = unsafe { &mut *thread };
    thread.target.header().next_round();
    free(&mut thread.nested_writer(), address);
}

/// A pointer to a `Thread` that a model's closures capture.
struct AssertSend(*mut Thread);

// SAFETY: only one thread of a model uses the pointer at a time.
unsafe impl Send for AssertSend {}

impl AssertSend {
    fn calls(self, function: impl FnOnce(*mut Thread) + Send + 'static) -> impl FnOnce() + Send + 'static {
        move || {
            let this = self;
            function(this.0)
        }
    }
}

/// Runs a thread from its begin to its end. It writes its tid and one free, whose address is the tid.
fn live(mut thread: Thread, tid: u32) -> Thread {
    thread.writer().announce(tid, || None);
    thread.free(tid as u64);
    thread.end();
    thread
}

/// Checks that every event has arrived, under the thread that wrote it, and that all slots that were used are free in
/// the end.
fn assert_all_is_there(target: &Target, mut collector: Collector, threads: u32) {
    collector.finish(target);
    (0..2).for_each(|_| collector.reap(target));
    collector.written_by.sort();
    let expected: Vec<(u32, u64)> = (1..=threads).map(|tid| (tid, tid as u64)).collect();
    assert_eq!(collector.written_by, expected);
    let starts = collector.merged.iter().filter(|event| matches!(event, Event::ThreadStart { .. })).count();
    assert_eq!(starts as u32, threads);
    for index in 0..target.memory.region().slots_used() {
        assert_eq!(target.memory.slot(index).owner().state(), SlotState::Free);
    }
}

/// A thread ends. The collector buries it while another thread with the same thread pointer begins. Whichever of the
/// two gets the slot, every event arrives under the thread that wrote it.
#[test]
fn a_slot_is_buried_or_inherited() {
    bounded(2, || {
        let target = Target::new(Settings { slots: 2, ring_words: 16, ..Settings::WAITS });
        let first = Thread::begin(&target, 1);
        let heir = thread::spawn(move || {
            let dead = live(first, 1);
            // The collector may look before the next thread begins. This uses up no preemption.
            thread::yield_now();
            live(Thread::begin_after(dead, 2), 2);
        });
        let mut collector = Collector::default();
        for _ in 0..2 {
            thread::yield_now();
            collector.reap(&target);
            collector.drain(&target);
        }
        heir.join().expect("the first two threads");
        assert_all_is_there(&target, collector, 2);
    });
}

/// Threads begin and end, and the collector returns their slots. Every event arrives under the thread that wrote it.
#[test]
fn slots_go_from_thread_to_thread_with_no_event_lost() {
    bounded(2, || {
        let target = Target::new(Settings { slots: 3, ring_words: 16, ..Settings::WAITS });
        let heirs = {
            let target = Arc::clone(&target);
            thread::spawn(move || {
                let dead = live(Thread::begin(&target, 1), 1);
                live(Thread::begin_after(dead, 2), 2);
            })
        };
        let another = {
            let target = Arc::clone(&target);
            thread::spawn(move || {
                live(Thread::begin(&target, 3), 3);
            })
        };
        let mut collector = Collector::default();
        for _ in 0..2 {
            collector.drain(&target);
            collector.reap(&target);
        }
        heirs.join().expect("the first two threads");
        another.join().expect("the third thread");
        assert_all_is_there(&target, collector, 3);
    });
}
