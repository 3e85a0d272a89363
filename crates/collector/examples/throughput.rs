//! Measures how many nanoseconds of CPU time the collector's two threads spend on an event: `throughput [EVENTS]
//! [THREADS] [LIVE] [SINK] [FILE]`.
//! LIVE is the number of addresses that a thread uses; 0 repeats the same four calls, which SINK = 2 and 3 cannot do.
//! SINK = 0 writes a trace, 1 keeps live numbers; 2 keeps live numbers, and every allocation has a new stack of 8
//! frames; 3 writes a trace of LIVE blocks that are replaced at random, with many sizes, as `bench/churn.cpp` does. If FILE is
//! given, the trace is kept there, for tests that need a very large one.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#[path = "../tests/target/mod.rs"]
mod target;

use std::time::Instant;

/// Returns the CPU time of the thread with this name, in nanoseconds.
fn cpu_ns(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_named =
        |task: &std::path::Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let text = tasks
        .map(|task| task.path())
        .find(|task| is_named(task))
        .map(|task| std::fs::read_to_string(task.join("schedstat")).unwrap_or_default());
    text.and_then(|text| text.split(' ').next().and_then(|ns| ns.parse().ok())).unwrap_or(0)
}

/// Two allocations, two frees: a pattern that the processor can predict.
fn nest(thread: &mut target::Thread, base: u64, events: u64) {
    for _ in 0..events / 4 {
        thread.alloc(base, 32, 1);
        thread.alloc(base + 64, 64, 2);
        thread.free(base + 64);
        thread.free(base);
    }
}

/// Replaces random ones of `live` blocks: 1,400 sizes, 8 stacks.
fn replace(thread: &mut target::Thread, base: u64, events: u64, live: u64) {
    let mut state = base | 1;
    let mut used = vec![0u64; live as usize];
    let mut spare: Vec<u64> = (0..live + 64).map(|n| base + n * 1424).collect();
    for n in 0..events / 2 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (state >> 33) as usize % live as usize;
        if used[at] != 0 {
            thread.free(used[at]);
            spare.push(used[at]);
        }
        let place = spare.len() - 1 - (state >> 50) as usize % 8;
        let address = spare.swap_remove(place);
        used[at] = address;
        thread.alloc(address, 16 + (state >> 20) % 1400, (n / 100 * 7 % 8 + 1) as u32);
    }
}

fn churn(thread: &mut target::Thread, base: u64, events: u64, live: u64) {
    if live == 0 {
        return nest(thread, base, events);
    }
    let mut state = base | 1;
    let mut used = vec![false; live as usize];
    for _ in 0..events {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let n = (state >> 33) % live;
        let address = base + n * 64;
        used[n as usize] ^= true;
        if !used[n as usize] {
            thread.free(address);
        } else {
            thread.alloc(address, (state >> 20) % 32 * 8, (state >> 25) as u32 % 16 + 1);
        }
    }
}

/// Every allocation has a new stack: all frames but the outermost are random.
fn new_stacks(thread: &mut target::Thread, base: u64, events: u64, live: u64) {
    const DEPTH: usize = 8;
    let (mut state, mut first) = (base | 1, 1u32);
    for n in 0..events / 2 {
        let address = base + n % live * 64;
        if n >= live {
            thread.free(address);
        }
        let mut frames = [0u64; DEPTH];
        for frame in &mut frames {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *frame = state >> 40;
        }
        frames[DEPTH - 1] = 1;
        thread.alloc_new(address, 48, first, 0, &frames);
        first = if first > 1 << 31 { 1 } else { first + DEPTH as u32 };
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).take(4).map(|word| word.parse::<u64>().unwrap());
    let (events, threads, live) =
        (numbers.next().unwrap_or(50_000_000), numbers.next().unwrap_or(1), numbers.next().unwrap_or(1000));
    let sink = numbers.next().unwrap_or(0);
    if live == 0 && sink >= 2 {
        eprintln!("throughput: SINK = {sink} needs a LIVE of at least 1");
        std::process::exit(2);
    }
    let kept = std::env::args().nth(5).map(std::path::PathBuf::from);
    let path = std::env::temp_dir().join(format!("throughput.{}.htz", std::process::id()));
    let path = kept.clone().unwrap_or(path);
    let plan = target::plan(&path, channel::Clock::Tsc);
    let watched = collector::LivePlan { setup: plan.setup, folder: plan.folder.clone(), exe: String::new(), depth: 8 };
    let recording =
        if sink == 0 || sink == 3 { collector::Recording::start(plan) } else { collector::Recording::live(watched) }
            .unwrap();
    target::start(recording.mapping());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for index in 0..threads {
            let mapping = recording.mapping();
            scope.spawn(move || {
                let mut thread = target::Thread::new(mapping, index as u32);
                thread.alloc_new(8, 8, 1, 0, &(0..16).collect::<Vec<u64>>());
                let work = match sink {
                    2 => new_stacks,
                    3 => replace,
                    _ => churn,
                };
                work(&mut thread, 0x5000_0000_0000 + (index << 36), events / threads, live);
            });
        }
    });
    let wall = start.elapsed();
    let (drain, write) = (cpu_ns("heaptrack-drain"), cpu_ns("heaptrack-write"));
    let seen = collector::Stats::get(&recording.stats().events);
    let outcome = recording.finish(format::Exit::Code(0).into()).unwrap();
    println!(
        "{} events in {:.2} s: drain {:.1} ns/event, write {:.1} ns/event, file {:.2} bytes/event, unknown {}, implied {}",
        outcome.events,
        wall.as_secs_f64(),
        drain as f64 / seen as f64,
        write as f64 / seen as f64,
        outcome.file_bytes as f64 / outcome.events as f64,
        outcome.totals.unknown_frees,
        outcome.totals.implied_frees,
    );
    if kept.is_none() {
        let _ = std::fs::remove_file(path);
    }
}
