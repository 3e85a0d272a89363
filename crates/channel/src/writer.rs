//! The writer's side of a ring: a thread of the target records its events.
//!
//! These are the steps of one event. [`RingWriter`] is the only code that takes them:
//!
//! ```text
//! begin_events      begun += 1                  from here on the event arrives, is counted as dropped, or is in flight
//! has_room          is there room for it?       if not, the thread waits, and in the end drops the event (`room.rs`)
//! publish_intent    intent = last stamp         promises that the event is not older than this
//! stamp             the clock, or last stamp + 1 (`clock_skipping.rs`)
//! commit            words, then head            the collector can see the event
//! clear_intent      intent = none, or resting
//! ```
//!
//! A jump can leave a hook at any of these points, and a thread can be killed there. The shared head says whether the
//! event is committed; see [`RingWriter::abandon`].
mod checked;

use crate::clock_skipping::ClockSkipping;
use crate::header::{Header, Loss};
use crate::record::{HeapMark, Kind, Stamp, encode_exit, encode_fork, encode_heap, encode_mark};
use crate::region::Region;
use crate::ring::Ring;
use crate::slot::{Intent, SlotHeader};
use crate::sync::{AtomicU32, AtomicU64, Ordering, light_barrier, order_for_handlers};

/// The process of a writer: its state, its clock and its system calls.
pub trait Host {
    fn header(&self) -> &Header;
    /// True for the first thread that finds the collector asleep.
    fn wants_bell(&self) -> bool {
        self.header().wants_bell()
    }
    /// The futex on which the collector sleeps.
    fn doorbell(&self) -> &AtomicU32 {
        &self.header().doorbell
    }
    /// The robust futex that the collector holds.
    fn collector_alive(&self) -> &AtomicU32 {
        &self.header().collector_alive
    }
    /// False in a forked child, and when recording is over. Nothing may be written to the ring then.
    fn is_recording(&self) -> bool;
    /// Ends recording for good.
    fn stop_recording(&self);
    /// True if `plain_stamp` may be used: the clock needs neither a fence nor a lock.
    fn has_plain_stamps(&self) -> bool;
    fn plain_stamp(&self) -> Stamp;
    /// Reads the clock, for a thread whose last stamp was `last`.
    fn stamp_after(&self, last: Stamp) -> Stamp;
    /// Returns the monotonic clock in nanoseconds. Makes a system call.
    fn now_ns(&self) -> u64;
    /// Wakes the sleepers of a futex.
    fn wake(&self, futex: &AtomicU32);
    /// Sleeps while the futex has `value`, but for at most `most_ms`.
    fn wait(&self, futex: &AtomicU32, value: u32, most_ms: u64);
}

/// What a writer knows of its ring. Only its thread uses it: the collector does not see it, and a signal handler uses
/// the state of the thread's other ring.
#[repr(C)]
pub struct WriterState {
    /// Words that the writer has committed since the slot was made: the position of the next word.
    pub head: u64,
    /// `head` may grow up to here before the writer must check how far the reader is.
    pub(crate) limit: u64,
    /// The stamp of the last event. No later event of this ring has an older one.
    pub(crate) last_stamp: Stamp,
    /// In a sandbox: the last event found no room, so the next ones do not spin for it.
    pub(crate) dropping: bool,
    /// How long this thread has waited for room while the collector made no progress.
    pub(crate) stalled_ms: u32,
    /// `stalled_ms` becomes 0 again when the collector has read everything up to here.
    pub(crate) refill_at: u64,
    /// How many of the events that were begun in this ring are written, or counted as dropped.
    settled: u64,
    words: *const AtomicU64,
    words_len: usize,
    clock_skipping: ClockSkipping,
}

impl WriterState {
    /// Returns the state for the new owner of slot `index`, which writes to one of its two rings from now on.
    ///
    /// # Safety
    /// The slot's area is mapped at `area` for as long as the state is used, and the caller's thread is the slot's
    /// owner.
    pub unsafe fn new(
        region: &Region,
        index: u32,
        slot: &SlotHeader,
        area: *mut u8,
        is_nested: bool,
        now: Stamp,
    ) -> Self {
        let (words, words_len) = region.ring_words(index, area, is_nested);
        let shared = Shared::of(slot, is_nested);
        // The previous owner is gone, so its intent is void.
        shared.intent.store(Intent::NONE.0, Ordering::Release);
        WriterState {
            head: shared.head.load(Ordering::Relaxed),
            limit: 0,
            last_stamp: now,
            dropping: false,
            stalled_ms: 0,
            refill_at: 0,
            settled: shared.begun.load(Ordering::Relaxed),
            words,
            words_len,
            clock_skipping: ClockSkipping::NEW,
        }
    }

    /// Makes the next event check whether recording goes on before it is written.
    pub const fn distrust(&mut self) {
        self.limit = self.head;
    }
}

/// The fields of a slot that belong to one of its two rings.
struct Shared<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    intent: &'a AtomicU64,
    begun: &'a AtomicU64,
}

impl<'a> Shared<'a> {
    #[inline(always)]
    const fn of(slot: &'a SlotHeader, is_nested: bool) -> Self {
        if is_nested {
            Shared {
                head: &slot.nested_head,
                tail: &slot.nested_tail,
                intent: &slot.nested_intent,
                begun: &slot.nested_begun,
            }
        } else {
            Shared { head: &slot.head, tail: &slot.tail, intent: &slot.intent, begun: &slot.begun }
        }
    }
}

/// Why there is no room for an event: a loss, or `None` if recording is over.
pub type NoRoom = Option<Loss>;

/// One of the two rings of a slot, and the thread that writes to it.
pub struct RingWriter<'a, H: Host> {
    pub(crate) host: &'a H,
    pub(crate) slot: &'a SlotHeader,
    pub(crate) state: &'a mut WriterState,
    is_nested: bool,
}

impl<'a, H: Host> RingWriter<'a, H> {
    /// # Safety
    /// `WriterState::new` has made the state for this slot and this ring. The calling thread owns the slot, and no
    /// other code of it uses this ring meanwhile.
    #[inline(always)]
    pub const unsafe fn new(host: &'a H, slot: &'a SlotHeader, state: &'a mut WriterState, is_nested: bool) -> Self {
        RingWriter { host, slot, state, is_nested }
    }

    /// A copy of this writer to pass to a function that is not inlined, so that `self` can stay in registers.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> RingWriter<'_, H> {
        RingWriter { host: self.host, slot: self.slot, state: &mut *self.state, is_nested: self.is_nested }
    }

    #[inline(always)]
    fn shared(&self) -> Shared<'a> {
        Shared::of(self.slot, self.is_nested)
    }

    #[inline(always)]
    pub(crate) fn ring(&self) -> Ring<'a> {
        // SAFETY: `WriterState::new` took both from `Region::ring_words`, so they are a ring's words in this slot's
        // area, which its caller keeps mapped. The words are atomics.
        let words = unsafe { core::slice::from_raw_parts(self.state.words, self.state.words_len) };
        let shared = self.shared();
        Ring::new(words, shared.head, shared.tail)
    }

    /// The position of the next word.
    #[inline(always)]
    pub const fn head(&self) -> u64 {
        self.state.head
    }

    /// The writer's side of the audit (see `slot.rs`): `count` events will be written, or counted as dropped.
    ///
    /// Release, so that a collector that sees these events as begun also sees the events before them.
    #[inline(always)]
    pub fn begin_events(&mut self, count: u64) {
        let begun = self.shared().begun;
        begun.store(begun.load(Ordering::Relaxed).wrapping_add(count), Ordering::Release);
    }

    /// Counts events as dropped that were begun. `why` is `None` if recording is over.
    #[cold]
    pub fn drop_events(self, count: u64, why: NoRoom) {
        if !self.host.is_recording() && why.is_none() {
            // In a forked child and after the end of recording, events are not counted. An event that finds the
            // collector dead has a cause and is counted.
            return;
        }
        self.slot.dropped.fetch_add(count, Ordering::Release);
        self.state.settled += count;
        if let Some(loss) = why {
            self.host.header().lose_events(loss, count);
        }
    }

    /// Returns true if there is room for this many words. Otherwise drops `count` events, which the caller has begun.
    #[inline(always)]
    pub fn has_room_or_drops(&mut self, words: usize, count: u64) -> bool {
        match self.has_room(words) {
            Ok(()) => true,
            Err(why) => {
                self.again().drop_events(count, why);
                false
            }
        }
    }

    #[inline(always)]
    fn has_room(&mut self, words: usize) -> Result<(), NoRoom> {
        if self.state.head + words as u64 <= self.state.limit {
            return Ok(());
        }
        self.again().make_room(words as u64)
    }

    /// Writes one event that was begun: publishes the intent, takes the stamp, stores the words that `make` returns for
    /// the stamp, and commits.
    #[inline(always)]
    pub fn write<const WORDS: usize>(&mut self, make: impl FnOnce(Stamp) -> [u64; WORDS]) {
        if !self.has_room_or_drops(WORDS, 1) {
            return;
        }
        self.publish_intent();
        let stamp = self.stamp();
        self.commit(self.state.head, make(stamp), 1);
    }

    /// The quick case of `write`. Returns false, and writes nothing, if there is no room, or if the clock must be read
    /// and that is not a plain read of the time stamp counter. It calls no function, so a hook that calls no other one
    /// need not save registers.
    #[inline(always)]
    pub fn write_quickly<const WORDS: usize>(&mut self, make: impl FnOnce(Stamp) -> [u64; WORDS]) -> bool {
        if self.state.head + WORDS as u64 > self.state.limit {
            return false;
        }
        self.publish_intent();
        let is_clock_due = !self.state.clock_skipping.step(self.host.header());
        // Without plain stamps, the clock must be read by a function call.
        if is_clock_due && !self.host.has_plain_stamps() {
            self.clear_intent();
            return false;
        }
        let stamp = self.next_stamp(is_clock_due.then(|| self.host.plain_stamp()));
        self.commit(self.state.head, make(stamp), 1);
        true
    }

    /// Takes the stamp of an event whose intent is published.
    #[inline(always)]
    pub fn stamp(&mut self) -> Stamp {
        let last = self.state.last_stamp;
        let is_clock_due = !self.state.clock_skipping.step(self.host.header());
        self.next_stamp(is_clock_due.then(|| self.host.stamp_after(last)))
    }

    #[inline(always)]
    fn next_stamp(&mut self, clock: Option<Stamp>) -> Stamp {
        self.check_stamp(clock);
        if let Some(now) = clock {
            self.state.clock_skipping.look(now);
        }
        self.state.last_stamp = clock.unwrap_or(self.state.last_stamp + 1);
        self.state.last_stamp
    }

    /// Publishes the promise that the next event of this ring is not older than the last one.
    #[inline(always)]
    pub fn publish_intent(&mut self) {
        let since = self.state.last_stamp;
        self.shared().intent.store(Intent::writing(since).0, Ordering::Relaxed);
        light_barrier();
    }

    #[inline(always)]
    pub fn clear_intent(&mut self) {
        let is_due = self.state.clock_skipping.is_due();
        let next = if is_due { Intent::NONE } else { Intent::resting(self.state.last_stamp + 1) };
        self.shared().intent.store(next.0, Ordering::Release);
    }

    /// Stores a word. `commit` makes it visible. The caller has checked that there is room.
    #[inline(always)]
    pub fn put(&self, position: u64, word: u64) {
        self.ring().put(position, word);
    }

    /// Stores the words of `count` events at `at`, and makes them and everything before them visible.
    ///
    /// Writes nothing if recording is over, or in a child that was forked during the hook, because the ring belongs to
    /// the parent.
    #[inline(always)]
    pub fn commit<const WORDS: usize>(&mut self, at: u64, words: [u64; WORDS], count: u64) {
        if !self.host.is_recording() {
            return;
        }
        let ring = self.ring();
        let mut head = at;
        for word in words {
            ring.put(head, word);
            head += 1;
        }
        self.check_commit(&ring, at, &words, count);
        ring.commit(head);
        // The state's head is stored last. Until then it differs from the shared head, which tells `abandon` that the
        // event is committed.
        order_for_handlers();
        self.state.settled += count;
        order_for_handlers();
        self.state.head = head;
        self.clear_intent();
    }

    /// Cleans up after a jump has left a hook that was writing to this ring. `was_at_work`: the caller knows that there
    /// was such a hook.
    pub fn abandon(&mut self, was_at_work: bool) {
        let shared = self.shared();
        let (begun, head) = (shared.begun.load(Ordering::Relaxed), shared.head.load(Ordering::Relaxed));
        // `commit` stores the shared head before the state's.
        let is_committed = head != self.state.head;
        let unsettled = begun.wrapping_sub(self.state.settled);
        (self.state.head, self.state.settled) = (head, begun);
        if !is_committed {
            self.slot.dropped.fetch_add(unsettled, Ordering::Release);
            // A realloc calls the real function before it begins its events. If it was left there, it counts as one
            // lost event.
            self.host.header().lose_events(Loss::Abandoned, unsettled.max(was_at_work as u64));
        }
        shared.intent.store(Intent::NONE.0, Ordering::Release);
    }

    /// Writes that the process forks (`pid` is 0) or has forked.
    pub fn note_fork(&mut self, fork: u32, pid: u32) {
        self.begin_events(1);
        self.write(|stamp| encode_fork(stamp, fork, pid));
    }

    /// Writes that the process ends.
    pub fn note_exit(&mut self, code: u8) {
        self.begin_events(1);
        self.write(|stamp| encode_exit(stamp, code));
    }

    /// Writes a mark about a heap.
    pub fn note_heap(&mut self, mark: HeapMark, heap: u64) {
        self.begin_events(1);
        self.write(|stamp| encode_heap(stamp, mark, heap));
    }

    /// Writes the first records of a thread: its tid and, if `new_image` returns one, the number of the program image
    /// that it begins.
    pub fn announce(&mut self, tid: u32, new_image: impl FnOnce() -> Option<u32>) {
        self.begin_events(1);
        self.write(|stamp| encode_mark(Kind::ThreadStart, stamp, tid));
        if let Some(image) = new_image() {
            self.begin_events(1);
            self.write(|stamp| encode_mark(Kind::Image, stamp, image));
        }
    }
}
