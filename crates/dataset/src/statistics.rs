//! How large a difference is, and how sure: the shift with a confidence interval, and Holm's correction for many tests.
//! `rank_sum.rs` has the test.

/// The z value of a 95 % confidence interval.
const Z_95: f64 = 1.959_963_985;

/// The most numbers of a side that the shift is computed of. Of more, evenly spaced quantiles stand for all.
const MOST_QUANTILES: usize = 400;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1e-3), "{found} instead of {wanted}");
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
    }
}
