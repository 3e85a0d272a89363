//! `heaptrace` for a long time, with ever new stacks. Its memory must not grow.
use heaptrack_tests::heaptrace::{Heaptrace, Traced};
use heaptrack_tests::process::status_bytes;
use heaptrack_tests::{Chance, scale};
use std::time::{Duration, Instant};

const SOAK_SECONDS: u64 = 1800;
const TEST_SECONDS: u64 = 20;
/// How much the memory may differ between two measurements, because pages come and go.
const SLACK: u64 = 12 << 20;
/// The limit for all sites and stacks that heaptrace ever keeps, its queues, and heaptrace itself.
const MOST: u64 = 200 << 20;

#[test]
fn ever_new_stacks_leave_memory_flat() {
    let seconds = if scale::soak() { SOAK_SECONDS } else { TEST_SECONDS };
    let mut chance = Chance::new("ever_new_stacks");
    let seed = chance.between(1, 1 << 40).to_string();
    let child = Heaptrace::new([""; 0]).target("trace_new_stacks").arg(seconds.to_string()).arg(seed).start();
    let pid = child.id();
    let start = Instant::now();
    let mut looks: Vec<(f64, u64)> = Vec::new();
    while let Some(anonymous) = status_bytes(pid, "RssAnon:") {
        looks.push((start.elapsed().as_secs_f64() / seconds as f64, anonymous));
        std::thread::sleep(Duration::from_millis(50));
    }
    let traced = Traced::of(child);
    assert_eq!(traced.code, 0, "{}", traced.stderr);
    let calls: u64 = traced.stdout.trim().strip_prefix("calls ").unwrap().parse().unwrap();
    let most = |from: f64, to: f64| {
        looks.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, bytes)| *bytes).max().unwrap_or(0)
    };
    let (early, late) = (most(0.25, 0.5), most(0.75, 1.0));
    println!("{calls} calls in {seconds} s; RssAnon at most {early} early and {late} late");
    assert!(early > 0 && late <= early + SLACK, "it grows: {early} to {late}");
    assert!(late <= MOST, "{late}");
    assert_eq!(traced.parts().len(), 2, "all was freed, nothing was lost: {}", traced.stderr);
}
