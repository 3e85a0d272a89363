//! Rust collections that reallocate: Vec and String growth, a BTreeMap, formatting. Argument: rounds (default 20).
//! It allocates the same blocks in every run; the test takes the numbers from DHAT. It is also the Rust program of the gdb stack
//! test (recursion, closures, iterators). Prints "growth WORDS LENGTH": the entries of the map, and the length of all joined texts.
//!
//! `no_main`: Rust's own start-up reads /proc/self/maps with getline, whose buffer depends on the longest path in it.
#![no_main]
use std::collections::BTreeMap;
use std::hint::black_box;

#[inline(never)]
fn words(round: usize) -> Vec<String> {
    (0..50).map(|i| format!("word {} of round {}", i * round, round)).collect()
}

#[inline(never)]
fn nest(depth: usize, words: &[String]) -> String {
    let mut joined = words.iter().skip(depth).map(|w| w.to_uppercase()).collect::<Vec<_>>().join(" ");
    if depth > 0 {
        joined.push_str(&nest(depth - 1, words));
    }
    joined
}

/// # Safety
/// The C runtime calls it with `count` valid strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: i32, arguments: *const *const std::ffi::c_char) -> i32 {
    // SAFETY: the C runtime passes `count` strings.
    let text = (count > 1).then(|| unsafe { std::ffi::CStr::from_ptr(*arguments.add(1)) });
    let rounds = text.and_then(|text| text.to_str().ok()?.parse().ok()).unwrap_or(20);
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    let mut total = 0;
    for round in 0..rounds {
        let words = words(round);
        total += nest(round % 8, &words).len();
        for word in words {
            *index.entry(word).or_insert(0) += round;
        }
    }
    let top = vec![1u8; black_box(2_000_000)]; // the strict maximum
    black_box(&top);
    drop(top);
    println!("growth {} {}", index.len(), total);
    0
}
