//! Checks for any trace. The tests of `analysis` use this file, too.
use analysis::{Costs, Engine, Replay, Report};
use format::{BlockKind, Flat, RawBlock};

/// Replays the blocks and checks what must hold for any trace, valid or not.
pub fn check_blocks(blocks: &[RawBlock]) -> Report {
    let mut replay = Replay::new();
    blocks.iter().for_each(|block| replay.add(block));
    let report = replay.finish();
    check_sums(&report);
    check_flat(blocks, &report);
    report
}

/// Checks that the totals are the sums of the sites.
fn check_sums(report: &Report) {
    let totals = &report.totals;
    let sum =
        |field: fn(&Costs) -> u64| report.sites.iter().map(|site| field(&site.costs)).fold(0, u64::saturating_add);
    assert_eq!(sum(|costs| costs.allocations), totals.allocations);
    assert_eq!(sum(|costs| costs.temporary), totals.temporary);
    assert_eq!(sum(|costs| costs.live_allocations), totals.leaked_allocations);
    assert_eq!(sum(|costs| costs.live_bytes), totals.leaked_bytes);
    assert!(totals.allocations >= totals.deallocations.saturating_add(totals.leaked_allocations));
    // The peak of folded events is taken from the file without a check.
    if report.folded_until_ns().is_none() {
        assert_eq!(sum(|costs| costs.peak_allocations), totals.peak_allocations);
        assert_eq!(sum(|costs| costs.peak_bytes), totals.peak_bytes);
    }
    for site in &report.sites {
        report.frames(site.stack).count();
    }
}

/// Checks that a replay counts the same whether or not the blocks of events were decoded in advance (`Flat`).
fn check_flat(blocks: &[RawBlock], report: &Report) {
    let (mut engine, mut flat) = (Engine::new(), Flat::default());
    for block in blocks {
        if block.kind == BlockKind::Events && flat.fill(block).is_ok() {
            engine.add_flat(&flat);
        } else {
            engine.add(block);
        }
    }
    assert_eq!(engine.totals(), report.totals);
    assert_eq!(engine.faults(), report.faults);
}
