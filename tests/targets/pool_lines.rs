//! Like pool_lines.c, in Rust.
use std::io::BufRead;

#[inline(never)]
fn take(place: &[u8; 48]) {
    heaptrack_api::report_alloc(place.as_ptr(), place.len());
    // Something must follow the call. Otherwise it would be a tail call, and this function would be in no stack.
    std::hint::black_box(place);
}

#[inline(never)]
fn give(place: &[u8; 48]) {
    heaptrack_api::report_free(place.as_ptr());
    // Something must follow the call. Otherwise it would be a tail call, and this function would be in no stack.
    std::hint::black_box(place);
}

fn main() {
    let mut memory: Vec<[u8; 48]> = Vec::new();
    let mut held = 0;
    for line in std::io::stdin().lock().lines() {
        let n: usize = line.unwrap().trim().parse().unwrap();
        memory.iter().take(held).for_each(give);
        memory.resize(memory.len().max(n / 10 + 11), [0; 48]);
        held = 0;
        for i in 0..n {
            take(&memory[held]);
            if i % 10 == 0 {
                held += 1;
            } else {
                give(&memory[held]);
            }
        }
        println!("took {n} left {held}");
    }
}
