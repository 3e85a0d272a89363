//! 100 coroutines of `may` on its threads. A coroutine may continue on another thread than the one it began on: 100 *
//! 10 * 10 blocks.
use may::coroutine;

fn main() {
    may::config().set_workers(2).set_stack_size(0x4000);
    coroutine::scope(|_| {});
    zoo_rust::ready();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            // SAFETY: the closure does not depend on the thread that runs it.
            unsafe {
                coroutine::spawn(|| {
                    let mut sum = 0;
                    for _ in 0..10 {
                        sum += zoo_rust::blocks(10);
                        coroutine::yield_now();
                    }
                    sum
                })
            }
        })
        .collect();
    let sum: i64 = tasks.into_iter().map(|task| task.join().expect("a sum")).sum();
    println!("{sum}");
}
