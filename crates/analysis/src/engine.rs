//! Answers questions about a trace: costs per stack at any instant and in any range.
//!
//! Given: the blocks of a trace in file order, now or as it grows; for questions, its blocks of events again. Gives back: profiles. What
//! must hold: the same question has the same answer with an index and without; memory is bounded by what lives, by the stacks and by
//! the index's own bounds, not by events.
use crate::costs::Costs;
use crate::counter::{Bits, Counter, NO_GROUP, Peak, Selection};
use crate::definitions::{Definitions, KnownAllocClass};
use crate::ended;
use crate::folds;
use crate::index::{Bounds, Checkpoint, Index};
use crate::lifespans::Lifespans;
use crate::moment::{Moment, When};
use crate::pass::{Blocks, Gone, Stretch};
use crate::profile::{Profile, Range};
use crate::query::Query;
use crate::session_counter::SessionCounter;
use crate::session_report::{Faults, Report, SiteCosts};
use crate::walker::Walker;
use format::{Block, BlockKind, Events, Flat, Folded, Malformed, RawBlock, Totals};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How events are counted when they come in.
enum EventCounter {
    /// Only the whole session; every other question walks from the start.
    SessionCounter(Box<Walker<SessionCounter>>),
    Indexed(Box<Walker<Counter<'static>>>),
}

pub struct Engine {
    pub(crate) definitions: Definitions,
    counter: EventCounter,
    pub(crate) index: Index,
    faults: Faults,
    /// Blocks of events that came in.
    blocks: usize,
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// For one question or few: opening is as quick as it can be.
    pub fn new() -> Self {
        Self::with(EventCounter::SessionCounter(Box::new(Walker::new(SessionCounter::default()))), Bounds::default())
    }

    /// For many questions: any range is quick.
    pub fn indexed() -> Self {
        Self::with(EventCounter::Indexed(Box::new(Index::feeder())), Bounds::default())
    }

    /// An index of very few, very short slices, so that small traces test it.
    #[doc(hidden)]
    pub fn indexed_finely(slices: usize, live_bytes: usize) -> Self {
        let bounds = Bounds { slices, events: 1, live_bytes, history_bytes: 64 << 10 };
        Self::with(EventCounter::Indexed(Box::new(Index::feeder())), bounds)
    }

    fn with(counter: EventCounter, bounds: Bounds) -> Self {
        Engine {
            definitions: Definitions::default(),
            counter,
            index: Index::new(bounds),
            faults: Faults::default(),
            blocks: 0,
        }
    }

    /// The next block of the file.
    pub fn add(&mut self, block: &RawBlock) {
        let result = block.decode().and_then(|decoded| match decoded {
            Block::Events(mut events) => self.add_events(&mut events),
            other => self.define(other),
        });
        if block.kind == BlockKind::Events {
            self.after_events();
        }
        if let Err(error) = result {
            self.faults.malformed(block.kind, error);
        }
    }

    /// The next block of the file, if it is one of events that was taken apart already.
    pub fn add_flat(&mut self, flat: &Flat) {
        self.expect(flat.start().sequence);
        let result = match &mut self.counter {
            EventCounter::SessionCounter(walker) => walker.walk_flat(flat),
            EventCounter::Indexed(walker) => walker.walk_flat(flat),
        };
        self.after_events();
        if let Err(error) = result {
            self.faults.malformed(BlockKind::Events, error);
        }
    }

    fn after_events(&mut self) {
        self.blocks += 1;
        if let EventCounter::Indexed(walker) = &mut self.counter {
            self.index.after_block(walker, self.blocks);
        }
    }

    fn define(&mut self, block: Block) -> Result<(), Malformed> {
        let fits = self.definitions.add(block);
        let counting = self.definitions.session.counting();
        match &mut self.counter {
            EventCounter::SessionCounter(walker) => {
                walker.now.counting = counting;
                walker.sink.grow(&self.definitions);
            }
            EventCounter::Indexed(walker) => {
                walker.now.counting = counting;
                self.index.set_counting(counting);
                Index::grow(walker, &self.definitions);
            }
        }
        if fits { Ok(()) } else { Err(Malformed::Reference) }
    }

    /// A block begins with this sequence number: what was lost before it?
    fn expect(&mut self, sequence: u64) {
        let expected = match &self.counter {
            EventCounter::SessionCounter(walker) => walker.now.next_sequence,
            EventCounter::Indexed(walker) => walker.now.next_sequence,
        };
        let missing = sequence.saturating_sub(expected);
        self.faults.missing_allocations = self.faults.missing_allocations.saturating_add(missing);
    }

    fn add_events(&mut self, events: &mut Events) -> Result<(), Malformed> {
        self.expect(events.first_sequence());
        match &mut self.counter {
            EventCounter::SessionCounter(walker) => walker.walk(events),
            EventCounter::Indexed(walker) => walker.walk(events),
        }
    }

    pub const fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// What of the trace could not be counted.
    pub fn faults(&self) -> Faults {
        let damaged_events = match &self.counter {
            EventCounter::SessionCounter(walker) => walker.damaged,
            EventCounter::Indexed(walker) => walker.damaged,
        };
        Faults { damaged_events, ..self.faults.clone() }
    }

    /// How long the session was, so far.
    pub fn runtime_ns(&self) -> u64 {
        let walked = match &self.counter {
            EventCounter::SessionCounter(walker) => walker.now.time_ns,
            EventCounter::Indexed(walker) => walker.now.time_ns,
        };
        let sampled = self.definitions.samples.last().map_or(0, |sample| sample.time_ns);
        let told = self.definitions.summary.map_or(0, |summary| summary.totals.runtime_ns);
        walked.max(sampled).max(told)
    }

    /// Of the events that are there.
    fn counted_peak(&self) -> Peak {
        match &self.counter {
            EventCounter::SessionCounter(walker) => {
                let plain = &walker.sink;
                Peak {
                    bytes: plain.peak_bytes,
                    allocations: plain.peak_allocations,
                    time_ns: plain.peak_time_ns,
                    event: plain.peak_event,
                }
            }
            EventCounter::Indexed(walker) => {
                let past = self.index.checkpoints.iter().rev().skip(1).rev().map(|point| point.peak);
                highest(past.chain([walker.sink.peak]))
            }
        }
    }

    /// The folded part with the highest moment of the session.
    fn folded_peak(&self) -> Option<&Folded> {
        folds::peaking(self.definitions.folded.iter(), self.counted_peak())
    }

    fn whole_peak(&self) -> Peak {
        self.folded_peak().map_or_else(|| self.counted_peak(), folds::peak_of)
    }

    /// Of the whole session, by site; own peaks, lifetimes and what is kept only where the index has them.
    fn whole_costs(&self) -> Vec<Costs> {
        let mut costs: Vec<Costs> = match &self.counter {
            EventCounter::SessionCounter(walker) => walker.sink.sites(&self.definitions),
            EventCounter::Indexed(walker) => walker.sink.groups.iter().map(|group| walker.sink.costs(group)).collect(),
        };
        for part in &self.definitions.folded {
            folds::add(part, &mut costs, |row| self.definitions.group_of_row(row));
        }
        if let Some(part) = self.folded_peak() {
            folds::set_peak(part, &mut costs, |row| self.definitions.group_of_row(row));
        }
        ended::add(self.definitions.gone.iter(), true, 0, &mut costs, |block| self.definitions.group_of_gone(block));
        costs
    }

    /// The totals of the whole session.
    pub fn totals(&self) -> Totals {
        let counts = sum(&self.whole_costs());
        let (unknown_frees, implied_frees) = match &self.counter {
            EventCounter::SessionCounter(walker) => (walker.unknown_frees, walker.sink.implied_frees),
            EventCounter::Indexed(walker) => (walker.unknown_frees, walker.sink.implied_frees),
        };
        let folded = |count: fn(&Folded) -> u64| self.definitions.folded.iter().map(count).fold(0, u64::saturating_add);
        let peak = self.whole_peak();
        let told = self.definitions.summary.map(|summary| summary.totals).unwrap_or_default();
        Totals {
            allocations: counts.allocations,
            deallocations: counts.deallocations,
            allocated_bytes: counts.allocated_bytes,
            temporary: counts.temporary,
            leaked_bytes: counts.live_bytes,
            leaked_allocations: counts.live_allocations,
            peak_bytes: peak.bytes,
            peak_allocations: peak.allocations,
            peak_time_ns: peak.time_ns,
            peak_rss_bytes: self.definitions.peak_rss_bytes.max(told.peak_rss_bytes),
            overhead_bytes: self.definitions.overhead_bytes.max(told.overhead_bytes),
            runtime_ns: self.runtime_ns(),
            unknown_frees: folded(|part| part.unknown_frees).saturating_add(unknown_frees),
            implied_frees: folded(|part| part.implied_frees)
                .saturating_add(implied_frees)
                .saturating_sub(self.definitions.gone_blocks()),
            lost_events: self.definitions.losses.lost_events.max(told.lost_events),
        }
    }

    /// All that is known of the whole session, except own peaks and lifetimes: ask for a profile.
    pub fn into_report(self) -> Report {
        let totals = self.totals();
        let faults = self.faults();
        let profile = self.whole_profile();
        let sites = profile.iter().flat_map(|profile| &profile.stacks);
        let sites =
            sites.map(|(site, costs)| SiteCosts { stack: self.definitions.stack_of(*site), costs: *costs }).collect();
        Report { definitions: self.definitions, totals, faults, sites }
    }

    /// The whole session without another walk; own peaks and lifetimes are not known then: they are 0. An engine with an index has
    /// no need of this.
    pub fn whole_profile(&self) -> Option<Profile> {
        let EventCounter::SessionCounter(_) = &self.counter else { return None };
        let numbered = self.whole_costs().into_iter().zip(0u32..);
        let stacks = numbered.filter(|(costs, _)| costs.allocations > 0).map(|(costs, site)| (site, costs)).collect();
        Some(Profile::new(self.range(&Query::default()), stacks, self.whole_peak().time_ns))
    }

    pub(crate) fn moment(&self, when: When) -> Moment {
        match when {
            When::Start => Moment::START,
            When::End => Moment::END,
            When::Peak => match self.folded_peak() {
                Some(part) => Moment::Time(part.peak_time_ns),
                None => Moment::Event(self.counted_peak().event),
            },
            When::Ns(ns) => Moment::Time(ns),
            When::Percent(share) if share >= 100.0 => Moment::END,
            When::Percent(share) => Moment::Time((self.runtime_ns() as f64 * share / 100.0) as u64),
        }
    }

    /// The beginning of a range and the end of each of its slices of equal length.
    pub(crate) fn moments(&self, range: &Range, slices: usize) -> Vec<Moment> {
        let end = |slice: usize| match range.slice_end(slice, slices) {
            // The range may end between two events of the same time.
            ns if slice == slices || ns >= range.to_ns => self.moment(range.to),
            ns => Moment::Time(ns),
        };
        std::iter::once(self.moment(range.from)).chain((1..=slices).map(end)).collect()
    }

    pub(crate) fn time_of(&self, when: When) -> u64 {
        match when {
            When::Start => 0,
            When::End => self.runtime_ns(),
            When::Peak => self.whole_peak().time_ns,
            When::Ns(ns) => ns,
            When::Percent(share) => (self.runtime_ns() as f64 * share / 100.0) as u64,
        }
    }

    /// The range that a query asks for.
    pub(crate) fn range(&self, query: &Query) -> Range {
        let (from, to) = match query.at {
            Some(at) => (at, at),
            None => (query.from.unwrap_or(When::Start), query.to.unwrap_or(When::End)),
        };
        let (from_ns, to_ns) = (self.time_of(from), self.time_of(to));
        Range { from, to, from_ns, to_ns: to_ns.max(from_ns), instant: query.at.is_some() }
    }

    /// The costs of each stack that the query asks for.
    pub fn profile(&self, blocks: &mut dyn Blocks, query: &Query) -> Result<Profile, Gone> {
        let range = self.range(query);
        let chosen = self.chosen(query);
        let selection = self.selection(blocks, query, &range)?;
        let alloc_classes = self.alloc_classes_by_size(query);
        let quick = selection.is_none() && matches!(alloc_classes, Cow::Borrowed(_));
        let (costs, peak) = if quick {
            self.costs_by_index(blocks, &range)?
        } else {
            let counter = Counter::new(alloc_classes, self.definitions.site_count(), selection);
            self.costs_by_walk(blocks, &range, counter)?
        };
        let numbered = costs.into_iter().zip(0u32..);
        let stacks = numbered.filter(|(costs, site)| chosen.is_none_or_has(*site) && !costs.is_zero());
        Ok(Profile::new(range, stacks.map(|(costs, site)| (site, costs)).collect(), peak.time_ns))
    }

    /// How many blocks of each size the query's range allocated.
    pub fn histogram(&self, blocks: &mut dyn Blocks, query: &Query) -> Result<BTreeMap<u64, u64>, Gone> {
        let range = self.range(query);
        let chosen = self.chosen(query);
        let selection = self.selection(blocks, query, &range)?;
        let mut sizes: BTreeMap<u64, u32> = BTreeMap::new();
        let alloc_classes = self.alloc_classes_by_size(query);
        let grouped = alloc_classes.iter().map(|alloc_class| {
            let next = sizes.len() as u32;
            let site = match alloc_class.site {
                site if site >= NO_GROUP => site,
                site if !chosen.is_none_or_has(site) => NO_GROUP,
                _ => *sizes.entry(alloc_class.size).or_insert(next),
            };
            KnownAllocClass { site, ..*alloc_class }
        });
        let grouped = Cow::Owned(grouped.collect());
        let counter = Counter::new(grouped, sizes.len(), selection);
        let (costs, _) = self.costs_by_walk(blocks, &range, counter)?;
        let count = |group: u32| costs.get(group as usize).map_or(0, |costs| costs.allocations);
        let counts = sizes.into_iter().map(|(size, group)| (size, count(group)));
        Ok(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// The sites whose stacks match; `None`: all.
    pub(crate) fn chosen(&self, query: &Query) -> Chosen {
        if query.include.is_empty() && query.exclude.is_empty() {
            return Chosen(None);
        }
        let matches = |stack: u32| {
            let any =
                |pattern: &crate::pattern::Pattern| self.definitions.levels(stack).any(|level| pattern.matches(&level));
            query.include.iter().all(any) && !query.exclude.iter().any(any)
        };
        Chosen(Some(self.definitions.stacks.iter().map(|&stack| matches(stack)).collect()))
    }

    pub(crate) fn alloc_classes_by_size(&self, query: &Query) -> Cow<'_, [KnownAllocClass]> {
        let Some(span) = query.size else { return Cow::Borrowed(&self.definitions.alloc_classes) };
        let left_out = |alloc_class: &KnownAllocClass| {
            alloc_class.site != crate::definitions::NO_SITE && !span.contains(alloc_class.size)
        };
        let sites = self.definitions.alloc_classes.iter().map(|alloc_class| KnownAllocClass {
            site: if left_out(alloc_class) { NO_GROUP } else { alloc_class.site },
            ..*alloc_class
        });
        Cow::Owned(sites.collect())
    }

    /// Blocks that only the events can pick; lifetimes need a walk of their own, for they are known when it is too late.
    pub(crate) fn selection(
        &self,
        blocks: &mut dyn Blocks,
        query: &Query,
        range: &Range,
    ) -> Result<Option<Selection>, Gone> {
        let lived = match query.lifetime {
            Some(span) => {
                let moments = [self.moment(range.from), self.moment(range.to)];
                let point = self.start_for(moments[0]);
                let mut walker = point.other_walker(Lifespans::new(span, &self.definitions.alloc_classes));
                let mut bits = Bits::default();
                self.stretch(blocks, point).walk(&mut walker, &moments, |at, walker| {
                    if at == 0 {
                        return;
                    }
                    bits = std::mem::take(&mut walker.sink.bits);
                    walker.live.each_from(0, |sequence, birth| {
                        if span.contains(range.to_ns.saturating_sub(birth.time_ns)) {
                            bits.set(sequence);
                        }
                    });
                })?;
                Some(bits)
            }
            None => None,
        };
        let selection = Selection { threads: query.threads.clone(), blocks: lived };
        Ok((!selection.threads.is_empty() || selection.blocks.is_some()).then_some(selection))
    }

    pub(crate) fn start_for(&self, moment: Moment) -> &Checkpoint {
        let at = self.index.before(moment);
        &self.index.checkpoints[at.min(self.index.checkpoints.len() - 1)]
    }

    pub(crate) fn stretch<'a>(&self, blocks: &'a mut dyn Blocks, point: &Checkpoint) -> Stretch<'a> {
        Stretch { blocks, first: point.block, end: self.blocks }
    }

    /// The folded parts that a range has: none, unless it begins with the session.
    fn folded_in(&self, range: &Range) -> impl Iterator<Item = &Folded> {
        let is_whole = !range.instant && self.moment(range.from) == Moment::START;
        let to_ns = range.to_ns;
        self.definitions.folded.iter().filter(move |part| is_whole && part.until_ns <= to_ns)
    }

    /// The one that had the range's highest moment, if its events reach only `counted` bytes.
    pub(crate) fn folded_peak_in(&self, range: &Range, counted: u64) -> Option<&Folded> {
        folds::peaking(self.folded_in(range), Peak { bytes: counted, ..Peak::default() })
    }

    /// Adds what is folded, to a range that begins with the session.
    fn add_folded(&self, range: &Range, counter: &Counter<'_>, costs: &mut [Costs], peak: &mut Peak) {
        for part in self.folded_in(range) {
            folds::add(part, costs, |row| counter.group_of_row(row));
        }
        if let Some(part) = self.folded_peak_in(range, peak.bytes) {
            folds::set_peak(part, costs, |row| counter.group_of_row(row));
            *peak = folds::peak_of(part);
        }
    }

    /// The session's highest moment, where no event leads to.
    pub(crate) fn at_folded_peak(&self, part: &Folded, counter: &Counter<'_>) -> (Vec<Costs>, Peak) {
        let mut costs = vec![Costs::default(); counter.groups.len()];
        folds::set_peak(part, &mut costs, |row| counter.group_of_row(row));
        for costs in &mut costs {
            (costs.live_bytes, costs.live_allocations) = (costs.peak_bytes, costs.peak_allocations);
            (costs.base_bytes, costs.base_allocations) = (costs.peak_bytes, costs.peak_allocations);
        }
        (costs, folds::peak_of(part))
    }

    /// Event by event over the whole range. Of an instant there is only what lives.
    pub(crate) fn costs_by_walk(
        &self,
        blocks: &mut dyn Blocks,
        range: &Range,
        counter: Counter<'_>,
    ) -> Result<(Vec<Costs>, Peak), Gone> {
        if let Some(part) = self.folded_peak().filter(|_| range.instant && range.from == When::Peak) {
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
                self.add_folded(range, &walker.sink, &mut result.0, &mut result.1);
                self.add_gone(range, first, &walker.sink, &mut result.0);
            }
        })?;
        if range.instant {
            result = (only_live(result.0), Peak::default());
        }
        Ok(result)
    }

    /// Over whole slices by what the index knows, event by event only at both ends and around the peak.
    fn costs_by_index(&self, blocks: &mut dyn Blocks, range: &Range) -> Result<(Vec<Costs>, Peak), Gone> {
        let counter =
            || Counter::new(Cow::Borrowed(&self.definitions.alloc_classes), self.definitions.site_count(), None);
        let (from, to) = (self.moment(range.from), self.moment(range.to));
        let (first, last) = (self.index.before(from), self.index.before(to));
        if last <= first || range.instant {
            return self.costs_by_walk(blocks, range, counter());
        }
        let point = |at: usize| &self.index.checkpoints[at];
        let mut head = point(first).walker(counter());
        let mut sequence = 0;
        let stops = [from, Moment::Block(point(first + 1).block)];
        self.stretch(blocks, point(first)).walk(&mut head, &stops, |at, walker| {
            if at == 0 {
                sequence = walker.now.next_sequence;
                walker.sink.begin(&walker.now, range.from_ns);
            }
        })?;
        let mut tail = point(last).walker(counter());
        let mut costs = Vec::new();
        self.stretch(blocks, point(last)).walk(&mut tail, &[to], |_, walker| costs = finished(walker, sequence).0)?;
        let middle = self.index.checkpoints[first + 1..last].iter().map(|point| point.peak);
        let mut peak = highest([head.sink.peak].into_iter().chain(middle).chain([tail.sink.peak]));
        let mut peaking = None;
        if peak != head.sink.peak && peak != tail.sink.peak {
            let at = self.index.before(Moment::Event(peak.event));
            let mut walker = point(at).walker(counter());
            self.stretch(blocks, point(at)).walk(&mut walker, &[Moment::Event(peak.event)], |_, _| ())?;
            peaking = Some(walker);
        }
        for (site, costs) in costs.iter_mut().enumerate() {
            let (Some(head_group), Some(tail_group)) = (head.sink.groups.get(site), tail.sink.groups.get(site)) else {
                continue;
            };
            let mut sum = head.sink.costs(head_group);
            let flow = |sum: &mut u64, [before, after, tail]: [u64; 3]| {
                *sum = sum.saturating_add(after.saturating_sub(before)).saturating_add(tail);
            };
            let (before, after) = (self.index.entry_at(site, first + 1), self.index.entry_at(site, last));
            flow(&mut sum.allocations, [before.allocations, after.allocations, costs.allocations]);
            flow(&mut sum.allocated_bytes, [before.allocated_bytes, after.allocated_bytes, costs.allocated_bytes]);
            flow(&mut sum.deallocations, [before.deallocations, after.deallocations, costs.deallocations]);
            flow(&mut sum.freed_bytes, [before.freed_bytes, after.freed_bytes, costs.freed_bytes]);
            flow(&mut sum.temporary, [before.temporary, after.temporary, costs.temporary]);
            flow(&mut sum.temporary_bytes, [before.temporary_bytes, after.temporary_bytes, costs.temporary_bytes]);
            flow(&mut sum.lifetime_ns, [before.lifetime_ns, after.lifetime_ns, costs.lifetime_ns]);
            let slices = self.index.entries_between(site, first + 1, last);
            let own = slices.iter().map(|entry| (entry.own_peak_bytes, entry.own_peak_time_ns));
            for (bytes, time_ns) in own.chain([(costs.own_peak_bytes, costs.own_peak_time_ns)]) {
                if bytes > sum.own_peak_bytes {
                    (sum.own_peak_bytes, sum.own_peak_time_ns) = (bytes, time_ns);
                }
            }
            let sizes = slices.iter().map(|entry| entry.size_max).chain([costs.size_max]);
            sum.size_max = sizes.fold(sum.size_max, u64::max);
            (sum.live_bytes, sum.live_allocations) = (costs.live_bytes, costs.live_allocations);
            (sum.kept_bytes, sum.kept_allocations) = (costs.kept_bytes, costs.kept_allocations);
            (sum.peak_bytes, sum.peak_allocations) = match &peaking {
                Some(walker) => {
                    walker.sink.groups.get(site).map_or((0, 0), |group| (group.live_bytes, group.live_allocations))
                }
                None if peak == head.sink.peak => head.sink.at_peak(head_group),
                None => tail.sink.at_peak(tail_group),
            };
            *costs = sum;
        }
        self.add_folded(range, &head.sink, &mut costs, &mut peak);
        self.add_gone(range, sequence, &head.sink, &mut costs);
        Ok((costs, peak))
    }
}

/// The sites that a query chooses.
pub(crate) struct Chosen(Option<Vec<bool>>);

impl Chosen {
    pub(crate) fn is_none_or_has(&self, site: u32) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.get(site as usize).copied().unwrap_or(false))
    }

    /// At least one site is chosen.
    pub(crate) fn has_any(&self) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.contains(&true))
    }
}

/// The costs of all groups where the range ends; `first`: the sequence number of its first allocation.
fn finished(walker: &Walker<Counter<'_>>, first: u64) -> (Vec<Costs>, Peak) {
    let counter = &walker.sink;
    let mut costs: Vec<Costs> = counter.groups.iter().map(|group| counter.costs(group)).collect();
    counter.add_kept(&walker.live, first, &mut costs);
    (costs, counter.peak)
}

fn only_live(mut all: Vec<Costs>) -> Vec<Costs> {
    for costs in &mut all {
        let Costs { live_bytes, live_allocations, .. } = *costs;
        *costs = Costs { live_bytes, live_allocations, ..Costs::default() };
    }
    all
}

/// The first of those that nothing exceeds.
fn highest(peaks: impl Iterator<Item = Peak>) -> Peak {
    peaks.reduce(|best, next| if next.bytes > best.bytes { next } else { best }).unwrap_or_default()
}

fn sum(costs: &[Costs]) -> Costs {
    costs.iter().fold(Costs::default(), |mut sum, costs| {
        sum.add(costs);
        sum
    })
}
