//! Random numbers from a seed that is printed, so that a failure can be repeated (`HEAPTRACK_SEED`).
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Chance {
    state: u64,
}

impl Chance {
    /// Takes the seed from `HEAPTRACK_SEED` or from the time, and prints it.
    pub fn new(what: &str) -> Self {
        let seed = match std::env::var("HEAPTRACK_SEED") {
            Ok(text) => text.parse().expect("HEAPTRACK_SEED is a number"),
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64),
        };
        println!("{what}: HEAPTRACK_SEED={seed}");
        Chance { state: seed | 1 }
    }

    /// xorshift64*, which is good enough to pick moments.
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in `low..high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low)
    }

    /// `count` different numbers in `low..high`, ascending. Returns fewer if the range is smaller than `count`.
    pub fn several(&mut self, count: usize, low: u64, high: u64) -> Vec<u64> {
        let mut picked = std::collections::BTreeSet::new();
        while picked.len() < count.min((high - low) as usize) {
            picked.insert(self.between(low, high));
        }
        picked.into_iter().collect()
    }
}
