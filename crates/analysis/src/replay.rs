//! Walks the blocks of a trace in file order and counts.
use crate::definitions::{Definitions, KnownInfo};
use crate::live::Live;
use crate::map::IntMap;
use crate::names::Names;
use crate::report::{Faults, Report};
use format::{
    Block, Event, Events, Freed, HeapAtAttach, Losses, Malformed, Module, RawBlock, Session, Summary, Thread, Totals,
};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Replay {
    session: Option<Session>,
    summary: Option<Summary>,
    losses: Option<Losses>,
    suppressions: String,
    heap_at_attach: Option<HeapAtAttach>,
    modules: BTreeMap<u16, Module>,
    threads: BTreeMap<u32, Thread>,
    names: Names,
    definitions: Definitions,
    live: Live,
    /// `leaked_*` holds what is live until the report is made.
    totals: Totals,
    /// What was live at the end of earlier images.
    /// Counted up by every new peak.
    epoch: u64,
    image: u32,
    time_ns: u64,
    next_sequence: u64,
    thread: u32,
    /// The latest allocation of the thread whose events these are, and of the others.
    latest: Option<u64>,
    latest_of: IntMap<u32, u64>,
    faults: Faults,
}

impl Replay {
    pub fn new() -> Self {
        Self::default()
    }

    /// The next block of the file.
    pub fn add(&mut self, block: &RawBlock) {
        let result = block.decode().and_then(|decoded| self.add_block(decoded));
        if let Err(error) = result {
            self.faults.malformed(block.kind, error);
        }
    }

    pub fn finish(mut self) -> Report {
        if let Some(summary) = &self.summary {
            self.totals.runtime_ns = self.totals.runtime_ns.max(summary.totals.runtime_ns);
            self.totals.peak_rss_bytes = self.totals.peak_rss_bytes.max(summary.totals.peak_rss_bytes);
            self.totals.overhead_bytes = self.totals.overhead_bytes.max(summary.totals.overhead_bytes);
            self.totals.lost_events = self.totals.lost_events.max(summary.totals.lost_events);
        }
        let mut report = Report {
            session: self.session.unwrap_or_default(),
            summary: self.summary,
            losses: self.losses.unwrap_or_default(),
            suppressions: self.suppressions,
            heap_at_attach: self.heap_at_attach,
            threads: self.threads.into_values().collect(),
            modules: self.modules,
            names: self.names,
            totals: self.totals,
            faults: self.faults,
            sites: Vec::new(),
            nodes: Vec::new(),
        };
        report.set_stacks(self.definitions, self.epoch);
        report
    }

    fn add_block(&mut self, block: Block) -> Result<(), Malformed> {
        match block {
            Block::Session(session) => self.session = Some(session),
            Block::Suppressions(text) => self.suppressions = text.0,
            Block::HeapAtAttach(heap) => self.heap_at_attach = Some(heap),
            Block::Modules(modules) => self.modules.extend(modules.into_iter().map(|module| (module.instance, module))),
            Block::Threads(threads) => self.threads.extend(threads.into_iter().map(|thread| (thread.index, thread))),
            Block::Stacks(stacks) => return fits(self.definitions.add_stacks(&stacks)),
            Block::Infos(infos) => return fits(self.definitions.add_infos(&infos)),
            Block::Events(events) => return self.add_events(events),
            Block::Samples(samples) => {
                for sample in samples {
                    self.totals.peak_rss_bytes = self.totals.peak_rss_bytes.max(sample.rss_bytes);
                    self.totals.overhead_bytes = self.totals.overhead_bytes.max(sample.overhead_bytes);
                    self.totals.runtime_ns = self.totals.runtime_ns.max(sample.time_ns);
                }
            }
            Block::Losses(losses) => {
                self.totals.lost_events = losses.lost_events;
                self.losses = Some(losses);
            }
            Block::Summary(summary) => self.summary = Some(summary),
            Block::Symbols(symbols) => self.names.add(symbols),
            Block::Checkpoint(_) | Block::Index(_) => {}
        }
        Ok(())
    }

    fn add_events(&mut self, mut events: Events) -> Result<(), Malformed> {
        let first = events.first_sequence();
        let missing = first.saturating_sub(self.next_sequence);
        self.faults.missing_allocations = self.faults.missing_allocations.saturating_add(missing);
        self.set_time(events.time_ns());
        self.set_thread(events.thread());
        if events.image() > self.image {
            self.set_image(events.image());
        }
        while let Some(event) = events.read()? {
            match event {
                Event::Alloc { sequence, info } => self.alloc(sequence, info),
                Event::Free { sequence, how } => self.free(sequence, how),
                Event::UnknownFree => self.totals.unknown_frees += 1,
                Event::Thread(thread) => self.set_thread(thread),
                Event::Time(ns) => self.set_time(ns),
                Event::Image(image) => self.set_image(image),
            }
        }
        Ok(())
    }

    #[inline]
    fn alloc(&mut self, sequence: u64, info: u32) {
        self.next_sequence = sequence + 1;
        self.latest = Some(sequence);
        let Some(&KnownInfo { size, site }) = self.definitions.infos.get(info as usize) else {
            self.faults.damaged_events += 1;
            return;
        };
        let Some(site) = self.definitions.sites.get_mut(site as usize) else {
            self.faults.damaged_events += 1;
            return;
        };
        if !self.live.insert(sequence, info) {
            self.faults.damaged_events += 1;
            return;
        }
        site.alloc(size, self.epoch);
        let totals = &mut self.totals;
        totals.allocations += 1;
        totals.allocated_bytes = totals.allocated_bytes.saturating_add(size);
        totals.leaked_allocations += 1;
        totals.leaked_bytes = totals.leaked_bytes.saturating_add(size);
        if totals.leaked_bytes > totals.peak_bytes {
            totals.peak_bytes = totals.leaked_bytes;
            totals.peak_allocations = totals.leaked_allocations;
            totals.peak_time_ns = self.time_ns;
            self.epoch += 1;
        }
    }

    #[inline]
    fn free(&mut self, sequence: u64, how: Freed) {
        let Some(info) = self.live.remove(sequence) else {
            self.faults.damaged_events += 1;
            return;
        };
        let Some(&KnownInfo { size, site }) = self.definitions.infos.get(info as usize) else { return };
        let Some(site) = self.definitions.sites.get_mut(site as usize) else { return };
        site.free(size, self.epoch);
        let totals = &mut self.totals;
        totals.deallocations += 1;
        totals.leaked_allocations = totals.leaked_allocations.saturating_sub(1);
        totals.leaked_bytes = totals.leaked_bytes.saturating_sub(size);
        match how {
            Freed::Call if self.latest == Some(sequence) => {
                totals.temporary += 1;
                site.temporary += 1;
            }
            Freed::Implied => totals.implied_frees += 1,
            Freed::Call | Freed::Realloc => {}
        }
    }

    fn set_thread(&mut self, thread: u32) {
        if thread == self.thread {
            return;
        }
        if let Some(latest) = self.latest {
            self.latest_of.insert(self.thread, latest);
        }
        self.thread = thread;
        self.latest = self.latest_of.get(&thread).copied();
    }

    fn set_time(&mut self, ns: u64) {
        self.time_ns = self.time_ns.max(ns);
        self.totals.runtime_ns = self.totals.runtime_ns.max(ns);
    }

    /// `exec` took all blocks with it.
    fn set_image(&mut self, image: u32) {
        self.image = image;
        for site in &mut self.definitions.sites {
            site.end_image(self.epoch);
        }
        (self.totals.leaked_bytes, self.totals.leaked_allocations) = (0, 0);
        self.live.clear();
        self.latest = None;
        self.latest_of.clear();
    }
}

fn fits(fits: bool) -> Result<(), Malformed> {
    if fits { Ok(()) } else { Err(Malformed::Reference) }
}
