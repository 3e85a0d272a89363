//! Counts events into groups: stacks, or anything else that allocation classes are mapped to. It has the full set of
//! costs, for any range.
//!
//! Receives: the size and group of each allocation class. Must hold: the peak is that of the whole program, also when
//! only some blocks are counted; a group keeps its costs at the peak, although nearly every event is a new peak while a
//! heap grows.
use crate::costs::Costs;
use crate::definitions::KnownAllocClass;
use crate::group_id::GroupId;
use crate::live::{Kept, Live};
use crate::walker::{Now, Sink};
use format::{Freed, IntMap, PeakTracker};
use std::borrow::Cow;

/// What is kept of a live block if its age and its thread matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) alloc_class: u32,
    pub(crate) thread: u32,
    pub(crate) time_ns: u64,
}

impl Kept for Birth {
    const DEAD: Birth = Birth { alloc_class: u32::MAX, thread: 0, time_ns: 0 };
    const MANY: u32 = 1024;
    #[inline]
    fn is_dead(&self) -> bool {
        self.alloc_class == u32::MAX
    }
    #[inline]
    fn alloc_class(&self) -> u32 {
        self.alloc_class
    }
}

/// A bit for each allocation that counts. It is a map of pieces of 512 bits, because sequence numbers can have large
/// gaps (folded events, or an invalid file).
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(IntMap<u64, [u64; 8]>);

impl Bits {
    pub(crate) fn set(&mut self, sequence: u64) {
        self.0.entry(sequence >> 9).or_default()[(sequence >> 6 & 7) as usize] |= 1 << (sequence & 63);
    }

    #[inline]
    fn get(&self, sequence: u64) -> bool {
        let piece = self.0.get(&(sequence >> 9));
        piece.is_some_and(|words| words[(sequence >> 6 & 7) as usize] >> (sequence & 63) & 1 != 0)
    }
}

/// The blocks that count, beyond their allocation class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Empty means all threads.
    pub(crate) threads: Vec<u32>,
    pub(crate) blocks: Option<Bits>,
}

impl Selection {
    #[inline]
    pub(crate) fn has(&self, sequence: u64, thread: u32) -> bool {
        (self.threads.is_empty() || self.threads.contains(&thread))
            && self.blocks.as_ref().is_none_or(|blocks| blocks.get(sequence))
    }
}

/// One group during a walk. Flows count from the beginning of the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) live_bytes: u64,
    pub(crate) live_allocations: u64,
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) deallocations: u64,
    pub(crate) freed_bytes: u64,
    at_peak_bytes: u64,
    at_peak_allocations: u64,
    epoch: u64,
    pub(crate) temporary: u64,
    pub(crate) temporary_bytes: u64,
    pub(crate) lifetime_ns: u64,
    base_bytes: u64,
    base_allocations: u64,
    pub(crate) own_peak_bytes: u64,
    pub(crate) own_peak_time_ns: u64,
    pub(crate) size_max: u64,
    /// The times of its first and last allocation since the walk began.
    first_ns: u64,
    last_ns: u64,
}

/// Later than any time.
const NEVER: u64 = u64::MAX;

impl Group {
    const NEW: Group = Group {
        live_bytes: 0,
        live_allocations: 0,
        allocations: 0,
        allocated_bytes: 0,
        deallocations: 0,
        freed_bytes: 0,
        at_peak_bytes: 0,
        at_peak_allocations: 0,
        epoch: 0,
        temporary: 0,
        temporary_bytes: 0,
        lifetime_ns: 0,
        base_bytes: 0,
        base_allocations: 0,
        own_peak_bytes: 0,
        own_peak_time_ns: 0,
        size_max: 0,
        first_ns: NEVER,
        last_ns: 0,
    };

    /// When it allocated first and last, since the walk began or the times were forgotten.
    pub(crate) fn allocation_times(&self) -> Option<(u64, u64)> {
        (self.first_ns != NEVER).then_some((self.first_ns, self.last_ns))
    }

    pub(crate) const fn forget_allocation_times(&mut self) {
        (self.first_ns, self.last_ns) = (NEVER, 0);
    }
}

/// The highest moment of the program's total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) bytes: u64,
    pub(crate) allocations: u64,
    pub(crate) time_ns: u64,
    /// Events up to and including the one that made it.
    pub(crate) event: u64,
}

impl Peak {
    pub(crate) const fn of(heap: &PeakTracker, event: u64) -> Self {
        Peak { bytes: heap.peak_bytes, allocations: heap.peak_allocations, time_ns: heap.peak_time_ns, event }
    }
}

/// The sums of the blocks that count, over all groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selected {
    live_bytes: u64,
    /// The highest since `begin_selection`.
    pub(crate) peak_bytes: u64,
    pub(crate) peak_time_ns: u64,
}

impl Selected {
    /// Notes that this many bytes were held at this time.
    #[inline]
    pub(crate) const fn held(&mut self, bytes: u64, time_ns: u64) {
        if bytes > self.peak_bytes {
            self.peak_bytes = bytes;
            self.peak_time_ns = time_ns;
        }
    }
}

pub(crate) struct Counter<'a> {
    /// The size and group of each allocation class. The group `GroupId::LEFT_OUT` counts only in the program's total.
    alloc_classes: Cow<'a, [KnownAllocClass]>,
    pub(crate) groups: Vec<Group>,
    selection: Option<Selection>,
    epoch: u64,
    /// What the whole program holds, and its peak since the range began.
    pub(crate) heap: PeakTracker,
    /// Events up to and including the one that made the peak.
    peak_event: u64,
    pub(crate) selected: Selected,
    pub(crate) deallocations: u64,
    pub(crate) implied_frees: u64,
    /// The number of groups that each thread has; the group of an allocation class is one of these. 0 if groups do not
    /// depend on threads.
    per_thread: usize,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(alloc_classes: Cow<'a, [KnownAllocClass]>, groups: usize, selection: Option<Selection>) -> Self {
        Counter {
            alloc_classes,
            groups: vec![Group::NEW; groups],
            selection,
            epoch: 0,
            heap: PeakTracker::default(),
            peak_event: 0,
            selected: Selected::default(),
            deallocations: 0,
            implied_frees: 0,
            per_thread: 0,
        }
    }

    /// Each thread that allocates gets this many groups, in the order of the threads' indexes.
    pub(crate) fn by_thread(self, threads: usize, per_thread: usize) -> Self {
        Counter { per_thread, groups: vec![Group::NEW; threads * per_thread], ..self }
    }

    #[inline]
    pub(crate) const fn group(&self, site: GroupId, thread: u32) -> usize {
        let first = if self.per_thread > 0 && site.is_counted() { thread as usize * self.per_thread } else { 0 };
        first + site.index()
    }

    /// Adds new allocation classes and groups.
    pub(crate) fn grow(&mut self, alloc_classes: &[KnownAllocClass], groups: usize) {
        if alloc_classes.len() > self.alloc_classes.len() {
            let from = self.alloc_classes.len();
            self.alloc_classes.to_mut().extend_from_slice(&alloc_classes[from..]);
        }
        self.groups.resize(groups.max(self.groups.len()), Group::NEW);
    }

    /// Returns the group and size of a block that counts.
    pub(crate) fn group_of(&self, sequence: u64, birth: &Birth) -> Option<(usize, u64)> {
        let known = self.alloc_class(birth.alloc_class)?;
        self.selects(sequence, birth.thread).then(|| (self.group(known.site, birth.thread), known.size))
    }

    pub(crate) fn alloc_class(&self, alloc_class: u32) -> Option<KnownAllocClass> {
        self.alloc_classes.get(alloc_class as usize).copied()
    }

    fn selects(&self, sequence: u64, thread: u32) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.has(sequence, thread))
    }

    pub(crate) fn selects_folded(&self, thread: u32) -> bool {
        self.selection.as_ref().is_none_or(|selection| {
            selection.blocks.is_none() && (selection.threads.is_empty() || selection.threads.contains(&thread))
        })
    }

    /// Adds a block that is live where the walk starts.
    pub(crate) fn place(&mut self, sequence: u64, birth: Birth) {
        let Some(KnownAllocClass { size, site }) = self.alloc_class(birth.alloc_class) else { return };
        // The walk's range has not begun, so this is no peak.
        let _ = self.heap.alloc(size);
        let group = self.group(site, birth.thread);
        if self.selects(sequence, birth.thread)
            && let Some(group) = self.groups.get_mut(group)
        {
            group.live_bytes = group.live_bytes.saturating_add(size);
            group.live_allocations += 1;
            self.selected.live_bytes = self.selected.live_bytes.saturating_add(size);
        }
    }

    /// Starts the range of `selected`.
    pub(crate) const fn begin_selection(&mut self, time_ns: u64) {
        self.selected.peak_bytes = self.selected.live_bytes;
        self.selected.peak_time_ns = time_ns;
    }

    /// Starts the range.
    pub(crate) fn begin(&mut self, now: &Now, time_ns: u64) {
        for group in &mut self.groups {
            *group = Group {
                live_bytes: group.live_bytes,
                live_allocations: group.live_allocations,
                base_bytes: group.live_bytes,
                base_allocations: group.live_allocations,
                at_peak_bytes: group.live_bytes,
                at_peak_allocations: group.live_allocations,
                epoch: self.epoch,
                own_peak_bytes: group.live_bytes,
                own_peak_time_ns: time_ns,
                first_ns: group.first_ns,
                last_ns: group.last_ns,
                ..Group::NEW
            };
        }
        self.begin_peak(now, time_ns);
    }

    /// Starts a new range for the program's peak only. Groups keep their costs at that peak.
    pub(crate) fn begin_peak(&mut self, now: &Now, time_ns: u64) {
        self.heap.set_peak(time_ns);
        self.peak_event = now.events;
        self.epoch += 1;
    }

    /// The highest moment of the program's total since the range began.
    pub(crate) const fn peak(&self) -> Peak {
        Peak::of(&self.heap, self.peak_event)
    }

    /// What a group held at the peak: bytes and blocks.
    #[inline]
    pub(crate) fn at_peak(&self, group: &Group) -> (u64, u64) {
        if group.epoch == self.epoch {
            (group.at_peak_bytes, group.at_peak_allocations)
        } else {
            (group.live_bytes, group.live_allocations)
        }
    }

    /// The costs of a group; `kept_*` is not known here.
    pub(crate) fn costs(&self, group: &Group) -> Costs {
        let (peak_bytes, peak_allocations) = self.at_peak(group);
        Costs {
            allocations: group.allocations,
            allocated_bytes: group.allocated_bytes,
            deallocations: group.deallocations,
            freed_bytes: group.freed_bytes,
            temporary: group.temporary,
            temporary_bytes: group.temporary_bytes,
            lifetime_ns: group.lifetime_ns,
            base_bytes: group.base_bytes,
            base_allocations: group.base_allocations,
            live_bytes: group.live_bytes,
            live_allocations: group.live_allocations,
            kept_bytes: 0,
            kept_allocations: 0,
            peak_bytes,
            peak_allocations,
            own_peak_bytes: group.own_peak_bytes,
            own_peak_time_ns: group.own_peak_time_ns,
            size_max: group.size_max,
        }
    }

    /// Adds the blocks from sequence number `first` on to `kept_*` of their groups' costs.
    pub(crate) fn add_kept(&self, live: &Live<Birth>, first: u64, costs: &mut [Costs]) {
        live.each_from(first, |sequence, birth| {
            let Some((group, size)) = self.group_of(sequence, &birth) else { return };
            let Some(costs) = costs.get_mut(group) else { return };
            costs.kept_bytes = costs.kept_bytes.saturating_add(size);
            costs.kept_allocations += 1;
        });
    }

    #[inline(never)]
    fn new_peak(&mut self, now: &Now) {
        self.begin_peak(now, now.time_ns);
    }
}

impl Group {
    #[inline]
    fn settle(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.at_peak_bytes = self.live_bytes;
            self.at_peak_allocations = self.live_allocations;
        }
    }

    #[inline]
    fn alloc(&mut self, size: u64, epoch: u64, now: &Now) {
        self.settle(epoch);
        self.allocations += 1;
        self.allocated_bytes = self.allocated_bytes.saturating_add(size);
        if self.first_ns == NEVER {
            self.first_ns = now.time_ns;
        }
        self.last_ns = now.time_ns;
        self.live_allocations += 1;
        self.live_bytes = self.live_bytes.saturating_add(size);
        self.size_max = self.size_max.max(size);
        if self.live_bytes > self.own_peak_bytes {
            self.own_peak_bytes = self.live_bytes;
            self.own_peak_time_ns = now.time_ns;
        }
    }

    #[inline]
    fn free(&mut self, size: u64, epoch: u64, lifetime_ns: u64, temporary: bool) {
        self.settle(epoch);
        self.deallocations += 1;
        self.freed_bytes = self.freed_bytes.saturating_add(size);
        self.live_allocations = self.live_allocations.wrapping_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(size);
        self.lifetime_ns = self.lifetime_ns.saturating_add(lifetime_ns);
        if temporary {
            self.temporary += 1;
            self.temporary_bytes = self.temporary_bytes.saturating_add(size);
        }
    }
}

impl Sink for Counter<'_> {
    type Kept = Birth;

    #[inline]
    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Birth> {
        let known = self.alloc_classes.get(alloc_class as usize).is_some_and(|known| !known.site.is_lost());
        known.then_some(Birth { alloc_class, thread: now.thread, time_ns: now.time_ns })
    }

    #[inline]
    fn alloc(&mut self, now: &Now, alloc_class: u32, birth: Birth) {
        let Some(&KnownAllocClass { size, site }) = self.alloc_classes.get(alloc_class as usize) else { return };
        let group = self.group(site, birth.thread);
        if self.selects(now.next_sequence.wrapping_sub(1), birth.thread)
            && let Some(group) = self.groups.get_mut(group)
        {
            group.alloc(size, self.epoch, now);
            self.selected.live_bytes = self.selected.live_bytes.saturating_add(size);
            self.selected.held(self.selected.live_bytes, now.time_ns);
        }
        if self.heap.alloc(size) {
            self.new_peak(now);
        }
    }

    #[inline]
    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, how: Freed, temporary: bool) {
        let Some(&KnownAllocClass { size, site }) = self.alloc_classes.get(birth.alloc_class as usize) else { return };
        let group = self.group(site, birth.thread);
        if self.selects(sequence, birth.thread)
            && let Some(group) = self.groups.get_mut(group)
        {
            group.free(size, self.epoch, now.time_ns.saturating_sub(birth.time_ns), temporary);
            self.selected.live_bytes = self.selected.live_bytes.saturating_sub(size);
        }
        self.deallocations += 1;
        self.heap.free(size);
        self.implied_frees += (how == Freed::Implied) as u64;
    }

    fn end_image(&mut self, _: &Now, _: &Live<Self::Kept>) {
        for group in &mut self.groups {
            group.settle(self.epoch);
            group.live_bytes = 0;
            group.live_allocations = 0;
        }
        self.heap.free_all();
        self.selected.live_bytes = 0;
    }
}
