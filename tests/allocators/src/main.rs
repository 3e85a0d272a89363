//! Allocates 9,000 vectors of 1,000 to 1,006 bytes (4,000 of them on a second thread), 3,000 zeroed ones of 3,000 to 3,004 bytes, 2,000
//! aligned boxes of 512 bytes, 500 vectors of 777 bytes that leak, and 1,000 vectors that grow from 4 to 64 words by four resizes. With an
//! argument, it prints "ready" before and "done" after that, and waits for a line each time.
use std::hint::black_box;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[cfg(feature = "snmalloc")]
#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;
#[cfg(feature = "rpmalloc")]
#[global_allocator]
static ALLOCATOR: rpmalloc::RpMalloc = rpmalloc::RpMalloc;

#[repr(align(256))]
struct Aligned([u8; 512]);

#[inline(never)]
fn temporary(i: usize) {
    black_box(vec![1u8; 1000 + i % 7]);
}

#[inline(never)]
fn zeroed(i: usize) {
    black_box(vec![0u8; 3000 + i % 5]);
}

#[inline(never)]
fn aligned() {
    black_box(&Box::new(Aligned([1; 512])).0);
}

#[inline(never)]
fn leaks() {
    std::mem::forget(black_box(vec![1u8; 777]));
}

#[inline(never)]
fn grows() {
    let mut words: Vec<u64> = Vec::with_capacity(4);
    for i in 0..64 {
        words.push(black_box(i));
    }
}

fn wait(word: &str) {
    if std::env::args().len() > 1 {
        println!("{word}");
        std::io::stdin().read_line(&mut String::new()).expect("a line");
    }
}

fn main() {
    wait("ready");
    (0..5000).for_each(temporary);
    (0..3000).for_each(zeroed);
    (0..2000).for_each(|_| aligned());
    (0..500).for_each(|_| leaks());
    (0..1000).for_each(|_| grows());
    std::thread::spawn(|| (0..4000).for_each(temporary)).join().expect("no panic");
    wait("done");
}
