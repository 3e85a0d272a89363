//! Empties the rings of all threads, and finds the instant up to which no event is missing.
//!
//! Receives: the shared memory. Returns: for each round, all committed words (to the merge) and the watermark. Must
//! hold: ring space is free again at once and waiting threads are woken; invalid numbers in a slot stop that slot and
//! nothing else; no thread of the target can make us wait.
use crate::audit::{AtWork, Audited, Counts};
use crate::mapping::{Mapping, SlotArea};
use crate::merge::{Merge, Ordering, Origin};
use crate::proc_files::Process;
use crate::queue::Store;
use channel::{Fence, Header, Owner, Reaped, SlotHeader, SlotState, Stamp};
use rustix::thread::futex;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// If more areas than this are mapped, idle ones release their pages, to bound our own memory.
const KEPT_AREAS: usize = 16;
/// If more areas than this are mapped, those in use release their pages too, each time they are emptied.
const MANY_AREAS: usize = 256;
/// A process that has memory this long after one of its threads was gone did not end together with that thread.
const LIVED_ON: Duration = Duration::from_secs(1);
/// If this many words are queued (3 MB), rings are not emptied during a ordering.
const MOST_RELIEF: usize = Store::BOUND / 8;

#[derive(Default)]
struct Slot {
    /// Its number among the slots of all processes, once it had an event.
    number: Option<u32>,
    area: Option<SlotArea>,
    /// The target's numbers for this slot are invalid, so its words are thrown away.
    stopped: bool,
    idle: bool,
    audited: Audited,
}

pub struct Drain {
    mapping: Arc<Mapping>,
    /// The number of the process among those that are recorded now.
    process: u16,
    slots: Vec<Slot>,
    stopped_slots: u64,
    /// The number of slots whose rings are mapped.
    areas: usize,
    doubts: Vec<Doubt>,
}

/// A slot whose thread was gone in the middle of a call: see `audit.rs`.
struct Doubt {
    slot: usize,
    since: Instant,
    /// The events that all threads had begun some time after the thread was gone.
    begun: Option<u64>,
}

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    pub words: usize,
    /// The largest number of words in one ring.
    pub fullest: usize,
    /// Some words had to stay in a ring, so the merge does not have all events up to the watermark.
    pub is_partial: bool,
}

fn slot_of(mapping: &Mapping, index: u32) -> Option<(&SlotHeader, Owner)> {
    let slot = mapping.region().slot(index)?;
    Some((slot, slot.owner()))
}

impl Drain {
    pub const fn new(mapping: Arc<Mapping>, process: u16) -> Self {
        Drain { mapping, process, slots: Vec::new(), stopped_slots: 0, areas: 0, doubts: Vec::new() }
    }

    /// The number of slots that were stopped because of invalid numbers.
    pub const fn stopped_slots(&self) -> u64 {
        self.stopped_slots
    }

    pub const fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    fn header(&self) -> &Header {
        self.mapping.region().header()
    }

    fn count(&self) -> u32 {
        self.mapping.region().slots_used()
    }

    fn slot(&self, index: u32) -> Option<(&SlotHeader, Owner)> {
        slot_of(&self.mapping, index)
    }

    /// Returns the stamp below which every event is committed. `now` must be read before the call.
    pub fn watermark(&self, now: Stamp) -> Stamp {
        self.mapping.region().watermark(now, || barrier(self.header()))
    }

    /// The same for several processes. One barrier is enough for all.
    pub fn watermark_of_all(&self, others: &[&Arc<Mapping>], now: Stamp) -> Stamp {
        let alone: Vec<bool> = others.iter().map(|mapping| mapping.region().header().next_round()).collect();
        let first = self.mapping.region().watermark(now, full_barrier);
        let bounds = others.iter().zip(alone).map(|(mapping, alone)| mapping.region().bound(now, alone));
        bounds.fold(first, Stamp::min)
    }

    /// True if all events of the process were merged.
    pub fn is_empty(&self, merge: &Merge) -> bool {
        (0..self.count()).all(|index| self.slot(index).is_none_or(|(header, _)| self.is_done(index, header, merge)))
    }

    /// Copies all committed words into the queues.
    pub fn empty_rings(&mut self, ordering: &mut Ordering) -> Drained {
        let count = self.count();
        if self.slots.len() < count as usize {
            self.slots.resize_with(count as usize, Slot::default);
        }
        let mapping = Arc::clone(&self.mapping);
        let mut drained = Drained::default();
        for index in 0..count {
            let Some((header, owner)) = slot_of(&mapping, index) else { continue };
            if owner.state() == SlotState::Free {
                continue;
            }
            let (words, is_partial) = self.empty_slot(index, header, ordering);
            drained.words += words;
            drained.fullest = drained.fullest.max(words);
            drained.is_partial |= is_partial;
        }
        drained
    }

    /// True if some thread may soon have to wait.
    pub fn is_any_half_full(&self) -> bool {
        let region = self.mapping.region();
        (0..self.count()).any(|index| {
            let half = region.geometry().ring_words_of(index) as u64 / 2;
            self.slot(index).is_some_and(|(slot, owner)| {
                let waiting = slot.head.load(Acquire).wrapping_sub(slot.tail.load(Relaxed));
                owner.state() != SlotState::Free && waiting >= half
            })
        })
    }

    /// Empties the rings if some thread may soon have to wait, but only while little is queued. A thread that outpaces
    /// the collector for long must wait, because the queues would grow without end.
    pub fn relieve_rings(&mut self, ordering: &mut Ordering) -> Option<Drained> {
        if ordering.queued() >= MOST_RELIEF || !self.is_any_half_full() {
            return None;
        }
        self.header().next_round();
        Some(self.empty_rings(ordering))
    }

    /// Returns the number of words, and whether some had to stay in the ring.
    fn empty_slot(&mut self, index: u32, header: &SlotHeader, ordering: &mut Ordering) -> (usize, bool) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return (0, false) };
        if header.is_drained() {
            return (0, false);
        }
        slot.idle = false;
        if slot.area.is_none() {
            // If it cannot be mapped now (no address space), the words stay in the ring.
            slot.area = self.mapping.slot_area(index).ok();
            self.areas += slot.area.is_some() as usize;
        }
        let mut words = 0;
        let is_partial = !slot.stopped && (slot.area.is_none() || !ordering.has_room());
        if let Some(area) = slot.area.as_ref().filter(|_| !slot.stopped) {
            let origin = Origin { process: self.process, slot: index };
            let number = *slot.number.get_or_insert_with(|| ordering.add_slot(origin));
            for (nested, ring) in area.rings().iter().enumerate() {
                let source = number * 2 + nested as u32;
                match ordering.drain(source, ring) {
                    Ok(count) => words += count,
                    Err(_) => slot.stopped = true,
                }
                slot.stopped |= ordering.is_broken(source);
            }
            self.stopped_slots += slot.stopped as u64;
        }
        if words > 0 {
            // Progress is noted before the thread is woken, so that it does not take our work for a stall.
            self.mapping.region().header().progress.fetch_add(1, Release);
        }
        // With many threads, the pages of all rings would take more memory than we may use.
        if self.areas > MANY_AREAS
            && let Some(area) = &slot.area
        {
            area.release_pages();
        }
        if slot.stopped {
            header.tail.store(header.head.load(Acquire), Release);
            header.nested_tail.store(header.nested_head.load(Acquire), Release);
        }
        if header.waiting.load(Acquire) != 0 {
            header.waiting.store(0, Release);
            let _ = futex::wake(&header.waiting, futex::Flags::empty(), i32::MAX as u32);
        }
        (words, is_partial)
    }

    /// Finds threads that are gone, and frees their slots once all their events are merged. It makes a system call for
    /// each thread, so it is not called in every round. Also audits slots that are drained.
    pub fn reap(&mut self, process: &Process, merge: &Merge) {
        self.settle_doubts(process);
        let threads = process.threads();
        let mapping = Arc::clone(&self.mapping);
        for index in 0..self.slots.len() as u32 {
            let Some((header, _)) = slot_of(&mapping, index) else { continue };
            match mapping.region().reap(header, |tid| threads.exists(tid)) {
                Reaped::Ended { by_exec: true } => self.forgive(index),
                Reaped::Alive => self.audit_slot(index, header, merge, AtWork::Perhaps),
                Reaped::Dead(owner) if self.is_done(index, header, merge) => {
                    self.audit_slot(index, header, merge, AtWork::No);
                    self.free(index, owner);
                }
                Reaped::Ended { .. } | Reaped::Dead(_) | Reaped::Free => (),
            }
        }
        self.give_pages_back();
    }

    /// Must be called when an exec ended the slot's thread, perhaps in the middle of a call.
    fn forgive(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.audited.forgive();
        }
    }

    /// Compares the events that a thread began to write with those that arrived. Does nothing while some are on their
    /// way.
    fn audit_slot(&mut self, index: u32, header: &SlotHeader, merge: &Merge, at_work: AtWork) {
        // The order matters: events that were begun before the look at the rings must have arrived by now.
        let begun = header.events_begun();
        if !self.is_done(index, header, merge) {
            return;
        }
        let arrived = self.arrived(index, merge);
        let counts = Counts { begun, arrived, dropped: header.dropped.load(Acquire) };
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| !slot.stopped) else { return };
        slot.audited.compare(counts, at_work);
        if slot.audited.is_in_doubt() {
            self.doubts.push(Doubt { slot: index as usize, since: Instant::now(), begun: None });
        }
    }

    /// Decides about threads that were gone in the middle of a call at an earlier look. Their process was not ended with them if other
    /// threads began events since the look after that one, or if it still has memory a second later.
    fn settle_doubts(&mut self, process: &Process) {
        if self.doubts.is_empty() {
            return;
        }
        let begun = self.total_begun();
        let has_memory = process.rss_bytes().is_some_and(|bytes| bytes > 0);
        let (slots, doubts) = (&mut self.slots, &mut self.doubts);
        doubts.retain_mut(|doubt| {
            let before = *doubt.begun.get_or_insert(begun);
            let lived_on = before != begun || has_memory && doubt.since.elapsed() >= LIVED_ON;
            if lived_on && let Some(slot) = slots.get_mut(doubt.slot) {
                slot.audited.settle(true);
            }
            !lived_on
        });
    }

    /// The session is over: what is still in doubt was decided by the end of the process, unless its threads went on.
    fn settle_all_doubts(&mut self, begun: u64) {
        for doubt in std::mem::take(&mut self.doubts) {
            if let Some(slot) = self.slots.get_mut(doubt.slot) {
                slot.audited.settle(doubt.begun.is_some_and(|before| before != begun));
            }
        }
    }

    fn total_begun(&self) -> u64 {
        self.begun().into_iter().fold(0, u64::wrapping_add)
    }

    /// The last audit. Must be called when the merge is empty, with the `begun` that was read before the rings were
    /// emptied. Each of these events was merged or dropped, unless its thread did not finish the call or its words were
    /// lost (after an invalid word in a ring, or in the spill file). The events of a slot that were neither merged nor
    /// dropped count as missing if they are too many for one unfinished call.
    pub fn audit_all(&mut self, merge: &Merge, begun: &[u64]) {
        self.settle_all_doubts(begun.iter().copied().fold(0, u64::wrapping_add));
        for (index, &begun) in begun.iter().enumerate() {
            let Some((header, owner)) = slot_of(&self.mapping, index as u32) else { continue };
            let arrived = self.arrived(index as u32, merge);
            let counts = Counts { begun, arrived, dropped: header.dropped.load(Acquire) };
            let at_work = if owner.state() == SlotState::Free { AtWork::No } else { AtWork::Perhaps };
            if let Some(slot) = self.slots.get_mut(index) {
                slot.audited.compare(counts, at_work);
            }
        }
    }

    /// The number of events that each slot has begun, for `audit_all`.
    pub fn begun(&self) -> Vec<u64> {
        (0..self.count()).map(|index| self.slot(index).map_or(0, |(header, _)| header.events_begun())).collect()
    }

    /// Events of all slots that were begun and neither arrived nor were counted as dropped.
    pub fn missing(&self) -> u64 {
        self.slots.iter().map(|slot| slot.audited.missing()).fold(0, u64::saturating_add)
    }

    fn free(&mut self, index: u32, dead: Owner) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.areas -= slot.area.take().is_some() as usize;
        }
        self.mapping.region().give_slot_back(index, dead);
    }

    fn is_done(&self, index: u32, header: &SlotHeader, merge: &Merge) -> bool {
        header.is_drained()
            && self.sources(index).is_none_or(|sources| sources.iter().all(|one| merge.is_drained(*one)))
    }

    /// The rings of a slot, if it had an event.
    fn sources(&self, index: u32) -> Option<[u32; 2]> {
        let number = self.slots.get(index as usize)?.number?;
        Some([number * 2, number * 2 + 1])
    }

    /// The number of events of a slot that left its queues.
    fn arrived(&self, index: u32, merge: &Merge) -> u64 {
        self.sources(index).map_or(0, |sources| sources.iter().map(|one| merge.taken(*one)).sum())
    }

    /// The numbers of all slots that had an event.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().filter_map(|slot| slot.number)
    }

    fn give_pages_back(&mut self) {
        let many = self.areas > KEPT_AREAS;
        for slot in &mut self.slots {
            if let Some(area) = slot.area.as_ref().filter(|_| many && slot.idle) {
                area.release_pages();
            }
            slot.idle = true;
        }
    }
}

/// After this call, every store that a thread of the target made before our latest look at the clock is visible here.
fn barrier(header: &Header) {
    if header.fence.load(Acquire) == Fence::Membarrier as u32 {
        full_barrier();
    }
    std::sync::atomic::fence(SeqCst);
}

fn full_barrier() {
    if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        // The fast kind is refused to us but not to the target. The slow kind needs no registration.
        let _ = membarrier(MembarrierCommand::Global);
    }
    std::sync::atomic::fence(SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::tests::tight;
    use crate::merge::tests::Log;
    use crate::merge::{Patience, Stopped};
    use crate::spill::Spill;
    use channel::{Geometry, encode_alloc};

    const RING: usize = Geometry::tight(channel::WriterMemory::NONE).ring_words as usize;
    const EVENT: usize = 3;

    /// A target of two threads, its rings, and the `Drain` that empties them.
    struct Target {
        mapping: Arc<Mapping>,
        drain: Drain,
        merge: Merge,
        /// The stamp of the next event.
        stamp: u64,
    }

    impl Target {
        fn new() -> Self {
            let mapping = Arc::new(Mapping::create(&tight()).unwrap());
            let region = mapping.region();
            (0..2).for_each(|index| assert!(region.take_slot(100 + index, 0).is_some_and(|(slot, _)| slot == index)));
            let merge = Merge::new(Store::new(Spill::new(std::env::temp_dir()), Store::BOUND));
            Target { drain: Drain::new(Arc::clone(&mapping), 0), mapping, merge, stamp: 1 }
        }

        /// The thread allocates until this many words are written or the ring is full.
        fn write(&mut self, slot: u32, words: usize) -> usize {
            let area = self.mapping.slot_area(slot).unwrap();
            let [ring, _] = area.rings();
            let head = &self.mapping.region().slot(slot).unwrap().head;
            let mut written = 0;
            while written + EVENT <= words && ring.room() >= EVENT as u64 {
                let event = encode_alloc(self.stamp, self.stamp << 4, 8, 1);
                self.stamp += 1;
                let at = head.load(Relaxed);
                event.iter().enumerate().for_each(|(n, word)| ring.put(at + n as u64, *word));
                ring.commit(at + event.len() as u64);
                written += event.len();
            }
            written
        }

        fn relieve(&mut self) -> Option<usize> {
            self.drain.relieve_rings(self.merge.ordering()).map(|drained| drained.words)
        }

        fn merge(&mut self) {
            let mut log = Log::default();
            while self.merge.run(self.stamp, Patience { free: 1, alloc: 1 }, &mut log) == Stopped::Paused {}
        }
    }

    #[test]
    fn rings_are_relieved_from_the_moment_one_is_half_full() {
        let mut target = Target::new();
        let half = RING / 2;
        let mut written = target.write(0, half - EVENT) + target.write(1, 30);
        assert_eq!(target.relieve(), None);
        written += target.write(0, 2 * EVENT);
        assert_eq!(target.relieve(), Some(written), "both rings");
        assert_eq!(target.relieve(), None);
    }

    #[test]
    fn relief_ends_where_much_is_queued_and_goes_on_when_it_was_merged() {
        let mut target = Target::new();
        let mut queued = 0;
        loop {
            target.write(0, RING);
            let Some(words) = target.relieve() else { break };
            queued += words;
            assert_eq!(target.merge.ordering().queued(), queued);
            assert!(queued < MOST_RELIEF + RING, "{queued}");
        }
        assert!(queued >= MOST_RELIEF, "{queued}");
        assert_eq!(target.write(0, EVENT), 0, "the thread waits");
        target.merge();
        assert_eq!(target.merge.ordering().queued(), 0);
        assert!(target.relieve().is_some_and(|words| words > RING - EVENT));
    }
}
