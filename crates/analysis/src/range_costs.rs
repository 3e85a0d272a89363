//! The costs of each stack in any range: event by event, or with the help of the index.
//!
//! Receives: a range and the blocks of events. Returns: costs per group, and the program's peak within the range.
//! Must hold: both ways return the same numbers.
use crate::costs::Costs;
use crate::counter::{Birth, Counter, Group, Left, Peak};
use crate::engine::Engine;
use crate::event_counter::highest;
use crate::folds;
use crate::index::{Checkpoint, Entry};
use crate::moment::{Moment, When};
use crate::pass::{Blocks, Gone, Stretch};
use crate::profile::{Profile, Range};
use crate::query::Query;
use crate::walker::Walker;
use format::{Folded, LiveBlocks};
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Engine {
    /// The costs of each stack that the query asks for.
    pub fn profile(&self, blocks: &mut dyn Blocks, query: &Query) -> Result<Profile, Gone> {
        let range = self.range(query);
        let chosen = self.chosen(query);
        if let Some(sums) = self.sums() {
            let stacks = sums.iter().copied().zip(0u32..).filter(|(costs, site)| chosen.has(*site) && !costs.is_zero());
            let stacks = stacks.map(|(costs, site)| (site, costs)).collect();
            return Ok(Profile { known: self.definitions.profile, ..Profile::new(range, stacks, 0) });
        }
        let selection = self.selection(blocks, query, &range)?;
        let alloc_classes = self.alloc_classes_by_size(query);
        let index_suffices = selection.is_none() && matches!(alloc_classes, Cow::Borrowed(_));
        let (costs, peak) = if index_suffices {
            self.costs_by_index(blocks, &range)?
        } else {
            let counter = Counter::new(alloc_classes, self.definitions.site_count(), selection);
            self.costs_by_walk(blocks, &range, counter)?
        };
        let numbered = costs.into_iter().zip(0u32..);
        let stacks = numbered.filter(|(costs, site)| chosen.has(*site) && !costs.is_zero());
        Ok(Profile::new(range, stacks.map(|(costs, site)| (site, costs)).collect(), peak.time_ns))
    }

    /// How many blocks of each size the query's range allocated.
    pub fn histogram(&self, blocks: &mut dyn Blocks, query: &Query) -> Result<BTreeMap<u64, u64>, Gone> {
        let range = self.range(query);
        let chosen = self.chosen(query);
        let selection = self.selection(blocks, query, &range)?;
        let mut sizes: BTreeMap<u64, u32> = BTreeMap::new();
        let mut group_of_size = |size: u64| {
            let next = sizes.len() as u32;
            *sizes.entry(size).or_insert(next)
        };
        let alloc_classes = self.alloc_classes_by_size(query);
        let by_size = alloc_classes
            .iter()
            .map(|class| class.regrouped(|site| chosen.has(site).then(|| group_of_size(class.size))))
            .collect();
        let counter = Counter::new(Cow::Owned(by_size), sizes.len(), selection);
        let (costs, _) = self.costs_by_walk(blocks, &range, counter)?;
        let count = |group: u32| costs.get(group as usize).map_or(0, |costs| costs.allocations);
        let counts = sizes.into_iter().map(|(size, group)| (size, count(group)));
        Ok(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// The last checkpoint that is not after the moment.
    pub(crate) fn start_for(&self, moment: Moment) -> &Checkpoint {
        let at = self.index.before(moment);
        &self.index.checkpoints[at.min(self.index.checkpoints.len() - 1)]
    }

    /// The blocks of events from a checkpoint to the end of the trace.
    pub(crate) fn stretch<'a>(&self, blocks: &'a mut dyn Blocks, point: &Checkpoint) -> Stretch<'a> {
        Stretch { blocks, first: point.block, end: self.blocks, events: self.events() }
    }

    /// The folded parts that belong to a range: it begins with the session and does not end before the cut.
    fn folded_in(&self, range: &Range) -> impl Iterator<Item = &Folded> {
        let is_whole = !range.instant && self.moment(range.from) == Moment::START;
        let to_ns = range.to_ns;
        self.definitions.folded.iter().filter(move |part| is_whole && part.until_ns <= to_ns)
    }

    /// The folded part that has the range's highest moment; `None` if the range's events reach more bytes. `counted`:
    /// the most bytes that the events reach.
    pub(crate) fn folded_peak_in(&self, range: &Range, counted: u64) -> Option<&Folded> {
        folds::peaking(self.folded_in(range), Peak { bytes: counted, ..Peak::default() })
    }

    /// Adds the folded parts that belong to the range.
    fn add_folded(&self, range: &Range, counter: &Counter<'_>, costs: &mut [Costs], peak: &mut Peak) {
        let reaches_end = self.reaches_end(range);
        for part in self.folded_in(range) {
            folds::add(part, reaches_end, costs, |row| counter.group_of_row(row));
        }
        if let Some(part) = self.folded_peak_in(range, peak.bytes) {
            folds::set_peak(part, costs, |row| counter.group_of_row(row));
            *peak = folds::peak_of(part);
        }
    }

    /// What the groups held at a peak that lies in a folded part, which no walk over events can reach.
    pub(crate) fn at_folded_peak(&self, part: &Folded, counter: &Counter<'_>) -> (Vec<Costs>, Peak) {
        let mut costs = vec![Costs::default(); counter.groups.len()];
        folds::set_peak(part, &mut costs, |row| counter.group_of_row(row));
        for costs in &mut costs {
            (costs.live_bytes, costs.live_allocations) = (costs.peak_bytes, costs.peak_allocations);
            (costs.base_bytes, costs.base_allocations) = (costs.peak_bytes, costs.peak_allocations);
        }
        (rescaled(costs, counter.scale()), folds::peak_of(part))
    }

    /// Counts the range event by event. At an instant, only live blocks have a cost.
    pub(crate) fn costs_by_walk(
        &self,
        blocks: &mut dyn Blocks,
        range: &Range,
        counter: Counter<'_>,
    ) -> Result<(Vec<Costs>, Peak), Gone> {
        self.costs_and_more(blocks, range, counter, |_, _| ())
    }

    /// As `costs_by_walk`. At the end of the range, `more` gets the counter and the live blocks. It gets no live blocks
    /// if the range is a peak that no walk over events can reach.
    pub(crate) fn costs_and_more(
        &self,
        blocks: &mut dyn Blocks,
        range: &Range,
        mut counter: Counter<'_>,
        mut more: impl FnMut(&Counter<'_>, Option<&LiveBlocks<Birth>>),
    ) -> Result<(Vec<Costs>, Peak), Gone> {
        self.make_groups(range, &mut counter);
        if let Some(part) = self.folded_peak().filter(|_| range.instant && range.from == When::Peak) {
            more(&counter, None);
            return Ok((only_live(self.at_folded_peak(part, &counter).0), Peak::default()));
        }
        let (from, to) = (self.moment(range.from), self.moment(range.to));
        let point = self.start_for(from);
        let mut walker = point.walker(counter);
        let mut first = 0;
        let mut result = (Vec::new(), Peak::default());
        self.stretch(blocks, point).walk(&mut walker, &[from, to], |at, walker| {
            if at == 0 {
                first = walker.now.next_sequence;
                walker.sink.begin(&walker.now, range.from_ns);
            } else {
                result = finished(walker, first);
                if self.reaches_end(range) {
                    walker.sink.add_left(&mut result.0);
                }
                self.add_folded(range, &walker.sink, &mut result.0, &mut result.1);
                self.add_gone(range, first, &walker.sink, &mut result.0);
                result.0 = rescaled(std::mem::take(&mut result.0), walker.sink.scale());
                more(&walker.sink, Some(&walker.live));
            }
        })?;
        if range.instant {
            result = (only_live(result.0), Peak::default());
        }
        Ok(result)
    }

    /// Makes the groups of blocks that the walk may not see: folded ones, and those that a process left behind.
    fn make_groups(&self, range: &Range, counter: &mut Counter<'_>) {
        if counter.pairs().is_none() {
            return;
        }
        let folded = self.definitions.folded.iter().flat_map(|part| &part.rows);
        let gone = self.gone_in(range).flat_map(|part| &part.blocks);
        let pairs = folded.map(|row| (row.alloc_class, row.thread));
        for (alloc_class, thread) in pairs.chain(gone.map(|block| (block.alloc_class, block.thread))) {
            if let Some(known) = counter.alloc_class(alloc_class) {
                counter.group_or_new(known.site, thread);
            }
        }
    }

    /// Takes whole slices from the index, and counts event by event only at both ends of the range and around the peak.
    fn costs_by_index(&self, blocks: &mut dyn Blocks, range: &Range) -> Result<(Vec<Costs>, Peak), Gone> {
        let (from, to) = (self.moment(range.from), self.moment(range.to));
        let (first, last) = (self.index.before(from), self.index.before(to));
        if last <= first || range.instant || self.needs_left_blocks(range, first, last) {
            return self.costs_by_walk(blocks, range, self.site_counter());
        }
        let mut parts = self.parts(blocks, range, first, last)?;
        let mut costs = std::mem::take(&mut parts.tail_costs);
        for (site, costs) in costs.iter_mut().enumerate() {
            if let Some(sum) = self.sum_of_parts(site, costs, &parts) {
                *costs = sum;
            }
        }
        if self.reaches_end(range) {
            parts.head.sink.add_left(&mut costs);
            self.add_left_between(parts.first + 1, parts.last, &mut costs);
            parts.tail.sink.add_left(&mut costs);
        }
        let mut peak = parts.peak;
        self.add_folded(range, &parts.head.sink, &mut costs, &mut peak);
        self.add_gone(range, parts.sequence, &parts.head.sink, &mut costs);
        Ok((costs, peak))
    }

    /// Whether the range counts blocks of processes that ended within its whole slices, and must know when these blocks
    /// were allocated. The index does not know that. If the range begins with the session, all of them count.
    fn needs_left_blocks(&self, range: &Range, first: usize, last: usize) -> bool {
        let is_asked = self.reaches_end(range) && self.moment(range.from) != Moment::START;
        is_asked && (0..self.definitions.site_count()).any(|site| self.left_between(site, first + 1, last).0 > 0)
    }

    /// The blocks of a site that were live when their process ended, between two checkpoints: their number and bytes.
    fn left_between(&self, site: usize, from: usize, to: usize) -> (u64, u64) {
        let (before, after) = (self.index.entry_at(site, from), self.index.entry_at(site, to));
        (
            after.left_allocations.saturating_sub(before.left_allocations),
            after.left_bytes.saturating_sub(before.left_bytes),
        )
    }

    fn add_left_between(&self, from: usize, to: usize, costs: &mut [Costs]) {
        for (site, costs) in costs.iter_mut().enumerate() {
            let (allocations, bytes) = self.left_between(site, from, to);
            Left::kept(allocations, bytes).add_to(costs);
        }
    }

    /// A counter of all sites, for all blocks.
    fn site_counter(&self) -> Counter<'_> {
        Counter::new(Cow::Borrowed(&self.definitions.alloc_classes), self.definitions.site_count(), None)
    }

    /// Walks the two ends of a range that reaches from the slice `first` into the slice `last`, and to the peak if it
    /// is between them.
    fn parts(&self, blocks: &mut dyn Blocks, range: &Range, first: usize, last: usize) -> Result<Parts<'_>, Gone> {
        let point = |at: usize| &self.index.checkpoints[at];
        let mut head = point(first).walker(self.site_counter());
        let mut sequence = 0;
        let stops = [self.moment(range.from), Moment::Block(point(first + 1).block)];
        self.stretch(blocks, point(first)).walk(&mut head, &stops, |at, walker| {
            if at == 0 {
                sequence = walker.now.next_sequence;
                walker.sink.begin(&walker.now, range.from_ns);
            }
        })?;
        let mut tail = point(last).walker(self.site_counter());
        tail.sink.set_first_sequence(sequence);
        let mut tail_costs = Vec::new();
        let stops = [self.moment(range.to)];
        self.stretch(blocks, point(last))
            .walk(&mut tail, &stops, |_, walker| tail_costs = finished(walker, sequence).0)?;
        let middle = self.index.checkpoints[first + 1..last].iter().map(|point| point.peak);
        let peak = highest([head.sink.peak()].into_iter().chain(middle).chain([tail.sink.peak()]));
        let mut at_peak = None;
        if peak != head.sink.peak() && peak != tail.sink.peak() {
            let stop = Moment::Event(peak.event);
            let point = self.start_for(stop);
            let mut walker = point.walker(self.site_counter());
            self.stretch(blocks, point).walk(&mut walker, &[stop], |_, _| ())?;
            at_peak = Some(walker);
        }
        Ok(Parts { first, last, head, tail, tail_costs, at_peak, sequence, peak })
    }

    /// The costs of a site in the whole range. `tail`: those in the range's last part.
    fn sum_of_parts(&self, site: usize, tail: &Costs, parts: &Parts<'_>) -> Option<Costs> {
        let head = parts.head.sink.groups.get(site)?;
        let mut sum = parts.head.sink.costs(head);
        let (before, after) = (self.index.entry_at(site, parts.first + 1), self.index.entry_at(site, parts.last));
        add_flows(&mut sum, &before, &after, tail);
        let slices = self.index.entries_between(site, parts.first + 1, parts.last);
        add_maxima(&mut sum, slices, tail);
        (sum.live_bytes, sum.live_allocations) = (tail.live_bytes, tail.live_allocations);
        (sum.kept_bytes, sum.kept_allocations) = (tail.kept_bytes, tail.kept_allocations);
        (sum.peak_bytes, sum.peak_allocations) = parts.at_peak(site, head)?;
        Some(sum)
    }
}

/// The walks of a range that the index does not answer alone.
struct Parts<'a> {
    /// The slices in which the range begins and ends.
    first: usize,
    last: usize,
    /// From the beginning of the range to the next checkpoint.
    head: Walker<Counter<'a>>,
    /// From the last checkpoint to the end of the range.
    tail: Walker<Counter<'a>>,
    tail_costs: Vec<Costs>,
    /// Stands at the peak; `None` if the peak is in the head or in the tail.
    at_peak: Option<Walker<Counter<'a>>>,
    /// The sequence number of the range's first allocation.
    sequence: u64,
    peak: Peak,
}

impl Parts<'_> {
    /// The bytes and blocks that a site held at the peak. `None` if the site is in only one of the parts.
    fn at_peak(&self, site: usize, head: &Group) -> Option<(u64, u64)> {
        let tail = self.tail.sink.groups.get(site)?;
        Some(match &self.at_peak {
            Some(walker) => walker
                .sink
                .groups
                .get(site)
                .map_or((0, 0), |group| (group.costs.live_bytes, group.costs.live_allocations)),
            None if self.peak == self.head.sink.peak() => self.head.sink.at_peak(head),
            None => self.tail.sink.at_peak(tail),
        })
    }
}

/// Adds what was counted between two checkpoints and in the tail.
fn add_flows(sum: &mut Costs, before: &Entry, after: &Entry, tail: &Costs) {
    let add = |sum: &mut u64, before: u64, after: u64, tail: u64| {
        *sum = sum.saturating_add(after.saturating_sub(before)).saturating_add(tail);
    };
    add(&mut sum.allocations, before.allocations, after.allocations, tail.allocations);
    add(&mut sum.allocated_bytes, before.allocated_bytes, after.allocated_bytes, tail.allocated_bytes);
    add(&mut sum.deallocations, before.deallocations, after.deallocations, tail.deallocations);
    add(&mut sum.freed_bytes, before.freed_bytes, after.freed_bytes, tail.freed_bytes);
    add(&mut sum.temporary, before.temporary, after.temporary, tail.temporary);
    add(&mut sum.temporary_bytes, before.temporary_bytes, after.temporary_bytes, tail.temporary_bytes);
    add(&mut sum.lifetime_ns, before.lifetime_ns, after.lifetime_ns, tail.lifetime_ns);
}

/// Raises the own peak and the largest size to those of the slices and of the tail.
fn add_maxima(sum: &mut Costs, slices: &[Entry], tail: &Costs) {
    let own_peaks = slices.iter().map(|entry| (entry.own_peak_bytes, entry.own_peak_time_ns));
    for (bytes, time_ns) in own_peaks.chain([(tail.own_peak_bytes, tail.own_peak_time_ns)]) {
        if bytes > sum.own_peak_bytes {
            (sum.own_peak_bytes, sum.own_peak_time_ns) = (bytes, time_ns);
        }
    }
    let sizes = slices.iter().map(|entry| entry.size_max).chain([tail.size_max]);
    sum.size_max = sizes.fold(sum.size_max, u64::max);
}

/// The costs of all groups at the end of the range, in the units of the counter. `first`: the sequence number of its first
/// allocation.
fn finished(walker: &Walker<Counter<'_>>, first: u64) -> (Vec<Costs>, Peak) {
    let counter = &walker.sink;
    let mut costs: Vec<Costs> = counter.groups.iter().map(|group| counter.costs(group)).collect();
    counter.add_kept(&walker.live, first, &mut costs);
    (costs, counter.peak())
}

/// Converts the costs of all groups from the units of a counter into blocks.
fn rescaled(mut all: Vec<Costs>, scale: u64) -> Vec<Costs> {
    if scale != 1 {
        all.iter_mut().for_each(|costs| *costs = costs.rescaled(scale));
    }
    all
}

fn only_live(all: Vec<Costs>) -> Vec<Costs> {
    all.iter().map(Costs::live_only).collect()
}
