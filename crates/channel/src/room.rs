//! What a writer does when its ring gets full: it checks how far the reader is, wakes it, waits for it, and in the end
//! drops events.
use crate::header::{Loss, OnFull, Phase};
use crate::ring::Ring;
use crate::sync::{Ordering, spin_loop};
use crate::writer::{Host, NoRoom, RingWriter};

const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// Turns of a spin loop that take about a millisecond.
const SPINS_A_MS: u32 = 40_000;
const NS_A_MS: u64 = 1_000_000;
/// The longest that a thread spins for room if it must make no system call. Meanwhile the collector empties the rings
/// every millisecond.
const MOST_SPIN_MS: u32 = 1000;
/// The longest single wait. After it the thread checks whether the collector is still alive.
const SLICE_MS: u64 = 100;

impl<H: Host> RingWriter<'_, H> {
    /// Checks how far the reader is, wakes it if the ring is half full, and waits if there is no room. The writer comes
    /// here at least twice each time it goes once around the ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(mut self, words: u64) -> Result<(), NoRoom> {
        let (header, ring) = (self.host.header(), self.ring());
        if header.phase.load(Ordering::Relaxed) == Phase::Stopped as u32 {
            self.host.stop_recording();
            return Err(None);
        }
        // A forked child that continues its parent's hook must not write to its parent's ring.
        if !self.host.is_recording() {
            return Err(None);
        }
        let capacity = ring.capacity() as u64;
        let mut room = ring.room();
        // The collector has read everything up to `refill_at`, so the thread may wait for the whole time again.
        if self.state.stalled_ms != 0 && self.state.head.wrapping_sub(capacity - room) >= self.state.refill_at {
            self.state.stalled_ms = 0;
        }
        if is_half_full(room, capacity) && header.may_call() && self.host.wants_bell() {
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
        let doorbell = self.host.doorbell();
        doorbell.fetch_add(1, Ordering::Release);
        self.host.wake(doorbell);
    }

    /// Sleeps until the collector has made room, and returns the room.
    ///
    /// While the collector makes progress, the thread waits without a limit. If the collector does nothing (stopped,
    /// frozen, swapped out), the thread waits until its budget is spent. After that it drops events without waiting,
    /// until the collector has emptied the ring.
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
            if is_collector_gone(self.host) {
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
            // Another thread may be about to forbid system calls to all threads of the process. It waits until this
            // thread has left its hook.
            if !header.may_call() {
                waiting.store(0, Ordering::Relaxed);
                return self.spin_for_room(ring, words);
            }
            self.ring_bell();
            let (progress, since) = (header.progress.load(Ordering::Relaxed), self.host.now_ns());
            self.host.wait(waiting, 1, SLICE_MS.min(budget));
            waiting.store(0, Ordering::Relaxed);
            let waited_ns = self.host.now_ns().saturating_sub(since);
            header.add_wait(waited_ns);
            let is_stalled = header.progress.load(Ordering::Relaxed) == progress && ring.room() < words;
            if is_stalled {
                let waited_ms = (waited_ns / NS_A_MS).max(1);
                self.state.stalled_ms = self.state.stalled_ms.saturating_add(waited_ms as u32);
                self.state.refill_at = self.state.head;
            }
        }
    }

    /// Spins for room if the thread must not sleep. After it spun in vain once, later events do not spin until there is
    /// room again.
    #[cold]
    fn spin_for_room(&mut self, ring: &Ring<'_>, words: u64) -> Result<u64, NoRoom> {
        let header = self.host.header();
        let spins = header.max_stall_ms.min(MOST_SPIN_MS) * SPINS_A_MS;
        let most = if self.state.dropping { 0 } else { spins };
        let mut patience = most;
        while ring.room() < words && patience > 0 && !is_collector_gone(self.host) {
            spin_loop();
            patience -= 1;
        }
        // A thread that must make no system call cannot ask for the time, so the turns of the loop are the clock.
        header.add_wait(most.saturating_sub(patience) as u64 * NS_A_MS / SPINS_A_MS as u64);
        let room = ring.room();
        self.state.dropping = room < words;
        if self.state.dropping { Err(Some(Loss::RingFull)) } else { Ok(room) }
    }
}

fn is_collector_gone(host: &impl Host) -> bool {
    host.collector_alive().load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0
}

/// Returns true if the ring is at least half full. Then the writer wakes a reader that sleeps. A ring that is exactly
/// half full counts too, because the writer checks next only when the ring is full.
const fn is_half_full(room: u64, capacity: u64) -> bool {
    room <= capacity / 2
}

/// Returns how many words may be written before the writer must check again how far the reader is.
const fn words_until_visit(room: u64, capacity: u64) -> u64 {
    if is_half_full(room, capacity) { room } else { room - capacity / 2 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// For records of 1 to 5 words: the writer has found the ring half full, and rung the bell, before it writes to a
    /// ring that is half full. Records of two words, such as frees, reach exactly the middle.
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
