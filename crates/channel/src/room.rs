//! What a writer does when its ring gets full: it looks at the reader, wakes it, waits for it, and in the end drops events.
use crate::header::{Header, Loss, OnFull, Phase};
use crate::ring::Ring;
use crate::sync::{Ordering, spin_loop};
use crate::writer::{Host, NoRoom, RingWriter};

const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// About a millisecond.
const SPINS_A_MS: u32 = 40_000;
/// The longest that a thread spins for room where it must make no system call. The collector looks every millisecond then.
const MOST_SPIN_MS: u32 = 1000;
/// The longest single wait: the collector may have died meanwhile.
const SLICE_MS: u64 = 100;

impl<H: Host> RingWriter<'_, H> {
    /// Visited at least twice per turn of the ring: looks at the reader, rings its bell, waits if need be.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(mut self, words: u64) -> Result<(), NoRoom> {
        let (header, ring) = (self.host.header(), self.ring());
        if header.phase.load(Ordering::Relaxed) == Phase::Stopped as u32 {
            self.host.stop_recording();
            return Err(None);
        }
        // A forked child that goes on with its parent's hook: nobody reads what it writes.
        if !self.host.is_recording() {
            return Err(None);
        }
        let capacity = ring.capacity() as u64;
        let mut room = ring.room();
        // What the collector has not taken yet begins after `refill_at`.
        if self.state.stalled_ms != 0 && self.state.head.wrapping_sub(capacity - room) >= self.state.refill_at {
            self.state.stalled_ms = 0;
        }
        if is_half_full(room, capacity) && header.may_call() && header.wants_bell() {
            self.ring_bell();
        }
        if room < words {
            room = self.wait_for_room(&ring, words)?;
        }
        self.state.limit = self.state.head + words_until_visit(room, capacity);
        Ok(())
    }

    /// Wakes the collector.
    fn ring_bell(&self) {
        let doorbell = &self.host.header().doorbell;
        doorbell.fetch_add(1, Ordering::Release);
        self.host.wake(doorbell);
    }

    /// Sleeps until the collector has made room, and returns the room. A collector that works is waited for as long as it takes.
    /// One that does nothing (stopped, frozen, swapped out) is waited for until the thread's budget is spent; after that, events
    /// are dropped without a wait until the collector has emptied the ring.
    #[cold]
    fn wait_for_room(&mut self, ring: &Ring<'_>, words: u64) -> Result<u64, NoRoom> {
        let header = self.host.header();
        if header.on_full == OnFull::Drop as u32 {
            return Err(Some(Loss::RingFull));
        }
        if !header.may_call() {
            return self.spin_for_room(ring, words);
        }
        let waiting = &self.slot.waiting;
        loop {
            if !self.host.is_recording() {
                return Err(None);
            }
            if is_collector_gone(header) {
                self.host.stop_recording();
                return Err(Some(Loss::NoCollector));
            }
            let budget = header.max_stall_ms.saturating_sub(self.state.stalled_ms) as u64;
            if budget == 0 {
                return Err(Some(Loss::RingFull));
            }
            waiting.store(1, Ordering::SeqCst);
            let room = ring.room();
            if room >= words {
                waiting.store(0, Ordering::Relaxed);
                return Ok(room);
            }
            // A thread that forbids all threads of the process system calls waits until this one is not here any more.
            if !header.may_call() {
                waiting.store(0, Ordering::Relaxed);
                return self.spin_for_room(ring, words);
            }
            self.ring_bell();
            let (progress, since) = (header.progress.load(Ordering::Relaxed), self.host.now_ms());
            self.host.wait(waiting, 1, SLICE_MS.min(budget));
            waiting.store(0, Ordering::Relaxed);
            let is_stalled = header.progress.load(Ordering::Relaxed) == progress && ring.room() < words;
            if is_stalled {
                let waited = self.host.now_ms().saturating_sub(since).max(1);
                self.state.stalled_ms = self.state.stalled_ms.saturating_add(waited as u32);
                self.state.refill_at = self.state.head;
            }
        }
    }

    /// Spins for room where the thread must not sleep. Once that was in vain, later events do not spin until there is room again.
    #[cold]
    fn spin_for_room(&mut self, ring: &Ring<'_>, words: u64) -> Result<u64, NoRoom> {
        let header = self.host.header();
        let spins = header.max_stall_ms.min(MOST_SPIN_MS) * SPINS_A_MS;
        let mut patience = if self.state.dropping { 0 } else { spins };
        while ring.room() < words && patience > 0 && !is_collector_gone(header) {
            spin_loop();
            patience -= 1;
        }
        let room = ring.room();
        self.state.dropping = room < words;
        if self.state.dropping { Err(Some(Loss::RingFull)) } else { Ok(room) }
    }
}

fn is_collector_gone(header: &Header) -> bool {
    header.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0
}

/// A reader that sleeps is woken from here on. Exactly half counts: the next visit is at the ring's end.
const fn is_half_full(room: u64, capacity: u64) -> bool {
    room <= capacity / 2
}

/// How many words may be written before the reader is looked at again.
const fn words_until_visit(room: u64, capacity: u64) -> u64 {
    if is_half_full(room, capacity) { room } else { room - capacity / 2 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Frees are of two words: from an even place they meet the middle of the ring exactly.
    #[test]
    fn no_way_through_the_ring_passes_a_sleeping_reader_by() {
        for step in 1..=5 {
            for capacity in [64u64, 1 << 12] {
                let (mut room, mut limit, mut rings) = (capacity, 0, 0);
                while room >= step {
                    if limit < step {
                        rings += is_half_full(room, capacity) as u32;
                        limit = words_until_visit(room, capacity);
                    }
                    if limit < step {
                        break;
                    }
                    limit -= step;
                    room -= step;
                    assert!(rings > 0 || room + step > capacity / 2, "{step} of {capacity}: half is full, no bell");
                }
            }
        }
    }
}
