//! A ring of words with one writer (a thread of the target) and one reader (the collector).
//!
//! `head` and `tail` count words since the ring was made, and never decrease. The index of word `n` is `n mod length`.
//! The writer stores words, then `head` (release). The reader loads `head` (acquire), copies the words, then stores
//! `tail`.
use crate::sync::{AtomicU64, Ordering};

pub struct Ring<'a> {
    words: &'a [AtomicU64],
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
}

/// The head that the writer stored is impossible: the writer is broken or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// More words are waiting than the ring can hold.
    Overrun { head: u64, tail: u64 },
}

impl<'a> Ring<'a> {
    /// `words.len()` must be a power of two (`Geometry::check`).
    #[inline(always)]
    pub const fn new(words: &'a [AtomicU64], head: &'a AtomicU64, tail: &'a AtomicU64) -> Self {
        Ring { words, head, tail }
    }

    /// Writer: returns how many words can be written now. This loads a cache line that the reader writes, so call it
    /// only when the room that it returned last is used up.
    #[inline]
    pub fn room(&self) -> u64 {
        let used = self.head.load(Ordering::Relaxed).wrapping_sub(self.tail.load(Ordering::Acquire));
        (self.words.len() as u64).saturating_sub(used)
    }

    /// Writer: stores one word at a position that is not committed yet.
    #[inline(always)]
    pub fn put(&self, position: u64, word: u64) {
        let index = position as usize & (self.words.len().wrapping_sub(1));
        if let Some(place) = self.words.get(index) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Writer: returns the word at a position that the reader has not taken yet.
    pub fn word(&self, position: u64) -> u64 {
        let index = position as usize & (self.words.len().wrapping_sub(1));
        self.words.get(index).map_or(0, |place| place.load(Ordering::Relaxed))
    }

    /// Writer: makes every word before `head` visible to the reader.
    #[inline(always)]
    pub fn commit(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    /// Reader: appends every committed word to `out`, then frees their space in the ring. Returns the number of words.
    pub fn drain(&self, out: &mut impl Extend<u64>) -> Result<usize, RingError> {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        let waiting = head.wrapping_sub(tail);
        if waiting > self.words.len() as u64 {
            return Err(RingError::Overrun { head, tail });
        }
        let start = tail as usize & (self.words.len().wrapping_sub(1));
        let first = (self.words.len() - start).min(waiting as usize);
        for part in [start..start + first, 0..waiting as usize - first] {
            let words = self.words.get(part).unwrap_or_default();
            out.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
        }
        self.tail.store(head, Ordering::Release);
        Ok(waiting as usize)
    }

    pub const fn capacity(&self) -> usize {
        self.words.len()
    }
}
