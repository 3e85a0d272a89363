//! The distribution of the rank sum, counted.
//!
//! Receives: ranks. Returns: the probability that a random choice of as many ranks as the smaller group has is as far
//! from the mean as that group. Must hold: the numbers of steps and of cells are bounded for groups of any size.
//!
//! The ranks that are not tied are decided one after the other: each is in the smaller group or not. The members of the
//! group that remain are tied, so nothing else needs to be counted. If there are too many sums, ranks are rounded. That
//! makes the test less sharp, but not wrong: it is then an exact test of the rounded ranks.
use super::Ranks;

/// The most steps of a test, which take a few milliseconds.
const MOST_STEPS: usize = 1 << 22;

/// Ranks are not rounded to fewer steps than this. With 8, a test needs 1.6 % more traces to find the same shift.
const LEAST_LEVELS: usize = 8;

pub struct Exact<'a> {
    ranks: &'a Ranks,
    /// Ranks are rounded to multiples of this above the lowest untied one.
    step: i64,
    /// Choices with more untied ranks than this are not counted one by one. Their probability is below 1e-20, unless
    /// there are none.
    most: usize,
    /// How many steps the counting takes.
    pub steps: usize,
}

impl<'a> Exact<'a> {
    /// None if the counting takes too many steps.
    pub fn new(ranks: &'a Ranks) -> Option<Self> {
        Self::within(ranks, MOST_STEPS)
    }

    pub(super) fn within(ranks: &'a Ranks, steps: usize) -> Option<Self> {
        let (untied, chosen) = (ranks.untied.len(), ranks.small.len());
        let mean = untied as f64 * chosen as f64 / ranks.all.len() as f64;
        let most = untied.min(chosen).min((mean + 10.0 * mean.sqrt() + 20.0) as usize);
        let (lowest, highest) = (*ranks.untied.first()?, *ranks.untied.last()?);
        let unit = ranks.all.iter().fold(0, |unit, rank| divisor(unit, (rank - lowest).abs())).max(1);
        let wanted = ((highest - lowest) / unit) as usize;
        // Each untied rank changes `most` rows, which have up to `most * levels + 1` sums.
        let cells = steps / untied.saturating_mul(most).max(1);
        let possible = cells.checked_sub(1)? / most.max(1);
        if wanted > possible && possible < LEAST_LEVELS {
            return None;
        }
        let levels = wanted.min(possible);
        let step = if wanted > levels { (highest - lowest) / levels as i64 + 1 } else { unit };
        Some(Exact { ranks, step, most, steps: untied * most * (most * levels + 1) })
    }

    fn rounded(&self, rank: i64) -> i64 {
        (rank - self.ranks.untied.first().copied().unwrap_or(0)).div_euclid(self.step)
    }

    pub fn probability(&self) -> f64 {
        let (rows, beyond) = self.chances();
        let sum = |ranks: &[i64]| ranks.iter().map(|rank| i128::from(self.rounded(*rank))).sum::<i128>();
        let (count, chosen) = (self.ranks.all.len() as i128, self.ranks.small.len() as i128);
        let total = sum(&self.ranks.all);
        // Compared as whole numbers.
        let distance = |sum: i128| (sum * count - total * chosen).abs();
        let limit = distance(sum(&self.ranks.small));
        let tied = i128::from(self.rounded(self.ranks.tied));
        let far = rows.iter().enumerate().flat_map(|(untied, row)| {
            let of_tied = (chosen - untied as i128) * tied;
            row.iter().enumerate().filter(move |(sum, _)| distance(*sum as i128 + of_tied) >= limit)
        });
        (far.map(|(_, chance)| chance).sum::<f64>() + beyond).min(1.0)
    }

    /// By the number of untied ranks in the smaller group, the chance of each sum of them. Also the chance that there are
    /// more than `most`.
    fn chances(&self) -> (Vec<Vec<f64>>, f64) {
        let highest = self.ranks.untied.last().map_or(0, |rank| self.rounded(*rank) as usize);
        let mut rows: Vec<Vec<f64>> = (0..=self.most).map(|untied| vec![0.0; untied * highest + 1]).collect();
        rows[0][0] = 1.0;
        let mut beyond = 0.0;
        let (count, chosen) = (self.ranks.all.len(), self.ranks.small.len());
        for (at, rank) in self.ranks.untied.iter().enumerate() {
            let score = self.rounded(*rank) as usize;
            // The chance that the next rank is in the group, of which `has` members are known.
            let is_taken = |has: usize| (chosen - has) as f64 / (count - at) as f64;
            for has in (0..=self.most.min(at + 1)).rev() {
                let (fewer, rest) = rows.split_at_mut(has);
                let Some(row) = rest.first_mut() else { continue };
                if has == self.most {
                    beyond += row.iter().sum::<f64>() * is_taken(has);
                }
                let is_left = 1.0 - is_taken(has);
                row.iter_mut().for_each(|chance| *chance *= is_left);
                if let Some(fewer) = fewer.last() {
                    let is_taken = is_taken(has - 1);
                    row.iter_mut().skip(score).zip(fewer).for_each(|(to, from)| *to += from * is_taken);
                }
            }
        }
        (rows, beyond)
    }
}

fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts all choices, one by one.
    fn naive(before: &[f64], after: &[f64]) -> f64 {
        let ranks = Ranks::new(before, after).unwrap();
        let (count, chosen) = (ranks.all.len() as i64, ranks.small.len());
        let total: i64 = ranks.all.iter().sum();
        let distance = |sum: i64| (sum * count - total * chosen as i64).abs();
        let limit = distance(ranks.small.iter().sum());
        let choices = (0_u32..1 << count).filter(|choice| choice.count_ones() as usize == chosen);
        let of = |choice: u32| (0..count as usize).filter(|at| choice >> at & 1 == 1).map(|at| ranks.all[at]).sum();
        let (mut all, mut far) = (0, 0);
        for choice in choices {
            all += 1;
            far += i32::from(distance(of(choice)) >= limit);
        }
        f64::from(far) / f64::from(all)
    }

    #[test]
    fn the_distribution_is_that_of_all_choices() {
        let mut chance = super::super::populations::Chance(7);
        for round in 0..200 {
            let values = 1 + round % 7;
            let mut draw = |count: usize| -> Vec<f64> { (0..count).map(|_| chance.below(values) as f64).collect() };
            let (before, after) = (draw(2 + round as usize % 9), draw(1 + round as usize % 5));
            let Some(ranks) = Ranks::new(&before, &after) else { continue };
            let (found, wanted) = (Exact::new(&ranks).unwrap().probability(), naive(&before, &after));
            assert!((found - wanted).abs() < 1e-12, "{before:?} {after:?}: {found} instead of {wanted}");
        }
    }

    /// All chances add up to 1, also if ranks are rounded and large counts are not told apart.
    #[test]
    fn chances_are_complete_and_bounded() {
        for (before, after, present) in [(30, 30, 60), (300, 10, 310), (200, 20, 90), (1000, 60, 100), (5000, 500, 60)]
        {
            let value = |at: i32| f64::from((at * 7919 % (before + after) - (before + after - present)).max(0));
            let values: Vec<f64> = (0..before + after).map(value).collect();
            let ranks = Ranks::new(&values[..before as usize], &values[before as usize..]).unwrap();
            let exact = Exact::new(&ranks).unwrap();
            assert!(exact.steps <= MOST_STEPS, "{before}/{after}: {} steps", exact.steps);
            let (rows, beyond) = exact.chances();
            let sum: f64 = rows.iter().flatten().sum();
            assert!((sum + beyond - 1.0).abs() < 1e-9 && beyond < 1e-20, "{before}/{after}: {sum} {beyond:e}");
        }
    }
}
