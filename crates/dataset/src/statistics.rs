//! Whether two groups of numbers differ: the rank sum test of Wilcoxon, Mann and Whitney, the shift with a confidence
//! interval, and Holm's correction for many tests.
//!
//! A rank test assumes nothing about the shape of the numbers, and outliers have no more weight than others. Equal
//! numbers share their mean rank, and the variance is corrected for them. Few numbers are tested exactly.
use std::cmp::Ordering;

/// Up to this many numbers, the distribution of the rank sum is computed exactly.
const EXACT: usize = 24;

/// The z value of a 95 % confidence interval.
const Z_95: f64 = 1.959_963_985;

/// The most numbers of a side that the shift is computed of. Of more, evenly spaced quantiles stand for all.
const MOST_QUANTILES: usize = 400;

/// The probability that two groups of the same distribution differ this much or more, in either direction.
pub fn rank_sum_test(before: &[f64], after: &[f64]) -> f64 {
    let count = before.len() + after.len();
    if before.is_empty() || after.is_empty() {
        return 1.0;
    }
    let (ranks, ties) = doubled_ranks(before, after);
    let sum: u64 = ranks[before.len()..].iter().sum();
    let p = match count <= EXACT {
        true => exact(&ranks, after.len(), sum),
        false => normal(before.len(), after.len(), sum, ties),
    };
    p.clamp(0.0, 1.0)
}

/// Twice the rank of each number, so that mean ranks are whole, and the sum of t³ - t over groups of t equal numbers.
fn doubled_ranks(before: &[f64], after: &[f64]) -> (Vec<u64>, f64) {
    let all: Vec<f64> = before.iter().chain(after).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*a].total_cmp(&all[*b]));
    let mut ranks = vec![0; all.len()];
    let (mut start, mut ties) = (0, 0.0);
    while start < order.len() {
        let same = order[start..].iter().take_while(|at| all[**at].total_cmp(&all[order[start]]) == Ordering::Equal);
        let length = same.count();
        let end = start + length;
        // Ranks start + 1 to end have the mean (start + 1 + end) / 2.
        order[start..end].iter().for_each(|at| ranks[*at] = (start + 1 + end) as u64);
        ties += (length as f64).powi(3) - length as f64;
        start = end;
    }
    (ranks, ties)
}

/// Counts how many of all ways to choose `chosen` ranks have a sum that is as far from the mean as `sum` is.
fn exact(ranks: &[u64], chosen: usize, sum: u64) -> f64 {
    let total: u64 = ranks.iter().sum();
    let mut ways = vec![vec![0.0_f64; total as usize + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for count in (1..=chosen).rev() {
            for at in (rank as usize..=total as usize).rev() {
                ways[count][at] += ways[count - 1][at - rank as usize];
            }
        }
    }
    // Compared as whole numbers: |s * N - total * chosen|.
    let (count, mean) = (ranks.len() as i128, i128::from(total) * chosen as i128);
    let distance = |sum: i128| (sum * count - mean).abs();
    let limit = distance(i128::from(sum));
    let all: f64 = ways[chosen].iter().sum();
    let far = ways[chosen].iter().enumerate().filter(|(sum, _)| distance(*sum as i128) >= limit);
    far.map(|(_, ways)| ways).sum::<f64>() / all
}

fn normal(before: usize, after: usize, doubled_sum: u64, ties: f64) -> f64 {
    let (n, m) = (before as f64, after as f64);
    let count = n + m;
    let sum = doubled_sum as f64 / 2.0;
    let mean = m * (count + 1.0) / 2.0;
    let variance = n * m / 12.0 * ((count + 1.0) - ties / (count * (count - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((sum - mean).abs() - 0.5).max(0.0) / variance.sqrt();
    two_sided(z)
}

/// The probability that a normal number is at least this far from 0. The error is below 2e-7 of the result
/// (a continued fraction for large ones, a series for small ones).
fn two_sided(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 2.0 {
        let (mut term, mut sum, mut k) = (z, z, 1.0);
        while term.abs() > 1e-17 {
            term *= z * z / (2.0 * k + 1.0);
            sum += term;
            k += 1.0;
        }
        return 1.0 - 2.0 * density * sum;
    }
    let fraction = (1..=200).rev().fold(z, |below, k| z + f64::from(k) / below);
    2.0 * density / fraction
}

/// The typical difference between a number of `after` and one of `before`, and its 95 % confidence interval
/// (Hodges and Lehmann).
pub fn shift(before: &[f64], after: &[f64]) -> (f64, f64, f64) {
    let (before, after) = (quantiles(before), quantiles(after));
    let mut differences: Vec<f64> = after.iter().flat_map(|a| before.iter().map(move |b| a - b)).collect();
    if differences.is_empty() {
        return (0.0, 0.0, 0.0);
    }
    differences.sort_by(f64::total_cmp);
    let (n, m) = (before.len() as f64, after.len() as f64);
    let half = Z_95 * (n * m * (n + m + 1.0) / 12.0).sqrt();
    let low = (n * m / 2.0 - half).floor().max(0.0) as usize;
    let last = differences.len() - 1;
    let middle = (differences[last / 2] + differences[differences.len() / 2]) / 2.0;
    (middle, differences[low.min(last)], differences[last - low.min(last)])
}

fn quantiles(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= MOST_QUANTILES {
        return sorted;
    }
    let place = |at: usize| (2 * at + 1) * sorted.len() / (2 * MOST_QUANTILES);
    (0..MOST_QUANTILES).map(|at| sorted[place(at)]).collect()
}

/// Holm's correction: the probability of even one false alarm among all tests stays below a level if only those with a
/// corrected value below it are reported, however the tests depend on each other.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut corrected = vec![1.0; values.len()];
    let mut highest: f64 = 0.0;
    for (place, at) in order.into_iter().enumerate() {
        highest = highest.max(values[at] * (values.len() - place) as f64).min(1.0);
        corrected[at] = highest;
    }
    corrected
}

/// The smallest value that a test of groups of these sizes can have: 2 divided by the number of ways to divide them.
pub fn smallest_p(before: usize, after: usize) -> f64 {
    let mut p = 2.0;
    for at in 1..=before.min(after) {
        p *= at as f64 / (before.max(after) + at) as f64;
    }
    p.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1e-3), "{found} instead of {wanted}");
    }

    /// Exact values by counting, and those of the normal distribution by Python's `math.erfc`.
    #[test]
    fn rank_sums_have_known_values() {
        close(rank_sum_test(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]), 2.0 / 70.0);
        close(rank_sum_test(&[1.0, 3.0, 5.0], &[2.0, 4.0, 6.0]), 0.7);
        close(rank_sum_test(&[1.0; 5], &[1.0; 5]), 1.0);
        let low: Vec<f64> = (0..30).map(f64::from).collect();
        let high: Vec<f64> = (30..60).map(f64::from).collect();
        close(rank_sum_test(&low, &high) * 1e11, 3.019_859_359_162_15);
        let shifted: Vec<f64> = (0..30).map(|at| f64::from(at) + 5.5).collect();
        close(rank_sum_test(&low, &shifted), 0.027_086_318_388_295_96);
    }

    #[test]
    fn shifts_lie_within_their_intervals() {
        let low: Vec<f64> = (0..30).map(f64::from).collect();
        let high: Vec<f64> = low.iter().map(|value| value + 7.0).collect();
        let (middle, from, to) = shift(&low, &high);
        close(middle, 7.0);
        assert!(from < 7.0 && to > 7.0 && from > 0.0, "{from} {to}");
        assert_eq!(shift(&[1.0; 9], &[3.0; 9]), (2.0, 2.0, 2.0));
        let many: Vec<f64> = (0..5000).map(f64::from).collect();
        close(shift(&many, &many).0 + 1.0, 1.0);
    }

    #[test]
    fn many_tests_are_corrected() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
        assert_eq!(holm(&[0.6, 0.5]), [1.0, 1.0]);
        close(smallest_p(4, 4), 2.0 / 70.0);
        close(smallest_p(1, 3), 0.5);
    }
}
