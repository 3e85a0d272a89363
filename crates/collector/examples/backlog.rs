//! Measures how fast the recorder works off a backlog: `backlog [SOURCES] [LIVE] [ROUNDS] [THREADS]`.
//!
//! One thread stands in the middle of a call, so that nothing can be ordered, while the others write a million events. Then it
//! leaves the call, and the time is taken until everything is recorded. No other thread needs a processor then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
#[path = "../tests/target/mod.rs"]
mod target;

use std::time::{Duration, Instant};

const EVENTS: u64 = 1_000_000;

struct Churn {
    thread: target::Thread,
    base: u64,
    state: u64,
    used: Vec<bool>,
}

impl Churn {
    fn event(&mut self) {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let n = (self.state >> 33) as usize % self.used.len();
        let address = self.base + n as u64 * 64;
        self.used[n] ^= true;
        if !self.used[n] {
            self.thread.free(address);
        } else {
            self.thread.alloc(address, (self.state >> 20) % 32 * 8, (self.state >> 25) as u32 % 16 + 1);
        }
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>().unwrap());
    let (sources, live, rounds, threads) = (
        numbers.next().unwrap_or(8),
        numbers.next().unwrap_or(100_000),
        numbers.next().unwrap_or(10),
        numbers.next().unwrap_or(1),
    );
    let path = std::env::temp_dir().join(format!("backlog.{}.htz", std::process::id()));
    let plan = target::plan(&path, channel::Clock::Tsc);
    let recording =
        collector::Recording::start(collector::Plan { threads: target::exactly(threads as usize), ..plan }).unwrap();
    target::start(recording.mapping());
    let stopped = target::Thread::new(recording.mapping(), 0);
    let mut churns: Vec<Churn> = (1..=sources)
        .map(|index| {
            let mut thread = target::Thread::new(recording.mapping(), index as u32);
            thread.alloc_new(8 + index * 16, 8, 1, 0, &(0..16).collect::<Vec<u64>>());
            let base = 0x5000_0000_0000 + (index << 36);
            Churn { thread, base, state: base | 1, used: vec![false; (live / sources) as usize] }
        })
        .collect();
    let seen = || collector::Stats::get(&recording.stats().events);
    let mut best = Duration::MAX;
    std::thread::sleep(Duration::from_millis(300));
    let mut total = seen();
    for _ in 0..rounds {
        stopped.stop_inside(target::stamp());
        for n in 0..EVENTS {
            churns[(n % sources) as usize].event();
        }
        total += EVENTS;
        let start = Instant::now();
        stopped.stop_inside(0);
        target::wake(recording.mapping());
        while seen() < total {
            std::thread::sleep(Duration::from_micros(50));
        }
        best = best.min(start.elapsed());
    }
    println!(
        "best {:.1} ns/event, {:.1} million events a second",
        best.as_nanos() as f64 / EVENTS as f64,
        EVENTS as f64 / best.as_secs_f64() / 1e6
    );
    let outcome = recording.finish(format::Exit::Code(0).into()).unwrap();
    println!(
        "{} events, unknown {}, implied {}",
        outcome.events, outcome.totals.unknown_frees, outcome.totals.implied_frees
    );
    let _ = std::fs::remove_file(path);
}
