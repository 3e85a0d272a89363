//! How often the comparison of two simulated populations is wrong. `HEAPTRACK_SOAK=1` simulates 25 times as many.
#![allow(clippy::print_stdout, reason = "a test")]
use super::rank_sum_test;
use crate::statistics::holm;

/// Functions of a simulated program: a third of them is in every trace, a third in many, a third in few.
const FUNCTIONS: usize = 150;
const LEVEL: f64 = 0.01;

/// SplitMix64.
pub struct Chance(pub u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Between 0 and 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

/// Bytes by function and trace. Each trace has a load of its own, and each function is in some of the traces.
fn population(chance: &mut Chance, traces: usize) -> Vec<Vec<f64>> {
    let loads: Vec<f64> = (0..traces).map(|_| (0.1 * chance.normal()).exp()).collect();
    let functions = (0..FUNCTIONS).map(|function| {
        let presence = match function % 3 {
            0 => 1.0,
            1 => 0.2 + 0.7 * chance.share(),
            _ => 0.002 + 0.1 * chance.share() * chance.share(),
        };
        let mut bytes = |load: &f64| (10_000.0 * load * (0.5 * chance.normal()).exp()).round();
        let all: Vec<f64> = loads.iter().map(&mut bytes).collect();
        all.into_iter().map(|bytes| if chance.share() < presence { bytes } else { 0.0 }).collect()
    });
    functions.collect()
}

fn repetitions(quick: usize) -> usize {
    let is_soak = std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1");
    if is_soak { 25 * quick } else { quick }
}

/// How many of `pairs` equal populations differ in any function.
fn false_alarms(before: usize, after: usize, pairs: usize) -> usize {
    let mut chance = Chance((before * 1000 + after) as u64);
    let differs = |_: &usize| {
        let functions = population(&mut chance, before + after);
        let values: Vec<f64> = functions.iter().map(|all| rank_sum_test(&all[..before], &all[before..])).collect();
        holm(&values).iter().any(|p| *p <= LEVEL)
    };
    (0..pairs).filter(differs).count()
}

/// At level 0.01, at most 1 % of the pairs may differ. A normal distribution finds a difference in nearly all pairs of
/// 300 and 10 traces.
#[test]
fn equal_populations_of_any_size_do_not_differ() {
    let pairs = repetitions(40);
    for (before, after) in [(30, 30), (90, 10), (200, 20), (300, 10)] {
        let alarms = false_alarms(before, after, pairs);
        println!("{before}/{after}: {alarms} of {pairs} equal pairs differ");
        assert!(alarms * 100 <= pairs, "{before}/{after}: {alarms} of {pairs}");
    }
}

/// How many of `pairs` populations, of which one function grows by `growth`, name it. Its bytes vary by `noise`.
fn found(traces: usize, growth: f64, noise: f64, pairs: usize) -> usize {
    let mut chance = Chance((noise * 1000.0) as u64);
    let is_found = |_: &usize| {
        let functions = population(&mut chance, 2 * traces);
        let mut bytes = |growth: f64| 1e6 * (1.0 + growth) * (1.0 + noise * chance.normal());
        let before: Vec<f64> = (0..traces).map(|_| bytes(0.0)).collect();
        let after: Vec<f64> = (0..traces).map(|_| bytes(growth)).collect();
        let mut values = vec![rank_sum_test(&before, &after)];
        values.extend(functions.iter().map(|all| rank_sum_test(&all[..traces], &all[traces..])));
        holm(&values)[0] <= LEVEL
    };
    (0..pairs).filter(is_found).count()
}

#[test]
fn a_growth_of_five_percent_is_found() {
    let pairs = repetitions(20);
    for (noise, least) in [(0.02, 100), (0.03, 80), (0.05, 15)] {
        let found = found(30, 0.05, noise, pairs);
        println!("30/30, 5 % more, noise {} %: {found} of {pairs} are found", noise * 100.0);
        assert!(found * 100 >= pairs * least, "noise {noise}: {found} of {pairs}");
    }
}
