//! Ends a suite that hangs, and prints where it hangs.
//!
//! The first use of the binary under test ([`crate::run::heaptrack`]) starts it. If the suite still runs long after
//! that, the watchdog prints this process, all its descendants and their threads (a thread has the name of its test),
//! with the place in the kernel where each waits. Then it kills the descendants and exits with code 101. A suite that
//! ends in time is not affected.
use crate::{process, scale};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Once;
use std::time::Duration;

/// Several times the duration of the longest suite on two cores.
fn limit() -> Duration {
    Duration::from_secs(60 * if scale::soak() { 120 } else { 20 })
}

/// Starts the watchdog of this test binary, once.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(limit());
            let below = descendants(std::process::id());
            // `eprintln!` would be captured by the test harness.
            let _ = std::io::stderr().write_all(report(&below).as_bytes());
            process::signal("KILL", &below);
            std::process::exit(101);
        });
    });
}

fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        list.split_whitespace().filter_map(|text| text.parse().ok()).collect::<Vec<u32>>()
    });
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

fn report(below: &[u32]) -> String {
    let minutes = limit().as_secs() / 60;
    let mut text = format!("\nwatchdog: this suite has not ended within {minutes} minutes. What it waits for:\n");
    for pid in [&[std::process::id()], below].concat() {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let _ = writeln!(text, "process {pid}: {}", read("cmdline").replace('\0', " "));
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let tid = task.file_name().to_string_lossy().into_owned();
            let read = |name: &str| read(&format!("task/{tid}/{name}")).trim().replace('\n', " < ");
            let state = process::state(tid.parse().unwrap_or(0)).unwrap_or('?');
            let _ = writeln!(
                text,
                "  thread {tid} {}: {state}, system call {}, {}",
                read("comm"),
                read("syscall"),
                read("stack")
            );
        }
    }
    text
}
