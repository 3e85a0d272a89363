//! The ring and the watermark under every interleaving that loom can make.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p channel --test models --release`.
#![cfg(loom)]
#![allow(clippy::expect_used)]

use channel::{Intent, Ring};
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
            let n = shared.ring().drain(&mut seen).expect("an honest writer");
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
        shared.ring().drain(&mut seen).expect("an honest writer");
        writer.join().expect("writer");
        let mut late = Vec::new();
        shared.ring().drain(&mut late).expect("an honest writer");
        let watermark = if pending == 0 { now } else { pending };
        assert!(late.iter().all(|stamp| *stamp >= watermark), "{late:?} came late, watermark {watermark}");
    });
}

/// The same where the first thread stamps without the clock while it is alone, and a second one begins meanwhile: what
/// comes late is never below the watermark.
#[test]
fn a_resting_intent_holds_the_watermark_until_a_second_thread_is_there() {
    // Three threads: every interleaving with up to two preemptions, or it takes hours.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let first = shared();
        let second = shared();
        let intents: Arc<[AtomicU64; 2]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        // The first thread's last event had stamp 1: it may count on from there.
        intents[0].store(Intent::resting(2).0, Ordering::Relaxed);
        let pace = Arc::new(AtomicU64::new(1));
        let clock = Arc::new(AtomicU64::new(10));
        let alone = {
            let (shared, intents, pace, clock) =
                (Arc::clone(&first), Arc::clone(&intents), Arc::clone(&pace), Arc::clone(&clock));
            thread::spawn(move || {
                intents[0].store(Intent::writing(1).0, Ordering::Relaxed);
                loom::sync::atomic::fence(Ordering::SeqCst);
                let counts = pace.load(Ordering::Relaxed) == 1;
                let stamp = if counts { 2 } else { clock.fetch_add(1, Ordering::SeqCst) };
                let ring = shared.ring();
                ring.put(0, stamp);
                ring.commit(1);
                let next = if counts { Intent::resting(3) } else { Intent::NONE };
                intents[0].store(next.0, Ordering::Release);
            })
        };
        let newcomer = {
            let (shared, intents, pace, clock) =
                (Arc::clone(&second), Arc::clone(&intents), Arc::clone(&pace), Arc::clone(&clock));
            thread::spawn(move || {
                pace.store(0, Ordering::SeqCst);
                intents[1].store(Intent::writing(1).0, Ordering::Relaxed);
                loom::sync::atomic::fence(Ordering::SeqCst);
                let stamp = clock.fetch_add(1, Ordering::SeqCst);
                let ring = shared.ring();
                ring.put(0, stamp);
                ring.commit(1);
                intents[1].store(Intent::NONE.0, Ordering::Release);
            })
        };
        let now = clock.fetch_add(1, Ordering::SeqCst);
        let is_alone = pace.load(Ordering::Acquire) != 0;
        loom::sync::atomic::fence(Ordering::SeqCst);
        let bounds = intents.iter().filter_map(|intent| Intent(intent.load(Ordering::Acquire)).bound(is_alone));
        let watermark = bounds.fold(now, u64::min);
        let mut seen = Vec::new();
        for shared in [&first, &second] {
            shared.ring().drain(&mut seen).expect("an honest writer");
        }
        alone.join().expect("the first thread");
        newcomer.join().expect("the second thread");
        let mut late = Vec::new();
        for shared in [&first, &second] {
            shared.ring().drain(&mut late).expect("an honest writer");
        }
        assert!(late.iter().all(|stamp| *stamp >= watermark), "{late:?} came late, watermark {watermark}");
    });
}
