//! Hostile blocks, for `HEAPTRACK_FUZZ_SECONDS` (default 2): a replay counts them or calls them damaged, never panics,
//! and its totals are those of its sites. A failure prints its seed; `HEAPTRACK_FUZZ_SEED` runs that one first.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
use analysis::{Lookup, Replay, Report};
use format::*;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn blocks(rng: &mut Rng) -> Vec<RawBlock> {
    let module = |instance, path: &str| Module { instance, path: path.into(), ..Module::default() };
    let mut blocks = vec![Module::to_block(&[module(1, "/a"), module(2, "/b"), module(3, "/a")])];
    let (mut stacks, mut infos, mut events) = (StackEncoder::new(), InfoEncoder::new(), EventEncoder::new());
    let (mut known_stacks, mut known_infos) = (0, 0);
    let mut live = Vec::new();
    for _ in 0..4 {
        for _ in 0..1 + rng.below(5) {
            let parent = rng.below(known_stacks as usize + 1) as u32;
            known_stacks = stacks.push(parent, Frame::new(rng.below(4) as u16, rng.next() & 0xfff, false));
            known_infos = infos.push(rng.next() >> rng.below(40).max(16), known_stacks) + 1;
        }
        for _ in 0..rng.below(200) {
            match rng.below(20) {
                0 => events.thread(rng.below(3) as u32),
                1 => events.time(events.next_sequence() * 50_000),
                2 => events.unknown_free(),
                3 if rng.below(20) == 0 => {
                    events.image(rng.below(4) as u32);
                    live.clear();
                }
                4..10 if !live.is_empty() => {
                    let at = rng.below(live.len());
                    let sequence = live.swap_remove(at);
                    if rng.below(4) == 0 { events.free_by_realloc(sequence) } else { events.free(sequence) }
                }
                _ => live.push(events.alloc(rng.below(known_infos as usize) as u32)),
            }
        }
        blocks.extend([stacks.take(), infos.take(), events.take()]);
    }
    blocks
}

fn replay(blocks: &[RawBlock]) -> Report {
    let mut replay = Replay::new();
    blocks.iter().for_each(|block| replay.add(block));
    replay.finish()
}

/// What must hold for any file, honest or not.
fn check(report: &Report) {
    let totals = &report.totals;
    let sum = |field: fn(&analysis::Costs) -> u64| report.sites.iter().map(|site| field(&site.costs)).sum::<u64>();
    assert_eq!(sum(|costs| costs.allocations), totals.allocations);
    assert_eq!(sum(|costs| costs.temporary), totals.temporary);
    assert_eq!(sum(|costs| costs.live_allocations), totals.leaked_allocations);
    assert_eq!(sum(|costs| costs.peak_allocations), totals.peak_allocations);
    // What an image held at its end is neither freed nor leaked.
    assert!(totals.allocations >= totals.deallocations + totals.leaked_allocations);
    assert_eq!(sum(|costs| costs.peak_bytes), totals.peak_bytes);
    assert_eq!(sum(|costs| costs.live_bytes), totals.leaked_bytes);
    for site in &report.sites {
        assert!(report.frames(site.stack).count() < 1000);
    }
}

fn round(seed: u64) {
    let mut rng = Rng(seed);
    let mut blocks = blocks(&mut rng);
    let report = replay(&blocks);
    assert!(report.faults.is_empty());
    check(&report);
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(blocks.len());
        match rng.below(4) {
            0 => drop(blocks.remove(at)),
            1 => {
                let other = rng.below(blocks.len());
                blocks.swap(at, other);
            }
            2 => blocks.insert(at, blocks[at].clone()),
            _ => {
                let payload = &mut blocks[at].payload;
                let place = rng.below(payload.len());
                match rng.below(3) {
                    _ if payload.is_empty() => payload.push(rng.next() as u8),
                    0 => payload[place] ^= 1 << rng.below(8),
                    1 => payload.truncate(place),
                    _ => payload[place] = rng.next() as u8,
                }
            }
        }
    }
    check(&replay(&blocks));
    let mut lookup = Lookup::new(rng.below(100) as u64);
    for block in &blocks {
        lookup.add(block).ok();
    }
    if let Some(found) = lookup.finish() {
        assert!(found.book.frames(found.stack).count() < 1000);
    }
}

#[test]
fn hostile_blocks_are_harmless() {
    if let Some(seed) = number("HEAPTRACK_FUZZ_SEED") {
        round(seed);
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let end = Instant::now() + Duration::from_secs(number("HEAPTRACK_FUZZ_SECONDS").unwrap_or(2));
    let mut rng = Rng(clock);
    let mut rounds = 0u64;
    eprintln!("first seed {clock}");
    while Instant::now() < end {
        let seed = rng.next();
        let result = std::panic::catch_unwind(|| round(seed));
        assert!(result.is_ok(), "HEAPTRACK_FUZZ_SEED={seed}");
        rounds += 1;
    }
    eprintln!("{rounds} rounds");
}
