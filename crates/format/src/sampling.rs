//! The estimator of a sampled recording: how much a block that was taken stands for, and how certain that is.
//!
//! A block of size S is taken with the probability p = 1 - exp(-S / rate), independently of all others, and weighs 1/p
//! blocks and S/p bytes (Horvitz and Thompson). The sum of these weights over the blocks that were taken has the sum over
//! all blocks as its mean. Its variance is estimated by the sum of (1 - p) x^2 / p^2, where x is 1 or S.
use crate::Malformed;
use crate::wire::{Cursor, put};

/// How blocks were sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The mean distance of two sample points, in bytes.
    pub rate: u64,
    /// Blocks of at least this size were all taken. 0 = no block was large enough.
    pub exact_above: u64,
}

/// What one block that was taken stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    pub blocks: f64,
    pub bytes: f64,
    /// The probability that such a block is not taken.
    pub missed: f64,
}

impl Sampling {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.rate);
        put(out, self.exact_above);
    }

    /// Reads the last fields of a Session. A recording of every block has none.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Option<Self>, Malformed> {
        if cursor.is_empty() {
            return Ok(None);
        }
        let sampling = Sampling { rate: cursor.u64()?, exact_above: cursor.u64()? };
        Ok(Some(sampling).filter(|sampling| sampling.rate > 0))
    }

    /// The bytes that a block of this size stands for, as they are counted: rounded for each allocation class.
    pub fn bytes_of_one(&self, size: u64) -> u64 {
        self.weight(size).bytes.round() as u64
    }

    pub fn weight(&self, size: u64) -> Weight {
        if self.exact_above > 0 && size >= self.exact_above {
            return Weight { blocks: 1.0, bytes: size as f64, missed: 0.0 };
        }
        // A block without bytes is taken like one with one byte.
        let share = size.max(1) as f64 / self.rate as f64;
        let p = -(-share).exp_m1();
        Weight { blocks: 1.0 / p, bytes: size as f64 / p, missed: (-share).exp() }
    }
}

/// The quantile of the normal distribution for an interval of 95 %.
const QUANTILE: f64 = 1.96;
/// How many blocks are added to those that were taken before the interval is computed. Without them the interval of few
/// blocks is too short, and that of none is empty. With them it holds the true value in at least 93.7 % of all cases if the number of
/// blocks that were taken is Poisson distributed with any mean, and its length is 0 ± 3.0 weights if none was taken.
const ADDED: f64 = 2.34;

/// The uncertainty of one sum of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Variance {
    sum: f64,
    /// The sum of the squares of the contributions.
    squares: f64,
    /// The largest contribution that a block could have.
    largest: f64,
}

impl Variance {
    /// Adds `count` blocks that were taken, each of which stands for `weight`. 0 blocks say that one might have been
    /// taken.
    pub fn add(&mut self, count: u64, weight: f64, missed: f64) {
        let one = weight * weight * missed;
        self.sum += count as f64 * one;
        self.squares += count as f64 * one * one;
        self.largest = self.largest.max(one);
    }

    pub fn merge(&mut self, other: &Variance) {
        self.sum += other.sum;
        self.squares += other.squares;
        self.largest = self.largest.max(other.largest);
    }

    /// Half the width of the 95 % interval.
    pub fn error(&self) -> u64 {
        // A few blocks with large weights make a sum less certain than many with small ones, so each counts by its weight.
        let one = if self.sum > 0.0 { self.squares / self.sum } else { self.largest };
        (QUANTILE * (self.sum + ADDED * one).sqrt()).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_stands_for_those_that_were_missed() {
        let sampling = Sampling { rate: 512 << 10, exact_above: 0 };
        let small = sampling.weight(16);
        assert!((small.blocks - 32_768.5).abs() < 0.01 && (small.bytes - 524_296.0).abs() < 0.1, "{small:?}");
        let equal = sampling.weight(512 << 10);
        assert!((equal.blocks - 1.581_976_7).abs() < 1e-6 && (equal.missed - 0.367_879_4).abs() < 1e-6, "{equal:?}");
        let large = sampling.weight(64 << 20);
        assert_eq!((large.blocks, large.bytes), (1.0, (64 << 20) as f64));
        assert_eq!(sampling.weight(0).bytes, 0.0);
        let exact = Sampling { exact_above: 4096, ..sampling };
        assert_eq!(exact.weight(4096), Weight { blocks: 1.0, bytes: 4096.0, missed: 0.0 });
        assert_ne!(exact.weight(4095).missed, 0.0);
    }

    /// Half the width, in blocks of weight 1, for numbers of blocks.
    #[test]
    fn intervals_are_those_of_counts() {
        let error = |count| {
            let mut variance = Variance::default();
            variance.add(count, 1000.0, 1.0);
            variance.error()
        };
        assert_eq!([0, 1, 6, 100].map(error), [2998, 3582, 5660, 19_828]);
        let mut mixed = Variance::default();
        mixed.add(6, 1000.0, 1.0);
        mixed.add(0, 5000.0, 1.0);
        mixed.add(9, 1000.0, 0.0);
        assert_eq!(mixed.error(), 5660, "a weight of which no block was taken counts only if none was taken at all");
        let mut exact = Variance::default();
        exact.add(5, 1000.0, 0.0);
        assert_eq!(exact.error(), 0);
    }
}
