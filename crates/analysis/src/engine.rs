//! Holds an open trace: counts its blocks as they come in, and answers questions about any instant and any range.
//!
//! Receives: the blocks of a trace in file order, all at once or as it grows; for questions, its blocks of events
//! again. Returns: totals and profiles. Must hold: a question has the same answer with an index and without. Memory is
//! bounded by the live blocks, the stacks and the index's own bounds, not by the number of events.
//!
//! Profiles of ranges are in `range_costs.rs`, the choice of blocks in `selecting.rs`.
use crate::costs::Costs;
use crate::counter::Peak;
use crate::definitions::Definitions;
use crate::ended;
use crate::event_counter::EventCounter;
use crate::folds;
use crate::index::{Bounds, Index};
use crate::known_costs::KnownCosts;
use crate::moment::{Moment, When};
use crate::profile::{Profile, Range};
use crate::query::Query;
use crate::session_report::{Faults, Report, SiteCosts};
use format::{Block, BlockKind, Domain, Events, Flat, Folded, KdeCounts, Malformed, RawBlock, Totals};

pub struct Engine {
    pub(crate) definitions: Definitions,
    counter: EventCounter,
    pub(crate) index: Index,
    faults: Faults,
    /// How many blocks of events came in. `usize::MAX` if the file was counted without making blocks.
    pub(crate) blocks: usize,
    /// Only malloc's blocks are sampled.
    domain: Domain,
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// For one question or few: opens a trace as fast as possible.
    pub fn new() -> Self {
        Self::with(EventCounter::session(), Bounds::default())
    }

    /// For many questions: any range is answered fast.
    pub fn indexed() -> Self {
        Self::with(EventCounter::indexed(), Bounds::default())
    }

    /// As `indexed`, with an index that takes at most about this many bytes. The smaller it is, the more events an answer
    /// about a range walks.
    pub fn indexed_within(bytes: usize) -> Self {
        let bounds = Bounds { live_bytes: bytes / 2, history_bytes: bytes / 2, ..Bounds::default() };
        Self::with(EventCounter::indexed(), bounds)
    }

    /// Has an index of very few, very short slices, so that tests with small traces reach all of its code.
    #[doc(hidden)]
    pub fn indexed_finely(slices: usize, live_bytes: usize) -> Self {
        let bounds = Bounds { slices, events: 1, live_bytes, history_bytes: 64 << 10 };
        Self::with(EventCounter::indexed(), bounds)
    }

    fn with(counter: EventCounter, bounds: Bounds) -> Self {
        Engine {
            definitions: Definitions::default(),
            counter,
            index: Index::new(bounds),
            faults: Faults::default(),
            blocks: 0,
            domain: Domain::Malloc,
        }
    }

    /// For the blocks of another domain than malloc's.
    pub const fn of_domain(mut self, domain: Domain) -> Self {
        self.domain = domain;
        self
    }

    /// Adds the next block of the file.
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

    /// Adds the next block of the file, which is a block of events that has been decoded already.
    pub fn add_flat(&mut self, flat: &Flat) {
        self.count_missing(flat.start().sequence);
        let result = self.counter.count_flat(flat);
        self.after_events();
        if let Err(error) = result {
            self.faults.malformed(BlockKind::Events, error);
        }
    }

    /// The counts of all events of a file of KDE's, which replace its blocks of events. The definitions must be complete.
    pub fn add_kde_counts(&mut self, counts: Box<KdeCounts>) {
        self.counter = EventCounter::of_kde(counts, self.definitions.session.counting);
        self.blocks = usize::MAX;
    }

    /// The costs of each site of a heap profile of another tool, which replace the events. The definitions must be
    /// complete, and `sums` must be in the order of the allocation classes, one for each site.
    pub fn add_sums(&mut self, mut sums: Vec<Costs>, known: KnownCosts) {
        sums.resize(self.definitions.site_count(), Costs::default());
        sums.iter_mut().for_each(|costs| known.complete(costs));
        self.definitions.profile = Some(known);
        self.counter = EventCounter::of_sums(sums, self.runtime_ns());
    }

    /// The costs of each site of a heap profile, which has no events.
    pub(crate) fn sums(&self) -> Option<&[Costs]> {
        self.counter.sums()
    }

    /// Forgets the live blocks, because no more events come in. Their counts stay.
    pub fn end_of_events(&mut self) {
        self.counter.forget_live_blocks();
    }

    /// Allocations and frees of all kinds.
    pub(crate) const fn events(&self) -> u64 {
        self.counter.now().events
    }

    fn after_events(&mut self) {
        self.blocks += 1;
        self.counter.end_block(&mut self.index, self.blocks);
    }

    fn define(&mut self, block: Block) -> Result<(), Malformed> {
        let fits = self.definitions.add(block);
        if self.domain != Domain::Malloc {
            self.definitions.session.sampling = None;
        }
        // The trace of a recording that samples is small, and an index counts whole blocks.
        if self.definitions.session.sampling.is_some() && self.counter.is_indexed() && self.blocks == 0 {
            self.counter = EventCounter::session();
        }
        self.counter.define(&self.definitions, &mut self.index);
        if fits { Ok(()) } else { Err(Malformed::Reference) }
    }

    fn add_events(&mut self, events: &mut Events) -> Result<(), Malformed> {
        self.count_missing(events.first_sequence());
        self.counter.count(events)
    }

    /// Counts lost allocations. `sequence` is the next sequence number at the start of a block. If it is larger than
    /// expected, the allocations between were lost.
    fn count_missing(&mut self, sequence: u64) {
        let missing = sequence.saturating_sub(self.counter.now().next_sequence);
        self.faults.missing_allocations = self.faults.missing_allocations.saturating_add(missing);
    }

    pub const fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// What could not be counted.
    pub fn faults(&self) -> Faults {
        let damaged_events = self.counter.damaged_events();
        Faults { damaged_events, ..self.faults.clone() }
    }

    /// How long the session lasted, or has lasted so far.
    pub fn runtime_ns(&self) -> u64 {
        let walked = self.counter.now().time_ns;
        let sampled = self.definitions.samples.last().map_or(0, |sample| sample.time_ns);
        let told = self.definitions.summary.map_or(0, |summary| summary.totals.runtime_ns);
        walked.max(sampled).max(told)
    }

    /// The highest moment among the events that are in the file.
    pub(crate) fn counted_peak(&self) -> Peak {
        self.counter.peak(&self.index)
    }

    /// The folded part that has the session's highest moment; `None` if an event of the file has it.
    pub(crate) fn folded_peak(&self) -> Option<&Folded> {
        folds::peaking(self.definitions.folded.iter(), self.counted_peak())
    }

    /// The costs of each allocation class, with each block of the trace counted once.
    pub(crate) fn by_class(&self) -> Option<Vec<Costs>> {
        self.counter.by_class()
    }

    /// The highest moment of the whole session.
    fn whole_peak(&self) -> Peak {
        self.folded_peak().map_or_else(|| self.counted_peak(), folds::peak_of)
    }

    /// The costs of the whole session, by site. Own peaks are not known here, lifetimes only with an index, and kept
    /// blocks only without one.
    fn whole_costs(&self) -> Vec<Costs> {
        let mut costs = self.counter.costs(&self.definitions);
        for part in &self.definitions.folded {
            folds::add(part, true, &mut costs, |row| self.definitions.group_of_row(row));
        }
        if let Some(part) = self.folded_peak() {
            folds::set_peak(part, &mut costs, |row| self.definitions.group_of_row(row));
        }
        ended::add(self.definitions.gone.iter(), true, 0, &mut costs, |block| self.definitions.group_of_gone(block));
        let scale = self.definitions.scale();
        if scale != 1 {
            costs.iter_mut().for_each(|costs| *costs = costs.rescaled(scale));
        }
        costs
    }

    /// The totals of the whole session.
    pub fn totals(&self) -> Totals {
        let counts = sum(&self.whole_costs());
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
            peak_allocations: match self.definitions.session.sampling {
                Some(_) => counts.peak_allocations,
                None => peak.allocations,
            },
            peak_time_ns: peak.time_ns,
            peak_rss_bytes: self.definitions.peak_rss_bytes.max(told.peak_rss_bytes),
            overhead_bytes: self.definitions.overhead_bytes.max(told.overhead_bytes),
            runtime_ns: self.runtime_ns(),
            unknown_frees: folded(|part| part.unknown_frees).saturating_add(self.counter.unknown_frees()),
            implied_frees: folded(|part| part.implied_frees)
                .saturating_add(self.counter.implied_frees())
                .saturating_sub(self.definitions.gone_blocks()),
            lost_events: self.definitions.losses.lost_events.max(told.lost_events),
        }
    }

    /// All that is known of the whole session, except own peaks and lifetimes, for which you need a profile. Returns
    /// `None` with an index, which does not have the kept blocks of each site.
    pub fn into_report(self) -> Option<Report> {
        (!self.counter.is_indexed()).then(|| self.report_without_index())
    }

    /// As `into_report`, for an engine that was made by `Engine::new`.
    pub(crate) fn report_without_index(self) -> Report {
        let totals = self.totals();
        let faults = self.faults();
        let sites = self.whole_sites().map(|(site, costs)| SiteCosts { stack: self.definitions.stack_of(site), costs });
        let sites = sites.collect();
        Report { definitions: self.definitions, totals, faults, sites }
    }

    /// The sites that allocated, and what they cost.
    fn whole_sites(&self) -> impl Iterator<Item = (u32, Costs)> + use<> {
        let numbered = self.whole_costs().into_iter().zip(0u32..);
        let is_profile = self.definitions.profile.is_some();
        numbered
            .filter(move |(costs, _)| costs.allocations > 0 || is_profile && !costs.is_zero())
            .map(|(costs, site)| (site, costs))
    }

    /// The whole session without another walk, with own peaks and lifetimes of 0. Returns `None` with an index, whose
    /// profiles are complete and fast.
    pub fn whole_profile(&self) -> Option<Profile> {
        if self.counter.is_indexed() {
            return None;
        }
        let known = self.definitions.profile;
        let (range, peak_ns) = (self.range(&Query::default()), self.whole_peak().time_ns);
        Some(Profile { known, ..Profile::new(range, self.whole_sites().collect(), peak_ns) })
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
            When::Event { events, .. } => Moment::Event(events),
            When::Percent(share) if share >= 100.0 => Moment::END,
            When::Percent(share) => Moment::Time((self.runtime_ns() as f64 * share / 100.0) as u64),
        }
    }

    /// The beginning of a range, and the ends of its slices, which have equal lengths.
    pub(crate) fn moments(&self, range: &Range, slices: usize) -> Vec<Moment> {
        let end = |slice: usize| match range.slice_end(slice, slices) {
            // The range may end between two events that have the same time.
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
            When::Ns(time_ns) | When::Event { time_ns, .. } => time_ns,
            When::Percent(share) => (self.runtime_ns() as f64 * share / 100.0) as u64,
        }
    }

    /// The range that a query asks for.
    pub fn range(&self, query: &Query) -> Range {
        let (from, to) = match query.at {
            Some(at) => (at, at),
            None => (query.from.unwrap_or(When::Start), query.to.unwrap_or(When::End)),
        };
        let (from_ns, to_ns) = (self.time_of(from), self.time_of(to));
        Range { from, to, from_ns, to_ns: to_ns.max(from_ns), instant: query.at.is_some() }
    }
}

fn sum(costs: &[Costs]) -> Costs {
    costs.iter().fold(Costs::default(), |mut sum, costs| {
        sum.add(costs);
        sum
    })
}
