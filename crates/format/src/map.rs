//! A hash map for integers: one multiplication instead of the much slower SipHash. Hostile keys can only slow down the
//! reading of their own file.
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub type IntMap<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
pub type IntSet<K> = HashSet<K, BuildHasherDefault<Mix>>;

#[derive(Clone, Copy, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(*byte as u64);
        }
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(value as u64);
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value as u64);
    }
    fn write_u64(&mut self, value: u64) {
        // The map takes its bucket from the low bits and its tag from the high ones, but a product mixes upwards only.
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}
