//! Rust boxes and sized vectors. There is no realloc, so sites can be compared with DHAT's one by one.
//! 64 boxes of 24 bytes and a vector of them of 512 bytes (all dropped), 10 vectors of 1000 bytes (9 dropped, one leaked), a
//! tree of 127 nodes of 24 bytes (dropped), and a vector of 50,000 bytes (dropped). Prints "boxes 2016 247".
//!
//! `no_main`: Rust's own start-up reads /proc/self/maps with getline, whose buffer depends on the longest path in it.
#![no_main]
use std::hint::black_box;

struct Node {
    left: Option<Box<Node>>,
    right: Option<Box<Node>>,
    depth: usize,
}

#[inline(never)]
fn tree(depth: usize) -> Option<Box<Node>> {
    if depth == 0 {
        return None;
    }
    Some(Box::new(Node { left: tree(depth - 1), right: tree(depth - 1), depth }))
}

#[inline(never)]
fn weigh(node: &Option<Box<Node>>) -> usize {
    node.as_ref().map_or(0, |node| node.depth + weigh(&node.left) + weigh(&node.right))
}

#[inline(never)]
fn boxes() -> u64 {
    let all: Vec<Box<[u64; 3]>> = {
        let mut all = Vec::with_capacity(64);
        for i in 0..64 {
            all.push(black_box(Box::new([i, i, i])));
        }
        all
    };
    all.iter().map(|b| b[0]).sum()
}

#[inline(never)]
fn vectors() {
    for i in 0..10u8 {
        let mut made: Vec<u8> = Vec::with_capacity(1000);
        made.push(i);
        black_box(&mut made);
        if black_box(i) == 7 {
            std::mem::forget(made);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    let sum = boxes();
    vectors();
    let root = tree(7);
    let weight = weigh(&root);
    let top: Vec<u8> = Vec::with_capacity(black_box(50_000)); // the strict maximum
    black_box(&top);
    drop(top);
    println!("boxes {sum} {weight}");
    0
}
