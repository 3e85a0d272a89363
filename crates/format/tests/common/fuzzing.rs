//! The loop of a randomized test. The tests of `analysis` use this file, too.
use fastrand::Rng;
use std::panic::RefUnwindSafe;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs rounds with random seeds for `HEAPTRACK_FUZZ_SECONDS`, or for `seconds` if that is not set.
/// `HEAPTRACK_FUZZ_SEED` is the seed of a round that runs first. A round that panics fails the test with its seed. The
/// seed of the first round is printed before it, because a round that hangs or aborts cannot print its own.
pub fn fuzz(seconds: u64, round: impl Fn(u64) + RefUnwindSafe) {
    if let Some(seed) = number("HEAPTRACK_FUZZ_SEED") {
        round(seed);
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let end = Instant::now() + Duration::from_secs(number("HEAPTRACK_FUZZ_SECONDS").unwrap_or(seconds));
    let (mut rng, mut rounds) = (Rng::with_seed(clock), 0u64);
    let mut seed = clock;
    eprintln!("first round: HEAPTRACK_FUZZ_SEED={seed}");
    while Instant::now() < end {
        assert!(std::panic::catch_unwind(|| round(seed)).is_ok(), "HEAPTRACK_FUZZ_SEED={seed}");
        rounds += 1;
        seed = rng.u64(..);
    }
    eprintln!("{rounds} rounds");
}
