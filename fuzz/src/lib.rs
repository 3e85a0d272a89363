//! Shared by the fuzz targets: how they split their input, and what must hold for any trace.
use analysis::{Costs, Engine, Replay, Report};
use format::{BlockKind, Flat, RawBlock};

/// Takes numbers from the front of an input. After its end every number is 0.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        self.u64_of(2) as u16
    }

    pub fn u32(&mut self) -> u32 {
        self.u64_of(4) as u32
    }

    pub fn u64(&mut self) -> u64 {
        self.u64_of(8)
    }

    fn u64_of(&mut self, count: usize) -> u64 {
        self.bytes(count).iter().rev().fold(0, |number, byte| number << 8 | *byte as u64)
    }

    /// Takes at most `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

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

/// Checks that a replay counts the same whether or not the blocks were decoded before.
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
