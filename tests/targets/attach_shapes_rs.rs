//! Prints "ready". For each line on stdin it allocates and frees through collections, boxes, closures and recursion, and
//! prints "done". For each line, 50 of the blocks have 777 bytes, and only `deep` allocates those.
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};

trait Shape {
    fn name(&self) -> String;
}
struct Circle(u32);
struct Square(u32);
impl Shape for Circle {
    #[inline(never)]
    fn name(&self) -> String {
        format!("circle number {} with a long name", self.0)
    }
}
impl Shape for Square {
    #[inline(never)]
    fn name(&self) -> String {
        format!("square number {} with an even longer name", self.0)
    }
}

#[inline(never)]
fn deep(levels: u32) -> Vec<u8> {
    if levels == 0 {
        return std::hint::black_box(Vec::with_capacity(777));
    }
    let made = deep(levels - 1);
    std::hint::black_box(made)
}

#[inline(never)]
fn work() -> usize {
    let shapes: Vec<Box<dyn Shape>> =
        (0..40).map(|i| if i % 2 == 0 { Box::new(Circle(i)) as Box<dyn Shape> } else { Box::new(Square(i)) }).collect();
    let names: BTreeMap<String, usize> = shapes.iter().map(|shape| shape.name()).enumerate().map(|(i, n)| (n, i)).collect();
    let back: HashMap<usize, String> = names.iter().map(|(name, i)| (*i, name.clone())).collect();
    let mut total = back.values().map(String::len).sum();
    for i in 0..50 {
        total += deep(i % 10).capacity();
    }
    total
}

fn main() {
    std::io::stdout().write_all(b"ready\n").unwrap();
    let mut byte = [0];
    while std::io::stdin().lock().read(&mut byte).unwrap() == 1 {
        if byte[0] == b'\n' {
            assert!(work() > 777);
            std::io::stdout().write_all(b"done\n").unwrap();
        }
    }
}
