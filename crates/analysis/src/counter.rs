//! Counts events into groups: stacks, or anything else that allocation classes are mapped to. It has the full set of
//! costs, for any range.
//!
//! Receives: the size and group of each allocation class. Must hold: the peak is that of the whole program, also when
//! only some blocks are counted; a group keeps its costs at the peak, although nearly every event is a new peak while a
//! heap grows.
use crate::costs::Costs;
use crate::definitions::{KnownAllocClass, SCALE};
use crate::group_id::GroupId;
use crate::walker::{Now, Sink};
use format::{Freed, IntMap, IntSet, Kept, LiveBlocks, PeakTracker};
use std::borrow::Cow;

/// What is kept of a live block if its age and its thread matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) alloc_class: u32,
    pub(crate) thread: u32,
    pub(crate) time_ns: u64,
}

impl Birth {
    /// A block that is allocated now. `None` if the definition of its allocation class is lost.
    #[inline]
    pub(crate) fn of(now: &Now, alloc_class: u32, alloc_classes: &[KnownAllocClass]) -> Option<Birth> {
        let known = alloc_classes.get(alloc_class as usize).is_some_and(|known| !known.site.is_lost());
        known.then_some(Birth { alloc_class, thread: now.thread, time_ns: now.time_ns })
    }

    /// The age of the block.
    #[inline]
    pub(crate) const fn age(&self, now: &Now) -> u64 {
        now.time_ns.saturating_sub(self.time_ns)
    }
}

/// The most memory of the live blocks of a walk over a range, which keeps a `Birth` of each. `live`: the most blocks that
/// are live at the same time.
pub fn most_bytes_of_live_blocks(live: u64, allocations: u64) -> u64 {
    LiveBlocks::<Birth>::most_bytes(live, allocations)
}

impl Kept for Birth {
    const DEAD: Birth = Birth { alloc_class: u32::MAX, thread: 0, time_ns: 0 };
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

/// Which blocks of the counted allocation classes count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// `None` means all threads.
    pub(crate) threads: Option<IntSet<u32>>,
    pub(crate) blocks: Option<Bits>,
}

impl Selection {
    #[inline]
    pub(crate) fn has(&self, sequence: u64, thread: u32) -> bool {
        self.has_thread(thread) && self.blocks.as_ref().is_none_or(|blocks| blocks.get(sequence))
    }

    fn has_thread(&self, thread: u32) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&thread))
    }
}

/// One group during a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Counted from the beginning of the range. `peak_*` is out of date if `epoch` is, see `Counter::at_peak`. `kept_*`
    /// stays 0.
    pub(crate) costs: Costs,
    epoch: u64,
    /// Blocks that were live when their process ended, since the range began.
    pub(crate) left: Left,
    /// The times of its first and last allocation since the walk began.
    first_ns: u64,
    last_ns: u64,
    /// The blocks that it held at its own maximum.
    pub(crate) own_peak_allocations: u64,
    /// The live blocks that are in the trace. Fewer than `costs` says if blocks were sampled.
    pub(crate) live_samples: u64,
}

/// Blocks that no process freed before it ended. A range that reaches the end of the trace counts them as leaked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    /// Those of them that were allocated within the range.
    kept_allocations: u64,
    kept_bytes: u64,
    /// When the oldest of them was allocated.
    pub(crate) oldest_ns: Option<u64>,
}

impl Left {
    /// This many blocks, all of them allocated within the range.
    pub(crate) const fn kept(allocations: u64, bytes: u64) -> Self {
        Left { allocations, bytes, kept_allocations: allocations, kept_bytes: bytes, oldest_ns: None }
    }

    fn add(&mut self, (blocks, bytes): (u64, u64), is_kept: bool, born_ns: u64) {
        self.allocations += blocks;
        self.bytes = self.bytes.saturating_add(bytes);
        if is_kept {
            self.kept_allocations += blocks;
            self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        }
        self.oldest_ns = Some(self.oldest_ns.map_or(born_ns, |oldest_ns| oldest_ns.min(born_ns)));
    }

    /// Counts the blocks as live at the end of the range.
    pub(crate) const fn add_to(&self, costs: &mut Costs) {
        costs.live_allocations = costs.live_allocations.saturating_add(self.allocations);
        costs.live_bytes = costs.live_bytes.saturating_add(self.bytes);
        costs.kept_allocations = costs.kept_allocations.saturating_add(self.kept_allocations);
        costs.kept_bytes = costs.kept_bytes.saturating_add(self.kept_bytes);
    }
}

/// Later than any time.
const NEVER: u64 = u64::MAX;

impl Default for Group {
    fn default() -> Self {
        Group {
            costs: Costs::default(),
            epoch: 0,
            left: Left::default(),
            first_ns: NEVER,
            last_ns: 0,
            own_peak_allocations: 0,
            live_samples: 0,
        }
    }
}

impl Group {
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
    scale: u64,
    pub(crate) groups: Vec<Group>,
    selection: Option<Selection>,
    epoch: u64,
    /// What the whole program holds, and its peak since the range began.
    pub(crate) heap: PeakTracker,
    /// Events up to and including the one that made the peak.
    peak_event: u64,
    pub(crate) selected: Selected,
    /// The sequence number of the range's first allocation.
    first_sequence: u64,
    pub(crate) implied_frees: u64,
    grouping: Grouping,
}

/// How the group of a block depends on the thread that allocated it.
enum Grouping {
    /// It does not.
    AllThreads,
    Parts(ByThread),
    /// Every pair of a group and a thread that occurs has a number, in the order of the first occurrence.
    Sparse(Pairs),
}

/// Groups that depend on the thread that allocated.
pub(crate) struct ByThread {
    /// The part of each thread. Threads that are not in it belong to the last part.
    pub(crate) part_of: IntMap<u32, u32>,
    pub(crate) parts: usize,
    /// The number of groups that each part has; the group of an allocation class is one of these.
    pub(crate) per_part: usize,
}

impl ByThread {
    #[inline]
    fn first_group(&self, thread: u32) -> usize {
        let part = self.part_of.get(&thread).map_or(self.parts, |part| *part as usize);
        part.min(self.parts.saturating_sub(1)) * self.per_part
    }
}

/// Pairs of a group and a thread, numbered.
#[derive(Default)]
pub(crate) struct Pairs {
    numbers: IntMap<u64, u32>,
    list: Vec<(u32, u32)>,
}

impl Pairs {
    const fn key(site: GroupId, thread: u32) -> u64 {
        (thread as u64) << 32 | site.index() as u64
    }

    fn get(&self, site: GroupId, thread: u32) -> Option<usize> {
        self.numbers.get(&Self::key(site, thread)).map(|number| *number as usize)
    }
}

impl<'a> Counter<'a> {
    pub(crate) fn new(alloc_classes: Cow<'a, [KnownAllocClass]>, groups: usize, selection: Option<Selection>) -> Self {
        // Every weight is at least 1.
        let is_sampled = alloc_classes.iter().any(|class| class.blocks >= SCALE);
        Counter {
            scale: if is_sampled { SCALE as u64 } else { 1 },
            alloc_classes,
            groups: vec![Group::default(); groups],
            selection,
            epoch: 0,
            heap: PeakTracker::default(),
            peak_event: 0,
            selected: Selected::default(),
            first_sequence: 0,
            implied_frees: 0,
            grouping: Grouping::AllThreads,
        }
    }

    /// The groups of all parts, in their order.
    pub(crate) fn by_thread(self, by_thread: ByThread) -> Self {
        let groups = vec![Group::default(); by_thread.parts * by_thread.per_part];
        Counter { grouping: Grouping::Parts(by_thread), groups, ..self }
    }

    /// Each pair of a group and a thread that allocates in it becomes a group. They are made when they are needed,
    /// because a trace may have thousands of threads and a hundred thousand stacks.
    pub(crate) fn by_pairs(self) -> Self {
        Counter { grouping: Grouping::Sparse(Pairs::default()), groups: Vec::new(), ..self }
    }

    /// The group and the thread of each pair, in the order of `groups`. `None` if groups are no pairs.
    pub(crate) fn pairs(&self) -> Option<&[(u32, u32)]> {
        match &self.grouping {
            Grouping::Sparse(pairs) => Some(&pairs.list),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn group(&self, site: GroupId, thread: u32) -> usize {
        match &self.grouping {
            Grouping::AllThreads => site.index(),
            _ if !site.is_counted() => site.index(),
            Grouping::Parts(by_thread) => by_thread.first_group(thread) + site.index(),
            Grouping::Sparse(pairs) => pairs.get(site, thread).unwrap_or(usize::MAX),
        }
    }

    /// As `group`, and makes the group if it is a pair that occurs for the first time.
    #[inline]
    pub(crate) fn group_or_new(&mut self, site: GroupId, thread: u32) -> usize {
        if let Grouping::Sparse(pairs) = &mut self.grouping
            && site.is_counted()
        {
            let next = pairs.list.len() as u32;
            let number = *pairs.numbers.entry(Pairs::key(site, thread)).or_insert(next);
            if number == next {
                pairs.list.push((site.index() as u32, thread));
                self.groups.push(Group::default());
            }
            return number as usize;
        }
        self.group(site, thread)
    }

    /// Adds new allocation classes and groups.
    pub(crate) fn grow(&mut self, alloc_classes: &[KnownAllocClass], groups: usize) {
        if alloc_classes.len() > self.alloc_classes.len() {
            let from = self.alloc_classes.len();
            self.alloc_classes.to_mut().extend_from_slice(&alloc_classes[from..]);
        }
        self.groups.resize(groups.max(self.groups.len()), Group::default());
    }

    /// Returns the group and the class of a block that counts.
    pub(crate) fn group_of(&self, sequence: u64, birth: &Birth) -> Option<(usize, KnownAllocClass)> {
        let known = self.alloc_class(birth.alloc_class)?;
        self.selects(sequence, birth.thread).then(|| (self.group(known.site, birth.thread), known))
    }

    pub(crate) fn alloc_class(&self, alloc_class: u32) -> Option<KnownAllocClass> {
        self.alloc_classes.get(alloc_class as usize).copied()
    }

    fn selects(&self, sequence: u64, thread: u32) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.has(sequence, thread))
    }

    pub(crate) fn selects_folded(&self, thread: u32) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.blocks.is_none() && selection.has_thread(thread))
    }

    /// Adds a block that is live where the walk starts.
    pub(crate) fn place(&mut self, sequence: u64, birth: Birth) {
        let Some(KnownAllocClass { bytes, blocks, site, .. }) = self.alloc_class(birth.alloc_class) else { return };
        // The walk's range has not begun, so this is no peak.
        let _ = self.heap.alloc(bytes);
        let group = self.group_or_new(site, birth.thread);
        if self.selects(sequence, birth.thread)
            && let Some(group) = self.groups.get_mut(group)
        {
            group.costs.live_bytes = group.costs.live_bytes.saturating_add(bytes);
            group.costs.live_allocations += blocks as u64;
            group.live_samples += 1;
            self.selected.live_bytes = self.selected.live_bytes.saturating_add(bytes);
        }
    }

    /// Starts the range of `selected`: its peak is what is live now.
    pub(crate) const fn begin_selection(&mut self, time_ns: u64) {
        self.selected.peak_bytes = self.selected.live_bytes;
        self.selected.peak_time_ns = time_ns;
    }

    /// Starts the range: all costs are 0, except those of the blocks that are live now.
    pub(crate) fn begin(&mut self, now: &Now, time_ns: u64) {
        for group in &mut self.groups {
            let Costs { live_bytes, live_allocations, .. } = group.costs;
            group.epoch = self.epoch;
            group.own_peak_allocations = live_allocations;
            group.left = Left::default();
            group.costs = Costs {
                live_bytes,
                live_allocations,
                base_bytes: live_bytes,
                base_allocations: live_allocations,
                peak_bytes: live_bytes,
                peak_allocations: live_allocations,
                own_peak_bytes: live_bytes,
                own_peak_time_ns: time_ns,
                ..Costs::default()
            };
        }
        self.first_sequence = now.next_sequence;
        self.begin_peak(now, time_ns);
    }

    /// Sets the range's first allocation, if the range began before this walk.
    pub(crate) const fn set_first_sequence(&mut self, sequence: u64) {
        self.first_sequence = sequence;
    }

    /// Counts the blocks of processes that ended within the range as live. `costs` has those of all groups.
    pub(crate) fn add_left(&self, costs: &mut [Costs]) {
        self.groups.iter().zip(costs).for_each(|(group, costs)| group.left.add_to(costs));
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

    /// What a group held at the peak: bytes and blocks, in the units of the counter.
    #[inline]
    pub(crate) fn at_peak(&self, group: &Group) -> (u64, u64) {
        if group.epoch == self.epoch {
            (group.costs.peak_bytes, group.costs.peak_allocations)
        } else {
            (group.costs.live_bytes, group.costs.live_allocations)
        }
    }

    /// The costs of a group, in the units of the counter; `kept_*` is not known here.
    pub(crate) fn costs(&self, group: &Group) -> Costs {
        let (peak_bytes, peak_allocations) = self.at_peak(group);
        Costs { peak_bytes, peak_allocations, ..group.costs }
    }

    /// The unit in which blocks are counted: this many are one block.
    pub(crate) const fn scale(&self) -> u64 {
        self.scale
    }

    /// Adds the live blocks from sequence number `first` on to `kept_*` of their groups' costs.
    pub(crate) fn add_kept(&self, live: &LiveBlocks<Birth>, first: u64, costs: &mut [Costs]) {
        live.each_from(first, |sequence, birth| {
            let Some((group, class)) = self.group_of(sequence, &birth) else { return };
            let Some(costs) = costs.get_mut(group) else { return };
            costs.kept_bytes = costs.kept_bytes.saturating_add(class.bytes);
            costs.kept_allocations += class.blocks as u64;
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
            self.costs.peak_bytes = self.costs.live_bytes;
            self.costs.peak_allocations = self.costs.live_allocations;
        }
    }

    #[inline]
    fn alloc(&mut self, class: &KnownAllocClass, epoch: u64, now: &Now) {
        let (bytes, blocks) = (class.bytes, class.blocks as u64);
        self.settle(epoch);
        self.live_samples += 1;
        if self.first_ns == NEVER {
            self.first_ns = now.time_ns;
        }
        self.last_ns = now.time_ns;
        let costs = &mut self.costs;
        costs.allocations += blocks;
        costs.allocated_bytes = costs.allocated_bytes.saturating_add(bytes);
        costs.live_allocations += blocks;
        costs.live_bytes = costs.live_bytes.saturating_add(bytes);
        costs.size_max = costs.size_max.max(class.size);
        if costs.live_bytes > costs.own_peak_bytes {
            costs.own_peak_bytes = costs.live_bytes;
            costs.own_peak_time_ns = now.time_ns;
            self.own_peak_allocations = costs.live_allocations;
        }
    }

    /// A block is live no longer.
    #[inline]
    fn end(&mut self, class: &KnownAllocClass, epoch: u64) {
        self.settle(epoch);
        self.live_samples = self.live_samples.wrapping_sub(1);
        self.costs.live_allocations = self.costs.live_allocations.wrapping_sub(class.blocks as u64);
        self.costs.live_bytes = self.costs.live_bytes.saturating_sub(class.bytes);
    }

    #[inline]
    fn free(&mut self, class: &KnownAllocClass, epoch: u64, lifetime_ns: u64, temporary: bool) {
        self.end(class, epoch);
        let (bytes, blocks) = (class.bytes, class.blocks as u64);
        let costs = &mut self.costs;
        costs.deallocations += blocks;
        costs.freed_bytes = costs.freed_bytes.saturating_add(bytes);
        costs.lifetime_ns = costs.lifetime_ns.saturating_add(lifetime_ns.saturating_mul(blocks));
        if temporary {
            costs.temporary += blocks;
            costs.temporary_bytes = costs.temporary_bytes.saturating_add(bytes);
        }
    }
}

impl Sink for Counter<'_> {
    type Kept = Birth;

    #[inline]
    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Birth> {
        Birth::of(now, alloc_class, &self.alloc_classes)
    }

    #[inline]
    fn alloc(&mut self, now: &Now, alloc_class: u32, birth: Birth) {
        let Some(&class) = self.alloc_classes.get(alloc_class as usize) else { return };
        let group = self.group_or_new(class.site, birth.thread);
        if self.selects(now.next_sequence.wrapping_sub(1), birth.thread)
            && let Some(group) = self.groups.get_mut(group)
        {
            group.alloc(&class, self.epoch, now);
            self.selected.live_bytes = self.selected.live_bytes.saturating_add(class.bytes);
            self.selected.held(self.selected.live_bytes, now.time_ns);
        }
        if self.heap.alloc(class.bytes) {
            self.new_peak(now);
        }
    }

    #[inline]
    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, how: Freed, temporary: bool) {
        let Some(&class) = self.alloc_classes.get(birth.alloc_class as usize) else { return };
        let group = self.group(class.site, birth.thread);
        if self.selects(sequence, birth.thread)
            && let Some(group) = self.groups.get_mut(group)
        {
            match how {
                Freed::Leaked => {
                    group.end(&class, self.epoch);
                    let weight = (class.blocks as u64, class.bytes);
                    group.left.add(weight, sequence >= self.first_sequence, birth.time_ns);
                }
                Freed::Replaced => group.end(&class, self.epoch),
                _ => group.free(&class, self.epoch, birth.age(now), temporary),
            }
            self.selected.live_bytes = self.selected.live_bytes.saturating_sub(class.bytes);
        }
        self.heap.free(class.bytes);
        self.implied_frees += (how == Freed::Implied) as u64;
    }

    fn end_image(&mut self, _: &Now, _: &LiveBlocks<Self::Kept>) {
        for group in &mut self.groups {
            group.settle(self.epoch);
            group.costs.live_bytes = 0;
            group.costs.live_allocations = 0;
            group.live_samples = 0;
        }
        self.heap.free_all();
        self.selected.live_bytes = 0;
    }
}
