//! 100 tasks of tokio on four threads: 100 * 10 * 10 blocks.
use std::sync::Arc;
use tokio::sync::Semaphore;

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() {
    let gate = Arc::new(Semaphore::new(0));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move {
                gate.acquire().await.expect("open").forget();
                let mut sum = 0;
                for _ in 0..10 {
                    sum += zoo_rust::blocks(10);
                    tokio::task::yield_now().await;
                }
                sum
            })
        })
        .collect();
    zoo_rust::ready();
    gate.add_permits(100);
    let mut sum = 0;
    for task in tasks {
        sum += task.await.expect("a sum");
    }
    println!("{sum}");
}
