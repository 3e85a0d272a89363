//! Counts all events of a session once, while its blocks come in, in one of two ways; or takes over the counts of a file of KDE's.
//!
//! Receives: the blocks of events, and what the definitions say about them. Returns: totals, the peak and the costs of
//! each site. Must hold: all ways return the same numbers, except for the own peaks, lifetimes, kept blocks and
//! largest sizes of sites.
use crate::costs::Costs;
use crate::counter::{Counter, Peak};
use crate::definitions::Definitions;
use crate::index::Index;
use crate::session_counter::{self, SessionCounter};
use crate::walker::{Now, Walker};
use format::{Counting, Events, Flat, KdeCounts, LiveBlocks, Malformed};

pub(crate) enum EventCounter {
    /// Counts only the whole session. Every other question walks from the start of the trace.
    Session(Box<Walker<SessionCounter>>),
    /// Counts every stack, and fills the index.
    Indexed(Box<Walker<Counter<'static>>>),
    /// Has the counts of the whole session, which were made while the file was read.
    Kde(Box<KdeCounts>, Now),
    /// The costs of each site of a heap profile, which has no events.
    Sums(Vec<Costs>, Box<Now>),
}

impl EventCounter {
    pub(crate) fn session() -> Self {
        EventCounter::Session(Box::new(Walker::new(SessionCounter::default())))
    }

    pub(crate) fn indexed() -> Self {
        EventCounter::Indexed(Box::new(Index::feeder()))
    }

    /// `sums`: by site.
    pub(crate) fn of_sums(sums: Vec<Costs>, time_ns: u64) -> Self {
        EventCounter::Sums(sums, Box::new(Now { time_ns, ..Now::default() }))
    }

    /// The costs of each site, if no events are known.
    pub(crate) fn sums(&self) -> Option<&[Costs]> {
        match self {
            EventCounter::Sums(sums, _) => Some(sums),
            _ => None,
        }
    }

    pub(crate) fn of_kde(counts: Box<KdeCounts>, counting: Counting) -> Self {
        let now = Now { events: counts.events(), time_ns: counts.time_ns(), counting, ..Now::default() };
        EventCounter::Kde(counts, now)
    }

    pub(crate) const fn is_indexed(&self) -> bool {
        matches!(self, EventCounter::Indexed(_))
    }

    pub(crate) fn count(&mut self, events: &mut Events) -> Result<(), Malformed> {
        match self {
            EventCounter::Session(walker) => walker.walk(events),
            EventCounter::Indexed(walker) => walker.walk(events),
            EventCounter::Kde(..) | EventCounter::Sums(..) => Ok(()),
        }
    }

    pub(crate) fn count_flat(&mut self, flat: &Flat) -> Result<(), Malformed> {
        match self {
            EventCounter::Session(walker) => walker.walk_flat(flat),
            EventCounter::Indexed(walker) => walker.walk_flat(flat),
            EventCounter::Kde(..) | EventCounter::Sums(..) => Ok(()),
        }
    }

    /// Takes over new allocation classes, and the session's rule of what is temporary.
    pub(crate) fn define(&mut self, definitions: &Definitions, index: &mut Index) {
        let counting = definitions.session.counting;
        // Also without an index: later walks start at its first checkpoint.
        index.set_counting(counting);
        match self {
            EventCounter::Session(walker) => {
                walker.now.counting = counting;
                walker.sink.grow(definitions);
            }
            EventCounter::Indexed(walker) => {
                walker.now.counting = counting;
                Index::grow(walker, definitions);
            }
            EventCounter::Kde(_, now) => now.counting = counting,
            EventCounter::Sums(_, now) => now.counting = counting,
        }
    }

    /// Called after a block of events has been counted. `next`: the number of the block of events that follows.
    pub(crate) fn end_block(&mut self, index: &mut Index, next: usize) {
        if let EventCounter::Indexed(walker) = self {
            index.after_block(walker, next);
        }
    }

    pub(crate) fn forget_live_blocks(&mut self) {
        match self {
            EventCounter::Session(walker) => walker.live = LiveBlocks::default(),
            EventCounter::Indexed(walker) => walker.live = LiveBlocks::default(),
            EventCounter::Kde(..) | EventCounter::Sums(..) => (),
        }
    }

    /// The state after the last event.
    pub(crate) const fn now(&self) -> &Now {
        match self {
            EventCounter::Session(walker) => &walker.now,
            EventCounter::Indexed(walker) => &walker.now,
            EventCounter::Kde(_, now) => now,
            EventCounter::Sums(_, now) => now,
        }
    }

    pub(crate) const fn damaged_events(&self) -> u64 {
        match self {
            EventCounter::Session(walker) => walker.damaged,
            EventCounter::Indexed(walker) => walker.damaged,
            EventCounter::Kde(..) | EventCounter::Sums(..) => 0,
        }
    }

    pub(crate) const fn unknown_frees(&self) -> u64 {
        match self {
            EventCounter::Session(walker) => walker.unknown_frees,
            EventCounter::Indexed(walker) => walker.unknown_frees,
            EventCounter::Kde(counts, _) => counts.unknown_frees(),
            EventCounter::Sums(..) => 0,
        }
    }

    pub(crate) const fn implied_frees(&self) -> u64 {
        match self {
            EventCounter::Session(walker) => walker.sink.implied_frees,
            EventCounter::Indexed(walker) => walker.sink.implied_frees,
            EventCounter::Kde(..) | EventCounter::Sums(..) => 0,
        }
    }

    /// The highest moment of the events that were counted.
    pub(crate) fn peak(&self, index: &Index) -> Peak {
        match self {
            EventCounter::Session(walker) => walker.sink.peak(),
            EventCounter::Indexed(walker) => highest(index.finished_peaks().chain([walker.sink.peak()])),
            EventCounter::Kde(counts, _) => session_counter::peak(counts.classes()),
            EventCounter::Sums(sums, _) => {
                let sum = |cost: fn(&Costs) -> u64| sums.iter().map(cost).fold(0, u64::saturating_add);
                let (bytes, allocations) = (sum(|costs| costs.peak_bytes), sum(|costs| costs.peak_allocations));
                Peak { bytes, allocations, ..Peak::default() }
            }
        }
    }

    /// The costs of each allocation class in the whole session, with each block of the trace counted once. `None` if they are
    /// counted by site.
    pub(crate) fn by_class(&self) -> Option<Vec<Costs>> {
        match self {
            EventCounter::Session(walker) => Some(walker.sink.by_class().collect()),
            _ => None,
        }
    }

    /// The costs of the whole session, by site, with blocks in the units of `KnownAllocClass::blocks`.
    pub(crate) fn costs(&self, definitions: &Definitions) -> Vec<Costs> {
        match self {
            EventCounter::Session(walker) => walker.sink.sites(definitions),
            EventCounter::Indexed(walker) => {
                let mut costs: Vec<Costs> = walker.sink.groups.iter().map(|group| walker.sink.costs(group)).collect();
                walker.sink.add_left(&mut costs);
                costs
            }
            EventCounter::Kde(counts, _) => session_counter::sites(counts.classes(), &[], definitions),
            EventCounter::Sums(sums, _) => sums.clone(),
        }
    }
}

/// The highest peak; of equal ones the first.
pub(crate) fn highest(peaks: impl Iterator<Item = Peak>) -> Peak {
    peaks.reduce(|best, next| if next.bytes > best.bytes { next } else { best }).unwrap_or_default()
}
