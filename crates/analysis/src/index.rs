//! Makes any instant and any range fast to reach: checkpoints with all live blocks, and the history of each stack.
//!
//! ```text
//! checkpoints  0 ........ 1 ........ 2 ........ 3 ........ now      the state between two blocks of events
//! slices         slice 0    slice 1    slice 2
//! range              A......................B                      walk from 0 to A and on to 1; take slice 1; walk from 2 to B
//! ```
//!
//! Must hold: memory is bounded for any trace. If there are too many checkpoints, live blocks in them or entries of
//! histories, every second checkpoint is dropped and its two slices become one.
use crate::counter::{Birth, Counter, Peak};
use crate::definitions::Definitions;
use crate::moment::Moment;
use crate::walker::{Now, Sink, Walker};
use format::{Counting, LiveBlocks};

/// The most slices.
const SLICES: usize = 256;
/// The fewest events of a slice, and (below) the fewest for each block that the checkpoint at its end keeps.
const EVENTS: u64 = 1 << 16;
const EVENTS_PER_BLOCK: u64 = 2;
/// The most bytes of live blocks in all checkpoints together, and (below) of all histories.
const LIVE_BYTES: usize = 96 << 20;
const HISTORY_BYTES: usize = 96 << 20;
/// A live block takes at least this many bytes in a checkpoint. If all of them cannot fit, no checkpoint is made.
const PACKED_BYTES: u64 = 4;

/// The state between two blocks of events.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    /// The number of the block of events that follows.
    pub(crate) block: usize,
    pub(crate) now: Now,
    latest: u64,
    latest_of: Vec<(u32, u64)>,
    /// The live blocks, packed.
    live: Vec<u8>,
    /// The highest moment of the slice that begins here. It is not known yet for the last slice.
    pub(crate) peak: Peak,
}

/// What a stack had done by the end of a slice in which it did something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) slice: u32,
    /// Since the session's start.
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) deallocations: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) temporary: u64,
    pub(crate) temporary_bytes: u64,
    pub(crate) lifetime_ns: u64,
    /// Blocks that were live when their process ended.
    pub(crate) left_allocations: u64,
    pub(crate) left_bytes: u64,
    live_allocations: u64,
    /// Within the slice.
    pub(crate) own_peak_bytes: u64,
    pub(crate) own_peak_time_ns: u64,
    pub(crate) size_max: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) slices: usize,
    pub(crate) events: u64,
    pub(crate) live_bytes: usize,
    pub(crate) history_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { slices: SLICES, events: EVENTS, live_bytes: LIVE_BYTES, history_bytes: HISTORY_BYTES }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    bounds: Bounds,
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// By site, then by slice.
    histories: Vec<Vec<Entry>>,
    entries: usize,
    live_bytes: usize,
    /// The fewest events of a slice. Doubled each time that checkpoints are dropped.
    distance: u64,
}

impl Index {
    /// Has only a checkpoint at the start of the trace, which is sufficient for every query.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Index {
            distance: bounds.events,
            bounds,
            checkpoints: vec![Checkpoint::of(&Self::feeder(), 0)],
            histories: Vec::new(),
            entries: 0,
            live_bytes: 0,
        }
    }

    /// Sets the rule of what is temporary. The Session block names the rule, but it is read after the first checkpoint
    /// was made.
    pub(crate) fn set_counting(&mut self, counting: Counting) {
        self.checkpoints.iter_mut().for_each(|point| point.now.counting = counting);
    }

    /// Called after a block of events. Makes a checkpoint if enough events have passed. `block`: the number of the next
    /// block.
    pub(crate) fn after_block(&mut self, walker: &mut Walker<Counter>, block: usize) {
        let last = self.checkpoints.last().map_or(0, |last| last.now.events);
        let distance = self.distance.max(walker.sink.heap.live_allocations.saturating_mul(EVENTS_PER_BLOCK));
        let least_bytes = walker.sink.heap.live_allocations.saturating_mul(PACKED_BYTES);
        if walker.now.events - last < distance || least_bytes > self.bounds.live_bytes as u64 {
            return;
        }
        self.end_slice(walker);
        let checkpoint = Checkpoint::of(walker, block);
        self.live_bytes += checkpoint.live.len();
        self.checkpoints.push(checkpoint);
        // `halve` needs an odd number. With an even one it would drop the last checkpoint, where the next slice begins.
        while self.is_too_large() && self.checkpoints.len() > 2 && self.checkpoints.len() % 2 == 1 {
            self.halve();
        }
    }

    fn is_too_large(&self) -> bool {
        self.checkpoints.len() > self.bounds.slices
            || self.live_bytes > self.bounds.live_bytes
            || self.entries * size_of::<Entry>() > self.bounds.history_bytes
    }

    fn end_slice(&mut self, walker: &mut Walker<Counter>) {
        let counter = &mut walker.sink;
        let Some(last) = self.checkpoints.last_mut() else { return };
        last.peak = counter.peak();
        let slice = (self.checkpoints.len() - 1) as u32;
        self.histories.resize_with(counter.groups.len(), Vec::new);
        for (group, history) in counter.groups.iter_mut().zip(&mut self.histories) {
            let costs = &mut group.costs;
            let before = history.last().copied().unwrap_or_default();
            let flows = |entry: &Entry| (entry.allocations, entry.deallocations, entry.live_allocations);
            if flows(&before) != (costs.allocations, costs.deallocations, costs.live_allocations) {
                self.entries += 1;
                history.push(Entry {
                    slice,
                    allocations: costs.allocations,
                    allocated_bytes: costs.allocated_bytes,
                    deallocations: costs.deallocations,
                    freed_bytes: costs.freed_bytes,
                    temporary: costs.temporary,
                    temporary_bytes: costs.temporary_bytes,
                    lifetime_ns: costs.lifetime_ns,
                    left_allocations: group.left.allocations,
                    left_bytes: group.left.bytes,
                    live_allocations: costs.live_allocations,
                    own_peak_bytes: costs.own_peak_bytes,
                    own_peak_time_ns: costs.own_peak_time_ns,
                    size_max: costs.size_max,
                });
            }
            costs.own_peak_bytes = costs.live_bytes;
            costs.own_peak_time_ns = walker.now.time_ns;
            costs.size_max = 0;
        }
        let time_ns = walker.now.time_ns;
        counter.begin_peak(&walker.now, time_ns);
    }

    /// Drops every second checkpoint and joins the two slices beside it. The number of checkpoints must be odd: then
    /// the first and the last one stay.
    fn halve(&mut self) {
        let mut kept = Vec::with_capacity(self.checkpoints.len() / 2 + 1);
        for (number, checkpoint) in std::mem::take(&mut self.checkpoints).into_iter().enumerate() {
            match kept.last_mut() {
                Some(before) if number % 2 == 1 => {
                    let before: &mut Checkpoint = before;
                    if checkpoint.peak.bytes > before.peak.bytes {
                        before.peak = checkpoint.peak;
                    }
                }
                _ => kept.push(checkpoint),
            }
        }
        self.checkpoints = kept;
        self.live_bytes = self.checkpoints.iter().map(|checkpoint| checkpoint.live.len()).sum();
        self.entries = 0;
        for history in &mut self.histories {
            history.dedup_by(|later, earlier| {
                let same = later.slice / 2 == earlier.slice / 2;
                if same {
                    let first = *earlier;
                    *earlier = *later;
                    earlier.size_max = first.size_max.max(later.size_max);
                    if first.own_peak_bytes >= later.own_peak_bytes {
                        (earlier.own_peak_bytes, earlier.own_peak_time_ns) =
                            (first.own_peak_bytes, first.own_peak_time_ns);
                    }
                }
                same
            });
            history.iter_mut().for_each(|entry| entry.slice /= 2);
            history.shrink_to_fit();
            self.entries += history.len();
        }
        self.distance = self.distance.saturating_mul(2);
    }

    /// The peaks of the slices that have ended.
    pub(crate) fn finished_peaks(&self) -> impl Iterator<Item = Peak> {
        self.checkpoints.iter().rev().skip(1).rev().map(|point| point.peak)
    }

    /// The last checkpoint that is not after the moment.
    pub(crate) fn before(&self, moment: Moment) -> usize {
        let after = match moment {
            Moment::Time(ns) => self.checkpoints.partition_point(|point| point.now.time_ns <= ns),
            // A checkpoint after exactly this many events may already include an `exec` that followed the last of them.
            Moment::Event(events) => self.checkpoints.partition_point(|point| point.now.events < events),
            Moment::Block(block) => self.checkpoints.partition_point(|point| point.block <= block),
        };
        after.saturating_sub(1)
    }

    /// The state of a site at a checkpoint: its last entry of the slices before.
    pub(crate) fn entry_at(&self, site: usize, checkpoint: usize) -> Entry {
        let Some(history) = self.histories.get(site) else { return Entry::default() };
        let after = history.partition_point(|entry| (entry.slice as usize) < checkpoint);
        after.checked_sub(1).and_then(|at| history.get(at)).copied().unwrap_or_default()
    }

    /// The entries of a site in the slices from one checkpoint to another.
    pub(crate) fn entries_between(&self, site: usize, from: usize, to: usize) -> &[Entry] {
        let Some(history) = self.histories.get(site) else { return &[] };
        let first = history.partition_point(|entry| (entry.slice as usize) < from);
        let after = history.partition_point(|entry| (entry.slice as usize) < to);
        history.get(first..after).unwrap_or_default()
    }
}

impl Checkpoint {
    fn of(walker: &Walker<Counter>, block: usize) -> Self {
        let mut latest_of: Vec<(u32, u64)> =
            walker.latest_of.iter().map(|(&thread, &latest)| (thread, latest)).collect();
        latest_of.sort_unstable();
        Checkpoint {
            block,
            now: walker.now,
            latest: walker.latest,
            latest_of,
            live: pack(&walker.live),
            peak: Peak::default(),
        }
    }

    /// A walker that starts in this state.
    pub(crate) fn walker<'a>(&self, counter: Counter<'a>) -> Walker<Counter<'a>> {
        let mut walker = self.walker_with(counter, Counter::place);
        let (now, time_ns) = (walker.now, walker.now.time_ns);
        walker.sink.begin(&now, time_ns);
        walker
    }

    /// A walker for another sink that starts in this state. The sink is not told about the live blocks.
    pub(crate) fn other_walker<S: Sink<Kept = Birth>>(&self, sink: S) -> Walker<S> {
        self.walker_with(sink, |_, _, _| ())
    }

    /// `place` tells the sink about a live block.
    fn walker_with<S: Sink<Kept = Birth>>(&self, sink: S, place: impl Fn(&mut S, u64, Birth)) -> Walker<S> {
        let mut walker = Walker::new(sink);
        walker.now = self.now;
        walker.latest = self.latest;
        walker.latest_of.extend(self.latest_of.iter().copied());
        unpack(&self.live, |sequence, birth| {
            walker.live.insert(sequence, birth);
            place(&mut walker.sink, sequence, birth);
        });
        walker
    }
}

/// Packs for each block the difference to the sequence number before, the allocation class, the thread, and the
/// difference to the time before in 0.1 ms, as variable-length integers. Sequence numbers and times grow together, so
/// both differences are small.
fn pack(live: &LiveBlocks<Birth>) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut last_sequence, mut last_time) = (0, 0);
    live.each_from(0, |sequence, birth| {
        put(&mut out, sequence - last_sequence);
        put(&mut out, birth.alloc_class as u64);
        put(&mut out, birth.thread as u64);
        put(&mut out, (birth.time_ns / TICK_NS).wrapping_sub(last_time));
        (last_sequence, last_time) = (sequence, birth.time_ns / TICK_NS);
    });
    out.shrink_to_fit();
    out
}

/// The times of all events are multiples of this.
const TICK_NS: u64 = 100_000;

fn unpack(mut bytes: &[u8], mut each: impl FnMut(u64, Birth)) {
    let (mut sequence, mut tick) = (0u64, 0u64);
    while !bytes.is_empty() {
        sequence = sequence.wrapping_add(get(&mut bytes));
        let (alloc_class, thread) = (get(&mut bytes) as u32, get(&mut bytes) as u32);
        tick = tick.wrapping_add(get(&mut bytes));
        each(sequence, Birth { alloc_class, thread, time_ns: tick.saturating_mul(TICK_NS) });
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= ((byte & 0x7f) as u64) << shift;
        if byte < 0x80 || shift >= 63 {
            break;
        }
        shift += 7;
    }
    value
}

impl Index {
    /// The walker that fills the index: it counts stacks from the start of the trace.
    pub(crate) fn feeder() -> Walker<Counter<'static>> {
        Walker::new(Counter::new(Vec::new().into(), 0, None))
    }

    pub(crate) fn grow(walker: &mut Walker<Counter>, definitions: &Definitions) {
        walker.sink.grow(&definitions.alloc_classes, definitions.site_count());
    }
}
