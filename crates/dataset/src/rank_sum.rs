//! Whether two groups of numbers differ: the rank sum test of Wilcoxon, Mann and Whitney.
//!
//! Receives: the numbers of both groups. Returns: the probability that two groups of the same distribution differ this
//! much. Must hold: also if nearly all numbers are equal and one group is small, differences that arise by chance have a
//! probability below P in at most the share P of all cases.
//!
//! A rank test assumes nothing about the shape of the numbers, and outliers have no more weight than others. Equal
//! numbers share their mean rank. The distribution is counted exactly unless that takes too long.
mod exact;
#[cfg(test)]
mod populations;
mod skewed;

use exact::Exact;
use std::cmp::Ordering;

/// Tests whose counting takes at most this many steps are always counted.
const CHEAP: usize = 1 << 16;

/// Of expensive tests, only those that an approximation puts below this probability are counted.
const LIKELY: f64 = 0.2;

/// The probability that two groups of the same distribution differ this much or more, in either direction.
pub fn rank_sum_test(before: &[f64], after: &[f64]) -> f64 {
    let Some(ranks) = Ranks::new(before, after) else { return 1.0 };
    let exact = Exact::new(&ranks);
    if let Some(exact) = exact.as_ref().filter(|exact| exact.steps <= CHEAP) {
        return exact.probability();
    }
    let rough = skewed::probability(&ranks);
    exact.filter(|_| rough <= LIKELY).map_or(rough, |exact| exact.probability())
}

/// The smallest probability that the test can find between groups of these sizes: all numbers of one group are equal, and
/// below all numbers of the other group, which are equal too.
pub fn smallest_p(before: usize, after: usize) -> f64 {
    rank_sum_test(&vec![0.0; before], &vec![1.0; after])
}

/// Twice the ranks of two groups, so that mean ranks are whole.
struct Ranks {
    all: Vec<i64>,
    /// Those of the smaller group.
    small: Vec<i64>,
    /// The rank that most numbers share. That of the number 0, if most traces do not have a function.
    tied: i64,
    /// All other ranks, in order.
    untied: Vec<i64>,
}

impl Ranks {
    /// None if nothing can differ: a group is empty, or all numbers are equal.
    fn new(before: &[f64], after: &[f64]) -> Option<Self> {
        let values: Vec<f64> = before.iter().chain(after).copied().collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut all = vec![0; values.len()];
        let (mut start, mut longest, mut tied) = (0, 0, 0);
        while start < order.len() {
            let is_same = |at: &&usize| values[**at].total_cmp(&values[order[start]]) == Ordering::Equal;
            let end = start + order[start..].iter().take_while(is_same).count();
            // Ranks start + 1 to end have the mean (start + 1 + end) / 2.
            let rank = (start + 1 + end) as i64;
            order[start..end].iter().for_each(|at| all[*at] = rank);
            if end - start > longest {
                (longest, tied) = (end - start, rank);
            }
            start = end;
        }
        let mut untied: Vec<i64> = all.iter().copied().filter(|rank| *rank != tied).collect();
        untied.sort_unstable();
        let (first, second) = all.split_at(before.len());
        let small = if first.len() < second.len() { first } else { second }.to_vec();
        let can_differ = !small.is_empty() && !untied.is_empty();
        can_differ.then_some(Ranks { all, small, tied, untied })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-9 * wanted.abs(), "{found:e} instead of {wanted:e}");
    }

    /// The number of ways to choose, as a sum of logarithms would lose digits.
    fn ways(count: usize, chosen: usize) -> f64 {
        (1..=chosen).fold(1.0, |ways, at| ways * (count - chosen + at) as f64 / at as f64)
    }

    #[test]
    fn rank_sums_have_known_values() {
        close(rank_sum_test(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]), 2.0 / 70.0);
        close(rank_sum_test(&[1.0, 3.0, 5.0], &[2.0, 4.0, 6.0]), 0.7);
        close(rank_sum_test(&[1.0; 5], &[1.0; 5]), 1.0);
        close(rank_sum_test(&[], &[1.0; 5]), 1.0);
        let low: Vec<f64> = (0..30).map(f64::from).collect();
        let high: Vec<f64> = (30..60).map(f64::from).collect();
        close(rank_sum_test(&low, &high), 2.0 / ways(60, 30));
    }

    /// 300 traces of the old version and 10 of the new one, and a function that is in one new trace only: chance puts it
    /// there in 10 of 310 cases. A normal distribution says 5e-8.
    #[test]
    fn a_function_of_one_trace_is_no_difference() {
        let mut after = vec![0.0; 10];
        after[3] = 5000.0;
        close(rank_sum_test(&[0.0; 300], &after), 10.0 / 310.0);
        close(rank_sum_test(&after, &[0.0; 300]), 10.0 / 310.0);
        // In two new traces: 45 of 47,895 pairs.
        after[7] = 400.0;
        close(rank_sum_test(&[0.0; 300], &after), 45.0 / 47_895.0);
    }

    #[test]
    fn the_smallest_value_can_be_reached() {
        close(smallest_p(4, 4), 2.0 / 70.0);
        close(smallest_p(13, 13), 2.0 / ways(26, 13));
        close(smallest_p(30, 30), 2.0 / ways(60, 30));
        // All new traces have the function, and no old one: no other division is as far from the mean.
        close(smallest_p(3, 1), 0.25);
        close(smallest_p(1, 3), 0.25);
        close(smallest_p(300, 2), 1.0 / ways(302, 2));
        for (before, after) in [(13, 13), (9, 9), (40, 7), (300, 10), (200, 20), (150, 150), (2000, 3)] {
            let low: Vec<f64> = (0..before).map(f64::from).collect();
            let high: Vec<f64> = (before..before + after).map(f64::from).collect();
            let (separated, smallest) = (rank_sum_test(&low, &high), smallest_p(low.len(), high.len()));
            assert!(smallest <= separated * (1.0 + 1e-9), "{before}/{after}: {smallest:e} {separated:e}");
        }
    }
}
