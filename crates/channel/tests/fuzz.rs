//! Decodes hostile ring words, for `HEAPTRACK_FUZZ_SECONDS` (default 2). The decoder must never panic, must always
//! advance, and must return the events before the damage unchanged. A failure prints its seed.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
use channel::{Decoder, Event, Kind, MAX_SIZE, encode_alloc, encode_free, encode_mark};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Makes valid records. Returns their words, and their events with the position where each ends.
fn honest(rng: &mut Rng) -> (Vec<u64>, Vec<(Event, usize)>) {
    let mut words = Vec::new();
    let mut events = Vec::new();
    for _ in 0..rng.below(60) {
        let stamp = rng.next() >> 3;
        let address = rng.next() >> 16;
        let event = match rng.below(5) {
            0 => {
                words.push(Kind::Skip as u64);
                continue;
            }
            1 => {
                let size = rng.next() & MAX_SIZE;
                let stack = rng.next() as u32;
                words.extend(encode_alloc(stamp, address, size, stack));
                Event::Alloc { stamp, address, size, stack }
            }
            2 => {
                let by_realloc = rng.below(2) == 0;
                let kind = if by_realloc { Kind::FreeByRealloc } else { Kind::Free };
                words.extend(encode_free(kind, stamp, address));
                Event::Free { stamp, address, by_realloc }
            }
            3 => {
                let tid = rng.next() as u32;
                words.extend(encode_mark(Kind::ThreadStart, stamp, tid));
                Event::ThreadStart { stamp, tid }
            }
            _ => {
                let image = rng.next() as u32;
                words.extend(encode_mark(Kind::Image, stamp, image));
                Event::Image { stamp, image }
            }
        };
        events.push((event, words.len()));
    }
    (words, events)
}

fn round(seed: u64) {
    let mut rng = Rng(seed);
    let (mut words, events) = honest(&mut rng);
    let mut sound = words.len();
    for _ in 0..rng.below(4) {
        let at = rng.below(words.len());
        sound = sound.min(at);
        match rng.below(4) {
            _ if words.is_empty() => words.push(rng.next()),
            0 => words[at] = rng.next(),
            1 => words[at] ^= 1 << rng.below(64),
            2 => words.truncate(at),
            _ => drop(words.remove(at)),
        }
    }
    let mut decoder = Decoder::new(&words);
    let mut found = Vec::new();
    let mut left = decoder.remaining();
    while let Ok(Some(event)) = decoder.decode() {
        assert!(decoder.remaining() < left, "every event takes words");
        left = decoder.remaining();
        found.push(event);
    }
    let untouched: Vec<Event> = events.iter().filter(|(_, end)| *end <= sound).map(|(event, _)| *event).collect();
    assert_eq!(found.get(..untouched.len()), Some(&untouched[..]));
}

#[test]
fn hostile_words_are_harmless() {
    if let Some(seed) = number("HEAPTRACK_FUZZ_SEED") {
        round(seed);
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let end = Instant::now() + Duration::from_secs(number("HEAPTRACK_FUZZ_SECONDS").unwrap_or(2));
    let mut rng = Rng(clock);
    let mut rounds = 0u64;
    let mut seed = clock;
    eprintln!("first round: HEAPTRACK_FUZZ_SEED={seed}");
    while Instant::now() < end {
        let result = std::panic::catch_unwind(|| round(seed));
        assert!(result.is_ok(), "HEAPTRACK_FUZZ_SEED={seed}");
        rounds += 1;
        seed = rng.next();
    }
    eprintln!("{rounds} rounds");
}
