//! The ring and the watermark under every interleaving that loom can make.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p channel --test models --release`.
#![cfg(loom)]
#![allow(clippy::expect_used)]

use channel::Ring;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

struct Shared {
    words: [AtomicU64; 2],
    head: AtomicU64,
    tail: AtomicU64,
}

impl Shared {
    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.words, &self.head, &self.tail)
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        words: std::array::from_fn(|_| AtomicU64::new(0)),
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
    })
}

/// What was committed arrives once, whole, in order, although the ring is smaller than what goes through it.
#[test]
fn a_ring_delivers_every_word_once_and_in_order() {
    loom::model(|| {
        let shared = shared();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let ring = shared.ring();
                let mut head = 0;
                for record in 0..2u64 {
                    while ring.room() < 2 {
                        thread::yield_now();
                    }
                    ring.put(head, record * 2 + 1);
                    ring.put(head + 1, record * 2 + 2);
                    head += 2;
                    ring.commit(head);
                }
            })
        };
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let before = seen.len();
            let n = shared.ring().drain(|word| seen.push(word)).expect("an honest writer");
            assert_eq!(n % 2, 0, "half a record");
            assert_eq!(seen.len(), before + n);
            if n == 0 {
                thread::yield_now();
            }
        }
        writer.join().expect("writer");
        assert_eq!(seen, [1, 2, 3, 4]);
    });
}

/// The collector's rule: read the intent after a barrier; if it is clear, everything stamped before is in the ring.
/// The barrier (membarrier) is modelled as a SeqCst fence on both sides, which is what the kernel makes of it.
#[test]
fn a_clear_intent_means_that_nothing_older_is_missing() {
    loom::model(|| {
        let shared = shared();
        let intent = Arc::new(AtomicU64::new(0));
        let clock = Arc::new(AtomicU64::new(1));
        let writer = {
            let (shared, intent, clock) = (Arc::clone(&shared), Arc::clone(&intent), Arc::clone(&clock));
            thread::spawn(move || {
                intent.store(1, Ordering::Relaxed);
                loom::sync::atomic::fence(Ordering::SeqCst);
                let stamp = clock.fetch_add(1, Ordering::SeqCst);
                let ring = shared.ring();
                ring.put(0, stamp);
                ring.commit(1);
                intent.store(0, Ordering::Release);
            })
        };
        let now = clock.fetch_add(1, Ordering::SeqCst);
        loom::sync::atomic::fence(Ordering::SeqCst);
        let pending = intent.load(Ordering::Acquire);
        let mut seen = Vec::new();
        shared.ring().drain(|word| seen.push(word)).expect("an honest writer");
        writer.join().expect("writer");
        let mut late = Vec::new();
        shared.ring().drain(|word| late.push(word)).expect("an honest writer");
        let watermark = if pending == 0 { now } else { pending };
        assert!(late.iter().all(|stamp| *stamp >= watermark), "{late:?} came late, watermark {watermark}");
    });
}
