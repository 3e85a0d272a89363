//! The distribution of the rank sum of large groups, approximated.
//!
//! Receives: ranks. Returns: the probability that a random choice is as far from the mean. A normal distribution would
//! be wrong by orders of magnitude if few numbers are untied and one group is small, because the distribution is skewed.
//! So its heavier side is that of a gamma distribution with the same mean, variance and skewness (Pearson's type III).
//! The lighter side is that of a normal distribution, which is too careful there.
use super::Ranks;

/// A skewness below this changes no digit that counts.
const NO_SKEW: f64 = 1e-4;

pub fn probability(ranks: &Ranks) -> f64 {
    let (count, chosen) = (ranks.all.len() as f64, ranks.small.len() as f64);
    let mean = ranks.all.iter().sum::<i64>() as f64 / count;
    let moment = |power: i32| ranks.all.iter().map(|rank| (*rank as f64 - mean).powi(power)).sum::<f64>();
    // Of a choice without replacement.
    let variance = chosen * (count - chosen) / (count * (count - 1.0)) * moment(2);
    let third =
        chosen * (count - chosen) * (count - 2.0 * chosen) / (count * (count - 1.0) * (count - 2.0)) * moment(3);
    if variance <= 0.0 || count <= 2.0 {
        return 1.0;
    }
    let sum = ranks.small.iter().sum::<i64>() as f64;
    // Sums are whole, and ranks are doubled: half a rank for the continuity.
    let distance = ((sum - mean * chosen).abs() - 1.0).max(0.0) / variance.sqrt();
    let skew = third / variance.powf(1.5);
    (one_side(distance, skew) + one_side(distance, -skew)).min(1.0)
}

/// The probability of more than `distance` standard deviations above the mean, by Wilson's and Hilferty's normal
/// approximation of a gamma distribution.
fn one_side(distance: f64, skew: f64) -> f64 {
    if skew < NO_SKEW {
        return upper(distance);
    }
    upper(6.0 / skew * ((skew * distance / 2.0 + 1.0).cbrt() - 1.0 + skew * skew / 36.0))
}

/// The probability that a normal number is at least this large. The error is below 2e-7 of the result (a continued
/// fraction for large numbers, a series for small ones).
fn upper(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - upper(-z);
    }
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 2.0 {
        let (mut term, mut sum, mut k) = (z, z, 1.0);
        while term.abs() > 1e-17 {
            term *= z * z / (2.0 * k + 1.0);
            sum += term;
            k += 1.0;
        }
        return 0.5 - density * sum;
    }
    let fraction = (1..=200).rev().fold(z, |below, k| z + f64::from(k) / below);
    density / fraction
}

#[cfg(test)]
mod tests {
    use super::super::exact::Exact;
    use super::super::populations::Chance;
    use super::*;

    /// Probabilities of the normal distribution by Python's `math.erfc`.
    #[test]
    fn normal_numbers_have_known_probabilities() {
        let known =
            [(0.0, 0.5), (1.0, 0.158_655_253_931_457), (3.0, 1.349_898_031_630_09e-3), (6.0, 9.865_876_450_377e-10)];
        for (z, wanted) in known {
            assert!((upper(z) / wanted - 1.0).abs() < 1e-6 && (upper(z) + upper(-z) - 1.0).abs() < 1e-12, "{z}");
        }
    }

    /// Groups of sizes that are too large to be counted in a short time. They are counted here with more steps. `present`
    /// numbers are not 0, and those of the second group are larger by `shift`.
    #[test]
    fn the_approximation_is_close_and_rarely_too_small() {
        for (before, after, present) in [(100, 100, 200), (300, 60, 200), (300, 60, 300), (400, 40, 380)] {
            for shift in [0.0, 0.15, 0.3] {
                let mut chance = Chance(99);
                let values: Vec<f64> = (0..before + after)
                    .map(|at| {
                        let number = 1.0 + chance.share() + if at < before { 0.0 } else { shift };
                        if chance.below((before + after) as u64) < present { number } else { 0.0 }
                    })
                    .collect();
                let ranks = Ranks::new(&values[..before], &values[before..]).unwrap();
                assert!(Exact::new(&ranks).is_none());
                let ratio = probability(&ranks) / Exact::within(&ranks, 1 << 27).unwrap().probability();
                assert!((0.95..4.0).contains(&ratio), "{before}/{after} {present} {shift}: {ratio}");
            }
        }
    }
}
