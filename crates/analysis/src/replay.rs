//! Walks the blocks of a trace in file order and counts the whole session.
use crate::book::Book;
use crate::plain::Plain;
use crate::report::{Faults, Report, SiteCosts};
use crate::walker::Walker;
use format::{Block, Malformed, RawBlock, Totals};

pub struct Replay {
    book: Book,
    walker: Walker<Plain>,
    faults: Faults,
}

impl Default for Replay {
    fn default() -> Self {
        Self::new()
    }
}

impl Replay {
    pub fn new() -> Self {
        Replay { book: Book::default(), walker: Walker::new(Plain::default()), faults: Faults::default() }
    }

    /// The next block of the file.
    pub fn add(&mut self, block: &RawBlock) {
        let result = block.decode().and_then(|decoded| self.add_block(decoded));
        if let Err(error) = result {
            self.faults.malformed(block.kind, error);
        }
    }

    fn add_block(&mut self, block: Block) -> Result<(), Malformed> {
        match block {
            Block::Events(mut events) => {
                let missing = events.first_sequence().saturating_sub(self.walker.now.next_sequence);
                self.faults.missing_allocations = self.faults.missing_allocations.saturating_add(missing);
                self.walker.walk(&mut events)
            }
            other => {
                let fits = self.book.add(other);
                self.walker.counting = self.book.session.counting();
                self.walker.sink.grow(&self.book);
                if fits { Ok(()) } else { Err(Malformed::Reference) }
            }
        }
    }

    pub fn finish(self) -> Report {
        let Replay { book, walker, mut faults } = self;
        faults.damaged_events = walker.damaged;
        let costs = walker.sink.sites(&book);
        let sites = book.stacks.iter().zip(costs).map(|(&stack, costs)| SiteCosts { stack, costs });
        let sites: Vec<SiteCosts> = sites.filter(|site| site.costs.allocations > 0).collect();
        let totals = totals(&book, &walker, &sites);
        Report { book, totals, faults, sites }
    }
}

fn totals(book: &Book, walker: &Walker<Plain>, sites: &[SiteCosts]) -> Totals {
    let plain = &walker.sink;
    let sum = |cost: fn(&SiteCosts) -> u64| sites.iter().map(cost).fold(0, u64::saturating_add);
    let told = book.summary.map(|summary| summary.totals).unwrap_or_default();
    let sampled = book.samples.last().map_or(0, |sample| sample.time_ns);
    Totals {
        allocations: sum(|site| site.costs.allocations),
        deallocations: plain.deallocations,
        allocated_bytes: sum(|site| site.costs.allocated_bytes),
        temporary: sum(|site| site.costs.temporary),
        leaked_bytes: sum(|site| site.costs.live_bytes),
        leaked_allocations: sum(|site| site.costs.live_allocations),
        peak_bytes: plain.peak_bytes,
        peak_allocations: plain.peak_allocations,
        peak_time_ns: plain.peak_time_ns,
        peak_rss_bytes: book.peak_rss_bytes.max(told.peak_rss_bytes),
        overhead_bytes: book.overhead_bytes.max(told.overhead_bytes),
        runtime_ns: walker.now.time_ns.max(sampled).max(told.runtime_ns),
        unknown_frees: walker.unknown_frees,
        implied_frees: plain.implied_frees,
        lost_events: book.losses.lost_events.max(told.lost_events),
    }
}
