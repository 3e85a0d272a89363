//! The counting rules, on events made by hand, with exact numbers.
#![allow(clippy::unwrap_used, reason = "a test")]
use analysis::{Costs, Replay, Report};
use format::*;

/// A small trace: two allocation classes of 100 and 10 bytes at stacks 1 and 2, one of 0 bytes at stack 2, one of 7 at
/// stack 1.
struct Trace {
    blocks: Vec<RawBlock>,
    events: EventEncoder,
}

const BIG: u32 = 0;
const SMALL: u32 = 1;
const EMPTY: u32 = 2;
const SEVEN: u32 = 3;

impl Trace {
    fn new() -> Self {
        let mut stacks = StackEncoder::new();
        let one = stacks.push(0, Frame::new(1, 0x100, false));
        let two = stacks.push(one, Frame::new(1, 0x200, false));
        let mut alloc_classes = AllocClassEncoder::new();
        for (size, stack) in [(100, one), (10, two), (0, two), (7, one)] {
            alloc_classes.push(size, stack);
        }
        Trace { blocks: vec![stacks.take(), alloc_classes.take()], events: EventEncoder::new() }
    }

    fn report(mut self) -> Report {
        self.blocks.push(self.events.take());
        replay(&self.blocks)
    }
}

fn replay(blocks: &[RawBlock]) -> Report {
    let mut replay = Replay::new();
    blocks.iter().for_each(|block| replay.add(block));
    replay.finish()
}

fn costs(report: &Report, stack: u32) -> Costs {
    report.sites.iter().find(|site| site.stack == stack).unwrap().costs
}

#[test]
fn plain_blocks() {
    let mut trace = Trace::new();
    let big = trace.events.alloc(BIG);
    trace.events.alloc(SMALL);
    trace.events.free(big);
    trace.events.alloc(SEVEN);
    let report = trace.report();
    assert_eq!(
        report.totals,
        Totals {
            allocations: 3,
            deallocations: 1,
            allocated_bytes: 117,
            leaked_bytes: 17,
            leaked_allocations: 2,
            peak_bytes: 110,
            peak_allocations: 2,
            ..Totals::default()
        }
    );
    assert_eq!(
        costs(&report, 1),
        Costs {
            allocations: 2,
            allocated_bytes: 107,
            temporary: 0,
            deallocations: 1,
            freed_bytes: 100,
            live_bytes: 7,
            live_allocations: 1,
            kept_bytes: 7,
            kept_allocations: 1,
            peak_bytes: 100,
            peak_allocations: 1,
            size_max: 100,
            ..Costs::default()
        }
    );
    assert_eq!(
        costs(&report, 2),
        Costs {
            allocations: 1,
            allocated_bytes: 10,
            temporary: 0,
            live_bytes: 10,
            live_allocations: 1,
            kept_bytes: 10,
            kept_allocations: 1,
            peak_bytes: 10,
            peak_allocations: 1,
            size_max: 10,
            ..Costs::default()
        }
    );
    assert!(report.faults.is_empty());
    let frames: Vec<Frame> = report.frames(2).collect();
    assert_eq!(frames, [Frame::new(1, 0x200, false), Frame::new(1, 0x100, false)], "leaf first");
}

#[test]
fn of_equal_peaks_the_first_counts() {
    let mut trace = Trace::new();
    trace.events.time(100_000);
    let big = trace.events.alloc(BIG);
    trace.events.time(200_000);
    trace.events.free(big);
    for _ in 0..10 {
        trace.events.alloc(SMALL);
    }
    let report = trace.report();
    assert_eq!((report.totals.peak_bytes, report.totals.peak_allocations), (100, 1));
    assert_eq!(report.totals.peak_time_ns, 100_000);
    assert_eq!((costs(&report, 1).peak_bytes, costs(&report, 1).peak_allocations), (100, 1));
    assert_eq!((costs(&report, 2).peak_bytes, costs(&report, 2).peak_allocations), (0, 0));
}

#[test]
fn a_higher_peak_replaces_the_first_at_every_site() {
    let mut trace = Trace::new();
    let big = trace.events.alloc(BIG);
    trace.events.free(big);
    for _ in 0..11 {
        trace.events.alloc(SMALL);
    }
    trace.events.alloc(EMPTY);
    let report = trace.report();
    assert_eq!((report.totals.peak_bytes, report.totals.peak_allocations), (110, 11));
    assert_eq!((costs(&report, 1).peak_bytes, costs(&report, 1).peak_allocations), (0, 0));
    assert_eq!((costs(&report, 2).peak_bytes, costs(&report, 2).peak_allocations), (110, 11));
}

#[test]
fn zero_bytes_are_an_allocation_but_no_peak() {
    let mut trace = Trace::new();
    trace.events.alloc(EMPTY);
    let report = trace.report();
    assert_eq!((report.totals.allocations, report.totals.leaked_allocations, report.totals.leaked_bytes), (1, 1, 0));
    assert_eq!((report.totals.peak_bytes, report.totals.peak_allocations), (0, 0));
    let mut trace = Trace::new();
    trace.events.alloc(EMPTY);
    trace.events.alloc(SMALL);
    trace.events.alloc(EMPTY);
    let report = trace.report();
    assert_eq!((report.totals.peak_bytes, report.totals.peak_allocations), (10, 2));
    assert_eq!(costs(&report, 2).peak_allocations, 2);
    assert_eq!(costs(&report, 2).live_allocations, 3);
}

#[test]
fn temporary_is_freed_before_the_threads_next_allocation() {
    let mut trace = Trace::new();
    let first = trace.events.alloc(BIG);
    let second = trace.events.alloc(SMALL);
    trace.events.free(second); // temporary
    trace.events.free(first); // not temporary: the thread allocated in between
    let third = trace.events.alloc(SMALL);
    trace.events.unknown_free();
    trace.events.free(third); // temporary: only a free came between
    let report = trace.report();
    assert_eq!(report.totals.temporary, 2);
    assert_eq!((costs(&report, 1).temporary, costs(&report, 2).temporary), (0, 2));
}

#[test]
fn temporary_is_a_matter_of_one_thread() {
    let mut trace = Trace::new();
    trace.events.thread(1);
    let one = trace.events.alloc(BIG);
    trace.events.thread(2);
    let two = trace.events.alloc(SMALL);
    trace.events.thread(1);
    trace.events.free(one); // temporary: the other thread's allocation does not count
    trace.events.free(two); // not temporary: another thread's block
    trace.events.thread(2);
    let three = trace.events.alloc(SMALL);
    trace.events.thread(1);
    trace.events.free(three); // not temporary: freed by another thread
    let report = trace.report();
    assert_eq!((costs(&report, 1).temporary, costs(&report, 2).temporary), (1, 0));
    assert_eq!(report.totals.temporary, 1);
}

#[test]
fn a_thread_is_remembered_from_block_to_block() {
    let mut trace = Trace::new();
    trace.events.thread(1);
    let one = trace.events.alloc(BIG);
    trace.events.thread(2);
    let block = trace.events.take();
    trace.blocks.push(block);
    trace.events.thread(1);
    trace.events.free(one);
    assert_eq!(trace.report().totals.temporary, 1);
}

#[test]
fn a_realloc_is_a_free_and_an_allocation_and_never_temporary() {
    let mut trace = Trace::new();
    let small = trace.events.alloc(SMALL);
    trace.events.free_by_realloc(small);
    let big = trace.events.alloc(BIG);
    let report_events = trace.events.take();
    trace.blocks.push(report_events);
    trace.events.free(big); // temporary: freed by free, right after the realloc made it
    let report = trace.report();
    assert_eq!((report.totals.allocations, report.totals.deallocations), (2, 2));
    assert_eq!((report.totals.peak_bytes, report.totals.peak_allocations), (100, 1));
    assert_eq!((costs(&report, 1).temporary, costs(&report, 2).temporary), (1, 0));
}

#[test]
fn unknown_and_implied_frees_are_counted_apart() {
    let mut trace = Trace::new();
    trace.events.unknown_free();
    let small = trace.events.alloc(SMALL);
    trace.events.free_implied(small);
    trace.events.alloc(SMALL);
    let report = trace.report();
    let totals = report.totals;
    assert_eq!((totals.unknown_frees, totals.implied_frees, totals.deallocations, totals.temporary), (1, 1, 1, 0));
    assert_eq!((totals.peak_bytes, totals.leaked_bytes), (10, 10));
}

#[test]
fn what_an_image_held_is_gone_with_it() {
    let mut trace = Trace::new();
    trace.events.image(1);
    let big = trace.events.alloc(BIG);
    trace.events.alloc(SMALL);
    trace.events.image(2);
    trace.events.free(big); // the block does not exist any more: damage, not a deallocation
    trace.events.alloc(SMALL);
    let small = trace.events.alloc(SMALL);
    trace.events.free(small);
    let report = trace.report();
    assert_eq!((report.totals.leaked_bytes, report.totals.leaked_allocations), (10, 1));
    assert_eq!((report.totals.allocations, report.totals.deallocations), (4, 1));
    assert_eq!((report.totals.peak_bytes, report.totals.peak_allocations), (110, 2));
    assert_eq!((costs(&report, 1).live_bytes, costs(&report, 1).peak_bytes), (0, 100));
    assert_eq!((costs(&report, 2).live_bytes, costs(&report, 2).peak_bytes), (10, 10));
    assert_eq!(report.faults.damaged_events, 1);
}

#[test]
fn a_peak_in_the_second_image_forgets_the_first() {
    let mut trace = Trace::new();
    trace.events.image(1);
    trace.events.alloc(SMALL);
    trace.events.image(2);
    trace.events.alloc(BIG);
    let report = trace.report();
    assert_eq!((report.totals.peak_bytes, report.totals.leaked_bytes), (100, 100));
    assert_eq!((costs(&report, 1).peak_bytes, costs(&report, 2).peak_bytes), (100, 0));
}

#[test]
fn what_a_process_had_not_freed_when_it_ended_is_leaked_and_not_live() {
    let mut trace = Trace::new();
    let big = trace.events.alloc(BIG);
    trace.events.alloc(SMALL);
    trace.events.freed_by(big, Freed::Leaked);
    trace.events.alloc(SEVEN);
    let report = trace.report();
    let totals = report.totals;
    assert_eq!((totals.allocations, totals.deallocations, totals.temporary), (3, 0, 0));
    assert_eq!((totals.leaked_bytes, totals.leaked_allocations), (117, 3));
    assert_eq!((totals.peak_bytes, totals.peak_allocations), (110, 2), "the block was gone when the seven came");
    let one = costs(&report, 1);
    assert_eq!((one.live_bytes, one.kept_bytes, one.freed_bytes, one.lifetime_ns), (107, 107, 0, 0));
}

#[test]
fn what_an_exec_removed_is_neither_freed_nor_leaked() {
    let mut trace = Trace::new();
    let big = trace.events.alloc(BIG);
    trace.events.freed_by(big, Freed::Replaced);
    trace.events.alloc(SMALL);
    let report = trace.report();
    let totals = report.totals;
    assert_eq!((totals.allocations, totals.deallocations, totals.temporary), (2, 0, 0));
    assert_eq!((totals.leaked_bytes, totals.leaked_allocations, totals.peak_bytes), (10, 1, 100));
    assert_eq!((costs(&report, 1).live_bytes, costs(&report, 1).deallocations), (0, 0));
}

#[test]
fn a_block_lives_until_the_last_process_lets_go_of_it() {
    let mut trace = Trace::new();
    let big = trace.events.alloc(BIG);
    trace.events.release(big);
    let small = trace.events.alloc(SMALL);
    trace.events.freed_by(big, Freed::Dropped);
    trace.events.release(big); // it does not exist any more: damage
    trace.events.free(small);
    let report = trace.report();
    let totals = report.totals;
    assert_eq!((totals.allocations, totals.deallocations, totals.temporary), (2, 2, 1));
    assert_eq!((totals.leaked_bytes, totals.peak_bytes, totals.peak_allocations), (0, 110, 2));
    assert_eq!(report.faults.damaged_events, 1);
}

#[test]
fn a_lost_block_of_events_is_told() {
    let mut trace = Trace::new();
    trace.events.alloc(SMALL);
    let first = trace.events.take();
    let lost = trace.events.alloc(BIG);
    trace.events.take();
    trace.events.free(lost);
    trace.events.alloc(SMALL);
    trace.blocks.push(first);
    let report = trace.report();
    assert_eq!((report.faults.missing_allocations, report.faults.damaged_events), (1, 1));
    assert_eq!((report.totals.allocations, report.totals.leaked_bytes), (2, 20));
}

#[test]
fn lost_definitions_damage_only_what_needs_them() {
    let mut trace = Trace::new();
    let mut alloc_classes = AllocClassEncoder::new();
    for size in 0..4 {
        alloc_classes.push(size, 1);
    }
    alloc_classes.take();
    alloc_classes.push(50, 1);
    alloc_classes.take(); // lost: allocation class 4
    alloc_classes.push(60, 3);
    trace.blocks.push(alloc_classes.take());
    trace.events.alloc(4);
    let known = trace.events.alloc(5);
    trace.events.alloc(6);
    let report = trace.report();
    assert_eq!(report.faults.damaged_events, 2);
    assert_eq!((report.totals.allocations, report.totals.leaked_bytes), (1, 60));
    assert_eq!(known, 1);
    let frames: Vec<Frame> = report.frames(3).collect();
    assert_eq!(frames, [Frame::LOST], "stack 3 was never defined");
}

#[test]
fn a_library_loaded_twice_is_one_stack() {
    let module = |instance, path: &str| Module { instance, path: path.into(), ..Module::default() };
    let mut stacks = StackEncoder::new();
    let mut alloc_classes = AllocClassEncoder::new();
    let mut events = EventEncoder::new();
    for instance in [1, 2, 3] {
        let root = stacks.push(0, Frame::new(instance, 0x10, false));
        let leaf = stacks.push(root, Frame::new(instance, 0x20, true));
        events.alloc(alloc_classes.push(8, leaf));
    }
    let report = replay(&[
        Module::to_block(&[module(1, "/a.so"), module(2, "/b.so"), module(3, "/a.so")]),
        stacks.take(),
        alloc_classes.take(),
        events.take(),
    ]);
    let found: Vec<(u32, u64)> = report.sites.iter().map(|site| (site.stack, site.costs.live_bytes)).collect();
    assert_eq!(found, [(2, 16), (4, 8)]);
}

#[test]
fn samples_losses_and_summary_are_in_the_totals() {
    let report = replay(&[
        RssSample::to_block(&[
            RssSample { time_ns: 5, rss_bytes: 900, overhead_bytes: 100 },
            RssSample { time_ns: 9, rss_bytes: 800, overhead_bytes: 300 },
        ]),
        Losses { lost_events: 2, ..Losses::default() }.to_block(),
        Losses { lost_events: 4, ..Losses::default() }.to_block(),
        Summary { complete: true, totals: Totals { runtime_ns: 77, ..Totals::default() }, ..Summary::default() }
            .to_block(),
    ]);
    let totals = report.totals;
    assert_eq!((totals.peak_rss_bytes, totals.overhead_bytes, totals.runtime_ns), (900, 300, 77));
    assert_eq!((totals.lost_events, report.losses.lost_events), (4, 4));
    assert_eq!(report.summary.map(|summary| summary.complete), Some(true));
}

/// Compares the lazily computed peak with a replay that keeps everything and visits all sites at every event.
#[test]
fn a_naive_replay_agrees() {
    for seed in 1..40u64 {
        let mut state = seed;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let sizes = [100u64, 10, 0, 7];
        let stack_of = [1usize, 2, 2, 1];
        let mut trace = Trace::new();
        let mut live: Vec<(u64, usize)> = Vec::new();
        let (mut peak, mut at_peak) = (0, [0; 3]);
        for _ in 0..2000 {
            if live.is_empty() || random(100) < 52 {
                let alloc_class = random(4) as usize;
                live.push((trace.events.alloc(alloc_class as u32), alloc_class));
            } else {
                let at = random(live.len() as u64) as usize;
                trace.events.free(live.swap_remove(at).0);
            }
            let now: u64 = live.iter().map(|block| sizes[block.1]).sum();
            if now > peak {
                peak = now;
                at_peak = [0; 3];
                live.iter().for_each(|block| at_peak[stack_of[block.1]] += sizes[block.1]);
            }
        }
        let report = trace.report();
        assert_eq!(report.totals.peak_bytes, peak, "seed {seed}");
        assert_eq!([0, costs(&report, 1).peak_bytes, costs(&report, 2).peak_bytes], at_peak, "seed {seed}");
    }
}
