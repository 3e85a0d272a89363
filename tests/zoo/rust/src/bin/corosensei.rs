//! 50 coroutines with their own stacks take turns. All are dropped before they have ended: 50 * 20 * 10 blocks.
use corosensei::{Coroutine, CoroutineResult};

fn main() {
    let body = |yielder: &corosensei::Yielder<(), i64>, ()| {
        loop {
            let kept = Box::new(yielder as *const _ as usize);
            yielder.suspend(zoo_rust::blocks(10));
            assert_ne!(*kept, 0);
        }
    };
    let mut coroutines: Vec<Coroutine<(), i64, ()>> = (0..50).map(|_| Coroutine::new(body)).collect();
    zoo_rust::ready();
    let mut sum = 0;
    for _ in 0..20 {
        for coroutine in &mut coroutines {
            if let CoroutineResult::Yield(more) = coroutine.resume(()) {
                sum += more;
            }
        }
    }
    // Dropping unwinds each coroutine.
    drop(coroutines);
    println!("{sum}");
}
