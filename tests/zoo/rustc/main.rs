// Input for rustc, which is the recorded program: generic code, closures and constant evaluation.
use std::collections::BTreeMap;

pub const fn collatz(n: u64) -> u32 {
    match n {
        1 => 0,
        n if n % 2 == 0 => 1 + collatz(n / 2),
        n => 1 + collatz(3 * n + 1),
    }
}

pub const LONGEST: u32 = collatz(27);

pub fn words(text: &str) -> BTreeMap<String, Vec<usize>> {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, word) in text.split_whitespace().enumerate() {
        places.entry(word.to_lowercase()).or_default().push(place);
    }
    places
}
