//! The events of a block as plain words, so that one thread can decode a block while another counts the one before.
//!
//! Must hold: a visitor sees the same calls in the same order as in a walk over the block itself, and the same error at
//! the same place.
//!
//! ```text
//! word  0 ..= 7fff_ffff          an allocation: its allocation class
//!       8000_0000 ..= ffff_feff  a plain free: 8000_0000 + (next sequence number - sequence number of its block)
//!       ffff_ff00 ..             anything else: a code; its value is in the two words that follow, low half first
//! ```
use crate::{Events, Freed, Malformed, RawBlock, Visitor};

const FREE: u32 = 1 << 31;
const OTHER: u32 = 0xffff_ff00;
const ALLOC: u32 = OTHER;
const FREED_FAR: u32 = OTHER + 1;
const REALLOC: u32 = OTHER + 2;
const IMPLIED: u32 = OTHER + 3;
const UNKNOWN: u32 = OTHER + 4;
const THREAD: u32 = OTHER + 5;
const TIME: u32 = OTHER + 6;
const IMAGE: u32 = OTHER + 7;
const LATEST_GONE: u32 = OTHER + 8;
const SKIP_TO: u32 = OTHER + 9;
const LEAKED: u32 = OTHER + 10;
const REPLACED: u32 = OTHER + 11;
const DROPPED: u32 = OTHER + 12;
const RELEASE: u32 = OTHER + 13;

#[derive(Clone, Debug, Default)]
pub struct Flat {
    words: Vec<u32>,
    /// The state before the first event.
    start: Start,
    next_sequence: u64,
    /// The error that ended the decoding, if there was one. `walk` returns it after the last word.
    fault: Option<Malformed>,
}

/// The state at the beginning of a block of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub sequence: u64,
    pub thread: u32,
    pub time_ns: u64,
    pub image: u32,
}

impl Flat {
    /// Decodes a block of events into the buffers of the one before. Returns an error if its head is invalid.
    pub fn fill(&mut self, block: &RawBlock) -> Result<(), Malformed> {
        let mut events = block.events()?;
        self.words.clear();
        // Most events take one word. The limit protects from a hostile count.
        self.words.reserve(events.count().min(block.payload.len() as u64) as usize);
        self.start = events.start();
        self.next_sequence = self.start.sequence;
        self.fault = events.walk(self, u64::MAX).err();
        Ok(())
    }

    pub const fn start(&self) -> Start {
        self.start
    }

    /// Visits all events and marks. `Visitor::time` cannot stop this walk.
    pub fn walk<V: Visitor>(&self, visitor: &mut V) -> Result<(), Malformed> {
        let mut sequence = self.start.sequence;
        let mut words = self.words.iter();
        while let Some(&word) = words.next() {
            if word < FREE {
                visitor.alloc(sequence, word);
                sequence += 1;
            } else if word < OTHER {
                visitor.free(sequence.wrapping_sub((word - FREE) as u64), Freed::Call);
            } else {
                let (Some(&low), Some(&high)) = (words.next(), words.next()) else { break };
                let value = (high as u64) << 32 | low as u64;
                walk_other(visitor, word, value, sequence);
                sequence = if word == SKIP_TO { value } else { sequence + (word == ALLOC) as u64 };
            }
        }
        self.fault.map_or(Ok(()), Err)
    }

    fn push_other(&mut self, code: u32, value: u64) {
        self.words.extend([code, value as u32, (value >> 32) as u32]);
    }
}

#[inline(never)]
fn walk_other<V: Visitor>(visitor: &mut V, code: u32, value: u64, sequence: u64) {
    match code {
        ALLOC => visitor.alloc(sequence, value as u32),
        FREED_FAR => visitor.free(value, Freed::Call),
        REALLOC => visitor.free(value, Freed::Realloc),
        IMPLIED => visitor.free(value, Freed::Implied),
        LEAKED => visitor.free(value, Freed::Leaked),
        REPLACED => visitor.free(value, Freed::Replaced),
        DROPPED => visitor.free(value, Freed::Dropped),
        RELEASE => visitor.release(value),
        UNKNOWN => visitor.unknown_free(),
        THREAD => visitor.thread(value as u32),
        TIME => {
            visitor.time(value);
        }
        IMAGE => visitor.image(value as u32),
        LATEST_GONE => visitor.latest_gone(),
        _ => visitor.skip_to(value),
    }
}

impl Visitor for Flat {
    #[inline]
    fn alloc(&mut self, sequence: u64, alloc_class: u32) {
        self.next_sequence = sequence + 1;
        if alloc_class < FREE {
            self.words.push(alloc_class);
        } else {
            self.push_other(ALLOC, alloc_class as u64);
        }
    }

    #[inline]
    fn free(&mut self, sequence: u64, how: Freed) {
        let ago = self.next_sequence.wrapping_sub(sequence);
        match how {
            Freed::Call if ago < (OTHER - FREE) as u64 => self.words.push(FREE + ago as u32),
            Freed::Call => self.push_other(FREED_FAR, sequence),
            Freed::Realloc => self.push_other(REALLOC, sequence),
            Freed::Implied => self.push_other(IMPLIED, sequence),
            Freed::Leaked => self.push_other(LEAKED, sequence),
            Freed::Replaced => self.push_other(REPLACED, sequence),
            Freed::Dropped => self.push_other(DROPPED, sequence),
        }
    }

    fn release(&mut self, sequence: u64) {
        self.push_other(RELEASE, sequence);
    }

    fn unknown_free(&mut self) {
        self.push_other(UNKNOWN, 0);
    }
    fn thread(&mut self, index: u32) {
        self.push_other(THREAD, index as u64);
    }
    fn time(&mut self, ns: u64) -> bool {
        self.push_other(TIME, ns);
        true
    }
    fn image(&mut self, image: u32) {
        self.push_other(IMAGE, image as u64);
    }
    fn latest_gone(&mut self) {
        self.push_other(LATEST_GONE, 0);
    }
    fn skip_to(&mut self, sequence: u64) {
        self.next_sequence = sequence;
        self.push_other(SKIP_TO, sequence);
    }
}

impl Events<'_> {
    pub const fn start(&self) -> Start {
        Start { sequence: self.first_sequence(), thread: self.thread(), time_ns: self.time_ns(), image: self.image() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::walk::EventList;
    use crate::walk::tests::random_block;
    use crate::{BlockKind, Event, EventEncoder};

    fn walked(block: &RawBlock) -> (Vec<Event>, Result<(), Malformed>) {
        let mut list = EventList::default();
        let result = block.events().and_then(|mut events| events.walk(&mut list, u64::MAX));
        (list.events, result.map(|_| ()))
    }

    fn flattened(flat: &mut Flat, block: &RawBlock) -> (Vec<Event>, Result<(), Malformed>) {
        let mut list = EventList::default();
        let result = flat.fill(block).and_then(|()| flat.walk(&mut list));
        (list.events, result)
    }

    #[test]
    fn a_flat_walk_is_the_same_walk() {
        let mut flat = Flat::default();
        for seed in 0..50 {
            let block = random_block(seed);
            let found = flattened(&mut flat, &block);
            assert_eq!(found, walked(&block), "seed {seed}");
            assert!(found.0.len() > 400 && found.1.is_ok());
            assert_eq!(flat.start(), block.events().unwrap().start());
        }
    }

    #[test]
    fn what_does_not_fit_a_word_comes_back() {
        let mut events = EventEncoder::new();
        events.alloc(u32::MAX);
        events.alloc(FREE);
        events.alloc(FREE - 1);
        // Only an invalid file frees blocks that were not allocated before. The distance to block 7 does not fit a
        // word; that to block u64::MAX wraps around and does.
        events.free(7);
        events.free(u64::MAX);
        events.free(2);
        events.time(u64::MAX);
        let block = events.take();
        assert_eq!(flattened(&mut Flat::default(), &block), walked(&block));
    }

    #[test]
    fn a_broken_block_is_walked_up_to_there() {
        let mut flat = Flat::default();
        for seed in 0..50 {
            let mut block = random_block(seed);
            let length = block.payload.len();
            for at in (length / 2..length).step_by(97) {
                block.payload[at] ^= 0x91;
                assert_eq!(flattened(&mut flat, &block), walked(&block), "seed {seed}, byte {at}");
            }
        }
        assert_eq!(flat.fill(&RawBlock { kind: BlockKind::Events, payload: vec![1] }), Err(Malformed::Cut));
    }
}
