//! Walks over events and keeps the live blocks: the part that all counts share.
//!
//! Receives: the events of a trace, and a sink that counts. Must hold: the sink gets each free with what it kept of the
//! freed block; an event that refers to something unknown is counted as damaged and otherwise ignored.
use format::{Counting, Events, Flat, Freed, IntMap, KdeRule, Kept, LiveBlocks, Malformed, Start, Visitor, Walked};

/// The position of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    /// Allocations and frees of all kinds before this position.
    pub(crate) events: u64,
    pub(crate) time_ns: u64,
    pub(crate) next_sequence: u64,
    pub(crate) thread: u32,
    pub(crate) image: u32,
    /// The rule that makes a block temporary, from the session.
    pub(crate) counting: Counting,
}

/// Counts the events of a walk.
pub(crate) trait Sink {
    type Kept: Kept;
    /// Returns what to remember of a block, or `None` if the allocation class is not known.
    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Self::Kept>;
    fn alloc(&mut self, _now: &Now, _alloc_class: u32, _kept: Self::Kept) {}
    /// The block is live no longer. `how` says whether the program freed it.
    fn free(&mut self, now: &Now, sequence: u64, kept: Self::Kept, how: Freed, temporary: bool);
    /// A process freed a block that another process still holds. The block stays live.
    fn release(&mut self, _now: &Now, _sequence: u64, _kept: Self::Kept) {}
    fn unknown_free(&mut self, _now: &Now) {}
    /// Called when an `exec` removes all blocks. `live` still has them.
    fn end_image(&mut self, now: &Now, live: &LiveBlocks<Self::Kept>);
}

const NONE: u64 = u64::MAX;

pub(crate) struct Walker<S: Sink> {
    pub(crate) sink: S,
    pub(crate) live: LiveBlocks<S::Kept>,
    pub(crate) now: Now,
    /// The latest allocation of the current thread, and (below) those of the other threads.
    pub(crate) latest: u64,
    pub(crate) latest_of: IntMap<u32, u64>,
    /// The walk stops before events that are later than this.
    pub(crate) time_limit: u64,
    pub(crate) unknown_frees: u64,
    pub(crate) damaged: u64,
}

impl<S: Sink> Walker<S> {
    pub(crate) fn new(sink: S) -> Self {
        Walker {
            sink,
            live: LiveBlocks::default(),
            now: Now::default(),
            latest: NONE,
            latest_of: IntMap::default(),
            time_limit: NONE,
            unknown_frees: 0,
            damaged: 0,
        }
    }

    /// Takes over the state at the start of a block. Returns false if it is later than the limit.
    pub(crate) fn enter(&mut self, start: Start) -> bool {
        if !self.time(start.time_ns) {
            return false;
        }
        self.thread(start.thread);
        if start.image > self.now.image {
            self.image(start.image);
        }
        true
    }

    #[cold]
    fn is_temporary_for_kde(&mut self, rule: KdeRule, sequence: u64, alloc_class: u32, how: Freed) -> bool {
        let latest = std::mem::replace(&mut self.latest, NONE);
        rule.is_temporary((latest != NONE).then_some(latest), sequence, alloc_class, how)
    }

    /// Walks over all events of a block.
    pub(crate) fn walk(&mut self, events: &mut Events) -> Result<(), Malformed> {
        self.enter(events.start());
        match events.walk(self, NONE)? {
            Walked::End | Walked::Limit | Walked::Stopped => Ok(()),
        }
    }

    pub(crate) fn walk_flat(&mut self, flat: &Flat) -> Result<(), Malformed> {
        self.enter(flat.start());
        flat.walk(self)
    }
}

impl<S: Sink> Visitor for Walker<S> {
    #[inline(always)]
    fn alloc(&mut self, sequence: u64, alloc_class: u32) {
        self.now.events += 1;
        self.now.next_sequence = sequence + 1;
        self.latest = sequence;
        let Some(kept) = self.sink.keep(&self.now, alloc_class) else {
            self.damaged += 1;
            return;
        };
        if !self.live.insert(sequence, kept) {
            self.damaged += 1;
            return;
        }
        self.sink.alloc(&self.now, alloc_class, kept);
    }

    #[inline(always)]
    fn free(&mut self, sequence: u64, how: Freed) {
        self.now.events += 1;
        let Some(kept) = self.live.remove(sequence) else {
            self.damaged += 1;
            return;
        };
        let temporary = match self.now.counting.kde() {
            None => self.latest == sequence && how == Freed::Call,
            Some(rule) => self.is_temporary_for_kde(rule, sequence, kept.alloc_class(), how),
        };
        self.sink.free(&self.now, sequence, kept, how, temporary);
    }

    fn release(&mut self, sequence: u64) {
        self.now.events += 1;
        match self.live.get(sequence) {
            Some(kept) => self.sink.release(&self.now, sequence, kept),
            None => self.damaged += 1,
        }
    }

    fn unknown_free(&mut self) {
        self.now.events += 1;
        self.unknown_frees += 1;
        self.sink.unknown_free(&self.now);
        if self.now.counting.kde().is_some_and(KdeRule::forgets_at_unknown_free) {
            self.latest = NONE;
        }
    }

    fn thread(&mut self, thread: u32) {
        if thread == self.now.thread {
            return;
        }
        if self.latest != NONE {
            self.latest_of.insert(self.now.thread, self.latest);
        }
        self.now.thread = thread;
        self.latest = self.latest_of.get(&thread).copied().unwrap_or(NONE);
    }

    fn latest_gone(&mut self) {
        self.latest = NONE;
        self.latest_of.remove(&self.now.thread);
    }

    fn skip_to(&mut self, sequence: u64) {
        self.now.next_sequence = sequence;
    }

    fn time(&mut self, ns: u64) -> bool {
        if ns > self.time_limit {
            return false;
        }
        self.now.time_ns = self.now.time_ns.max(ns);
        true
    }

    fn image(&mut self, image: u32) {
        self.now.image = image;
        self.sink.end_image(&self.now, &self.live);
        self.live.clear(self.now.next_sequence);
        self.latest = NONE;
        self.latest_of.clear();
    }
}
