//! Measures how many nanoseconds it takes to count an event, best of many runs: `replay FILE [TIMES]`. Unpacking is not
//! measured.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
use analysis::Engine;
use format::{BlockKind, RawBlock, Reader};
use std::time::Duration;

/// The CPU time of this thread, so that other processes do not count.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn best(times: u32, mut work: impl FnMut()) -> Duration {
    let once = |work: &mut dyn FnMut()| {
        let start = cpu();
        work();
        cpu() - start
    };
    (0..times).map(|_| once(&mut work)).min().unwrap()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mut reader = Reader::open(words.next().unwrap()).unwrap();
    let times = words.next().map_or(10, |word| word.parse().unwrap());
    let mut blocks: Vec<RawBlock> = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        blocks.push(block.clone());
    }
    let events: u64 = blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Events)
        .map(|block| block.events().unwrap().count())
        .sum();
    let ns = |time: Duration| time.as_nanos() as f64 / events as f64;
    let feed = |mut engine: Engine| {
        blocks.iter().for_each(|block| engine.add(block));
        engine
    };
    println!("{events} events");
    println!("plain   {:.2} ns/event", ns(best(times, || drop(feed(Engine::new())))));
    println!("indexed {:.2} ns/event", ns(best(times, || drop(feed(Engine::indexed())))));
}
