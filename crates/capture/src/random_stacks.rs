//! A test that compares the memo with a plain walk, on random programs.
//!
//! Each program calls, returns, jumps, throws, and switches between stacks that it maps, unmaps and uses again.
//! Meanwhile a library is replaced by another one. At random moments the stack is taken twice: through the memo, as a
//! hook does it, and by a walk without a memo. Both must find the same frames. Unless the stack is so deep that it is
//! cut, these must include the calls that the program has made.
//!
//! The programs run in a forked child. If one reads unmapped memory, only the child is killed, and the test prints the
//! seed.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
mod functions;
mod library;
mod program;
mod random;
mod stacks;
mod taken;

use std::sync::atomic::{AtomicU64, Ordering};
use taken::Seen;

const PROGRAMS: u64 = 200;
const SOAK_PROGRAMS: u64 = 100_000;
const MESSAGE: usize = 64 << 10;

/// What the child tells its parent, in shared memory.
#[repr(C)]
struct Shared {
    seed: AtomicU64,
    seen: [AtomicU64; Seen::COUNT],
    message: [u8; MESSAGE],
}

fn first_seed() -> u64 {
    let given = std::env::var("HEAPTRACK_SEED").ok().map(|text| text.parse().unwrap());
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |age| age.as_nanos() as u64);
    given.unwrap_or_else(now)
}

fn share() -> *mut Shared {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0) };
    assert!(page != libc::MAP_FAILED);
    page.cast()
}

/// Runs the programs and exits.
fn run_all(shared: *mut Shared, first: u64, count: u64) -> ! {
    for seed in first..first.saturating_add(count) {
        // SAFETY: `share` has mapped it. The parent reads it after our end.
        let shared = unsafe { &mut *shared };
        shared.seed.store(seed, Ordering::Relaxed);
        match program::run(seed) {
            Ok(seen) => {
                for (sum, number) in shared.seen.iter().zip(seen.numbers()) {
                    sum.fetch_add(number, Ordering::Relaxed);
                }
            }
            Err(why) => {
                let length = why.len().min(MESSAGE);
                shared.message[..length].copy_from_slice(&why.as_bytes()[..length]);
                // SAFETY: ends the process at once, without the destructors of the test's other threads.
                unsafe { libc::_exit(1) };
            }
        }
    }
    // SAFETY: ends the process at once, without the destructors of the test's other threads.
    unsafe { libc::_exit(0) };
}

#[test]
fn the_memo_finds_what_a_plain_walk_finds() {
    let is_soak = std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1");
    let (first, count) = (first_seed(), if is_soak { SOAK_PROGRAMS } else { PROGRAMS });
    let shared = share();
    // SAFETY: the child has this thread only, and does not return from `run_all`. glibc makes its malloc usable there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        run_all(shared, first, count);
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` is ours to write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    // SAFETY: `share` has mapped it, and its other user has ended.
    let shared = unsafe { &*shared };
    let message = String::from_utf8_lossy(&shared.message);
    let seed = shared.seed.load(Ordering::Relaxed);
    assert_eq!(status, 0, "HEAPTRACK_SEED={seed}\n{}", message.trim_end_matches('\0'));
    let seen: Vec<u64> = shared.seen.iter().map(|number| number.load(Ordering::Relaxed)).collect();
    println!("{count} programs from HEAPTRACK_SEED={first}: {seen:?}");
    // In the order of the fields of `Seen`.
    assert!(seen.iter().all(|number| *number > 0), "the test did not test: {seen:?}");
}
