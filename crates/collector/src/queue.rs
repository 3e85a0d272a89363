//! The words of one ring on their way to the merge, first in, first out.
//!
//! Receives: all committed words of a ring at once. Returns: the same words, in order, when the merge may take them.
//! Must hold: ring space is free as soon as the words are here; all queues together keep at most `Store::BOUND` words
//! in memory, the rest is in the spill file; a window holds whole records.
use crate::spill::{Run, Spill};
use channel::{Ring, RingError};
use std::collections::VecDeque;
use std::mem;

/// Shared by all queues: the bound, the spill file, and buffers to use again.
#[derive(Debug)]
pub struct Store {
    spill: Spill,
    bound: usize,
    in_memory: usize,
    scratch: Vec<u64>,
    spare: Vec<Vec<u64>>,
    /// The spill file cannot be written, so rings stay full until there is room in memory.
    stuck: bool,
}

impl Store {
    /// The most words in memory: 24 MB.
    pub const BOUND: usize = 3 << 20;
    const SPARE_BUFFERS: usize = 8;

    pub const fn new(spill: Spill, bound: usize) -> Self {
        Store { spill, bound, in_memory: 0, scratch: Vec::new(), spare: Vec::new(), stuck: false }
    }

    /// Returns false if nothing may be drained now. The target then waits or drops events, as configured.
    pub fn has_room(&mut self) -> bool {
        if self.stuck && self.in_memory < self.bound / 2 {
            self.stuck = false;
        }
        !self.stuck
    }

    pub const fn in_memory(&self) -> usize {
        self.in_memory
    }

    fn recycle(&mut self, mut buffer: Vec<u64>) {
        if self.scratch.capacity() < buffer.capacity() {
            mem::swap(&mut self.scratch, &mut buffer);
            self.scratch.clear();
        }
        if buffer.capacity() > 0 && self.spare.len() < Self::SPARE_BUFFERS {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

#[derive(Debug)]
enum Chunk {
    Words(Vec<u64>),
    Spilled(Run),
}

impl Chunk {
    fn into_words(self, store: &mut Store) -> Vec<u64> {
        let run = match self {
            Chunk::Words(words) => return words,
            Chunk::Spilled(run) => run,
        };
        match store.spill.read(run) {
            Ok(words) => {
                store.in_memory += words.len();
                words
            }
            Err(_) => Vec::new(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    front: Vec<u64>,
    at: usize,
    rest: VecDeque<Chunk>,
}

impl Queue {
    /// Moves all committed words of `ring` into the queue. Returns their number.
    pub fn fill(&mut self, ring: &Ring<'_>, store: &mut Store) -> Result<usize, RingError> {
        if store.scratch.capacity() < ring.capacity() {
            store.scratch = store.spare.pop().unwrap_or_default();
            store.scratch.reserve_exact(ring.capacity());
        }
        let mut words = mem::take(&mut store.scratch);
        words.clear();
        let taken = ring.drain(&mut words);
        if taken.is_ok() && !words.is_empty() {
            words = self.append(words, store);
        }
        store.scratch = words;
        taken
    }

    /// Takes the words, and returns a buffer that can be used again.
    fn append(&mut self, words: Vec<u64>, store: &mut Store) -> Vec<u64> {
        if store.in_memory + words.len() > store.bound
            && let Some(words) = self.spill(&words, store)
        {
            self.rest.push_back(words);
            return mem::take(&mut store.scratch);
        }
        store.in_memory += words.len();
        let few = words.len() * 8 < words.capacity();
        match self.rest.back_mut() {
            None if self.at == self.front.len() => {
                self.at = 0;
                if few {
                    self.front.clear();
                    self.front.extend_from_slice(&words);
                    return words;
                }
                return mem::replace(&mut self.front, words);
            }
            None if few => {
                self.front.drain(..self.at);
                self.at = 0;
                self.front.extend_from_slice(&words);
            }
            Some(Chunk::Words(last)) if few => last.extend_from_slice(&words),
            // The chunk keeps its buffer although up to half of it is empty. Few chunks are like this, because the
            // condition limits them to a quarter of the bound.
            _ if words.len() * 2 >= words.capacity() && store.in_memory * 4 < store.bound => {
                self.rest.push_back(Chunk::Words(words));
                return store.spare.pop().unwrap_or_default();
            }
            _ => {
                let mut chunk = store.spare.pop().unwrap_or_default();
                chunk.extend_from_slice(&words);
                self.rest.push_back(Chunk::Words(chunk));
            }
        }
        words
    }

    fn spill(&mut self, words: &[u64], store: &mut Store) -> Option<Chunk> {
        match store.spill.write(words) {
            Ok(run) => Some(Chunk::Spilled(run)),
            Err(_) => {
                store.stuck = true;
                None
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.front.len() && self.rest.is_empty()
    }

    /// Returns the next words: whole records, and empty only if the queue is empty.
    #[inline]
    pub fn window(&mut self, store: &mut Store) -> &[u64] {
        while self.at == self.front.len() && !self.rest.is_empty() {
            self.next_chunk(store);
        }
        self.front.get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub fn advance(&mut self, words: usize, store: &mut Store) {
        let words = words.min(self.front.len() - self.at);
        self.at += words;
        store.in_memory = store.in_memory.saturating_sub(words);
        if self.at == self.front.len() && self.front.capacity() > 4096 {
            self.at = 0;
            store.recycle(mem::take(&mut self.front));
        }
    }

    /// Drops everything. Returns the number of words.
    pub fn discard(&mut self, store: &mut Store) -> usize {
        let mut words = 0;
        loop {
            let here = self.window(store).len();
            if here == 0 {
                return words;
            }
            words += here;
            self.advance(here, store);
        }
    }

    #[cold]
    fn next_chunk(&mut self, store: &mut Store) {
        self.at = 0;
        let next = self.rest.pop_front().map_or_else(Vec::new, |chunk| chunk.into_words(store));
        store.recycle(mem::replace(&mut self.front, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    struct Written {
        words: Vec<AtomicU64>,
        head: AtomicU64,
        tail: AtomicU64,
        next: u64,
    }

    impl Written {
        fn new() -> Self {
            let words = (0..1024).map(|_| AtomicU64::new(0)).collect();
            Written { words, head: AtomicU64::new(0), tail: AtomicU64::new(0), next: 0 }
        }
        fn ring(&self) -> Ring<'_> {
            Ring::new(&self.words, &self.head, &self.tail)
        }
        fn write(&mut self, count: u64) {
            for n in self.next..self.next + count {
                self.ring().put(n, n);
            }
            self.next += count;
            self.ring().commit(self.next);
        }
    }

    fn check_order(bound: usize) {
        let mut store = Store::new(Spill::new(std::env::temp_dir()), bound);
        let (mut queue, mut ring, mut expected) = (Queue::default(), Written::new(), 0u64);
        let mut rng = fastrand::Rng::with_seed(12345);
        for round in 0..4000 {
            ring.write(rng.u64(..1024));
            queue.fill(&ring.ring(), &mut store).unwrap();
            // For a while nothing is taken, so that words pile up.
            if round % 50 < 45 {
                continue;
            }
            loop {
                let window = queue.window(&mut store);
                if window.is_empty() {
                    break;
                }
                let some = window.len().div_ceil(2);
                for &word in &window[..some] {
                    assert_eq!(word, expected);
                    expected += 1;
                }
                queue.advance(some, &mut store);
            }
            assert!(queue.is_empty());
            assert_eq!(store.in_memory, 0);
        }
        assert_eq!(expected, ring.next);
    }

    #[test]
    fn words_come_out_in_order() {
        check_order(usize::MAX);
    }

    #[test]
    fn spilled_words_come_out_in_order() {
        check_order(5000);
    }

    #[test]
    fn without_a_spill_file_the_ring_waits() {
        let mut store = Store::new(Spill::new("/nonexistent".into()), 1000);
        let (mut queue, mut ring) = (Queue::default(), Written::new());
        ring.write(900);
        assert_eq!(queue.fill(&ring.ring(), &mut store), Ok(900));
        ring.write(900);
        assert_eq!(queue.fill(&ring.ring(), &mut store), Ok(900));
        assert!(!store.has_room());
        assert_eq!(queue.discard(&mut store), 1800);
        assert!(store.has_room());
    }
}
