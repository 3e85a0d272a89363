//! The decision which blocks a sampled recording follows.
//!
//! Bytes of allocations are counted, and the distances between two sample points are exponentially distributed with the
//! mean `rate`. A block is taken if at least one point is in it, so a block of size S is taken with the probability
//! 1 - exp(-S / rate). The code runs inside the target: it uses integers only, and has no loop.

/// What the collector asks for. `rate` 0 = every block is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplingSetup {
    /// The mean distance of two sample points, in bytes.
    pub rate: u64,
    /// Blocks of at least this size are all taken. 0 = no size is large enough.
    pub exact_above: u64,
    /// The sequence of sample points follows from it.
    pub seed: u64,
}

impl SamplingSetup {
    /// The size from which on every block is taken. No size is as large as `u64::MAX`.
    pub const fn exact_from(&self) -> u64 {
        if self.exact_above == 0 { u64::MAX } else { self.exact_above }
    }
}

/// The largest rate. Every weight is then far below the limits of the numbers that hold it.
pub const MAX_RATE: u64 = 16_000_000;

/// The number of bytes that a block counts for. A block without bytes counts for one, because otherwise it could not be
/// sampled.
#[inline(always)]
pub const fn sampled_bytes(size: u64) -> u64 {
    if size == 0 { 1 } else { size }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The table has the logarithms at this many steps between 1 and 2.
const STEPS: usize = 256;
/// The natural logarithm of 2, times 2^32.
const LN2: u64 = 2_977_044_472;

/// log2(1 + i / STEPS), times 2^32.
static LOGARITHMS: [u64; STEPS + 1] = logarithms();

const fn logarithms() -> [u64; STEPS + 1] {
    let mut table = [0; STEPS + 1];
    let mut i = 0;
    while i < STEPS {
        // Each squaring yields the next binary digit of the logarithm. `x` is in [1, 2), times 2^63.
        let mut x = (1 << 63) + ((i as u128) << 55);
        let mut digits = 0;
        let mut result = 0;
        while digits < 32 {
            x = (x * x) >> 63;
            result <<= 1;
            if x >> 64 != 0 {
                result |= 1;
                x >>= 1;
            }
            digits += 1;
        }
        table[i] = result;
        i += 1;
    }
    table[STEPS] = 1 << 32;
    table
}

/// The start of a thread's random numbers. `thread` counts the threads of the process.
pub const fn first_state(seed: u64, thread: u64) -> u64 {
    mix(seed ^ mix(thread.wrapping_add(GOLDEN)))
}

/// The state after this one.
#[inline(always)]
pub const fn next_state(state: u64) -> u64 {
    state.wrapping_add(GOLDEN)
}

/// The random number of a state.
const fn mix(state: u64) -> u64 {
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// How many bytes are before the next sample point, by the random number of `state`. A block that is larger than this
/// has the point in it.
pub fn gap(state: u64, rate: u64) -> u64 {
    let random = mix(state) | 1;
    let zeros = random.leading_zeros();
    // The digits after the leading one.
    let digits = random << zeros << 1;
    let step = (digits >> 56) as usize & (STEPS - 1);
    let (low, high) = match (LOGARITHMS.get(step), LOGARITHMS.get(step + 1)) {
        (Some(low), Some(high)) => (*low, *high),
        _ => (0, 0),
    };
    let between = high.wrapping_sub(low).wrapping_mul(digits << 8 >> 32) >> 32;
    // -log2(random / 2^64), times 2^32.
    let log2 = ((zeros as u64 + 1) << 32).wrapping_sub(low.wrapping_add(between));
    let exponential = (log2 as u128 * LN2 as u128) >> 32;
    ((rate as u128).wrapping_mul(exponential) >> 32) as u64
}

/// The sampler of one thread, as the target has it in its tables (`capture/src/sampling.rs`). For tests.
#[derive(Clone, Debug)]
pub struct Sampler {
    setup: SamplingSetup,
    state: u64,
    left: i64,
}

impl Sampler {
    pub fn new(setup: SamplingSetup, thread: u64) -> Self {
        let state = first_state(setup.seed, thread);
        Sampler { setup, state: next_state(state), left: gap(state, setup.rate) as i64 }
    }

    /// Returns true if a block of this size is taken.
    pub fn takes(&mut self, size: u64) -> bool {
        if size >= self.setup.exact_from() {
            return true;
        }
        self.left = self.left.wrapping_sub(sampled_bytes(size) as i64);
        if self.left >= 0 {
            return false;
        }
        self.left = gap(self.state, self.setup.rate) as i64;
        self.state = next_state(self.state);
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    /// The table and its interpolation against the processor's logarithm.
    #[test]
    fn gaps_are_logarithms() {
        let mut state = first_state(7, 1);
        for _ in 0..100_000 {
            state = next_state(state);
            let uniform = (mix(state) | 1) as f64 / 2f64.powi(64);
            let expected = -uniform.ln() * (1u64 << 29) as f64;
            let found = gap(state, 1 << 29) as f64;
            assert!((found - expected).abs() < 3000.0, "{uniform}: {found}, not {expected}");
        }
    }

    /// The share of blocks that are taken, for sizes from far below the rate to far above it.
    #[test]
    fn blocks_are_taken_with_their_probability() {
        const BLOCKS: u32 = 400_000;
        for size in [0, 1, 64, 4096, 20_000] {
            let mut sampler = Sampler::new(SamplingSetup { rate: 4096, exact_above: 0, seed: 3 }, size);
            let taken = (0..BLOCKS).filter(|_| sampler.takes(size)).count() as f64;
            let p = 1.0 - (-(sampled_bytes(size) as f64) / 4096.0).exp();
            let (expected, deviation) = (p * BLOCKS as f64, (p * (1.0 - p) * BLOCKS as f64).sqrt());
            assert!((taken - expected).abs() < 4.0 * deviation, "{size}: {taken}, not {expected} +- {deviation}");
        }
    }

    #[test]
    fn large_blocks_are_all_taken_if_asked() {
        let mut sampler = Sampler::new(SamplingSetup { rate: MAX_RATE, exact_above: 65_536, seed: 3 }, 1);
        assert!((0..1000).all(|_| sampler.takes(65_536)));
        assert!((0..1000).all(|_| !sampler.takes(1)));
    }

    #[test]
    fn the_seed_decides() {
        let points = |seed| {
            let mut sampler = Sampler::new(SamplingSetup { rate: 1000, exact_above: 0, seed }, 1);
            (0..1000).map(|_| sampler.takes(100)).collect::<Vec<_>>()
        };
        assert_eq!(points(1), points(1));
        assert_ne!(points(1), points(2));
    }
}
