//! The invariants of a ring, checked at every event: see `checks.rs`. Without the feature `checks` none of this is
//! compiled.
use super::{Host, RingWriter};
use crate::checks::Check;
use crate::record::{Decoder, PATH_HEAD_WORDS, Stamp, path_frames};
use crate::ring::Ring;
use crate::slot::Intent;
use crate::sync::Ordering;

impl<H: Host> RingWriter<'_, H> {
    /// Called before an event is stamped. `clock` is the value of the clock, if it was read.
    #[inline(always)]
    pub(super) fn check_stamp(&self, clock: Option<Stamp>) {
        let (header, last) = (self.host.header(), self.state.last_stamp);
        header.require(Check::Stamp, || clock.is_none_or(|now| now >= last));
        header.require(Check::Intent, || {
            let announced = Intent(self.shared().intent.load(Ordering::Relaxed));
            // The intent for a last stamp of 0 is the same word as no intent.
            last == 0 || announced.bound(false).is_some_and(|since| since <= last)
        });
    }

    /// Called before `count` events become visible. Their words are `words`, at position `at`. A path may precede them.
    #[inline(always)]
    pub(super) fn check_commit(&self, ring: &Ring<'_>, at: u64, words: &[u64], count: u64) {
        let (header, shared, state) = (self.host.header(), self.shared(), &*self.state);
        let (capacity, end) = (ring.capacity() as u64, at.wrapping_add(words.len() as u64));
        let readable_until = || shared.tail.load(Ordering::Acquire).wrapping_add(capacity);
        header.require(Check::Head, || shared.head.load(Ordering::Relaxed) == state.head);
        header.require(Check::InFlight, || shared.begun.load(Ordering::Relaxed).wrapping_sub(state.settled) == count);
        header.require(Check::RingSpace, || end <= readable_until());
        header.require(Check::Limit, || state.limit <= readable_until());
        header.require(Check::Record, || is_path(ring, state.head, at) && stands(ring, at, words));
        header.require(Check::Record, || are_events(Decoder::new(words), count, state.last_stamp));
    }
}

/// Returns true if the words of the ring from `start` to `end` are exactly one path, or none.
fn is_path(ring: &Ring<'_>, start: u64, end: u64) -> bool {
    let words = end.wrapping_sub(start);
    words == 0 || path_frames(ring.word(start)) == words.checked_sub(PATH_HEAD_WORDS as u64)
}

fn stands(ring: &Ring<'_>, at: u64, words: &[u64]) -> bool {
    words.iter().enumerate().all(|(i, word)| ring.word(at.wrapping_add(i as u64)) == *word)
}

/// Returns true if the words decode to `count` events in order, the last of which has the stamp `last`.
fn are_events(mut decoder: Decoder<'_>, count: u64, last: Stamp) -> bool {
    let (mut seen, mut before) = (0, 0);
    while let Ok(Some(event)) = decoder.decode() {
        if event.stamp() < before {
            return false;
        }
        (seen, before) = (seen + 1, event.stamp());
    }
    // Words that cannot be decoded remain in the decoder.
    decoder.remaining() == 0 && seen == count && before == last
}
