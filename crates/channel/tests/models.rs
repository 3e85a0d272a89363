//! The ring and the stack tree under every interleaving that loom can make.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p channel --test models --release`.
#![cfg(loom)]

use channel::{FrameKey, Node, Ring, Tree};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

struct Memory {
    buckets: [AtomicU32; 1],
    nodes: [Node; 6],
    count: AtomicU32,
}

impl Memory {
    fn tree(&self) -> Tree<'_> {
        Tree::new(&self.buckets, &self.nodes, &self.count)
    }
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory {
        buckets: [AtomicU32::new(0)],
        nodes: std::array::from_fn(|_| Node {
            parent: AtomicU32::new(0),
            next: AtomicU32::new(0),
            key: AtomicU64::new(0),
        }),
        count: AtomicU32::new(0),
    })
}

/// Two threads that intern the same frames get the same ids, and a reader of an id sees the whole node.
#[test]
fn a_frame_has_one_id_whoever_asks() {
    loom::model(|| {
        let memory = memory();
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let tree = memory.tree();
                let a = tree.intern(0, FrameKey::new(1, 10, false)).expect("room");
                let b = tree.intern(a, FrameKey::new(1, 20, false)).expect("room");
                (a, b)
            })
        };
        let tree = memory.tree();
        let b = tree.intern(0, FrameKey::new(1, 20, false)).expect("room");
        let a = tree.intern(0, FrameKey::new(1, 10, false)).expect("room");
        let (other_a, other_b) = other.join().expect("thread");
        assert_eq!(a, other_a);
        assert_ne!(b, other_b, "the same frame with another caller is another node");
        assert_eq!(tree.node(other_b), Ok((a, FrameKey::new(1, 20, false))));
        assert_eq!(tree.node(b), Ok((0, FrameKey::new(1, 20, false))));
        assert_eq!(tree.node(a), Ok((0, FrameKey::new(1, 10, false))));
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
