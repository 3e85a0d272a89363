//! What must be true of a ring at every event, see `checks.rs`. Nothing of this is compiled without the feature `checks`.
use super::{Host, RingWriter};
use crate::checks::Check;
use crate::record::{Decoder, PATH_HEAD_WORDS, Stamp, path_frames};
use crate::ring::Ring;
use crate::slot::Intent;
use crate::sync::Ordering;

impl<H: Host> RingWriter<'_, H> {
    /// Before an event is stamped. `clock`: what the clock says, if it was read.
    #[inline(always)]
    pub(super) fn check_stamp(&self, clock: Option<Stamp>) {
        let (header, last) = (self.host.header(), self.state.last_stamp);
        header.require(Check::Stamp, || clock.is_none_or(|now| now >= last));
        header.require(Check::Intent, || {
            let announced = Intent(self.shared().intent.load(Ordering::Relaxed));
            // A last stamp of 0 is announced by a word that means nothing else: the clock has not begun to count.
            last == 0 || announced.bound(false).is_some_and(|since| since <= last)
        });
    }

    /// Before `count` events become visible. Their last words are `words`, which stand at `at`. A path may stand before them.
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

/// True if nothing, or exactly one path, stands in the ring from `start` to `end`.
fn is_path(ring: &Ring<'_>, start: u64, end: u64) -> bool {
    let words = end.wrapping_sub(start);
    words == 0 || path_frames(ring.word(start)) == words.checked_sub(PATH_HEAD_WORDS as u64)
}

fn stands(ring: &Ring<'_>, at: u64, words: &[u64]) -> bool {
    words.iter().enumerate().all(|(i, word)| ring.word(at.wrapping_add(i as u64)) == *word)
}

/// True if these are `count` events in order, the last of them stamped `last`.
fn are_events(mut decoder: Decoder<'_>, count: u64, last: Stamp) -> bool {
    let (mut seen, mut before) = (0, 0);
    while let Ok(Some(event)) = decoder.decode() {
        if event.stamp() < before {
            return false;
        }
        (seen, before) = (seen + 1, event.stamp());
    }
    // What cannot be decoded remains.
    decoder.remaining() == 0 && seen == count && before == last
}
